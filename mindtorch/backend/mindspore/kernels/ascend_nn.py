"""Neural network kernels for Ascend: one aclnn launch forward, one for each requested gradient.

Where a gradient's kernel uses only the shape of a tensor, it gets uninitialized memory.
"""
import functools
import math

import numpy as np

from mindtorch.backend.mindspore.kernels._call import STATE, G, UnsupportedByKernel, P, dtype_of, kept, mint, ms, number, on_device, op, shape_of
from mindtorch.backend.mindspore.kernels.ascend import CUBE, ascend, copy, empty, zeros_of, ones, swapped
from mindtorch.backend.mindspore.kernels.ascend_pool import placed_back, sliding_max
from mindtorch.backend.mindspore.kernels.random import kept as random_mask
from mindtorch.backend.mindspore.kernels.shapes import narrowed
from mindtorch.backend.mindspore.private import pyboost_batch_norm_grad

CLASSES = CUBE + " int64"


def _chosen(grads, needs):
    return tuple([g if wanted else None for g, wanted in zip(grads, needs)])


def _mask(needs):
    return tuple([1 if n else 0 for n in needs])


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


def _along(name, fn, wide=None):
    """Registers an op along a dimension. wide: the function for float64, which the chip's kernel
    does not support."""
    @ascend(name, only=CUBE + " float64")
    def f(*handles, dim):
        if wide is not None and dtype_of(handles[0]) is ms.float64:
            return wide(*handles, dim)
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


@ascend("gelu_backward", only=CUBE)
def _gelu_backward(g, x, t, *, approximate):
    return op(G.GeluGradExt)(g, x, approximate)


# ------------------------------------------------------------------ convolutions (one to three dimensions)
def _pads(padding, dims):
    """Returns the padding common to both sides, and the excess of one side as (before, after), or
    None if there is none.

    padding="same" with an even kernel size has an excess.
    """
    if dims not in (1, 2, 3):
        raise UnsupportedByKernel
    pads = tuple([min(pair) for pair in padding])
    more = tuple([(a - p, b - p) for (a, b), p in zip(padding, pads)])
    return pads, more if any([a or b for a, b in more]) else None


def _grown(size, more):
    return tuple(size) if more is None else tuple([n + a + b for n, (a, b) in zip(size, more)])


def _widened(x, more):
    """Pads an image by the excess of one side, in a separate launch: the kernel pads both sides
    equally."""
    return x if more is None or x is None else op(G.ConstantPadND)(x, tuple([n for pair in reversed(more) for n in pair]), 0)


def _core(g, size, more):
    """Removes the excess of one side from an image's gradient."""
    if more is None or g is None:
        return g
    for axis, (n, (before, _)) in enumerate(zip(size, more), 2):
        g = narrowed(g, axis, before, before + n)
    return copy(g)


def _out_size(size, kernel, stride, pads, dilation):
    return tuple([(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(size, kernel, stride, pads, dilation)])


def _fits(out, size, kernel, stride, pads, dilation):
    """Raises `UnsupportedByKernel` if the gradient is not that of a complete convolution (an output padding of
    more than the stride)."""
    if tuple(out) != _out_size(size, kernel, stride, pads, dilation):
        raise UnsupportedByKernel


@ascend("convolution", only=CUBE)
def _convolution(x, w, b, *, stride, padding, dilation, groups, out):
    size, kernel_size = shape_of(x)[2:], shape_of(w)[2:]
    pads, more = _pads(padding, len(kernel_size))
    if out is not None and tuple(out) != _out_size(_grown(size, more), kernel_size, stride, pads, dilation):
        raise UnsupportedByKernel
    return op(G.Convolution)(_widened(x, more), w, b, tuple(stride), pads, tuple(dilation), False, (0,) * len(pads), groups)


@ascend("convolution_transposed", only=CUBE)
def _convolution_transposed(g, w, b, *, size, stride, padding, dilation, groups):
    gs, ws = shape_of(g), shape_of(w)
    pads, more = _pads(padding, len(ws) - 2)
    if b is not None:
        if more is not None:
            raise UnsupportedByKernel
        # The user's transposed convolution: its output padding is the result's size minus the
        # minimum size.
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in zip(gs[2:], ws[2:], stride, pads, dilation)]
        return op(G.Convolution)(g, w, b, tuple(stride), pads, tuple(dilation), True, tuple([n - m for n, m in zip(size, least)]), groups)
    whole = _grown(size, more)
    _fits(gs[2:], whole, ws[2:], stride, pads, dilation)
    x = empty((gs[0], ws[1] * groups, *whole), dtype_of(g))
    r = op(G.ConvolutionGrad)(g, x, w, None, tuple(stride), pads, tuple(dilation), False, (0,) * len(pads), groups, (1, 0, 0))[0]
    return _core(r, size, more)


@ascend("convolution_weight", only=CUBE)
def _convolution_weight(g, x, *, kernel, stride, padding, dilation, groups):
    pads, more = _pads(padding, len(kernel))
    x = _widened(x, more)
    _fits(shape_of(g)[2:], shape_of(x)[2:], kernel, stride, pads, dilation)
    w = empty((shape_of(g)[1], shape_of(x)[1] // groups, *kernel), dtype_of(g))
    return op(G.ConvolutionGrad)(g, x, w, None, tuple(stride), pads, tuple(dilation), False, (0,) * len(pads), groups, (0, 1, 0))[1]


@ascend("convolution_backward", only=CUBE)
def _convolution_backward(g, x, w, *, transposed, sizes, kernel, stride, padding, dilation, groups, needs):
    pads, more = _pads(padding, len(kernel) - 2)
    extra, whole = (0,) * len(pads), _grown(sizes[2:], more)
    if transposed:
        if more is not None:
            raise UnsupportedByKernel
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in zip(sizes[2:], kernel[2:], stride, pads, dilation)]
        extra = tuple([n - m for n, m in zip(shape_of(g)[2:], least)])
    else:
        _fits(shape_of(g)[2:], whole, kernel[2:], stride, pads, dilation)
    x, w = empty((*sizes[:2], *whole), dtype_of(g)) if x is None else _widened(x, more), empty(kernel, dtype_of(g)) if w is None else w
    bias = empty((shape_of(g)[1],), dtype_of(g)) if needs[2] else None
    gx, gw, gb = op(G.ConvolutionGrad)(g, x, w, bias, tuple(stride), pads, tuple(dilation), transposed, extra, groups, _mask(needs))
    return _chosen((_core(gx, sizes[2:], more) if needs[0] else None, gw, gb), needs)


# ------------------------------------------------------------------ pools
def _ceil(size, kernel, stride, pads, dilation, out):
    return tuple(out) != _out_size(size, kernel, stride, pads, dilation)


def _images(x):
    """Returns x as (N, C, H, W); an image without a batch dimension as a view with one."""
    return x if len(shape_of(x)) == 4 else op(P.Reshape)(x, (1, *shape_of(x)))


@ascend("max_pool2d", only=CUBE)
def _max_pool(x, *, kernel, stride, padding, dilation, out, places):
    if any(d != 1 for d in dilation):
        return sliding_max(x, kernel=kernel, stride=stride, padding=padding, dilation=dilation, out=out, places=places)
    shape = shape_of(x)
    settings = tuple(kernel), tuple(stride), tuple(padding), (1, 1), _ceil(shape[-2:], kernel, stride, padding, dilation, out)
    brain = dtype_of(x) is ms.bfloat16
    if brain:  # MindSpore does not support bfloat16 here; float32 represents the same values.
        x = op(P.Cast)(x, ms.float32)
    y, mask = op(G.MaxPoolWithMask, *settings)(_images(x))
    if shape_of(y)[2:] != tuple(out):
        raise UnsupportedByKernel
    if brain:
        y = op(P.Cast)(y, ms.bfloat16)
    if len(shape) == 3:
        y = y.view(shape[:1] + tuple(out))
    if not places:
        return y
    # The gradient's kernel needs the input in addition to the mask, whose bits have their own
    # order.
    mask.pooled = x, settings
    return y, mask


@ascend("max_pool_backward")
def _max_pool_backward(g, arg, *, size, kernel, stride, padding, dilation):
    if hasattr(arg, "flat_places"):
        return placed_back(g, arg, size)
    x, settings = _pooled(arg)
    brain = dtype_of(g) is ms.bfloat16
    r = op(G.MaxPoolGradWithMask, *settings)(_images(x), _images(op(P.Cast)(g, ms.float32) if brain else g), arg)
    r = r if len(shape_of(x)) == 4 else r.view(shape_of(x))
    return op(P.Cast)(r, ms.bfloat16) if brain else r


@ascend("max_pool_index")
def _max_pool_index(arg, *, size, kernel, stride, padding, dilation):
    if hasattr(arg, "flat_places"):
        return copy(arg)
    x, settings = _pooled(arg)
    index = op(P.Cast)(op(G.MaxPoolWithIndices, *settings)(_images(x))[1], ms.int64)
    return index if len(shape_of(x)) == 4 else index.view(shape_of(index)[1:])


def _pooled(arg):
    found = getattr(arg, "pooled", None)
    if found is None:
        raise UnsupportedByKernel  # indices that the host computed
    return found


@ascend("avg_pool2d", only=CUBE)
def _avg_pool(x, *, kernel, stride, padding, out, include_pad, override):
    shape = shape_of(x)
    ceil = _ceil(shape[-2:], kernel, stride, padding, (1, 1), out)
    y = op(G.AvgPool2D)(_images(x), tuple(kernel), tuple(stride), tuple(padding), ceil, include_pad, override)
    return y if len(shape) == 4 else y.view(shape_of(y)[1:])


@ascend("avg_pool2d_backward", only=CUBE)
def _avg_pool_backward(g, *, size, kernel, stride, padding, include_pad, override):
    lead, out = shape_of(g)[:-2], shape_of(g)[-2:]
    ceil = _ceil(size, kernel, stride, padding, (1, 1), out)
    image = empty((lead if len(lead) == 2 else (1, *lead)) + tuple(size), dtype_of(g))
    r = op(G.AvgPool2DGrad)(_images(g), image, tuple(kernel), tuple(stride), tuple(padding), ceil, include_pad, override)
    return r if len(lead) == 2 else r.view(lead + tuple(size))


@ascend("adaptive_avg_pool2d", only=CUBE)
def _adaptive_avg_pool(x, *, out):
    return op(G.AdaptiveAvgPool2DExt)(x, tuple(out))


@ascend("adaptive_avg_pool2d_backward", only=CUBE)
def _adaptive_avg_pool_backward(g, *, size):
    return op(G.AdaptiveAvgPool2DGradExt)(g, empty(shape_of(g)[:-2] + tuple(size), dtype_of(g)))


# ------------------------------------------------------------------ norms
_norm_prim = functools.cache(G.BatchNormGradExt)


def _norm_gradient(g, x, w, running_mean, running_var, mean, rstd, training, eps, needs):
    given = g, x, w, running_mean, running_var, mean, rstd

    def compute(*same):
        return tuple(pyboost_batch_norm_grad(_norm_prim(training, eps), [*given, training, eps, needs]))
    if STATE.on is None:
        return compute()
    call = STATE.on.raw("BatchNormGradExt", (*[None if h is None else ... for h in given], training, float(eps), tuple([int(n) for n in needs])), 3)
    return STATE.on.one(call, compute, tuple([h for h in given if h is not None]))


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
    return _chosen(_norm_gradient(g, x, w, None, None, mean, rstd, True, eps, _mask(needs)), needs)


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
    return (*_chosen(_norm_gradient(g, x, w, mean, var, None, None, False, eps, _mask(needs)), needs), None, None)


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
    return _chosen(op(G.LayerNormGradExt)(g, x, sizes, mean, rstd, weight, zeros_of(n, dtype).view(sizes), _mask(needs)), needs)


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
    return _chosen(op(G.GroupNormGrad)(g, x, mean, rstd, weight, groups, *[bool(n) for n in needs]), needs)


# ------------------------------------------------------------------ losses
@ascend("cross_entropy_loss", only=CLASSES)
def _cross_entropy(x, target, weight, *, ignore_index, smoothing, reduction):
    """Returns (loss, log probabilities, sum of the weights, None); two launches, four with
    smoothing."""
    _plain_classes(target, weight, dtype_of(x), smoothing)
    logs = op(G.LogSoftmaxExt)(x, 1, None)
    loss, total = op(G.NLLLoss, reduction, ignore_index)(_smoothed(logs, smoothing), target, ones(shape_of(x)[1], dtype_of(x)) if weight is None else weight)
    return loss, logs, total, None


@ascend("cross_entropy_backward", only=CLASSES)
def _cross_entropy_backward(g, target, weight, e, s, w, *, ignore_index, smoothing, reduction):
    _plain_classes(target, weight, dtype_of(e), smoothing)
    r = op(G.NLLLossGrad, reduction, ignore_index)(e, g, target, ones(shape_of(e)[1], dtype_of(e)) if weight is None else weight, s)
    return op(G.LogSoftmaxGrad, 1)(e, _smoothed(r, smoothing))


def _smoothed(x, smoothing):
    """Interpolates each row toward its mean.

    The loss of smoothed targets is the plain loss of such log probabilities; ignored samples and
    means are unaffected. The function is its own transpose, so it also applies to gradients.
    """
    return op(G.LerpScalar)(x, op(G.MeanExt)(x, 1, True, None), smoothing) if smoothing else x


def _plain_classes(target, weight, dtype, smoothing):
    if len(shape_of(target)) != 1 or weight is not None and (smoothing or dtype_of(weight) != dtype):
        raise UnsupportedByKernel


def _pair(name, forward, backward):
    @ascend(name, only=CUBE)
    def f(x, target, *, reduction, param):
        if shape_of(x) != shape_of(target) or param is not None and not param > 0:
            raise UnsupportedByKernel
        return forward(x, target, reduction, param)

    @ascend(name + "_backward", only=CUBE)
    def b(g, x, target, *, reduction, param, needs):
        if shape_of(x) != shape_of(target) or param is not None and not param > 0:
            raise UnsupportedByKernel
        r = backward(g, x, target, reduction, param)
        return r if needs[0] else None, op(G.Neg)(r) if needs[1] else None


_pair("mse_loss", lambda x, t, how, _: op(G.MSELossExt)(x, t, how), lambda g, x, t, how, _: op(G.MSELossGradExt)(g, x, t, how))
_pair("smooth_l1_loss", lambda x, t, how, beta: op(G.SmoothL1Loss, beta, how)(x, t), lambda g, x, t, how, beta: op(G.SmoothL1LossGrad, beta, how)(x, t, g))


# ----------------------------------------------- attention: two products, scale, softmax, and masks
@kept(64)
def _triangle(n, m, dtype):
    """Returns a matrix with -inf above the diagonal, 0 elsewhere."""
    return op(P.Cast)(on_device(np.triu(np.full((n, m), -math.inf, np.float32), 1)), dtype)


@ascend("scaled_dot_product_attention", only=CUBE + " bool")
def _attention(q, k, v, bias, *, causal, scale, keep, generator):
    """Returns (result, weights, mask of the weights that dropout keeps)."""
    s = op(G.Muls)(op(G.MatMulExt)(q, swapped(k)), scale)
    some = None
    if bias is not None:
        if dtype_of(bias) is ms.bool_:
            s, some = mint.where(bias, s, number(-math.inf, dtype_of(s))), bias
        else:
            if dtype_of(bias) is not dtype_of(s):
                raise UnsupportedByKernel
            s, some = op(G.AddExt)(s, bias, 1), mint.ne(bias, number(-math.inf, dtype_of(s)))
    if causal:
        s = op(G.AddExt)(s, _triangle(*shape_of(s)[-2:], dtype_of(s)), 1)
    p = op(P.Softmax, -1)(s)
    if some is not None:
        p = mint.where(some, p, number(0.0, dtype_of(p)))  # Rows without any key are nan so far.
    mask = None if keep == 1 else random_mask(shape_of(p), keep, generator, dtype_of(p))
    return op(G.MatMulExt)(_dropped(p, mask, keep), v), p, mask


def _dropped(x, mask, keep):
    return x if mask is None else op(G.Muls)(op(G.Mul)(x, mask), 1 / (keep or 1.0))


@ascend("scaled_dot_product_attention_backward", only=CUBE)
def _attention_backward(g, q, k, v, p, mask, *, scale, keep, needs):
    gv = op(G.MatMulExt)(swapped(_dropped(p, mask, keep)), g) if needs[2] else None
    if not (needs[0] or needs[1]):
        return None, None, gv
    gs = op(G.Muls)(op(G.SoftmaxBackward)(_dropped(op(G.MatMulExt)(g, swapped(v)), mask, keep), p, -1), scale)
    return op(G.MatMulExt)(gs, k) if needs[0] else None, op(G.MatMulExt)(swapped(gs), q) if needs[1] else None, gv
