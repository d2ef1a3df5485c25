"""torch.device and the default device.

`cpu` is MindSpore's CPU target. `npu` (and `cuda`, for scripts that use only that name) is
MindSpore's accelerator, if there is one. `meta` tensors have shape and dtype without values.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from mindtorch.backend.mindspore import runtime
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.hooks import hooks

#: How torch.compile treats the functions of this module (`mindtorch/torch/_dynamo/_capture.py`).
CAPTURE = "safe"

_TYPES: tuple[str, ...] = ("cpu", "cuda", "npu", "meta", "mps", "xpu", "xla", "hpu", "mtia", "privateuseone", "ipu", "vulkan")
_TORCHS = _TYPES
_same: dict[str, str] = {}  # alias of a device type -> its primary name
_named: dict[tuple[str, int], device] = {}

_WORD = re.compile(r"[a-zA-Z_]+").fullmatch


class device:
    """A device type and an optional index.

    See https://pytorch.org/docs/stable/tensor_attributes.html#torch.device.
    """

    __slots__ = ("type", "index", "_prev")
    type: str
    index: int | None
    _prev: list[device]

    def __new__(cls, type: str | int | device = "cpu", index: int | None = None) -> device:
        if isinstance(type, device):
            return type
        self = object.__new__(cls)
        if isinstance(type, int) and not isinstance(type, bool):
            if not accelerator():
                raise RuntimeError(f"Cannot access accelerator device when none is available: MindSpore's device target here is {runtime.target()}")
            index, type = type, accelerator()[0]
        if not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' must be str, not {type_name(type)}")
        if ":" in type:
            if index is not None:
                raise RuntimeError("type (string) must not include an index because index was passed explicitly: " + type)
            type, _, text = type.partition(":")
            if not text.isdigit() or (len(text) > 1 and text[0] == "0"):
                raise RuntimeError(f"Invalid device string: '{type}:{text}'")
            index = int(text)
        if type not in _TYPES and not _WORD(type):
            raise RuntimeError(f"Invalid device string: '{type}'" if type else "Device string must not be empty")
        if type not in _TYPES:
            raise RuntimeError(f"Expected one of {', '.join(_TYPES)} device type at start of device string: {type}")
        if index is not None and index < 0:
            raise RuntimeError("Device index must not be negative")
        self.type, self.index, self._prev = type, index, []
        return self

    def __repr__(self) -> str:
        if self.index is None:
            return f"device(type='{self.type}')"
        return f"device(type='{self.type}', index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return self is other or isinstance(other, device) and self.index == other.index and (
            self.type == other.type or other.type in _same and _same.get(self.type) == _same[other.type])

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((_same.get(self.type, self.type), self.index))

    def __reduce__(self) -> tuple[Any, ...]:
        return device, ((self.type,) if self.index is None else (self.type, self.index))

    def __enter__(self) -> device:
        global _default
        self._prev.append(_default)
        _default = check(self)
        if _default.type == "meta":
            hooks.meta_wanted()
        return self

    def __exit__(self, *exc: object) -> Literal[False]:
        global _default
        _default = self._prev.pop()
        return False


cpu = device("cpu")
meta = device("meta")
#: Device of the tensors that represent host tensors in a graph (`mindtorch/core/compile/host_graph_bridge.py`). Users
#: cannot name it.
shadow = object.__new__(device)
shadow.type, shadow.index, shadow._prev = "mindspore", None, []
#: Device on which programs of host kernels are recorded (`mindtorch/core/compile/compiled_graph.py`). Users cannot
#: name it.
recorded = object.__new__(device)
recorded.type, recorded.index, recorded._prev = "recorded", None, []
_default = cpu
registered: dict[str, Any] = {}  # type -> the Device with its kernels (`mindtorch/core/device/device_dispatch.py`)


_unused: dict[str, Callable[[], None]] = {}


def add_type(found: Any, at_first: Callable[[], None]) -> None:
    """Registers a backend.device.Device under each of its names, so that tensors can be on it.

    at_first() is called before its first use.
    """
    global _TYPES
    _unused.update(dict.fromkeys((found.type, *found.names), at_first))
    for name in (found.type, *found.names):
        registered[name] = found
        if found.names:
            _same[name] = found.type
        if name not in _TYPES:
            _TYPES = (*_TYPES, name)


def drop_type(found: Any) -> None:
    """Reverts `add_type`."""
    global _TYPES
    for name in (found.type, *found.names):
        _TYPES = tuple([t for t in _TYPES if t != name or t in _TORCHS])
        del registered[name]
        _unused.pop(name, None)
        _same.pop(name, None)


def accelerator() -> tuple[str, ...]:
    """Returns the names of the accelerator; empty if there is none."""
    for d in registered.values():
        if d.indexed:
            return (d.type, *d.names)
    return ()


def answers_to(d: device, name: str) -> bool:
    """True if `name` is one of the device's names.

    An accelerator's tensors count as cuda tensors whichever of its names created them.
    """
    found = registered.get(d.type)
    return found is not None and (found.type == name or name in found.names)


def check(d: device | str | int | None) -> device:
    """Returns the device that a user's device argument denotes; None is the default device.

    Raises RuntimeError if this machine does not have it.
    """
    if d is None:
        return _default
    if d.__class__ is not device:
        d = device(d)
    found = registered.get(d.type)
    if found is not None:
        if d.type in _unused:
            at_first = _unused[d.type]
            for name in (found.type, *found.names):
                del _unused[name]
            at_first()
        if not found.indexed:
            return d
        index = found.current() if d.index is None else d.index
        key = d.type, index
        named = _named.get(key)
        if named is None:
            if index >= found.count():
                raise RuntimeError(f"{d.type.upper()} error: invalid device ordinal: there is no device '{d}', only {found.count()} of them")
            if index != found.current():
                raise RuntimeError(f"device '{d}' is not the current device ({d.type}:{found.current()}): MindSpore uses one accelerator per process; "
                                   f"select it with torch.{d.type}.set_device before the first op")
            named = _named[key] = device(d.type, index)
        return named
    if d.type in ("cpu", "meta"):
        return d
    if d.type == "cuda":
        raise RuntimeError("Found no NVIDIA driver on your system: MindSpore's device target is "
                           f"{runtime.target()}, so device '{d}' does not exist here")
    hint = " (MINDTORCH_NPU=cpu makes one of MindSpore's CPU target)" if d.type == "npu" else ""
    raise RuntimeError(f"device '{d}' does not exist here: MindSpore's device target is {runtime.target()}{hint}")


def get_default() -> device:
    return _default


def set_default(d: device | str | int | None) -> None:
    """Sets the device of new tensors that are created without one; None restores the CPU."""
    global _default
    _default = cpu if d is None else check(d)
    if _default.type == "meta":
        hooks.meta_wanted()
