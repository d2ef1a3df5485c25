"""Normalisation: batch, layer, group, instance, RMS and local response norms, normalize."""
import math

import numpy as np

from mindtorch.backend.cpu import norm as cpu
from mindtorch.backend.cpu import large
from mindtorch.backend.cpu.heavy import channel_sums
from mindtorch.backend.cpu.host import quiet
from mindtorch.core.dtypes import F32
from mindtorch.core.grad_mode import mode
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import bump, wrap
from mindtorch.ops.nn._fused import again, need_float, tensor_arg
from mindtorch.ops.basic import cast
from mindtorch.ops.shapes.shape import in_c_order



def _widest(x):
    """The dtype statistics are kept in."""
    return F32 if x._stype.itemsize == 2 else x._stype


# ------------------------------------------------------------------ batch norm
def _bn_train(x, w=None, b=None, *, eps, ctx):
    return cpu.batch_norm_train(x, w, b, eps=eps, ctx=ctx)


def _bn_train_grad(g, x, w=None, *, ctx, needs):
    return cpu.batch_norm_train_grad(g, x, w, ctx=ctx, needs=needs)


_bn_train_backward = primitive("native_batch_norm_backward", quiet(_bn_train_grad))


def _compose_bn(x, w, b, eps):
    dims = [0] + list(range(2, x.ndim))
    mean = x.mean(dims, keepdim=True)
    xc = x - mean
    var = (xc * xc).mean(dims, keepdim=True)
    return _affine(xc * (var + eps).rsqrt(), w, b)


def _affine(y, w, b):
    """y times a weight and plus a bias per channel (dim 1)."""
    shape = [1, -1] + [1] * (y.ndim - 2)
    if w is not None:
        y = y * w.reshape(shape)
    return y if b is None else y + b.reshape(shape)


def _bn_train_rule(c, g):
    if mode.on:
        return again(lambda x, w, b: _compose_bn(x, w, b, c.eps), (c.x, c.w, c.b), g)
    return _bn_train_backward(g, c.x, c.w, ctx=c.ctx, needs=c.needs)


bn_train = primitive("native_batch_norm", quiet(_bn_train), _bn_train_rule, node="NativeBatchNormBackward0")


def _bn_eval(x, w=None, b=None, mean=None, var=None, *, eps):
    return cpu.batch_norm_eval(x, w, b, mean, var, eps=eps)


def _bn_eval_rule(c, g):
    if mode.on:
        return again(lambda x, w, b: _compose_bn_eval(x, w, b, c.mean, c.var, c.eps), (c.x, c.w, c.b), g) + (None, None)
    return _bn_eval_backward(g, c.x, c.w, c.mean, c.var, eps=c.eps, needs=c.needs)


def _compose_bn_eval(x, w, b, mean, var, eps):
    shape = [1, -1] + [1] * (x.ndim - 2)
    return _affine((x - mean.reshape(shape)) * (var.reshape(shape) + eps).rsqrt(), w, b)


def _bn_eval_grad(g, x, w=None, mean=None, var=None, *, eps, needs):
    n, c = x.shape[:2]
    hw = math.prod(x.shape[2:])
    g2 = np.ascontiguousarray(g).reshape(n, c * hw)
    rstd = 1 / np.sqrt(var + var.dtype.type(eps))
    gx = gw = gb = None
    if needs[0]:
        scale = rstd if w is None else rstd * w
        gx = (g2 * (np.repeat(scale, hw) if hw != 1 else scale)).reshape(g.shape)
    if needs[2] or needs[1]:
        gb = channel_sums(g2, c, hw) if g.size else np.zeros(c, g.dtype)
    if needs[1]:
        gw = np.einsum("ncl,ncl->c", g2.reshape(n, c, hw), np.ascontiguousarray(x).reshape(n, c, hw))
        gw = (gw - gb * mean) * rstd
    return gx, gw, gb if needs[2] else None, None, None


_bn_eval_backward = primitive("native_batch_norm_backward", quiet(_bn_eval_grad))
bn_eval = primitive("native_batch_norm", quiet(_bn_eval), _bn_eval_rule, node="NativeBatchNormBackward0")


def _check_bn(x, channels, **vectors):
    for name, v in vectors.items():
        if v is None:
            continue
        if v._numel != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {v._numel}")
        if v._stype != x.dtype and not (x.dtype.itemsize == 2 and v._stype == F32):
            raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype." if x.dtype.itemsize != 2 else
                               "mixed dtype (CPU): expect parameter to have scalar type of Float")
        if name.startswith("running") and v._rg and mode.on:
            raise RuntimeError("The function 'native_batch_norm' is not differentiable with respect to argument "
                               f"'{name}'. This "
                               "input cannot have requires_grad True.")


def _update(running, value, momentum):
    """running = (1 - momentum) * running + momentum * value, in place."""
    a = running._a
    if running._dev.type == "meta":
        pass
    elif a.dtype.itemsize == 2:
        a[...] = (a.astype(F32) * F32.type(1 - momentum) + value * F32.type(momentum)).astype(a.dtype)
    else:
        a *= a.dtype.type(1 - momentum)
        a += value * a.dtype.type(momentum)
    bump(running)


def _bn(input, running_mean, running_var, weight, bias, training, momentum, eps):
    """(result, mean, 1 / std) as torch's native batch norm."""
    x = input._a
    if x.ndim < 2:
        if x.ndim == 1 and not x.size and (running_mean is None or not running_mean._numel):
            return input.clone(), None, None
        if running_mean is not None and x.ndim == 1:
            raise RuntimeError(f"running_mean should contain 0 elements not {running_mean._numel}")
        raise RuntimeError(f"batch_norm expected an input of at least 2 dims, got {x.ndim}")
    c = x.shape[1]
    if x.dtype.kind not in "fV":
        need_float("batch_norm", input)
    _check_bn(x, c, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError(f"running_{'mean' if running_mean is None else 'var'} must be defined in evaluation mode")
        return bn_eval(input, weight, bias, running_mean, running_var, eps=eps), None, None
    ctx = {}
    y = bn_train(input, weight, bias, eps=eps, ctx=ctx)
    if x.size:
        count = x.size // c
        if running_mean is not None:
            _update(running_mean, ctx["mean"], momentum)
        if running_var is not None:
            _update(running_var, ctx["var"] * ctx["var"].dtype.type(count / (count - 1) if count > 1 else np.nan), momentum)
    return y, ctx["mean"], ctx["rstd"]


@op(ns="nn.functional", method=False)
def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05):
    """Normalises each channel (dim 1), in training by its own statistics, which also move the running ones in place."""
    tensor_arg("batch_norm", "input", input)
    if training:
        s = input._sizes
        n = math.prod(s) // (s[1] or 1) if len(s) > 1 else 2
        if n == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
        if (running_mean is None) != (running_var is None):
            raise ValueError("running_mean and running_var must either both be None or neither be None")
    return _bn(input, running_mean, running_var, weight, bias, training, momentum, eps)[0]


@op(method=False, name="batch_norm")
def _torch_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled):
    """batch_norm in the argument order of torch.batch_norm."""
    tensor_arg("batch_norm", "input", input)
    return _bn(input, running_mean, running_var, weight, bias, training, momentum, eps)[0]


def _native_bn(input, weight, bias, running_mean, running_var, training, momentum, eps):
    y, mean, rstd = _bn(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if mean is None:
        empty = np.empty(0, _widest(input))
        return y, wrap(empty), wrap(empty.copy())
    return y, wrap(mean), wrap(rstd)


@op(method=False)
def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """(result, mean, 1 / std) of batch norm."""
    return _native_bn(input, weight, bias, running_mean, running_var, training, momentum, eps)


@op(method=False)
def _native_batch_norm_legit(input, weight, bias, *rest):
    """native_batch_norm, also without running statistics: (..., training, momentum, eps)."""
    if len(rest) == 3:
        rest = (None, None) + rest
    return _native_bn(input, weight, bias, *rest)


@op(method=False)
def _batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps):
    """native_batch_norm in training, and an empty fourth result."""
    return _native_bn(input, weight, bias, running_mean, running_var, True, momentum, eps) + (wrap(np.empty(0, np.uint8)),)


# ------------------------------------------------------------------ layer norm, rms norm
def _ln_grad(g, x, w=None, *, n, ctx, needs, shape):
    gx, gw, gb = cpu.layer_norm_grad(g, x, w, n=n, ctx=ctx, needs=needs)
    return gx, gw, None if gb is None else gb.reshape(shape)


_ln_backward = primitive("native_layer_norm_backward", quiet(_ln_grad))


def _compose_ln(x, w, b, dims, eps):
    axes = list(range(-dims, 0))
    xc = x - x.mean(axes, keepdim=True)
    y = xc * ((xc * xc).mean(axes, keepdim=True) + eps).rsqrt()
    if w is not None:
        y = y * w
    return y if b is None else y + b


def _ln_rule(c, g):
    if mode.on:
        return again(lambda x, w, b: _compose_ln(x, w, b, c.dims, c.eps), (c.x, c.w, c.b), g)
    return _ln_backward(g, c.x, c.w, n=c.n, ctx=c.ctx, needs=c.needs, shape=c.shapes[2])


def _ln_forward(x, w=None, b=None, *, n, dims, eps, ctx):
    return cpu.layer_norm(x, w, b, n=n, eps=eps, ctx=ctx)


ln_ = primitive("native_layer_norm", quiet(_ln_forward), _ln_rule, node="NativeLayerNormBackward0")


def _normalized(name, input, normalized_shape, weight, bias=None):
    """Number of trailing elements that are normalised together, checked."""
    x = input._a
    try:
        shape = tuple(normalized_shape)
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
    if x.shape[-len(shape):] != shape:
        star = "*, " if name == "layer_norm" else "*"
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input with shape [{star}"
                           f"{', '.join(map(str, shape))}], but got input of size{list(x.shape)}")
    return math.prod(shape), len(shape)


def _layer_norm(input, normalized_shape, weight, bias, eps, ctx):
    tensor_arg("layer_norm", "input", input)
    x = input._a
    shape = normalized_shape
    if shape.__class__ is tuple and len(shape) == 1 and x.ndim and x.shape[-1] == shape[0] and (
            weight is None or weight._sizes == shape) and (bias is None or bias._sizes == shape):
        n, dims = shape[0], 1
    else:
        n, dims = _normalized("layer_norm", input, shape, weight, bias)
    if x.dtype.kind not in "fV":
        need_float("LayerNormKernelImpl", input)
    for v in (weight, bias):
        if v is not None and v._stype != x.dtype and not (x.dtype.itemsize == 2 and v._stype == F32):
            raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype." if x.dtype.itemsize != 2 else
                               "mixed dtype (CPU): expect parameter to have scalar type of Float")
    return ln_(input, weight, bias, n=n, dims=dims, eps=eps, ctx=ctx)


@op(ns="nn.functional", method=False)
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05):
    """Normalises over the trailing dims `normalized_shape`, then applies weight and bias of that shape."""
    return _layer_norm(input, normalized_shape, weight, bias, eps, {})


@op(method=False, name="layer_norm")
def _torch_layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05, cudnn_enable=True):
    """layer_norm with torch.layer_norm's extra flag."""
    return _layer_norm(input, normalized_shape, weight, bias, eps, {})


@op(method=False)
def native_layer_norm(input, normalized_shape, weight, bias, eps):
    """(result, mean, 1 / std) of layer norm."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    ctx = {}
    y = _layer_norm(input, shape, weight, bias, eps, ctx)
    x = input._a
    lead = x.shape[:x.ndim - len(shape)] + (1,) * len(shape)
    mean = x.astype(_widest(input)).mean(axis=tuple(range(-len(shape), 0)))
    return y, wrap(np.asarray(mean).reshape(lead)), wrap(ctx["rstd"].reshape(lead))


def _rms(x, w=None, *, n, dims, eps, ctx):
    return cpu.rms_norm(x, w, n=n, eps=eps, ctx=ctx)


def _rms_grad(g, x, w=None, *, n, ctx, needs):
    return cpu.rms_norm_grad(g, x, w, n=n, ctx=ctx, needs=needs)


_rms_backward = primitive("rms_norm_backward", quiet(_rms_grad))


def _compose_rms(x, w, dims, eps):
    y = x * ((x * x).mean(list(range(-dims, 0)), keepdim=True) + eps).rsqrt()
    return y if w is None else y * w


def _rms_rule(c, g):
    if mode.on:
        return again(lambda x, w: _compose_rms(x, w, c.dims, c.eps), (c.x, c.w), g)
    return _rms_backward(g, c.x, c.w, n=c.n, ctx=c.ctx, needs=c.needs)


rms_ = primitive("rms_norm", quiet(_rms), _rms_rule, node="MulBackward0")


@op(method=False, aliases="nn.functional.rms_norm")
def rms_norm(input, normalized_shape, weight=None, eps=None):
    """input / sqrt(mean(input^2) + eps) over the trailing dims, times weight; eps None: the dtype's epsilon."""
    tensor_arg("rms_norm", "input", input)
    n, dims = _normalized("rms_norm", input, normalized_shape, weight)
    if input._stype.kind == "c":
        # As torch: the plain square, not the squared magnitude.
        y = input * ((input * input).mean(list(range(-dims, 0)), keepdim=True)
                     + (float(np.finfo(input._stype).eps) if eps is None else eps)).rsqrt()
        return y if weight is None else y * weight
    need_float("rms_norm", input)
    if eps is None:
        d = input._stype
        eps = float(np.finfo(F32 if d.itemsize == 2 else d).eps)
    if weight is not None and weight._stype != input._stype:
        return rms_(input, None, n=n, dims=dims, eps=eps, ctx={}) * weight
    return rms_(input, weight, n=n, dims=dims, eps=eps, ctx={})


# ------------------------------------------------------------------ group norm, instance norm
def _gn(x, w=None, b=None, *, groups, eps, ctx):
    n, c = x.shape[:2]
    hw = math.prod(x.shape[2:])
    size = c // groups * hw
    if not x.size:
        ctx["rstd"] = np.zeros(n * groups, x.dtype)
        return np.zeros_like(x)
    plain = w is None and b is None
    y = cpu.layer_norm(np.ascontiguousarray(x), None, None, n=size, eps=eps, ctx=ctx, own=plain).reshape(n, c * hw)
    if x.size >= large.LEAST and (w is not None or b is not None):
        return cpu.channel_affine(y.reshape(x.shape), w, b)
    if w is not None:
        y = y * (np.repeat(w, hw) if hw != 1 else w)
    if b is not None:
        row = np.repeat(b, hw) if hw != 1 else b
        y = y + row if w is None else np.add(y, row, out=y)
    return y.reshape(x.shape)


def _gn_grad(g, x, w=None, *, groups, ctx, needs):
    n, c = x.shape[:2]
    hw = math.prod(x.shape[2:])
    size = c // groups * hw
    if not x.size:
        return np.zeros_like(x), np.zeros(c, g.dtype), np.zeros(c, g.dtype)
    g = np.ascontiguousarray(g)
    xhat = ctx.get("xhat")
    if xhat is None and x.size >= large.LEAST and x.dtype == g.dtype:
        return cpu.group_norm_grad(g, np.ascontiguousarray(x), w, groups=groups, ctx=ctx)
    if xhat is None:
        xhat = np.ascontiguousarray(x).reshape(-1, size) - ctx["mean"][:, None]
        xhat *= ctx["rstd"][:, None]
        ctx = dict(ctx, xhat=xhat)
    gx = gw = gb = None
    if needs[1]:
        gw = np.einsum("ncl,ncl->c", g.reshape(n, c, hw), xhat.reshape(n, c, hw))
    if needs[2]:
        gb = channel_sums(g, c, hw)
    if needs[0]:
        h = g if w is None else g.reshape(n, c * hw) * (np.repeat(w, hw) if hw != 1 else w)
        gx = cpu.layer_norm_grad(h.reshape(-1, size), xhat, None, n=size, ctx=ctx, needs=(True, False, False))[0]
        gx = gx.reshape(x.shape)
    return gx, gw, gb


_gn_backward = primitive("native_group_norm_backward", quiet(_gn_grad))


def _compose_gn(x, w, b, groups, eps):
    shape = x._sizes
    y = x.reshape(shape[0], groups, math.prod(shape[1:]) // groups)
    y = _compose_ln(y, None, None, 1, eps).reshape(shape)
    return _affine(y, w, b)


def _gn_rule(c, g):
    if mode.on:
        return again(lambda x, w, b: _compose_gn(x, w, b, c.groups, c.eps), (c.x, c.w, c.b), g)
    return _gn_backward(g, c.x, c.w, groups=c.groups, ctx=c.ctx, needs=c.needs)


gn_ = primitive("native_group_norm", quiet(_gn), _gn_rule, node="NativeGroupNormBackward0")
_instance_norm_ = primitive("native_group_norm", quiet(_gn), _gn_rule, node="NativeBatchNormBackward0", order=(0, 2, 1))


def _group_norm(input, num_groups, weight, bias, eps, ctx):
    tensor_arg("group_norm", "input", input)
    x = input._a
    if x.ndim < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {x.ndim}")
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if x.shape[1] % num_groups:
        raise RuntimeError("Expected number of channels in input to be divisible by num_groups, but got input of shape "
                           f"{list(x.shape)} and num_groups={num_groups}")
    for what, v in (("weight", weight), ("bias", bias)):
        if v is not None and v._sizes != (x.shape[1],):
            raise RuntimeError(f"Expected {what} to be a vector of size equal to the number of channels in input, but "
                               f"got {what} of "
                               f"shape {list(v._sizes)} and input of shape {list(x.shape)}")
    need_float("GroupNormKernelImpl", input)
    _check_bn(x, x.shape[1], weight=weight, bias=bias)
    return gn_(input, weight, bias, groups=num_groups, eps=eps, ctx=ctx)


@op(ns="nn.functional", method=False)
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-05):
    """Normalises groups of channels of each sample, then applies weight and bias per channel."""
    tensor_arg("group_norm", "input", input)
    s = input._sizes
    if len(s) >= 2 and s[0] * s[1] // num_groups * math.prod(s[2:]) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(s)}")
    return _group_norm(input, num_groups, weight, bias, eps, {})


@op(method=False, name="group_norm")
def _torch_group_norm(input, num_groups, weight=None, bias=None, eps=1e-05, cudnn_enabled=True):
    """group_norm with torch.group_norm's extra flag."""
    return _group_norm(input, num_groups, weight, bias, eps, {})


@op(method=False)
def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    """(result, mean, 1 / std) of group norm."""
    ctx = {}
    y = _group_norm(input.reshape(N, C, HxW), group, weight, bias, eps, ctx).reshape(input._sizes)
    x = input if input._stype.itemsize != 2 else cast(input, F32)
    m = x.reshape(N, group, C // group * HxW)
    mean = m.mean(2)
    rstd = ((m - mean.unsqueeze(2)).square().mean(2) + eps).rsqrt() if mode.on and input._rg else wrap(
        ctx["rstd"].reshape(N, group))
    return y, mean, rstd


@op(ns="nn.functional", method=False)
def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1,
                  eps=1e-05):
    """Normalises each channel of each sample by its own statistics, or by the running ones."""
    tensor_arg("instance_norm", "input", input)
    if use_input_stats:
        if math.prod(input._sizes[2:]) == 1:
            raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    return _instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


def _instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps):
    input = in_c_order(input)        # as torch: in the view of one sample with N * C channels
    x = input._a
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
        return _bn(input, running_mean, running_var, weight, bias, False, momentum, eps)[0]
    c = x.shape[1]
    _check_bn(x, c, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    need_float("batch_norm", input)
    y = _instance_norm_(input, weight, bias, groups=c, eps=eps, ctx={})
    if running_mean is not None and x.size:
        m = x.astype(_widest(input), copy=False).reshape(x.shape[0], c, -1)
        count = m.shape[2]
        _update(running_mean, m.mean(axis=2).mean(axis=0), momentum)
        if running_var is not None:
            _update(running_var, m.var(axis=2).mean(axis=0) * m.dtype.type(count / max(count - 1, 1)), momentum)
    return y


@op(method=False, name="instance_norm")
def _torch_instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled):
    """instance_norm in the argument order of torch.instance_norm."""
    return _instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


# ------------------------------------------------------------------ local response norm, normalize
def _window_sum(x, *, size, before):
    """Sums of `size` neighbouring channels, `before` of them before the channel itself."""
    c = x.shape[1]
    padded = np.zeros((x.shape[0], c + size - 1) + x.shape[2:], x.dtype)
    padded[:, before:before + c] = x
    r = padded[:, :c].copy()
    for i in range(1, size):
        r += padded[:, i:i + c]
    return r


window_sum_ = primitive("channel_window_sum", _window_sum,
                        lambda c, g: window_sum_(g, size=c.size, before=c.size - 1 - c.before))


@op(ns="nn.functional", method=False)
def local_response_norm(input, size, alpha=0.0001, beta=0.75, k=1.0):
    """input / (k + alpha * mean of squares over `size` neighbouring channels)^beta."""
    tensor_arg("local_response_norm", "input", input)
    if input.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality                          input (got {input.ndim} "
                         "dimensions)")
    if not input._numel:
        return input
    s = window_sum_(input * input, size=size, before=size // 2)
    return input / (s * (alpha / size) + k).pow(beta)


@op(ns="nn.functional", method=False)
def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """input / max(p-norm along `dim`, eps)."""
    tensor_arg("normalize", "input", input)
    norm = input.norm(p, dim, keepdim=True).clamp_min(eps)
    if out is None:
        return input / norm
    from mindtorch.core.table import store_out
    return store_out("normalize", out, input / norm)
