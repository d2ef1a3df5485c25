"""Legacy ops (aclop) launched by MindSpore's own layers and optimizers: convolutions, pooling,
norms, activations, dropout, optimizer steps."""
from mindtorch.tools.standin.kernels._engine import F, torch
from mindtorch.tools.standin.kernels._results import upcast
from mindtorch.tools.standin.kernels._table import generator, gradients, op
from mindtorch.tools.standin.kernels.old_ops import _int_list, _of_inputs, _step


def _differentiable(names, function, gradient=None):
    """Registers an elementwise op, and its gradient op with inputs (grad, input)."""
    _of_inputs(names, lambda x: function(upcast(x)))
    if gradient:
        _of_inputs(gradient, lambda g, x: gradients(function, upcast(g), upcast(x))[0])


# ---- convolutions: strides and dilations of all dimensions, padding before and after each
_CONVOLUTION = {2: F.conv2d, 3: F.conv3d}


def _space(attributes, name):
    """Returns an attribute's values for the spatial dimensions, which are last in `data_format`."""
    if attributes.get("data_format", "NCHW") not in ("NCHW", "NCDHW"):
        raise NotImplementedError(f"data_format={attributes['data_format']!r}")
    return attributes[name][2:]


def _padded(x, pads, value=0.0):
    """Pads the last dimensions. pads: (before, after) of each of them, the first dimension first.
    """
    pairs = list(zip(pads[::2], pads[1::2]))
    return F.pad(x, [n for pair in reversed(pairs) for n in pair], value=value)


def _convolution(x, weight, bias, attributes):
    strides, dilations = _space(attributes, "strides"), _space(attributes, "dilations")
    return _CONVOLUTION[len(strides)](_padded(x, attributes["pads"]), weight, bias, strides, 0, dilations, attributes.get("groups", 1))


@op("Conv2D Conv3D")
def _forward(inputs, outputs, attributes):
    x, weight, bias = [*map(upcast, inputs), None][:3]
    return [_convolution(x, weight, bias, attributes)]


@op("Conv2DBackpropInput Conv3DBackpropInput")
def _of_input(inputs, outputs, attributes):
    _, weight, g = inputs
    weight = upcast(weight)
    return [gradients(lambda x: _convolution(x, weight, None, attributes), upcast(g), torch.zeros(outputs[0].shape))[0]]


@op("Conv2DBackpropFilter Conv3DBackpropFilter")
def _of_weight(inputs, outputs, attributes):
    x, _, g = inputs
    x = upcast(x)
    return [gradients(lambda w: _convolution(x, w, None, attributes), upcast(g), torch.zeros(outputs[0].shape))[0]]


# ---- pools
def _pads(x, size, strides, attributes):
    """Returns (before, after) of each dimension."""
    if attributes.get("padding", "VALID") == "VALID":
        return [0] * (2 * len(size))
    pads = []
    for n, k, s in zip(x.shape[2:], size, strides):
        missing = max((-(-n // s) - 1) * s + k - n, 0)
        pads += [missing // 2, missing - missing // 2]
    return pads


def _max_pool(x, attributes):
    size, strides = _space(attributes, "ksize"), _space(attributes, "strides")
    return F.max_pool2d(_padded(x, _pads(x, size, strides, attributes), -float("inf")), size, strides)


def _mean_pool(x, attributes):
    """Averages the elements inside the image."""
    size, strides = _space(attributes, "ksize"), _space(attributes, "strides")
    pads = _pads(x, size, strides, attributes)
    inside = _padded(torch.ones(x.shape[2:]).reshape(1, 1, *x.shape[2:]), pads)
    return F.avg_pool2d(_padded(x, pads), size, strides) / F.avg_pool2d(inside, size, strides)


def _mean_pool3(x, attributes):
    size, strides, pads = (list(attributes[k]) for k in ("ksize", "strides", "pads"))
    if pads[::2] != pads[1::2]:
        raise NotImplementedError(f"pads={pads}")
    return F.avg_pool3d(x, size[2:], strides[2:], pads[::2], attributes.get("ceil_mode", False), attributes.get("count_include_pad", True),
                        attributes.get("divisor_override") or None)


op("MaxPool")(lambda inputs, outputs, attributes: [_max_pool(upcast(inputs[0]), attributes)])
op("MaxPoolGrad")(lambda inputs, outputs, attributes: [gradients(lambda x: _max_pool(x, attributes), upcast(inputs[2]), upcast(inputs[0]))[0]])
op("AvgPool")(lambda inputs, outputs, attributes: [_mean_pool(upcast(inputs[0]), attributes)])
op("AvgPoolGrad")(lambda inputs, outputs, attributes: [
    gradients(lambda x: _mean_pool(x, attributes), upcast(inputs[1]), torch.zeros(outputs[0].shape))[0]])
op("AvgPool3D")(lambda inputs, outputs, attributes: [_mean_pool3(upcast(inputs[0]), attributes)])
op("AvgPool3DGrad")(lambda inputs, outputs, attributes: [
    gradients(lambda x: _mean_pool3(x, attributes), upcast(inputs[1]), torch.zeros(outputs[0].shape))[0]])
op("CustAdaptiveAvgPool2D")(lambda inputs, outputs, attributes: [F.adaptive_avg_pool2d(upcast(inputs[0]), list(outputs[0].shape[-2:]))])
op("CustAdaptiveAvgPool2DGrad")(lambda inputs, outputs, attributes: [
    gradients(lambda x: F.adaptive_avg_pool2d(x, list(inputs[0].shape[-2:])), upcast(inputs[0]), torch.zeros(outputs[0].shape))[0]])


# ---- norms
def _channels(v, x):
    return upcast(v).reshape([1, -1] + [1] * (x.dim() - 2))


def _per_channel(x):
    return x.transpose(0, 1).reshape(x.shape[1], -1).sum(1)


@op("BNTrainingReduce")
def _sums(inputs, outputs, attributes):
    x = upcast(inputs[0])
    return [_per_channel(x), _per_channel(x * x)]


@op("BNTrainingUpdate")
def _normed(inputs, outputs, attributes):
    """Normalizes by batch statistics. `factor` is the weight of the batch's statistics in the
    running ones."""
    x, total, squares, weight, bias, mean, variance = map(upcast, inputs)
    n, part = x.numel() // x.shape[1], attributes["factor"]
    batch_mean = total / n
    var = squares / n - batch_mean * batch_mean
    y = (x - _channels(batch_mean, x)) * torch.rsqrt(_channels(var, x) + attributes["epsilon"]) * _channels(weight, x) + _channels(bias, x)
    return [y, mean * (1 - part) + batch_mean * part, variance * (1 - part) + var * (n / max(n - 1, 1)) * part, batch_mean, var]


@op("BNTrainingUpdateGrad")
def _gradients_of_affine(inputs, outputs, attributes):
    g, x, mean, variance = map(upcast, inputs)
    return [_per_channel(g * (x - _channels(mean, x)) * torch.rsqrt(_channels(variance, x) + attributes["epsilon"])), _per_channel(g)]


@op("BNTrainingReduceGrad")
def _gradient_of_batch(inputs, outputs, attributes):
    g, x, of_weight, of_bias, weight, mean, variance = map(upcast, inputs)
    n, factor = x.numel() // x.shape[1], torch.rsqrt(_channels(variance, x) + attributes["epsilon"])
    normed = (x - _channels(mean, x)) * factor
    return [(g - _channels(of_bias, x) / n - normed * _channels(of_weight, x) / n) * factor * _channels(weight, x)]


@op("BNInfer")
def _evaluated(inputs, outputs, attributes):
    x, weight, bias, mean, variance = map(upcast, inputs)
    return [F.batch_norm(x, mean, variance, weight, bias, False, 0.0, attributes["epsilon"])]


@op("BNInferGrad")
def _evaluated_gradient(inputs, outputs, attributes):
    g, weight, variance = map(upcast, inputs)
    return [g * _channels(weight * torch.rsqrt(variance + attributes["epsilon"]), g)]


@op("BatchNorm")
def _batch_norm(inputs, outputs, attributes):
    """All outputs after the first are the statistics."""
    if attributes.get("is_training", True):
        raise NotImplementedError("is_training")
    x, weight, bias, mean, variance = map(upcast, inputs)
    y = F.batch_norm(x, mean, variance, weight, bias, False, 0.0, attributes["epsilon"])
    return [y, *[(mean, variance)[k % 2] for k in range(len(outputs) - 1)]]


@op("LayerNorm")
def _layer_norm(inputs, outputs, attributes):
    x, weight, bias = map(upcast, inputs)
    d = list(range(attributes["begin_norm_axis"] % x.dim(), x.dim()))
    mean, variance = x.mean(d, keepdim=True), x.var(d, correction=0, keepdim=True)
    return [(x - mean) * torch.rsqrt(variance + attributes["epsilon"]) * weight + bias, mean, variance]


@op("LayerNormGrad")
def _layer_norm_gradient(inputs, outputs, attributes):
    """Computes the gradient. Variance and mean are the forward op's outputs, up to its eps."""
    g, x, variance, mean, weight = map(upcast, inputs)
    inner = list(range(x.dim() - weight.dim(), x.dim()))
    factor = torch.rsqrt(variance + attributes.get("epsilon", 1e-7))
    normed, g_normed = (x - mean) * factor, g * weight
    grad = (g_normed - g_normed.mean(inner, keepdim=True) - normed * (g_normed * normed).mean(inner, keepdim=True)) * factor
    outer = [d for d in range(x.dim()) if d not in inner]
    return [grad, (g * normed).sum(outer) if outer else g * normed, g.sum(outer) if outer else g]


@op("InstanceNorm")
def _instance_norm(inputs, outputs, attributes):
    x, weight, bias = map(upcast, inputs)
    d = list(range(2, x.dim()))
    mean, variance = x.mean(d, keepdim=True), x.var(d, correction=0, keepdim=True)
    y = (x - mean) * torch.rsqrt(variance + attributes["epsilon"]) * _channels(weight, x) + _channels(bias, x)
    return [y, mean.reshape(-1), variance.reshape(-1)]


def _unit(x, attributes):
    return x * torch.rsqrt((x * x).sum(attributes.get("axis") or attributes["dim"], keepdim=True).clamp(min=attributes["eps"]))


op("L2Normalize")(lambda inputs, outputs, attributes: [_unit(upcast(inputs[0]), attributes)])
op("L2NormalizeGrad")(lambda inputs, outputs, attributes: [gradients(lambda x: _unit(x, attributes), upcast(inputs[2]), upcast(inputs[0]))[0]])


@op("LpNorm LpNormV2")
def _norm(inputs, outputs, attributes):
    x, axes = upcast(inputs[0]), attributes.get("axes") or list(range(inputs[0].dim()))
    return [torch.linalg.vector_norm(x, float(attributes.get("p", 2)), axes, bool(attributes.get("keepdim")))]


@op("ReduceStd")
def _deviation(inputs, outputs, attributes):
    x, d = upcast(inputs[0]), attributes.get("dim") or list(range(inputs[0].dim()))
    keep = bool(attributes.get("keepdim"))
    return [x.std(d, correction=int(attributes.get("unbiased", True)), keepdim=keep), x.mean(d, keepdim=keep)]


# ---- activations, elementwise
_differentiable("Relu6", F.relu6, "Relu6Grad")
_differentiable("Mish", F.mish)
_differentiable("Softplus", F.softplus, "SoftplusGrad")
_differentiable("Softsign", F.softsign)
_of_inputs("Selu", lambda x: F.selu(upcast(x)))
_of_inputs("SeluGrad", lambda g, y: upcast(g) * torch.where(y > 0, 1.0507009873554805, upcast(y) + 1.7580993408473766))
_differentiable("FastGelu", lambda x: x * torch.sigmoid(1.702 * x), "FastGeluGrad")
op("Elu")(lambda inputs, outputs, attributes: [F.elu(upcast(inputs[0]), attributes.get("alpha", 1.0))])
op("CeluV2")(lambda inputs, outputs, attributes: [F.celu(upcast(inputs[0]), attributes.get("alpha", 1.0))])


@op("EluGrad")
def _elu_gradient(inputs, outputs, attributes):
    g, y = map(upcast, inputs)
    return [torch.where(y > 0, g, g * (y + 1))]


op("AddN")(lambda inputs, outputs, attributes: [sum(inputs[1:], inputs[0])])
_of_inputs("Atan2", torch.atan2)
_of_inputs("FloorMod", lambda x, y: x - torch.floor(x / y) * y if x.is_floating_point() else torch.remainder(x, y))
_of_inputs("IsNan", torch.isnan)
_of_inputs("TensorMove", lambda x: x)
op("SquareSumAll")(lambda inputs, outputs, attributes: [(x * x).sum() for x in inputs])
op("Tril")(lambda inputs, outputs, attributes: [torch.tril(inputs[0], attributes.get("diagonal", 0))])
op("Triu")(lambda inputs, outputs, attributes: [torch.triu(inputs[0], attributes.get("diagonal", 0))])
op("Unpack")(lambda inputs, outputs, attributes: torch.unbind(inputs[0], attributes.get("axis", 0)))


@op("KLDiv")
def _kl_divergence(inputs, outputs, attributes):
    return [F.kl_div(upcast(inputs[0]), upcast(inputs[1]), reduction=attributes.get("reduction", "mean"))]


@op("KlDivLossGrad")
def _kl_divergence_gradient(inputs, outputs, attributes):
    g, x, target = map(upcast, inputs)
    reduction = attributes.get("reduction", "mean")
    return [gradients(lambda x: F.kl_div(x, target, reduction=reduction), g.reshape([]) if reduction != "none" else g, x)[0]]


def _resized(x, size, mode, attributes):
    """Resizes with pixel centers at half-integers, as torch does; other conventions, used by models
    of other frameworks, are not supported."""
    if not attributes.get("half_pixel_centers") and mode == "bilinear" and not attributes.get("align_corners"):
        raise NotImplementedError("half_pixel_centers=False")
    if mode == "nearest" and (attributes.get("half_pixel_centers") or attributes.get("align_corners")):
        raise NotImplementedError(f"nearest with {attributes}")
    return F.interpolate(x, size, mode=mode, **({"align_corners": bool(attributes.get("align_corners"))} if mode == "bilinear" else {}))


for _name, _mode in (("ResizeBilinearV2", "bilinear"), ("ResizeNearestNeighborV2", "nearest")):
    op(_name)(lambda inputs, outputs, attributes, mode=_mode: [_resized(upcast(inputs[0]), _int_list(inputs[1]), mode, attributes)])
    op(f"{_name}Grad")(lambda inputs, outputs, attributes, mode=_mode: [gradients(
        lambda x: _resized(x, list(inputs[0].shape[-2:]), mode, attributes), upcast(inputs[0]), torch.zeros(outputs[0].shape))[0]])


@op("CustIm2col")
def _columns(inputs, outputs, attributes):
    pads = attributes["pads"]
    padding = [pads[0], pads[2]] if len(pads) == 4 else list(pads)
    return [F.unfold(upcast(inputs[0]), attributes["ksizes"], attributes["dilations"], padding, attributes["strides"]).reshape(outputs[0].shape)]


# ---- random numbers (not the chip's); the dropout mask has one bit per element, least significant first
def _generator(attributes, *more):
    seed = attributes.get("seed", 0) or (int(torch.randint(1 << 31, [])) if not attributes.get("seed2") and not more else 0)
    return generator(seed, attributes.get("seed2", 0) + sum(more))


op("RandomStandardNormal")(lambda inputs, outputs, attributes: [torch.randn(_int_list(inputs[0]), generator=_generator(attributes))])
op("RandomUniform")(lambda inputs, outputs, attributes: [torch.rand(_int_list(inputs[0]), generator=_generator(attributes))])
op("StatelessRandperm")(lambda inputs, outputs, attributes: [torch.randperm(int(inputs[0]), generator=generator(int(inputs[1]), int(inputs[2])))])


@op("DropOutGenMask")
def _mask(inputs, outputs, attributes):
    count = 1
    for n in _int_list(inputs[0]):
        count *= n
    bits = torch.rand(outputs[0].numel() * 8, generator=_generator(attributes)) < float(inputs[1])
    bits[count:] = False
    return [(bits.reshape(-1, 8).to(torch.int32) * (1 << torch.arange(8, dtype=torch.int32))).sum(1).to(torch.uint8)]


@op("DropOutDoMask")
def _masked(inputs, outputs, attributes):
    x, mask, keep = inputs
    bits = (mask.reshape(-1, 1).to(torch.int32) >> torch.arange(8, dtype=torch.int32)) & 1
    return [upcast(x) * bits.reshape(-1)[:x.numel()].reshape(x.shape) / float(keep)]


@op("CustDropout2D CustDropout3D")
def _channels_dropped(inputs, outputs, attributes):
    x, keep = upcast(inputs[0]), attributes["keep_prob"]
    mask = (torch.rand(x.shape[:2]) < keep).reshape([*x.shape[:2]] + [1] * (x.dim() - 2)).expand(x.shape)
    return [torch.where(mask, x / keep, torch.zeros_like(x)), mask]


# ---- steps of optimizers
@op("AdamApplyOneWithDecayAssign")
def _adam_decayed(inputs, outputs, attributes):
    """Updates in place: (grad, v, m, p, lr, beta1, 1 - beta1, beta2, 1 - beta2, decay, eps) -> v,
    m, p"""
    g, v, m, p, lr, beta1, rest1, beta2, rest2, decay, eps = inputs
    v_new, m_new = v * beta2 + g * g * rest2, m * beta1 + g * rest1
    p_new = p - lr * (m_new / (v_new.sqrt() + eps) + decay * p)
    for target, value in ((v, v_new), (m, m_new), (p, p_new)):
        target.copy_(value)
    return [v_new, m_new, p_new]


def _sgd(p, grad, lr, moment, momentum, stat, attributes):
    """Computes an SGD step. `stat` is 1 before the first step with momentum, in which the moment is
    the gradient itself."""
    g = grad + attributes.get("weight_decay", 0.0) * p
    first = stat > 0
    moment_new = torch.where(first, g, moment * momentum + (1 - attributes.get("dampening", 0.0)) * g)
    ahead = g + momentum * moment_new if attributes.get("nesterov") else moment_new
    moment.copy_(moment_new)
    stat.zero_()
    return (p - lr * torch.where(momentum > 0, ahead, g),)


_step("SGD", 1, _sgd)


def _adamax(p, m, v, power, lr, beta1, beta2, eps, grad, attributes):
    m = beta1 * m + (1 - beta1) * grad
    v = torch.maximum(beta2 * v, grad.abs())
    return p - lr / (1 - power) * m / (v + eps), m, v


def _adadelta(p, squares, moves, lr, rho, eps, grad, attributes):
    squares = rho * squares + (1 - rho) * grad * grad
    move = (moves + eps).sqrt() * torch.rsqrt(squares + eps) * grad
    return p - lr * move, squares, rho * moves + (1 - rho) * move * move


def _ftrl(p, squares, linear, grad, lr, l1, l2, power, attributes):
    new = squares + grad * grad
    linear = linear + grad - (new ** -power - squares ** -power) / lr * p
    quadratic = new ** -power / lr + 2 * l2
    return torch.where(linear.abs() > l1, (torch.sign(linear) * l1 - linear) / quadratic, torch.zeros_like(p)), new, linear


def _proximal_adagrad(p, squares, lr, l1, l2, grad, attributes):
    squares = squares + grad * grad
    rate = lr * torch.rsqrt(squares)
    ahead = p - rate * grad
    return torch.sign(ahead) * (ahead.abs() - rate * l1).clamp(min=0) / (1 + rate * l2), squares


_step("ApplyAdaMaxD", 3, _adamax)
_step("ApplyAdadeltaD", 3, _adadelta)
_step("ApplyFtrl", 3, _ftrl)
_step("ApplyProximalAdagradD", 2, _proximal_adagrad)
