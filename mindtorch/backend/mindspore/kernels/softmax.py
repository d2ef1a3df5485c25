"""Softmax, log_softmax and their gradients, for the CPU target (Ascend's are in ascend_nn.py)."""
import math

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import P, broadcast, copied, dtype_of, is_contiguous, kernel, ms, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels.reduction import ones

_FLOATS = "float32 float64"


def _some(fn):
    """A kernel over tensors of at least one dim."""
    def run(*hs, dim):
        if shape_of(hs[0]):
            return fn(*hs, dim)
        return reshape(fn(*[reshape(h, (1,)) for h in hs], 0), ())
    return run


#: elements from which on more calls of quicker kernels pay
_MANY = 32768


def _many_rows(x, dim):
    """Whether x is many float32 along its last dimension, `dim`."""
    s = shape_of(x)
    return dim % len(s) == len(s) - 1 and math.prod(s) >= _MANY and 8 <= s[-1] <= 4096 and dtype_of(x) is ms.float32 and is_contiguous(x)


# In graphs, us.  Sums of 4x4x64x64: ReduceSum and SumExt 280, a product with ones 10.  256x1000: ReduceMax 820, ArgMaxWithValue 130; Sub of a column 270,
# of what Tile makes of that 52.
def _sums(x, dim):
    """Sums along `dim`, which stays."""
    if not _many_rows(x, dim):
        return op(P.ReduceSum, True)(x, dim)
    s = shape_of(x)
    r = op(P.MatMul, False, True)(x if len(s) == 2 else reshape(x, (-1, s[-1])), ones(s[-1]))
    return r if len(s) == 2 else reshape(r, (*s[:-1], 1))


def _along(v, x, dim):
    """One number for each row, for all of x where that is quicker."""
    return copied(broadcast(v, shape_of(x))) if _many_rows(x, dim) else v


# P.Softmax and P.LogSoftmax lose nan, infinity and rows of -inf, and P.Softmax brings a nan into other rows; the five calls they are made of do not.
# (Beside a nan it is the same which other number of the row is taken for the largest.)
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
    """(g - sum of g y along `dim`) y"""
    s = _sums(op(P.Mul)(g, y), dim)
    return op(P.Mul)(op(P.Sub)(g, _along(s, g, dim)), y)


@_some
def _log_softmax_backward(g, y, dim):
    return op(P.Sub)(g, op(P.Mul)(o.exp(y), _along(_sums(g, dim), y, dim)))


kernel("softmax", _softmax, target="CPU", only=_FLOATS)
kernel("log_softmax", _log_softmax, target="CPU", only=_FLOATS)
kernel("softmax_backward", softmax_backward, target="CPU", only=_FLOATS)
kernel("log_softmax_backward", _log_softmax_backward, target="CPU", only=_FLOATS)
