"""Storages of tensors whose memory is a device's: a flat tensor over all of the memory, under torch.UntypedStorage.

Bytes that come from a file have no element type yet; they go to the device when the first tensor is made on them, in that tensor's type.
"""
import math

import numpy as np

from mindtorch.backend.cpu.host import address, byte_bounds
from mindtorch.core import devices
from mindtorch.core.tensor import on_device
from mindtorch.core.values import values
from mindtorch.ops.basic import clone

_U8 = np.dtype(np.uint8)


def flat_of(t, root):
    """A flat tensor over all of the memory in which the tensor `t` lies; `root`: the array without memory that tells its extent."""
    low, high = byte_bounds(root)
    k = root.itemsize
    n = (high - low) // k if root.size else 0
    if not n or not t._numel:
        return devices.from_host(np.empty(0, root.dtype), t._dev)
    device = devices.DEVICES[t._dev.type]
    handle = device.view(t._h, (n,), (1,), (low - address(t._a)) // k, root.dtype)
    return on_device(t._dev, handle, np.ndarray((n,), root.dtype, root, 0) if root.flags.c_contiguous else _spanning(root, n))


def _spanning(root, n):
    # (Of strides that are not C order's, or with gaps.)
    return np.lib.stride_tricks.as_strided(np.ndarray.view(root, np.ndarray), (n,), (root.itemsize,))


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
    k = dtype.itemsize
    if not math.prod(size):
        return devices.from_host(np.empty(size, dtype), flat._dev)
    handle = devices.DEVICES[flat._dev.type].view(flat._h, size, stride, offset, dtype)
    return on_device(flat._dev, handle, np.ndarray(size, dtype, np.ndarray.view(flat._a, np.ndarray), offset * k, [s * k for s in stride]))


def copied(flat):
    """Another flat tensor with the same values, copied on the device."""
    return clone(flat.detach())

