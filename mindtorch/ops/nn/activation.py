"""Activation functions with fused forward and backward kernels, softmax and related ops."""
import warnings

from mindtorch.core.device import device_dispatch, rng
from mindtorch.core.tensor.dtypes import F32, LOW, as_np
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.stride_rules import contiguous, halves, as_computed, like, pointwise
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Float, Int, Scalar
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor import tensor_wrappers
from mindtorch.core.tensor.tensor import ScalarOperand
from mindtorch.ops.nn._fused import composite_backward_upcast, dim_of, inplace as overwrite, check_floating, check_tensor_arg, times, scalar_type_name
from mindtorch.ops._checks import check_number
from mindtorch.ops.basic import add_, cast, gt_, mask_grad, mul_, neg_, new_full, sub_, zeros_like
from mindtorch.ops.shapes.shape import in_c_order

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def _aten(name, used):
    return f"{name}.default" if used else None


def _linear_pieces(name, constants="", layout=None, aten="forward backward"):
    """Defines a piecewise linear activation. Its gradient is linear in g and has a zero derivative
    with respect to x. aten: which of the two are aten operators with the same arguments."""
    grad = primitive(name + "_backward", f"g, x, *, {constants}", lambda ctx, g: grad(g, ctx.x, **_constants(ctx)), lambda ctx, grad: zeros_like(grad),
                     layout=pointwise, aten=_aten(name + "_backward", "backward" in aten))
    keys = tuple(grad.prim.attrs)

    def _constants(c):
        return {k: getattr(c, k) for k in keys}

    return primitive(name, f"x, *, {constants}", lambda ctx, g: grad(g, ctx.x, **_constants(ctx)), layout=layout or pointwise,
                     aten=_aten(name, "forward" in aten))


def _smooth(name, compose, constants="", layout=pointwise, grad_layout=pointwise, aten="forward backward"):
    """Defines a smooth activation with a fused gradient kernel. If the gradient has to be
    differentiated again, the gradient of `compose` is used instead. aten: which of the two are aten
    operators with the same arguments."""
    grad = primitive(name + "_backward", f"g, x, *, {constants}", layout=grad_layout, aten=_aten(name + "_backward", "backward" in aten))

    def rule(ctx, g):
        if mode.on:
            return composite_backward_upcast(lambda x: compose(x, **ctx._attrs), (ctx.x,), g)[0]
        return grad(g, ctx.x, **ctx._attrs)
    return primitive(name, f"x, *, {constants}", rule, layout=layout, aten=_aten(name, "forward" in aten))


# ------------------------------------------------------------------ relu
relu_grad = primitive("relu_backward", "g, y", lambda ctx, grad: relu_grad(grad, ctx.y), lambda ctx, grad: zeros_like(grad), node="ThresholdBackwardBackward0")
relu_ = primitive("relu", "x", lambda ctx, grad: relu_grad(grad, ctx.out), aten="relu.default")


@register_op(inplace=True, tags="pointwise")
def relu(input):
    """max(input, 0)."""
    try:
        k = input._np_dtype.kind
    except AttributeError:
        check_tensor_arg("relu", "input", input)
        k = input._np_dtype.kind
    if k == "b":
        raise RuntimeError("Boolean inputs not supported for relu")
    if k == "c":
        raise NotImplementedError(f"clamp is not supported for complex types ('relu' on device {input.device})")
    return relu_(input)


@register_op(ns="nn.functional", name="relu", method=False, tags="pointwise")
def _relu(input, inplace=False):
    return relu(input) if not inplace else overwrite(input, relu)


@register_op(method=False, name="relu_", aliases="nn.functional.relu_", tags="pointwise")
def relu__(input):
    """In-place relu."""
    return overwrite(input, relu)


# ------------------------------------------------------------------ clipped and leaky forms
hardtanh_ = _linear_pieces("hardtanh", "low, high", like)


def _clip(name, input, low, high, inplace):
    check_tensor_arg(name, "input", input)
    d = input._np_dtype
    if d.kind == "b":
        raise RuntimeError("Bool inputs not supported for hardtanh")
    if d.kind == "c":
        raise NotImplementedError(f"clamp is not supported for complex types ('{name}' on device {input.device})")
    if d.kind in "iu":
        low, high = int(low), int(high)
    if d.kind == "u" and low < 0:
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    if inplace:
        return overwrite(input, lambda x: hardtanh_(x, low=low, high=high))
    return hardtanh_(input, low=low, high=high)


@register_op(ns="nn.functional", method=False, tags="pointwise")
def hardtanh(input, min_val: Scalar = -1.0, max_val: Scalar = 1.0, inplace=False):
    """Clamps input to [min_val, max_val]."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return _clip("hardtanh", input, min_val, max_val, inplace)


@register_op(ns="nn.functional", method=False, tags="pointwise")
def relu6(input, inplace=False):
    """Clamps input to [0, 6]."""
    return _clip("relu6", input, 0, 6, inplace)


@register_op(ns="nn.functional", method=False, name="hardtanh_", tags="pointwise")
def hardtanh__(input, min_val: Scalar = -1.0, max_val: Scalar = 1.0):
    """In-place hardtanh."""
    return hardtanh(input, min_val, max_val, True)


leaky_relu_ = _linear_pieces("leaky_relu", "slope", aten="forward")


def _check_inplace_slope(name, x, slope):
    """Returns `x`, which an activation has overwritten. With a negative slope, its backward raises
    an error, because the sign of the original value is lost."""
    if slope < 0 and mode.on and x._grad_fn_ is not None:
        def refuse(grads):
            if grads[0] is None:
                return
            raise RuntimeError(f"In-place {name} backward calculation is triggered with a negative slope which is not supported. This is caused by "
                               "calling in-place forward function with a negative slope, please call out-of-place version instead.")
        x._grad_fn_.register_prehook(refuse)
    return x


@register_op(ns="nn.functional", method=False, tags="pointwise")
def leaky_relu(input, negative_slope: Scalar = 0.01, inplace=False):
    """max(input, 0) + negative_slope * min(input, 0)."""
    check_tensor_arg("leaky_relu", "input", input)
    check_floating("leaky_relu_cpu", input)
    if inplace:
        return _check_inplace_slope("leakyReLu", overwrite(input, lambda x: leaky_relu_(x, slope=negative_slope)), negative_slope)
    return leaky_relu_(input, slope=negative_slope)


@register_op(ns="nn.functional", method=False, name="leaky_relu_", tags="pointwise")
def leaky_relu__(input, negative_slope: Scalar = 0.01):
    """In-place leaky_relu."""
    return leaky_relu(input, negative_slope, True)


threshold_grad = primitive("threshold_backward", "g, x, *, threshold", lambda ctx, grad: threshold_grad(grad, ctx.x, threshold=ctx.threshold), lambda ctx,
                           grad: zeros_like(grad), aten="threshold_backward.default")
threshold_p = primitive("threshold", "x, *, threshold, value", lambda ctx, grad: threshold_grad(grad, ctx.x, threshold=ctx.threshold), layout=pointwise,
                        aten="threshold.default")


def _threshold(input, threshold, value):
    check_tensor_arg("threshold", "input", input)
    if threshold is None or value is None:
        check_number("threshold", "threshold" if threshold is None else "value", None, "number")
    k = input._np_dtype.kind
    if k in "bc":
        raise NotImplementedError(f"\"threshold_cpu\" not implemented for '{scalar_type_name(input)}' on device {input.device}")
    if k in "iu":
        threshold, value = int(threshold), int(value)
    return threshold_p(input, threshold=threshold, value=value)


@register_op(method=False, tags="pointwise")
def threshold(input, threshold: Scalar, value: Scalar):
    """Returns input where it is above `threshold`, else `value`."""
    return _threshold(input, threshold, value)


@register_op(ns="nn.functional", method=False, name="threshold", tags="pointwise")
def _threshold_f(input, threshold: Scalar, value: Scalar, inplace=False):
    return overwrite(input, _threshold, threshold, value) if inplace else _threshold(input, threshold, value)


@register_op(method=False, name="threshold_", aliases="nn.functional.threshold_", tags="pointwise")
def threshold__(input, threshold: Scalar, value: Scalar):
    """In-place threshold."""
    return overwrite(input, _threshold, threshold, value)


hardshrink_ = primitive("hardshrink", "x, *, lambd", lambda ctx, grad: shrink_grad(grad, ctx.x, lambd=ctx.lambd))
softshrink_ = primitive("softshrink", "x, *, lambd", lambda ctx, grad: shrink_grad(grad, ctx.x, lambd=ctx.lambd))
shrink_grad = primitive("shrink_backward", "g, x, *, lambd", lambda ctx, grad: shrink_grad(grad, ctx.x, lambd=ctx.lambd), lambda ctx, grad: zeros_like(grad))


@register_op(out="same", aliases="nn.functional.hardshrink", aten="hardshrink.default")
def hardshrink(input, lambd: Scalar = 0.5):
    """Returns input where its magnitude is above `lambd`, else 0."""
    check_tensor_arg("hardshrink", "input", input)
    check_floating("hardshrink_cpu", input)
    return hardshrink_(input, lambd=lambd)


@register_op(ns="nn.functional", method=False, aten="softshrink.default")
def softshrink(input, lambd: Scalar = 0.5):
    """Moves input towards 0 by `lambd`."""
    check_tensor_arg("softshrink", "input", input)
    check_floating("softshrink_check", input)
    if lambd < 0:
        raise RuntimeError(f"lambda must be in range [0, 3.40282e+38] for input dtype {scalar_type_name(input)}, but found {lambd}")
    return softshrink_(input, lambd=lambd)


hardsigmoid_ = _linear_pieces("hardsigmoid")


@register_op(ns="nn.functional", method=False, tags="pointwise")
def hardsigmoid(input, inplace=False):
    """relu6(input + 3) / 6."""
    check_tensor_arg("hardsigmoid", "input", input)
    check_floating("hardsigmoid_cpu", input)
    return overwrite(input, hardsigmoid_) if inplace else hardsigmoid_(input)


hardswish_ = _smooth("hardswish", lambda x: mul_(x, hardsigmoid_(x)))


@register_op(ns="nn.functional", method=False, tags="pointwise")
def hardswish(input, inplace=False):
    """input * relu6(input + 3) / 6."""
    check_tensor_arg("hardswish", "input", input)
    check_floating("hardswish_cpu", input)
    return overwrite(input, hardswish_) if inplace else hardswish_(input)


# ------------------------------------------------------------------ exponential forms
_negative = primitive("negative_part", "x", lambda ctx, grad: _keep_negative(grad, ctx.x))
_keep_negative = primitive("negative_part_backward", "g, x", lambda ctx, grad: _keep_negative(grad, ctx.x), lambda ctx, grad: zeros_like(grad),
                           layout=pointwise)


def _compose_elu(x, *, alpha, scale, input_scale):
    low = (_negative(x) * input_scale).expm1() * (alpha * scale)
    return (relu_(x) * scale + low)


elu_ = _smooth("elu", _compose_elu, "alpha, scale, input_scale", aten="")
celu_ = _smooth("celu", _compose_elu, "alpha, scale, input_scale", aten="")


def _elu(p, input, alpha, scale, input_scale, inplace):
    check_tensor_arg("elu", "input", input)
    check_floating("elu_cpu", input)
    if inplace:
        return _check_inplace_slope("elu", overwrite(input, lambda x: p(x, alpha=alpha, scale=scale, input_scale=input_scale)), alpha * scale)
    return p(input, alpha=alpha, scale=scale, input_scale=input_scale)


@register_op(ns="nn.functional", method=False, tags="pointwise", aten="elu.default")
def elu(input, alpha: Scalar = 1.0, inplace=False):
    """Returns input where it is above 0, else alpha * (exp(input) - 1)."""
    return _elu(elu_, input, alpha, 1.0, 1.0, inplace)


@register_op(ns="nn.functional", method=False, name="elu_", tags="pointwise")
def elu__(input, alpha: Scalar = 1.0, scale: Float = 1.0, input_scale: Scalar = 1.0):
    """In-place elu. The result is multiplied by `scale`, the exponent by `input_scale`."""
    return _elu(elu_, input, alpha, scale, input_scale, True)


@register_op(method=False)
def selu(input):
    """Scaled elu that preserves mean 0 and variance 1 of activations."""
    return _elu(elu_, input, _SELU_ALPHA, _SELU_SCALE, 1.0, False)


@register_op(ns="nn.functional", method=False, name="selu")
def _selu(input, inplace=False):
    return _elu(elu_, input, _SELU_ALPHA, _SELU_SCALE, 1.0, inplace)


@register_op(method=False, name="selu_", aliases="nn.functional.selu_")
def selu__(input):
    """In-place selu."""
    return _selu(input, True)


def _celu(input, alpha, inplace):
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _elu(celu_, input, alpha, 1.0, 1.0 / alpha, inplace)


@register_op(method=False)
def celu(input, alpha: Scalar = 1.0):
    """max(input, 0) + min(alpha * (exp(input / alpha) - 1), 0)."""
    return _celu(input, alpha, False)


@register_op(ns="nn.functional", method=False, name="celu", aten="celu.default")
def _celu_f(input, alpha: Scalar = 1.0, inplace=False):
    return _celu(input, alpha, inplace)


@register_op(method=False, name="celu_", aliases="nn.functional.celu_")
def celu__(input, alpha: Scalar = 1.0):
    """In-place celu."""
    return _celu(input, alpha, True)


def _compose_gelu(x, *, approximate):
    if approximate == "tanh":
        return x * 0.5 * (1 + ((x + x * x * x * 0.044715) * 0.7978845608028654).tanh())
    return x * 0.5 * (1 + (x * 0.7071067811865476).erf())


_gelu_grad = primitive("gelu_backward", "g, x, t=None, *, approximate", layout=pointwise)
#: (result, values saved for the gradient kernel)
gelu_ = primitive("gelu", "x, *, approximate",
                  lambda ctx, grad: composite_backward_upcast(lambda x: _compose_gelu(x, approximate=ctx.approximate), (ctx.x,), grad)[0] if mode.on
                  else _gelu_grad(grad, ctx.x, ctx.out1, approximate=ctx.approximate), raw=True, residuals=(1,), layout=(pointwise, as_computed))


@register_op(ns="nn.functional", method=False, tags="pointwise")
def gelu(input, *, approximate="none"):
    """Multiplies input by the standard normal CDF at input: exact, or approximated with tanh
    (approximate="tanh")."""
    check_tensor_arg("gelu", "input", input)
    check_floating("GeluKernelImpl", input)
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return gelu_(input, approximate=approximate)[0]


silu_ = _smooth("silu", lambda x: x * x.sigmoid())


def _silu(x):
    # The fused gradient kernel supports real dtypes only.
    return silu_(x) if x._np_dtype.kind != "c" else x * x.sigmoid()


@register_op(ns="nn.functional", method=False, tags="pointwise")
def silu(input, inplace=False):
    """input * sigmoid(input)."""
    check_tensor_arg("silu", "input", input)
    check_floating("silu_cpu", input, complex_ok=True)
    return overwrite(input, _silu) if inplace else _silu(input)


def _compose_mish(x):
    return x * softplus_(x, beta=1, threshold=20).tanh()


mish_ = _smooth("mish", _compose_mish)


@register_op(ns="nn.functional", method=False, tags="pointwise")
def mish(input, inplace=False):
    """input * tanh(softplus(input))."""
    check_tensor_arg("mish", "input", input)
    check_floating("mish_cpu", input)
    return overwrite(input, mish_) if inplace else mish_(input)


def _compose_softplus(x, *, beta, threshold):
    over = gt_(times(x, beta), ScalarOperand(threshold, F32 if x._np_dtype.itemsize == 2 else x._np_dtype))
    z = (x * beta).masked_fill(over, 0.0)
    return (z.exp().log1p() / beta).masked_fill(over, 0.0) + x * cast(over, x._np_dtype)


softplus_ = _smooth("softplus", _compose_softplus, "beta, threshold")


@register_op(ns="nn.functional", method=False, tags="pointwise")
def softplus(input, beta: Scalar = 1, threshold: Scalar = 20):
    """Computes log(1 + exp(beta * input)) / beta. Returns input itself where beta * input is above
    `threshold`."""
    check_tensor_arg("softplus", "input", input)
    check_floating("softplus_cpu", input)
    return softplus_(input, beta=beta, threshold=threshold)


logsigmoid_ = _smooth("log_sigmoid", lambda x: neg_(softplus_(neg_(x), beta=1, threshold=1e9)), layout=contiguous, aten="")


@register_op(ns="nn.functional", method=False, tags="pointwise")
def logsigmoid(input):
    """log(sigmoid(input))."""
    check_tensor_arg("logsigmoid", "input", input)
    check_floating("log_sigmoid_cpu", input)
    return logsigmoid_(input)


@register_op(ns="nn.functional", method=False, tags="pointwise")
def softsign(input):
    """input / (1 + |input|)."""
    check_tensor_arg("softsign", "input", input)
    if input._np_dtype.kind == "b":
        raise NotImplementedError(f"\"abs_cpu\" not implemented for 'Bool' on device {input.device}")
    return input / (input.abs() + 1)


@register_op(ns="nn.functional", method=False, tags="pointwise")
def tanhshrink(input):
    """input - tanh(input)."""
    check_tensor_arg("tanhshrink", "input", input)
    return input - input.tanh()


@register_op(ns="nn.functional", name="sigmoid", method=False, tags="pointwise")
def _sigmoid(input):
    """1 / (1 + exp(-input))."""
    return input.sigmoid()


@register_op(ns="nn.functional", name="tanh", method=False, tags="pointwise")
def _tanh(input):
    """Hyperbolic tangent."""
    return input.tanh()


def _compose_glu(x, *, dim):
    a, b = x.chunk(2, dim)
    return a * b.sigmoid()


glu_ = _smooth("glu", _compose_glu, "dim", halves, like, aten="forward")


@register_op(ns="nn.functional", method=False)
def glu(input, dim: Int = -1):
    """Computes a * sigmoid(b) for the two halves a, b of input along `dim`."""
    check_tensor_arg("glu", "input", input)
    shape = input._sizes
    if not shape:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    d = dim_of(dim, len(shape))
    if shape[d] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {d} is size {shape[d]}")
    check_floating("glu_cpu", input)
    return glu_(input, dim=d)


# ------------------------------------------------------------------ prelu, rrelu
def _positive(x):
    return gt_(x, ScalarOperand(0, F32 if x._np_dtype.itemsize == 2 else x._np_dtype))


#: (gradient of x, gradient of w before it is summed); None for those that `needs` excludes
_prelu_backward = primitive("prelu_kernel_backward", "g, x, w, *, needs", layout=(pointwise, pointwise))


def _prelu_rule(ctx, grad):
    if not mode.on and (grad._handle is None or device_dispatch.has_kernel(grad._device, "prelu_kernel_backward") and not tensor_wrappers.is_wrapped(grad)):
        return _prelu_backward(grad, ctx.x, ctx.w, needs=ctx.needs)
    return (add_(mask_grad(grad, _positive(ctx.x)), mul_(_keep_negative(grad, ctx.x), ctx.w)) if ctx.needs[0] else None,
            mul_(grad, _negative(ctx.x)) if ctx.needs[1] else None)


prelu_ = primitive("prelu_kernel", "x, w", _prelu_rule, node="PreluKernelBackward0", layout=pointwise)


@register_op(aliases="nn.functional.prelu", autocast="lower")
def prelu(input, weight):
    """Computes max(input, 0) + weight * min(input, 0), with one weight or one per channel (dim 1).
    """
    check_tensor_arg("prelu", "input", input)
    check_tensor_arg("prelu", "weight", weight, 2)
    shape, n = input._sizes, weight._numel
    if input._np_dtype != weight._np_dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {scalar_type_name(input)} and {scalar_type_name(weight)}")
    if weight.ndim > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    if n != 1:
        if not shape:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = shape[1] if len(shape) > 1 else 1
        if n != channels:
            raise RuntimeError(f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {n} and channel size = {channels}.")
    check_floating("prelu_cpu", input)
    # The reshape takes half of the time of a small call. It can be skipped if the weight broadcasts
    # correctly without it and no gradient of the weight is recorded: the reshape has a node in the
    # autograd graph.
    there = n == 1 and weight.ndim <= len(shape) or len(shape) == 2
    if (len(shape) != 1 or weight.ndim != 1) and not (there and not (mode.on and weight._requires_grad_)):
        weight = weight.reshape([n if i == 1 else 1 for i in range(len(shape))] if len(shape) > 1 else [1] * len(shape))
    return prelu_(input, weight)


_rrelu_noise = primitive("rrelu_noise", "x, *, low, high, generator", raw=True)


def _rrelu(input, lower, upper, training, generator=None):
    check_tensor_arg("rrelu", "input", input)
    input = in_c_order(input)
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        check_floating("leaky_relu_cpu", input)
        return leaky_relu_(input, slope=(lower + upper) / 2)
    check_floating("rrelu_with_noise_out_cpu", input)
    return mul_(input, _rrelu_noise(input, low=lower, high=upper,
                                    generator=generator or (rng.default_generator if input._handle is None else rng.default_of(input._device))))


@register_op(method=False, tags="nondeterministic_seeded")
def rrelu(input, lower: Float = 1.0 / 8, upper: Scalar = 1.0 / 3, training: Bool = False, generator=None):
    """Applies leaky_relu with random slopes from [lower, upper) in training, with the mean slope
    otherwise."""
    return _rrelu(input, lower, upper, training, generator)


@register_op(ns="nn.functional", method=False, name="rrelu", tags="nondeterministic_seeded")
def _rrelu_f(input, lower: Float = 1.0 / 8, upper: Scalar = 1.0 / 3, training: Bool = False, inplace=False):
    return rrelu__(input, lower, upper, training) if inplace else _rrelu(input, lower, upper, training)


@register_op(method=False, name="rrelu_", aliases="nn.functional.rrelu_", tags="nondeterministic_seeded")
def rrelu__(input, lower: Float = 1.0 / 8, upper: Scalar = 1.0 / 3, training: Bool = False, generator=None):
    """In-place rrelu."""
    return _check_inplace_slope("leakyReLu", overwrite(input, _rrelu, lower, upper, training, generator), 0 if training else (lower + upper) / 2)


# ------------------------------------------------------------------ softmax
_softmax_grad = primitive("softmax_backward", "g, y, *, dim")
_log_softmax_grad = primitive("log_softmax_backward", "g, y, *, dim")


def _softmax_rule(g, y, dim):
    if not mode.on:
        return _softmax_grad(g, y, dim=dim)
    return _upcast_grad(lambda g, y: mul_(sub_(g, mul_(g, y).sum(dim, keepdim=True)), y), g, y)


def _log_softmax_rule(g, y, dim):
    if not mode.on:
        return _log_softmax_grad(g, y, dim=dim)
    return _upcast_grad(lambda g, y: sub_(g, mul_(y.exp(), g.sum(dim, keepdim=True))), g, y)


def _upcast_grad(gradient, g, y):
    """Computes a gradient from half precision in float32, so that it is rounded once, like the
    kernel's."""
    d = g._np_dtype
    return cast(gradient(cast(g, F32), cast(y, F32)), d) if d in LOW else gradient(g, y)


softmax_ = primitive("softmax", "a, *, dim", lambda ctx, grad: _softmax_rule(grad, ctx.out, ctx.dim))
log_softmax_ = primitive("log_softmax", "a, *, dim", lambda ctx, grad: _log_softmax_rule(grad, ctx.out, ctx.dim))


def _soft(name, p, input, dim, dtype):
    if dtype is None and dim.__class__ is int:
        try:
            # Fast path for the common case.
            n = len(input._sizes)
            if input._np_dtype is F32 and -n <= dim < n:
                return p(input, dim=dim if dim >= 0 else dim + n)
        except AttributeError:
            pass
    check_tensor_arg(name, "input", input)
    if dtype is not None:
        input = cast(input, as_np(dtype))
    dim = dim_of(_check_dim(name, dim), input.ndim)
    if input._np_dtype.kind not in "fV":
        kernel = f"{name}_lastdim_kernel_impl" if dim >= input.ndim - 1 else f"{name}_kernel_impl"
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type_name(input)}' on device {input.device}")
    return p(input, dim=dim)


def _check_dim(name, dim):
    if dim.__class__ is int:
        return dim
    try:
        return dim.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"{name}(): argument 'dim' (position 2) must be int, not {type(dim).__name__}") from None


@register_op(out="same")
def softmax(input, dim: Int, dtype=None):
    """Computes exp(input) / sum(exp(input)) along `dim`, in `dtype` if given."""
    return _soft("softmax", softmax_, input, dim, dtype)


@register_op(out="same")
def log_softmax(input, dim: Int, dtype=None):
    """Computes log(softmax(input)) along `dim`, in `dtype` if given."""
    return _soft("log_softmax", log_softmax_, input, dim, dtype)


@register_op(ns="special", name="softmax", method=False)
def _special_softmax(input, dim: Int, dtype=None):
    """Computes softmax along `dim`."""
    return _soft("softmax", softmax_, input, dim, dtype)


@register_op(ns="special", name="log_softmax", method=False)
def _special_log_softmax(input, dim: Int, *, dtype=None):
    """Computes log_softmax along `dim`."""
    return _soft("log_softmax", log_softmax_, input, dim, dtype)


def _implicit_dim(name, ndim, stacklevel):
    warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
                  stacklevel=stacklevel + 1)
    return 0 if ndim in (0, 1, 3) else 1


@register_op(ns="nn.functional", name="softmax", method=False)
def _softmax_f(input, dim: Int = None, _stacklevel=3, dtype=None):
    """Computes softmax along `dim`."""
    if dim is None:
        dim = _implicit_dim("softmax", input.ndim, _stacklevel)
    return _soft("softmax", softmax_, input, dim, dtype)


@register_op(ns="nn.functional", name="log_softmax", method=False)
def _log_softmax_f(input, dim: Int = None, _stacklevel=3, dtype=None):
    """Computes log_softmax along `dim`."""
    if dim is None:
        dim = _implicit_dim("log_softmax", input.ndim, _stacklevel)
    return _soft("log_softmax", log_softmax_, input, dim, dtype)


@register_op(ns="nn.functional", method=False)
def softmin(input, dim: Int = None, _stacklevel=3, dtype=None):
    """Computes softmax of -input along `dim`."""
    check_tensor_arg("softmin", "input", input)
    if dim is None:
        dim = _implicit_dim("softmin", input.ndim, _stacklevel)
    return _soft("softmax", softmax_, -input, dim, dtype)


@register_op(ns="nn.functional", method=False, tags="nondeterministic_seeded")
def gumbel_softmax(logits, tau=1, hard=False, eps: Float = 1e-10, dim: Int = -1):
    """Samples from the Gumbel-softmax distribution. hard=True returns one-hot samples that have the
    gradient of the soft ones."""
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    check_tensor_arg("gumbel_softmax", "logits", logits)
    if logits._np_dtype.kind not in "fV":
        raise RuntimeError("Exponential distribution is a continuous probability distribution. dtype must be a "
                           "floating point but "
                           f"you specified {scalar_type_name(logits)}")
    noise = new_full(logits, size=logits._sizes, value=0, np_dtype=logits._np_dtype).exponential_()
    soft = _soft("softmax", softmax_, (logits - noise.log()) / tau, dim, None)
    if not hard:
        return soft
    index = soft.argmax(dim, keepdim=True)
    hot = new_full(soft, size=soft._sizes, value=0, np_dtype=soft._np_dtype).scatter_(dim, index, 1.0)
    return hot - soft.detach() + soft
