"""Errors of devices, which compute asynchronously."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from mindtorch.backend.errors import AcceleratorError
from mindtorch.backend.kernels import TABLES
from mindtorch.core.device import device as _device, device_state
from mindtorch.core.device.device_state import DEVICES, KERNEL_CACHE
from mindtorch.core.tensor.storage_impl import living
from mindtorch.core.tensor.tensor import Tensor


def device_lock(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: serializes a function with all other device work.

    Device errors are raised with PyTorch's messages.
    """
    @functools.wraps(f)
    def one_at_a_time(*args, **kwargs):
        with device_state.DEVICE_LOCK:
            try:
                return f(*args, **kwargs)
            except RuntimeError as e:
                reraise(e)
    return one_at_a_time


class AsyncErrorTracker:
    """Tracks asynchronous results that a device may never have computed.

    Devices compute asynchronously. An error is therefore raised by a later op, when tensors whose
    memory was never filled have already been returned; their values would look like any others. So
    each kernel result records the window between two synchronizations in which it was enqueued.
    Results of a window that ended in an error are rejected as operands and when they are read.
    Memory modified in place keeps its old values; the error message says that they may be wrong.
    """

    __slots__ = ("now", "windows")
    #: window of memory that could not be allocated
    NEVER = -1

    def __init__(self):
        self.now, self.windows = 1, set()

    def sure(self):
        """Marks everything enqueued until now as computed."""
        self.now += 1

    def cast(self, device):
        """Marks the results of the current window as unreliable."""
        self.windows |= {self.now, self.NEVER}
        self.now += 1
        for t in living():  # tensors that came from the host or were created without operands
            if (Tensor in type(t).__mro__ and t._handle is not None and t._array.size and DEVICES.get(t._device.type) is device
                    and not device.address(t._handle)):
                t._enqueue_epoch = self.NEVER

    def about(self, t):
        """True if the tensor's values are unreliable."""
        return t._enqueue_epoch in self.windows

    def check(self, ins):
        """Raises AcceleratorError if an operand is unreliable."""
        for x in ins:
            if x is not None and getattr(x, "_enqueue_epoch", 0) in self.windows:
                raise AcceleratorError(f"NPU error: a tensor {x._np_dtype.name}{list(x._sizes)} on device {x._device} has unreliable values: an op enqueued in "
                                       "the same interval between two synchronizations failed (its error was raised). Compute the tensor again; with "
                                       "ASCEND_LAUNCH_BLOCKING=1 only the result of the failed op is lost")


async_errors = AsyncErrorTracker()


def explained(error: RuntimeError, dev: _device.device | None = None, doing: str = "") -> RuntimeError | None:
    """Returns a device error with PyTorch's message, or None for any other error.

    Once a device is found lost, all further calls to its kernels raise.
    """
    for device in {d.type: d for d in DEVICES.values()}.values() if dev is None else (DEVICES[dev.type],):
        was = device.lost
        translated = device.translate_error(error, doing)
        if device.lost and not was:
            _lose(device)
        if translated is not None:
            if device.behind and not device.lost:
                async_errors.cast(device)
            return translated
    return None


def _lose(device):
    def refuse(*args, **kwargs):
        raise device.lost_error()
    table = TABLES[device.type]
    table.update(dict.fromkeys(table, refuse))
    KERNEL_CACHE[device.type].clear()


def reraise(e: RuntimeError, dev: _device.device | None = None, doing: str = "") -> NoReturn:
    """Raises a caught error, with PyTorch's message if it is a device error."""
    translated = explained(e, dev, doing)
    if translated is None:
        raise e
    try:
        raise translated from e
    finally:
        # breaks the reference cycle through this frame, which would keep the operands alive
        translated = None


@device_lock
def synchronize(dev: _device.device) -> None:
    """Blocks until a device has finished all its work; raises its errors."""
    DEVICES[dev.type].synchronize()
    async_errors.sure()


def raise_pending_errors(dev: _device.device) -> None:
    """Raises pending memory and kernel errors before memory is modified that cannot be restored.

    Does not wait for the device. Without this check an optimizer would update parameters with
    gradients that were never computed, and the error would be raised afterwards.
    """
    device = DEVICES.get(dev.type)
    if device is not None and (device.behind or device.lost):
        _raise_pending_errors(device)


@device_lock
def _raise_pending_errors(device):
    device.flush()
    async_errors.sure()


def describe_call(prim, ins):
    return f"primitive '{prim.name}' of {', '.join([f'{x._np_dtype.name}{list(x._sizes)}' for x in ins if x is not None])}"


def mixed_devices(one, other):
    return RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {one} and {other}!")
