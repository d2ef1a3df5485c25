"""Parameter initialization (https://pytorch.org/docs/stable/nn.init.html).

Random numbers are drawn from the generator in PyTorch's order, so a seed yields PyTorch's weights.
"""
import functools
import math
import warnings

import mindtorch.torch as torch

#: how torch.compile treats the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "refused"

__all__ = [
    "calculate_gain", "uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "eye_", "dirac_",
    "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_", "sparse_",
    "uniform", "normal", "constant", "eye", "dirac", "xavier_uniform", "xavier_normal", "kaiming_uniform",
    "kaiming_normal", "orthogonal", "sparse",
]

_LINEAR = {"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
           "sigmoid"}


def calculate_gain(nonlinearity, param=None):
    """Returns the gain that preserves the variance of activations through a nonlinearity.

    `param` is the negative slope of leaky_relu.
    """
    if nonlinearity in _LINEAR:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope ** 2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Fills the tensor with uniform random values in [a, b)."""
    with torch.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Fills the tensor with normal random values with this mean and standard deviation."""
    with torch.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Fills the tensor with normal random values, redrawing those outside [a, b].

    As in PyTorch, the entire tensor is redrawn until every element has an accepted value.
    Candidates are normal if at least 0.3 of the distribution lies in [a, b]. Otherwise they are
    uniform on [a, b] and accepted with a probability proportional to the density.
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn("mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be "
                      "incorrect.", stacklevel=2)
    with torch.no_grad():
        if tensor.is_meta or tensor.numel() == 0:
            return tensor
        inside = _normal_cdf((b - mean) / std) - _normal_cdf((a - mean) / std)
        if inside >= 0.3:
            tensor.normal_(mean, std, generator=generator)
            while True:
                out = (tensor < a) | (tensor > b)
                if not out.any():
                    return tensor
                tensor.copy_(torch.where(out, torch.empty_like(tensor).normal_(mean, std, generator=generator), tensor))
        top = (max(a, min(mean, b)) - mean) ** 2
        drawn = tensor.uniform_(a, b, generator=generator)
        done = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
        while True:
            chance = torch.empty_like(tensor).uniform_(generator=generator)
            accepted = chance < torch.exp((top - (drawn - mean) ** 2) / (2 * std ** 2))
            tensor.copy_(torch.where(done, tensor, drawn))
            done |= accepted
            if done.all():
                return tensor
            drawn = torch.empty_like(tensor).uniform_(a, b, generator=generator)


def _normal_cdf(x):
    return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0


def constant_(tensor, val):
    """Fills the tensor with `val`."""
    with torch.no_grad():
        return tensor.fill_(val)


def ones_(tensor):
    """Fills the tensor with ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor):
    """Fills the tensor with zeros."""
    with torch.no_grad():
        return tensor.zero_()


def eye_(tensor):
    """Fills the tensor with the identity matrix. ValueError unless it has two dimensions."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with torch.no_grad():
        return tensor.copy_(torch.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def dirac_(tensor, groups=1):
    """Fills a convolution weight so that the convolution passes its input channels through.

    `groups` is the convolution's number of groups.
    """
    sizes = tensor.shape
    if len(sizes) not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if sizes[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = sizes[0] // groups
    centre = tuple(n // 2 for n in sizes[2:])
    with torch.no_grad():
        tensor.zero_()
        for g in range(groups):
            for c in range(min(per_group, sizes[1])):
                tensor[(g * per_group + c, c) + centre] = 1
        return tensor


def _calculate_fan_in_and_fan_out(tensor):
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor, mode):
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def _xavier_std(tensor, gain):
    fans = sum(_calculate_fan_in_and_fan_out(tensor))
    return gain * math.sqrt(2.0 / fans) if fans else 0.0


def xavier_uniform_(tensor, gain=1.0, generator=None):
    """Fills the tensor with uniform values in [-a, a), a = gain * sqrt(6 / (fan_in + fan_out));
    Glorot and Bengio (2010)."""
    bound = math.sqrt(3.0) * _xavier_std(tensor, gain)
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    """Fills the tensor with normal values with std = gain * sqrt(2 / (fan_in + fan_out)); Glorot
    and Bengio (2010)."""
    return normal_(tensor, 0.0, _xavier_std(tensor, gain), generator)


def _kaiming_std(tensor, a, mode, nonlinearity):
    """Returns the standard deviation, or None for a tensor without elements."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Fills the tensor with uniform values with std = gain / sqrt(fan); He et al. (2015).

    `a` is the negative slope of the following leaky_relu.
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Fills the tensor with normal values with std = gain / sqrt(fan); He et al. (2015).

    `a` is the negative slope of the following leaky_relu.
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor, gain=1, generator=None):
    """Fills the tensor with a (semi-)orthogonal matrix; Saxe et al. (2013).

    All dimensions except the first are flattened.
    """
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    cols = tensor.numel() // rows
    with torch.no_grad():
        flat = torch.empty((rows, cols), dtype=tensor.dtype, device=tensor.device).normal_(0, 1, generator=generator)
        q, r = torch.linalg.qr(flat.t() if rows < cols else flat)
        q = q * torch.diag(r).sign()         # makes the decomposition, and so the result, unique
        if rows < cols:
            q = q.t()
        return tensor.copy_(q.reshape(tensor.shape)).mul_(gain)


def sparse_(tensor, sparsity, std=0.01, generator=None):
    """Fills the tensor with normal values, and sets the fraction `sparsity` of each column to zero;
    Martens (2010)."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, cols = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with torch.no_grad():
        tensor.normal_(0, std, generator=generator)
        for c in range(cols):
            tensor[torch.randperm(rows, device="cpu")[:zeros], c] = 0
        return tensor


def _deprecated(new):
    old = new.__name__[:-1]

    @functools.wraps(new)
    def function(*args, **kwargs):
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{old}_`.", FutureWarning, stacklevel=2)
        return new(*args, **kwargs)

    function.__name__ = function.__qualname__ = old
    function.__doc__ = f"Deprecated name of {old}_()."
    return function


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)
