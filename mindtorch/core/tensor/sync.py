"""Transfers between ops and the host: the only place where values are synchronized, and the only
place where host values become tensors.

On `cpu` both are free. On a device, reading values is a synchronization and a copy. Ops therefore
read values only where PyTorch does too (data-dependent sizes, `item`, errors that depend on
values); everything else runs in kernels.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.interface import Array
from mindtorch.core.device import device_dispatch
from mindtorch.core.tensor.conj_neg_bits import plain
from mindtorch.core.device.device_dispatch import to_host  # noqa: F401
from mindtorch.core.tensor.dtypes import of_np
from mindtorch.core.dispatch.primitives import HOST
from mindtorch.core.tensor.tensor import Tensor, wrap_array
from mindtorch.core.tensor.tensor_wrappers import is_batched, is_wrapped


def of_all(t: Tensor) -> Array:
    """Like `to_host`, but for a vmap tensor returns the values of all slices.

    For rules that may inspect all slices together, such as whether any element is zero.
    """
    found: Any = t
    while is_batched(found):
        found = found._handle.value
    return to_host(found)


def predicate_kernel(name: str) -> Callable[[Tensor, Tensor], Any]:
    """Returns a function of two tensors that returns one Python value, such as equality.

    Calling it synchronizes. No tensor is created for the result, which would cost 1.5 us.
    """
    answer = HOST[name]

    def predicate(a, b):
        if a._handle is None and b._handle is None:
            return answer(a._array, b._array)
        if a._device != b._device:
            raise device_dispatch.mixed_devices(a._device, b._device)
        return answer(to_host(a), to_host(b))
    return predicate


def tensor_from(array: Array, like: Tensor | None = None) -> Tensor:
    """Returns a tensor with a host array's values, on the device of `like`.

    Without `like`: on cpu, sharing the array's memory.
    """
    if like is None or plain(like)._handle is None or is_wrapped(like) and not (is_batched(like) and like._device.type in device_dispatch.DEVICES):
        within = device_dispatch.WITHIN
        return device_dispatch.host_to_device(array, within.there) if within.on and device_dispatch.DEVICES[within.there.type].of_host else wrap_array(array)
    return device_dispatch.host_to_device(array, like._device)


def array_operand(x: object) -> Tensor | None:
    """Converts an ndarray operand next to a tensor to a tensor; returns None for any other object.

    It shares the array's memory if that is in C order.
    """
    if not isinstance(x, np.ndarray):
        return None
    of_np(x.dtype)
    return wrap_array(np.ascontiguousarray(x) if x.ndim else x)


def array_of(nested: Any) -> Array:
    """Returns a host array of nested lists of numbers; ValueError if their lengths differ."""
    return np.array(nested)
