"""Stretches of traces that differ in sizes alone, for core/lazy.py: they share graphs whose sizes are free (backend/mindspore/graph/_dynamic.py).

A stretch belongs to a `Family` by its kernels and which values these take.  A size is recorded before a graph serves it: the second time that it is met, or,
where there is a graph for free sizes already, while its kernels run the first time (`Ahead`).  If the recording fits the family's, no graph is made for it, and
its way through the trace counts for nothing (Trace.branches).
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch.backend.mindspore.recording import same
from mindtorch.core._put_off import NUMBERS, Spot, may_vary
from mindtorch.core._traces import End, Event, Made, Trace

#: families that a trace knows; recordings ahead that may be of no use, one after the other
LIMIT, VAIN = 64, 8


class Family:
    """What is known of such stretches.

    shared     the graphs
    states     given tensors that the last one holds as its state: {place among the given ones: handle}
    outputs    values that the last one gives
    """

    __slots__ = ("shared", "states", "outputs", "places", "varying", "fixed", "alone", "ends", "vain")

    def __init__(self) -> None:
        self.shared: Any = None
        self.states: dict[int, Any] | None = None
        self.outputs: set[int] = set()
        self.places: list[Any] = []
        self.varying: set[int] = set()
        self.fixed: list[Any] = []
        self.alone = 0              # sizes that have a graph of their own after the first
        self.ends = 0
        self.vain = 0               # recordings ahead that were of no use, since the last one that was

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
        if made.graph.new:
            self.vain = 0
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


class Ahead:
    """Records a stretch while it runs for the first time, kernel by kernel, where the trace has parted from what it knows by a size alone.

    family   that of the way it has parted from: which numbers vary, what a graph holds and gives
    """

    def __init__(self, family: Family, maker: Any) -> None:
        self.family, self.maker = family, maker
        self.places = {place: n for n, place in enumerate(family.places)}
        self.values: list[Any] = []
        self.given = 0
        self.whole = True

    def enter(self, e: Event, h: Any) -> None:
        """A given tensor."""
        self.values.append(h)
        assert self.family.states is not None
        if e.kw["first"] is not None or self.maker.broken is not None:
            self.whole = False          # (on another one's memory: which part of it they take is known at the end)
        elif self.whole:
            self.whole = self.maker.enter(self.given, h, e.kw, self.family.states.get(self.given) is h)
        self.given += 1

    def run(self, at: int, name: str, fn: Any, handles: Any, kw: dict[str, Any]) -> Any:
        """fn(*handles, **kw), the `at`th call of the stretch."""
        varying, places, j = self.family.varying, self.places, 0
        given = list(handles)
        for i, h in enumerate(handles):
            if h.__class__ in NUMBERS:
                n = places.get((at, j))
                self.whole = self.whole and n is not None
                if n in varying:
                    given[i] = self.maker.number(n, h, name)
                j += 1
        said = dict(kw)
        for k, v in kw.items():
            n = places.get((at, k))
            if v.__class__ is Spot:
                self.whole = self.whole and n is not None
                said[k] = v.keyed(n)
            elif n in varying and may_vary(fn, k):
                said[k] = self.maker.number(n, v, name)
        if not self.whole:
            return fn(*handles, **kw)
        self.whole = False
        with self.maker.recording():
            r = fn(*given, **said)
        self.whole = self.maker.broken is None
        return r

    def made(self, trace: Trace, end: End, log: Any, numbers: list[Any]) -> bool:
        """Whether a graph that is there serves the size from now on."""
        self.family.vain += 1
        f = family(trace, end, log)
        if not self.whole or f is not self.family or f is None or end.places != f.places or self.maker.broken is not None:
            return False
        order = sorted(f.outputs)
        graph = self.maker.served([self.values[i] for i in order], f.shared)
        if graph is None:
            return False
        fixed = [(n, numbers[n]) for n, (i, j) in enumerate(end.places)
                 if n not in f.varying or not (j.__class__ is int or may_vary(log[i][0].fn, j))]
        made = Made(graph, dict.fromkeys(order), fixed)
        end.graphs.insert(0, made)
        end.varying |= f.varying
        f.learn(end, made, trace, log, "")
        uncount(trace, log)
        f.vain = 0
        return True


def ahead(trace: Trace, at: Event, make: Callable[[], Any]) -> Ahead | None:
    """A recording for a stretch that parts from the trace after `at` by the size of a given tensor; None where no graph for free sizes is known behind it."""
    if trace.dynamic is False:
        return None
    e = at
    while e.children:
        e = e.children[0]
        if e.end is not None and e.end.family is not None:
            f = e.end.family
            return Ahead(f, make()) if f.states is not None and f.shared.bodies and f.shared.refused is None and f.vain < VAIN else None
    return None


def uncount(trace: Trace, log: Any) -> None:
    """A way of the trace counts no longer."""
    mine = {id(e) for e, _, _ in log}
    trace.branches[:] = [e for e in trace.branches if id(e) not in mine]
