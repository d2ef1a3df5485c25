"""Distances between all pairs of rows, on MindSpore's CPU target."""
import math

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels import FLOATS
from mindtorch.backend.mindspore.kernels._call import UnsupportedByKernel, P, dtype_of, full, kernel, number, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels.matmul import batched
from mindtorch.backend.mindspore.kernels.reduction import sums

# maximum number of elements of the difference tensor; larger inputs run on the host kernel in
# chunks
_MOST = 1 << 24


def _between(a, b):
    """Returns the differences of all pairs of rows, shape (..., P, R, M)."""
    x, y = shape_of(a), shape_of(b)
    if math.prod(x) * y[-2] > _MOST or math.prod(y) * x[-2] > _MOST:
        raise UnsupportedByKernel
    return op(P.Sub)(reshape(a, (*x[:-1], 1, x[-1])), reshape(b, (*y[:-2], 1, *y[-2:])))


@kernel("cdist", target="CPU", only=FLOATS)
def _cdist(a, b, *, p, mm):
    if not p >= 0:
        raise UnsupportedByKernel
    d = dtype_of(a)
    x, y = shape_of(a), shape_of(b)
    if p == 2 and mm:
        sq = op(P.Add)(reshape(sums(op(P.Square)(a), (len(x) - 1,)), (*x[:-1], 1)), reshape(sums(op(P.Square)(b), (len(y) - 1,)), (*y[:-2], 1, y[-2])))
        return op(P.Sqrt)(o.at_least(op(P.Sub)(sq, op(P.Mul)(batched(a, b, False, True), number(2.0, d))), 0.0))
    e = _between(a, b)
    last = (len(shape_of(e)) - 1,)
    if p == 2:
        return op(P.Sqrt)(sums(op(P.Square)(e), last))
    e = op(P.Abs)(e)
    if p == 1:
        return sums(e, last)
    if p == 0:
        return sums(o.at_most(op(P.Ceil)(e), 1.0), last)
    if p == math.inf:
        r = op(P.ReduceMax, False)(e, last)
        return op(P.Select)(op(P.ReduceAny, False)(op(P.IsNan)(e), last), full(shape_of(r), math.nan, d), r)
    return op(P.Pow)(sums(op(P.Pow)(e, number(p, d)), last), number(1 / p, d))


@kernel("cdist_backward", target="CPU", only=FLOATS)
def _cdist_backward(g, a, b, dist, *, p, second):
    """Gradient of the distances with respect to `a`, or to `b` if `second`, not yet summed over
    broadcast dimensions."""
    if not (p == 0 or p >= 1):
        raise UnsupportedByKernel
    d = dtype_of(g)
    e = _between(a, b)
    s = shape_of(g)
    expanded_shape = (*s, 1)
    none = op(P.Mul)(op(P.Equal)(dist, number(0.0, d)), number(1.0, d))
    some, far = op(P.Sub)(number(1.0, d), none), op(P.Add)(dist, none)
    if p == 0:
        r = op(P.Mul)(e, number(0.0, d))
    elif p == 1:
        r = op(P.Mul)(op(P.Sign)(e), reshape(g, expanded_shape))
    elif p == 2:
        r = op(P.Mul)(e, reshape(op(P.RealDiv)(op(P.Mul)(g, some), far), expanded_shape))
    elif p == math.inf:
        hit = op(P.Mul)(op(P.Equal)(op(P.Abs)(e), reshape(dist, expanded_shape)), number(1.0, d))
        r = op(P.Mul)(op(P.Mul)(op(P.Sign)(e), hit), reshape(g, expanded_shape))
    else:
        ratio = op(P.Pow)(op(P.RealDiv)(op(P.Abs)(e), reshape(far, expanded_shape)), number(p - 1, d))
        r = op(P.Mul)(op(P.Mul)(op(P.Sign)(e), ratio), reshape(op(P.Mul)(g, some), expanded_shape))
    # r has shape (..., P, R, M): the gradient of `a` is the sum over R, that of `b` is minus the
    # sum over P.
    n = len(s)
    return sums(r, (n - 1,)) if not second else op(P.Neg)(sums(r, (n - 2,)))
