"""Kernels of cumulative ops along one axis, of differences, and of their gradients.

On the CPU target P.CumSum and P.CumProd take 40 to 100 us, P.Cummax 25 us. P.CumulativeLogsumexp is
wrong if an element is -inf: it returns NaN or the value of its identity element.
"""
import numpy as np

from mindtorch.backend.cpu.scan import _slopes
from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import (STATE, G, P, UnsupportedByKernel, cast, runtime_assert, dtype_of, from_contiguous, full, host_span,
                                                       memory_of, ms, number, op,
                                                       shape_of, stype_of)
from mindtorch.backend.mindspore.kernels._index_utils import cpu_kernel as kernel, dense, expanded, fresh, size_of, table, zeros
from mindtorch.backend.mindspore.kernels.indexing import from_rows, to_rows
from mindtorch.backend.mindspore.kernels.joining import joined
from mindtorch.backend.mindspore.kernels.shapes import narrowed

_REAL = "float32 float64 int64 int32 int16 int8 uint8 float16 bfloat16"
_INTEGRAL = (ms.int64, ms.int32, ms.int16, ms.int8, ms.uint8, ms.bool_)


# ------------------------------------------------------------------ cumsum, cumprod
def _running(name, run, only=None):
    @kernel(name, only=only)
    def f(a, *, axis):
        a = dense(a) if dtype_of(a) not in _INTEGRAL else cast(dense(a), ms.int64)
        return run(a, axis) if shape_of(a) else fresh(a)
    return f


def _cumsum(a, axis):
    """Accumulates in float64 beyond 64 elements, like PyTorch. Sequential float32 accumulation is
    2e-3 off for 2e5 values."""
    d = dtype_of(a)
    return cast(op(P.CumSum)(cast(a, ms.float64), axis), d) if d is ms.float32 and shape_of(a)[axis] > 64 else op(P.CumSum)(a, axis)


_running("cumsum", _cumsum)
_running("cumsum_backward", lambda a, axis: op(P.CumSum, False, True)(a, axis))
_running("cumprod", lambda a, axis: op(P.CumProd)(a, axis))


def _recurrence(g, r, axis):
    """Solves s[k] = g[k] + r[k] * s[k + 1] from the end. After a step of distance d, every element
    covers the 2 * d elements that start at it."""
    n, d = shape_of(g)[axis], 1
    s = dense(g)
    r = dense(r)
    while d < n:
        gone, tail = narrowed(s, axis, 0, n - d), narrowed(s, axis, n - d, n)
        here = dense(narrowed(r, axis, 0, n - d))
        s = joined((op(P.Add)(dense(gone), op(P.Mul)(here, dense(narrowed(s, axis, d, n)))), tail), axis)
        if 2 * d < n:
            r = joined((op(P.Mul)(here, dense(narrowed(r, axis, d, n))), narrowed(r, axis, n - d, n)), axis)
        d *= 2
    return fresh(s) if s is g else s


kernel("linear_recurrence", lambda g, r, *, axis: _recurrence(g, r, axis) if shape_of(g) else fresh(g), only="float32 float64 complex64 complex128")


@kernel("cumprod_backward", only="float32 float64 float16 bfloat16")
def _cumprod_backward(g, a, out, *, axis):
    d = dtype_of(g)
    if d in (ms.float16, ms.bfloat16):
        return cast(_products_back(*[cast(dense(h), ms.float32) for h in (g, a, out)], axis), d)
    return _products_back(g, a, out, axis)


def _products_back(g, a, out, axis):
    if STATE.on is not None:
        runtime_assert(a, _check_zeros_finite)
        some = op(P.Equal)(dense(a), number(0.0, dtype_of(a)))
        some = expanded(op(P.ReduceAny, True)(some, tuple(range(len(shape_of(a))))), shape_of(a))
        return op(P.Select)(some, _by_recurrence(g, a, out, axis), _by_quotient(g, a, out, axis))
    if host_span(a).all():
        return _by_quotient(g, a, out, axis)
    _check_zeros_finite(a)
    return _by_recurrence(g, a, out, axis)


def _check_zeros_finite(a):
    # The recurrence multiplies several elements at once, so a zero could meet an infinity.
    a = memory_of(a)
    if not a.all() and not np.isfinite(a).all():
        raise UnsupportedByKernel


def _by_quotient(g, a, out, axis):
    return op(P.RealDiv)(op(P.CumSum, False, True)(op(P.Mul)(dense(g), dense(out)), axis), dense(a))


def _by_recurrence(g, a, out, axis):
    # d out[i] / d a[k] is (product before k) * (product after k, up to i). The sum over i is a
    # linear recurrence.
    shape = shape_of(a)
    n = shape[axis]
    one = op(P.OnesLike)(dense(narrowed(out, axis, 0, 1)))
    if n == 1:
        return op(P.Mul)(dense(g), one)
    before = joined((one, narrowed(out, axis, 0, n - 1)), axis)
    after = joined((narrowed(a, axis, 1, n), zeros(shape_of(one), dtype_of(a))), axis)
    return op(P.Mul)(before, _recurrence(g, after, axis))


# ------------------------------------------------------------------ cummax, cummin
def _running_extreme(name, run):
    @kernel(name, only=_REAL + " bool")
    def f(a, *, axis):
        if not shape_of(a):
            return fresh(a), zeros((), ms.int64)
        if STATE.on is not None and dtype_of(a) is ms.bool_:
            v, at = run(cast(dense(a), ms.uint8), axis)
            return cast(v, ms.bool_), cast(at, ms.int64)
        x = dense(a) if dtype_of(a) is not ms.bool_ else from_contiguous(host_span(dense(a)).view(np.uint8))
        v, at = run(x, axis)
        return v if dtype_of(v) is dtype_of(a) else from_contiguous(host_span(v).view(np.bool_)), cast(at, ms.int64)


_running_extreme("cummax", lambda a, axis: op(P.Cummax, axis)(a))
_running_extreme("cummin", lambda a, axis: op(G.Cummin, axis)(a))


# ------------------------------------------------------------------ logcumsumexp
@kernel("logcumsumexp", only="float32 float64")
def _running_logsumexp(a, *, axis):
    if not shape_of(a):
        return fresh(a)
    if STATE.on is not None:
        return _logs_in_steps(dense(a), axis)
    low = host_span(a).min()
    if low == -np.inf or low != low:
        raise UnsupportedByKernel
    return op(P.CumulativeLogsumexp)(dense(a), number(axis, ms.int64))


def _logs_in_steps(a, axis):
    """Computes `logcumsumexp` of arbitrary values by doubling. After a step of distance d, every
    element covers the 2 * d elements that end at it."""
    shape, d = shape_of(a), 1
    zero, least = zeros(shape, dtype_of(a)), full(shape, -np.inf, dtype_of(a))
    while d < shape[axis]:
        before = joined((narrowed(least, axis, 0, d), narrowed(a, axis, 0, shape[axis] - d)), axis)
        apart = op(P.Select)(op(P.Equal)(a, before), zero, op(P.Neg)(op(P.Abs)(op(P.Sub)(a, before))))
        a = op(P.Add)(o.maximum(a, before), o.log1p(o.exp(apart)))
        d *= 2
    return fresh(a) if d == 1 else a


@kernel("finite_difference", only="float32 float64")
def _finite_difference(a, b):
    # The difference of equal values is 0, also for -inf - -inf, where nothing has been added yet
    # and the ratio is 1.
    a, b = dense(a), dense(b)
    r = op(P.Sub)(a, b)
    return op(P.Select)(op(P.Equal)(a, b), op(P.ZerosLike)(r), r)


# ------------------------------------------------------------------ differences
def _neighbours(a, axis):
    n = shape_of(a)[axis]
    return dense(narrowed(a, axis, 1, n)), dense(narrowed(a, axis, 0, n - 1))


@kernel("diff")
def _diff(a, *, axis):
    if shape_of(a)[axis] < 2:
        return fresh(narrowed(a, axis, 0, 0))
    x, y = _neighbours(a, axis)
    return op(P.NotEqual if dtype_of(a) is ms.bool_ else P.Sub)(x, y)


@kernel("pair_sums")
def _pair_sums(a, *, axis):
    if dtype_of(a) is ms.bool_ or shape_of(a)[axis] < 2:
        raise UnsupportedByKernel
    return op(P.Add)(*_neighbours(a, axis))


def _between(name, do):
    @kernel(name)
    def f(g, *, axis):
        if dtype_of(g) is ms.bool_:
            raise UnsupportedByKernel
        shape = list(shape_of(g))
        shape[axis] = 1
        edge = zeros(shape, dtype_of(g))
        return op(do)(joined((edge, g), axis), joined((g, edge), axis))


_between("diff_backward", P.Sub)
_between("pair_sums_backward", P.Add)


# ------------------------------------------------------------------ gradient
def _stencil(n, step, edge_order, np_dtype):
    """Returns (indices, weights) for each of the three neighbours. They depend only on the sizes
    and the step."""
    index, weight = _slopes(n, step, edge_order)
    weight = weight.astype(np_dtype)
    return [(index[:, k], weight[:, k]) for k in range(3)]


def _along(weight, shape, axis):
    return expanded(table(weight.reshape([-1 if d == axis else 1 for d in range(len(shape))])), shape)


@kernel("gradient", only="float32 float64")
def _gradient(a, *, axis, step, edge_order, np_dtype):
    shape, a, r = shape_of(a), dense(a), None
    for at, weight in _stencil(shape[axis], step, edge_order, stype_of(a)):
        x = op(P.Mul)(op(P.Gather)(a, table(at), axis), _along(weight, shape, axis))
        if not weight.all():  # an element of weight 0 must not contribute, even if it is inf or NaN
            x = op(P.Select)(_along(weight != 0, shape, axis), x, op(P.ZerosLike)(x))
        r = x if r is None else op(P.Add)(r, x)
    return r


@kernel("gradient_backward", only="float32 float64")
def _gradient_backward(g, *, axis, step, edge_order, np_dtype):
    shape, g = shape_of(g), dense(g)
    r = zeros((shape[axis], size_of(g) // shape[axis]), dtype_of(g))
    for at, weight in _stencil(shape[axis], step, edge_order, stype_of(g)):
        r = op(P.TensorScatterAdd)(r, table(at.reshape(-1, 1)), to_rows(op(P.Mul)(g, _along(weight, shape, axis)), axis))
    return from_rows(r, shape, axis)
