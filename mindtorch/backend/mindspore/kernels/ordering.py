"""Kernels of sorting, searching and order statistics.

On the CPU target, P.Sort is stable in both directions (60 to 100 us for small tensors), but its
order is undefined if there is a NaN. Then integer keys with the same order are sorted instead.
P.TopK is faster from a few thousand elements per line on, and not stable. P.SearchSorted (20 us)
treats a NaN among the values as the largest, but fails for a sequence that contains one.
"""
import numpy as np

from mindtorch.backend.mindspore.kernels._call import (STATE, P, UnsupportedByKernel, cast, runtime_assert, dtype_of, from_contiguous, host_span, memory_of, ms,
                                                       number, op,
                                                       reshape, shape_of, stype_of)
from mindtorch.backend.mindspore.kernels._index_utils import counting, cpu_kernel as kernel, dense, expanded, fresh, permuted, size_of, table, zeros
from mindtorch.backend.mindspore.kernels.indexing import gathered
from mindtorch.backend.mindspore.kernels.joining import joined
from mindtorch.backend.mindspore.kernels.shapes import narrowed
from mindtorch.backend.mindspore.recorder_api import graph_break

call = op  # `op` under another name, because some kernels below have a parameter named `op`
_REAL = "float32 float64 float16 int64 int32 int16 int8 uint8 bool"
_MANY = 4096  # elements per line from which TopK is faster
_FLOATS = {ms.float32: (np.int32, ms.int32, 31), ms.float64: (np.int64, ms.int64, 63), ms.float16: (np.int16, ms.int16, 15)}


def has_nan(h):
    """True if the values contain a NaN, for which some kernels return wrong results."""
    if dtype_of(h) not in _FLOATS:
        return False
    m = host_span(h).max()
    return bool(m != m)


def _keys(a):
    """Returns integers in the order of the elements. NaN is the largest, and both zeros are equal.
    """
    d = dtype_of(a)
    kind, int_dtype, sign = _FLOATS[d]
    a = op(P.Add)(a, number(0.0, d))
    a = op(P.Select)(op(P.Equal)(a, a), a, expanded(number(float("nan"), d), shape_of(a)))
    b = from_contiguous(host_span(a).view(kind))
    # Negative floats are ordered by the complement of the bits after the sign.
    return op(P.BitwiseXor)(b, op(P.BitwiseAnd)(op(P.RightShift)(b, number(sign, int_dtype)), number(2 ** sign - 1, int_dtype)))


def order(a, axis, descending):
    """Returns (values or None, indices) of a stable sort. NaN is the largest."""
    a = dense(a)
    if STATE.on is not None and dtype_of(a) in (ms.bool_, *_FLOATS):
        return _order_of_all(a, axis, descending)
    if dtype_of(a) is ms.bool_:
        a = from_contiguous(host_span(a).view(np.uint8))
    if dtype_of(a) is ms.float64 or has_nan(a):  # P.Sort treats float64 as float32
        return None, cast(op(P.Sort, axis, descending)(_keys(a))[1], ms.int64)
    v, at = op(P.Sort, axis, descending)(a)
    return v, cast(at, ms.int64)


def _order_of_all(a, axis, descending):
    """`order` inside a graph, where no NaN check is possible. A second stable sort moves NaN to its
    end and leaves the order of the others."""
    if dtype_of(a) is ms.bool_:
        v, at = op(P.Sort, axis, descending)(cast(a, ms.uint8))
        return v, cast(at, ms.int64)
    if dtype_of(a) is ms.float64:
        graph_break("float64 is sorted by its bit patterns")
    nan = op(P.NotEqual)(a, a)
    rest = op(P.Select)(nan, expanded(number(float("inf"), dtype_of(a)), shape_of(a)), a)
    first = cast(op(P.Sort, axis, descending)(rest)[1], ms.int64)
    second = cast(op(P.Sort, axis, descending)(gathered(cast(nan, ms.float32), first, axis))[1], ms.int64)
    return None, gathered(first, second, axis)


def ordered(a, axis, descending):
    """Returns (values, indices) of a stable sort."""
    v, at = order(a, axis, descending)
    if v is None or dtype_of(v) is not dtype_of(a):
        v = gathered(dense(a), at, axis)
    return v, at


kernel("sort", lambda a, *, axis, descending: ordered(a, axis, descending) if shape_of(a) else (fresh(a), zeros((), ms.int64)), only=_REAL)
kernel("sort_stable", lambda a, *, axis: ordered(a, axis, False) if shape_of(a) else (fresh(a), zeros((), ms.int64)), only=_REAL)


@kernel("argsort")
def _argsort(a, *, axis, descending):
    if not shape_of(a):
        return zeros((), ms.int64)
    return order(cast(dense(a), ms.float32) if dtype_of(a) is ms.bfloat16 else a, axis, descending)[1]


@kernel("topk", only=_REAL)
def _topk(a, *, k, axis, largest, in_order):
    shape = shape_of(a)
    if not k:
        raise UnsupportedByKernel
    if not shape:
        return fresh(a), zeros((), ms.int64)
    n = shape[axis]
    if n >= _MANY and k * 8 <= n and STATE.on is None and dtype_of(a) is ms.float32 and not has_nan(a):
        last = len(shape) - 1
        turn = list(range(len(shape)))
        turn[axis], turn[last] = last, axis
        x = permuted(a, turn)
        v, at = op(P.TopK, True)(x if largest else op(P.Neg)(x), k)
        return permuted(v if largest else op(P.Neg)(v), turn), permuted(cast(at, ms.int64), turn)
    v, at = ordered(a, axis, largest)
    return (v, at) if k == n else (fresh(narrowed(v, axis, 0, k)), fresh(narrowed(at, axis, 0, k)))


# ------------------------------------------------------------------ order statistics
def _one(a, k, axis, keepdim):
    """Returns (the element of rank k of each line, its index)."""
    if not shape_of(a):
        return fresh(a), zeros((), ms.int64)
    v, at = ordered(a, axis, False)
    return _squeezed(narrowed(v, axis, k, k + 1), axis, keepdim), _squeezed(narrowed(at, axis, k, k + 1), axis, keepdim)


def _squeezed(h, axis, keepdim):
    h, s = fresh(h), shape_of(h)
    return h if keepdim else reshape(h, s[:axis] + s[axis + 1:])


kernel("kthvalue", lambda a, *, k, axis, keepdim: _one(a, k - 1, axis, keepdim), only=_REAL)


def _median_of_all(a, axis, keepdim, skip):
    """Median in a graph. A line with NaN returns its first NaN, or with `skip` the median of its
    other elements."""
    if not shape_of(a):
        return fresh(a), zeros((), ms.int64)
    n = shape_of(a)[axis]
    v, at = ordered(a, axis, False)
    if dtype_of(a) not in _FLOATS:
        return tuple([_squeezed(narrowed(h, axis, (n - 1) // 2, (n - 1) // 2 + 1), axis, keepdim) for h in (v, at)])
    # number of elements that are not NaN; these are sorted first
    real = op(P.ReduceSum, True)(cast(op(P.Equal)(a, a), ms.int64), axis)
    if skip:
        k = op(P.FloorDiv)(op(P.Maximum)(op(P.Sub)(real, number(1, ms.int64)), number(0, ms.int64)), number(2, ms.int64))
    else:
        k = op(P.Select)(op(P.Less)(real, number(n, ms.int64)), real, expanded(number((n - 1) // 2, ms.int64), shape_of(real)))
    return tuple([_squeezed(gathered(h, k, axis), axis, keepdim) for h in (v, at)])


def _median(skip):
    return lambda a, *, axis, keepdim: _median_dim(a, axis, keepdim) if STATE.on is None else _median_of_all(dense(a), axis, keepdim, skip)


kernel("median_dim", _median(False), only=_REAL)
kernel("nanmedian_dim", _median(True), only=_REAL)


def _median_dim(a, axis, keepdim):
    if has_nan(a):
        raise UnsupportedByKernel
    return _one(a, (shape_of(a)[axis] - 1) // 2 if shape_of(a) else 0, axis, keepdim)


kernel("median_all", lambda a: _median_all(a, False), only=_REAL)
kernel("nanmedian_all", lambda a: _median_all(a, True), only=_REAL)


def _median_all(a, skip):
    if STATE.on is not None:
        return _median_of_all(reshape(dense(a), (-1,)), 0, False, skip)[0]
    if has_nan(a):
        raise UnsupportedByKernel
    n = size_of(a)
    k = (n - 1) // 2
    return reshape(fresh(narrowed(ordered(reshape(dense(a), (n,)), 0, False)[0], 0, k, k + 1)), ())


@kernel("mode", only=_REAL)
def _mode(a, *, axis, keepdim):
    if not shape_of(a):
        return fresh(a), zeros((), ms.int64)
    if has_nan(a):
        raise UnsupportedByKernel
    shape = shape_of(a)
    n = shape[axis]
    v, at = ordered(a, axis, False)
    if n == 1:
        return _squeezed(v, axis, keepdim), _squeezed(at, axis, keepdim)
    # The first of the longest runs is the smallest of the most frequent values. Its last occurrence
    # is returned.
    same = op(P.Equal)(dense(narrowed(v, axis, 1, n)), dense(narrowed(v, axis, 0, n - 1)))
    where = expanded(table(np.arange(1, n).reshape([-1 if d == axis else 1 for d in range(len(shape))])), shape_of(same))
    none = zeros(shape_of(same), ms.int64)
    starts, _ = op(P.Cummax, axis)(op(P.Select)(same, none, where))
    length = op(P.Sub)(where, starts)
    head = zeros(shape_of(narrowed(v, axis, 0, 1)), ms.int64)
    _, k = order(joined((head, length), axis), axis, True)
    k = dense(narrowed(k, axis, 0, 1))
    return _squeezed(gathered(v, k, axis), axis, keepdim), _squeezed(gathered(at, k, axis), axis, keepdim)


def _ranks_of_all(v, q, rank, last, axis, skip):
    """Ranks in a graph, where no NaN check is possible. A line with NaN uses the last rank, which
    is NaN, or with `skip` the ranks of its other elements."""
    d = dtype_of(v)
    nan = cast(op(P.NotEqual)(v, v), d)
    missing = op(P.ReduceSum, True)(nan, axis) if shape_of(v) else nan
    if skip:
        last = op(P.Maximum)(op(P.Sub)(last, missing), number(0.0, d))
        return op(P.Mul)(reshape(dense(q), [-1 if k == axis else 1 for k in range(len(shape_of(v)))]), last), last
    some = expanded(op(P.Greater)(missing, number(0.0, d)), shape_of(rank))
    return op(P.Select)(some, expanded(last, shape_of(rank)), rank), last


@kernel("quantile_ranks", only="float32 float64")
def _quantile_ranks(v, q, *, axis, interpolation, skip, op: str):
    if STATE.on is None and has_nan(v):
        raise UnsupportedByKernel

    def outside(h):
        p = memory_of(h)
        if ((p < 0) | (p > 1)).any():
            raise RuntimeError(f"{op}() q values must be in the range [0, 1]")
    runtime_assert(q, outside)
    shape, d = shape_of(v), dtype_of(v)
    last = from_contiguous(np.full([1 if k == axis else n for k, n in enumerate(shape)], (shape[axis] if shape else 1) - 1, stype_of(v)))
    rank = call(P.Mul)(reshape(dense(q), [-1 if k == axis else 1 for k in range(len(shape))]), last)
    if STATE.on is not None:
        rank, last = _ranks_of_all(v, q, rank, last, axis, skip)
    turn = {"lower": P.Floor, "higher": P.Ceil, "nearest": P.Rint}.get(interpolation)
    if turn is not None:
        return cast(call(turn)(rank), ms.int64), None, None, None
    low = call(P.Floor)(rank)
    return cast(low, ms.int64), cast(call(P.Ceil)(rank), ms.int64), cast(call(P.Sub)(rank, low), d), last


# ------------------------------------------------------------------ unique
def _runs(a, axis):
    """Returns (first element of each run of equal elements or slices, run index of each element,
    run lengths)."""
    if has_nan(a):
        raise UnsupportedByKernel  # a NaN at the start is returned twice
    return op(P.UniqueConsecutive, True, True, axis)(dense(a))


def _requested(v, inverse, counts, want_inverse, want_counts):
    return v, inverse if want_inverse else None, counts if want_counts else None


def _back(inverse, at):
    """Maps the run indices of sorted elements back to the original order."""
    return op(P.TensorScatterUpdate)(zeros(shape_of(inverse), ms.int64), reshape(at, (-1, 1)), inverse)


@kernel("unique", only=_REAL, dynamic_shape=True)
def _unique(a, *, inverse, counts):
    v, at = ordered(reshape(dense(a), (-1,)), 0, False)
    v, to, n = _runs(v, None)
    return _requested(v, reshape(_back(to, at), shape_of(a)) if inverse else None, n, inverse, counts)


@kernel("unique_dim", only=_REAL, dynamic_shape=True)
def _unique_dim(a, *, axis, inverse, counts):
    shape = shape_of(a)
    rest = [d for d in range(len(shape)) if d != axis]
    n = shape[axis]
    rows = reshape(permuted(a, (axis, *rest)), (n, -1))
    width = shape_of(rows)[1]
    if width > 64:
        raise UnsupportedByKernel
    at = counting(n)
    for k in range(width - 1, -1, -1):
        column = op(P.Gather)(reshape(dense(narrowed(rows, 1, k, k + 1)), (n,)), at, 0)
        at = op(P.Gather)(at, order(column, 0, False)[1], 0)
    v, to, count = _runs(op(P.Gather)(rows, at, 0), 0)
    v = reshape(v, (shape_of(v)[0], *[shape[d] for d in rest]))
    v = permuted(v, (*range(1, axis + 1), 0, *range(axis + 1, len(shape))))
    return _requested(v, _back(to, at) if inverse else None, count, inverse, counts)


@kernel("unique_consecutive", only=_REAL, dynamic_shape=True)
def _unique_consecutive(a, *, axis, inverse, counts):
    if shape_of(a):
        return _requested(*_runs(a, axis), inverse, counts)
    one = (1,) if axis is None else ()
    return _requested(reshape(fresh(a), one), zeros((1,) if axis is not None else (), ms.int64), from_contiguous(np.ones(1, np.int64)), inverse, counts)


# ------------------------------------------------------------------ search
def _without_nan(h):
    m = memory_of(h).max()
    if m != m:
        raise UnsupportedByKernel


@kernel("searchsorted")
def _searchsorted(sequence, x, sorter, *, right, np_dtype, op: str):
    d = dtype_of(sequence)
    if d is not dtype_of(x) or d not in (ms.float32, ms.float64, ms.int64, ms.int32, ms.int16, ms.int8):
        raise UnsupportedByKernel
    if d in _FLOATS:
        runtime_assert(sequence, _without_nan)
    sequence = dense(sequence)
    if sorter is not None:
        def outside(h):
            s = memory_of(h)
            if s.min() < 0 or s.max() >= shape_of(sequence)[-1]:
                raise RuntimeError(f"torch.{op}(): sorter index out of range")
        runtime_assert(sorter, outside)
        sequence = gathered(sequence, dense(sorter), len(shape_of(sequence)) - 1)
    shape = shape_of(x)
    r = call(P.SearchSorted, ms.int64, right)(sequence, dense(x) if shape else reshape(x, (1,)))
    return cast(r if shape else reshape(r, ()), ms.int64 if np_dtype == np.int64 else ms.int32)


@kernel("isin")
def _isin(a, among, *, invert):
    if size_of(a) * size_of(among) > 1 << 22 or dtype_of(a) is not dtype_of(among) or dtype_of(a) is ms.bfloat16:
        raise UnsupportedByKernel
    hit = op(P.Equal)(reshape(dense(a), (-1, 1)), reshape(dense(among), (1, -1)))
    r = reshape(op(P.ReduceAny, False)(hit, (1,)), shape_of(a))
    return op(P.LogicalNot)(r) if invert else r
