"""Storages in device memory: a flat tensor over the entire memory, behind torch.UntypedStorage.

Bytes read from a file have no element type yet. They are copied to the device when the first tensor
is made on them, with that tensor's dtype.
"""
import numpy as np

from mindtorch.backend.cpu.host import address
from mindtorch.backend.device import home_of, stretch
from mindtorch.core import devices
from mindtorch.core.values import values
from mindtorch.ops.basic import clone

_U8 = np.dtype(np.uint8)


def home(t):
    """Returns the geometry-only array that represents the storage of a tensor. Tensors that share a
    storage get the same object."""
    return home_of(t._a)


def nbytes(x):
    """Returns the size of that storage in bytes."""
    return stretch(x._a).size


def flat_of(t):
    """Returns a flat tensor over the entire storage of the tensor `t`."""
    root = home_of(t._a)
    if not root.size or not t._numel:
        return devices.from_host(np.empty(0, root.dtype), t._dev)
    bytes_ = stretch(root)
    return _lying(t, np.ndarray((bytes_.size // root.itemsize,), root.dtype, bytes_))


def _lying(t, view):
    return devices._part(t, address(t._a), view, t._dev, devices.DEVICES[t._dev.type])


def sent(u8, device, dtype):
    """Copies host bytes to `device` as a flat tensor of `dtype`, or of uint8 if they are not a
    whole number of elements."""
    return devices.from_host(u8.view(dtype) if not len(u8) % dtype.itemsize else u8, device)


def on_host(flat):
    """Returns the bytes of a flat tensor as a read-only host copy."""
    u8 = values(flat).view(_U8)
    u8.flags.writeable = False
    return u8


def overwrite(flat, u8):
    """Overwrites an entire flat tensor with host bytes."""
    flat.detach().copy_(devices.from_host(u8.view(flat._stype), flat._dev))


def part(flat, dtype, offset, size, stride):
    """Returns a tensor of the given geometry (in elements of `dtype`) on the memory of a flat
    tensor, which must be large enough."""
    if 0 in size:
        return devices.from_host(np.empty(size, dtype), flat._dev)
    k = dtype.itemsize
    at = address(flat._a) - address(home_of(flat._a)) + offset * k
    return _lying(flat, np.ndarray(size, dtype, stretch(flat._a), at, [s * k for s in stride]))


def copied(flat):
    """Returns a copy of a flat tensor, made on the device."""
    return clone(flat.detach())

