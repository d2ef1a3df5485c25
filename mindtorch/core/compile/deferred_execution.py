"""Deferred calls: pending results, and the execution of the calls kernel by kernel."""
from __future__ import annotations

import collections
from typing import Any

from mindtorch.backend.device import Device, UnsupportedByKernel
from mindtorch.backend.mindspore.private import unrecorded
from mindtorch.core.compile.deferred_kernels import current
from mindtorch.core.compile.trace_cursor import TraceCursor
from mindtorch.core.compile.trace_tree import Event, operands
from mindtorch.core.device import device_dispatch

#: event counts over all sessions
counters: collections.Counter[str] = collections.Counter()


# ------------------------------------------------------------------ pending handles
def pending() -> Any:
    """Returns a handle that has no memory yet."""
    raise RuntimeError("no device supports pending handles")


#: pending handles that are free for reuse
free_handles: list[Any] = []


def use(device: Device) -> None:
    """Installs a device's class of pending handles."""
    global pending
    current.pending, pending = device.pending_class, device.pending
    free_handles.clear()


# ------------------------------------------------------------------ calls
class DeferredCalls:
    """The deferred calls of a segment."""

    def __init__(self, cursor: TraceCursor, device: Device) -> None:
        self.cursor, self.device = cursor, device

    def put_off(self, e: Event, scalars: tuple[Any, ...], kw: dict[str, Any]) -> Any:
        """Defers a call of event `e`; returns its results as pending handles."""
        cursor = self.cursor
        cursor.at = e
        cursor.log.append((e, scalars, kw))
        values, token = cursor.values, cursor.token
        outs = e.outs
        if not e.several:
            g = outs[0]
            if g is None:
                values.append(None)
                return None
            p = free_handles.pop() if free_handles else pending()
            p.__dict__["_lazy"] = token, len(values)
            p.__dict__["_geometry"] = g
            values.append(p)
            return p
        made: list[Any] = []
        for g in outs:
            if g is None or g.__class__ is int:
                made.append(None if g is None else made[g])
                values.append(None)
                continue
            p = free_handles.pop() if free_handles else pending()
            p.__dict__["_lazy"] = token, len(values)
            p.__dict__["_geometry"] = g
            values.append(p)
            made.append(p)
        return tuple(made)

    def diverge(self) -> None:
        """Runs the deferred calls now, since the trace has no such event; the rest runs eagerly."""
        if not self.cursor.dry:
            return
        self.perform()
        self.cursor.dry = False

    def perform(self) -> None:
        """Runs the deferred calls kernel by kernel."""
        with unrecorded():
            self._launch()

    def _launch(self):
        cursor = self.cursor
        values: list[Any] = []
        for at, (e, scalars, kw) in enumerate(cursor.log):
            if e.fn is None:
                if cursor.ahead is not None:
                    cursor.ahead.enter(e, cursor.values[len(values)])
                values.append(cursor.values[len(values)])
                continue
            counters["eager"] += 1
            self.run(e, scalars, kw, values, at)
        self.fill(values)

    def run(self, e: Event, scalars: tuple[Any, ...], kw: dict[str, Any], values: list[Any], at: int = 0) -> None:
        """Runs one call, number `at` of the segment, and appends its results to `values`."""
        ahead = self.cursor.ahead
        given = operands(e.ins, values, scalars)
        try:
            r = e.fn(*given, **kw) if ahead is None else ahead.run(at, e.name, e.fn, given, kw)
        except UnsupportedByKernel as error:
            # The kernel may not support these values; handled as in `device_dispatch.run`.
            if error.rejection is not None:
                device_dispatch.raise_deferred_error(error.rejection, e.name, given, kw, self.device)
            r = device_dispatch.call_cpu_kernel(e.name, given, kw, self.device)
        else:
            if e.loose and self.cursor.specialize(e, r):
                raise RuntimeError(f"{e.name}: a changed Python number decides the number or sizes of the results, and results "
                                   "of the recorded number have already been returned: call the compiled function again")
        values.extend(r if e.several else (r,))
        if ahead is not None:
            ahead.values.extend(r if e.several else (r,))

    def fill(self, values: list[Any]) -> None:
        """Gives the pending handles the memory of the computed values, by value index."""
        mine, kind = self.cursor.values, current.pending
        for i, p in enumerate(mine):
            if p.__class__ is kind:
                # Not exclusive: a kernel may return one tensor twice, and views refer to the handle
                # that they view.
                position = p.__dict__["_lazy"]
                self.device.assign_memory(p, values[i], False)
                # a run that has only diverged from a trace keeps the same value indices
                p.__dict__["_lazy"] = position
                mine[i] = None
