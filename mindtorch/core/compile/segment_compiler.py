"""Choice and construction of the graphs of a segment.

A graph is built when a segment occurs the second time. It holds for certain values of the Python
numbers passed to kernels, until one of them changes; that number then becomes an argument.
"""
from __future__ import annotations

import sys
from typing import Any

from mindtorch.backend.device import Device
from mindtorch.backend.errors import BackendCompileError, RuntimeGuardFailed
from mindtorch.backend.kernels import flags_of
from mindtorch.backend.mindspore.private import unrecorded
from mindtorch.backend.mindspore.recorder_api import same
from mindtorch.core.compile import shape_specialization
from mindtorch.core.compile.deferred_execution import DeferredCalls, counters, free_handles
from mindtorch.core.compile.deferred_kernels import DeferredRngState, current
from mindtorch.core.compile.trace_cursor import TraceCursor
from mindtorch.core.compile.trace_tree import CompiledSegment, GeneralizationCount, Leaf, Trace

#: maximum number of graphs per trace segment (for other numbers or other captured tensors)
LIMIT = 8


class SegmentCompiler:
    """Computes the segment at the cursor, as one graph if possible."""

    def __init__(self, trace: Trace, device: Device, cursor: TraceCursor, calls: DeferredCalls, view: Any) -> None:
        self.trace, self.device, self.cursor, self.calls, self.view = trace, device, cursor, calls, view

    def scalars(self, end: Leaf) -> list[Any]:
        """Returns the Python numbers passed to kernels that are not part of the trace."""
        log = self.cursor.log
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

    def compute(self, end: Leaf) -> bool:
        """Computes the deferred calls; returns whether a graph did."""
        scalars = self.scalars(end)
        values, count, pending = self.cursor.values, sys.getrefcount, current.pending
        # 2 references: the list and getrefcount's argument
        live = [i for i in range(len(values)) if values[i].__class__ is pending and count(values[i]) > 2]
        given = [self.cursor.values[n] for n in self.cursor.given]
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
        self.calls.perform()
        return False

    def _outputs(self, end, live):
        """Returns the indices of the values whose storage the live values use."""
        if not live:
            return set()
        lies = self._lies(end)
        return {lies[i][0] for i in live} - set(self.cursor.given)

    def _lies(self, end):
        """Returns (index of the value that owns the storage, view event or None) for every value.
        """
        if end.lies is not None:
            return end.lies
        found: list[Any] = []
        for e, _, _kw in self.cursor.log:
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
            self.calls.perform()
            return False
        except RuntimeGuardFailed:  # the kernel itself then raises the error, at its own call
            self.calls.perform()
            return False
        counters["graph_runs"] += 1
        at = dict(zip(made.outputs, outputs))
        self._appear(end, live, at)
        # Pending handles without other references are recycled.
        values = self.cursor.values
        for i in range(len(values)):
            if values[i].__class__ is current.pending and len(free_handles) < 4096 and sys.getrefcount(values[i]) == 2:
                free_handles.append(values[i])
        return True

    def _appear(self, end, live, at):
        """Fills the live handles from the computed values: {value index: handle}."""
        lies = self._lies(end)
        values: dict[int, Any] = dict(at)
        viewed = set()  # handles with views; the views refer to the handle, so it must stay valid
        for n in self.cursor.given:
            values[n] = self.cursor.values[n]

        def real(i):
            h = values.get(i)
            if h is None:
                e = lies[i][1]
                of = real(e.ins[0])
                viewed.add(id(of))
                h = values[i] = self.device.view(of, **e.kw)
            return h
        for i, h in [(i, real(i)) for i in live]:
            self.device.assign_memory(self.cursor.values[i], h, id(h) not in viewed)
            self.cursor.values[i] = None

    def _build(self, end, given, scalars, roots):
        """Runs everything kernel by kernel and builds a graph from it."""
        end.built += 1
        before = end.scalars or []
        if len(before) != len(scalars):
            end.varying = set()  # the positions have changed
        else:
            end.varying |= {i for i, n in enumerate(scalars) if not same(before[i], n)}
        family = shape_specialization.shape_group(self.trace, end, self.cursor.log)
        if family is not None:
            family.vary(end, scalars)
        # A constant can be a graph argument only where the kernel accepts tensors for numbers;
        # another kernel may need its value.
        varying = {(i, j): n for n, (i, j) in enumerate(end.positions)
                   if n in end.varying and (j.__class__ is int or flags_of(self.cursor.log[i][0].fn).accepts_number(j))}
        drawn = {i: n for n, (i, j) in enumerate(end.positions) if scalars[n].__class__ is DeferredRngState}
        maker = self.device.recorder(self.trace.level)
        maker.begin(given, self._known(), family.state_inputs(given, end) if family is not None else [r() is h for r, h in zip(end.given, given)])
        values: list[Any] = []
        for i, (e, ns, kw) in enumerate(self.cursor.log):
            if e.fn is None:
                values.append(self.cursor.values[len(values)])
                continue
            counters["eager"] += 1
            if i in drawn:
                kw = {k: v.keyed(drawn[i]) if v.__class__ is DeferredRngState else v for k, v in kw.items()}
            if varying:
                ns = tuple([maker.number(varying[i, j], n, e.name, e.fn) if (i, j) in varying else n for j, n in enumerate(ns)])
                if e.loose:
                    kw = {k: maker.number(varying[i, k], v, e.name, e.fn) if (i, k) in varying else v for k, v in kw.items()}
            with maker.recording():
                self.calls.run(e, ns, kw, values)
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
                    family.learn(end, made, self.trace, self.cursor.log, why)
                    if graph.free:
                        shape_specialization.prune(self.trace, self.cursor.log)
        self.calls.fill(values)
        return False

    def _known(self):
        """Returns the event constants of each given tensor.

        `first` becomes an index into the given tensors.
        """
        position = {number: n for n, number in enumerate(self.cursor.given)}
        events = [e.kw for e, _, _ in self.cursor.log if e.fn is None]
        return [{**kw, "first": n if kw["first"] is None else position[kw["first"]]} for n, kw in enumerate(events)]
