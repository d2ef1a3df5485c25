"""Normalization: batch, layer, group, instance, RMS and local response norms, normalize."""
import math

from mindtorch.core.tensor import inplace, stride_rules
from mindtorch.core.device import device_dispatch
from mindtorch.core.autograd import forward_ad, saves
from mindtorch.core.tensor.dtypes import BF16, F16, F32, U8, finfo, float32, of_np
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.op_registry import register_op, store_out
from mindtorch.core.dispatch.op_schema import Bool, Float, Int, SymInt
from mindtorch.core.autograd.graph import saved_hooks
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import bump_version, saved_to_tensor, is_tensor
from mindtorch.ops.nn._fused import composite_backward_upcast, check_floating, check_tensor_arg
from mindtorch.ops._checks import check_number
from mindtorch.ops.basic import cast, new_full
from mindtorch.ops.shapes.shape import in_c_order


_EPSILONS = {F16: finfo(float32).eps, BF16: finfo(float32).eps}


def _epsilon(x):
    """Returns the epsilon of x's dtype, or float32's for half precision."""
    d = x._np_dtype
    r = _EPSILONS.get(d)
    if r is None:
        r = _EPSILONS[d] = finfo(of_np(d)).eps
    return r


def _fraction(eps):
    """Returns an int as a float: MindSpore's kernels accept floats only."""
    return float(eps) if eps.__class__ is int else eps


def _stats_dtype(x):
    """Returns the dtype of x's statistics."""
    return F32 if x._np_dtype.itemsize == 2 else x._np_dtype


#: Layouts of the gradients of the input, the weight and the bias.
_GRADS = (stride_rules.by_operand(1), None, None)


# ------------------------------------------------------------------ batch norm
_bn_train_backward = primitive("native_batch_norm_train_backward", "g, x, w=None, mean=None, rstd=None, xc=None, *, eps, needs", layout=_GRADS)


def _compose_bn(x, w, b, eps):
    dims = [0] + list(range(2, x.ndim))
    mean = x.mean(dims, keepdim=True)
    xc = x - mean
    var = (xc * xc).mean(dims, keepdim=True)
    return _affine(xc * (var + eps).rsqrt(), w, b)


def _affine(y, w, b):
    """Applies a weight and a bias per channel (dim 1) to y."""
    shape = [1, -1] + [1] * (y.ndim - 2)
    if w is not None:
        y = y * w.reshape(shape)
    return y if b is None else y + b.reshape(shape)


def _bn_train_rule(ctx, grad):
    if mode.on:
        return composite_backward_upcast(lambda x, w, b: _compose_bn(x, w, b, ctx.eps), (ctx.x, ctx.w, ctx.b), grad)
    return _bn_train_backward(grad, ctx.x, ctx.w, ctx.out1, ctx.out3, ctx.out4, eps=ctx.eps, needs=ctx.needs)


#: (result, mean, variance, 1 / std, further values for the gradient kernel). 1 / std is present if
#: the gradient kernel uses it or the variance is None.
bn_train = primitive("native_batch_norm_train", "x, w=None, b=None, *, eps", _bn_train_rule, raw=True, residuals=(1, 2, 3, 4), node="NativeBatchNormBackward0",
                     layout=(stride_rules.batch_norm,) + (stride_rules.as_computed,) * 4)


def _bn_moving_rule(ctx, grad):
    if mode.on:
        return composite_backward_upcast(lambda x, w, b: _compose_bn(x, w, b, ctx.eps), (ctx.x, ctx.w, ctx.b), grad) + (None, None)
    return _bn_train_backward(grad, ctx.x, ctx.w, ctx.out1, ctx.out3, ctx.out4, eps=ctx.eps, needs=ctx.needs[:3]) + (None, None)


#: Like `bn_train`, for devices that update the running statistics in place in the same kernel.
#: Called only where such a kernel exists (`_moves`).
_bn_moving = primitive("native_batch_norm_moving", "x, w=None, b=None, running_mean=None, running_var=None, *, momentum, eps",
                       _bn_moving_rule, raw=True, residuals=(1, 2, 3, 4), node="NativeBatchNormBackward0",
                       layout=(stride_rules.batch_norm,) + (stride_rules.as_computed,) * 4)
_MOVED = frozenset((F32, F16, BF16))


def _moves(x, running_mean, running_var, eps):
    """True if x's device has a kernel for the entire op.

    The host cannot be a fallback for it: it would update copies of the running statistics.
    """
    return (x._handle is not None and 0 < eps <= 1 and running_mean is not None and running_var is not None and x._numel and running_mean._handle is not None
            and running_var._handle is not None and x._np_dtype in _MOVED and running_mean._np_dtype in _MOVED and device_dispatch.has_kernel(x._device,
                    "native_batch_norm_moving"))


def _bn_eval_rule(ctx, grad):
    if mode.on:
        return composite_backward_upcast(lambda x, w, b: _compose_bn_eval(x, w, b, ctx.mean, ctx.var, ctx.eps), (ctx.x, ctx.w, ctx.b), grad) + (None, None)
    return _bn_eval_backward(grad, ctx.x, ctx.w, ctx.mean, ctx.var, eps=ctx.eps, needs=ctx.needs)


def _compose_bn_eval(x, w, b, mean, var, eps):
    shape = [1, -1] + [1] * (x.ndim - 2)
    return _affine((x - mean.reshape(shape)) * (var.reshape(shape) + eps).rsqrt(), w, b)


_bn_eval_backward = primitive("native_batch_norm_eval_backward", "g, x, w=None, mean=None, var=None, *, eps, needs", layout=_GRADS + (None, None))
bn_eval = primitive("native_batch_norm_eval", "x, w=None, b=None, mean=None, var=None, *, eps", _bn_eval_rule, node="NativeBatchNormBackward0",
                    layout=stride_rules.batch_norm)


def _check_bn(d, channels, **vectors):
    """Checks the sizes and dtypes of the per-channel vectors. d: dtype of the input."""
    for name, v in vectors.items():
        if v is None:
            continue
        if v._numel != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {v._numel}")
        if v._np_dtype != d and not (d.itemsize == 2 and v._np_dtype == F32):
            raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype." if d.itemsize != 2 else
                               "mixed dtype (CPU): expect parameter to have scalar type of Float")
        if name.startswith("running") and v._requires_grad_ and mode.on:
            raise RuntimeError("The function 'native_batch_norm' is not differentiable with respect to argument "
                               f"'{name}'. This "
                               "input cannot have requires_grad True.")


_running = primitive("running_statistics", "mean, var, running_mean=None, running_var=None, *, momentum, factor", raw=True, residuals=(0, 1),
                     layout=stride_rules.as_computed)


def _update(mean, var, running_mean, running_var, momentum, factor):
    """Updates the running statistics in place.

    running = (1 - momentum) * running + momentum * value. The variance is first multiplied by
    `factor`.
    """
    if running_mean is None and running_var is None:
        return
    m, v = _running(mean, var, running_mean, running_var, momentum=momentum, factor=factor)
    if m is not None:
        inplace.assign(running_mean, m, 0)
    if v is not None:
        inplace.assign(running_var, v, 0)


def _bn(input, running_mean, running_var, weight, bias, training, momentum, eps):
    """Returns (result, mean, variance, 1 / std). In training, one of the last two may be None;
    otherwise all three statistics are None."""
    eps, momentum = _fraction(eps), _fraction(momentum)
    shape, d = input._sizes, input._np_dtype
    if len(shape) < 2:
        if len(shape) == 1 and not shape[0] and (running_mean is None or not running_mean._numel):
            return input.clone(), None, None, None
        if running_mean is not None and len(shape) == 1:
            raise RuntimeError(f"running_mean should contain 0 elements not {running_mean._numel}")
        raise RuntimeError(f"batch_norm expected an input of at least 2 dims, got {len(shape)}")
    c = shape[1]
    if d.kind not in "fV":
        check_floating("batch_norm", input)
    _check_bn(d, c, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError(f"running_{'mean' if running_mean is None else 'var'} must be defined in evaluation mode")
        return bn_eval(input, weight, bias, running_mean, running_var, eps=eps), None, None, None
    if _moves(input, running_mean, running_var, eps):
        for t in (running_mean, running_var):
            inplace.check_inplace(t, False)
        y, mean, var, rstd, _ = _bn_moving(input, weight, bias, running_mean, running_var, momentum=momentum, eps=eps)
        bump_version(running_mean)
        bump_version(running_var)
        return y, mean, var, rstd
    if saved_hooks:
        with saves.after_kernel(running_mean=running_mean, running_var=running_var):
            return _bn_trained(input, running_mean, running_var, weight, bias, momentum, eps)
    return _bn_trained(input, running_mean, running_var, weight, bias, momentum, eps)


def _bn_trained(input, running_mean, running_var, weight, bias, momentum, eps):
    y, mean, var, rstd, _ = bn_train(input, weight, bias, eps=eps)
    size = input._numel
    if size:
        count = size // input._sizes[1]
        _update(mean, var, running_mean, running_var, momentum, count / (count - 1) if count > 1 else math.nan)
    return y, mean, var, rstd


@register_op(ns="nn.functional", method=False, writes=("training", False))
def batch_norm(input, running_mean, running_var, weight=None, bias=None, training: Bool = False, momentum: Float = 0.1, eps: Float = 1e-05):
    """Normalizes each channel (dim 1). In training it uses the input's own statistics and updates
    the running statistics in place."""
    check_tensor_arg("batch_norm", "input", input)
    if training:
        s = input._sizes
        n = math.prod(s) // (s[1] or 1) if len(s) > 1 else 2
        if n == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
        if (running_mean is None) != (running_var is None):
            raise ValueError("running_mean and running_var must either both be None or neither be None")
    if eps <= 0 and (training or eps < 0):
        raise ValueError(f"batch_norm eps must be {'positive during training' if training else 'non-negative'}, but got {eps}")
    return _bn(input, running_mean, running_var, weight, bias, training, momentum, eps)[0]


@register_op(method=False, name="batch_norm", writes=("training", False))
def _torch_batch_norm(input, weight, bias, running_mean, running_var, training: Bool, momentum: Float, eps: Float, cudnn_enabled: Bool):
    """batch_norm with the argument order of torch.batch_norm."""
    check_tensor_arg("batch_norm", "input", input)
    return _bn(input, running_mean, running_var, weight, bias, training, momentum, eps)[0]


def _native_bn(input, weight, bias, running_mean, running_var, training, momentum, eps):
    y, mean, var, rstd = _bn(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if mean is None:
        d = _stats_dtype(input)
        return y, new_full(input, size=(0,), value=0, np_dtype=d), new_full(input, size=(0,), value=0, np_dtype=d)
    return y, saved_to_tensor(mean), (saved_to_tensor(var) + eps).rsqrt() if rstd is None else saved_to_tensor(rstd)


@register_op(method=False, writes=("training", False))
def native_batch_norm(input, weight, bias, running_mean, running_var, training: Bool, momentum: Float, eps: Float):
    """Returns (result, mean, 1 / std) of batch norm."""
    return _native_bn(input, weight, bias, running_mean, running_var, training, momentum, eps)


@register_op(method=False)
def _native_batch_norm_legit(input, weight, bias, *rest):
    """Like native_batch_norm. The running statistics may be left out: (..., training, momentum,
    eps)."""
    if len(rest) == 3:
        rest = (None, None) + rest
    return _native_bn(input, weight, bias, *rest)


@register_op(method=False)
def _batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum: Float, eps: Float):
    """Like native_batch_norm in training, with an empty fourth result."""
    return _native_bn(input, weight, bias, running_mean, running_var, True, momentum, eps) + (new_full(input, size=(0,), value=0, np_dtype=U8),)


# ------------------------------------------------------------------ layer norm, rms norm
_ln_backward = primitive("native_layer_norm_backward", "g, x, w=None, mean=None, rstd=None, var=None, xhat=None, *, n, eps, needs, shape")


def _compose_ln(x, w, b, dims, eps):
    axes = list(range(-dims, 0))
    xc = x - x.mean(axes, keepdim=True)
    y = xc * ((xc * xc).mean(axes, keepdim=True) + eps).rsqrt()
    if w is not None:
        y = y * w
    return y if b is None else y + b


def _ln_rule(ctx, grad):
    if mode.on:
        return composite_backward_upcast(lambda x, w, b: _compose_ln(x, w, b, ctx.dims, ctx.eps), (ctx.x, ctx.w, ctx.b), grad)
    return _ln_backward(grad, ctx.x, ctx.w, ctx.out1, ctx.out2, ctx.out3, ctx.out4, n=ctx.n, eps=ctx.eps, needs=ctx.needs, shape=ctx.shapes[2])


#: (result, then mean, 1 / std, variance and normalized rows as far as the gradient kernel uses
#: them)
ln_ = primitive("native_layer_norm", "x, w=None, b=None, *, n, dims, eps", _ln_rule, raw=True, residuals=(1, 2, 3, 4), node="NativeLayerNormBackward0",
                layout=(None,) + (stride_rules.as_computed,) * 4)


def _normalized(name, input, normalized_shape, weight, bias=None):
    """Returns how many trailing elements and dims are normalized together. Checks the arguments."""
    try:
        shape = tuple([v.__index__() if is_tensor(v) else v for v in normalized_shape])
    except TypeError:
        raise TypeError(f"{name}(): argument 'normalized_shape' (position 2) must be tuple of ints, not "
                        f"{type(normalized_shape).__name__}") from None
    if not shape:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
                           "element, but "
                           "got normalized_shape = []")
    for what, v in (("weight", weight), ("bias", bias)):
        if v is not None and v._sizes != shape:
            raise RuntimeError(f"Expected {what} to be of same shape as normalized_shape, but got {what} of shape "
                               f"{list(v._sizes)} and normalized_shape = {list(shape)}")
    if input._sizes[-len(shape):] != shape:
        star = "*, " if name == "layer_norm" else "*"
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input with shape [{star}"
                           f"{', '.join(map(str, shape))}], but got input of size{list(input._sizes)}")
    return math.prod(shape), len(shape)


def _layer_norm(input, normalized_shape, weight, bias, eps):
    check_tensor_arg("layer_norm", "input", input)
    if eps.__class__ is not float:
        eps = _fraction(check_number("layer_norm", "eps", eps))
    sizes, d, shape = input._sizes, input._np_dtype, normalized_shape
    if shape.__class__ is tuple and len(shape) == 1 and sizes and sizes[-1] == shape[0] and (
            weight is None or weight._sizes == shape) and (bias is None or bias._sizes == shape):
        n, dims = shape[0], 1
    else:
        n, dims = _normalized("layer_norm", input, shape, weight, bias)
    if d.kind not in "fV":
        check_floating("LayerNormKernelImpl", input)
    for v in (weight, bias):
        if v is not None and v._np_dtype != d and not (d.itemsize == 2 and v._np_dtype == F32):
            raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype." if d.itemsize != 2 else
                               "mixed dtype (CPU): expect parameter to have scalar type of Float")
    return ln_(input, weight, bias, n=n, dims=dims, eps=eps)


@register_op(ns="nn.functional", method=False)
def layer_norm(input, normalized_shape, weight=None, bias=None, eps: Float = 1e-05):
    """Normalizes over the trailing dims `normalized_shape`, then applies weight and bias of that
    shape."""
    return _layer_norm(input, normalized_shape, weight, bias, eps)[0]


@register_op(method=False, name="layer_norm")
def _torch_layer_norm(input, normalized_shape, weight=None, bias=None, eps: Float = 1e-05, cudnn_enable: Bool = True):
    """layer_norm with torch.layer_norm's extra flag."""
    return _layer_norm(input, normalized_shape, weight, bias, eps)[0]


@register_op(method=False)
def native_layer_norm(input, normalized_shape, weight, bias, eps: Float):
    """Returns (result, mean, 1 / std) of layer norm."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    y, _, rstd, _, _ = _layer_norm(input, shape, weight, bias, eps)
    sizes = input._sizes
    lead = sizes[:len(sizes) - len(shape)] + (1,) * len(shape)
    return y, cast(input.detach(), _stats_dtype(input)).mean(tuple(range(-len(shape), 0)), keepdim=True), saved_to_tensor(rstd).reshape(lead)


_rms_backward = primitive("rms_norm_backward", "g, x, w=None, rstd=None, *, n, needs", layout=(stride_rules.of_first(stride_rules.pointwise, 3), None))


def _compose_rms(x, w, dims, eps):
    y = x * ((x * x).mean(list(range(-dims, 0)), keepdim=True) + eps).rsqrt()
    return y if w is None else y * w


def _rms_rule(ctx, grad):
    if mode.on:
        return composite_backward_upcast(lambda x, w: _compose_rms(x, w, ctx.dims, ctx.eps), (ctx.x, ctx.w), grad)
    return _rms_backward(grad, ctx.x, ctx.w, ctx.out1, n=ctx.n, needs=ctx.needs)


#: (result, reciprocal of the root mean square)
rms_ = primitive("rms_norm", "x, w=None, *, n, dims, eps", _rms_rule, raw=True, residuals=(1,), node="MulBackward0",
                 layout=(stride_rules.suggested_by_first, stride_rules.as_computed))


@register_op(method=False, aliases="nn.functional.rms_norm")
def rms_norm(input, normalized_shape, weight=None, eps: Float = None):
    """Computes input / sqrt(mean(input^2) + eps) over the trailing dims, times weight. eps=None
    means the dtype's epsilon."""
    check_tensor_arg("rms_norm", "input", input)
    n, dims = _normalized("rms_norm", input, normalized_shape, weight)
    if input._np_dtype.kind == "c":
        # As in PyTorch: the plain square, not the squared magnitude.
        y = input * ((input * input).mean(list(range(-dims, 0)), keepdim=True)
                     + (_epsilon(input) if eps is None else eps)).rsqrt()
        return y if weight is None else y * weight
    check_floating("rms_norm", input)
    if eps is None:
        eps = _epsilon(input)
    if weight is not None and weight._np_dtype != input._np_dtype:
        return rms_(input, None, n=n, dims=dims, eps=eps)[0] * weight
    return rms_(input, weight, n=n, dims=dims, eps=eps)[0]


# ------------------------------------------------------------------ group norm, instance norm
_gn_backward = primitive("native_group_norm_backward", "g, x, w=None, mean=None, rstd=None, xhat=None, *, groups, needs", layout=_GRADS)


def _compose_gn(x, w, b, groups, eps):
    shape = x._sizes
    y = x.reshape(shape[0], groups, math.prod(shape[1:]) // groups)
    y = _compose_ln(y, None, None, 1, eps).reshape(shape)
    return _affine(y, w, b)


def _gn_rule(ctx, grad):
    if mode.on:
        return composite_backward_upcast(lambda x, w, b: _compose_gn(x, w, b, ctx.groups, ctx.eps), (ctx.x, ctx.w, ctx.b), grad)
    return _gn_backward(grad, ctx.x, ctx.w, ctx.out1, ctx.out2, ctx.out3, groups=ctx.groups, needs=ctx.needs)


_GROUPED = {"raw": True, "residuals": (1, 2, 3), "layout": (stride_rules.suggested_by_first,) + (stride_rules.as_computed,) * 3}
#: (result, then mean, 1 / std and normalized groups as far as the gradient kernel uses them)
gn_ = primitive("native_group_norm", "x, w=None, b=None, *, groups, eps", _gn_rule, node="NativeGroupNormBackward0", **_GROUPED)
_instance_norm_ = primitive("native_instance_norm", "x, w=None, b=None, *, groups, eps", _gn_rule, node="NativeBatchNormBackward0", order=(0, 2, 1),
                            **_GROUPED)
_statistics = primitive("instance_statistics", "x", raw=True, residuals=(0, 1), layout=stride_rules.as_computed)


def _group_norm(input, num_groups, weight, bias, eps):
    check_tensor_arg("group_norm", "input", input)
    if eps.__class__ is not float:
        eps = _fraction(check_number("group_norm", "eps", eps))
    shape = input._sizes
    if len(shape) < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {len(shape)}")
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if shape[1] % num_groups:
        raise RuntimeError("Expected number of channels in input to be divisible by num_groups, but got input of shape "
                           f"{list(shape)} and num_groups={num_groups}")
    for what, v in (("weight", weight), ("bias", bias)):
        if v is not None and v._sizes != (shape[1],):
            raise RuntimeError(f"Expected {what} to be a vector of size equal to the number of channels in input, but "
                               f"got {what} of "
                               f"shape {list(v._sizes)} and input of shape {list(shape)}")
    check_floating("GroupNormKernelImpl", input)
    _check_bn(input._np_dtype, shape[1], weight=weight, bias=bias)
    return gn_(input, weight, bias, groups=num_groups, eps=eps)


@register_op(ns="nn.functional", method=False)
def group_norm(input, num_groups: Int, weight=None, bias=None, eps: Float = 1e-05):
    """Normalizes groups of channels of each sample, then applies weight and bias per channel."""
    check_tensor_arg("group_norm", "input", input)
    s = input._sizes
    if len(s) >= 2 and s[0] * s[1] // num_groups * math.prod(s[2:]) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(s)}")
    return _group_norm(input, num_groups, weight, bias, eps)[0]


@register_op(method=False, name="group_norm")
def _torch_group_norm(input, num_groups: Int, weight=None, bias=None, eps: Float = 1e-05, cudnn_enabled: Bool = True):
    """group_norm with torch.group_norm's extra flag."""
    return _group_norm(input, num_groups, weight, bias, eps)[0]


@register_op(method=False)
def native_group_norm(input, weight, bias, N: SymInt, C: SymInt, HxW: SymInt, group: Int, eps: Float):
    """Returns (result, mean, 1 / std) of group norm."""
    y, _, rstd, _ = _group_norm(input.reshape(N, C, HxW), group, weight, bias, eps)
    x = input if input._np_dtype.itemsize != 2 else cast(input, F32)
    m = x.reshape(N, group, C // group * HxW)
    mean = m.mean(2)
    rstd = ((m - mean.unsqueeze(2)).square().mean(2) + eps).rsqrt() if forward_ad.is_differentiated(input) else saved_to_tensor(rstd).reshape(N, group)
    return y.reshape(input._sizes), mean, rstd


@register_op(ns="nn.functional", method=False, writes=("use_input_stats", False))
def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats: Bool = True, momentum: Float = 0.1,
                  eps: Float = 1e-05):
    """Normalizes each channel of each sample by its own statistics, or by the running statistics.
    """
    check_tensor_arg("instance_norm", "input", input)
    if use_input_stats:
        if math.prod(input._sizes[2:]) == 1:
            raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    return _instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


def _instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps):
    if eps.__class__ is not float:
        eps = _fraction(check_number("instance_norm", "eps", eps))
    input = in_c_order(input)  # PyTorch computes on a view as one sample with N * C channels
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
        return _bn(input, running_mean, running_var, weight, bias, False, momentum, eps)[0]
    shape = input._sizes
    c = shape[1]
    _check_bn(input._np_dtype, c, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    check_floating("batch_norm", input)
    if saved_hooks:
        n = shape[0]
        with saves.after_kernel(running_mean=None if running_mean is None else running_mean.repeat(n),
                                running_var=None if running_var is None else running_var.repeat(n)):
            return _instance_normed(input, running_mean, running_var, weight, bias, momentum, eps)
    return _instance_normed(input, running_mean, running_var, weight, bias, momentum, eps)


def _instance_normed(input, running_mean, running_var, weight, bias, momentum, eps):
    shape = input._sizes
    y = _instance_norm_(input, weight, bias, groups=shape[1], eps=eps)[0]
    if running_mean is not None and input._numel:
        count = math.prod(shape[2:])
        _update(*_statistics(input), running_mean, running_var, momentum, count / max(count - 1, 1))
    return y


@register_op(method=False, name="instance_norm", writes=("use_input_stats", False))
def _torch_instance_norm(input, weight, bias, running_mean, running_var, use_input_stats: Bool, momentum: Float, eps: Float, cudnn_enabled: Bool):
    """instance_norm with the argument order of torch.instance_norm."""
    return _instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


# ------------------------------------------------------------------ local response norm, normalize
window_sum_ = primitive("channel_window_sum", "x, *, size, before", lambda ctx, grad: window_sum_(grad, size=ctx.size, before=ctx.size - 1 - ctx.before),
                        layout=stride_rules.suggested_by_first)


@register_op(ns="nn.functional", method=False)
def local_response_norm(input, size, alpha=0.0001, beta=0.75, k=1.0):
    """Computes input / (k + alpha * mean of squares over `size` neighboring channels)^beta."""
    check_tensor_arg("local_response_norm", "input", input)
    if input.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality                          input (got {input.ndim} "
                         "dimensions)")
    if not input._numel:
        return input
    squares = input * input
    if input._np_dtype.itemsize == 2:
        # The sum of squares may overflow float16, while their mean does not.
        s = cast(window_sum_(cast(squares, F32), size=size, before=size // 2) / size, input._np_dtype) * alpha
    else:
        s = window_sum_(squares, size=size, before=size // 2) * (alpha / size)
    return input / (s + k).pow(beta)


@register_op(ns="nn.functional", method=False)
def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """Computes input / max(p-norm along `dim`, eps)."""
    check_tensor_arg("normalize", "input", input)
    norm = input.norm(p, dim, keepdim=True).clamp_min(eps)
    if out is None:
        return input / norm
    return store_out("normalize", out, input / norm)
