"""Convolutions, transposed convolutions, their gradients, unfold and fold, for the CPU target. The
Ascend kernels are in `ascend_conv.py`.

MindSpore calls oneDNN, in float32. A 1-d convolution is computed as a 2-d one. float64 runs on the
host kernels because MindSpore has no such kernel for its CPU target.
"""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels._call import UnsupportedByKernel, P, copied, dtype_of, from_contiguous, kernel, ms, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels._index_utils import expanded
from mindtorch.backend.mindspore.recorder_api import constant
from mindtorch.backend.sizes import out_size
from mindspore.ops.operations import _grad_ops as GO
from mindspore.ops.operations import array_ops as A
from mindspore.ops.operations import nn_ops as N


def _flat(h):
    s = shape_of(h)
    return reshape(h, (*s[:2], 1, s[2]))


def _settings(stride, padding, dilation):
    """Returns the settings as MindSpore's primitives expect them, extended to 2-d for a 1-d
    convolution."""
    if len(stride) == 1:
        stride, padding, dilation = (1, *stride), ((0, 0), *padding), (1, *dilation)
    return stride, tuple([p for pair in padding for p in pair]), dilation


def _add_bias(y, b):
    return y if b is None else op(P.BiasAdd)(y, b) if len(shape_of(y)) == 4 else op(P.Add)(y, reshape(b, (-1,) + (1,) * (len(shape_of(y)) - 2)))


def _convolved(x, w, stride, padding, dilation, groups):
    out, kernel = shape_of(w)[0], shape_of(w)[2:]
    cls = P.Conv2D if len(kernel) == 2 else P.Conv3D
    return op(cls, out_channel=out, kernel_size=kernel, pad_mode="pad", pad=padding, stride=stride, dilation=dilation, group=groups)(x, w)


@kernel("convolution", target="CPU", only="float32")
def _convolution(x, w, b=None, *, stride, padding, dilation, groups, out=None):
    sx, kernel = shape_of(x), shape_of(w)[2:]
    one = len(kernel) == 1
    if out is not None and tuple(out) != out_size(sx[2:], kernel, stride, padding, dilation):
        raise UnsupportedByKernel
    if one:
        x, w = _flat(x), _flat(w)
    y = _add_bias(_convolved(x, w, *_settings(stride, padding, dilation), groups), b)
    if one:
        s = shape_of(y)
        return reshape(y, (s[0], s[1], s[3]))
    return y


@kernel("convolution_transposed", target="CPU", only="float32")
def _convolution_transposed(g, w, b=None, *, size, stride, padding, dilation, groups):
    sg, sw = shape_of(g), shape_of(w)
    if out_size(size, sw[2:], stride, padding, dilation) != tuple(sg[2:]):
        raise UnsupportedByKernel  # output_padding is at least the stride
    one = len(size) == 1
    full = (sg[0], sw[1] * groups, *((1, *size) if one else size))
    if one:
        g, w = _flat(g), _flat(w)
    stride, pads, dilation = _settings(stride, padding, dilation)
    settings = {"pad_mode": "pad", "pad": pads, "stride": stride, "dilation": dilation, "group": groups}
    if len(full) == 4:
        y = op(P.Conv2DBackpropInput, out_channel=sw[0], kernel_size=shape_of(w)[2:], **settings)(g, w, full)
    else:
        y = op(N.Conv3DBackpropInput, sw[0], sw[2:], **settings)(w, g, full)
    y = _add_bias(y, b)
    return reshape(y, (full[0], full[1], *size)) if one else y


@kernel("convolution_weight", target="CPU", only="float32")
def _convolution_weight(g, x, *, kernel, stride, padding, dilation, groups):
    sg, sx = shape_of(g), shape_of(x)
    if out_size(sx[2:], kernel, stride, padding, dilation) != tuple(sg[2:]):
        raise UnsupportedByKernel
    one = len(kernel) == 1
    full = (sg[1], sx[1] // groups, *((1, *kernel) if one else kernel))
    if one:
        g, x = _flat(g), _flat(x)
    stride, pads, dilation = _settings(stride, padding, dilation)
    if len(full) == 4:
        y = op(GO.Conv2DBackpropFilter, sg[1], full[2:], pad_mode="pad", pad_list=pads, stride=stride, dilation=(1, 1, *dilation), group=groups)(
            g, x, full)
    else:
        y = op(GO.Conv3DBackpropFilter, sg[1], full[2:], pad_mode="pad", pad=pads, stride=(1, 1, *stride), dilation=(1, 1, *dilation), group=groups)(
            x, g, full)
    return reshape(y, full[:2] + tuple(kernel)) if one else y


# ------------------------------------------------------------------ bias
@kernel("channel_sum", target="CPU", only="float32 float64 float16 bfloat16")
def _channel_sum(g):
    n = len(shape_of(g))
    if n == 4 and dtype_of(g) is ms.float32 and shape_of(g)[0] * math.prod(shape_of(g)[2:]) > 1:
        return op(GO.BiasAddGrad)(g)  # us at 8x32x32x32: 460 vs 1600 for ReduceSum
    return op(P.ReduceSum)(g, (0, *range(2, n))) if n > 2 or shape_of(g)[0] > 1 else op(P.ReduceSum)(g, 0)


@kernel("expand_channels", target="CPU")
def _expand_channels(g, *, shape):
    one = (1, shape[1]) + (1,) * (len(shape) - 2)
    return reshape(copied(g), one) if tuple(shape) == one else expanded(reshape(g, one), shape)


# ------------------------------------------------------------------ unfold, fold
@kernel("im2col", target="CPU", only="float32")
def _im2col(x, *, kernel, dilation, padding, stride):
    r = op(A.Im2Col, tuple(kernel), tuple(stride), tuple(dilation), tuple(padding))(x)
    n, c = shape_of(x)[:2]
    return reshape(r, (n, c * math.prod(kernel), -1))


@kernel("col2im", target="CPU", only="float32")
def _col2im(cols, *, size, kernel, dilation, padding, stride):
    n, ck, positions = shape_of(cols)
    k = math.prod(kernel)
    return op(A.Col2Im, tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))(reshape(cols, (n, ck // k, k, positions)), _sizes(tuple(size)))


_size_tensors: dict[tuple[int, ...], ms.Tensor] = {}


def _sizes(size):
    t = _size_tensors.get(size)
    if t is None:
        t = _size_tensors[size] = from_contiguous(np.array(size, np.int32))
    return constant(t)


# ------------------------------------------------------------------ a batch of one
#
# The result shares memory, like in the host kernels.
kernel("squeeze_batch", lambda a: reshape(a, shape_of(a)[1:]), target="CPU")
kernel("unsqueeze_batch", lambda a: reshape(a, (1, *shape_of(a))), target="CPU")
