"""Storages in device memory: a flat tensor over the entire memory, behind torch.UntypedStorage.

Bytes read from a file have no element type yet. They are copied to the device when the first tensor
is made on them, with that tensor's dtype.
"""
import numpy as np

from mindtorch.backend.cpu.host import address
from mindtorch.backend.device import storage_array, address_range
from mindtorch.core.device import device_dispatch
from mindtorch.core.tensor.sync import to_host
from mindtorch.ops.basic import clone

_U8 = np.dtype(np.uint8)


def home(t):
    """Returns the geometry-only array that represents the storage of a tensor. Tensors that share a
    storage get the same object."""
    return storage_array(t._array)


def nbytes(x):
    """Returns the size of that storage in bytes."""
    return address_range(x._array).size


def flat_of(t):
    """Returns a flat tensor over the entire storage of the tensor `t`."""
    root = storage_array(t._array)
    if not root.size or not t._numel:
        return device_dispatch.host_to_device(np.empty(0, root.dtype), t._device)
    bytes_ = address_range(root)
    return _strided_view(t, np.ndarray((bytes_.size // root.itemsize,), root.dtype, bytes_))


def _strided_view(t, view):
    return device_dispatch.part(t, address(t._array), view, t._device, device_dispatch.DEVICES[t._device.type])


def sent(u8, device, dtype):
    """Copies host bytes to `device` as a flat tensor of `dtype`, or of uint8 if they are not a
    whole number of elements."""
    return device_dispatch.host_to_device(u8.view(dtype) if not len(u8) % dtype.itemsize else u8, device)


def on_host(flat):
    """Returns the bytes of a flat tensor as a read-only host copy."""
    u8 = to_host(flat).view(_U8)
    u8.flags.writeable = False
    return u8


def overwrite(flat, u8):
    """Overwrites an entire flat tensor with host bytes."""
    flat.detach().copy_(device_dispatch.host_to_device(u8.view(flat._np_dtype), flat._device))


def part(flat, dtype, offset, size, stride):
    """Returns a tensor of the given geometry (in elements of `dtype`) on the memory of a flat
    tensor, which must be large enough."""
    if 0 in size:
        return device_dispatch.host_to_device(np.empty(size, dtype), flat._device)
    k = dtype.itemsize
    at = address(flat._array) - address(storage_array(flat._array)) + offset * k
    return _strided_view(flat, np.ndarray(size, dtype, address_range(flat._array), at, [s * k for s in stride]))


def copied(flat):
    """Returns a copy of a flat tensor, made on the device."""
    return clone(flat.detach())

