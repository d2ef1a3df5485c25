"""Activations, softmax, gated units, and their gradients."""
from mindtorch.tools.standin.kernels._engine import F, torch
from mindtorch.tools.standin.kernels._table import gradients, kernel


def _upcast(*tensors):
    """Upcasts half types to float32: a formula of several steps rounds only once, as in the chip's
    kernel."""
    return [x.float() if x.dtype in (torch.float16, torch.bfloat16) else x for x in tensors]


def _activation(name, function, settings="", inplace=False, backward=True):
    """Registers a kernel f(x, *settings), its in-place form, and its gradient."""
    scalars = "".join(f", {s}:scalar" for s in settings.split())
    kernel(name, f"self{scalars}, out!")(lambda self, *rest: function(self, *rest[:-1]))
    if inplace:
        kernel("Inplace" + name, f"self!{scalars}")(lambda self, *rest: function(self, *rest))
    if backward:
        kernel(name + "Backward", f"gradOutput, self{scalars}, gradInput!")(
            lambda g, self, *rest: gradients(lambda x: function(x, *rest[:-1]), *_upcast(g, self))[0])


_activation("Relu", F.relu, inplace=True, backward=False)        # (its gradient is ThresholdBackward)
_activation("Silu", F.silu)
_activation("Mish", F.mish)
_activation("Hardswish", F.hardswish)
kernel("HardswishBackwardV2", "gradOutput, self, gradInput!")(lambda g, self, out: gradients(F.hardswish, *_upcast(g, self))[0])
_activation("Hardsigmoid", F.hardsigmoid)
_activation("Softplus", F.softplus, "beta threshold")
_activation("Hardtanh", F.hardtanh, "min max", inplace=True)
_activation("Softshrink", F.softshrink, "lambd")
_activation("Hardshrink", F.hardshrink, "lambd")
_activation("Threshold", F.threshold, "threshold value", inplace=True, backward=False)
kernel("ThresholdBackward", "gradOutput, self, threshold:scalar, out!")(
    lambda g, self, threshold, out: torch.where(self <= threshold, torch.zeros_like(g), g))

# Gradients computed from the result.

@kernel("SigmoidBackward", "gradOutput, output, gradInput!")
def _sigmoid_backward(g, output, receiver):
    g, y = _upcast(g, output)
    return g * y * (1 - y)


@kernel("TanhBackward", "gradOutput, output, gradInput!")
def _tanh_backward(g, output, receiver):
    g, y = _upcast(g, output)
    return g * (1 - y * y)


# GELU: the first version is the tanh form. The second has an argument for the form; its gradient
# has the form's name.

kernel("Gelu", "self, out!")(lambda self, out: F.gelu(self, approximate="tanh"))
kernel("GeluV2", "self, approximate:int, out!")(lambda self, approximate, out: F.gelu(self, approximate=("none", "tanh")[approximate]))


def _gelu_backward(g, x, approximate):
    return gradients(lambda x: F.gelu(x, approximate=approximate), *_upcast(g, x))[0]


kernel("GeluBackward", "gradOutput, self, gradInput!")(lambda g, x, out: _gelu_backward(g, x, "tanh"))
kernel("GeluBackwardV2", "gradOutput, self, approximate:string, gradInput!")(lambda g, x, approximate, out: _gelu_backward(g, x, approximate))

# Leaky and exponential units: the gradient is computed from the operand or from the result.

kernel("LeakyRelu", "self, slope:scalar, out!")(lambda self, slope, out: F.leaky_relu(self, slope))


@kernel("LeakyReluBackward", "gradOutput, self, slope:scalar, is_result:bool, out!")
def _leaky_relu_backward(g, self, slope, is_result, out):
    g, x = _upcast(g, self)
    return torch.where(x > 0, g, g * slope)  # (a result has the sign of its operand)


def _elu(self, alpha, scale, input_scale):
    x, = _upcast(self)
    return scale * torch.where(x > 0, x, alpha * torch.expm1(x * input_scale))


kernel("Elu", "self, alpha:scalar, scale:scalar, input_scale:scalar, out!")(lambda self, alpha, scale, input_scale, out: _elu(self, alpha, scale, input_scale))
kernel("InplaceElu", "self!, alpha:scalar, scale:scalar, input_scale:scalar")(_elu)


def _elu_backward(g, alpha, scale, input_scale, is_result, x):
    g, x = _upcast(g, x)
    slope = x + alpha * scale if is_result else alpha * scale * torch.exp(x * input_scale)
    return g * torch.where(x > 0, torch.full_like(x, scale), slope * input_scale)


kernel("EluBackward", "gradOutput, alpha:scalar, scale:scalar, input_scale:scalar, is_result:bool, self_or_result, gradInput!")(
    lambda g, alpha, scale, input_scale, is_result, x, out: _elu_backward(g, alpha, scale, input_scale, is_result, x))
kernel("Selu", "self, out!")(lambda self, out: F.selu(self))
kernel("SeluBackward", "gradOutput, result, gradInput!")(
    lambda g, result, out: _elu_backward(g, 1.6732632423543772, 1.0507009873554805, 1, True, result))

# (The buffer holds data for the chip's own backward; here backward uses the operand.)
kernel("LogSigmoidForward", "self, out!, buffer")(lambda self, out, buffer: F.logsigmoid(self))


@kernel("LogSigmoidBackward", "gradOutput, self, buffer, gradInput!")
def _logsigmoid_backward(g, self, buffer, receiver):
    g, x = _upcast(g, self)
    return g * torch.sigmoid(-x)


kernel("Prelu", "self, weight, out!")(lambda self, weight, out: F.prelu(self, weight.reshape(-1)))
kernel("PreluBackward", "gradOutput, self, weight, gradInput!, gradWeight!")(
    lambda g, self, weight, gx, gw: tuple(gradients(F.prelu, *_upcast(g, self, weight))))

# Gated units, split into two halves.

kernel("Glu", "self, dim:int, out!")(lambda self, dim, out: F.glu(self, dim))
kernel("GluBackward", "gradOutput, self, dim:int, out!")(lambda g, self, dim, out: gradients(lambda x: F.glu(x, dim), *_upcast(g, self))[0])


def _swiglu(x, dim):
    gate, value = x.chunk(2, dim)
    return F.silu(gate) * value


kernel("SwiGlu", "x, dim:int, out!")(lambda x, dim, out: _swiglu(*_upcast(x), dim))
kernel("SwiGluGrad", "gradOutput, x, dim:int, out!")(lambda g, x, dim, out: gradients(lambda x: _swiglu(x, dim), *_upcast(g, x))[0])

# Softmax.

kernel("Softmax", "self, dim:int, out!")(lambda self, dim, out: F.softmax(*_upcast(self), dim))
kernel("LogSoftmax", "self, dim:int, out!")(lambda self, dim, out: F.log_softmax(*_upcast(self), dim))


@kernel("SoftmaxBackward", "gradOutput, output, dim:int, gradInput!")
def _softmax_backward(g, output, dim, receiver):
    g, y = _upcast(g, output)
    product = g * y
    return product - y * product.sum(dim, keepdim=True)


@kernel("LogSoftmaxBackward", "gradOutput, output, dim:int, gradInput!")
def _log_softmax_backward(g, output, dim, receiver):
    g, y = _upcast(g, output)
    return g - torch.exp(y) * g.sum(dim, keepdim=True)
