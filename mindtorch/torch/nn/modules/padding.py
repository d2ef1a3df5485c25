"""Padding layers (https://pytorch.org/docs/stable/nn.html#padding-layers).

`padding` is an int for all sides, or the widths in F.pad's order: last dimension first, before and
after.
"""
from mindtorch.torch.nn import functional as F
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.nn.modules.utils import _ntuple, _pair, _quadruple

__all__ = ["CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
           "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
           "ReplicationPad3d",
           "ZeroPad1d", "ZeroPad2d", "ZeroPad3d"]

_SIDES = (None, _pair, _quadruple, _ntuple(6))


class _Pad(Module):
    __constants__ = ["padding"]

    def extra_repr(self):
        return f"{self.padding}"


class _CircularPadNd(_Pad):
    def _check_input_dim(self, input):
        raise NotImplementedError

    def forward(self, input):
        self._check_input_dim(input)
        return F.pad(input, self.padding, "circular")


class _ConstantPadNd(_Pad):
    __constants__ = ["padding", "value"]

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, input):
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self):
        return f"padding={self.padding}, value={self.value}"


class _ReflectionPadNd(_Pad):
    def forward(self, input):
        return F.pad(input, self.padding, "reflect")


class _ReplicationPadNd(_Pad):
    def forward(self, input):
        return F.pad(input, self.padding, "replicate")


def _init(n):
    def __init__(self, padding):
        Module.__init__(self)
        self.padding = _SIDES[n](padding)
    return __init__


def _init_constant(n):
    def __init__(self, padding, value):
        _ConstantPadNd.__init__(self, value)
        self.padding = _SIDES[n](padding)
    return __init__


def _check(n):
    def _check_input_dim(self, input):
        if input.dim() not in (n + 1, n + 2):
            raise ValueError(f"expected {n + 1}D or {n + 2}D input (got {input.dim()}D input)")
    return _check_input_dim


class CircularPad1d(_CircularPadNd):
    """Pads (C, W) or (N, C, W) with values from the opposite end."""

    __init__ = _init(1)
    _check_input_dim = _check(1)


class CircularPad2d(_CircularPadNd):
    """Pads (C, H, W) or (N, C, H, W) with values from the opposite ends."""

    __init__ = _init(2)
    _check_input_dim = _check(2)


class CircularPad3d(_CircularPadNd):
    """Pads (C, D, H, W) or (N, C, D, H, W) with values from the opposite ends."""

    __init__ = _init(3)
    _check_input_dim = _check(3)


class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with a constant."""

    __init__ = _init_constant(1)


class ConstantPad2d(_ConstantPadNd):
    """Pads the last two dimensions with a constant."""

    __init__ = _init_constant(2)


class ConstantPad3d(_ConstantPadNd):
    """Pads the last three dimensions with a constant."""

    __init__ = _init_constant(3)


class ReflectionPad1d(_ReflectionPadNd):
    """Pads the last dimension with its reflection."""

    __init__ = _init(1)


class ReflectionPad2d(_ReflectionPadNd):
    """Pads the last two dimensions with their reflection."""

    __init__ = _init(2)


class ReflectionPad3d(_ReflectionPadNd):
    """Pads the last three dimensions with their reflection."""

    __init__ = _init(3)


class ReplicationPad1d(_ReplicationPadNd):
    """Pads the last dimension with its edge values."""

    __init__ = _init(1)


class ReplicationPad2d(_ReplicationPadNd):
    """Pads the last two dimensions with their edge values."""

    __init__ = _init(2)


class ReplicationPad3d(_ReplicationPadNd):
    """Pads the last three dimensions with their edge values."""

    __init__ = _init(3)


def _init_zero(base):
    def __init__(self, padding):
        base.__init__(self, padding, 0.0)
    return __init__


class ZeroPad1d(ConstantPad1d):
    """Pads the last dimension with zeros."""

    __init__ = _init_zero(ConstantPad1d)
    extra_repr = _Pad.extra_repr


class ZeroPad2d(ConstantPad2d):
    """Pads the last two dimensions with zeros."""

    __init__ = _init_zero(ConstantPad2d)
    extra_repr = _Pad.extra_repr


class ZeroPad3d(ConstantPad3d):
    """Pads the last three dimensions with zeros."""

    __init__ = _init_zero(ConstantPad3d)
    extra_repr = _Pad.extra_repr
