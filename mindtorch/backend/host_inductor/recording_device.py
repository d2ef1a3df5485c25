"""A device that runs the host's kernels and records them: it turns a captured call into one joint
graph (forward and backward, as in AOTAutograd).

Tensors on this device stand in for host tensors while a call is traced (core/compile/compiled_graph.py). Everything
is computed immediately, on real memory. Kernels, views, writes and constants become `Event`s in
execution order. Anything that would leave the program, such as reading values, raises `GraphBreak`.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from mindtorch.backend.errors import GraphBreak
from mindtorch.backend.cpu.basic import cast_array
from mindtorch.backend.cpu.memory import offset_of, on_storage, root
from mindtorch.backend.cpu.pointwise import EXPRESSIONS
from mindtorch.backend.device import Device, UnsupportedByKernel
from mindtorch.backend.interface import Array, Handle, Kernel, Sizes, Strides, NpDtype
from mindtorch.backend.kernels import KernelFlags, set_flags


class Value:
    """Description of an array in a program. place: its id; home: the id of the first value in the
    same memory; plain: True if it is in C order."""

    __slots__ = ("place", "home", "shape", "dtype", "strides", "plain", "size")

    def __init__(self, a: Array, place: int, home: int) -> None:
        self.place, self.home = place, home
        self.shape, self.dtype, self.strides, self.plain, self.size = a.shape, a.dtype, a.strides, a.flags.c_contiguous, a.size

    def elsewhere(self, place: int) -> Value:
        """Returns a value with the same geometry in its own storage."""
        v: Value = object.__new__(Value)
        v.place = v.home = place
        v.shape, v.dtype, v.strides, v.plain, v.size = self.shape, self.dtype, self.strides, self.plain, self.size
        return v


class Buffer:
    """A handle: the array, while it is needed, and its Value."""

    __slots__ = ("array", "value")

    def __init__(self, array: Array, value: Value) -> None:
        self.array, self.value = array, value


class Event:
    """One step of a program.

        kind     "call": fn(*arrays, **kw); "view": a view of the operand's memory, at kw's offset
                 (in bytes, from its first element); "write": copies the second operand into the
                 first; "constant": kw's array, the same in every run; "loop": fn(arrays of the
                 results, then of the operands), which replaces several calls (fusion.py)
        compute  set if fn cannot process the operands directly (half precision, strides):
                 compute(arrays, kw) casts and copies; else None
        wraps    True: fn may return something that is not an array (a NumPy scalar)
        sure     True: the sizes of a call's results depend only on the operands' sizes and on its
                 constants
        loop     (C expression of the kernel, its scalar parameters) for an elementwise call that
                 has one
    """

    __slots__ = ("kind", "name", "fn", "compute", "ins", "kw", "outs", "several", "wraps", "loop", "sure")

    def __init__(self, kind: str, name: str, ins: tuple[Value | None, ...], outs: tuple[Value | None, ...], kw: dict[str, Any], fn: Any = None,
                 compute: Any = None, several: bool = False, wraps: bool = False, loop: Any = None, sure: bool = True) -> None:
        self.kind, self.name, self.ins, self.outs, self.kw = kind, name, ins, outs, kw
        self.fn, self.compute, self.several, self.wraps, self.loop, self.sure = fn, compute, several, wraps, loop, sure

    @property
    def writes(self) -> bool:
        """True if the event modifies its first operand; kernels without a result do."""
        return self.kind == "write" or self.kind == "call" and not self.several and self.outs[0] is None

    def on(self, ins: tuple[Value | None, ...]) -> Event:
        """Returns the same step on other operands."""
        return Event(self.kind, self.name, ins, self.outs, self.kw, self.fn, self.compute, self.several, self.wraps, self.loop, self.sure)


class RecordingDevice(Device):
    """The device of one recording.

    way(name) returns, for a primitive: (function that runs its host kernel on any operands, or
    None; True if the kernel only moves bits; `sure`)
    """

    type = "recorded"
    of_host = True

    def __init__(self, way: Callable[[str], tuple[Callable[[Sequence[Any], dict[str, Any]], Any] | None, bool, bool]], host: Any) -> None:
        self.way, self.host = way, host
        self.events: list[Event] = []
        self.places = 0
        #: id of the array that owns memory -> that array, and the id of the first value in it
        self.homes: dict[int, tuple[weakref.ref[Array], int]] = {}

    # ---- values
    def _slot(self, a: Array) -> Buffer:
        own = root(a)
        known = self.homes.get(id(own))
        if known is None or known[0]() is not own:
            known = self.homes[id(own)] = weakref.ref(own), self.places
        v = Value(a, self.places, known[1])
        self.places += 1
        return Buffer(a, v)

    #: registers an array that is passed in from outside in every run
    give = _slot

    def constant(self, array: Array) -> Buffer:
        h = self._slot(np.array(array))
        self.events.append(Event("constant", "constant", (), (h.value,), {"array": h.array}))
        return h

    upload = constant

    def download(self, handle: Handle) -> NoReturn:
        raise GraphBreak("values are read")

    def on_missing_kernel(self, what: str) -> NoReturn:
        raise GraphBreak(what)

    def geometry(self, handle: Any) -> tuple[Sizes, NpDtype, Strides]:
        a = handle.array
        k = a.itemsize
        return a.shape, a.dtype, tuple([s // k for s in a.strides])

    def view(self, handle: Any, sizes: Sizes, strides: Strides, offset: int, np_dtype: NpDtype) -> Buffer:
        a, k = handle.array, np_dtype.itemsize
        steps, at = tuple([s * k for s in strides]), offset * k if a.size and 0 not in sizes else 0
        h = self._slot(on_storage(a, tuple(sizes), steps, offset_of(a) + at, np_dtype))
        self.events.append(Event("view", "view", (handle.value,), (h.value,), {"offset": at}))
        return h

    def write(self, handle: Any, value: Any) -> None:
        to, v = handle.array, value.array
        if not to.flags.writeable:
            raise GraphBreak("read-only memory is modified in place")
        to[...] = v if v.dtype == to.dtype else cast_array(v, to.dtype)
        self.events.append(Event("write", "write", (handle.value, value.value), (), {}))

    # ---- kernels
    def kernel(self, name: str, fn: Kernel) -> Kernel:
        """Wraps the host's kernel `fn` to operate on handles."""
        def run(*handles, **kw):
            if not all([h is None or h.__class__ is Buffer for h in handles]):
                # (scalar operands: the host's in-place kernels are not in the kernel tables)
                raise UnsupportedByKernel
            if "device" in kw:
                kw["device"] = self.host
            arrays = [None if h is None else h.array for h in handles]
            compute, raw, sure = self.way(name)
            try:
                if compute is None or all([a is None or a.flags.c_contiguous and (raw or a.itemsize != 2) for a in arrays]):
                    compute = None
                    r = fn(*arrays, **kw)
                else:
                    r = compute(arrays, dict(kw))
            # `on_missing_kernel` ends the recording, and the host's kernels run directly
            except (TypeError, ValueError) as e:
                raise UnsupportedByKernel(f"{type(e).__name__}: {e}") from e
            several, wraps, outs = r.__class__ is tuple, False, []
            for a in r if several else (r,):
                if a is not None and a.__class__ is not np.ndarray:
                    a, wraps = np.asarray(a), True
                outs.append(None if a is None else self._slot(a))
            loop = _loop(fn, kw) if compute is None else None
            self.events.append(Event("call", name, _values(handles), _values(outs), kw, fn, compute, several, wraps, loop, sure))
            return tuple(outs) if several else outs[0]
        set_flags(run, KernelFlags(empty=True))
        return run


def _values(slots):
    return tuple([None if h is None else h.value for h in slots])


def _loop(fn, kw):
    found = EXPRESSIONS.get(fn)
    numbers = None if found is None else found[1](**kw)
    return None if numbers is None else (found[0], numbers)


__all__ = ["Buffer", "Event", "RecordingDevice", "Value"]
