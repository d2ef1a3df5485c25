"""Kernels of `ops/compiled.py`: C where the plan selects it, else the eager kernels."""
import numpy as np

from mindtorch.backend.cpu import activation, conv, kernel, matmul
from mindtorch.backend.cpu.sum import column_sum
from mindtorch.backend.c_kernels import conv_norm_lstm


@kernel("compiled_convolution")
def _conv(x, w, b, *, stride, padding, dilation, out, fast):
    if fast[0]:
        return conv_norm_lstm.conv_forward(x, w, b, stride, padding, dilation, out)
    return conv.conv(x, w, b, stride=stride, padding=padding, dilation=dilation, groups=1, out=out)


@kernel("compiled_convolution_input")
def _conv_input(g, w, *, size, stride, padding, dilation):
    return conv_norm_lstm.conv_input(g, w, size, stride, padding, dilation)


@kernel("compiled_convolution_weight")
def _conv_weight(g, x, *, kernel, stride, padding, dilation, bias):
    return conv_norm_lstm.conv_weight(g, x, kernel, stride, padding, dilation, bias)


@kernel("compiled_convolution_transposed")
def _transposed(x, w, b, *, size, stride, padding, dilation, fast):
    if fast[0]:
        return conv_norm_lstm.conv_input(x, w, size, stride, padding, dilation, b)
    return conv.conv_transposed(x, w, b, size=size, stride=stride, padding=padding, dilation=dilation, groups=1)


@kernel("compiled_batch_norm")
def _batch_norm(x, w, b, res, rm, rv, *, eps, momentum, act, slope):
    return conv_norm_lstm.batch_norm(x, w, b, res, rm, rv, eps, momentum, act, slope)


@kernel("compiled_batch_norm_backward")
def _batch_norm_backward(g, x, y, w, mean, rstd, *, act, slope, needs):
    return conv_norm_lstm.batch_norm_grad(g, x, y, w, mean, rstd, act, slope, needs)


@kernel("compiled_max_pool2d")
def _max_pool(x, *, size, kernel, stride, padding, relu):
    return conv_norm_lstm.max_pool(x, size, kernel, stride, padding, relu)


@kernel("compiled_max_pool2d_backward")
def _max_pool_backward(g, where, *, shape):
    return conv_norm_lstm.max_pool_grad(g, where, shape)


@kernel("compiled_linear compiled_linear_relu")
def _linear(x, w, b, *, relu):
    x2 = x.reshape(-1, x.shape[-1])
    if conv_norm_lstm.product_choice(x2.shape[0], x2.shape[1], w.shape[0], tb=True):
        y = conv_norm_lstm.gemm_nt(x2, w, b, relu)
    else:
        y = matmul.linear(x2, w, b)
        y = activation.relu(y) if relu else y
    return y if x.ndim == 2 else y.reshape(x.shape[:-1] + (w.shape[0],))


@kernel("compiled_linear_backward")
def _linear_backward(g, x, w, y, *, needs):
    if y is not None:
        g = activation.where_positive(np.ascontiguousarray(g), y)
    g2 = g.reshape(-1, g.shape[-1])
    gx = conv_norm_lstm.product(g2, w).reshape(x.shape) if needs[0] else None
    gw = conv_norm_lstm.product(g2, x.reshape(-1, x.shape[-1]), ta=True) if needs[1] else None
    return gx, gw, column_sum(g2) if needs[2] else None


@kernel("compiled_lstm")
def _lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, *, sizes, reverse, keep):
    return conv_norm_lstm.lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, steps=len(sizes), reverse=reverse)


@kernel("compiled_lstm_backward")
def _lstm_backward(gy, gh, gc, x, h0, c0, w_ih, w_hh, y, gates, c, tc, *, steps, reverse, needs):
    return conv_norm_lstm.lstm_grad(gy, gh, gc, x, h0, c0, w_ih, w_hh, y, gates, c, tc, steps=steps, reverse=reverse, needs=needs)
