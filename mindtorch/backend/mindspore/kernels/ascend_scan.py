"""Ascend: cumulative sums, products and extremes, logcumsumexp and finite differences.

Where aclnn has no kernel, aclnn kernels are composed: a recurrence over n elements takes log2(n)
steps.
"""
import numpy as np

from mindtorch.backend.cpu.scan import _slopes
from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import cast, dtype_of, G, cached_constants, mint, ms, op, P, shape_of, stype_of, UnsupportedByKernel
from mindtorch.backend.mindspore.kernels._index_utils import table
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy, CUBE, named, new_like, scalar_argument, zeros
from mindtorch.backend.mindspore.kernels.ascend_indexing import _as, _line, _INTEGRAL
from mindtorch.backend.mindspore.kernels.shapes import narrowed


# ------------------------------------------------------------------ scans
ascend("cumsum", lambda a, *, axis: op(G.CumsumExt)(a, axis, ms.int64 if dtype_of(a) in _INTEGRAL else None) if shape_of(a) else copy(a))


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


ascend("diff", lambda a, *, axis: op(G.SubExt)(*_neighbours(a, axis), 1))
ascend("pair_sums", lambda a, *, axis: op(P.Add)(*_neighbours(a, axis)))


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


# ------------------------------------------------------------------ cumprod, logcumsumexp
@ascend("cumprod", only=CUBE)
def _cumprod(a, *, axis):
    """Uses MindSpore's old op (aclop Cumprod) in graphs: its plugin has no primitive for the kernel."""
    launch = named("Cumprod", "tsio") if shape_of(a) else None
    if launch is not None:
        result = new_like(a)
        return launch(a, scalar_argument(axis), result[1], outputs=(result,))[0]
    return op(P.CumProd)(a, axis) if shape_of(a) else copy(a)


def _recurrence(g, r, axis):
    """Solves s[k] = g[k] + r[k] * s[k + 1] from the end. After a step of distance d, every element
    covers the 2 * d elements that start at it."""
    n, d, s = shape_of(g)[axis], 1, g
    while d < n:
        here = narrowed(r, axis, 0, n - d)
        s = op(G.Concat, axis)((op(G.AddcmulExt)(narrowed(s, axis, 0, n - d), here, narrowed(s, axis, d, n), 1), narrowed(s, axis, n - d, n)))
        if 2 * d < n:
            r = op(G.Concat, axis)((op(G.Mul)(here, narrowed(r, axis, d, n)), narrowed(r, axis, n - d, n)))
        d *= 2
    return copy(s) if s is g else s


ascend("linear_recurrence", lambda g, r, *, axis: _recurrence(g, r, axis) if shape_of(g) else copy(g), only=CUBE)


@ascend("cumprod_backward", only=CUBE)
def _cumprod_backward(g, a, out, *, axis):
    """Uses quotients where no element is zero, else a recurrence, like the host kernel. Which case
    applies is known only on the device, so both are computed and selected there."""
    if not shape_of(a):
        return copy(g)
    quotients = op(G.Div)(_cumsum_backward(op(G.Mul)(g, out), axis=axis), a)
    n = shape_of(a)[axis]
    edge = tuple([1 if d == axis else m for d, m in enumerate(shape_of(a))])
    one, none = op(G.Ones)(edge, dtype_of(a)), zeros(edge, dtype_of(a))
    # d out[i] / d a[k] is (product before k) * (product after k, up to i). The recurrence computes
    # the sum over i.
    before = op(G.Concat, axis)((one, narrowed(out, axis, 0, n - 1))) if n > 1 else one
    after = op(G.Concat, axis)((narrowed(a, axis, 1, n), none)) if n > 1 else none
    by_steps = op(G.Mul)(before, _recurrence(g, after, axis))
    return o.where(mint.any(o.eq(a, 0)), by_steps, quotients)


@ascend("logcumsumexp", only=CUBE)
def _logcumsumexp(a, *, axis):
    """Computes a log-sum scan by doubling. After a step of distance d, every element covers the 2 *
    d elements that end at it. Two launches per step."""
    if not shape_of(a):
        return copy(a)
    n, d, r = shape_of(a)[axis], 1, a
    while d < n:
        more = op(G.LogAddExp)(narrowed(r, axis, d, n), narrowed(r, axis, 0, n - d))
        r = op(G.Concat, axis)((narrowed(r, axis, 0, d), more))
        d *= 2
    return copy(r) if r is a else r


# The difference of equal values is 0, also for -inf - -inf, where nothing has been added yet
# and the ratio is 1.
ascend("finite_difference", lambda a, b: o.where(o.eq(a, b), 0.0, op(G.SubExt)(a, b, 1)), only=CUBE)


# ------------------------------------------------------------------ gradient
@cached_constants(256)
def _stencil(n, step, edge_order, np_dtype, rank, axis):
    """Returns (indices, weights along the axis, True if no weight is 0) for each of the three
    neighbours. The tables are cached on the device."""
    index, weight = _slopes(n, step, edge_order)
    along = [-1 if d == axis else 1 for d in range(rank)]
    return [(table(np.ascontiguousarray(index[:, k])), table(np.ascontiguousarray(weight[:, k].astype(np_dtype).reshape(along))), bool(weight[:, k].all()))
            for k in range(3)]


@ascend("gradient", only="float32")
def _gradient(a, *, axis, step, edge_order, np_dtype):
    r = None
    for at, weight, complete in _stencil(shape_of(a)[axis], step, edge_order, stype_of(a), len(shape_of(a)), axis):
        x = op(G.Mul)(op(G.IndexSelect)(a, axis, at), weight)
        if not complete:  # an element of weight 0 must not contribute, even if it is inf or NaN
            x = o.where(o.ne(weight, 0), x, 0.0)
        r = x if r is None else op(G.AddExt)(r, x, 1)
    return r


@ascend("gradient_backward", only="float32")
def _gradient_backward(g, *, axis, step, edge_order, np_dtype):
    r = zeros(shape_of(g), dtype_of(g))
    for at, weight, _ in _stencil(shape_of(g)[axis], step, edge_order, stype_of(g), len(shape_of(g)), axis):
        r = op(G.IndexAddExt)(r, axis, at, op(G.Mul)(g, weight), 1)
    return r
