"""Ascend: batch, layer, group, RMS and instance norm, one launch forward, one for all gradients.

Where a gradient's kernel uses only the shape of a tensor, it gets uninitialized memory.
"""
import functools

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import dtype_of, G, op, reshape, shape_of, STATE, UnsupportedByKernel
from mindtorch.backend.mindspore.kernels.ascend import ascend, CUBE, needed_only, ones, ones_where, zeros_of
from mindtorch.backend.mindspore.private import pyboost_batch_norm_grad


# ------------------------------------------------------------------ batch, layer and group norm
_norm_prim = functools.cache(G.BatchNormGradExt)


def _norm_gradient(g, x, w, running_mean, running_var, mean, rstd, training, eps, needs):
    given = g, x, w, running_mean, running_var, mean, rstd

    def compute(*same):
        return tuple(pyboost_batch_norm_grad(_norm_prim(training, eps), [*given, training, eps, needs]))
    if STATE.on is None:
        return compute()
    call = STATE.on.raw("BatchNormGradExt", (*[None if h is None else ... for h in given], training, float(eps), tuple([int(n) for n in needs])), 3)
    return STATE.on.opaque_call(call, compute, tuple([h for h in given if h is not None]))


@ascend("native_batch_norm_train", only=CUBE)
def _bn_train(x, w, b, *, eps):
    if w is None and b is not None:
        w = ones(shape_of(x)[1], dtype_of(b))
    y, mean, rstd = op(G.BatchNormExt)(x, w, b, None, None, True, 0.1, eps)
    return y, mean, None, rstd, None


@ascend("native_batch_norm_moving", only=CUBE)
def _bn_moving(x, w, b, running_mean, running_var, *, momentum, eps):
    if w is None and b is not None:
        w = ones(shape_of(x)[1], dtype_of(b))
    y, mean, rstd = op(G.BatchNormExt)(x, w, b, running_mean, running_var, True, momentum, eps)
    return y, mean, None, rstd, None


@ascend("native_batch_norm_train_backward", only=CUBE)
def _bn_train_backward(g, x, w, mean, rstd, xc, *, eps, needs):
    return needed_only(_norm_gradient(g, x, w, None, None, mean, rstd, True, eps, ones_where(needs)), needs)


@ascend("native_batch_norm_eval", only=CUBE)
def _bn_eval(x, w, b, mean, var, *, eps):
    if w is None and b is not None:
        w = ones(shape_of(x)[1], dtype_of(b))
    return op(G.BatchNormExt)(x, w, b, mean, var, False, 0.1, eps)[0]


@ascend("native_batch_norm_eval_backward", only=CUBE)
def _bn_eval_backward(g, x, w, mean, var, *, eps, needs):
    if any(needs[3:]):
        raise UnsupportedByKernel
    needs = needs[:3]
    return (*needed_only(_norm_gradient(g, x, w, mean, var, None, None, False, eps, ones_where(needs)), needs), None, None)


def _trailing(shape, n):
    """Returns the trailing dimensions that have n elements in total."""
    i, m = len(shape), 1
    while m != n:
        i -= 1
        m *= shape[i]
    return tuple(shape[min(i, len(shape) - 1):])


@ascend("native_layer_norm", only=CUBE)
def _layer_norm(x, w, b, *, n, dims, eps):
    dtype = dtype_of(x)
    if any(v is not None and dtype_of(v) != dtype for v in (w, b)):
        raise UnsupportedByKernel
    shape = shape_of(x)[-dims:]
    # MindSpore's kernel crashes if the weight is None.
    y, mean, rstd = op(G.LayerNormExt)(x, shape, ones(n, dtype).view(shape) if w is None else w, zeros_of(n, dtype).view(shape) if b is None else b, eps)
    return y, mean, rstd, None, None


@ascend("native_layer_norm_backward", only=CUBE)
def _layer_norm_backward(g, x, w, mean, rstd, var, xhat, *, n, eps, needs, shape):
    dtype = dtype_of(x)
    if var is not None or xhat is not None or w is not None and dtype_of(w) != dtype:
        raise UnsupportedByKernel  # the forward ran on the host
    sizes = shape_of(w) if w is not None else _trailing(shape_of(x), n)
    weight = ones(n, dtype).view(sizes) if w is None else w
    return needed_only(op(G.LayerNormGradExt)(g, x, sizes, mean, rstd, weight, zeros_of(n, dtype).view(sizes), ones_where(needs)), needs)


@ascend("native_group_norm", only=CUBE)
def _group_norm(x, w, b, *, groups, eps):
    c, dtype = shape_of(x)[1], dtype_of(x)
    if any(v is not None and dtype_of(v) != dtype for v in (w, b)):
        raise UnsupportedByKernel
    y, mean, rstd = op(G.GroupNorm)(x, groups, ones(c, dtype) if w is None else w, zeros_of(c, dtype) if b is None else b, eps)
    return y, mean, rstd, None


@ascend("native_group_norm_backward", only=CUBE)
def _group_norm_backward(g, x, w, mean, rstd, xhat, *, groups, needs):
    if xhat is not None:
        raise UnsupportedByKernel  # the forward ran on the host
    weight = ones(shape_of(x)[1], dtype_of(x)) if w is None else w
    return needed_only(op(G.GroupNormGrad)(g, x, mean, rstd, weight, groups, *[bool(n) for n in needs]), needs)


# ------------------------------------------------------------------ RMS norm, instance norm
@ascend("rms_norm", only=CUBE)
def _rms_norm(x, w, *, n, dims, eps):
    d, s = dtype_of(x), shape_of(x)
    if w is not None and dtype_of(w) is not d:
        raise UnsupportedByKernel
    y, rstd = op(G.RmsNorm, float(eps))(reshape(x, (-1, n)), ones(n, d) if w is None else reshape(w, (n,)))
    return reshape(y, s), reshape(rstd, (-1,))


@ascend("rms_norm_backward", only=CUBE)
def _rms_norm_backward(g, x, w, rstd, *, n, needs):
    d, s = dtype_of(x), shape_of(x)
    gx, gw = op(G.RmsNormGrad)(reshape(g, (-1, n)), reshape(x, (-1, n)), reshape(rstd, (-1, 1)), ones(n, d) if w is None else reshape(w, (n,)))
    if not needs[1]:
        return reshape(gx, s) if needs[0] else None, None
    gw = reshape(gw, shape_of(w))
    return reshape(gx, s) if needs[0] else None, gw if dtype_of(gw) is dtype_of(w) else op(G.Cast)(gw, dtype_of(w))


ascend("native_instance_norm", _group_norm, only=CUBE)


@ascend("instance_statistics", only=CUBE)
def _instance_statistics(x):
    """Returns the mean and variance of each channel of each sample, averaged over the samples:
    three launches."""
    var, mean = op(G.VarMean)(x, tuple(range(2, len(shape_of(x)))), 0, False)
    return op(G.MeanExt)(mean, (0,), False, None), op(G.MeanExt)(var, (0,), False, None)


@ascend("channel_window_sum", only=CUBE)
def _window_sum(x, *, size, before):
    """Sums windows of channels by an average pool over channels as rows of an image, with divisor 1
    (two launches)."""
    s = shape_of(x)
    if size > 255:
        raise UnsupportedByKernel  # aclnn does not support larger windows
    rows = op(G.ConstantPadND)(reshape(x, (s[0], 1, s[1], -1)), (0, 0, before, size - 1 - before), 0)
    return reshape(op(G.AvgPool2D)(rows, (size, 1), (1, 1), (0, 0), False, True, 1), s)


# ------------------------------------------------------------------ statistics
@ascend("running_statistics", only=CUBE)
def _running_statistics(mean, var, running_mean, running_var, *, momentum, factor):
    m = None if running_mean is None else op(G.LerpScalar)(running_mean, mean, float(momentum))
    return m, None if running_var is None else op(G.LerpScalar)(running_var, o.mul(var, float(factor)), float(momentum))
