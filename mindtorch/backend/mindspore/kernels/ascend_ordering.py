"""Ascend: sorting, order statistics, membership and counts of values.

Where aclnn has no kernel, aclnn kernels are composed; docstrings give the number of launches.
"""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import broadcast, cast, dtype_of, G, mint, ms, op, reshape, shape_of, UnsupportedByKernel
from mindtorch.backend.mindspore.kernels._index_utils import counting
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy, CUBE, zeros
from mindtorch.backend.mindspore.kernels.ascend_indexing import _as, _line
from mindtorch.backend.mindspore.kernels.reduction import sums
from mindtorch.backend.mindspore.kernels.shapes import narrowed

call = op  # `op` under another name, because some kernels have a parameter named `op`

_MOST = 1 << 24  # maximum number of element pairs in memory at a time


# ------------------------------------------------------------------ sorting and counting
@ascend("sort")
def _sort(a, *, axis, descending):
    v, at = op(G.SortExt)(_line(a), axis, descending, True)
    return _as(v, shape_of(a)), _as(at, shape_of(a))


ascend("sort_stable", lambda a, *, axis: _sort(a, axis=axis, descending=False))
ascend("argsort", lambda a, *, axis, descending: _sort(a, axis=axis, descending=bool(descending))[1])


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


ascend("median_all", lambda a: op(G.MedianExt)(a))


@ascend("median_dim")
def _median_dim(a, *, axis, keepdim):
    v, at = op(G.MedianDim)(_line(a), axis, keepdim)
    return (v, at) if shape_of(a) else (reshape(v, ()), reshape(at, ()))


@ascend("repeat_indices", dynamic_shape=True)
def _repeat_indices(counts, *, np_dtype):
    """Returns 0, 1, ..., each repeated `counts` times. Two launches; the length of the result
    depends on the values of `counts`."""
    n = math.prod(shape_of(counts))
    every = op(G.Arange)(0, n, 1, ms.int64 if np_dtype == np.int64 else ms.int32)
    return op(G.RepeatInterleaveTensor)(every, reshape(counts, (-1,)), 0, None)


@ascend("unique", dynamic_shape=True)
def _unique(a, *, inverse, counts):
    v, to, n = op(G.Unique2)(a, True, inverse, counts)
    return v, to if inverse else None, n if counts else None


@ascend("unique_dim", dynamic_shape=True)
def _unique_dim(a, *, axis, inverse, counts):
    v, to, n = op(G.UniqueDim)(a, True, True, axis)
    return v, to if inverse else None, n if counts else None


@ascend("unique_consecutive", dynamic_shape=True)
def _unique_consecutive(a, *, axis, inverse, counts):
    if not shape_of(a):
        one = (1,) if axis is None else ()
        return reshape(copy(a), one), zeros((1,) if axis is not None else (), ms.int64) if inverse else None, op(G.Ones)((1,), ms.int64) if counts else None
    v, to, n = op(G.UniqueConsecutive, inverse, counts, axis)(a)
    return v, to if inverse else None, n if counts else None


ascend("bincount", lambda a, weights, *, minlength: mint.bincount(a, weights, minlength), dynamic_shape=True)


# ------------------------------------------------------------------ membership, order
@ascend("isin", only=CUBE + " int64 int32")
def _isin(a, among, *, invert):
    """Compares all pairs of elements (two launches); does not split large operands into pieces."""
    n, m = math.prod(shape_of(a)), math.prod(shape_of(among))
    if n * m > _MOST:
        raise UnsupportedByKernel
    r = mint.any(o.eq(reshape(a, (n, 1)), reshape(among, (1, m))), 1)
    return reshape(o.not_(r) if invert else r, shape_of(a))


def _picked(x, at, axis, keepdim):
    r = op(G.GatherD)(x, axis, at)
    s = shape_of(r)
    return r if keepdim else reshape(r, s[:axis] + s[axis + 1:])


@ascend("mode", only=CUBE + " int64 int32")
def _mode(a, *, axis, keepdim):
    """Returns the value, and the index of the last element, of the first of the longest runs of
    sorted elements (twelve launches)."""
    if not shape_of(a):
        return copy(a), zeros((), ms.int64)
    shape = shape_of(a)
    n = shape[axis]
    v, at = op(G.SortExt)(a, axis, False, True)
    line = reshape(counting(n), [-1 if d == axis else 1 for d in range(len(shape))])
    head = zeros([1 if d == axis else m for d, m in enumerate(shape)], ms.int64)
    if n == 1:
        return _picked(v, head, axis, keepdim), _picked(at, head, axis, keepdim)
    same = o.eq(narrowed(v, axis, 1, n), narrowed(v, axis, 0, n - 1))
    starts = op(G.Concat, axis)((head, o.where(same, 0, copy(broadcast(narrowed(line, axis, 1, n), shape_of(same))))))
    length = o.sub(line, cast(op(G.Cummax, axis)(starts)[0], ms.int64))
    # Lengths minus a share of the index: no two are equal, and the first of the longest runs has
    # the maximum.
    k = op(G.ArgMaxExt)(o.sub(o.mul(length, n), line), axis, True)
    return _picked(v, k, axis, keepdim), _picked(at, k, axis, keepdim)


def _missing(a):
    return o.ne(a, a)


@ascend("nanmedian_dim", only=CUBE + " int64 int32")
def _nanmedian_dim(a, *, axis, keepdim):
    """Returns the lower median of the elements that are not nan: nan sorts last (seven launches).
    """
    shape = shape_of(a)
    if not shape:
        return copy(a), zeros((), ms.int64)
    if dtype_of(a) in (ms.int64, ms.int32):
        return op(G.MedianDim)(a, axis, keepdim)
    v, at = op(G.SortExt)(a, axis, False, True)
    there = sums(op(G.Equal)(a, a), (axis,), True)
    k = mint.floor_divide(o.at_least(o.sub(there, 1), 0), 2)
    return _picked(v, k, axis, keepdim), _picked(at, k, axis, keepdim)


ascend("nanmedian_all", lambda a: reshape(_nanmedian_dim(reshape(a, (-1,)), axis=0, keepdim=False)[0], ()), only=CUBE + " int64 int32")


@ascend("quantile_ranks", only="float32")
def _quantile_ranks(v, q, *, axis, interpolation, skip, op: str):
    """Does not check whether all q are within [0, 1]."""
    shape = shape_of(v)
    n, rank_of = shape[axis] if shape else 1, [-1 if k == axis else 1 for k in range(len(shape))]
    missing = sums(_missing(v), (axis,), True) if shape else sums(_missing(v))
    last_index = call(G.FillScalar)(shape_of(missing), float(n - 1), ms.float32)
    last = o.at_least(o.sub(last_index, cast(missing, ms.float32)), 0) if skip else last_index
    rank = o.mul(reshape(q, rank_of), last)
    if not skip:
        rank = o.where(o.gt(missing, 0), last, rank)
    turn = {"lower": o.floor, "higher": mint.ceil, "nearest": o.rint}.get(interpolation)
    if turn is not None:
        return cast(turn(rank), ms.int64), None, None, None
    low = o.floor(rank)
    return cast(low, ms.int64), cast(mint.ceil(rank), ms.int64), o.sub(rank, low), last
