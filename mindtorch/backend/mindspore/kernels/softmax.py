"""Softmax, log_softmax and their gradients."""
import math

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import G, P, broadcast, copied, dtype_of, is_contiguous, kernel, ms, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels.ascend import CUBE
from mindtorch.backend.mindspore.kernels.reduction import ones

_FLOATS = "float32 float64"


def _some(fn):
    """Wraps a kernel that requires at least one dimension, for 0-d tensors."""
    def run(*hs, dim):
        if shape_of(hs[0]):
            return fn(*hs, dim)
        return reshape(fn(*[reshape(h, (1,)) for h in hs], 0), ())
    return run


#: Number of elements from which more calls of faster kernels pay off.
_MANY = 32768


def _many_rows(x, dim):
    """True if x is a large contiguous float32 tensor and `dim` is its last dimension."""
    s = shape_of(x)
    return dim % len(s) == len(s) - 1 and math.prod(s) >= _MANY and 8 <= s[-1] <= 4096 and dtype_of(x) is ms.float32 and is_contiguous(x)


# Measured in graphs. Sums of 4x4x64x64: 280 us for ReduceSum and SumExt, 10 us for a product with
# ones. 256x1000: 820 us for ReduceMax, 130 us for ArgMaxWithValue; 270 us to subtract a column, 52
# us after Tile.
def _sums(x, dim):
    """Sums along `dim`, with keepdim."""
    if not _many_rows(x, dim):
        return op(P.ReduceSum, True)(x, dim)
    s = shape_of(x)
    r = op(P.MatMul, False, True)(x if len(s) == 2 else reshape(x, (-1, s[-1])), ones(s[-1]))
    return r if len(s) == 2 else reshape(r, (*s[:-1], 1))


def _along(v, x, dim):
    """Returns the per-row value, expanded to the shape of x where that is faster."""
    return copied(broadcast(v, shape_of(x))) if _many_rows(x, dim) else v


# P.Softmax and P.LogSoftmax lose NaN, infinity and rows of -inf, and P.Softmax propagates a NaN
# into other rows. The five calls that they consist of do not. In a row with a NaN it does not
# matter which other value is taken as the maximum.
def _shifted(a, dim):
    top = op(P.ArgMaxWithValue, dim, True)(a)[1] if _many_rows(a, dim) else op(P.ReduceMax, True)(a, dim)
    return op(P.Sub)(a, _along(top, a, dim))


@_some
def _softmax(a, dim):
    e = o.exp(_shifted(a, dim))
    return op(P.RealDiv)(e, _along(_sums(e, dim), e, dim))


def log_probabilities(a, dim):
    """log_softmax along `dim`."""
    d = _shifted(a, dim)
    return op(P.Sub)(d, _along(o.log(_sums(o.exp(d), dim)), d, dim))


_log_softmax = _some(log_probabilities)


@_some
def softmax_backward(g, y, dim):
    """Returns (g - sum(g * y) along `dim`) * y."""
    s = _sums(op(P.Mul)(g, y), dim)
    return op(P.Mul)(op(P.Sub)(g, _along(s, g, dim)), y)


@_some
def _log_softmax_backward(g, y, dim):
    return op(P.Sub)(g, op(P.Mul)(o.exp(y), _along(_sums(g, dim), y, dim)))


kernel("softmax", _softmax, target="CPU", only=_FLOATS)
kernel("log_softmax", _log_softmax, target="CPU", only=_FLOATS)
kernel("softmax_backward", softmax_backward, target="CPU", only=_FLOATS)
kernel("log_softmax_backward", _log_softmax_backward, target="CPU", only=_FLOATS)


# ------------------------------------------------------------------ Ascend: one launch each
def _on_ascend(name, fn, in_double=None):
    """Registers an op along a dimension. in_double: the function for float64, which
    the chip's kernel does not support."""
    @kernel(name, target="Ascend", only=CUBE + " float64")
    def f(*handles, dim):
        if in_double is not None and dtype_of(handles[0]) is ms.float64:
            return in_double(*handles, dim)
        if not shape_of(handles[0]):
            return reshape(fn(*[reshape(h, (1,)) for h in handles], 0), ())
        return fn(*handles, dim)


def _summed(x, dim):
    return op(G.SumExt)(x, (dim,), True) if shape_of(x) else x


_on_ascend("softmax", lambda a, dim: op(P.Softmax, dim)(a))
_on_ascend("softmax_backward", lambda g, y, dim: op(G.SoftmaxBackward)(g, y, dim),
           lambda g, y, dim: op(G.Mul)(op(G.SubExt)(g, _summed(op(G.Mul)(g, y), dim), 1), y))
_on_ascend("log_softmax", lambda a, dim: op(G.LogSoftmaxExt)(a, dim, None))
_on_ascend("log_softmax_backward", lambda g, y, dim: op(G.LogSoftmaxGrad, dim)(y, g),
           lambda g, y, dim: op(G.SubExt)(g, op(G.Mul)(op(G.Exp)(y), _summed(g, dim)), 1))
