"""What sessions remember of what a compiled callable did: events in a tree, and where in it everything was computed (core/lazy.py)."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mindtorch.backend.mindspore.recording import same


class Event:
    """One call of the device's: kernel, view, write or cast.

    ins     operands: a value's number, the class of a Python number, or None
    kw      constants
    outs    geometry (sizes, element type, strides or None) of each result, None for one that is not there, the place of another that is the same tensor;
            `several`: whether they came as a tuple
    eager   why the call cannot be part of a graph, or None
    loose   whether numbers among the constants may be others; None: never again
    """

    __slots__ = ("fn", "ins", "kw", "loose", "outs", "several", "children", "end", "eager", "name", "seen", "where")

    def __init__(self, name: str, fn: Any, ins: tuple[Any, ...], kw: dict[str, Any]) -> None:
        self.name, self.fn, self.ins, self.kw = name, fn, ins, kw
        self.loose: bool | None = False
        self.outs: tuple[Any, ...] = ()
        self.several = False
        self.children: list[Event] = []
        self.end: End | None = None
        self.eager: str | None = None
        self.seen: Any = None           # of a given tensor: a weak reference to the last one, and where it lay
        self.where: Any = None

    def __repr__(self):
        return f"{self.name}{self.ins}"


class End:
    """What is known of a trace that was computed after this event."""

    __slots__ = ("seen", "built", "graphs", "given", "numbers", "varying", "refused", "next", "reason", "lies", "places", "loose", "family")

    def __init__(self) -> None:
        self.seen = self.built = 0
        self.graphs: list[Made] = []
        self.given: list[Any] = []              # weak references to the tensors of the run before
        self.numbers: list[Any] | None = None   # those that kernels were given in the run before
        self.varying: set[int] = set()          # places of those that have changed
        self.refused: str | None = None
        self.next = Event("start", None, (), {})
        self.reason = ""
        self.lies: list[Any] | None = None
        self.places: list[tuple[int, Any]] = []
        self.loose = -1
        self.family: Any = None                 # the stretches that differ from it in sizes alone (core/_sizes.py)


class Made:
    """A graph, the numbers of the values it gives, and the numbers that are part of it: (place, number)."""

    __slots__ = ("graph", "outputs", "fixed")

    def __init__(self, graph, outputs, fixed):
        self.graph, self.outputs, self.fixed = graph, outputs, fixed

    def holds(self, given, numbers):
        """Whether it is right for these tensors and numbers."""
        for i, n in self.fixed:
            if not same(numbers[i], n):
                return False
        return self.graph.holds(given, numbers)


class Loosened:
    """How many events have become loose, anywhere."""

    count = 0


#: ways on after one event
WAYS = 256


class Trace:
    """What one compiled callable has been seen to do."""

    def __init__(self, title: str = "", level: str = "O0", whole: bool = False, dynamic: Any = None, device: Any = None) -> None:
        self.device = device            # None: the user's one
        self.start = Event("start", None, (), {})
        self.title, self.level, self.whole, self.dynamic = title, level, whole, dynamic
        #: dynamic: False: every size has a graph of its own; "marked": unless a given tensor has a dimension marked as dynamic
        #: where runs have parted, once for each further way; but for sizes that a graph for free sizes serves
        self.branches: list[Event] = []
        #: stretches that differ in sizes alone, and why some of them have graphs of their own (core/_sizes.py)
        self.families: dict[Any, Any] = {}
        self.notes: list[str] = []
        self.used = False           # whether runs have asked something of the device that is no event

    def grow(self, at: Event, e: Event) -> None:
        """A new event after another: the ways that were not gone for longest are forgotten."""
        if at.children:
            self.branches.append(e)
        at.children = [e, *at.children[:WAYS - 1]]

    def ends(self) -> Iterator[End]:
        """All ends."""
        stack = [self.start]
        while stack:
            e = stack.pop()
            stack.extend(e.children)
            if e.end is not None:
                yield e.end
                stack.append(e.end.next)

    def reset(self) -> None:
        """Forgets everything."""
        self.start = Event("start", None, (), {})
        self.branches.clear()
        self.families.clear()
        self.notes.clear()


class Broken(Exception):
    """A trace that was to be one graph is not (torch.compile(fullgraph=True))."""


def operands(ins, values, numbers):
    """A call's operands out of values and numbers."""
    out, k = [], 0
    for i in ins:
        if i.__class__ is int:
            out.append(values[i])
        elif i is None:
            out.append(None)
        else:
            out.append(numbers[k])
            k += 1
    return out


def same_constants(e, kw):
    """Whether constants are those of an event; of a loose one numbers do not count."""
    mine = e.kw
    if len(mine) != len(kw):
        return False
    try:
        if mine == kw and [v.__class__ for v in mine.values()] == [v.__class__ for v in kw.values()]:
            return True
    except ValueError:          # (arrays among them)
        return False
    return e.loose and but_for_numbers(mine, kw)


_SWITCHES = (0.0, 1.0)


def but_for_numbers(a, b):
    """Whether constants differ in Python's floats at most, other than by what switches something off.

    (Nought and one often do: a kernel that keeps everything (1.0) makes no mask, one that keeps 0.8 does.)
    """
    if a.keys() != b.keys():
        return False
    for k, v in a.items():
        w = b[k]
        if v.__class__ is not w.__class__:
            return False
        if v.__class__ is float:
            if v != w and (v in _SWITCHES or w in _SWITCHES):
                return False
            continue
        if isinstance(v, np.ndarray):
            return False
        if v != w:
            return False
    return True
