"""Activation functions and softmax on Ascend: one aclnn launch forward, one for the gradient."""
from mindtorch.backend.mindspore.kernels._call import dtype_of, G, ms, op, P, shape_of
from mindtorch.backend.mindspore.kernels.ascend import ascend, CUBE


# ------------------------------------------------------------------ activations
ascend("relu", lambda x: op(G.ReLU)(x), only=CUBE)
ascend("relu_backward", lambda g, y: op(G.ReluGrad)(g, y), only=CUBE)
ascend("tanh_backward", lambda g, y: op(G.TanhGrad)(y, g), only=CUBE)
ascend("sigmoid_backward", lambda g, y: op(G.SigmoidGrad)(y, g), only=CUBE)
ascend("silu", lambda x: op(G.SiLU)(x), only=CUBE)
ascend("silu_backward", lambda g, x: op(G.SiLUGrad)(g, x), only=CUBE)
ascend("gelu", lambda x, *, approximate: (op(G.GeluExt)(x, approximate), None), only=CUBE)
ascend("leaky_relu", lambda x, *, slope: op(G.LeakyReLUExt)(x, slope), only=CUBE)
ascend("leaky_relu_backward", lambda g, x, *, slope: op(G.LeakyReLUGradExt)(g, x, slope, False), only=CUBE)


def _along(name, fn, in_double=None):
    """Registers an op along a dimension. wide: the function for float64, which the chip's kernel
    does not support."""
    @ascend(name, only=CUBE + " float64")
    def f(*handles, dim):
        if in_double is not None and dtype_of(handles[0]) is ms.float64:
            return in_double(*handles, dim)
        if not shape_of(handles[0]):
            return op(P.Reshape)(fn(*[op(P.Reshape)(h, (1,)) for h in handles], 0), ())
        return fn(*handles, dim)


def _summed(x, dim):
    return op(G.SumExt)(x, (dim,), True) if shape_of(x) else x


_along("softmax", lambda a, dim: op(P.Softmax, dim)(a))
_along("softmax_backward", lambda g, y, dim: op(G.SoftmaxBackward)(g, y, dim),
       lambda g, y, dim: op(G.Mul)(op(G.SubExt)(g, _summed(op(G.Mul)(g, y), dim), 1), y))
_along("log_softmax", lambda a, dim: op(G.LogSoftmaxExt)(a, dim, None))
_along("log_softmax_backward", lambda g, y, dim: op(G.LogSoftmaxGrad, dim)(y, g),
       lambda g, y, dim: op(G.SubExt)(g, op(G.Mul)(op(G.Exp)(y), _summed(g, dim)), 1))


ascend("gelu_backward", lambda g, x, t, *, approximate: op(G.GeluGradExt)(g, x, approximate), only=CUBE)
