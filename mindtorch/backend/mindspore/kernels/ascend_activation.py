"""Activation functions that are one aclnn launch on Ascend, and their gradients."""
from mindtorch.backend.mindspore.kernels import activation
from mindtorch.backend.mindspore.kernels._call import G, op, shape_of
from mindtorch.backend.mindspore.kernels.ascend import CUBE, ascend

ascend("mish", lambda x: op(G.MishExt)(x), only=CUBE)
ascend("mish_backward", lambda g, x: op(G.MishGradExt)(g, x), only=CUBE)
ascend("hardswish", lambda x: op(G.HSwish)(x), only=CUBE)
ascend("hardswish_backward", lambda g, x: op(G.HSwishGrad)(g, x), only=CUBE)
ascend("hardsigmoid", lambda x: op(G.HSigmoid)(x), only=CUBE)
ascend("hardsigmoid_backward", lambda g, x: op(G.HSigmoidGrad)(g, x), only=CUBE)
ascend("hardtanh", lambda x, *, low, high: op(G.Hardtanh)(x, low, high), only=CUBE)
ascend("hardtanh_backward", lambda g, x, *, low, high: op(G.HardtanhGrad)(g, x, low, high), only=CUBE)
ascend("log_sigmoid", lambda x: op(G.LogSigmoid)(x)[0], only=CUBE)
# (torch_npu passes an empty buffer, which only the CPU's kernel uses.)
ascend("log_sigmoid_backward", lambda g, x: op(G.LogSigmoidGrad)(g, x, x), only=CUBE)
ascend("glu", lambda x, *, dim: op(G.GLU, dim)(x), only=CUBE)
ascend("glu_backward", lambda g, x, *, dim: op(G.GluGrad, dim)(g, x), only=CUBE)


@ascend("softplus", only=CUBE)
def _softplus(x, *, beta, threshold):
    return op(G.SoftplusExt)(x, beta, threshold) if beta else activation.softplus(x, beta=beta, threshold=threshold)


@ascend("softplus_backward", only=CUBE)
def _softplus_backward(g, x, *, beta, threshold):
    return op(G.SoftplusGradExt)(g, x, beta, threshold) if beta else activation.softplus_backward(g, x, beta=beta, threshold=threshold)


# MindSpore's EluExt has no `scale` and `input_scale`, which selu and celu need.
@ascend("elu", only=CUBE)
def _elu(x, *, alpha, scale, input_scale):
    return op(G.EluExt, alpha)(x) if scale == input_scale == 1 else activation.elu(x, alpha=alpha, scale=scale, input_scale=input_scale)


@ascend("elu_backward", only=CUBE)
def _elu_backward(g, x, *, alpha, scale, input_scale):
    if scale == input_scale == 1:
        return op(G.EluGradExt)(g, x, alpha, False)
    return activation.elu_backward(g, x, alpha=alpha, scale=scale, input_scale=input_scale)


def _one_weight(w):
    """Returns the weights as a vector: one, or one for each channel."""
    shape = shape_of(w)
    return w if len(shape) == 1 else w.view((max(shape, default=1),))


ascend("prelu_kernel", lambda x, w: op(G.PReLU)(x, _one_weight(w)), only=CUBE)


@ascend("prelu_kernel_backward", only=CUBE)
def _prelu_backward(g, x, w, *, needs):
    """Returns the gradients of x and w; that of w is summed already."""
    of_x, of_w = op(G.PReLUGrad)(g, x, _one_weight(w))
    return of_x if needs[0] else None, of_w.view(shape_of(w)) if needs[1] else None
