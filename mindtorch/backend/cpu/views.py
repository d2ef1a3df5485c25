"""Kernels of views, which are strided NumPy views of their input without a copy, and of their
gradients."""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.copies import copy_c
from mindtorch.backend.cpu.memory import add_into, strided
from mindtorch.backend.strides import can_view, check_extent, infer_size, noted

_ALL = slice(None)


def along(dim, item):
    """Returns the NumPy index that applies `item` to dimension `dim`.

    The ellipsis keeps a 0-d result an array.
    """
    return (_ALL,) * dim + (item, ...)


# ------------------------------------------------------------------ view and reshape
kernel("to_local", lambda a: a[...])


@kernel("view")
def _view(a, *, size):
    if a.flags.c_contiguous:
        try:
            return a.reshape(size)
        except ValueError:
            pass  # raised below with PyTorch's message, and without NumPy's error as its context
    size = infer_size(size, a.size)
    # Checked first, because NumPy copies before it fails, and a device's memory cannot be read.
    if can_view(a.shape, a.strides, size):
        r = a.view()
        r.shape = size
        return r
    raise RuntimeError("view size is not compatible with input tensor's size and stride (at least one dimension spans across "
                       "two contiguous subspaces). Use .reshape(...) instead.")


@kernel("unsafe_view")
def _unsafe_view(a, *, size):
    return (a if a.flags.c_contiguous else copy_c(a)).reshape(size)


# ------------------------------------------------------------------ adding and dropping dimensions
_NEW = tuple([along(d, None) for d in range(64)])


@kernel("unsqueeze")
def _unsqueeze(a, *, dim):
    return a[_NEW[dim]]


@kernel("unsqueeze_ends")
def _unsqueeze_ends(a, *, before, after):
    return a[(None,) * before + (...,) + (None,) * after]


@kernel("squeeze")
def _squeeze(a, *, axes):
    return a.squeeze(axes)


# ------------------------------------------------------------------ order of dimensions
@kernel("transpose unsafe_transpose")
def _transpose(a, *, dim0, dim1):
    return a.swapaxes(dim0, dim1)


@kernel("t")
def _t(a):
    return a.T


@kernel("permute")
def _permute(a, *, dims):
    r = a.transpose(dims)
    return r if a.ndim < 4 or not r.flags.c_contiguous else noted(r)


# ------------------------------------------------------------------ splitting
@kernel("split split_with_sizes unsafe_split")
def _split(a, *, dim, bounds):
    if not dim:
        return tuple([a[i:j] for i, j in bounds])
    return tuple([a[along(dim, slice(i, j))] for i, j in bounds])


@kernel("unbind")
def _unbind(a, *, dim):
    if a.ndim > 1:  # takes 0.7 of the time of the slices below
        return tuple(a.transpose((dim, *range(dim), *range(dim + 1, a.ndim))) if dim else a)
    return tuple([a[along(dim, i)] for i in range(a.shape[dim])])


@kernel("diagonal")
def _diagonal(a, *, offset, dim1, dim2):
    r = a.diagonal(offset, dim1, dim2)
    r.flags.writeable = a.flags.writeable
    return r


@kernel("diagonal_backward")
def _diagonal_backward(g, *, shape, offset, dim1, dim2):
    r = np.zeros(shape, g.dtype)
    _diagonal(r, offset=offset, dim1=dim1, dim2=dim2)[...] = g
    return r


@kernel("unfold")
def _unfold(a, *, dim, size, step):
    if not a.ndim:
        return a.reshape(1)[:size]
    n, s = a.shape[dim], a.strides[dim]
    shape = (*a.shape[:dim], (n - size) // step + 1, *a.shape[dim + 1:], size)
    strides = (*a.strides[:dim], s * step, *a.strides[dim + 1:], s)
    return strided(a, shape, strides)


@kernel("unfold_backward")
def _unfold_backward(g, *, shape, dim, size, step):
    r = np.zeros(shape, g.dtype)
    region = _unfold(r, dim=dim, size=size, step=step)
    add_into(region, g)
    return r


# ------------------------------------------------------------------ broadcasting
@kernel("expand")
def _expand(a, *, size):
    lead = len(size) - a.ndim
    try:
        if size[lead:] == a.shape and a.size and a.flags.c_contiguous:
            return np.ndarray(size, a.dtype, a, 0, (0,) * lead + a.strides)
        st = [0] * lead + [0 if n == 1 and m != 1 else s for n, m, s in zip(a.shape, size[lead:], a.strides)]
        return strided(a, size, st) if a.size else np.zeros(size, a.dtype)
    except ValueError:
        check_extent(size)
        raise
