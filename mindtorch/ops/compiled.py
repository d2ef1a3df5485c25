"""Ops with C kernels for torch.compile: convolution, batch norm with the ops fused after it, max
pooling after relu, linear layers, LSTM.

Each of these primitives is implemented only in the host's C code and computes the same as a plain
op. `mindtorch/torch/_inductor/_plans.py` substitutes it for a recorded call where
`mindtorch/backend/c_kernels/plans.py` says that C is faster. That decision is a constant attribute
(`fast`). When the backward pass itself is recorded, gradients are computed through the plain ops.
"""
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.stride_rules import any_suggests, batch_norm as _norm_layout, by_operand
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import bump_version
from mindtorch.ops.linalg.matmul import linear
from mindtorch.ops.nn._fused import composite_backward
from mindtorch.ops.nn.activation import leaky_relu
from mindtorch.ops.nn.conv import _numbers, _pads, channel_sum_, conv_, conv_transposed_, conv_weight_
from mindtorch.ops.nn.norm import _compose_bn
from mindtorch.ops.nn.pooling import _window, max_pool2d
from mindtorch.ops.nn.rnn import _compose_lstm, run_lstm

_either = any_suggests(0, 1)


# ------------------------------------------------------------------ convolution
def _conv_rule(ctx, grad):
    kw = {"stride": ctx.stride, "padding": ctx.padding, "dilation": ctx.dilation, "groups": 1}
    needs, fast = ctx.needs, ctx.fast
    gx = gw = gb = None
    if mode.on or not fast[1]:
        gx = conv_transposed_(grad, ctx.w, None, size=ctx.shapes[0][2:], **kw) if needs[0] else None
    elif needs[0]:
        gx = _conv_input(grad, ctx.w, size=ctx.shapes[0][2:], stride=ctx.stride, padding=ctx.padding, dilation=ctx.dilation)
    if mode.on or not fast[2]:
        gw = conv_weight_(grad, ctx.x, kernel=ctx.shapes[1][2:], **kw) if needs[1] else None
        gb = channel_sum_(grad) if needs[2] else None
    elif needs[1]:
        gw, gb = _conv_weight(grad, ctx.x, kernel=ctx.shapes[1][2:], stride=ctx.stride, padding=ctx.padding, dilation=ctx.dilation, bias=needs[2])
    elif needs[2]:
        gb = channel_sum_(grad)
    return gx, gw, gb


_conv_input = primitive("compiled_convolution_input", "g, w, *, size, stride, padding, dilation")
_conv_weight = primitive("compiled_convolution_weight", "g, x, *, kernel, stride, padding, dilation, bias")
_conv = primitive("compiled_convolution", "x, w, b=None, *, stride, padding, dilation, out, fast", _conv_rule, node="ConvolutionBackward0",
                  layout=_either)


def conv_numbers(w, stride, padding, dilation):
    """Returns (stride, padding before and after, dilation) of a conv2d with a weight of shape `w`,
    a pair each."""
    stride, dilation = (_numbers(v, 2, "conv2d", what) for v, what in ((stride, "stride"), (dilation, "dilation")))
    return stride, _pads(padding, 2, "conv2d", w[2:], stride, dilation), dilation


def conv2d(stride, pads, dilation, out, fast):
    """Returns a conv2d specialized to these parameters."""
    def conv2d(x, w, b=None, *rest, **kw):
        return _conv(x, w, b, stride=stride, padding=pads, dilation=dilation, out=out, fast=fast)
    return conv2d


def _transposed_rule(ctx, grad):
    kw = {"stride": ctx.stride, "padding": ctx.padding, "dilation": ctx.dilation, "groups": 1}
    needs, fast = ctx.needs, ctx.fast
    gx = gw = None
    if mode.on or not fast[1]:
        gx = conv_(grad, ctx.w, None, out=ctx.shapes[0][2:], **kw) if needs[0] else None
    elif needs[0]:
        gx = _conv(grad, ctx.w, None, stride=ctx.stride, padding=ctx.padding, dilation=ctx.dilation, out=ctx.shapes[0][2:], fast=(True, True, True))
    if mode.on or not fast[2]:
        gw = conv_weight_(ctx.x, grad, kernel=ctx.shapes[1][2:], **kw) if needs[1] else None
    elif needs[1]:
        gw = _conv_weight(ctx.x, grad, kernel=ctx.shapes[1][2:], stride=ctx.stride, padding=ctx.padding, dilation=ctx.dilation, bias=False)[0]
    return gx, gw, channel_sum_(grad) if needs[2] else None


_transposed = primitive("compiled_convolution_transposed", "x, w, b=None, *, size, stride, padding, dilation, fast", _transposed_rule,
                        node="ConvolutionBackward0", layout=_either)


def conv_transpose_numbers(stride, padding, output_padding, dilation):
    """Returns (stride, padding before and after, dilation, output_padding) of a conv_transpose2d, a
    pair each."""
    stride, dilation, padding, extra = (_numbers(v, 2, "conv_transpose2d", what) for v, what in (
        (stride, "stride"), (dilation, "dilation"), (padding, "padding"), (output_padding, "output_padding")))
    return stride, tuple((p, p) for p in padding), dilation, extra


def conv_transpose2d(stride, pads, dilation, size, fast):
    """Returns a conv_transpose2d specialized to these parameters."""
    def conv_transpose2d(x, w, b=None, *rest, **kw):
        return _transposed(x, w, b, size=size, stride=stride, padding=pads, dilation=dilation, fast=fast)
    return conv_transpose2d


# ------------------------------------------------------------------ batch norm
def _bn_rule(ctx, grad):
    if mode.on:
        act, slope, eps = ctx.act, ctx.slope, ctx.eps

        def compose(x, w, b, res):
            y = _compose_bn(x, w, b, eps)
            y = y if res is None else y + res
            return y if not act else y.relu() if act == 1 else leaky_relu(y, slope)
        return composite_backward(compose, (ctx.x, ctx.w, ctx.b, ctx.res), grad) + (None, None)
    gx, gw, gb, gres = _bn_backward(grad, ctx.x, ctx.out if ctx.act else None, ctx.w, ctx.out1, ctx.out2, act=ctx.act, slope=ctx.slope, needs=ctx.needs)
    return gx, gw, gb, gres if ctx.act else grad, None, None


_bn_backward = primitive("compiled_batch_norm_backward", "g, x, y=None, w=None, mean, rstd, *, act, slope, needs",
                         layout=(by_operand(1), None, None, None))
#: (y, mean, 1 / std); writes the running mean rm and variance rv
_bn = primitive("compiled_batch_norm", "x, w=None, b=None, res=None, rm=None, rv=None, *, eps, momentum, act, slope", _bn_rule, residuals=(1, 2),
                node="NativeBatchNormBackward0", layout=(_norm_layout, None, None))


def batch_norm(momentum, eps, act, slope):
    """Returns a training batch_norm, followed by + res, then by relu (act 1) or leaky relu (act 2).
    """
    def batch_norm(x, rm, rv, w, b, res=None):
        y = _bn(x, w, b, res, rm, rv, eps=eps, momentum=momentum, act=act, slope=slope)[0]
        if rm is not None:
            bump_version(rm)
            bump_version(rv)
        return y
    return batch_norm


# ------------------------------------------------------------------ max pooling
def _pool_rule(ctx, grad):
    if mode.on:
        kernel, stride, padding, relu = ctx.kernel, ctx.stride, ctx.padding, ctx.relu
        return composite_backward(lambda x: max_pool2d(x.relu() if relu else x, kernel, stride, padding), (ctx.x,), grad)[0]
    return _pool_backward(grad, ctx.out1, shape=ctx.shapes[0])


_pool_backward = primitive("compiled_max_pool2d_backward", "g, where, *, shape")
#: (y, index of each maximum in its plane)
_pool = primitive("compiled_max_pool2d", "x, *, size, kernel, stride, padding, relu", _pool_rule, residuals=(1,),
                  node="MaxPool2DWithIndicesBackward0", layout=(by_operand(0), None))


def pool_numbers(x, kernel_size, stride, padding, dilation):
    """Returns (kernel, stride, padding, dilation, output size) of a max_pool2d over an input of
    shape `x`, a pair each."""
    return tuple([tuple(v) for v in _window("max_pool2d", 2, x, kernel_size, stride, padding, dilation, False)])


def max_pool(kernel, stride, padding, size, relu):
    """Returns a max_pool2d specialized to these parameters, applied to relu(x) if `relu`."""
    def max_pool(x, *rest, **kw):
        return _pool(x, size=size, kernel=kernel, stride=stride, padding=padding, relu=int(relu))[0]
    return max_pool


# ------------------------------------------------------------------ linear
def _linear_rule(ctx, grad):
    if mode.on:
        return composite_backward(lambda x, w, b: linear(x, w, b).relu() if ctx.relu else linear(x, w, b), (ctx.x, ctx.w, ctx.b), grad)
    return _linear_backward(grad, ctx.x, ctx.w, ctx.out if ctx.relu else None, needs=ctx.needs)


_linear_backward = primitive("compiled_linear_backward", "g, x, w, y=None, *, needs")
_linear = primitive("compiled_linear", "x, w, b=None, *, relu", _linear_rule, node="AddmmBackward0")
_linear_relu = primitive("compiled_linear_relu", "x, w, b=None, *, relu", _linear_rule, node="ReluBackward0")


def linear_layer(relu):
    """Returns a linear layer, followed by relu if `relu`."""
    run = _linear_relu if relu else _linear

    def linear_(x, w, b=None):
        return run(x, w, b, relu=relu)
    return linear_


# ------------------------------------------------------------------ LSTM
def _lstm_rule(ctx, grad):
    if mode.on:
        return composite_backward(lambda *a: _compose_lstm(*a, None, ctx.sizes, ctx.reverse),
                                  (ctx.x, ctx.h0, ctx.c0, ctx.w_ih, ctx.w_hh, ctx.b_ih, ctx.b_hh), grad) + (None,)
    return _lstm_backward(grad[0], grad[1], grad[2], ctx.x, ctx.h0, ctx.c0, ctx.w_ih, ctx.w_hh, ctx.out3, ctx.out4, ctx.out5, ctx.out6, steps=len(ctx.sizes),
                          reverse=ctx.reverse, needs=ctx.needs) + (None,)


_lstm_backward = primitive("compiled_lstm_backward", "gy, gh, gc, x, h0, c0, w_ih, w_hh, y, gates, c, tc, *, steps, reverse, needs")
_lstm = primitive("compiled_lstm", "x, h0, c0, w_ih, w_hh, b_ih=None, b_hh=None, w_hr=None, *, sizes, reverse, keep", _lstm_rule,
                  residuals=(3, 4, 5, 6), node="MkldnnRnnLayerBackward0")


def lstm(*args):
    """lstm over a padded batch."""
    return run_lstm(_lstm, *args)


__all__ = ["composite_backward", "batch_norm", "conv2d", "conv_numbers", "conv_transpose2d", "conv_transpose_numbers", "linear_layer", "lstm", "max_pool",
           "pool_numbers"]
