"""Softmax, log_softmax and their gradients, for the CPU target (Ascend's are in ascend_nn.py)."""
from mindtorch.backend.mindspore.kernels._call import P, kernel, op, reshape, shape_of

_FLOATS = "float32 float64"


def _some(fn):
    """A kernel over tensors of at least one dim."""
    def run(*hs, dim):
        if shape_of(hs[0]):
            return fn(*hs, dim)
        return reshape(fn(*[reshape(h, (1,)) for h in hs], 0), ())
    return run


# P.Softmax and P.LogSoftmax lose nan, infinity and rows of -inf, and P.Softmax brings a nan into other rows; the five calls they are made of do not.
def _shifted(a, dim):
    return op(P.Sub)(a, op(P.ReduceMax, True)(a, dim))


@_some
def _softmax(a, dim):
    e = op(P.Exp)(_shifted(a, dim))
    return op(P.RealDiv)(e, op(P.ReduceSum, True)(e, dim))


def log_probabilities(a, dim):
    """log_softmax along `dim`."""
    d = _shifted(a, dim)
    return op(P.Sub)(d, op(P.Log)(op(P.ReduceSum, True)(op(P.Exp)(d), dim)))


_log_softmax = _some(log_probabilities)


@_some
def _softmax_backward(g, y, dim):
    s = op(P.ReduceSum, True)(op(P.Mul)(g, y), dim)
    return op(P.Mul)(op(P.Sub)(g, s), y)


@_some
def _log_softmax_backward(g, y, dim):
    return op(P.Sub)(g, op(P.Mul)(op(P.Exp)(y), op(P.ReduceSum, True)(g, dim)))


kernel("softmax", _softmax, target="CPU", only=_FLOATS)
kernel("log_softmax", _log_softmax, target="CPU", only=_FLOATS)
kernel("softmax_backward", _softmax_backward, target="CPU", only=_FLOATS)
kernel("log_softmax_backward", _log_softmax_backward, target="CPU", only=_FLOATS)
