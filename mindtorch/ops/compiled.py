"""Ops on C kernels, for torch.compile: convolution, batch norm with what follows it, max pooling after relu.

Each `plan_*` looks at the shapes, dtypes and constants of one recorded call and gives a function to call in its place, or
None where the C kernel cannot do it or is not faster (figures in backend/native/kernels.py).  When the backward pass is itself
recorded, gradients are taken through the plain ops.
"""
import math

import numpy as np

from mindtorch.backend.cpu import heavy as cpu, conv as cpu_conv
from mindtorch.backend.native import kernels
from mindtorch.backend.cpu.conv import out_size
from mindtorch.core.dtypes import F32
from mindtorch.core.grad_mode import mode
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import bump
from mindtorch.ops.nn._fused import again
from mindtorch.ops.nn.conv import _numbers, _pads, channel_sum_, conv_, conv_transposed_, conv_weight_
from mindtorch.ops.linalg.matmul import linear
from mindtorch.ops.nn.norm import _compose_bn
from mindtorch.ops.nn.pooling import _window, max_pool2d
from mindtorch.ops.nn.rnn import _compose_lstm, run_lstm



def available():
    """Whether there are C kernels."""
    return kernels.lib() is not None


# ------------------------------------------------------------------ convolution
def _conv_forward(x, w, b=None, *, stride, padding, dilation, out, fast):
    if fast[0]:
        return kernels.conv_forward(x, w, b, stride, padding, dilation, out)
    return cpu_conv.conv(x, w, b, stride=stride, padding=padding, dilation=dilation, groups=1, out=out)


def _conv_rule(c, g):
    kw = {"stride": c.stride, "padding": c.padding, "dilation": c.dilation, "groups": 1}
    needs, fast = c.needs, c.fast
    gx = gw = gb = None
    if mode.on or not fast[1]:
        gx = conv_transposed_(g, c.w, None, size=c.shapes[0][2:], **kw) if needs[0] else None
    elif needs[0]:
        gx = _conv_input(g, c.w, size=c.shapes[0][2:], stride=c.stride, padding=c.padding, dilation=c.dilation)
    if mode.on or not fast[2]:
        gw = conv_weight_(g, c.x, kernel=c.shapes[1][2:], **kw) if needs[1] else None
        gb = channel_sum_(g) if needs[2] else None
    elif needs[1]:
        gw, gb = _conv_weight(g, c.x, kernel=c.shapes[1][2:], stride=c.stride, padding=c.padding, dilation=c.dilation, bias=needs[2])
    elif needs[2]:
        gb = channel_sum_(g)
    return gx, gw, gb


_conv_input = primitive("convolution_backward", lambda g, w, *, size, stride, padding, dilation: kernels.conv_input(
    g, w, size, stride, padding, dilation))
_conv_weight = primitive("convolution_backward", lambda g, x, *, kernel, stride, padding, dilation, bias: kernels.conv_weight(
    g, x, kernel, stride, padding, dilation, bias))
_conv = primitive("convolution", _conv_forward, _conv_rule, node="ConvolutionBackward0")


def _transposed_forward(x, w, b=None, *, size, stride, padding, dilation, fast):
    if fast[0]:
        return kernels.conv_input(x, w, size, stride, padding, dilation, b)
    return cpu_conv.conv_transposed(x, w, b, size=size, stride=stride, padding=padding, dilation=dilation, groups=1)


def _transposed_rule(c, g):
    kw = {"stride": c.stride, "padding": c.padding, "dilation": c.dilation, "groups": 1}
    needs, fast = c.needs, c.fast
    gx = gw = None
    if mode.on or not fast[1]:
        gx = conv_(g, c.w, None, out=c.shapes[0][2:], **kw) if needs[0] else None
    elif needs[0]:
        gx = _conv(g, c.w, None, stride=c.stride, padding=c.padding, dilation=c.dilation, out=c.shapes[0][2:], fast=(True, True, True))
    if mode.on or not fast[2]:
        gw = conv_weight_(c.x, g, kernel=c.shapes[1][2:], **kw) if needs[1] else None
    elif needs[1]:
        gw = _conv_weight(c.x, g, kernel=c.shapes[1][2:], stride=c.stride, padding=c.padding, dilation=c.dilation, bias=False)[0]
    return gx, gw, channel_sum_(g) if needs[2] else None


_transposed = primitive("convolution_transposed", _transposed_forward, _transposed_rule, node="ConvolutionBackward0")


def _plain(*infos):
    return all(i is None or i[1] == F32 for i in infos)


def _fast(x, w, stride, padding, dilation, out):
    """Whether C is faster than eager: (forward, input's gradient, weight's gradient) of a convolution of these shapes."""
    if out[0] * out[1] < 4 or w[2] * w[3] == 1 and stride == (1, 1):
        return False, False, False       # one matrix product
    if x[0] * out[0] * out[1] * math.prod(w) < kernels.WORTH_CONV:
        return False, False, False
    return kernels.conv_choice(tuple(x), tuple(w), stride, padding, dilation, tuple(out))


def plan_conv(x, w, b, stride=1, padding=0, dilation=1, groups=1):
    """conv2d of such infos (shape, dtype, ...); b may be None."""
    if not available() or len(x[0]) != 4 or len(w[0]) != 4 or groups != 1 or not _plain(x, w, b) or 0 in x[0] or 0 in w[0]:
        return None
    stride, dilation = (_numbers(v, 2, "conv2d", what) for v, what in ((stride, "stride"), (dilation, "dilation")))
    pads = _pads(padding, 2, "conv2d", w[0][2:], stride, dilation)
    if stride[0] != stride[1] or stride[0] > 4:
        return None
    out = out_size(x[0][2:], w[0][2:], stride, pads, dilation)
    if min(out) < 1:
        return None
    fast = _fast(x[0], w[0], stride, pads, dilation, out)
    if not any(fast):
        return None

    def conv2d(x, w, b=None, *rest, **kw):
        return _conv(x, w, b, stride=stride, padding=pads, dilation=dilation, out=out, fast=fast)
    return conv2d


def plan_conv_transpose(x, w, b, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """conv_transpose2d of such infos."""
    if not available() or len(x[0]) != 4 or len(w[0]) != 4 or groups != 1 or not _plain(x, w, b) or 0 in x[0] or 0 in w[0]:
        return None
    stride, dilation, padding, extra = (_numbers(v, 2, "conv_transpose2d", what) for v, what in (
        (stride, "stride"), (dilation, "dilation"), (padding, "padding"), (output_padding, "output_padding")))
    if stride[0] != stride[1] or stride[0] > 4:
        return None
    size = tuple((m - 1) * s - 2 * p + d * (k - 1) + e + 1 for m, s, p, d, k, e in zip(
        x[0][2:], stride, padding, dilation, w[0][2:], extra))
    pads = tuple((p, p) for p in padding)
    if min(size) < 1:
        return None
    # The gradient of the convolution from the larger to the smaller extent.
    forward, backward, weight = _fast((x[0][0], w[0][1]) + size, w[0], stride, pads, dilation, x[0][2:])
    fast = backward, forward, weight
    if not any(fast):
        return None

    def conv_transpose2d(x, w, b=None, *rest, **kw):
        return _transposed(x, w, b, size=size, stride=stride, padding=pads, dilation=dilation, fast=fast)
    return conv_transpose2d


# ------------------------------------------------------------------ batch norm
def _bn_forward(x, w=None, b=None, res=None, *, rm, rv, eps, momentum, act, slope, ctx):
    y, ctx["mean"], ctx["rstd"] = kernels.batch_norm(x, w, b, res, rm, rv, eps, momentum, act, slope)
    return y


def _bn_rule(c, g):
    if mode.on:
        act, slope, eps = c.act, c.slope, c.eps

        def compose(x, w, b, res):
            y = _compose_bn(x, w, b, eps)
            y = y if res is None else y + res
            return y if not act else y.relu() if act == 1 else _leaky(y, slope)
        return again(compose, (c.x, c.w, c.b, c.res), g)
    gx, gw, gb, gres = _bn_backward(g, c.x, c.out if c.act else None, c.w, ctx=c.ctx, act=c.act, slope=c.slope, needs=c.needs)
    return gx, gw, gb, gres if c.act else g


def _leaky(y, slope):
    from mindtorch.ops.nn.activation import leaky_relu
    return leaky_relu(y, slope)


_bn_backward = primitive("native_batch_norm_backward", lambda g, x, y=None, w=None, *, ctx, act, slope, needs: kernels.batch_norm_grad(
    g, x, y, w, ctx["mean"], ctx["rstd"], act, slope, needs))
_bn = primitive("native_batch_norm", _bn_forward, _bn_rule, node="NativeBatchNormBackward0")


def plan_batch_norm(x, running_mean, running_var, w, b, training, momentum, eps, res=None, act=0, slope=0.0):
    """Training batch_norm of such infos, then + res, then relu (1) or leaky relu (2)."""
    if not available() or not training or len(x[0]) < 2 or not _plain(x, running_mean, running_var, w, b, res):
        return None
    n = int(np.prod(x[0]))
    c = x[0][1]
    if n < max(1, kernels.WORTH_NORM) or n // c < 2 or (running_mean is None) != (running_var is None) or res is not None and res[0] != x[0]:
        return None
    for v in (running_mean, running_var, w, b):
        if v is not None and (v[0] != (c,) or v[2] != (4,)):
            return None

    def batch_norm(x, rm, rv, w, b, res=None):
        y = _bn(x, w, b, res, rm=None if rm is None else rm._a, rv=None if rv is None else rv._a, eps=eps, momentum=momentum, act=act,
                slope=slope, ctx={})
        if rm is not None:
            bump(rm)
            bump(rv)
        return y
    return batch_norm


# ------------------------------------------------------------------ max pooling
def _pool_forward(x, *, out, kernel, stride, padding, relu, ctx):
    y, ctx["at"] = kernels.max_pool(x, out, kernel, stride, padding, relu)
    return y


def _pool_rule(c, g):
    if mode.on:
        kernel, stride, padding, relu = c.kernel, c.stride, c.padding, c.relu
        return again(lambda x: max_pool2d(x.relu() if relu else x, kernel, stride, padding), (c.x,), g)[0]
    return _pool_backward(g, ctx=c.ctx, shape=c.shapes[0])


_pool_backward = primitive("max_pool2d_backward", lambda g, *, ctx, shape: kernels.max_pool_grad(g, ctx["at"], shape))
_pool = primitive("max_pool2d", _pool_forward, _pool_rule, node="MaxPool2DWithIndicesBackward0")


def plan_max_pool(x, relu, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """max_pool2d of such an info, of relu(x) if `relu`."""
    if not available() or len(x[0]) != 4 or not _plain(x) or return_indices or ceil_mode or 0 in x[0]:
        return None
    kernel, stride, padding, dilation, out = _window("max_pool2d", 2, x[0], kernel_size, stride, padding, dilation, False)
    if tuple(dilation) != (1, 1):
        return None
    pads = tuple(p[0] if isinstance(p, tuple) else p for p in padding)

    def max_pool(x, *rest, **kw):
        return _pool(x, out=tuple(out), kernel=tuple(kernel), stride=tuple(stride), padding=pads, relu=int(relu), ctx={})
    return max_pool


# ------------------------------------------------------------------ linear
def _linear_forward(x, w, b=None, *, relu):
    x2 = x.reshape(-1, x.shape[-1])
    if kernels.product_choice(x2.shape[0], x2.shape[1], w.shape[0], tb=True):
        y = kernels.gemm_nt(x2, w, b, relu)
    else:
        y = cpu.linear(x2, w, b)
        y = cpu.relu(y) if relu else y
    return y if x.ndim == 2 else y.reshape(x.shape[:-1] + (w.shape[0],))


def _linear_rule(c, g):
    if mode.on:
        return again(lambda x, w, b: linear(x, w, b).relu() if c.relu else linear(x, w, b), (c.x, c.w, c.b), g)
    return _linear_backward(g, c.x, c.w, c.out if c.relu else None, needs=c.needs)


def _linear_grad(g, x, w, y=None, *, needs):
    if y is not None:
        g = cpu.where_positive(np.ascontiguousarray(g), y)
    g2 = g.reshape(-1, g.shape[-1])
    gx = kernels.product(g2, w).reshape(x.shape) if needs[0] else None
    gw = kernels.product(g2, x.reshape(-1, x.shape[-1]), ta=True) if needs[1] else None
    return gx, gw, cpu.column_sum(g2) if needs[2] else None


_linear_backward = primitive("addmm_backward", _linear_grad)
_linear = primitive("linear", _linear_forward, _linear_rule, node="AddmmBackward0")
_linear_relu = primitive("linear", _linear_forward, _linear_rule, node="ReluBackward0")


def plan_linear(x, w, b, relu=False):
    """linear of such infos, then relu if wanted."""
    if not available() or not _plain(x, w, b) or len(w[0]) != 2 or not x[0] or x[0][-1] != w[0][1] or 0 in x[0] or 0 in w[0]:
        return None
    if b is not None and (b[0] != w[0][:1] or b[2] != (4,)):
        return None
    m, (n, k) = int(np.prod(x[0][:-1])), w[0]
    if not relu and not any([kernels.product_choice(m, k, n, tb=True), kernels.product_choice(m, n, k),
                             kernels.product_choice(n, m, k, ta=True)]):
        return None
    run = _linear_relu if relu else _linear

    def linear_(x, w, b=None):
        return run(x, w, b, relu=relu)
    return linear_


# ------------------------------------------------------------------ LSTM
def _lstm_forward(x, h0, c0, w_ih, w_hh, b_ih=None, b_hh=None, w_hr=None, *, sizes, reverse, ctx):
    return kernels.lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, steps=len(sizes), reverse=reverse, ctx=ctx)


def _lstm_rule(c, g):
    if mode.on:
        return again(lambda *a: _compose_lstm(*a, None, c.sizes, c.reverse),
                     (c.x, c.h0, c.c0, c.w_ih, c.w_hh, c.b_ih, c.b_hh), g) + (None,)
    return _lstm_backward(g[0], g[1], g[2], c.x, c.w_ih, c.w_hh, steps=len(c.sizes), reverse=c.reverse, ctx=c.ctx, needs=c.needs) + (None,)


_lstm_backward = primitive("lstm_backward", lambda gy, gh, gc, x, w_ih, w_hh, *, steps, reverse, ctx, needs: kernels.lstm_grad(
    gy, gh, gc, x, w_ih, w_hh, steps=steps, reverse=reverse, ctx=ctx, needs=needs))
lstm_layer = primitive("lstm", _lstm_forward, _lstm_rule, node="MkldnnRnnLayerBackward0")


def plan_lstm(x, h, c, weights):
    """lstm over a padded batch of such infos."""
    if not available() or len(x[0]) != 3 or 0 in x[0] or not _plain(x, h, c, *weights) or h[0] != c[0] or h[0][2] % kernels.vector_width():
        return None

    def lstm(*args):
        return run_lstm(lstm_layer, *args)
    return lstm


__all__ = ["available", "plan_batch_norm", "plan_conv", "plan_conv_transpose", "plan_linear", "plan_lstm", "plan_max_pool"]
