"""Storages of tensors whose memory is a device's: a flat tensor over all of the memory, under torch.UntypedStorage.

Bytes that come from a file have no element type yet; they go to the device when the first tensor is made on them, in that tensor's type.
"""
import numpy as np

from mindtorch.backend.cpu.host import address
from mindtorch.backend.device import home_of, stretch
from mindtorch.core import devices
from mindtorch.core.values import values
from mindtorch.ops.basic import clone

_U8 = np.dtype(np.uint8)


def home(t):
    """The array without memory that stands for all of the memory in which a tensor lies: the same object for all that share it."""
    return home_of(t._a)


def nbytes(x):
    """Bytes of that memory."""
    return stretch(x._a).size


def flat_of(t):
    """A flat tensor over all of the memory in which the tensor `t` lies."""
    root = home_of(t._a)
    if not root.size or not t._numel:
        return devices.from_host(np.empty(0, root.dtype), t._dev)
    bytes_ = stretch(root)
    return _lying(t, np.ndarray((bytes_.size // root.itemsize,), root.dtype, bytes_))


def _lying(t, view):
    return devices._part(t, address(t._a), view, t._dev, devices.DEVICES[t._dev.type])


def sent(u8, device, dtype):
    """A flat tensor on `device` with a host's bytes, as elements of `dtype` where they are whole ones."""
    return devices.from_host(u8.view(dtype) if not len(u8) % dtype.itemsize else u8, device)


def on_host(flat):
    """The bytes of a flat tensor: a copy, not to be written to."""
    u8 = values(flat).view(_U8)
    u8.flags.writeable = False
    return u8


def overwrite(flat, u8):
    """Writes a host's bytes to all of a flat tensor."""
    flat.detach().copy_(devices.from_host(u8.view(flat._stype), flat._dev))


def part(flat, dtype, offset, size, stride):
    """The tensor of the given geometry (in elements of `dtype`) on the memory of a flat one, which is large enough."""
    if 0 in size:
        return devices.from_host(np.empty(size, dtype), flat._dev)
    k = dtype.itemsize
    at = address(flat._a) - address(home_of(flat._a)) + offset * k
    return _lying(flat, np.ndarray(size, dtype, stretch(flat._a), at, [s * k for s in stride]))


def copied(flat):
    """Another flat tensor with the same values, copied on the device."""
    return clone(flat.detach())

