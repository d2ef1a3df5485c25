"""Errors of the npu device with PyTorch's error messages: one clear error for each, with
MindSpore's own as its cause.

MindSpore computes asynchronously. An error in an op is raised by a later call that synchronizes.
Errors found by the device are not raised by `mindspore.runtime.synchronize`, which logs them and
returns (2.10). `wait` raises both.
"""
from __future__ import annotations

import os
import re
from typing import Any

from mindtorch.backend.errors import AcceleratorError, OutOfMemoryError
from mindtorch.backend.mindspore import runtime
from mindtorch.backend.mindspore.private import executor
from mindtorch.backend.mindspore.runtime import ms

#: MindSpore's messages for exhausted memory
_EXHAUSTED = ("Allocate memory failed", "Memory not enough", "memory isn't enough", "out of memory", "Out of memory", "Out of Memory", "Malloc for kernel",
              # the last one: an operand whose own allocation failed
              "memory allocation error", "device memory is null")
#: CANN's messages for an operand whose element type the kernel does not support
_TYPES = ("not implemented for", "dtype support list", "the chip takes")
#: CANN's messages and error codes for a lost device: heartbeat, setup, connection
_LOST = ("heartbeat", "507010", "507033", "507901", "device is lost")
#: parts of the messages of every error that a CANN call has caused
_MARKS = ("Ascend Error Message", "aclrt", "aclnn", "aclop", "SyncCopy failed", "SyncStream failed", "Failed to query completion status", "AsyncCopy failed",
          "SyncEvent")
_RULE = re.compile(r"^-{20,}$", re.M)
#: maximum number of further pending errors to fetch from MindSpore before one error is raised
_MOST = 1000


def blocking() -> bool:
    """True if the user requests synchronization after each op, so that an error is raised by the op
    that caused it."""
    return any([os.environ.get(name, "0") not in ("", "0") for name in ("ASCEND_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING")])


def is_exhausted(error: BaseException) -> bool:
    """True if a MindSpore error reports exhausted memory."""
    text = str(error)
    return any([words in text for words in _EXHAUSTED])


def _parts(text):
    """Returns (MindSpore's message, CANN's message) of an error's text, without its other sections.
    """
    pieces = [p.strip() for p in _RULE.split(text)]
    message, of_cann = pieces[0], ""
    for heading, body in zip(pieces[1::2], pieces[2::2]):
        if heading.startswith("- Ascend Error Message"):
            of_cann = "\n".join([line for line in body.splitlines() if not line.startswith("(Please search")]).strip()
    return message.splitlines()[0] if message else "", of_cann


def _number(text):
    """Returns CANN's error code, or None if MindSpore's message does not contain it."""
    found = re.search(r"(?:ret|error code|errorcode|error no)\D{0,4}(\d{6})\b", text)
    return int(found[1]) if found else None


def _size(n):
    for unit, k in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n >= 1 << k:
            return f"{n / (1 << k):.2f} {unit}"
    return f"{n} bytes"


def in_bytes(x: Any) -> int:
    """Returns the number of bytes in an int, or in a text such as "32768MB"."""
    if not isinstance(x, str):
        return int(x)
    for unit, k in (("MB", 20), ("GB", 30), ("KB", 10)):
        if x.endswith(unit):
            return int(float(x[:-2]) * (1 << k))
    return int(x)


def memory(index: int) -> str:
    """Describes a device's memory in PyTorch's wording; empty on MindSpore's CPU target."""
    if runtime.target() == "CPU":
        return ""
    try:
        reserved, used, about = ms.runtime.memory_reserved(), ms.runtime.memory_allocated(), ms.hal.get_device_properties(index)
    except RuntimeError:  # a device that does not respond
        return ""
    return (f" NPU {index} has a total capacity of {_size(in_bytes(about.total_memory))} of which {_size(in_bytes(about.free_memory))} is free. "
            f"{_size(used)} is allocated by tensors, and {_size(max(reserved - used, 0))} is reserved by MindSpore but unallocated.")


class Faults:
    """Error state of one device. `lost`: the reason why the device no longer responds, or None."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.blocking = target == "CPU" or blocking()
        self.lost: str | None = None

    def translate(self, error: BaseException, what: str, doing: str = "", size: int | None = None) -> RuntimeError | None:
        """Converts a MindSpore error to a RuntimeError with PyTorch's error message, to be raised
        `from` it; None for an error not of the device.

        what: the device's name. doing: the op that was called; it is known to have failed only if
        each op is synchronized. size: the bytes that the op needs.
        """
        text = str(error)
        exhausted = is_exhausted(error)
        if text.startswith("NPU ") or not exhausted and not any([m in text for m in _MARKS]):
            return None
        message, of_cann = _parts(text)
        if not exhausted and any([m in text for m in _LOST]):
            self.lost = of_cann or message
            # Otherwise earlier errors would be raised later, by a call that does not reach the
            # device.
            self.rest()
            return self.gone(what)
        more = self.rest()
        index = int(what.partition(":")[2] or 0)
        sure = self.blocking or size is not None
        # An op that only synchronizes is not to blame.
        by = f" by {doing}" if doing and sure else ""
        if exhausted:
            attempt = f"Tried to allocate {_size(size)}" if size is not None else "Tried to allocate memory"
            text = f"NPU out of memory. {attempt} on device {what}{by}.{memory(index)}{self._later(sure)}"
            return _with(OutOfMemoryError(text), more)
        if "GetWorkspaceSize" in text:
            kernel = re.search(r"(aclnn\w+?)(?:GetWorkspaceSize)", text)
            reason = of_cann or message
            name = kernel[1] if kernel else "a kernel"
            if reason.startswith(f"{name}: "):
                reason = reason[len(name) + 2:]
            kind = NotImplementedError if any([m in reason for m in _TYPES]) else RuntimeError
            return _with(kind(f"NPU error: {name} is refused on device {what}{by}: {reason}{self._later(sure)}"), more)
        reason = of_cann or message
        if of_cann and doing and not self._async(message):
            reason = f"{reason} ({message})"
        e = AcceleratorError(f"NPU error: {reason} (device {what}{by}){self._later(self.blocking)}")
        e.error_code = _number(text)
        return _with(e, more)

    @staticmethod
    def _async(message):
        return any([m in message for m in ("SyncCopy", "SyncStream", "SyncEvent", "aclrtSynchronize", "query completion")])

    def _later(self, sure):
        if sure:
            return ""
        return ("\nNPU kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect, and what has been "
                "computed or written since the last synchronization may be missing or wrong.\nFor debugging consider passing ASCEND_LAUNCH_BLOCKING=1")

    def gone(self, what: str) -> AcceleratorError:
        """Returns the error for any use of a lost device."""
        e = AcceleratorError(f"NPU error: device {what} is lost: {self.lost}. Nothing on it can be computed or read any more. "
                             "What is on the host can be saved; a new process may find the device again.")
        e.error_code = 507010
        return e

    def rest(self) -> list[str]:
        """Returns the other errors of all calls made so far; none of them is raised later."""
        if self.target == "CPU":
            return []
        found: list[str] = []
        for _ in range(_MOST):
            try:
                executor.sync()
                break
            except RuntimeError as e:
                line = " ".join([p for p in _parts(str(e)) if p])
                if line not in found:
                    found.append(line)
        return found


def _with(error, notes):
    for line in notes[:5]:
        error.add_note(f"also: {line}")
    return error


def wait(streams: tuple[Any, ...] = ()) -> None:
    """Waits for MindSpore's device to finish all work in the current stream and in `streams`;
    raises the errors that occurred."""
    ms.runtime.synchronize()
    for s in (None, *streams):
        finish(s)


def finish(stream: Any = None) -> None:
    """Waits for one stream (None: the current one) and raises its errors.

    It waits for an event at the end of the stream: MindSpore's own `synchronize` logs errors and
    returns.
    """
    mark = ms.runtime.Event()
    mark.record(stream)
    mark.synchronize()
