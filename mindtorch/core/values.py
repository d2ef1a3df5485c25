"""Where ops and the host meet: the one place at which values are waited for, and the one at which host values become tensors.

On `cpu` both cost nothing. On a device the first is a synchronisation and a copy, so an op reads values only where torch does too (sizes
that depend on data, `item`, errors that depend on values); everything else is a kernel.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.interface import Array
from mindtorch.core import devices
from mindtorch.core.bits import plain
from mindtorch.core.devices import values  # noqa: F401
from mindtorch.core.dtypes import of_np
from mindtorch.core.tape import HOST
from mindtorch.core.tensor import Tensor, wrap
from mindtorch.core.wrapped import is_batched, is_wrapped


def of_all(t: Tensor) -> Array:
    """As `values`, of all slices where t stands for those of a vmap: for what a rule may know of all of them together (whether some are zero)."""
    found: Any = t
    while is_batched(found):
        found = found._h.value
    return values(found)


def asked(name: str) -> Callable[[Tensor, Tensor], Any]:
    """The function of two tensors that a kernel answers with one Python value (whether they are equal): its reader waits for it.

    (No tensor is made for the answer, which would cost 1.5 us.)
    """
    answer = HOST[name]

    def ask(a, b):
        if a._h is None and b._h is None:
            return answer(a._a, b._a)
        if a._dev != b._dev:
            raise devices._mixed(a._dev, b._dev)
        return answer(values(a), values(b))
    return ask


def tensor_from(array: Array, like: Tensor | None = None) -> Tensor:
    """A tensor on a host array's values, on the device of the tensor `like` (default: cpu, sharing the array's memory)."""
    if like is None or plain(like)._h is None or is_wrapped(like) and not (is_batched(like) and like._dev.type in devices.DEVICES):
        within = devices.WITHIN
        return devices.from_host(array, within.there) if within.on and devices.DEVICES[within.there.type].of_host else wrap(array)
    return devices.from_host(array, like._dev)


def array_operand(x: object) -> Tensor | None:
    """A tensor for an ndarray that stands beside one, on its memory if that is in C order; None for anything else."""
    if not isinstance(x, np.ndarray):
        return None
    of_np(x.dtype)
    return wrap(np.ascontiguousarray(x) if x.ndim else x)


def array_of(nested: Any) -> Array:
    """A host array of nested lists of numbers; ValueError if their lengths differ."""
    return np.array(nested)
