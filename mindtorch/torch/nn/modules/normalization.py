"""Layer, group and local response normalization
(https://pytorch.org/docs/stable/nn.html#normalization-layers)."""
import functools
import numbers

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Parameter
from mindtorch.torch.nn import functional as F
from mindtorch.torch.nn import init
from mindtorch.torch.nn.modules.module import Module

__all__ = ["LocalResponseNorm", "CrossMapLRN2d", "LayerNorm", "GroupNorm", "RMSNorm"]


class LocalResponseNorm(Module):
    """Divides each channel by a power of the mean square of its neighboring channels; input (N, C,
    *)."""

    __constants__ = ["size", "alpha", "beta", "k"]

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


@functools.cache
def _cross_map_lrn():
    """Returns the Function of CrossMapLRN2d. It is created lazily because autograd is imported
    after nn."""

    def summed(x, chosen):
        """Returns, for every channel i, the sum over the channels j with chosen(i, j)."""
        channels = range(x.size(1))
        rows = [[float(chosen(i, j)) for j in channels] for i in channels]
        window = torch.tensor(rows, dtype=x.dtype, device=x.device)
        return torch.matmul(window, x.flatten(2)).reshape(x.shape)

    class CrossMapLRN2dFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, size, alpha, beta, k):
            # PyTorch's running sum never drops the first channel, and its gradient (below) uses a
            # different window. Both are reproduced as they are.
            reach = int((size - 1) / 2 + 1)
            scale = k + summed(x * x, lambda i, j: j == 0 or abs(i - j) < reach) * (alpha / size)
            y = x * scale ** -beta
            ctx.save_for_backward(x, y, scale)
            ctx.constants = size, alpha, beta
            return y

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            x, y, scale = ctx.saved_tensors
            size, alpha, beta = ctx.constants
            shift = int(size - (size - 1) / 2)
            ratio = summed(g * y / scale, lambda i, j: i - shift <= j < i - shift + size)
            return g * scale ** -beta - 2 * alpha * beta / size * x * ratio, None, None, None, None

    return CrossMapLRN2dFunction.apply


class CrossMapLRN2d(Module):
    """Local response normalization of (N, C, H, W) as in Lua Torch."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1):
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input):
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        return _cross_map_lrn()(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _shape(normalized_shape):
    return (normalized_shape,) if isinstance(normalized_shape, numbers.Integral) else tuple(normalized_shape)


class LayerNorm(Module):
    """Normalizes over the last dimensions, which have the shape `normalized_shape`."""

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, there in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            p = Parameter(torch.empty(self.normalized_shape, device=device, dtype=dtype)) if there else None
            self.register_parameter(name, p)
        self.reset_parameters()

    def reset_parameters(self):
        """Resets the weight to 1 and the bias to 0."""
        if self.elementwise_affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
                f"bias={self.bias is not None}")


class GroupNorm(Module):
    """Normalizes (N, C, *) over groups of C / num_groups channels."""

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None, *, bias=True):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, there in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, Parameter(torch.empty(num_channels, device=device,
                                                                dtype=dtype)) if there else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Resets the weight to 1 and the bias to 0."""
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
                f"bias={self.bias is not None}")


class RMSNorm(Module):
    """Divides by the root mean square over the last dimensions. `eps=None` uses the epsilon of the
    dtype."""

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        p = Parameter(torch.empty(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", p)
        self.reset_parameters()

    def reset_parameters(self):
        """Resets the weight to 1."""
        if self.elementwise_affine:
            init.ones_(self.weight)

    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
