"""Writes to the memory of device tensors (`mindtorch/core/tensor/inplace.py`)."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.cpu.basic import cast_array
from mindtorch.backend.device import UnsupportedByKernel, storage_array
from mindtorch.backend.interface import Handle, NpDtype
from mindtorch.backend.strides import broadcasts_to
from mindtorch.core.device import device as _device
from mindtorch.core.device.cpu_fallback import cpu_fallback, drawn_on_host, on_host
from mindtorch.core.device.device_errors import async_errors, device_lock, mixed_devices
from mindtorch.core.device.device_state import COPIES, DEVICES, kernel_spec
from mindtorch.core.device.transfers import to_host, transferred_operand
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import tensor_wrappers
from mindtorch.core.tensor.conj_neg_bits import ConjNegBits
from mindtorch.core.tensor.tensor import ScalarOperand, Tensor, bump_version, wrap_array


def write(x: Tensor, r: Tensor | ScalarOperand) -> None:
    """Stores `r` in the memory of x.

    `r` broadcasts to x and may have another dtype or be a host scalar.
    """
    if tensor_wrappers.is_wrapped(x):
        return hooks.wrapper_write(x, r) if tensor_wrappers.is_wrapper_subclass(x) else hooks.batched_write(x, r)
    if x._handle.__class__ is ConjNegBits:
        return hooks.bits_write(x, r)
    if r._handle.__class__ is ConjNegBits:
        r = hooks.bits_resolved(r)
    if async_errors.windows:
        async_errors.check((r,))
        if x._enqueue_epoch > 0 and x._base is None:
            x._enqueue_epoch = 0
    write_to(x._handle, x._np_dtype, r, x._device)


@device_lock
def write_to(handle: Handle, np_dtype: NpDtype, r: Tensor | ScalarOperand, dev: _device.device) -> None:
    """Like `write`, for a handle of `dev` with the given dtype."""
    device, h = DEVICES[dev.type], r._handle
    if h is None:
        a = r._array
        if r.__class__ is ScalarOperand or not a.ndim and r._device.type != "meta":        # type: ignore[union-attr]
            if device.of_host and r.__class__ is not ScalarOperand:
                device.on_missing_kernel(f"the values of a {r._np_dtype.name} host tensor that is not an input of the call are written")
            device.fill(handle, a if a.dtype is np_dtype else cast_array(a, np_dtype))
            return
        h = _sent(r, device)
    elif r._device is not dev and r._device != dev:       # type: ignore[union-attr]
        raise mixed_devices(dev, r._device)                   # type: ignore[union-attr]
    device.write(handle, h)


def _sent(r, device):
    if device.of_host:
        device.on_missing_kernel(f"the values of a {r._np_dtype.name} host tensor that is not an input of the call are written")
    if r._device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    COPIES.up += 1
    return device.upload(np.ascontiguousarray(r._array).reshape(r._array.shape))


@device_lock
def in_place(x: Tensor, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Runs the device's in-place kernel `name` ("add_") on the memory of x.

    Returns False without computing if there is no kernel or it does not support the operands. The
    kernel is called as kernel(x, *args, **kwargs). `args` are tensors of x's dtype that share no
    memory with x and broadcast to it, or scalars that its dtype can represent.
    """
    if x._handle.__class__ is ConjNegBits or tensor_wrappers.is_wrapped(x) or DEVICES[x._device.type].of_host:
        return False  # kernels of these names in the host's table return a new array
    way = kernel_spec(name, x._device)
    if way is None or not x._array.size or kwargs and not kwargs.keys() <= (way.fn.__kwdefaults__ or {}).keys():
        return False
    np_dtype, handles = x._np_dtype, []
    fractions = np_dtype.kind in "fV"
    if not fractions and np_dtype.kind != "i" or way.only is not None and np_dtype not in way.only:
        return False
    for o in args:
        c = o.__class__
        if c is float and fractions or c is int and -1 << 24 <= o <= 1 << 24:
            handles.append(o)
        elif getattr(o, "_handle", None) is not None and o._np_dtype == np_dtype and (o._device is x._device or o._device == x._device) and (
                storage_array(o._array) is not storage_array(x._array)) and broadcasts_to(o._sizes, x._sizes):
            handles.append(o._handle)
        else:
            return False
    for o in kwargs.values():
        if o is not None and not (o.__class__ is float and fractions or o.__class__ is int):
            return False
    try:
        way.fn(x._handle, *handles, **kwargs)
    except UnsupportedByKernel as e:
        e.raise_rejection()
        return False
    bump_version(x)
    return True


@device_lock
def write_by(x: Tensor, name: str, kernel: Callable[..., object], *operands: Any, **constants: object) -> None:
    """Runs the device's kernel `name`, or else the host `kernel`, with x as its output.

    The call is kernel(x, *operands, **constants).
    """
    if tensor_wrappers.is_batched(x):
        return hooks.batched_write_by(x, name, kernel, operands, constants)
    dev = x._device
    way = kernel_spec(name, dev)
    if way is not None:
        device = DEVICES[dev.type]
        try:
            way.fn(x._handle, *[None if o is None else o._handle if o._handle is not None else transferred_operand(o, dev, device, way) for o in operands],
                   **constants)
            return
        except UnsupportedByKernel as e:
            e.raise_rejection()
    if not drawn_on_host(constants):
        cpu_fallback(name, (x, *operands), dev)
    a = to_host(x).copy("K")  # random numbers are drawn in memory order
    kernel(a, *[to_host(o) for o in operands], **on_host(constants))
    write(x, wrap_array(a))
