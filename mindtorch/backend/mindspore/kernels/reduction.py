"""Reductions: sum, mean, prod, min, max, all, any, variance and norms."""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels import FLOATS
from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._ops import complex_size
from mindtorch.backend.mindspore.kernels._call import (mint, ASCEND, COMPLEX, FLOATING, HALF, STYPES, G, UnsupportedByKernel, P, broadcast, cast, copied,
                                                       dtype_of, full,
                                                       is_contiguous, cached_constants, kernel, ms, number, op, reshape, shape_of)
from mindtorch.backend.mindspore.kernels.ascend import ALL_FLOATS, COMPLEXES, copy


_INTS = "int8 int16 int32 int64 uint8"


def count(shape, axes):
    """Returns the number of elements that are reduced into one."""
    return math.prod(shape if axes is None else [shape[d] for d in axes])


def reduced(shape, axes, keepdim):
    """Returns the shape of a reduction over `axes` (None: all)."""
    if axes is None:
        return (1,) * len(shape) if keepdim else ()
    return tuple([1 if d in axes else n for d, n in enumerate(shape) if keepdim or d not in axes])


def sums(x, axes=None, keepdim=False):
    """Sums over `axes`; integers and bools return int64.

    SumExt takes 17 us vs 36 us for ReduceSum, and has PyTorch's result dtypes. Over the first axis
    alone MindSpore's CPU target adds sequentially, which is 2e-4 off for 30000 values; over the
    first two axes it does not.
    """
    if not ASCEND and axes and dtype_of(x) is ms.float32:
        r = _leading_sums(x, axes)
        if r is not None:
            return r.view(reduced(shape_of(x), axes, keepdim))
    if axes == (0,) and not ASCEND and shape_of(x)[0] > 64:
        return op(G.SumExt)(reshape(x, (1, *shape_of(x))), (0, 1), False, None) if not keepdim else reshape(sums(x, axes), (1, *shape_of(x)[1:]))
    return op(G.SumExt)(x, axes, keepdim, None)


#: Number of rows that a matrix product adds sequentially. More rows are added in two steps.
_ROWS = 512


@cached_constants(64)
def ones(n):
    """Returns a cached (1, n) tensor of ones."""
    return full((1, n), 1, ms.float32)


def _leading_sums(x, axes):
    """Sums over the leading axes by a product with ones, shape (1, n). Returns None if SumExt is
    faster.

    In graphs, at 256x512: 126 us vs 174 us for SumExt over the first axis and 1980 us over the
    first two of 4x64x512. At 256x384: 12 us vs 27 and 412 us. At 256x128: 7 us vs 6 and 160 us.
    """
    shape = shape_of(x)
    k = len(axes)
    if axes != tuple(range(k)) or k >= len(shape) or not is_contiguous(x):
        return None
    rows, n = math.prod(shape[:k]), math.prod(shape[k:])
    if n < 8 or rows * n < 8192 or rows <= (64 if k == 1 else 2):
        return None
    if rows > _ROWS:
        some = next((d for d in range(_ROWS, 15, -1) if rows % d == 0), 0)
        if not some or rows // some > 8 * _ROWS:
            return None
        x, rows = op(P.MatMul)(ones(rows // some), reshape(x, (rows // some, some * n))), some
    return op(P.MatMul)(ones(rows), reshape(x, (rows, n)))


# ------------------------------------------------------------------ sum, mean, prod
kernel("sum_all", lambda a: sums(a))
kernel("sum_dims", lambda a, *, axes, keepdim: sums(a, axes, keepdim))


@kernel("column_sum")
def _column_sum(a):
    shape = shape_of(a)
    return sums(reshape(a, (1, *shape)) if len(shape) == 1 else a, tuple(range(max(len(shape) - 1, 1))))


def broadcast_to_shape(g, shape):
    """Returns a new tensor: `g` broadcast to `shape`."""
    return copied(broadcast(g, shape))


@kernel("expand_reduced", half=True)
def _expand_reduced(g, *, shape, axes, keepdim):
    have = shape_of(g)
    if axes is not None and not keepdim:
        g = g.view(reduced(shape, axes, True)) if is_contiguous(g) else reshape(g, reduced(shape, axes, True))
    elif axes is None and have:
        g = reshape(g, (1,) * len(shape))
    return broadcast_to_shape(g, shape)


kernel("expand_rows", lambda g, *, shape: broadcast_to_shape(g, shape), half=True)


def _over(x, n):
    return op(P.RealDiv if not ASCEND else G.Div)(x, number(n, dtype_of(x)))


def mean(a, axes=None, keepdim=False):
    """Mean over `axes`. On the CPU target MeanExt takes 25 ms for 1e6 elements, the sum and a
    division 2 ms."""
    if ASCEND:
        return op(G.MeanExt)(a, axes, keepdim, None)
    return _over(sums(a, axes, keepdim), count(shape_of(a), axes))


kernel("mean_all", lambda a: mean(a))


kernel("mean_dims", lambda a, *, axes, keepdim: mean(a, axes, keepdim))
kernel("prod_all", lambda a: op(G.ProdExt)(a, None, False, None))


@kernel("prod_dim", target="CPU")
def _prod_dim(a, *, axis, keepdim):
    if axis is None:
        return op(G.ProdExt)(a, None, False, None).view((1,) * len(shape_of(a)) if keepdim else ())
    return op(G.ProdExt)(a, axis, keepdim, None)


@kernel("prod_backward", only="float32 float64", target="CPU")
def _prod_backward(g, a, out, *, axis, keepdim):
    """Multiplies the product of the elements before with the product of those after each element,
    so zeros need no special case."""
    shape = shape_of(a)
    if not shape:
        return copied(g)
    x, at = (reshape(a, (-1,)), 0) if axis is None else (a, axis)
    others = op(P.Mul)(op(P.CumProd, True, False)(x, at), op(P.CumProd, True, True)(x, at))
    grad = reshape(g, (1,) * len(shape)) if axis is None else g if keepdim else reshape(g, reduced(shape, (axis,), True))
    return op(P.Mul)(reshape(others, shape), grad)


# ------------------------------------------------------------------ sum, mean: Ascend, one launch each
kernel("sum_all", lambda a: op(G.SumExt)(a), target="Ascend", only=ALL_FLOATS + COMPLEXES + " int64 int32 bool")
kernel("mean_all", lambda a: op(G.MeanExt)(a), target="Ascend", only=ALL_FLOATS)
kernel("channel_sum", lambda g: op(G.SumExt)(g, tuple([d for d in range(len(shape_of(g))) if d != 1]), False), target="Ascend", only=ALL_FLOATS)


@kernel("sum_dims", target="Ascend", only=ALL_FLOATS + COMPLEXES + " int64 int32 bool")
def _sum_dims_ascend(a, *, axes, keepdim):
    return op(G.SumExt)(a, None if axes is None else tuple(axes), keepdim)


@kernel("mean_upcast", target="Ascend", only=ALL_FLOATS)
@kernel("mean_dims", target="Ascend", only=ALL_FLOATS)
def _mean_dims_ascend(a, *, axes, keepdim):
    return op(G.MeanExt)(a, None if axes is None else tuple(axes), keepdim)


@kernel("sum_to_size", target="Ascend", only=ALL_FLOATS + COMPLEXES + " int64 int32")
def _sum_to_size_ascend(a, *, size):
    have = shape_of(a)
    lead = len(have) - len(size)
    axes = tuple(range(lead)) + tuple([i + lead for i, n in enumerate(size) if n == 1 and have[i + lead] != 1])
    if not axes:
        return copy(a)
    return reshape(op(G.SumExt)(a, axes, True), size)


@kernel("column_sum", target="Ascend", only=ALL_FLOATS)
def _column_sum_ascend(a):
    if len(shape_of(a)) < 2:
        return copy(a)
    return op(G.SumExt)(a, tuple(range(len(shape_of(a)) - 1)), False)


# ------------------------------------------------------------------ min and max
def _where_nan(bad, r):
    """Returns r with NaN where `bad` is True."""
    return op(P.Select)(bad, full(shape_of(r), math.nan, dtype_of(r)), r)


def _all_axes(x, axes):
    return tuple(range(len(shape_of(x)))) if axes is None else tuple(axes)


def _extreme(name, reduce, along, truth):
    """Registers the kernels of a maximum or minimum on the CPU target. MindSpore's reductions
    ignore a NaN unless it comes first, so NaN is detected separately."""
    def over(a, axes, keepdim):
        if not shape_of(a):
            return copied(a)
        axes = _all_axes(a, axes)
        if not axes:
            return copied(a)
        if dtype_of(a) is ms.bool_:
            return op(truth, keepdim)(a, axes)
        r = op(reduce, keepdim)(a, axes)
        if dtype_of(a) in FLOATING:
            r = _where_nan(op(P.ReduceAny, keepdim)(op(P.IsNan)(a), axes), r)
        return r

    def extreme_indices(a, axis, keepdim):
        """Returns (indices, values) along an axis: the first NaN, or else the first extreme value.
        """
        if not shape_of(a):
            a, axis, keepdim = a.view((1,)), 0, False
        at, r = op(along, axis, keepdim)(a)
        if dtype_of(a) in FLOATING:
            nans = op(P.Mul)(op(P.IsNan)(a), number(1.0, ms.float32))
            first, there = op(P.ArgMaxWithValue, axis, keepdim)(nans)
            bad = op(P.NotEqual)(there, number(0.0, ms.float32))
            at, r = op(P.Select)(bad, first, at), _where_nan(bad, r)
        return at, r

    kernel(name + "_all", lambda a: over(a, None, False), target="CPU")
    kernel("a" + name, lambda a, *, axes, keepdim: over(a, axes, keepdim), target="CPU")

    @kernel(name + "_dim", target="CPU", only=f"float32 float64 {_INTS}")
    def pair(a, *, axis, keepdim):
        at, r = extreme_indices(a, axis, keepdim)
        return r, at

    @kernel("arg" + name, target="CPU", only=f"float32 float64 {_INTS}")
    def arg(a, *, axis, keepdim):
        if axis is None:
            r = extreme_indices(reshape(a, (-1,)), 0, False)[0]
            return r.view((1,) * len(shape_of(a))) if keepdim else r
        return extreme_indices(a, axis, keepdim)[0]


_extreme("max", P.ReduceMax, P.ArgMaxWithValue, P.ReduceAny)
_extreme("min", P.ReduceMin, P.ArgMinWithValue, P.ReduceAll)


def _extreme_ascend(name):
    full_, over = getattr(mint, name), getattr(mint, "a" + name)
    kernel(name + "_all", lambda a: full_(a), target="Ascend")

    @kernel("a" + name, target="Ascend")
    def f(a, *, axes, keepdim):
        return over(a, _all_axes(a, axes), keepdim)


_extreme_ascend("max")
_extreme_ascend("min")


def _expand_back(y, shape, axes, keepdim):
    """Restores the reduced dimensions with size 1."""
    return y if keepdim and axes is not None else reshape(y, reduced(shape, axes, True))


def _isnan(a):
    return op(P.IsNan)(a) if not ASCEND else op(P.NotEqual)(a, a)


@kernel("extreme_share", only=f"{FLOATS} float16 bfloat16")
def _extreme_share(a, out, *, axes, keepdim, nan):
    shape, d = shape_of(a), dtype_of(a)
    if d in HALF and not ASCEND:
        r = _extreme_share(cast(a, ms.float32), cast(out, ms.float32), axes=axes, keepdim=keepdim, nan=nan)
        return cast(r, d)
    y = _expand_back(out, shape, axes, keepdim)
    hit = op(P.Equal)(a, y)
    if nan:
        hit = op(P.LogicalOr)(hit, op(P.LogicalAnd)(_isnan(a), _isnan(y)))
    hit = op(P.Mul)(hit, number(1.0, d))
    return op(P.RealDiv if not ASCEND else G.Div)(hit, sums(hit, _all_axes(a, axes), True))


# ------------------------------------------------------------------ all, any
def _truth(name, reduce):
    @kernel(name)
    def f(a, *, axes, keepdim):
        if dtype_of(a) is not ms.bool_:
            a = op(P.NotEqual)(a, number(0, dtype_of(a)))
            fresh = True
        else:
            fresh = False
        shape = shape_of(a)
        axes = tuple(range(len(shape))) if axes is None else tuple(axes)
        if not shape or not axes:
            return a if fresh else op(P.LogicalAnd)(a, a)
        return op(reduce, keepdim)(a, axes)


_truth("all", P.ReduceAll)
_truth("any", P.ReduceAny)


@kernel("count_nonzero")
def _count_nonzero(a, *, axes):
    if dtype_of(a) is ms.bfloat16 and not ASCEND:  # NotEqual does not support bfloat16 there
        a = cast(a, ms.float32)
    return sums(a if dtype_of(a) is ms.bool_ else op(P.NotEqual)(a, number(0, dtype_of(a))), axes)


@kernel("without_nan")
def _without_nan(a):
    if dtype_of(a) not in FLOATING:
        return copied(a)
    return op(P.Select)(_isnan(a), full(shape_of(a), 0, dtype_of(a)), a)


# ------------------------------------------------------------------ logsumexp
@kernel("logsumexp", only=FLOATS, target="CPU")
def _logsumexp(a, *, axes, keepdim):
    shape, d = shape_of(a), dtype_of(a)
    if not shape:
        return copied(a)
    axes = _all_axes(a, axes)
    m = op(P.ReduceMax, True)(a, axes)
    # An infinite maximum is replaced by the largest finite value, because inf - inf is NaN.
    most = number(float(np.finfo(STYPES[d]).max), d)
    m = op(P.Minimum)(op(P.Maximum)(m, op(P.Neg)(most)), most)
    r = op(P.Add)(o.log(sums(o.exp(op(P.Sub)(a, m)), axes, True)), m)
    return r if keepdim else r.view(reduced(shape, axes, False))


kernel("logsumexp", lambda a, *, axes, keepdim: op(G.LogSumExp)(a, _all_axes(a, axes), keepdim), target="Ascend")


# ------------------------------------------------------------------ variance, standard deviation
#
# P.ReduceStd takes 48 us vs 120 us here, but it is 26% off for 30000 values from 1000 to 1001,
# because its mean is inexact.
def _from_first(a, axes):
    """Returns (a in float64, None). For a float64 `a`, returns (the differences from its first
    elements, these elements).

    The mean of equal float32 values computed in float64 is exact, but the mean of equal float64
    values is not.
    """
    shape = shape_of(a)
    if dtype_of(a) is not ms.float64:
        return cast(a, ms.float64), None
    if not math.prod(shape):
        return a, None
    within = _all_axes(a, axes)
    first = op(P.Slice)(a, (0,) * len(shape), tuple([1 if d in within else m for d, m in enumerate(shape)])) if shape else a
    first = op(P.Select)(op(P.IsFinite)(first), first, full(shape_of(first), 0, ms.float64))
    return op(P.Sub)(a, first), first


def _var(a, axes, keepdim, correction, root):
    """Computes variances, or their square roots, with float64 accumulation like the host kernels.
    """
    n = count(shape_of(a), axes)
    x, _ = _from_first(a, axes)
    d = op(P.Sub)(x, mean(x, axes, True))
    r = sums(op(P.Square)(d), axes, keepdim)
    # MindSpore's nan / 0 is -inf. Multiplication by inf gives NaN for 0 and NaN, and inf for
    # positive values.
    r = _over(r, n - correction) if n > correction else op(P.Mul)(r, number(math.inf, ms.float64))
    r = op(P.Sqrt)(r) if root else r
    return r if dtype_of(a) is ms.float64 else cast(r, dtype_of(a))


@kernel("mean_upcast", only=FLOATS, target="CPU")
def _upcast_mean(a, *, axes, keepdim):
    x, first = _from_first(a, axes)
    r = mean(x, axes, keepdim)
    return cast(r, dtype_of(a)) if first is None else op(P.Add)(r, reshape(first, shape_of(r)))


kernel("var", lambda a, *, axes, keepdim, correction: _var(a, axes, keepdim, correction, False), only=FLOATS, target="CPU")
kernel("std", lambda a, *, axes, keepdim, correction: _var(a, axes, keepdim, correction, True), only=FLOATS, target="CPU")


# ------------------------------------------------------------------ norms
def _size_of_one(a, axes, keepdim):
    """Norm over a single element: its absolute value. Squaring could overflow, and a power would
    round it."""
    return reshape(op(P.Abs)(a), reduced(shape_of(a), axes, keepdim))


@kernel("linalg_vector_norm", only=f"{FLOATS} complex64 complex128", target="CPU")
def _vector_norm(a, *, p, axes, keepdim):
    d = dtype_of(a)
    if d in COMPLEX:
        if not math.isinf(p):
            raise UnsupportedByKernel
        # The gradient searches for elements whose absolute value equals the norm, so both must be
        # rounded by this kernel.
        return _vector_norm(complex_size(a), p=p, axes=axes, keepdim=keepdim)
    if p and count(shape_of(a), axes) == 1:
        return _size_of_one(a, axes, keepdim)
    if p == 2:
        return op(P.Sqrt)(sums(op(P.Square)(a), axes, keepdim))
    if p == 0:
        return sums(op(P.Mul)(op(P.NotEqual)(a, number(0.0, d)), number(1.0, d)), axes, keepdim)
    x = op(P.Abs)(a)
    if p == 1:
        return sums(x, axes, keepdim)
    if p in (math.inf, -math.inf):
        if not shape_of(x):
            return x
        at = _all_axes(x, axes)
        r = op(P.ReduceMax if p > 0 else P.ReduceMin, keepdim)(x, at)
        return _where_nan(op(P.ReduceAny, keepdim)(op(P.IsNan)(x), at), r)
    return op(P.Pow)(sums(op(P.Pow)(x, number(p, d)), axes, keepdim), number(1 / p, d))


@kernel("linalg_vector_norm", target="Ascend")
def _vector_norm_ascend(a, *, p, axes, keepdim):
    if dtype_of(a) in COMPLEX:
        raise UnsupportedByKernel
    if p and count(shape_of(a), axes) == 1:
        return _size_of_one(a, axes, keepdim)
    return op(G.LinalgVectorNorm)(a, float(p), axes, keepdim, None)


# ------------------------------------------------------------------ trace
kernel("trace", lambda a: op(P.Trace)(a) if not ASCEND else mint.trace(a), only=f"{FLOATS} int64")
kernel("trace_backward", lambda g, *, shape: op(P.Mul)(op(P.Eye)(*shape, dtype_of(g)), g), only=FLOATS)
