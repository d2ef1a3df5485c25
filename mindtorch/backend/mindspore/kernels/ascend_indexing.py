"""Ascend kernels for gather, scatter, indexing, scans and sorting. Each is one launch of an aclnn
kernel unless noted.

Index values are not checked on the host. An out-of-range index is a device error, or reads whatever
is stored at that address.
"""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels._call import mint, G, UnsupportedByKernel, P, cast, dtype_of, ms, number, op, reshape, shape_of, stride_of
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy, strided, zeros
from mindtorch.backend.mindspore.kernels.shapes import narrowed

call = op  # `op` under another name, because some kernels below have a parameter named `op`
_WHOLE = (ms.int64, ms.int32, ms.int16, ms.int8, ms.uint8, ms.bool_)


def _from_end(i, n):
    """Replaces negative indices, which count from the end (three launches)."""
    return op(G.Select)(op(G.Less)(i, number(0, ms.int64)), op(P.Add)(i, number(n, ms.int64)), i)


def _line(h):
    """Returns a 0-d tensor with shape (1,); other tensors are returned as they are."""
    return h if shape_of(h) else reshape(h, (1,))


def _as(h, shape):
    return h if shape_of(h) == tuple(shape) else reshape(h, shape)


# ------------------------------------------------------------------ gather and scatter
@ascend("gather")
def _gather(a, i, *, dim, check):
    return _as(op(G.GatherD)(_line(a), dim, _line(i)), shape_of(i))


def _corner(src, i):
    """Returns the leading part of src that has the shape of the index."""
    shape = shape_of(i)
    return src if shape_of(src) == shape else strided(src, shape, stride_of(src))


def _scattered(prim, a, dim, i, src, *how):
    """Out-of-place scatter, also for 0-d tensors."""
    src = _line(src)
    i = _line(i)
    return _as(op(prim)(_line(a), dim, i, _corner(src, i), *how), shape_of(a))


@ascend("gather_backward")
def _gather_backward(g, i, *, size, dim):
    return _scattered(G.ScatterAddExt, zeros(size, dtype_of(g)), dim, i, g)


@ascend("scatter_add")
def _scatter_add(a, src, i, *, dim, check):
    return _scattered(G.ScatterAddExt, a, dim, i, src)


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
@ascend("index_select")
def _index_select(a, i, *, dim, check):
    return op(G.IndexSelect)(a, dim, reshape(i, (-1,))) if shape_of(a) else copy(a)


@ascend("index_select_backward")
def _index_select_backward(g, i, *, size, dim):
    return _as(op(G.IndexAddExt)(_line(zeros(size, dtype_of(g))), dim, reshape(i, (-1,)), _line(g), 1), size)


@ascend("index_add")
def _index_add(a, src, i, *, dim, alpha):
    return _as(op(G.IndexAddExt)(_line(a), dim, reshape(i, (-1,)), _line(src), alpha), shape_of(a))


@ascend("index_copy")
def _index_copy(a, src, i, *, dim):
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


@ascend("put_places")
def _put_places(i, *, n):
    return reshape(_from_end(i, n), (-1,))


@ascend("take_along_places")
def _take_along_places(i, *, n, size):
    return copy(_spread(_from_end(i, n), size))


@ascend("take")
def _take(a, i, *, check):
    n = math.prod(shape_of(a))
    return reshape(op(G.IndexSelect)(reshape(a, (n,)), 0, _from_end(reshape(i, (-1,)), n)), shape_of(i))


@ascend("embedding embedding_sparse pick_rows")
def _lookup(w, index, *, padding=-1, by_freq=False):
    return op(G.Embedding)(index, w, None, None, 2.0, by_freq)


@ascend("embedding_dense_backward")
def _lookup_grad(g, index, *, padding, by_freq, rows):
    return op(G.EmbeddingDenseBackward)(g, index, rows, padding if padding >= 0 else None, by_freq)


@ascend("put_rows")
def _put_rows(g, index, *, rows):
    return op(G.EmbeddingDenseBackward)(g, index, rows, None, False)


@ascend("embedding_bag_sum")
def _bag_sum(rows, bag, *, bags):
    return op(G.IndexAddExt)(zeros((bags, shape_of(rows)[1]), dtype_of(rows)), 0, bag, rows, 1)


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


def _spread(h, shape):
    """Returns a view broadcast to `shape` (stride 0)."""
    sizes, strides = shape_of(h), stride_of(h)
    more = len(shape) - len(sizes)
    return strided(h, shape, [0] * more + [0 if n == 1 and m != 1 else s for n, m, s in zip(sizes, shape[more:], strides)])


def _put_into(r, values, indices, dims, accumulate):
    front, lead = _in_front(r, dims)
    if lead:
        picked, rest = np.broadcast_shapes(*[shape_of(i) for i in indices]), shape_of(front)[len(dims):]
        values = _turned(_spread(values, (*rest[:lead], *picked, *rest[lead:])), len(picked), lead, True)
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
@ascend("nonzero")
def _nonzero(a):
    if not shape_of(a):
        return zeros((shape_of(op(G.NonZero)(_line(a)))[0], 0), ms.int64)
    return op(G.NonZero)(a)


@ascend("nonzero_tuple mask_places")
def _nonzero_tuple(a):
    r = op(G.NonZero)(_line(a))
    n, d = shape_of(r)
    return tuple([copy(strided(r, (n,), (d,), k)) for k in range(d)])


@ascend("one_hot", only="int64")
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


# ------------------------------------------------------------------ scans
@ascend("cumsum")
def _cumsum(a, *, axis):
    return op(G.CumsumExt)(a, axis, ms.int64 if dtype_of(a) in _WHOLE else None) if shape_of(a) else copy(a)


@ascend("cumsum_backward")
def _cumsum_backward(a, *, axis):
    if not shape_of(a):
        return copy(a)
    back = op(G.ReverseV2, (axis,))  # three launches
    return back(op(G.CumsumExt)(back(a), axis, None))


def _running_extreme(name, run):
    @ascend(name)
    def f(a, *, axis):
        v, at = run(_line(a), axis)
        return _as(v, shape_of(a)), _as(cast(at, ms.int64), shape_of(a))


_running_extreme("cummax", lambda a, axis: op(G.Cummax, axis)(a))
_running_extreme("cummin", lambda a, axis: op(G.CumminExt)(a, axis))


def _neighbours(a, axis):
    n = shape_of(a)[axis]
    if dtype_of(a) is ms.bool_ or not n:
        raise UnsupportedByKernel
    return narrowed(a, axis, 1, n), narrowed(a, axis, 0, n - 1)


@ascend("diff")
def _diff(a, *, axis):
    return op(G.SubExt)(*_neighbours(a, axis), 1)


@ascend("pair_sums")
def _pair_sums(a, *, axis):
    return op(P.Add)(*_neighbours(a, axis))


def _between(name, do):
    @ascend(name)
    def f(g, *, axis):
        if dtype_of(g) is ms.bool_:
            raise UnsupportedByKernel
        shape = list(shape_of(g))
        shape[axis] = 1
        edge = zeros(shape, dtype_of(g))
        return op(do)(op(G.Concat, axis)((edge, g)), op(G.Concat, axis)((g, edge)))


_between("diff_backward", G.Sub)
_between("pair_sums_backward", P.Add)


# ------------------------------------------------------------------ sorting and counting
@ascend("sort")
def _sort(a, *, axis, descending):
    v, at = op(G.SortExt)(_line(a), axis, descending, True)
    return _as(v, shape_of(a)), _as(at, shape_of(a))


@ascend("sort_stable")
def _sort_stable(a, *, axis):
    return _sort(a, axis=axis, descending=False)


@ascend("argsort")
def _argsort(a, *, axis, descending):
    return _sort(a, axis=axis, descending=bool(descending))[1]


@ascend("topk")
def _topk(a, *, k, axis, largest, in_order):
    if not shape_of(a):
        v, at = op(G.TopkExt)(_line(a), k, 0, largest, in_order)
        return (reshape(v, ()), reshape(at, ())) if k else (v, at)
    return op(G.TopkExt)(a, k, axis, largest, in_order)


@ascend("kthvalue")
def _kthvalue(a, *, k, axis, keepdim):
    v, at = op(G.Kthvalue)(_line(a), k, axis, keepdim)
    return (v, at) if shape_of(a) else (reshape(v, ()), reshape(at, ()))


@ascend("median_all")
def _median_all(a):
    return op(G.MedianExt)(a)


@ascend("median_dim")
def _median_dim(a, *, axis, keepdim):
    v, at = op(G.MedianDim)(_line(a), axis, keepdim)
    return (v, at) if shape_of(a) else (reshape(v, ()), reshape(at, ()))


@ascend("repeat_places")
def _repeat_places(counts, *, np_dtype):
    """Returns 0, 1, ..., each repeated `counts` times. Two launches; the length of the result
    depends on the values of `counts`."""
    n = math.prod(shape_of(counts))
    every = op(G.Arange)(0, n, 1, ms.int64 if np_dtype == np.int64 else ms.int32)
    return op(G.RepeatInterleaveTensor)(every, reshape(counts, (-1,)), 0, None)


@ascend("unique")
def _unique(a, *, inverse, counts):
    v, to, n = op(G.Unique2)(a, True, inverse, counts)
    return v, to if inverse else None, n if counts else None


@ascend("unique_dim")
def _unique_dim(a, *, axis, inverse, counts):
    v, to, n = op(G.UniqueDim)(a, True, True, axis)
    return v, to if inverse else None, n if counts else None


@ascend("unique_consecutive")
def _unique_consecutive(a, *, axis, inverse, counts):
    if not shape_of(a):
        one = (1,) if axis is None else ()
        return reshape(copy(a), one), zeros((1,) if axis is not None else (), ms.int64) if inverse else None, op(G.Ones)((1,), ms.int64) if counts else None
    v, to, n = op(G.UniqueConsecutive, inverse, counts, axis)(a)
    return v, to if inverse else None, n if counts else None


@ascend("bincount")
def _bincount(a, weights, *, minlength):
    return mint.bincount(a, weights, minlength)
