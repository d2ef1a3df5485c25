"""Convolutions, and im2col."""
from mindtorch.tools.standin.kernels._engine import F
from mindtorch.tools.standin.kernels._results import chosen, upcast
from mindtorch.tools.standin.kernels._table import gradients, kernel

_FORWARD = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """Computes a convolution. Padding has one value per dimension, or two (before, after)."""
    rank = len(stride)
    if transposed:
        return _TRANSPOSED[rank](x, weight, bias, stride, padding, output_padding, groups, dilation)
    if len(padding) == 2 * rank:
        x, padding = F.pad(x, [n for d in reversed(range(rank)) for n in padding[2 * d:2 * d + 2]]), 0
    return _FORWARD[rank](x, weight, bias, stride, padding, dilation, groups)


@kernel("Convolution", "input, weight, bias, stride:ints, padding:ints, dilation:ints, transposed:bool, output_padding:ints, groups:int, out!, cube:int8")
def _forward(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, out, cube):
    return _convolution(upcast(x), upcast(weight), upcast(bias), stride, padding, dilation, transposed, output_padding, groups)


@kernel("ConvolutionBackward", "grad, input, weight, bias_sizes:ints, stride:ints, padding:ints, dilation:ints, transposed:bool, output_padding:ints, "
        "groups:int, mask:bools, cube:int8, grad_input!, grad_weight!, grad_bias!")
def _backward(g, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask, cube, *_):
    g = upcast(g)
    of_x, of_weight = gradients(lambda x, w: _convolution(x, w, None, stride, padding, dilation, transposed, output_padding, groups), g, upcast(x),
                                upcast(weight))
    channels = g.dim() - len(stride) - 1
    return chosen(mask, of_x, of_weight, g.sum([d for d in range(g.dim()) if d != channels]) if mask[2] else None)


@kernel("ConvTbc", "input, weight, bias, padding:int, out!, cube:int8")
def _time_batch_channels(x, weight, bias, padding, out, cube):
    return F.conv1d(upcast(x).permute(1, 2, 0), upcast(weight).permute(2, 1, 0), upcast(bias), padding=padding).permute(2, 0, 1)


kernel("Im2col", "input, kernel:ints, dilation:ints, padding:ints, stride:ints, out!")(
    lambda x, size, dilation, padding, stride, out: F.unfold(upcast(x), size, dilation, padding, stride))
kernel("Im2colBackward", "grad, shape:ints, kernel:ints, dilation:ints, padding:ints, stride:ints, out!")(
    lambda g, shape, size, dilation, padding, stride, out: F.fold(upcast(g), shape, size, dilation, padding, stride))
