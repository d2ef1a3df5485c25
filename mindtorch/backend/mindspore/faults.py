"""What goes wrong on the npu device, in torch's words: one clear error for each, MindSpore's own as its cause.

MindSpore computes behind the caller's back: what an op finds wrong is raised by a later call that waits, and what the device finds wrong is told to nobody by
`mindspore.runtime.synchronize`, which logs it and returns (2.10). `wait` raises both.
"""
from __future__ import annotations

import os
import re
from typing import Any

from mindtorch.backend.errors import AcceleratorError, OutOfMemoryError
from mindtorch.backend.mindspore import runtime
from mindtorch.backend.mindspore.private import executor
from mindtorch.backend.mindspore.runtime import ms

#: how MindSpore says that memory is used up
_EXHAUSTED = ("Allocate memory failed", "Memory not enough", "memory isn't enough", "out of memory", "Out of memory", "Out of Memory", "Malloc for kernel",
              "memory allocation error", "device memory is null")            # (the last: of an operand whose own allocation failed)
#: how CANN says that an operand's element type is not one of the kernel's
_TYPES = ("not implemented for", "dtype support list", "the chip takes")
#: how CANN says that a device is gone, and its numbers for that: heartbeat, setup, connection
_LOST = ("heartbeat", "507010", "507033", "507901", "device is lost")
#: in every error that a call of CANN's has led to
_MARKS = ("Ascend Error Message", "aclrt", "aclnn", "aclop", "SyncCopy failed", "SyncStream failed", "Failed to query completion status", "AsyncCopy failed",
          "SyncEvent")
_RULE = re.compile(r"^-{20,}$", re.M)
#: how often MindSpore is asked for more errors of what was asked for before the one that is raised
_MOST = 1000


def blocking() -> bool:
    """Whether the user asks for each op to be waited for, so that an error is raised by its own op."""
    return any([os.environ.get(name, "0") not in ("", "0") for name in ("ASCEND_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING")])


def is_exhausted(error: BaseException) -> bool:
    """Whether an error of MindSpore's says that memory is used up."""
    text = str(error)
    return any([words in text for words in _EXHAUSTED])


def _parts(text):
    """(what MindSpore says, what CANN says) of an error's text, without what stands between rules and below them."""
    pieces = [p.strip() for p in _RULE.split(text)]
    said, of_cann = pieces[0], ""
    for title, body in zip(pieces[1::2], pieces[2::2]):
        if title.startswith("- Ascend Error Message"):
            of_cann = "\n".join([line for line in body.splitlines() if not line.startswith("(Please search")]).strip()
    return said.splitlines()[0] if said else "", of_cann


def _number(text):
    """CANN's number for an error, where MindSpore tells it."""
    found = re.search(r"(?:ret|error code|errorcode|error no)\D{0,4}(\d{6})\b", text)
    return int(found[1]) if found else None


def _size(n):
    for unit, k in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n >= 1 << k:
            return f"{n / (1 << k):.2f} {unit}"
    return f"{n} bytes"


def in_bytes(x: Any) -> int:
    """Bytes out of a number, or of a text such as "32768MB"."""
    if not isinstance(x, str):
        return int(x)
    for unit, k in (("MB", 20), ("GB", 30), ("KB", 10)):
        if x.endswith(unit):
            return int(float(x[:-2]) * (1 << k))
    return int(x)


def memory(index: int) -> str:
    """What is known of a device's memory, as torch tells it; of MindSpore's CPU target nothing."""
    if runtime.target() == "CPU":
        return ""
    try:
        taken, used, about = ms.runtime.memory_reserved(), ms.runtime.memory_allocated(), ms.hal.get_device_properties(index)
    except RuntimeError:            # (a device that answers nothing)
        return ""
    return (f" NPU {index} has a total capacity of {_size(in_bytes(about.total_memory))} of which {_size(in_bytes(about.free_memory))} is free. "
            f"{_size(used)} is allocated by tensors, and {_size(max(taken - used, 0))} is reserved by MindSpore but unallocated.")


class Faults:
    """The errors of one device; `lost`: why it answers nothing any more."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.blocking = target == "CPU" or blocking()
        self.lost: str | None = None

    def told(self, error: BaseException, what: str, doing: str = "", size: int | None = None) -> RuntimeError | None:
        """A RuntimeError of a MindSpore call in torch's words, None for one that is not of the device; to be raised `from` it.

        what: the device's name; doing: what the call was to do, which is what failed only where each op is waited for; size: bytes that it needs.
        """
        text = str(error)
        exhausted = is_exhausted(error)
        if text.startswith("NPU ") or not exhausted and not any([m in text for m in _MARKS]):
            return None
        said, of_cann = _parts(text)
        if not exhausted and any([m in text for m in _LOST]):
            self.lost = of_cann or said
            self.rest()         # (what was asked for before would be told later, by something that does not reach the device)
            return self.gone(what)
        more = self.rest()
        place = int(what.partition(":")[2] or 0)
        sure = self.blocking or size is not None
        # An op that only waits for others is not to blame.
        by = f" by {doing}" if doing and sure else ""
        if exhausted:
            asked = f"Tried to allocate {_size(size)}" if size is not None else "Memory was tried to be allocated"
            text = f"NPU out of memory. {asked} on device {what}{by}.{memory(place)}{self._later(sure)}"
            return _with(OutOfMemoryError(text), more)
        if "GetWorkspaceSize" in text:
            kernel = re.search(r"(aclnn\w+?)(?:GetWorkspaceSize)", text)
            reason = of_cann or said
            name = kernel[1] if kernel else "a kernel"
            if reason.startswith(f"{name}: "):
                reason = reason[len(name) + 2:]
            kind = NotImplementedError if any([m in reason for m in _TYPES]) else RuntimeError
            return _with(kind(f"NPU error: {name} is refused on device {what}{by}: {reason}{self._later(sure)}"), more)
        reason = of_cann or said
        if of_cann and doing and not self._async(said):
            reason = f"{reason} ({said})"
        e = AcceleratorError(f"NPU error: {reason} (device {what}{by}){self._later(self.blocking)}")
        e.error_code = _number(text)
        return _with(e, more)

    @staticmethod
    def _async(said):
        return any([m in said for m in ("SyncCopy", "SyncStream", "SyncEvent", "aclrtSynchronize", "query completion")])

    def _later(self, sure):
        if sure:
            return ""
        return ("\nNPU kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect, and what has been "
                "computed or written since the last synchronization may be missing or wrong.\nFor debugging consider passing ASCEND_LAUNCH_BLOCKING=1")

    def gone(self, what: str) -> AcceleratorError:
        """The error for whatever is asked of a lost device."""
        e = AcceleratorError(f"NPU error: device {what} is lost: {self.lost}. Nothing on it can be computed or read any more. "
                             "What is on the host can be saved; a new process may find the device again.")
        e.error_code = 507010
        return e

    def rest(self) -> list[str]:
        """What else went wrong in what was asked for until now; nothing of it is raised later."""
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
    """Returns when MindSpore's device has done all that was asked of it, in the current stream and these; raises what went wrong."""
    ms.runtime.synchronize()
    for s in (None, *streams):
        finish(s)


def finish(stream: Any = None) -> None:
    """The same for one stream alone (None: the current one), by a mark at its end: MindSpore's own `synchronize` logs what went wrong and returns."""
    mark = ms.runtime.Event()
    mark.record(stream)
    mark.synchronize()
