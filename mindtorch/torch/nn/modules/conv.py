"""Convolutions (https://pytorch.org/docs/stable/nn.html#convolution-layers)."""
import math

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Parameter
from mindtorch.torch.nn import functional as F
from mindtorch.torch.nn import init
from mindtorch.torch.nn.modules.lazy import LazyModuleMixin
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.nn.modules.utils import _pair, _reverse_repeat_tuple, _single, _triple
from mindtorch.torch.nn.parameter import UninitializedParameter

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "LazyConv1d",
           "LazyConv2d",
           "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d"]

_TUPLE = (None, _single, _pair, _triple)
_MODES = {"zeros", "reflect", "replicate", "circular"}


class _ConvNd(Module):
    __constants__ = ["stride", "padding", "dilation", "groups", "padding_mode", "output_padding", "in_channels",
                     "out_channels", "kernel_size"]

    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding,
                 groups, bias, padding_mode, device=None, dtype=None):
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'valid', 'same'}}")
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode must be one of {_MODES}, but got padding_mode='{padding_mode}'")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        # The padding in the format of F.pad, for padding modes that the convolution kernels do not
        # support.
        if padding == "valid":
            self._reversed_padding_repeated_twice = [0] * (2 * len(kernel_size))
        elif padding == "same":
            self._reversed_padding_repeated_twice = []
            for k, d in zip(reversed(kernel_size), reversed(dilation)):
                total = d * (k - 1)
                self._reversed_padding_repeated_twice += [total // 2, total - total // 2]
        else:
            self._reversed_padding_repeated_twice = _reverse_repeat_tuple(padding, 2)
        outer, inner = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        self.weight = Parameter(torch.empty((outer, inner // groups, *kernel_size), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(torch.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        """Reinitializes weight and bias from a uniform distribution on +-1/sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self):
        zeros, ones = (0,) * len(self.padding), (1,) * len(self.dilation)
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        if self.padding != zeros:
            parts.append(f"padding={self.padding}")
        if self.dilation != ones:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != (0,) * len(self.output_padding):
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)

    def __setstate__(self, state):
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")

    def forward(self, input):
        return self._conv_forward(input, self.weight, self.bias)


def _padded(conv, input):
    return F.pad(input, conv._reversed_padding_repeated_twice, mode=conv.padding_mode)


def _forward_init(self, n, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
                  padding_mode, device, dtype):
    each = _TUPLE[n]
    _ConvNd.__init__(self, in_channels, out_channels, each(kernel_size), each(stride),
                     padding if isinstance(padding, str) else each(padding), each(dilation), False, each(0), groups,
                     bias, padding_mode, device, dtype)


class Conv1d(_ConvNd):
    """Cross-correlation over (N, C_in, L) or (C_in, L); weight (C_out, C_in / groups, kernel)."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
                 padding_mode="zeros", device=None, dtype=None):
        _forward_init(self, 1, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
                      padding_mode, device, dtype)

    def _conv_forward(self, input, weight, bias):
        if self.padding_mode != "zeros":
            return F.conv1d(_padded(self, input), weight, bias, self.stride, 0, self.dilation, self.groups)
        return F.conv1d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)


class Conv2d(_ConvNd):
    """Cross-correlation over (N, C_in, H, W) or (C_in, H, W); weight (C_out, C_in / groups, kh, kw)."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
                 padding_mode="zeros", device=None, dtype=None):
        _forward_init(self, 2, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
                      padding_mode, device, dtype)

    def _conv_forward(self, input, weight, bias):
        if self.padding_mode != "zeros":
            return F.conv2d(_padded(self, input), weight, bias, self.stride, 0, self.dilation, self.groups)
        return F.conv2d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)


class Conv3d(_ConvNd):
    """Cross-correlation over (N, C_in, D, H, W) or (C_in, D, H, W); weight (C_out, C_in / groups, kd, kh, kw)."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
                 padding_mode="zeros", device=None, dtype=None):
        _forward_init(self, 3, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
                      padding_mode, device, dtype)

    def _conv_forward(self, input, weight, bias):
        if self.padding_mode != "zeros":
            return F.conv3d(_padded(self, input), weight, bias, self.stride, 0, self.dilation, self.groups)
        return F.conv3d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)


class _ConvTransposeNd(_ConvNd):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding,
                 groups, bias, padding_mode, device=None, dtype=None):
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding,
                         groups, bias, padding_mode, device, dtype)

    def _output_padding(self, input, output_size, stride, padding, kernel_size, num_spatial_dims, dilation=None):
        """Returns the output_padding that yields `output_size`. ValueError if there is none."""
        if output_size is None:
            return _single(self.output_padding)
        n = num_spatial_dims
        lead = input.dim() - n
        if len(output_size) == input.dim() and lead > 0:
            output_size = output_size[lead:]
        if len(output_size) != n:
            raise ValueError(f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or {n + 2} "
                             f"elements (got {len(output_size)})")
        dilation = (1,) * n if dilation is None else dilation
        sizes = [input.size(i + lead) for i in range(n)]
        low = [(s - 1) * st - 2 * p + d * (k - 1) + 1
               for s, st, p, d, k in zip(sizes, stride, padding, dilation, kernel_size)]
        high = [lo + st - 1 for lo, st in zip(low, stride)]
        if any(not lo <= o <= hi for lo, o, hi in zip(low, output_size, high)):
            raise ValueError(f"requested an output size of {tuple(output_size)}, but valid sizes range from {low} to "
                             f"{high} (for an input of {input.size()[2:]})")
        return [o - lo for o, lo in zip(output_size, low)]


def _extra(conv, input, output_size):
    if output_size is None:
        return conv.output_padding
    return conv._output_padding(input, output_size, conv.stride, conv.padding, conv.kernel_size, len(conv.kernel_size),
                                conv.dilation)


def _transpose_init(self, n, in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias,
                    dilation, padding_mode, device, dtype):
    each = _TUPLE[n]
    _ConvTransposeNd.__init__(self, in_channels, out_channels, each(kernel_size), each(stride), each(padding),
                              each(dilation), True, each(output_padding), groups, bias, padding_mode, device, dtype)


class ConvTranspose1d(_ConvTransposeNd):
    """The gradient of Conv1d with respect to its input, as a layer; weight (C_in, C_out / groups, kernel)."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1,
                 bias=True, dilation=1, padding_mode="zeros", device=None, dtype=None):
        _transpose_init(self, 1, in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias,
                        dilation, padding_mode, device, dtype)

    def forward(self, input, output_size=None):
        return F.conv_transpose1d(input, self.weight, self.bias, self.stride, self.padding,
                                  _extra(self, input, output_size), self.groups, self.dilation)


class ConvTranspose2d(_ConvTransposeNd):
    """The gradient of Conv2d with respect to its input, as a layer; weight (C_in, C_out / groups, kh, kw)."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1,
                 bias=True, dilation=1, padding_mode="zeros", device=None, dtype=None):
        _transpose_init(self, 2, in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias,
                        dilation, padding_mode, device, dtype)

    def forward(self, input, output_size=None):
        return F.conv_transpose2d(input, self.weight, self.bias, self.stride, self.padding,
                                  _extra(self, input, output_size), self.groups, self.dilation)


class ConvTranspose3d(_ConvTransposeNd):
    """The gradient of Conv3d with respect to its input, as a layer; weight (C_in, C_out / groups, kd, kh, kw)."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1,
                 bias=True, dilation=1, padding_mode="zeros", device=None, dtype=None):
        _transpose_init(self, 3, in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias,
                        dilation, padding_mode, device, dtype)

    def forward(self, input, output_size=None):
        return F.conv_transpose3d(input, self.weight, self.bias, self.stride, self.padding,
                                  _extra(self, input, output_size), self.groups, self.dilation)


class _LazyConvXdMixin(LazyModuleMixin):
    """Infers in_channels from the first input."""

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def _get_num_spatial_dims(self):
        return len(self.kernel_size)

    def _get_in_channels(self, input):
        n = self._get_num_spatial_dims()
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {type(self).__name__}, "
                               f"but got input of size: {input.shape}")
        return input.shape[-n - 1]

    def initialize_parameters(self, input, *args, **kwargs):
        """Sets in_channels from `input` and allocates the parameters."""
        if self.has_uninitialized_params():
            self.in_channels = self._get_in_channels(input)
            if self.in_channels % self.groups:
                raise ValueError("in_channels must be divisible by groups")
            outer, inner = self.out_channels, self.in_channels
            if self.transposed:
                outer, inner = inner, outer
            self.weight.materialize((outer, inner // self.groups, *self.kernel_size))
            if self.bias is not None:
                self.bias.materialize((self.out_channels,))
            self.reset_parameters()


def _lazy_init(self, out_channels, groups, bias, device, dtype):
    """Completes the constructor, which was called with no channels, one group and no bias."""
    self.groups = groups
    self.out_channels = out_channels
    self.weight = UninitializedParameter(device=device, dtype=dtype)
    if bias:
        self.bias = UninitializedParameter(device=device, dtype=dtype)


class _LazyForward(_LazyConvXdMixin):
    def __init__(self, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
                 padding_mode="zeros", device=None, dtype=None):
        super().__init__(0, 0, kernel_size, stride, padding, dilation, 1, False, padding_mode)
        _lazy_init(self, out_channels, groups, bias, device, dtype)


class _LazyTranspose(_LazyConvXdMixin):
    def __init__(self, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True,
                 dilation=1, padding_mode="zeros", device=None, dtype=None):
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, 1, False, dilation, padding_mode)
        _lazy_init(self, out_channels, groups, bias, device, dtype)


class LazyConv1d(_LazyForward, Conv1d):
    """A Conv1d that infers in_channels from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyForward, Conv2d):
    """A Conv2d that infers in_channels from its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyForward, Conv3d):
    """A Conv3d that infers in_channels from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTranspose, ConvTranspose1d):
    """A ConvTranspose1d that infers in_channels from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTranspose, ConvTranspose2d):
    """A ConvTranspose2d that infers in_channels from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTranspose, ConvTranspose3d):
    """A ConvTranspose3d that infers in_channels from its first input."""

    cls_to_become = ConvTranspose3d
