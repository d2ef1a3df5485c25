"""Normalizations. Backward uses the statistics saved by forward, as on the chip, so that a stale or
swapped buffer is detected."""
from mindtorch.tools.standin.kernels._engine import F, torch
from mindtorch.tools.standin.kernels._results import chosen, upcast
from mindtorch.tools.standin.kernels._table import kernel


def _but_channels(x):
    return [d for d in range(x.dim()) if d != 1]


def _channels(v, x):
    """Reshapes a vector of per-channel values to broadcast with x."""
    return upcast(v).reshape([-1] + [1] * (x.dim() - 2))


def _moved(running, new, momentum):
    """Updates a running statistic."""
    return None if running is None else upcast(running) * (1 - momentum) + upcast(new) * momentum


@kernel("BatchNorm", "input, weight, bias, running_mean!, running_var!, training:bool, momentum:double, eps:double, out!, save_mean!, save_invstd!")
def _batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps, out, save_mean, save_invstd):
    if not training:
        y = F.batch_norm(upcast(x), upcast(running_mean), upcast(running_var), upcast(weight), upcast(bias), False, momentum, eps)
        return None, None, y, None, None
    wx, d = upcast(x), _but_channels(x)
    n = x.numel() // x.shape[1]
    mean, var = wx.mean(d), wx.var(d, correction=0)
    y = F.batch_norm(wx, None, None, upcast(weight), upcast(bias), True, momentum, eps)
    return (_moved(running_mean, mean, momentum), _moved(running_var, var * (n / max(n - 1, 1)), momentum), y, mean, torch.rsqrt(var + eps))


@kernel("BatchNormBackward", "grad, input, weight, running_mean, running_var, save_mean, save_invstd, training:bool, eps:double, mask:bools, "
        "grad_input!, grad_weight!, grad_bias!")
def _batch_norm_backward(g, x, weight, running_mean, running_var, mean, invstd, training, eps, mask, *_):
    if not training:
        mean, invstd = running_mean, torch.rsqrt(upcast(running_var) + eps)
    g, x, d = upcast(g), upcast(x), _but_channels(x)
    normed = (x - _channels(mean, x)) * _channels(invstd, x)
    factor = _channels(invstd, x) if weight is None else _channels(invstd, x) * _channels(weight, x)
    grad = g if not training else g - g.mean(d, keepdim=True) - normed * (g * normed).mean(d, keepdim=True)
    return chosen(mask, grad * factor, (g * normed).sum(d), g.sum(d))


@kernel("BatchNormStats", "input, eps:double, mean!, invstd!")
def _batch_norm_stats(x, eps, *_):
    x, d = upcast(x), _but_channels(x)
    return x.mean(d), torch.rsqrt(x.var(d, correction=0) + eps)


@kernel("BatchNormGatherStatsWithCounts", "input, mean, invstd, running_mean!, running_var!, momentum:double, eps:double, counts, mean_all!, invstd_all!")
def _batch_norm_gather(x, mean, invstd, running_mean, running_var, momentum, eps, counts, *_):
    mean, invstd, share = upcast(mean), upcast(invstd), upcast(counts).reshape(-1, 1)
    n = share.sum()
    share = share / n
    together = (mean * share).sum(0)
    var = ((1 / invstd ** 2 - eps + (mean - together) ** 2) * share).sum(0)
    return (_moved(running_mean, together, momentum), _moved(running_var, var * n / (n - 1), momentum), together, torch.rsqrt(var + eps))


@kernel("BatchNormElemt", "input, weight, bias, mean, invstd, eps:double, out!")
def _batch_norm_elements(x, weight, bias, mean, invstd, eps, out):
    y = (upcast(x) - _channels(mean, x)) * _channels(invstd, x)
    y = y if weight is None else y * _channels(weight, x)
    return y if bias is None else y + _channels(bias, x)


@kernel("BatchNormReduceBackward", "grad, input, mean, invstd, weight, for_input:bool, for_weight:bool, for_bias:bool, "
        "sum_dy!, sum_dy_xmu!, grad_weight!, grad_bias!")
def _batch_norm_reduce(g, x, mean, invstd, weight, for_input, for_weight, for_bias, *_):
    g, d = upcast(g), _but_channels(x)
    sums, products = g.sum(d), (g * (upcast(x) - _channels(mean, x))).sum(d)
    return chosen((for_input, for_input, for_weight, for_bias), sums, products, products * upcast(invstd), sums)


@kernel("BatchNormElemtBackward", "grad, input, mean, invstd, weight, sum_dy, sum_dy_xmu, counts, grad_input!")
def _batch_norm_elements_backward(g, x, mean, invstd, weight, sum_dy, sum_dy_xmu, counts, out):
    n, r = counts.sum(), upcast(invstd)
    grad = upcast(g) - _channels(upcast(sum_dy) / n, x) - (upcast(x) - _channels(mean, x)) * _channels(upcast(sum_dy_xmu) / n * r * r, x)
    return grad * _channels(r if weight is None else r * upcast(weight), x)


def _normalized(x, dims, eps):
    mean = x.mean(dims, keepdim=True)
    rstd = torch.rsqrt(x.var(dims, correction=0, keepdim=True) + eps)
    return (x - mean) * rstd, mean, rstd


def _layer_norm(x, shape, weight, bias, eps):
    y, mean, rstd = _normalized(upcast(x), list(range(x.dim() - len(shape), x.dim())), eps)
    y = y if weight is None else y * upcast(weight)
    return (y if bias is None else y + upcast(bias)), mean, rstd


def _layer_norm_backward(g, x, shape, mean, rstd, weight):
    n = x.dim() - len(shape)
    g, x, stat_shape = upcast(g), upcast(x), list(x.shape[:n]) + [1] * len(shape)
    normed, d, others = (x - upcast(mean).reshape(stat_shape)) * upcast(rstd).reshape(stat_shape), list(range(n, x.dim())), list(range(n))
    inner = g if weight is None else g * upcast(weight)
    grad = (inner - inner.mean(d, keepdim=True) - normed * (inner * normed).mean(d, keepdim=True)) * upcast(rstd).reshape(stat_shape)
    of_weight = g * normed
    return grad, of_weight.sum(others) if others else of_weight, g.sum(others) if others else g


kernel("LayerNorm", "input, shape:ints, weight, bias, eps:double, out!, mean!, rstd!")(
    lambda x, shape, weight, bias, eps, out, mean, rstd: _layer_norm(x, shape, weight, bias, eps))
kernel("LayerNormBackward", "grad, input, shape:ints, mean, rstd, weight, bias, mask:bools, grad_input!, grad_weight!, grad_bias!")(
    lambda g, x, shape, mean, rstd, weight, bias, mask, *out: chosen(mask, *_layer_norm_backward(g, x, shape, mean, rstd, weight)))


@kernel("AddLayerNorm", "x1, x2, weight, bias, addend, eps:double, with_sum:bool, out!, mean!, rstd!, sum!")
def _add_layer_norm(x1, x2, weight, bias, addend, eps, with_sum, *_):
    x = upcast(x1) + upcast(x2)
    x = x if addend is None else x + upcast(addend)
    return *_layer_norm(x, weight.shape, weight, bias, eps), x if with_sum else None


@kernel("AddLayerNormGrad", "grad, x1, x2, rstd, mean, weight, grad_sum, grad_input!, grad_weight!, grad_bias!")
def _add_layer_norm_grad(g, x1, x2, rstd, mean, weight, grad_sum, *_):
    grad, of_weight, of_bias = _layer_norm_backward(g, upcast(x1) + upcast(x2), weight.shape, mean, rstd, weight)
    return grad if grad_sum is None else grad + upcast(grad_sum), of_weight, of_bias


@kernel("GroupNorm", "input, weight, bias, n:int, c:int, size:int, groups:int, eps:double, out!, mean!, rstd!")
def _group_norm(x, weight, bias, n, c, size, groups, eps, out, *_):
    y, mean, rstd = _normalized(upcast(x).reshape(n, groups, -1), [2], eps)
    y = y.reshape(n, c, size)
    y = y if weight is None else y * _channels(weight, y)
    y = y if bias is None else y + _channels(bias, y)
    return y.reshape(x.shape), mean.reshape(n, groups), rstd.reshape(n, groups)


@kernel("GroupNormBackward", "grad, input, mean, rstd, weight, n:int, c:int, size:int, groups:int, mask:bools, grad_input!, grad_weight!, grad_bias!")
def _group_norm_backward(g, x, mean, rstd, weight, n, c, size, groups, mask, *_):
    g, mean, rstd = upcast(g).reshape(n, c, size), upcast(mean).reshape(n, groups, 1), upcast(rstd).reshape(n, groups, 1)
    normed = (upcast(x).reshape(n, groups, -1) - mean) * rstd
    inner = (g if weight is None else g * _channels(weight, g)).reshape(n, groups, -1)
    grad = (inner - inner.mean(2, keepdim=True) - normed * (inner * normed).mean(2, keepdim=True)) * rstd
    return chosen(mask, grad.reshape(x.shape), (g * normed.reshape(n, c, size)).sum([0, 2]), g.sum([0, 2]))


def _rms_norm(x, weight, eps):
    rstd = torch.rsqrt((x * x).mean(list(range(x.dim() - weight.dim(), x.dim())), keepdim=True) + eps)
    return x * rstd * upcast(weight), rstd


kernel("RmsNorm", "x, weight, eps:double, out!, rstd!")(lambda x, weight, eps, out, rstd: _rms_norm(upcast(x), weight, eps))


@kernel("RmsNormGrad", "grad, x, rstd, weight, grad_x!, grad_weight!")
def _rms_norm_grad(g, x, rstd, weight, *_):
    g, n = upcast(g), x.dim() - weight.dim()
    rstd = upcast(rstd).reshape(list(x.shape[:n]) + [1] * weight.dim())
    normed, inner = upcast(x) * rstd, g * upcast(weight)
    of_weight = g * normed
    return (inner - normed * (inner * normed).mean(list(range(n, x.dim())), keepdim=True)) * rstd, of_weight.sum(list(range(n))) if n else of_weight


@kernel("AddRmsNorm", "x1, x2, weight, eps:double, out!, rstd!, sum!")
def _add_rms_norm(x1, x2, weight, eps, *_):
    x = upcast(x1) + upcast(x2)
    return *_rms_norm(x, weight, eps), x


@kernel("AddRmsNormQuant", "x1, x2, weight, scales1, scales2, zero_points1, zero_points2, axis:int, eps:double, divide:bool, out1!, out2!, sum!")
def _add_rms_norm_quant(x1, x2, weight, scales1, scales2, zero_points1, zero_points2, axis, eps, divide, out1, out2, total):
    x = upcast(x1) + upcast(x2)
    y = _rms_norm(x, weight, eps)[0]

    def quantized(scales, zero_points, out):
        if scales is None or out is None:
            return None
        q = y / upcast(scales) if divide else y * upcast(scales)
        return torch.clamp(torch.round(q if zero_points is None else q + zero_points), -128, 127)
    return quantized(scales1, zero_points1, out1), quantized(scales2, zero_points2, out2), x
