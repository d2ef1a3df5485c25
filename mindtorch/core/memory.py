"""The one door to a tensor's memory as such, for what is bound to the host's: storages, shared memory, files, sockets, DLPack.

Values are read by `values` (core/values.py), which every device has; what goes through here works on host tensors only, and says so.
"""
from __future__ import annotations

import gc
from typing import Any

from mindtorch.backend.interface import Array
from mindtorch.core.tensor import Tensor


def host_memory(t: Tensor) -> Array:
    """The array that is a tensor's memory, to be read and written; NotImplementedError for a device's tensor."""
    if t._h is not None:
        raise NotImplementedError(f"the memory of a {t.dtype} tensor on device {t._dev} is not the host's: copy the tensor to cpu first")
    return t._a


def owns_memory(t: Tensor) -> bool:
    """Whether a tensor does not look into another one's memory."""
    return t._base is None if t._h is not None else t._a.base is None


def living() -> list[Any]:
    """All objects that Python's collector knows, for finding tensors; what gc.freeze has set aside is taken back, for it cannot be listed there."""
    if gc.get_freeze_count():
        gc.unfreeze()
    return gc.get_objects()
