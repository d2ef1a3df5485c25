"""Regions of tensors: basic indices, strided regions, copies with a region replaced, memory under
another dtype.

A strided region is described by numbers only, so that autograd nodes keep no memory alive. A base
is (shape, strides, dtype); a region in its memory is (shape, strides, offset, dtype). Strides and
offset are in bytes, and the offset is relative to the base's first element.
"""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.copies import store
from mindtorch.backend.cpu.indexing import worded
from mindtorch.backend.cpu.memory import add_into, copy_as, flat_bytes, offset_of, on_storage, overlaps_itself, root, strided
from mindtorch.backend.strides import noted


# ------------------------------------------------------------------ basic indices
@kernel("slice select subscript_unsqueeze subscript_alias")
def pick(a, *, key):
    try:
        return a[key]
    except IndexError as e:
        raise worded(a.ndim, key if key.__class__ is tuple else (key,), e) from None


@kernel("slice_backward")
def _slice_backward(g, *, shape, key):
    r = np.zeros(shape, g.dtype)
    r[key] = g
    return r


# ------------------------------------------------------------------ strided regions
def _span(shape, strides, itemsize):
    """Returns the number of bytes from an array's first element to the end of its last one."""
    if 0 in shape:
        return 0
    return itemsize + sum((n - 1) * s for n, s in zip(shape, strides))


def _canvas(base, region, fill=None):
    """Returns (array with the base's layout that holds `fill` or zeros, the region of the same
    memory)."""
    have, steps, kind = base
    shape, strides, offset, dtype = region
    span = _span(have, steps, kind.itemsize)
    # A region made by as_strided may be partly or completely outside the base.
    low = min(0, offset)
    high = max(span, offset + _span(shape, strides, dtype.itemsize))
    buf = np.zeros(high - low, np.uint8)
    a = np.ndarray(have, kind, buf, -low if span else 0, steps)
    if fill is not None:
        a[...] = fill
    if 0 in shape:
        return a, np.empty(shape, dtype)
    return a, np.ndarray(shape, dtype, buf, offset - low, strides)


@kernel("read_region")
def _read(a, *, base, region):
    """Returns the region of a tensor with the base's shape, as a new array."""
    return _canvas(base, region, a)[1].copy()


@kernel("scatter_region")
def _scatter(value, *, base, region):
    """Returns zeros in the base's layout with `value` added into the region; overlapping elements
    accumulate."""
    a, part = _canvas(base, region)
    add_into(part, value)
    if overlaps_itself(a):
        # Several elements of the base share one memory location: they share its gradient.
        times, _ = _canvas(base, region)
        add_into(times, np.ones(base[0], base[2]))
        return a / times
    return a


@kernel("copy_slices as_strided_scatter")
def _punch(a, value, *, base, region):
    """Returns a copy of `a` with the region replaced by `value`."""
    out, part = _canvas(base, region, a)
    part[...] = value
    return out


kernel("copies", lambda a: a.copy())


@kernel("as_strided")
def _as_strided(a, *, size, stride, at, home, base):
    return noted(on_storage(a, size, stride, at))


# ------------------------------------------------------------------ a copy with one region replaced
def _storage_copy(a):
    """Copies `a` with its strides and offset, on a copy of the complete storage."""
    if a.flags.c_contiguous and a.base is None or not a.size:
        return a.copy()
    if 0 in a.strides and any(n > 1 and not s for n, s in zip(a.shape, a.strides)):
        return copy_as(a)
    return np.ndarray(a.shape, a.dtype, flat_bytes(root(a)).copy(), offset_of(a), a.strides)


def _replace(part, src):
    if part.shape != src.shape:
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, "
                           "slice size = "
                           f"{list(part.shape)}")
    store(part, src)


@kernel("slice_scatter select_scatter")
def _slice_scatter(a, src, *, key):
    r = _storage_copy(a)
    _replace(r[key], src)
    return r


@kernel("diagonal_scatter")
def _diagonal_scatter(a, src, *, offset, dim1, dim2):
    r = _storage_copy(a)
    part = r.diagonal(offset, dim1, dim2)
    part.flags.writeable = True
    _replace(part, src)
    return r


@kernel("main_diagonal")
def _main_diagonal(a):
    return strided(a, (min(a.shape),), (sum(a.strides),))


@kernel("main_diagonal_backward")
def _main_diagonal_backward(g, *, size):
    r = np.zeros(size, g.dtype)
    _main_diagonal(r)[...] = g
    return r


# ------------------------------------------------------------------ memory under another dtype
@kernel("real_pairs")
def _complex_pairs(a):
    shape, n = (*a.shape, 2), a.itemsize // 2
    real = np.dtype(f"f{n}")
    if a.flags.c_contiguous:
        return a.reshape(-1).view(real).reshape(shape)
    return on_storage(a, shape, (*a.strides, n), offset_of(a), real)


@kernel("complex_of_pairs")
def _pairs_complex(a):
    c = np.dtype(f"c{2 * a.itemsize}")
    if a.flags.c_contiguous:
        return a.reshape(-1).view(c).reshape(a.shape[:-1])
    return on_storage(a, a.shape[:-1], a.strides[:-1], offset_of(a), c)


kernel("pairs_in_order", lambda a: np.ascontiguousarray(a).reshape(a.shape))


@kernel("view_dtype")
def _view_dtype(a, *, dtype):
    old, new = a.itemsize, dtype.itemsize
    if old == new:
        return a.view(dtype)
    shape = (*a.shape[:-1], a.shape[-1] * old // new)
    if a.flags.c_contiguous:
        # NumPy's own view() with another item size fails on empty arrays.
        return a.reshape(-1).view(dtype).reshape(shape) if a.size else np.empty(shape, dtype)
    return on_storage(a, shape, (*a.strides[:-1], new), offset_of(a), dtype)
