"""Ascend kernels for gather, scatter and indexing. Each is one launch of an aclnn kernel unless
noted.

Index values are not checked on the host. An out-of-range index is a device error, or reads whatever
is stored at that address.
"""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import broadcast, dtype_of, G, ms, number, op, P, reshape, shape_of, stride_of, UnsupportedByKernel
from mindtorch.backend.mindspore.kernels._index_utils import without_classes
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy, named, new_like, strided, zeros

call = op  # `op` under another name, because some kernels below have a parameter named `op`
_INTEGRAL = (ms.int64, ms.int32, ms.int16, ms.int8, ms.uint8, ms.bool_)


def _from_end(i, n):
    """Replaces negative indices, which count from the end (three launches)."""
    return op(G.Select)(op(G.Less)(i, number(0, ms.int64)), op(P.Add)(i, number(n, ms.int64)), i)


def _line(h):
    """Returns a 0-d tensor with shape (1,); other tensors are returned as they are."""
    return h if shape_of(h) else reshape(h, (1,))


def _as(h, shape):
    return h if shape_of(h) == tuple(shape) else reshape(h, shape)


# ------------------------------------------------------------------ gather and scatter
ascend("gather", lambda a, i, *, dim, check: _as(op(G.GatherD)(_line(a), dim, _line(i)), shape_of(i)))


def _corner(src, i):
    """Returns the leading part of src that has the shape of the index."""
    shape = shape_of(i)
    return src if shape_of(src) == shape else strided(src, shape, stride_of(src))


def _scattered(prim, a, dim, i, src, *how):
    """Out-of-place scatter, also for 0-d tensors."""
    src = _line(src)
    i = _line(i)
    return _as(op(prim)(_line(a), dim, i, _corner(src, i), *how), shape_of(a))


ascend("gather_backward", lambda g, i, *, size, dim: _scattered(G.ScatterAddExt, zeros(size, dtype_of(g)), dim, i, g))
ascend("scatter_add", lambda a, src, i, *, dim, check: _scattered(G.ScatterAddExt, a, dim, i, src))


@ascend("scatter")
def _scatter(a, src, i, *, dim, check):
    if not shape_of(src):
        src = strided(src, shape_of(i), (0,) * len(shape_of(i)))
    return _scattered(G.Scatter, a, dim, i, src, "none")


@ascend("take_along")
def _take_along(g, index, *, axis, keepdim, shape, repeated):
    if not shape_of(g):
        return reshape(copy(g), shape_of(index))
    s = shape_of(index)
    r = op(G.GatherD)(g, axis, index if keepdim else reshape(index, s[:axis] + (1,) + s[axis:]))
    return r if keepdim or not shape else reshape(r, s)


@ascend("put_along")
def _put_along(g, index, *, axis, keepdim, shape, repeated):
    if not shape:
        return reshape(copy(g), ())
    if not keepdim:
        s = shape_of(index)
        s = s[:axis] + (1,) + s[axis:]
        index, g = reshape(index, s), reshape(g, s)
    r = zeros(shape, dtype_of(g))
    return op(G.ScatterAddExt)(r, axis, index, g) if repeated else op(G.Scatter)(r, axis, index, g, "none")


# ------------------------------------------------------------------ slices along a dimension
ascend("index_select", lambda a, i, *, dim, check: op(G.IndexSelect)(a, dim, reshape(i, (-1,))) if shape_of(a) else copy(a))


@ascend("index_select_backward")
def _index_select_backward(g, i, *, size, dim):
    return _as(op(G.IndexAddExt)(_line(zeros(size, dtype_of(g))), dim, reshape(i, (-1,)), _line(g), 1), size)


ascend("index_add", lambda a, src, i, *, dim, alpha: _as(op(G.IndexAddExt)(_line(a), dim, reshape(i, (-1,)), _line(src), alpha), shape_of(a)))


@ascend("index_copy")
def _index_copy(a, src, i, *, dim):
    launch = named("IndexCopy", "titto") if shape_of(a) else None
    if launch is not None:
        return launch(a, dim, reshape(i, (-1,)), src, outputs=(new_like(a),))[0]
    r = copy(a)
    op(G.InplaceIndexCopy)(_line(r), dim, reshape(i, (-1,)), _line(src))
    return r


@ascend("index_fill")
def _index_fill(a, value, i, *, dim, check):
    x = _line(a)
    return _as(op(G.IndexFillTensor)(x, dim, _from_end(reshape(i, (-1,)), shape_of(x)[dim]), reshape(value, ())), shape_of(a))


@ascend("take_backward")
def _take_backward(g, i, *, size):
    n = math.prod(size)
    return reshape(op(G.IndexAddExt)(zeros((n,), dtype_of(g)), 0, _from_end(reshape(i, (-1,)), n), reshape(g, (-1,)), 1), size)


ascend("put_indices", lambda i, *, n: reshape(_from_end(i, n), (-1,)))
@ascend("take_along_indices")
def _take_along_indices(i, *, n, size):
    return op(G.RemainderTensorScalar)(i, n) if shape_of(i) == tuple(size) and n else copy(_broadcast_to(_from_end(i, n), size))


@ascend("take")
def _take(a, i, *, check):
    n = math.prod(shape_of(a))
    return reshape(op(G.IndexSelect)(reshape(a, (n,)), 0, _from_end(reshape(i, (-1,)), n)), shape_of(i))


# ------------------------------------------------------------------ indexing with tensors
def _in_front(a, dims):
    """Returns a view with the indexed dimensions first, and the number of dimensions before them in
    `a` if the indexed ones are adjacent (else 0)."""
    rest = [d for d in range(len(shape_of(a))) if d not in dims]
    lead = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    if not dims[0] and dims[-1] == len(dims) - 1:
        return a, 0
    sizes, strides = shape_of(a), stride_of(a)
    return strided(a, [sizes[d] for d in (*dims, *rest)], [strides[d] for d in (*dims, *rest)]), lead


def _turned(h, k, lead, back):
    """Returns a view with the first k dimensions moved behind the next `lead` ones. `back` is the
    inverse."""
    order = list(range(len(shape_of(h))))
    order = order[lead:lead + k] + order[:lead] + order[lead + k:] if back else order[k:k + lead] + order[:k] + order[k + lead:]
    sizes, strides = shape_of(h), stride_of(h)
    return strided(h, [sizes[d] for d in order], [strides[d] for d in order])


def _picked(indices):
    return len(np.broadcast_shapes(*[shape_of(i) for i in indices]))


def _index(a, *indices, dims):
    front, lead = _in_front(a, dims)
    r = op(G.Index)(front, indices)
    return copy(_turned(r, _picked(indices), lead, False)) if lead else r


def _broadcast_to(h, shape):
    """Returns a view broadcast to `shape` (stride 0)."""
    sizes, strides = shape_of(h), stride_of(h)
    more = len(shape) - len(sizes)
    return strided(h, shape, [0] * more + [0 if n == 1 and m != 1 else s for n, m, s in zip(sizes, shape[more:], strides)])


def _put_into(r, values, indices, dims, accumulate):
    front, lead = _in_front(r, dims)
    if lead:
        picked, rest = np.broadcast_shapes(*[shape_of(i) for i in indices]), shape_of(front)[len(dims):]
        values = _turned(_broadcast_to(values, (*rest[:lead], *picked, *rest[lead:])), len(picked), lead, True)
    op(G.InplaceIndexPut)(front, indices, values, accumulate)
    return r


def _index_backward(g, *indices, size, dims):
    return _put_into(zeros(size, dtype_of(g)), g, indices, dims, True)


def _index_put(a, values, *indices, dims):
    return _put_into(copy(a), values, indices, dims, False)


def _index_put_add(a, values, *indices, dims):
    return _put_into(copy(a), values, indices, dims, True)


for _n in range(1, 9):
    ascend(f"index_{_n}", _index)
    ascend(f"index_backward_{_n}", _index_backward)
    ascend(f"index_put_{_n}", _index_put)
    ascend(f"index_put_add_{_n}", _index_put_add)


@ascend("put")
def _put(a, values, *indices, dims):
    """Assigns a[indices] = values in place."""
    if 0 in shape_of(a) or any([0 in shape_of(i) for i in indices]):
        raise UnsupportedByKernel
    _put_into(a, values, indices, dims, False)


# ------------------------------------------------------------------ nonzero, one_hot, searchsorted
@ascend("nonzero", dynamic_shape=True)
def _nonzero(a):
    if not shape_of(a):
        return zeros((shape_of(op(G.NonZero)(_line(a)))[0], 0), ms.int64)
    return op(G.NonZero)(a)


@ascend("nonzero_tuple mask_indices", dynamic_shape=True)
def _nonzero_tuple(a):
    r = op(G.NonZero)(_line(a))
    n, d = shape_of(r)
    return tuple([copy(strided(r, (n,), (d,), k)) for k in range(d)])


@ascend("one_hot", only="int64", dynamic_shape=without_classes)
def _one_hot(a, *, num_classes):
    if num_classes < 1:
        if num_classes != -1:
            raise UnsupportedByKernel
        num_classes = int(op(G.Max)(a).asnumpy()) + 1  # PyTorch synchronizes here too.
        if num_classes < 1:
            raise UnsupportedByKernel
    return op(G.OneHotExt, -1)(a, num_classes, number(1, ms.int64), number(0, ms.int64))


@ascend("searchsorted")
def _searchsorted(sequence, x, sorter, *, right, np_dtype, op: str):
    if dtype_of(sequence) is not dtype_of(x):
        raise UnsupportedByKernel
    return call(G.SearchSorted, ms.int64 if np_dtype == np.int64 else ms.int32, right)(sequence, x, sorter)


# ------------------------------------------------------------------ indices
@ascend("unique_indices", dynamic_shape=True)
def _unique_indices(i, *, n):
    """Returns the distinct indices of a dimension of size n (four launches)."""
    i = reshape(i, (-1,))
    return call(G.Unique2)(o.where(o.lt(i, 0), o.add(i, n), i), True, False, False)[0]


@ascend("index_rows")
def _index_rows(i, *, n, size, dim):
    shape = [1] * max(len(size), 1)
    shape[dim] = math.prod(shape_of(i))
    return copy(broadcast(reshape(i, tuple(shape) if size else ()), tuple(size)))


@ascend("nonzero_static")
def _nonzero_static(a, *, size, fill_value):
    d = len(shape_of(a))
    if not d or not size:
        raise UnsupportedByKernel
    rows = op(G.NonZero)(a)
    n = min(size, shape_of(rows)[0])
    r = op(G.FillScalar)((size, d), fill_value, ms.int64)
    if n:
        op(G.InplaceCopy)(strided(r, (n, d), (d, 1)), strided(rows, (n, d), (d, 1)))
    return r
