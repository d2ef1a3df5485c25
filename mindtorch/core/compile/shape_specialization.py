"""Trace segments of `mindtorch/core/compile/replay.py` that share dynamic-shape graphs.

The segments of such a group differ only in sizes. The graphs are in
`mindtorch/backend/mindspore/graph/_dynamic.py`. A segment belongs to a `DynamicShapeGroup`, identified by its
kernels and their operands. A size is recorded before a graph serves it: when it is seen for the
second time or, if a dynamic-shape graph exists already, while its kernels run for the first time
(`AheadOfTimeRecorder`). If the recording matches the family's graph, no new graph is built and the segment's
branch is not counted in `Trace.branches`.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch.backend.mindspore.recorder_api import same
from mindtorch.backend.kernels import flags_of
from mindtorch.core.compile.deferred_kernels import SCALAR_TYPES, DeferredRngState
from mindtorch.core.compile.trace_tree import Leaf, Event, CompiledSegment, Trace

#: Maximum number of families in a trace, and of consecutive ahead-of-time recordings that matched
#: no graph.
LIMIT, VAIN = 64, 8


class DynamicShapeGroup:
    """Segments that differ only in sizes, and their shared graphs.

        shared     the graphs
        states     input tensors that the last graph holds as its state: {input index: handle}
        outputs    indices of the values that the last graph returns
    """

    __slots__ = ("shared", "states", "outputs", "positions", "varying", "fixed", "exceptions", "ends", "vain")

    def __init__(self) -> None:
        self.shared: Any = None
        self.states: dict[int, Any] | None = None
        self.outputs: set[int] = set()
        self.positions: list[Any] = []
        self.varying: set[int] = set()
        self.fixed: list[Any] = []
        self.exceptions = 0  # number of sizes, after the first, that needed their own graph
        self.ends = 0
        self.vain = 0  # ahead-of-time recordings without a match since the last match

    def state_inputs(self, given: list[Any], end: Leaf) -> list[bool]:
        """Returns, for each input tensor, whether a graph holds it as state.

        These are the tensors that the family's last graph holds. If this segment has built a graph
        itself, they are the inputs that were the same tensor in the previous run.
        """
        states = self.states
        if states is None or end.built > 1:
            return [r() is h for r, h in zip(end.given, given)]
        return [states.get(i) is h for i, h in enumerate(given)]

    def vary(self, end: Leaf, scalars: list[Any]) -> None:
        """Marks the scalars that varied for other sizes as varying for this size."""
        if self.positions == end.positions:
            end.varying |= self.varying | {i for i, n in self.fixed if not same(scalars[i], n)}

    def learn(self, end: Leaf, made: CompiledSegment, trace: Trace, log: Any, why: str) -> None:
        """Records the graph that was built for a segment of this family."""
        self.states, self.outputs = dict(made.graph.states), set(made.outputs)
        self.positions, self.varying, self.fixed = list(end.positions), set(end.varying), [(i, n) for i, n in made.fixed if n.__class__ in (int, float)]
        if made.graph.new:
            self.vain = 0
        if why:
            self.exceptions += 1
            trace.branches.append(log[-1][0])
            note = f"{trace.label}: another size needs its own graph: {why}"
            if note not in trace.notes:
                trace.notes.append(note)


def _key(log: Any) -> tuple[Any, ...]:
    """Returns the key shared by segments that differ only in sizes."""
    key: list[Any] = []
    for e, _, _kw in log:
        if e.fn is None:
            h = e.seen and e.seen()
            static = () if h is None else h.__dict__.get("_static", ())
            sizes, np_dtype, strides, first = e.kw["sizes"], e.kw["np_dtype"], e.kw["strides"], e.kw["first"]
            fixed = tuple([(d, sizes[d]) for d in range(len(sizes)) if d in static])
            key.append((len(sizes), np_dtype, strides is None, first, fixed))
        else:
            key.append((e.fn, e.name, e.ins, e.several, tuple([g if g.__class__ is int else g is None for g in e.outs])))
    return tuple(key)


def _given(log):
    return [h for e, _, _ in log if e.fn is None and e.seen is not None for h in [e.seen()] if h is not None]


def shape_group(trace: Trace, end: Leaf, log: Any) -> DynamicShapeGroup | None:
    """Returns the family of a segment, or None where sizes are static."""
    if trace.dynamic is False or trace.dynamic == "marked" and not any([h.__dict__.get("_dynamic") for h in _given(log)]):
        return None
    if end.family is None:
        key = _key(log)
        found = trace.families.get(key)
        if found is None:
            found = trace.families[key] = DynamicShapeGroup()
            if len(trace.families) > LIMIT:
                del trace.families[next(iter(trace.families))]
        found.ends += 1
        end.family = found
    return end.family


def observe(trace: Trace, end: Leaf, log: Any) -> None:
    """Called when a segment is seen for the first time.

    If the trace has a segment that differs only in sizes, the new branch is not counted until it
    needs its own graph.
    """
    if trace.branches:
        f = shape_group(trace, end, log)
        if f is not None and f.ends > 1 and not f.exceptions:
            prune(trace, log)


class AheadOfTimeRecorder:
    """Records a segment kernel by kernel while it runs for the first time.

    Used where only a size made the segment diverge from the trace.

        family   family of the known segment: its varying scalars, graph state and outputs
    """

    def __init__(self, family: DynamicShapeGroup, maker: Any) -> None:
        self.family, self.maker = family, maker
        self.positions = {position: n for n, position in enumerate(family.positions)}
        self.values: list[Any] = []
        self.given = 0
        self.complete = True

    def enter(self, e: Event, h: Any) -> None:
        """Adds an input tensor."""
        self.values.append(h)
        assert self.family.states is not None
        if e.kw["first"] is not None or self.maker.broken is not None:
            # An input that shares memory with another one: which part it covers is known only at
            # the end.
            self.complete = False
        elif self.complete:
            self.complete = self.maker.enter(self.given, h, e.kw, self.family.states.get(self.given) is h)
        self.given += 1

    def run(self, at: int, name: str, fn: Any, handles: Any, kw: dict[str, Any]) -> Any:
        """Runs fn(*handles, **kw), call number `at` of the segment, and records it."""
        varying, positions, j = self.family.varying, self.positions, 0
        given = list(handles)
        for i, h in enumerate(handles):
            if h.__class__ in SCALAR_TYPES:
                n = positions.get((at, j))
                self.complete = self.complete and n is not None
                if n in varying:
                    given[i] = self.maker.number(n, h, name, fn)
                j += 1
        traced_kw = dict(kw)
        for k, v in kw.items():
            n = positions.get((at, k))
            if v.__class__ is DeferredRngState:
                self.complete = self.complete and n is not None
                traced_kw[k] = v.keyed(n)
            elif n in varying and flags_of(fn).accepts_number(k):
                traced_kw[k] = self.maker.number(n, v, name, fn)
        if not self.complete:
            return fn(*handles, **kw)
        self.complete = False
        with self.maker.recording():
            r = fn(*given, **traced_kw)
        self.complete = self.maker.broken is None
        return r

    def made(self, trace: Trace, end: Leaf, log: Any, scalars: list[Any]) -> bool:
        """Returns True if an existing graph serves this size from now on."""
        self.family.vain += 1
        f = shape_group(trace, end, log)
        if not self.complete or f is not self.family or f is None or end.positions != f.positions or self.maker.broken is not None:
            return False
        order = sorted(f.outputs)
        graph = self.maker.served([self.values[i] for i in order], f.shared)
        if graph is None:
            return False
        fixed = [(n, scalars[n]) for n, (i, j) in enumerate(end.positions)
                 if n not in f.varying or not (j.__class__ is int or flags_of(log[i][0].fn).accepts_number(j))]
        made = CompiledSegment(graph, dict.fromkeys(order), fixed)
        end.graphs.insert(0, made)
        end.varying |= f.varying
        f.learn(end, made, trace, log, "")
        prune(trace, log)
        f.vain = 0
        return True


def record_ahead(trace: Trace, at: Event, make: Callable[[], Any]) -> AheadOfTimeRecorder | None:
    """Returns a recorder for a segment that diverges from the trace by the size of an input.

    `at` is the last common event. Returns None if no dynamic-shape graph is known after that event.
    """
    if trace.dynamic is False:
        return None
    e = at
    while e.children:
        e = e.children[0]
        if e.end is not None and e.end.family is not None:
            f = e.end.family
            return AheadOfTimeRecorder(f, make()) if f.states is not None and f.shared.bodies and f.shared.refused is None and f.vain < VAIN else None
    return None


def prune(trace: Trace, log: Any) -> None:
    """Removes a branch from the count of the trace's branches."""
    mine = {id(e) for e, _, _ in log}
    trace.branches[:] = [e for e in trace.branches if id(e) not in mine]
