"""Views of device tensors. The host's view kernels compute their geometry."""
from __future__ import annotations

from typing import Any

import numpy as np

from mindtorch.backend.cpu.as_strided import pick
from mindtorch.backend.cpu.host import address
from mindtorch.backend.cpu.memory import on_storage
from mindtorch.backend.device import storage_array, view_of
from mindtorch.backend.interface import Array, Handle, Sizes, Strides
from mindtorch.core.device.device_errors import async_errors, device_lock
from mindtorch.core.device.device_state import DEVICES
from mindtorch.core.dispatch import primitives
from mindtorch.core.tensor import tensor_wrappers
from mindtorch.core.tensor.tensor import Tensor, on_device


def _geometry(t):
    """Returns a geometry-only array with a tensor's shape and strides, for view kernels."""
    return np.ndarray.view(t._array, np.ndarray)


def view(prim, ins, kw, dev):
    x, device = ins[0], DEVICES[dev.type]
    start = address(x._array)
    try:
        r = prim.fwd(_geometry(x), *[None if x is None else x._array for x in ins[1:]], **kw)
    except Exception as e:
        raise _without_arrays(e) from None
    if r.__class__ is not tuple:
        return primitives.link(prim, part(x, start, r, dev, device), ins, kw)
    return primitives.link(prim, tuple([part(x, start, v, dev, device) for v in r]), ins, kw)


def _without_arrays(e):
    """Strips the traceback from an error of a view kernel.

    Its frames hold an array on unreadable memory; printing their locals would crash the process.
    """
    e.__context__ = None
    return e.with_traceback(None)


def part(t, start, view, dev, device):
    # `start` is the address of the first element of `t`.
    part = on_device(dev, _part_handle(t, start, view, device), view_of(t._array, view))
    part._enqueue_epoch = t._enqueue_epoch
    return part


def _part_handle(t, start, view, device):
    if async_errors.windows:
        async_errors.check((t,))
    k = view.itemsize
    sizes = view.shape
    handle, offset = t._handle, 0 if 0 in sizes else address(view) - start
    if offset % k:
        # `t` starts inside an element of the part, which is larger (a complex number, at its
        # imaginary part): count from the start of the storage.
        home = address(storage_array(t._array))
        handle, offset = device.view(handle, (1,), (1,), (home - start) // t._array.itemsize, t._np_dtype), address(view) - home
    return device.view(handle, sizes, tuple([s // k for s in view.strides]), offset // k, view.dtype)


@device_lock
def strided_view(t: Tensor, sizes: Sizes, strides: Strides, offset: int) -> Tensor:
    """Returns a tensor of the dtype of `t` anywhere in its storage, without history.

    Strides and offset are in bytes; the offset counts from the start of the storage.
    """
    if tensor_wrappers.is_batched(t):
        raise NotImplementedError("torch.vmap: the storage of a batched tensor cannot be used directly (set_, resize_, .data of another shape)")
    return part(t, address(t._array), on_storage(t._array, sizes, strides, offset), t._device, DEVICES[t._device.type])


@device_lock
def region(t: Tensor, key: Any) -> tuple[Array, Handle]:
    """Returns the geometry-only array and the handle of the region that a basic index selects."""
    try:
        part = pick(_geometry(t), key=key)
    except Exception as e:
        raise _without_arrays(e) from None
    return part, _part_handle(t, address(t._array), part, DEVICES[t._device.type])
