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

    counters   "graphs": graphs built; "graph_runs": graph launches; "eager": kernels launched one
               by one while a session was open; "breaks": graph breaks; "shared": sizes that an
               existing graph covers (core/compile/shape_specialization.py)
"""
from __future__ import annotations

import collections
import contextlib
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any


from mindtorch.backend.errors import BackendCompileError, FullGraphError, RuntimeGuardFailed
from mindtorch.backend.device import Device, UnsupportedByKernel, GeometryArray
from mindtorch.backend.interface import Array, Handle, Sizes, Strides, NpDtype
from mindtorch.backend.kernels import TABLES
from mindtorch.backend.mindspore.private import unrecorded
from mindtorch.backend.mindspore.recorder_api import same
from mindtorch.core.compile import shape_specialization
from mindtorch.core.device import device_dispatch
from mindtorch.core.compile.deferred_kernels import SCALAR_TYPES, DeferredRngState, current, may_vary, defer_kernel
from mindtorch.core.compile.trace_tree import (Leaf, Event, GeneralizationCount, CompiledSegment, Trace, same_except_floats, operands, same_constants)

#: event counts over all sessions
counters: collections.Counter[str] = collections.Counter()
#: reason of a graph break -> number of occurrences
breaks: collections.Counter[str] = collections.Counter()

#: maximum number of graphs per trace segment (for other numbers or other captured tensors)
LIMIT = 8


class ReplaySession:
    """One run of a compiled callable."""

    def __init__(self, trace: Trace, device: Device) -> None:
        self.trace, self.device = trace, device
        self.thread = threading.get_ident()
        self.reasons: list[str] = []
        made = _bindings[device.type]
        self.view, self.write, self.fill, self.cast = made.view, made.write, made.fill, made.cast
        self._begin(trace.start)

    def _begin(self, start):
        self.token = object()
        self.at = start
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

    # ---- operands
    def _enter(self, h):
        """Returns the value index of a tensor from outside."""
        if h.__class__ is Pending:
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
        e = self._next("given", None, (), kw)
        if e is None:
            if self.dry:
                self.ahead = shape_specialization.record_ahead(self.trace, self.at, lambda: self.device.recorder(self.trace.level))
            self._diverge()
            e = self._new("given", None, (), kw)
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
    def _next(self, name, fn, ins, kw):
        """Returns the event that the trace has for such a call, or None."""
        children = self.at.children
        for e in children:
            if e.fn is fn and e.name == name and e.ins == ins and (e.kw is kw or same_constants(e, kw)):
                if e is not children[0]:
                    self.at.children = [e, *[c for c in children if c is not e]]
                return e
        return None

    def _new(self, name, fn, ins, kw):
        e = Event(name, fn, ins, kw)
        self.trace.grow(self.at, e)
        return e

    def call(self, name: str, fn: Callable[..., Any], handles: Sequence[Any], kw: dict[str, Any]) -> Any:
        """Handles a call of a device kernel: defers it or runs it at once."""
        if threading.get_ident() != self.thread:
            self.flush("another thread uses the device")
            return fn(*handles, **kw)
        ins: list[Any] = []
        scalars: tuple[Any, ...] = ()
        token = self.token
        for h in handles:
            if h is None:
                ins.append(None)
            elif h.__class__ in SCALAR_TYPES:
                ins.append(h.__class__)
                scalars += (h,)
            else:
                at = h.__dict__.get("_lazy")
                ins.append(at[1] if at is not None and at[0] is token else self._enter(h))
        key = tuple(ins)
        if self.dry:
            e = self._next(name, fn, key, kw)
            if e is not None:
                if e.eager is None:
                    return self._put_off(e, scalars, kw)
                self.flush(e.eager)
                return self._call_eagerly(name, fn, handles, kw)
            self._diverge()
        elif self.at.children:
            # A run that has diverged may come back to known events.
            e = self._next(name, fn, key, kw)
            if e is not None and e.eager is not None:
                self.flush(e.eager)
                return self._call_eagerly(name, fn, handles, kw)
        counters["eager"] += 1
        ahead = self.ahead
        try:
            r = fn(*handles, **kw) if ahead is None else ahead.run(len(self.log), name, fn, handles, kw)
        # the host computes it; the calls before it form their own graph
        except (UnsupportedByKernel, ValueError, TypeError):
            if self._next(name, fn, key, kw) is None:
                self._new(name, fn, key, kw).eager = f"{name}: the device's kernel does not support these operands"
            raise
        e = self._next(name, fn, key, kw)
        if e is not None and e.loose and self._tightened(e, r):
            e = self._next(name, fn, key, kw)
        if e is None:
            e = self._loosened(name, fn, key, kw, r)
        if e is None:
            e = self._new(name, fn, key, kw)
            e.several, e.outs = self._shapes(r)
        outs = r if e.several else (r,)
        self.at = e
        self.log.append((e, scalars, kw))
        for h in outs:
            if h is not None:
                if "_lazy" not in h.__dict__ or h.__dict__["_lazy"][0] is not self.token:
                    h.__dict__["_lazy"] = self.token, len(self.values)
            self.values.append(None)
        if ahead is not None:
            ahead.values.extend(outs)
        return r

    def geometry(self, h):
        """Returns the geometry of a handle, which may be pending."""
        return h.__dict__["_geometry"] if h.__class__ is Pending else self.device.geometry(h)

    def _shapes(self, r):
        """Returns an event's record of a kernel's results: (True for a tuple, geometry of each)."""
        several = r.__class__ is tuple
        outs = r if several else (r,)
        first = {id(h): i for i, h in reversed(list(enumerate(outs)))}
        return several, tuple([None if h is None else first[id(h)] if first[id(h)] != i else self.device.geometry(h) for i, h in enumerate(outs)])

    def _loosened(self, name, fn, ins, kw, r):
        """Finds an event that differs from this call only in Python floats, and generalizes it.

        From then on these floats are not compared. The kernel must return as many results, of the
        same geometry.
        """
        for e in self.at.children:
            if e.fn is fn and e.name == name and e.ins == ins and e.loose is False and same_except_floats(e.kw, kw) and self._shapes(r) == (e.several, e.outs):
                e.loose = True
                GeneralizationCount.count += 1
                return e
        return None

    def _tightened(self, e, r):
        """True if a constant decides the number or the sizes of the results.

        The event is then specialized: it holds for its own constants only.
        """
        outs = r if e.several else (r,)
        if outs.__class__ is tuple and len(outs) == len(e.outs) and all([
                h is None if g is None else h is not None and (g.__class__ is int or self.device.geometry(h)[:2] == g[:2]) for h, g in zip(outs, e.outs)]):
            return False
        e.loose = None
        GeneralizationCount.count += 1
        return True

    def _put_off(self, e, scalars, kw):
        self.at = e
        self.log.append((e, scalars, kw))
        values, token = self.values, self.token
        outs = e.outs
        if not e.several:
            g = outs[0]
            if g is None:
                values.append(None)
                return None
            p = _pool.pop() if _pool else pending()
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
            p = _pool.pop() if _pool else pending()
            p.__dict__["_lazy"] = token, len(values)
            p.__dict__["_geometry"] = g
            values.append(p)
            made.append(p)
        return tuple(made)

    def _call_eagerly(self, name, fn, handles, kw):
        """Runs a call that no graph can contain."""
        counters["eager"] += 1
        with unrecorded():
            return fn(*handles, **kw)

    # ---- computing deferred calls
    def _diverge(self):
        """Runs the deferred calls now, since the trace has no such event; the rest runs eagerly."""
        if not self.dry:
            return
        self._perform()
        self.dry = False

    def _perform(self):
        """Runs the deferred calls kernel by kernel."""
        with unrecorded():
            self._launch()

    def _launch(self):
        values: list[Any] = []
        for at, (e, scalars, kw) in enumerate(self.log):
            if e.fn is None:
                if self.ahead is not None:
                    self.ahead.enter(e, self.values[len(values)])
                values.append(self.values[len(values)])
                continue
            counters["eager"] += 1
            self._one(e, scalars, kw, values, at)
        self._fill(values)

    def _one(self, e, scalars, kw, values, at=0):
        given = operands(e.ins, values, scalars)
        try:
            r = e.fn(*given, **kw) if self.ahead is None else self.ahead.run(at, e.name, e.fn, given, kw)
        except (UnsupportedByKernel, ValueError, TypeError) as error:
            # The kernel may not support these values, or fail this time only; handled as in
            # `devices.run`.
            if not isinstance(error, UnsupportedByKernel) and not self.device.is_unsupported(error):
                device_dispatch.raise_deferred_error(error, e.name, given, kw, self.device)
            r = device_dispatch.call_cpu_kernel(e.name, given, kw, self.device)
        else:
            if e.loose and self._tightened(e, r):
                raise RuntimeError(f"{e.name}: a changed Python number decides the number or sizes of the results, and results "
                                   "of the recorded number have already been returned: call the compiled function again")
        values.extend(r if e.several else (r,))
        if self.ahead is not None:
            self.ahead.values.extend(r if e.several else (r,))

    def _fill(self, values):
        for i, p in enumerate(self.values):
            if p.__class__ is Pending:
                # Not exclusive: a kernel may return one tensor twice, and views refer to the handle
                # that they view.
                position = p.__dict__["_lazy"]
                self.device.assign_memory(p, values[i], False)
                # a run that has only diverged from a trace keeps the same value indices
                p.__dict__["_lazy"] = position
                self.values[i] = None

    def flush(self, reason: str) -> None:
        """Flushes all deferred calls. This is a graph break if more calls follow."""
        self.trace.used = True
        with device_dispatch.DEVICE_LOCK:
            self._flush(reason)

    def finish(self, reason: str) -> None:
        """Ends the run."""
        with device_dispatch.DEVICE_LOCK:
            self._flush(reason, last=True)

    def _flush(self, reason, last=False):
        if not self.log:
            return
        with aside(self):
            end = self.at.end
            if end is None:
                end = self.at.end = Leaf()
            end.reason = reason
            ran = False
            if self.dry:
                try:
                    ran = self._compute(end)
                except BaseException:
                    self._begin(Event("start", None, (), {}))
                    raise
            if not end.seen:
                shape_specialization.observe(self.trace, end, self.log)
            end.seen += 1
            if self.ahead is not None and not self.dry and not end.graphs and self.ahead.made(self.trace, end, self.log, self._scalars(end)):
                counters["shared"] += 1
            if not ran:
                end.given = [weakref.ref(self.values[n]) for n in self.given]
                end.scalars = self._scalars(end)
        if not last:
            counters["breaks"] += 1
            breaks[reason] += 1
            self.reasons.append(reason)
            if self.trace.fullgraph:
                self._begin(end.next)
                raise FullGraphError(reason)
        self._begin(end.next)

    def _scalars(self, end):
        """Returns the Python numbers passed to kernels that are not part of the trace."""
        log = self.log
        if end.loose != GeneralizationCount.count:
            end.loose = GeneralizationCount.count
            positions: list[tuple[int, Any]] = []
            for i, (e, scalars, kw) in enumerate(log):
                positions += [(i, j) for j in range(len(scalars))]
                if e.fn is not None:
                    positions += [(i, k) for k, v in kw.items() if v.__class__ is DeferredRngState or e.loose and v.__class__ is float]
            if positions != end.positions:
                end.positions = positions
                end.graphs.clear()  # graphs refer to numbers by position
                end.varying.clear()
        return [log[i][1][j] if j.__class__ is int else log[i][2][j] for i, j in end.positions]

    def _compute(self, end):
        scalars = self._scalars(end)
        values, count = self.values, sys.getrefcount
        # 2 references: the list and getrefcount's argument
        live = [i for i in range(len(values)) if values[i].__class__ is Pending and count(values[i]) > 2]
        given = [self.values[n] for n in self.given]
        roots = self._outputs(end, live)
        if end.refused is None:
            for made in end.graphs:
                if made.outputs.keys() >= roots and made.holds(given, scalars):
                    if made is not end.graphs[0]:
                        end.graphs.remove(made)
                        end.graphs.insert(0, made)
                    return self._run(end, made, given, scalars, live)
            if end.seen:
                if end.built < LIMIT:
                    with unrecorded():
                        return self._build(end, given, scalars, roots)
                end.refused = f"more than {LIMIT} graphs for one trace segment: its tensors or numbers differ in each run"
        self._perform()
        return False

    def _outputs(self, end, live):
        """Returns the indices of the values whose storage the live values use."""
        if not live:
            return set()
        lies = self._lies(end)
        return {lies[i][0] for i in live} - set(self.given)

    def _lies(self, end):
        """Returns (index of the value that owns the storage, view event or None) for every value.
        """
        if end.lies is not None:
            return end.lies
        found: list[Any] = []
        for e, _, _kw in self.log:
            n = len(found)
            if e.fn is None:
                found.append((n, None))
            elif e.fn is self.view:
                found.append((found[e.ins[0]][0], e))
            else:
                found.extend([(n + i, None) for i in range(len(e.outs))])
        end.lies = found
        return found

    def _run(self, end, made, given, scalars, live):
        try:
            outputs = made.graph.run(given, scalars, self.device)
        except BackendCompileError as e:
            if not made.graph.free:  # with free sizes, each size gets its own graph from now on
                end.refused = f"MindSpore cannot compile it: {str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__}"
            end.graphs.remove(made)
            self._perform()
            return False
        except RuntimeGuardFailed:  # the kernel itself then raises the error, at its own call
            self._perform()
            return False
        counters["graph_runs"] += 1
        at = dict(zip(made.outputs, outputs))
        self._appear(end, live, at)
        # Pending handles without other references are recycled.
        for i in range(len(self.values)):
            if self.values[i].__class__ is Pending and len(_pool) < 4096 and sys.getrefcount(self.values[i]) == 2:
                _pool.append(self.values[i])
        return True

    def _appear(self, end, live, at):
        """Fills the live handles from the computed values: {value index: handle}."""
        lies = self._lies(end)
        values: dict[int, Any] = dict(at)
        viewed = set()  # handles with views; the views refer to the handle, so it must stay valid
        for n in self.given:
            values[n] = self.values[n]

        def real(i):
            h = values.get(i)
            if h is None:
                e = lies[i][1]
                of = real(e.ins[0])
                viewed.add(id(of))
                h = values[i] = self.device.view(of, **e.kw)
            return h
        for i, h in [(i, real(i)) for i in live]:
            self.device.assign_memory(self.values[i], h, id(h) not in viewed)
            self.values[i] = None

    def _build(self, end, given, scalars, roots):
        """Runs everything kernel by kernel and builds a graph from it."""
        end.built += 1
        before = end.scalars or []
        if len(before) != len(scalars):
            end.varying = set()  # the positions have changed
        else:
            end.varying |= {i for i, n in enumerate(scalars) if not same(before[i], n)}
        family = shape_specialization.shape_group(self.trace, end, self.log)
        if family is not None:
            family.vary(end, scalars)
        # A constant can be a graph argument only where the kernel accepts tensors for numbers;
        # another kernel may need its value.
        varying = {(i, j): n for n, (i, j) in enumerate(end.positions)
                   if n in end.varying and (j.__class__ is int or may_vary(self.log[i][0].fn, j))}
        drawn = {i: n for n, (i, j) in enumerate(end.positions) if scalars[n].__class__ is DeferredRngState}
        maker = self.device.recorder(self.trace.level)
        maker.begin(given, self._known(), family.state_inputs(given, end) if family is not None else [r() is h for r, h in zip(end.given, given)])
        values: list[Any] = []
        for i, (e, ns, kw) in enumerate(self.log):
            if e.fn is None:
                values.append(self.values[len(values)])
                continue
            counters["eager"] += 1
            if i in drawn:
                kw = {k: v.keyed(drawn[i]) if v.__class__ is DeferredRngState else v for k, v in kw.items()}
            if varying:
                ns = tuple([maker.number(varying[i, j], n, e.name) if (i, j) in varying else n for j, n in enumerate(ns)])
                if e.loose:
                    kw = {k: maker.number(varying[i, k], v, e.name) if (i, k) in varying else v for k, v in kw.items()}
            with maker.recording():
                self._one(e, ns, kw, values)
            if maker.broken is not None:
                e.eager = f"{e.name}: {maker.broken}"
                maker.restart()
        if maker.complete:
            order = sorted(roots.union(*[made.outputs for made in end.graphs], family.outputs if family is not None else ()))
            if family is not None and family.shared is None:
                family.shared = maker.shared()
            graph, why = maker.made([values[i] for i in order], None if family is None else family.shared)
            if graph is None:
                end.refused = maker.broken
            else:
                fixed = [(n, scalars[n]) for n, position in enumerate(end.positions) if position not in varying]
                made = CompiledSegment(graph, dict.fromkeys(order), fixed)
                end.graphs.insert(0, made)
                counters["graphs" if graph.new else "shared"] += 1
                if family is not None:
                    family.learn(end, made, self.trace, self.log, why)
                    if graph.free:
                        shape_specialization.prune(self.trace, self.log)
        self._fill(values)
        return False

    def _known(self):
        """Returns the event constants of each given tensor.

        `first` becomes an index into the given tensors.
        """
        position = {number: n for n, number in enumerate(self.given)}
        events = [e.kw for e, _, _ in self.log if e.fn is None]
        return [{**kw, "first": n if kw["first"] is None else position[kw["first"]]} for n, kw in enumerate(events)]


# ------------------------------------------------------------------ pending handles
Pending: Any = type("Pending", (), {})  # replaced by the device's class (`use`)


def pending() -> Any:
    """Returns a handle that has no memory yet."""
    raise RuntimeError("no device supports pending handles")


#: pending handles that are free for reuse
_pool: list[Any] = []


#: callbacks that run when the first session opens
at_first: list[Callable[[], None]] = []


def use(device: Device) -> None:
    """Prepares sessions on a device by installing its class of pending handles."""
    global Pending, pending
    Pending, pending = device.pending_class, device.pending
    current.pending = Pending
    _pool.clear()
    while at_first:
        at_first.pop()()


# ------------------------------------------------------------------ the device seen during a session
class _LazyDevice:
    """Device proxy while a session is open.

    Methods that touch memory go through the session; all others are the device's own.
    """

    def __init__(self, device: Device) -> None:
        self.real = device
        self.type, self.names, self.indexed, self.upcasts_half, self.strided = device.type, device.names, device.indexed, device.upcasts_half, device.strided

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["real"], name)

    def view(self, handle: Handle, sizes: Sizes, strides: Strides, offset: int, np_dtype: NpDtype) -> Handle:
        s = current.session
        return s.call("view", s.view, (handle,), {"sizes": sizes, "strides": strides, "offset": offset, "np_dtype": np_dtype})

    def write(self, handle: Handle, value: Handle) -> None:
        s = current.session
        s.call("write", s.write, (handle, value), {})

    def fill(self, handle: Handle, number: Array) -> None:
        s = current.session
        if threading.get_ident() == s.thread:
            s.call("fill", s.fill, (handle, number.item() if number.dtype.kind in "fiu" else 0),
                   {"np_dtype": number.dtype, "other": None if number.dtype.kind in "fiu" else number.tobytes()})
        else:
            s.flush("another thread uses the device")
            self.real.fill(handle, number)

    def cast(self, handle: Handle, np_dtype: NpDtype) -> Handle:
        s = current.session
        return s.call("cast", s.cast, (handle,), {"np_dtype": np_dtype})

    def download(self, handle: Handle) -> Array:
        if handle.__class__ is Pending or current.session.log:
            current.session.flush("values are read")
        return self.real.download(handle)

    def geometry(self, handle: Handle) -> tuple[Sizes, NpDtype, Strides]:
        if handle.__class__ is Pending:
            return handle.__dict__["_geometry"]
        return self.real.geometry(handle)

    def meta_array(self, handle: Handle) -> GeometryArray:
        if handle.__class__ is Pending:
            return self.real.new_meta_array(*handle.__dict__["_geometry"])
        return self.real.meta_array(handle)

    def address(self, handle: Handle) -> int:
        if handle.__class__ is Pending:
            current.session.flush("the address of a tensor is read")
        return self.real.address(handle)

    def on_missing_kernel(self, what: str) -> None:
        current.session.flush(what)

    def is_unsupported(self, error: Exception) -> bool:
        return self.real.is_unsupported(error)

    def synchronize(self) -> None:
        current.session.flush("the device is synchronized")
        self.real.synchronize()

    def flush(self) -> None:
        return None

    def from_mindspore(self, tensor: Any) -> Handle:
        return self.real.from_mindspore(tensor)

    def writable(self, handle: Handle) -> Handle:
        current.session.flush("MindSpore writes to a tensor")
        return self.real.writable(handle)


class _SessionBindings:
    """Replacements that a session installs for a device, its kernel table and its kernel cache."""

    def __init__(self, device):
        use(device)
        self.device, self.table, self.ways = device, TABLES[device.type], device_dispatch._KERNEL_CACHE[device.type]
        self.lazy_table, self.lazy_ways = {n: defer_kernel(n, fn) for n, fn in self.table.items()}, {}
        self.lazy_device = _LazyDevice(device)
        self.names = [n for n, d in device_dispatch.DEVICES.items() if d is device]
        # Cache the bound methods: attribute access creates a new object each time.
        self.view, self.write, self.cast, self.fill = device.view, device.write, device.cast, device.fill_number

    def current(self, device):
        """True if the device's registration has not changed since."""
        return self.device is device and self.table is TABLES[device.type] and self.ways is device_dispatch._KERNEL_CACHE[device.type]

    def put(self, lazy):
        """Installs the replacements, or restores the originals."""
        for n in self.names:
            device_dispatch.DEVICES[n] = self.lazy_device if lazy else self.device
            TABLES[n] = self.lazy_table if lazy else self.table
            device_dispatch._KERNEL_CACHE[n] = self.lazy_ways if lazy else self.ways


_bindings: dict[str, _SessionBindings] = {}


@contextlib.contextmanager
def aside(session):
    """Context manager that restores the real device inside the block."""
    bindings = _bindings[session.device.type]
    if device_dispatch.DEVICES[bindings.names[0]] is not bindings.lazy_device:
        yield
        return
    bindings.put(False)
    try:
        yield
    finally:
        bindings.put(True)


def device_of_sessions() -> Device | None:
    """Returns the device that supports graphs, or None."""
    return next((d for d in device_dispatch.DEVICES.values() if d.graphs and not d.shadows), None)


@contextlib.contextmanager
def session(trace: Trace) -> Iterator[ReplaySession | None]:
    """Defers the device's computations until the end of the block, or until a value is read.

    Yields None inside another session, and if no device supports sessions.
    """
    with device_dispatch.DEVICE_LOCK:  # two threads must not both find no open session
        device = None if current.session is not None else trace.device or device_of_sessions()
        if device is not None:
            bindings = _bindings.get(device.type)
            if bindings is None or not bindings.current(device):
                bindings = _bindings[device.type] = _SessionBindings(device)
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
        with device_dispatch.DEVICE_LOCK:
            _bindings[device.type].put(False)
            current.session = None


class _Backward:
    """Registry of backward passes outside of sessions.

    A backward pass through nodes that a compiled call has created is compiled as well.
    """

    def __init__(self):
        #: trace -> (first, last) sequence numbers that enclose the nodes of its last forward run
        #: (tape.sequence)
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
