"""Stretches of traces that differ in sizes alone, for core/lazy.py: they share graphs whose sizes are free (backend/mindspore/graph/_dynamic.py).

A stretch belongs to a `Family` by its kernels and which values these take.  The first time that a size is met its kernels run one by one, the second time
they are recorded; if the recording fits the family's, no graph is made for it.  Its way through the trace then counts for nothing (Trace.branches).
"""
from __future__ import annotations

from typing import Any

from mindtorch.backend.mindspore.recording import same
from mindtorch.core._traces import End, Made, Trace

#: families that a trace knows
LIMIT = 64


class Family:
    """What is known of such stretches.

    shared     the graphs
    states     given tensors that the last one holds as its state: {place among the given ones: handle}
    outputs    values that the last one gives
    """

    __slots__ = ("shared", "states", "outputs", "places", "varying", "fixed", "alone", "ends")

    def __init__(self) -> None:
        self.shared: Any = None
        self.states: dict[int, Any] | None = None
        self.outputs: set[int] = set()
        self.places: list[Any] = []
        self.varying: set[int] = set()
        self.fixed: list[Any] = []
        self.alone = 0              # sizes that have a graph of their own after the first
        self.ends = 0

    def held(self, given: list[Any], end: End) -> list[bool]:
        """Which given tensors a graph shall hold: those that the last one does; those of the run before, where the stretch has had a graph itself."""
        states = self.states
        if states is None or end.built > 1:
            return [r() is h for r, h in zip(end.given, given)]
        return [states.get(i) is h for i, h in enumerate(given)]

    def vary(self, end: End, numbers: list[Any]) -> None:
        """Numbers that varied for other sizes do so for this one."""
        if self.places == end.places:
            end.varying |= self.varying | {i for i, n in self.fixed if not same(numbers[i], n)}

    def learn(self, end: End, made: Made, trace: Trace, log: Any, why: str) -> None:
        """Takes note of a graph that was made for one of the stretches."""
        self.states, self.outputs = dict(made.graph.states), set(made.outputs)
        self.places, self.varying, self.fixed = list(end.places), set(end.varying), [(i, n) for i, n in made.fixed if n.__class__ in (int, float)]
        if why:
            self.alone += 1
            trace.branches.append(log[-1][0])
            note = f"{trace.title}: another size has a graph of its own: {why}"
            if note not in trace.notes:
                trace.notes.append(note)


def _key(log: Any) -> tuple[Any, ...]:
    """What stretches have in common that differ in sizes alone."""
    key: list[Any] = []
    for e, _, _kw in log:
        if e.fn is None:
            h = e.seen and e.seen()
            static = () if h is None else h.__dict__.get("_static", ())
            sizes, stype, strides, first = e.kw["sizes"], e.kw["stype"], e.kw["strides"], e.kw["first"]
            fixed = tuple([(d, sizes[d]) for d in range(len(sizes)) if d in static])
            key.append((len(sizes), stype, strides is None, first, fixed))
        else:
            key.append((e.fn, e.name, e.ins, e.several, tuple([g if g.__class__ is int else g is None for g in e.outs])))
    return tuple(key)


def _given(log):
    return [h for e, _, _ in log if e.fn is None and e.seen is not None for h in [e.seen()] if h is not None]


def family(trace: Trace, end: End, log: Any) -> Family | None:
    """The family of a stretch; None where sizes are static."""
    if trace.dynamic is False or trace.dynamic == "marked" and not any([h.__dict__.get("_dynamic") for h in _given(log)]):
        return None
    if end.family is None:
        key = _key(log)
        found = trace.families.get(key)
        if found is None:
            found = trace.families[key] = Family()
            if len(trace.families) > LIMIT:
                del trace.families[next(iter(trace.families))]
        found.ends += 1
        end.family = found
    return end.family


def met(trace: Trace, end: End, log: Any) -> None:
    """A stretch was met for the first time: where the trace knows one that differs in sizes alone, its way does not count until it has shown to be other."""
    if trace.branches:
        f = family(trace, end, log)
        if f is not None and f.ends > 1 and not f.alone:
            uncount(trace, log)


def uncount(trace: Trace, log: Any) -> None:
    """A way of the trace counts no longer."""
    mine = {id(e) for e, _, _ in log}
    trace.branches[:] = [e for e in trace.branches if id(e) not in mine]
