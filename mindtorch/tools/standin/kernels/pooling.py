"""Pooling, its gradients, and unpooling."""
from mindtorch.tools.standin.kernels._engine import F, torch
from mindtorch.tools.standin.kernels._results import upcast
from mindtorch.tools.standin.kernels._table import gradients, kernel


def _pair(values, default=None):
    """Returns one value for each of two dimensions."""
    values = list(values or default)
    return values * 2 if len(values) == 1 else values


def _scattered(values, indices, shape):
    """Adds the values at flat indices to a plane of zeros."""
    flat = torch.zeros(list(shape[:-2]) + [shape[-2] * shape[-1]], dtype=values.dtype)
    return flat.scatter_add(-1, indices.long().flatten(-2), values.flatten(-2)).reshape(shape)


def _max_pool(x, size, stride, padding, dilation, ceil):
    return F.max_pool2d(upcast(x), _pair(size), _pair(stride, size), _pair(padding), _pair(dilation), ceil, return_indices=True)


@kernel("MaxPool2dWithIndices", "input, kernel:ints, stride:ints, padding:ints, dilation:ints, ceil:bool, out!, indices!")
def _with_indices(x, size, stride, padding, dilation, ceil, out, indices):
    return _max_pool(x, size, stride, padding, dilation, ceil)


@kernel("MaxPool2dWithIndicesBackward", "grad, input, indices, kernel:ints, stride:ints, padding:ints, dilation:ints, ceil:bool, grad_input!")
def _with_indices_backward(g, x, indices, size, stride, padding, dilation, ceil, out):
    return _scattered(upcast(g), indices, x.shape)


# The mask is int8 [..., kh*kw, (ceil(oh*ow/16)+1)*32]: one row per position in the window, with a 1
# for each window whose maximum is at that position. (The format of the chip's mask is not
# documented. Backward reads this one and checks that exactly one position is marked, so that a
# stale mask or that of another pooling op is detected.)

def _corners(count, stride, padding):
    return torch.arange(count) * stride - padding


@kernel("MaxPool2dWithMask", "input, kernel:ints, stride:ints, padding:ints, dilation:ints, ceil:bool, out!, mask!")
def _with_mask(x, size, stride, padding, dilation, ceil, out, mask):
    y, indices = _max_pool(x, size, stride, padding, dilation, ceil)
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = _pair(size), _pair(stride, size), _pair(padding), _pair(dilation)
    row = (indices // x.shape[-1] - _corners(y.shape[-2], sh, ph).reshape(-1, 1)) // dh
    column = (indices % x.shape[-1] - _corners(y.shape[-1], sw, pw)) // dw
    position = (row * kw + column).flatten(-2).unsqueeze(-2)
    marks = (position == torch.arange(kh * kw).reshape(-1, 1)).to(torch.int8)
    return y, F.pad(marks, [0, mask.shape[-1] - marks.shape[-1]])


@kernel("MaxPool2dWithMaskBackward", "grad, input, mask, kernel:ints, stride:ints, padding:ints, dilation:ints, ceil:bool, grad_input!")
def _with_mask_backward(g, x, mask, size, stride, padding, dilation, ceil, out):
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = _pair(size), _pair(stride, size), _pair(padding), _pair(dilation)
    count = g.shape[-2] * g.shape[-1]
    marks = mask[..., :count].long()
    if mask.shape[-2] != kh * kw or bool((marks.sum(-2) != 1).any()) or bool((mask[..., count:] != 0).any()):
        raise ValueError("the mask was not written by a forward pooling op of this size")
    position = (marks * torch.arange(kh * kw).reshape(-1, 1)).sum(-2).reshape(g.shape)
    row = position // kw * dh + _corners(g.shape[-2], sh, ph).reshape(-1, 1)
    column = position % kw * dw + _corners(g.shape[-1], sw, pw)
    return _scattered(upcast(g), row * x.shape[-1] + column, x.shape)


@kernel("MaxUnpool2d", "input, indices, size:ints, out!")
def _unpool(x, indices, size, out):
    flat = torch.zeros(list(out.shape[:-2]) + [out.shape[-2] * out.shape[-1]], dtype=x.dtype)
    return flat.scatter(-1, indices.long().flatten(-2), x.flatten(-2)).reshape(out.shape)


def _average(pool):
    return lambda x, size, stride, padding, ceil, with_padding, divisor: pool(
        upcast(x), list(size), list(stride or size), list(padding), ceil, with_padding, divisor or None)


_average2, _average3 = _average(F.avg_pool2d), _average(F.avg_pool3d)
_HOW = "kernel:ints, stride:ints, padding:ints, ceil:bool, with_padding:bool, divisor:int"
kernel("AvgPool2d", f"input, {_HOW}, cube:int8, out!")(lambda x, k, s, p, ceil, inc, div, cube, out: _average2(x, k, s, p, ceil, inc, div))
kernel("AvgPool3d", f"input, {_HOW}, out!")(lambda x, k, s, p, ceil, inc, div, out: _average3(x, k, s, p, ceil, inc, div))
kernel("AvgPool2dBackward", f"grad, input, {_HOW}, cube:int8, grad_input!")(
    lambda g, x, k, s, p, ceil, inc, div, cube, out: gradients(lambda x: _average2(x, k, s, p, ceil, inc, div), upcast(g), upcast(x))[0])
kernel("AvgPool3dBackward", f"grad, input, {_HOW}, grad_input!")(
    lambda g, x, k, s, p, ceil, inc, div, out: gradients(lambda x: _average3(x, k, s, p, ceil, inc, div), upcast(g), upcast(x))[0])

for _n, _pool in ((2, F.adaptive_avg_pool2d), (3, F.adaptive_avg_pool3d)):
    kernel(f"AdaptiveAvgPool{_n}d", "input, size:ints, out!")(lambda x, size, *out, pool=_pool: pool(upcast(x), list(size)))
    kernel(f"AdaptiveAvgPool{_n}dBackward", "grad, input, grad_input!")(
        lambda g, x, *out, pool=_pool, n=_n: gradients(lambda x: pool(x, list(g.shape[-n:])), upcast(g), upcast(x))[0])

kernel("AdaptiveMaxPool2d", "input, size:ints, out!, indices!")(
    lambda x, size, out, indices: F.adaptive_max_pool2d(upcast(x), list(size), return_indices=True))
kernel("AdaptiveMaxPool2dBackward", "grad, input, indices, grad_input!")(lambda g, x, indices, out: _scattered(upcast(g), indices, x.shape))
