"""Walk of a run along its trace (`mindtorch/core/compile/trace_tree.py`)."""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from mindtorch.backend.device import Device
from mindtorch.core.compile import shape_specialization
from mindtorch.core.compile.deferred_kernels import current
from mindtorch.core.compile.trace_tree import Event, GeneralizationCount, Trace, same_constants, same_except_floats


class TraceCursor:
    """Position of a run in its trace, and the values and calls of the segment that it is in."""

    __slots__ = ("trace", "device", "token", "at", "dry", "ahead", "values", "given", "roots", "log")

    def __init__(self, trace: Trace, device: Device) -> None:
        self.trace, self.device = trace, device
        self.begin(trace.start)

    def begin(self, start: Event) -> None:
        """Starts a segment after event `start`."""
        #: identifies the segment, in the handles of its values
        self.token = object()
        self.at = start
        #: True while the run follows the trace: its kernels are deferred
        self.dry = bool(start.children)
        #: records the segment while it runs for the first time
        self.ahead: shape_specialization.AheadOfTimeRecorder | None = None
        #: handles by value index: given tensors and pending handles; None for values that already
        #: exist
        self.values: list[Any] = []
        self.given: list[int] = []  # indices of the values that come from outside
        # storage -> (index of the first value in it, byte offset of that value)
        self.roots: dict[int, tuple[int, int]] = {}
        self.log: list[tuple[Event, tuple[Any, ...], dict[str, Any]]] = []

    def enter(self, h: Any, diverge: Callable[[], None]) -> int:
        """Returns the value index of a tensor from outside. `diverge` runs the deferred calls if
        the trace has no such tensor here."""
        if h.__class__ is current.pending:
            raise RuntimeError("this tensor comes from a compiled call that ended with an exception: its values were never computed")
        n = len(self.values)
        children = self.at.children
        if children:
            # Fast path: most given tensors are the same objects as in the previous run.
            e = children[0]
            if e.seen is not None and e.seen() is h and e.fn is None and e.where[0] == self.device.address(h):
                first, origin = self.roots.setdefault(e.where[1], (n, e.where[2]))
                if (None if first == n else first) == e.kw["first"] and e.where[2] - origin == e.kw["at"]:
                    return self._entered(e, h)
        sizes, np_dtype, strides = self.device.geometry(h)
        start, at = self.device.storage(h)
        first, origin = self.roots.setdefault(start, (n, at))
        # Offsets are relative to the first tensor on the same storage: a batch may be another slice
        # of a data set in each run.
        kw = {"sizes": sizes, "np_dtype": np_dtype, "strides": strides, "first": None if first == n else first, "at": at - origin}
        known = self.find("given", None, (), kw)
        if known is None:
            if self.dry:
                self.ahead = shape_specialization.record_ahead(self.trace, self.at, lambda: self.device.recorder(self.trace.level))
            diverge()
            known = self.append("given", None, (), kw)
        e = known
        e.seen, e.where = weakref.ref(h), (self.device.address(h), start, at)
        return self._entered(e, h)

    def _entered(self, e, h):
        n = len(self.values)
        self.at = e
        h.__dict__["_lazy"] = self.token, n
        self.values.append(h)
        self.given.append(n)
        self.log.append((e, (), e.kw))
        if self.ahead is not None and not self.dry:
            self.ahead.enter(e, h)
        return n

    # ---- calls
    def find(self, name: str, fn: Any, ins: tuple[Any, ...], kw: dict[str, Any]) -> Event | None:
        """Returns the event that the trace has for such a call, or None."""
        children = self.at.children
        for e in children:
            if e.fn is fn and e.name == name and e.ins == ins and (e.kw is kw or same_constants(e, kw)):
                if e is not children[0]:
                    self.at.children = [e, *[c for c in children if c is not e]]
                return e
        return None

    def append(self, name: str, fn: Any, ins: tuple[Any, ...], kw: dict[str, Any]) -> Event:
        """Adds an event to the trace, as a successor of the last one."""
        e = Event(name, fn, ins, kw)
        self.trace.grow(self.at, e)
        return e

    def geometries(self, r: Any) -> tuple[bool, tuple[Any, ...]]:
        """Returns an event's record of a kernel's results: (True for a tuple, geometry of each)."""
        several = r.__class__ is tuple
        outs = r if several else (r,)
        first = {id(h): i for i, h in reversed(list(enumerate(outs)))}
        return several, tuple([None if h is None else first[id(h)] if first[id(h)] != i else self.device.geometry(h) for i, h in enumerate(outs)])

    def generalize(self, name: str, fn: Any, ins: tuple[Any, ...], kw: dict[str, Any], r: Any) -> Event | None:
        """Finds an event that differs from this call only in Python floats, and generalizes it.

        From then on these floats are not compared. The kernel must return as many results, of the
        same geometry.
        """
        for e in self.at.children:
            if (e.fn is fn and e.name == name and e.ins == ins and e.loose is False and same_except_floats(e.kw, kw)
                    and self.geometries(r) == (e.several, e.outs)):
                e.loose = True
                GeneralizationCount.count += 1
                return e
        return None

    def specialize(self, e: Event, r: Any) -> bool:
        """Specializes an event if a constant decides the number or the sizes of the results: it then
        holds for its own constants only. Returns whether it did.
        """
        outs = r if e.several else (r,)
        if outs.__class__ is tuple and len(outs) == len(e.outs) and all([
                h is None if g is None else h is not None and (g.__class__ is int or self.device.geometry(h)[:2] == g[:2]) for h, g in zip(outs, e.outs)]):
            return False
        e.loose = None
        GeneralizationCount.count += 1
        return True
