"""Speculative replay: the kernels of a compiled function are deferred and run as one device graph.

While a session is open, the user's Python code runs unchanged down to the device's kernels. The
kernels are not launched. Instead the session follows the *trace* that earlier runs have recorded: a
tree of `Event`s (kernel, operands, constants). It returns pending handles, whose memory is filled
later (`pending`). When a value is read, or at the end, the session computes everything: as one
graph if the device has a graph for this segment of the trace, else kernel by kernel. Where the
Python code diverges from earlier runs, the deferred kernels run at once and the trace gets a new
branch. Every Python value is therefore evaluated again in every run, and nothing can be stale. In
addition to the graph, a run costs the Python code of its ops without their kernels.

A graph is built when a segment occurs the second time, so work that happens once, such as
allocating an optimizer's state, is never compiled. Python numbers passed to kernels (learning
rates, step counts) are not part of the trace. A graph holds for the numbers it was built with until
one of them changes; that number then becomes an argument of the graph.

The run follows the trace with a `TraceCursor`. `DeferredCalls` has the deferred calls and runs them
kernel by kernel. `SegmentCompiler` chooses or builds a graph for them. `SessionDevice` replaces the
device while a session is open.

    counters   "graphs": graphs built; "graph_runs": graph launches; "eager": kernels launched one
               by one while a session was open; "breaks": graph breaks; "shared": sizes that an
               existing graph covers (core/compile/shape_specialization.py)
"""
from __future__ import annotations

import collections
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mindtorch.backend.device import Device, UnsupportedByKernel
from mindtorch.backend.errors import FullGraphError
from mindtorch.backend.mindspore.private import unrecorded
from mindtorch.core.compile import shape_specialization
from mindtorch.core.compile.deferred_execution import DeferredCalls, counters
from mindtorch.core.compile.deferred_kernels import SCALAR_TYPES, current
from mindtorch.core.compile.segment_compiler import SegmentCompiler
from mindtorch.core.compile.session_device import SessionBindings, aside, at_first, bindings_of
from mindtorch.core.compile.trace_cursor import TraceCursor
from mindtorch.core.compile.trace_tree import Event, Leaf, Trace
from mindtorch.core.device import device_dispatch, device_state

__all__ = ["ReplaySession", "Trace", "aside", "at_first", "backward", "bindings_of", "breaks", "counters", "current", "device_of_sessions", "flush", "outside",
           "session"]

#: reason of a graph break -> number of occurrences
breaks: collections.Counter[str] = collections.Counter()


class ReplaySession:
    """One run of a compiled callable."""

    def __init__(self, trace: Trace, device: Device) -> None:
        self.trace, self.device = trace, device
        self.thread = threading.get_ident()
        self.reasons: list[str] = []
        made = bindings_of[device.type]
        self.view, self.write, self.fill, self.cast = made.view, made.write, made.fill, made.cast
        self.cursor = TraceCursor(trace, device)
        self.calls = DeferredCalls(self.cursor, device)
        self.compiler = SegmentCompiler(trace, device, self.cursor, self.calls, self.view)

    def call(self, name: str, fn: Callable[..., Any], handles: Sequence[Any], kw: dict[str, Any]) -> Any:
        """Handles a call of a device kernel: defers it or runs it at once."""
        if threading.get_ident() != self.thread:
            self.flush("another thread uses the device")
            return fn(*handles, **kw)
        ins: list[Any] = []
        scalars: tuple[Any, ...] = ()
        cursor = self.cursor
        token = cursor.token
        for h in handles:
            if h is None:
                ins.append(None)
            elif h.__class__ in SCALAR_TYPES:
                ins.append(h.__class__)
                scalars += (h,)
            else:
                at = h.__dict__.get("_lazy")
                ins.append(at[1] if at is not None and at[0] is token else cursor.enter(h, self.calls.diverge))
        key = tuple(ins)
        if cursor.dry:
            e = cursor.find(name, fn, key, kw)
            if e is not None:
                if e.eager is None:
                    return self.calls.put_off(e, scalars, kw)
                self.flush(e.eager)
                return self.call_eagerly(name, fn, handles, kw)
            self.calls.diverge()
        elif cursor.at.children:
            # A run that has diverged may come back to known events.
            e = cursor.find(name, fn, key, kw)
            if e is not None and e.eager is not None:
                self.flush(e.eager)
                return self.call_eagerly(name, fn, handles, kw)
        counters["eager"] += 1
        ahead = cursor.ahead
        try:
            r = fn(*handles, **kw) if ahead is None else ahead.run(len(cursor.log), name, fn, handles, kw)
        # the host computes it; the calls before it form their own graph
        except UnsupportedByKernel:
            if cursor.find(name, fn, key, kw) is None:
                cursor.append(name, fn, key, kw).eager = f"{name}: the device's kernel does not support these operands"
            raise
        e = cursor.find(name, fn, key, kw)
        if e is not None and e.loose and cursor.specialize(e, r):
            e = cursor.find(name, fn, key, kw)
        if e is None:
            e = cursor.generalize(name, fn, key, kw, r)
        if e is None:
            e = cursor.append(name, fn, key, kw)
            e.several, e.outs = cursor.geometries(r)
        outs = r if e.several else (r,)
        cursor.at = e
        cursor.log.append((e, scalars, kw))
        for h in outs:
            if h is not None:
                if "_lazy" not in h.__dict__ or h.__dict__["_lazy"][0] is not cursor.token:
                    h.__dict__["_lazy"] = cursor.token, len(cursor.values)
            cursor.values.append(None)
        if ahead is not None:
            ahead.values.extend(outs)
        return r

    def geometry(self, h: Any) -> Any:
        """Returns the geometry of a handle, which may be pending."""
        return h.__dict__["_geometry"] if h.__class__ is current.pending else self.device.geometry(h)

    def call_eagerly(self, name: str, fn: Callable[..., Any], handles: Sequence[Any], kw: dict[str, Any]) -> Any:
        """Runs a call that no graph can contain."""
        counters["eager"] += 1
        with unrecorded():
            return fn(*handles, **kw)

    def flush(self, reason: str) -> None:
        """Flushes all deferred calls. This is a graph break if more calls follow."""
        self.trace.used = True
        with device_state.DEVICE_LOCK:
            self._flush(reason)

    def finish(self, reason: str) -> None:
        """Ends the run."""
        with device_state.DEVICE_LOCK:
            self._flush(reason, last=True)

    def _flush(self, reason, last=False):
        cursor = self.cursor
        if not cursor.log:
            return
        with aside(self):
            end = cursor.at.end
            if end is None:
                end = cursor.at.end = Leaf()
            end.reason = reason
            ran = False
            if cursor.dry:
                try:
                    ran = self.compiler.compute(end)
                except BaseException:
                    cursor.begin(Event("start", None, (), {}))
                    raise
            if not end.seen:
                shape_specialization.observe(self.trace, end, cursor.log)
            end.seen += 1
            if cursor.ahead is not None and not cursor.dry and not end.graphs and cursor.ahead.made(self.trace, end, cursor.log, self.compiler.scalars(end)):
                counters["shared"] += 1
            if not ran:
                end.given = [weakref.ref(cursor.values[n]) for n in cursor.given]
                end.scalars = self.compiler.scalars(end)
        if not last:
            counters["breaks"] += 1
            breaks[reason] += 1
            self.reasons.append(reason)
            if self.trace.fullgraph:
                cursor.begin(end.next)
                raise FullGraphError(reason)
        cursor.begin(end.next)


def device_of_sessions() -> Device | None:
    """Returns the device that supports graphs, or None."""
    return next((d for d in device_dispatch.DEVICES.values() if d.graphs and not d.shadows), None)


@contextlib.contextmanager
def session(trace: Trace) -> Iterator[ReplaySession | None]:
    """Defers the device's computations until the end of the block, or until a value is read.

    Yields None inside another session, and if no device supports sessions.
    """
    with device_state.DEVICE_LOCK:  # two threads must not both find no open session
        device = None if current.session is not None else trace.device or device_of_sessions()
        if device is not None:
            bindings = bindings_of.get(device.type)
            if bindings is None or not bindings.current(device):
                bindings = bindings_of[device.type] = SessionBindings(device)
            s = current.session = ReplaySession(trace, device)
            bindings.put(True)
    if device is None:
        yield None
        return
    assert bindings is not None
    try:
        try:
            yield s
        except BaseException:
            # Calls deferred before the error are computed, as they would have been without a
            # session: other tensors may depend on them.
            s.trace.fullgraph, fullgraph = False, s.trace.fullgraph
            try:
                s.finish("an exception")
            finally:
                s.trace.fullgraph = fullgraph
            raise
        s.finish("")
    finally:
        with device_state.DEVICE_LOCK:
            bindings_of[device.type].put(False)
            current.session = None


class _Backward:
    """Registry of backward passes outside of sessions.

    A backward pass through nodes that a compiled call has created is compiled as well.
    """

    def __init__(self):
        #: trace -> (first, last) sequence numbers that enclose the nodes of its last forward run
        #: (`sequence` in core/autograd/graph.py)
        self.spans: dict[Trace, tuple[int, int]] = {}

    def follows(self, trace: Trace, first: int, last: int) -> None:
        """Assigns backward passes through nodes with these sequence numbers to a trace."""
        self.spans.pop(trace, None)
        self.spans[trace] = first, last
        if len(self.spans) > 8:
            del self.spans[next(iter(self.spans))]

    def of(self, roots: Sequence[Any]) -> Trace | None:
        """Returns the trace for a backward pass from these tensors or GradientEdges, or None."""
        lowest = min([first for first, _ in self.spans.values()])
        found = [t[0] if isinstance(t, tuple) else t._grad_fn_ for t in roots]
        stack, known = [n for n in found if n is not None], set()
        while stack:
            n = stack.pop()
            if n in known or n._sequence_number < lowest:
                continue
            known.add(n)
            for trace, (first, last) in self.spans.items():
                if first < n._sequence_number < last:
                    return trace
            stack += [e[0] for e in n._next_edges if e.__class__ is tuple]
        return None


backward = _Backward()


@contextlib.contextmanager
def outside(reason: str) -> Iterator[None]:
    """Context manager for a block that is not part of the open session.

    All deferred calls are flushed first, and calls inside the block run at once.
    """
    s = current.session
    if s is None:
        yield
        return
    s.flush(reason)
    with aside(s):
        yield


def flush(reason: str) -> None:
    """Flushes all calls that the open session has deferred."""
    if current.session is not None:
        current.session.flush(reason)
