"""Kernels of gather, scatter and indexing with tensors.

On the CPU target, for small tensors: P.Gather 40 us, P.GatherD 25 us, P.TensorScatterAdd 29 us.
Scatters run on the flattened tensor or on its rows. All kernels check indices as `_places.look`
describes.
"""
import math

import numpy as np

from mindtorch.backend.cpu.indexing import classes_of
from mindtorch.backend.mindspore.kernels._call import (COMPLEX, STATE, G, P, UnsupportedByKernel, cast, dtype_of, from_contiguous, host_span, memory_of, ms,
                                                       number, op,
                                                       reshape, shape_of, stype_of)
from mindtorch.backend.mindspore.kernels._call import runtime_assert as _check
from mindtorch.backend.mindspore.kernels._index_utils import (bits, cpu_kernel as kernel, dense, expanded, linear_indices, fresh, check_range, part, permuted,
                                                              size_of, split_at, unbits, view, without_classes, wrapped, write, zeros)

_NUMERIC = "float32 float64 float16 int64 int32 int16 int8 uint8"
_BY = {"sum": P.TensorScatterAdd, "mean": P.TensorScatterAdd, "prod": P.TensorScatterMul, "amax": P.TensorScatterMax, "amin": P.TensorScatterMin}


_NUMERIC_DTYPES = frozenset([getattr(ms, n) for n in _NUMERIC.split()])
#: For bools, max is "or" and min is "and".
_OF_BOOLS = {"sum": P.TensorScatterMax, "prod": P.TensorScatterMin, "amax": P.TensorScatterMax, "amin": P.TensorScatterMin}


def combined(flat, at, src, how):
    """Combines rows of `flat` with the rows of src at the indices `at`, shape (count, 1), one after
    another. All have one dtype and C order."""
    d = dtype_of(flat)
    if d in _NUMERIC_DTYPES:
        return op(_BY[how])(flat, at, src)
    if d is ms.bool_ and how in _OF_BOOLS and STATE.on is not None:
        return cast(op(_OF_BOOLS[how])(cast(flat, ms.int32), at, cast(src, ms.int32)), d)
    if d is ms.bool_ and how in _OF_BOOLS:
        as_ = [from_contiguous(host_span(h).view(np.uint8)) for h in (flat, src)]
        return from_contiguous(host_span(op(_OF_BOOLS[how])(as_[0], at, as_[1])).view(np.bool_))
    if d in COMPLEX and how == "sum":
        return op(P.Add)(flat, op(P.UnsortedSegmentSum)(src, reshape(at, (-1,)), shape_of(flat)[0]))
    raise UnsupportedByKernel


def _checked(i, a, dim, check=True, kind=RuntimeError, prefix=""):
    """Checks the indices along a dimension of `a`. None may be negative."""
    if check:
        check_range(i, shape_of(a)[dim] if shape_of(a) else 1, dim, False, kind, prefix)


def _rows(shape, dim):
    """Returns (elements before, along, after the dimension) of a shape; 0-d counts as (1, 1, 1)."""
    return split_at(shape, dim) if shape else (1, 1, 1)


# ------------------------------------------------------------------ gather and scatter
def gathered(a, i, dim):
    """Gathers the elements of `a` at the indices `i` of a dimension. Both have the same number of
    dimensions."""
    sizes = shape_of(i)
    if not shape_of(a) or not sizes:
        return reshape(op(P.Gather)(reshape(a, (-1,)), reshape(i, (-1,)), 0), sizes)
    shape = [n if d == dim else m for d, (n, m) in enumerate(zip(shape_of(a), sizes))]
    return op(P.GatherD)(dense(part(a, shape)), dim, dense(i))


@kernel("gather")
def _gather(a, i, *, dim, check):
    _checked(i, a, dim, check)
    return unbits(gathered(bits(a), i, dim), a)


def added(a, i, src, dim):
    """Returns a tensor of the shape and dtype of `a` with the sum of the elements of src scattered
    to each index."""
    return _sums(a, i, src, dim) if _by_sums(a, i, dim) else scattered(zeros(shape_of(a), dtype_of(a)), i, src, dim, "sum")


def _sums(a, i, src, dim):
    return op(G.GatherDGradV2)(a, dim, dense(i), dense(src))


def _by_sums(a, i, dim):
    """True if GatherDGradV2 supports the scatter. It runs on one thread and takes 2.4 ms for sums
    of (300, 600), vs 4.2 ms for TensorScatterAdd on the flattened tensor, plus its linear indices.
    """
    shape = shape_of(a)
    return (len(shape) > 1 and dtype_of(a) in _NUMERIC_DTYPES and dtype_of(a) != ms.float16
            and all(m == n for d, (m, n) in enumerate(zip(shape_of(i), shape)) if d != dim))


def scattered(a, i, src, dim, how=None):
    """Returns a copy of `a` (C order) with src scattered to the indices `i` of a dimension, or
    combined with the elements there."""
    shape = shape_of(a)
    # P.TensorScatterElements must not be used for sums: its threads race on one index and lose
    # terms. 21 of 300 sums of (300, 600) along dim 0 were wrong.
    if how is None and len(shape) > 1 and dtype_of(a) in _NUMERIC_DTYPES:
        return op(P.TensorScatterElements, dim, "none")(a, dense(i), dense(src))
    if how == "sum" and _by_sums(a, i, dim):
        return op(P.Add)(a, _sums(a, i, src, dim))
    at = linear_indices(i, shape, dim) if shape else reshape(i, (-1, 1))
    flat, src = reshape(a, (-1,)), reshape(dense(src), (-1,))
    return reshape(op(P.TensorScatterUpdate)(flat, at, src) if how is None else combined(flat, at, src, how), shape)


def _source(src, i):
    """Returns the scatter source in the shape of the index: the leading part of src, or one value
    expanded."""
    return expanded(src, shape_of(i)) if not shape_of(src) else part(src, shape_of(i)) if len(shape_of(src)) == len(shape_of(i)) else reshape(src, shape_of(i))


kernel("gather_backward", lambda g, i, *, size, dim: added(zeros(size, dtype_of(g)), i, g, dim))


@kernel("scatter")
def _scatter(a, src, i, *, dim, check):
    _checked(i, a, dim, check)
    return unbits(scattered(bits(a), i, bits(_source(src, i)), dim), a)


def _scatter_into(how):
    def f(a, src, i, *, dim, check=True):
        _checked(i, a, dim, check)
        return scattered(dense(a), i, _source(src, i), dim, how)
    return f


kernel("scatter_add", _scatter_into("sum"))
kernel("scatter_multiply", _scatter_into("prod"))


def _extreme(np_dtype, how):
    if np_dtype.kind == "b":
        return how == "amin"
    if np_dtype.kind == "f":
        return np.inf if how == "amin" else -np.inf
    return np.iinfo(np_dtype).max if how == "amin" else np.iinfo(np_dtype).min


def counted(shape, i, dim, include_self, dtype):
    """Returns how many values are scattered to each index, at least 1."""
    start = from_contiguous(np.full(shape, 1 if include_self else 0, np.int64))
    n = scattered(start, i, from_contiguous(np.ones(shape_of(i), np.int64)), dim, "sum")
    return cast(n if include_self else op(P.Maximum)(n, number(1, ms.int64)), dtype)


@kernel("scatter_reduce")
def _scatter_reduce(a, src, i, *, dim, how, include_self, check):
    mean = how == "mean"
    if mean and dtype_of(a) not in _NUMERIC_DTYPES:
        raise UnsupportedByKernel
    _checked(i, a, dim, check)
    r, src = dense(a), dense(_source(src, i))
    floating = how in ("amax", "amin") and stype_of(a).kind == "f"
    if floating and STATE.on is None and (_has_nan(src) or _has_nan(r)):
        raise UnsupportedByKernel  # the kernel compares NaN in an undefined way
    if not include_self:
        np_dtype = stype_of(r)
        start = {"sum": 0, "mean": 0, "prod": 1}.get(how)
        r = scattered(r, i, from_contiguous(np.full(shape_of(i), _extreme(np_dtype, how) if start is None else start, np_dtype)), dim)
    if floating and STATE.on is not None:
        return _with_nan(r, i, src, dim, how)
    r = scattered(r, i, src, dim, how)
    if not mean:
        return r
    return op(P.RealDiv if stype_of(a).kind == "f" else P.FloorDiv)(r, counted(shape_of(a), i, dim, include_self, dtype_of(a)))


def _with_nan(r, i, src, dim, how):
    """amax or amin per index with NaN propagation. A graph cannot check for NaN, so NaN is
    scattered separately."""
    d = dtype_of(r)
    nans = [op(P.NotEqual)(h, h) for h in (r, src)]
    least = number(_extreme(stype_of(r), how), d)
    r, src = [op(P.Select)(n, expanded(least, shape_of(h)), h) for n, h in zip(nans, (r, src))]
    there = scattered(cast(nans[0], ms.int32), i, cast(nans[1], ms.int32), dim, "amax")
    best = scattered(r, i, src, dim, how)
    return op(P.Select)(cast(there, ms.bool_), expanded(number(float("nan"), d), shape_of(best)), best)


def _has_nan(h):
    m = host_span(h).max()
    return bool(m != m)


kernel("scatter_count", lambda g, i, *, dim, include_self: counted(shape_of(g), i, dim, include_self, dtype_of(g)), only=_NUMERIC + " bool")


# ------------------------------------------------------------------ slices along a dimension
def to_rows(a, dim):
    """Returns (n, everything else) in C order, with the dimension first."""
    shape = shape_of(a)
    if not shape:
        return reshape(a, (1, 1))
    before, n, behind = split_at(shape, dim)
    return reshape(permuted(a, (dim, *range(dim), *range(dim + 1, len(shape)))) if before > 1 else dense(a), (n, before * behind))


def from_rows(r, shape, dim):
    """Inverse of `to_rows`, for a result of `shape`."""
    if not shape:
        return reshape(r, ())
    before, n, behind = split_at(shape, dim)
    if before == 1:
        return reshape(r, shape)
    moved = (shape[dim], *shape[:dim], *shape[dim + 1:])
    return permuted(reshape(r, moved), (*range(1, dim + 1), 0, *range(dim + 1, len(shape))))


@kernel("index_select")
def _index_select(a, i, *, dim, check):
    if check:
        n = shape_of(a)[dim] if shape_of(a) else 1

        def outside(h):
            u = np.ascontiguousarray(memory_of(h)).view(np.uint64)
            if u.size and u.max() >= n:
                raise IndexError("index out of range in self")
        _check(i, outside)
    if not shape_of(a):
        return fresh(a)
    return unbits(op(P.Gather)(bits(a), reshape(dense(i), (-1,)), dim), a)


@kernel("index_select_backward")
def _index_select_backward(g, i, *, size, dim):
    if not size:
        return reshape(fresh(g), ())
    before, n, behind = split_at(size, dim)
    r = combined(zeros((n, before * behind), dtype_of(g)), reshape(dense(i), (-1, 1)), to_rows(g, dim), "sum")
    return from_rows(r, size, dim)


@kernel("index_add")
def _index_add(a, src, i, *, dim, alpha):
    _checked(i, a, dim)
    if alpha != 1:
        if dtype_of(src) is ms.bool_:
            raise UnsupportedByKernel
        src = op(P.Mul)(dense(src), number(alpha, dtype_of(src)))
    i = reshape(dense(i), (-1, 1))
    return from_rows(combined(to_rows(a, dim), i, reshape(to_rows(src, dim), (size_of(i), -1)), "sum"), shape_of(a), dim)


@kernel("index_copy")
def _index_copy(a, src, i, *, dim):
    _checked(i, a, dim, True, IndexError, "index_copy_(): ")
    i = reshape(dense(i), (-1, 1))
    r = op(P.TensorScatterUpdate)(to_rows(bits(a), dim), i, reshape(to_rows(bits(src), dim), (size_of(i), -1)))
    return unbits(from_rows(r, shape_of(a), dim), a)


@kernel("index_fill")
def _index_fill(a, value, i, *, dim, check):
    shape = shape_of(a)
    if check:
        check_range(i, shape[dim] if shape else 1, dim)
    rows = to_rows(bits(a), dim)
    i = wrapped(reshape(dense(i), (-1,)), shape[dim] if shape else 1)
    value = expanded(reshape(bits(value), ()), (size_of(i), shape_of(rows)[1]))
    return unbits(from_rows(op(P.TensorScatterUpdate)(rows, reshape(i, (-1, 1)), value), shape, dim), a)


@kernel("unique_indices", dynamic_shape=True)
def _unique_indices(i, *, n):
    """Returns the distinct indices into a dimension of n elements, sorted."""
    v = op(P.Sort, 0, False)(wrapped(reshape(dense(i), (-1,)), n))[0]
    return op(P.UniqueConsecutive, False, False, None)(v)[0]


@kernel("index_rows")
def _index_rows(i, *, n, size, dim):
    check_range(i, n, dim, False, RuntimeError)
    shape = [1] * max(len(size), 1)
    shape[dim] = size_of(i)
    return fresh(expanded(reshape(dense(i), shape if size else ()), size))


# ------------------------------------------------------------------ take and put
def _look_flat(name, i, n):
    if not n:
        raise IndexError(f"{name}(): tried to take from an empty tensor")

    def outside(h):
        a = memory_of(h)
        if a.min() < -n or a.max() >= n:
            bad = a[(a >= n) | (a < -n)].reshape(-1)[0]
            raise IndexError(f"out of range: tried to access index {int(bad)} on a tensor of {n} elements.")
    _check(i, outside)


@kernel("take")
def _take(a, i, *, check):
    n = size_of(a)
    if check:
        _look_flat("take", i, n)
    return unbits(op(P.Gather)(reshape(bits(a), (-1,)), wrapped(i, n), 0), a)


@kernel("take_backward")
def _take_backward(g, i, *, size):
    n = math.prod(size)
    return reshape(combined(zeros((n,), dtype_of(g)), reshape(wrapped(i, n), (-1, 1)), reshape(dense(g), (-1,)), "sum"), size)


@kernel("put_indices")
def _put_indices(i, *, n):
    _look_flat("put_", i, n)
    return reshape(fresh(wrapped(i, n)), (-1,))


@kernel("take_along_indices")
def _take_along_indices(i, *, n, size):
    def outside(h):
        a = memory_of(h)
        if a.min() < -n or a.max() >= n:
            raise UnsupportedByKernel
    _check(i, outside)
    return fresh(expanded(wrapped(i, n), size))


# ------------------------------------------------------------------ indexing with tensors
def _joint(indices, ns, dims):
    """Returns the linear indices into the indexed dimensions, in C order."""
    at = None
    for i, n, d in zip(indices, ns, dims):
        check_range(i, n, d)
        i = wrapped(i, n)
        at = i if at is None else op(P.Add)(op(P.Mul)(at, number(n, ms.int64)), i)
    return dense(at)


class _Plan:
    """Describes how index tensors at `dims` select from a tensor of `size`: the dimension order
    with the indexed dimensions first, and the shape of the result."""

    __slots__ = ("front", "rest", "positions", "inner", "result", "back")

    def __init__(self, size, dims, picked):
        others = [d for d in range(len(size)) if d not in dims]
        self.front = (*dims, *others)
        self.rest = tuple([size[d] for d in others])
        self.positions = math.prod([size[d] for d in dims])
        self.inner = math.prod(self.rest)
        # Adjacent index tensors leave their dimensions in place; otherwise they come first.
        lead = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
        n = len(picked)
        self.result = (*self.rest[:lead], *picked, *self.rest[lead:])
        # dimension order from (picked, rest) to the result, or None
        self.back = None if not lead else (*range(n, n + lead), *range(n), *range(n + lead, n + len(self.rest)))


def _inverse(order):
    r = [0] * len(order)
    for k, d in enumerate(order):
        r[d] = k
    return tuple(r)


def _rows_of_values(values, plan, picked):
    """Broadcasts the values to the result and returns them as rows, one per selected index."""
    v = expanded(values, plan.result)
    if plan.back is not None:
        v = permuted(v, _inverse(plan.back))
    return reshape(v, (math.prod(picked), plan.inner))


def _plan(shape, indices, dims):
    at = _joint(indices, [shape[d] for d in dims], dims)
    picked = shape_of(at)
    return at, picked, _Plan(shape, dims, picked)


def _index(a, *indices, dims):
    shape = shape_of(a)
    if len(dims) == 1:
        check_range(indices[0], shape[dims[0]], dims[0])
        return unbits(op(P.Gather)(bits(a), wrapped(indices[0], shape[dims[0]]), dims[0]), a)
    at, picked, plan = _plan(shape, indices, dims)
    rows = reshape(permuted(bits(a), plan.front), (plan.positions, *plan.rest))
    r = op(P.Gather)(rows, at, 0)
    return unbits(r if plan.back is None else permuted(r, plan.back), a)


def _to_front(a, plan):
    return reshape(permuted(a, plan.front), (plan.positions, plan.inner))


def _from_front(r, shape, plan):
    r = reshape(r, tuple([shape[d] for d in plan.front]))
    return permuted(r, _inverse(plan.front))


def _put_by(how, a, values, indices, dims):
    shape = shape_of(a)
    at, picked, plan = _plan(shape, indices, dims)
    rows, at, values = _to_front(a, plan), reshape(at, (-1, 1)), _rows_of_values(values, plan, picked)
    r = op(P.TensorScatterUpdate)(rows, at, values) if how is None else combined(rows, at, values, how)
    return _from_front(r, shape, plan)


def _index_backward(g, *indices, size, dims):
    return _put_by("sum", zeros(size, dtype_of(g)), g, indices, dims)


def _index_put(a, values, *indices, dims):
    return unbits(_put_by(None, bits(a), bits(values), indices, dims), a)


def _index_put_add(a, values, *indices, dims):
    return _put_by("sum", a, values, indices, dims)


def _put(a, values, *indices, dims):
    """Assigns a[indices] = values in place."""
    if not all([size_of(i) for i in indices]):
        return
    if not size_of(a):
        raise UnsupportedByKernel
    write(a, _index_put(a, values, *indices, dims=dims))


for _n in range(1, 33):
    kernel(f"index_{_n}", _index)
    kernel(f"index_put_{_n}", _index_put)
    kernel(f"index_put_add_{_n}", _index_put_add)
    kernel(f"index_backward_{_n}", _index_backward)
kernel("put", _put, half=True)


# ------------------------------------------------------------------ nonzero
def nonzero_indices(a):
    """Returns the indices of the nonzero elements, shape (count, dims). The count depends on the
    values, so it synchronizes."""
    if dtype_of(a) is ms.bfloat16:
        a = cast(dense(a), ms.float32)
    return op(P.NonZero)(dense(a) if shape_of(a) else reshape(a, (1,)))


@kernel("nonzero", dynamic_shape=True)
def _nonzero(a):
    r = nonzero_indices(a)
    return r if shape_of(a) else zeros((shape_of(r)[0], 0), ms.int64)


@kernel("nonzero_tuple mask_indices", dynamic_shape=True)
def _nonzero_tuple(a):
    r = nonzero_indices(a)
    n, d = shape_of(r)
    if d == 1:
        return (reshape(fresh(r), (n,)),)
    return tuple([fresh(view(r, (n,), (d,), k, np.dtype(np.int64))) for k in range(d)])


@kernel("nonzero_static")
def _nonzero_static(a, *, size, fill_value):
    rows = nonzero_indices(a)
    n, d = shape_of(rows)[0], len(shape_of(a))
    n = min(n, size)
    r = from_contiguous(np.full((size, d), fill_value, np.int64))
    if n and d:
        write(part(r, (n, d)), part(rows, (n, d)))
    return r


@kernel("unravel_index", only="int64")
def _unravel_index(a, *, size):
    out = []
    a = dense(a)
    for k, n in enumerate(reversed(size)):
        n = number(n, ms.int64)
        out.append(op(P.FloorMod)(a, n))
        if k < len(size) - 1:
            a = op(P.FloorDiv)(a, n)
    return tuple(reversed(out))


@kernel("one_hot", dynamic_shape=without_classes)
def _one_hot(a, *, num_classes):
    if dtype_of(a) is not ms.int64:
        raise UnsupportedByKernel
    if num_classes < 0:
        num_classes = classes_of(host_span(a), num_classes)
    else:
        _check(a, lambda h: classes_of(memory_of(h), num_classes))
    return op(P.OneHot, -1)(dense(a), num_classes, number(1, ms.int64), number(0, ms.int64))


# ------------------------------------------------------------------ one element of each slice
def _full_rank(index, axis, keepdim):
    s = shape_of(index)
    return index if keepdim else reshape(dense(index), s[:axis] + (1,) + s[axis:])


@kernel("take_along")
def _take_along(g, index, *, axis, keepdim, shape, repeated):
    if not shape_of(g):
        return reshape(fresh(g), shape_of(index))
    r = unbits(gathered(bits(g), _full_rank(index, axis, keepdim), axis), g)
    return r if keepdim or not shape else reshape(r, shape_of(index))


@kernel("put_along")
def _put_along(g, index, *, axis, keepdim, shape, repeated):
    if not shape:
        return reshape(fresh(g), ())
    i = _full_rank(index, axis, keepdim)
    g = reshape(dense(g), shape_of(i))
    return added(zeros(shape, dtype_of(g)), i, g, axis) if repeated else unbits(scattered(bits(zeros(shape, dtype_of(g))), i, bits(g), axis), g)
