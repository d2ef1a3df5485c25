"""State of the devices: their registrations, kernels in use, lock and counts of copies."""
from __future__ import annotations

import threading

from mindtorch.backend.cpython import module_lock
from mindtorch.backend.device import Device, KernelSpec
from mindtorch.backend.kernels import TABLES
from mindtorch.core.device import device as _device
from mindtorch.core.tensor.tensor import Tensor


#: Device type -> Device.
DEVICES: dict[str, Device] = _device.registered
#: Device type -> {primitive: its kernel and the operands that this supports}.
KERNEL_CACHE: dict[str, dict[str, KernelSpec | None]] = {}


class _Copies:
    """Number of tensors copied to a device, and from one."""

    __slots__ = ("up", "down")

    def __init__(self):
        self.up = self.down = 0


COPIES = _Copies()
#: Held while a device computes or copies: concurrent MindSpore calls from several threads crash the
#: process.
DEVICE_LOCK = module_lock(globals(), "DEVICE_LOCK", threading.RLock)


class _Within(threading.local):
    """True while this thread computes a graph of host tensors on a recording device.

    New tensors are then created on that device (`mindtorch/core/compile/host_graph_bridge.py`,
    `mindtorch/core/compile/compiled_graph.py`).
    """

    on = False
    there = _device.shadow


WITHIN = _Within()
#: Types of the devices that have been used in this process.
USED: set[str] = set()


def kernel_spec(name, dev, raw=False):
    ways = KERNEL_CACHE[dev.type]
    try:
        return ways[name]
    except KeyError:
        fn = TABLES[dev.type].get(name)
        way = ways[name] = None if fn is None else KernelSpec(fn, DEVICES[dev.type], raw)
        return way


def has_kernel(dev: _device.device, name: str) -> bool:
    """True if a device other than the host has its own kernel of this name."""
    return dev.type in DEVICES and name in TABLES[dev.type] and not DEVICES[dev.type].of_host


def is_strided(t: Tensor) -> bool:
    """True if a tensor's memory is a device's whose kernels accept operands with any strides."""
    return t._handle is not None and t._device.type in DEVICES and DEVICES[t._device.type].strided


def uses_cpu_kernels(t: Tensor) -> bool:
    """True if host kernels compute the ops of a tensor.

    The tensor is on the host, or on the recording device of `mindtorch/core/compile/compiled_graph.py`.
    """
    return t._handle is None or t._device is _device.recorded


def called_primitives(kind: str) -> set[str]:
    """Returns the primitives for which a device's kernels have been used in this process.

    Views and copies to the device do not count.
    """
    return {name for name, way in KERNEL_CACHE.get(kind, {}).items() if way is not None}
