"""Tensors on device handles, and copies between the host and devices."""
from __future__ import annotations

from typing import Any

import numpy as np

from mindtorch.backend.device import reserve_address_range
from mindtorch.backend.interface import Array, Handle
from mindtorch.backend.strides import strides_of
from mindtorch.core.device import device as _device
from mindtorch.core.device.device_errors import async_errors, device_lock, mixed_devices
from mindtorch.core.device.device_state import COPIES, DEVICES
from mindtorch.core.dispatch import primitives
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import tensor_wrappers
from mindtorch.core.tensor.conj_neg_bits import ConjNegBits
from mindtorch.core.tensor.tensor import SavedArray, ScalarOperand, Tensor, on_device


def tensor(dev: _device.device, handle: Handle) -> Tensor:
    """Returns a Tensor on a handle of the device `dev` (a torch.device)."""
    return on_device(dev, handle, DEVICES[dev.type].meta_array(handle))


@device_lock
def device_to_host(t: Tensor | SavedArray) -> Array:
    """Returns the values of a device tensor as a host array; synchronizes."""
    if tensor_wrappers.is_wrapped(t):
        return hooks.wrapper_values(t) if tensor_wrappers.is_wrapper_subclass(t) else hooks.batched_values(t)
    if t._handle.__class__ is ConjNegBits:
        return hooks.bits_values(t)
    COPIES.down += 1
    if async_errors.windows:
        async_errors.check((t,))
    a = DEVICES[t._device.type].download(t._handle)             # type: ignore[union-attr]
    async_errors.now += 1  # like `async_errors.sure`: the download has waited for everything before it
    return a


@device_lock
def host_to_device(array: Array, dev: _device.device) -> Tensor:
    """Returns a tensor on the device `dev` with the values of a host array.

    Strides are preserved if they are dense.
    """
    return tensor(dev, upload(DEVICES[dev.type], array))


@device_lock
def same_memory(t: Tensor) -> Handle:
    """Returns another handle on the memory that `t` covers."""
    k = t._array.itemsize
    return DEVICES[t._device.type].view(t._handle, t._array.shape, tuple([s // k for s in t._array.strides]), 0, t._array.dtype)


def classify_native(t: Any, dev: _device.device | None) -> tuple[_device.device, Handle, Array] | None:
    """Returns (device, handle, geometry) of a MindSpore tensor on a device; None on the host.

    `dev` is the device that it is to go to, if known. MindSpore's tensors have no device. They have
    the device of the facade's tensors that they were computed from; otherwise they count as created
    on the default device.
    """
    home = getattr(t, "_home", None) or dev or _device.get_default()
    if home.type not in DEVICES:
        return None
    h = DEVICES[home.type].from_mindspore(t)
    sizes, np_dtype, strides = DEVICES[home.type].geometry(h)
    return home, h, reserve_address_range(sizes, np_dtype, strides)


def to_host(t: Tensor | ScalarOperand | SavedArray) -> Array:
    """Returns the values of a tensor as a read-only host array (`mindtorch/core/tensor/sync.py`)."""
    return t._array if t._handle is None else device_to_host(t)


SCALAR_TYPES = frozenset((int, float, bool, complex))


def wrap_results(prim, r, ins, kw, dev, device):
    outs = tuple([None if h is None else SavedArray(device.meta_array(h), h, dev) if i in prim.residuals else tensor(dev, h) for i, h in enumerate(r)])
    for t in outs:
        if t.__class__ is Tensor:
            t._enqueue_epoch = async_errors.now
    return primitives.link(prim, outs, ins, kw)


def transferred_operand(x, dev, device, way):
    """Returns the handle or Python scalar for an operand that has no handle on the device."""
    c = x.__class__
    if c is ScalarOperand:
        return _number(x._array) if way.scalars else device.constant(x._array)
    if device.of_host:
        device.on_missing_kernel(f"a {x._np_dtype.name} host tensor that is not an input of the call is an operand")
    if c is not SavedArray and x._from_mindspore and x._device.type == "cpu":
        # MindSpore's own tensors have no device: they move to the device of the other operands.
        x._device, x._handle, x._array = classify_native(x, dev)
        return x._handle
    if c is not SavedArray and (x.ndim or x._device.type == "meta") and (not device.shadows or x._requires_grad_ or x._device.type != "cpu"):
        raise mixed_devices(dev, x._device)
    if way.scalars and not x.ndim:  # a 0-dim host tensor counts as a scalar
        return _number(x._array)
    COPIES.up += 1
    return device.upload(x._array)


def _number(a):
    v = a.item()
    return v if v.__class__ in SCALAR_TYPES else float(v)  # bfloat16 has its own scalar class


def upload(device, a):
    a = np.asarray(a)
    COPIES.up += 1
    if a.flags.c_contiguous:
        return device.upload(a)
    # A result in another memory format keeps that format.
    order = sorted(range(a.ndim), key=lambda i: -a.strides[i])
    flat = a.transpose(order)
    if not flat.flags.c_contiguous:
        return device.upload(np.ascontiguousarray(a))
    return device.view(device.upload(flat), a.shape, strides_of(a), 0, a.dtype)
