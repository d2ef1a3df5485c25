"""Traces of compiled callables: trees of events, see `mindtorch/core/compile/replay.py`.

A trace also records the points at which pending values were computed.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mindtorch.backend.mindspore.recorder_api import same


class Event:
    """One device call: kernel, view, write or cast.

        ins     operands: the index of a value, the class of a Python scalar, or None
        kw      constants
        outs    for each result: its geometry (sizes, NumPy dtype, strides or None), None if absent,
                or the index of another result that is the same tensor
        several True if the results came as a tuple
        eager   reason why the call cannot be part of a graph, or None
        loose   True if float constants may differ from call to call; None: never again
    """

    __slots__ = ("fn", "ins", "kw", "loose", "outs", "several", "children", "end", "eager", "name", "seen", "where")

    def __init__(self, name: str, fn: Any, ins: tuple[Any, ...], kw: dict[str, Any]) -> None:
        self.name, self.fn, self.ins, self.kw = name, fn, ins, kw
        self.loose: bool | None = False
        self.outs: tuple[Any, ...] = ()
        self.several = False
        self.children: list[Event] = []
        self.end: Leaf | None = None
        self.eager: str | None = None
        # For an input tensor: weak reference to the last one, and its address, storage start and
        # offset.
        self.seen: Any = None
        self.where: Any = None

    def __repr__(self):
        return f"{self.name}{self.ins}"


class Leaf:
    """State of a trace that was computed after this event."""

    __slots__ = ("seen", "built", "graphs", "given", "scalars", "varying", "refused", "next", "reason", "lies", "positions", "loose", "family")

    def __init__(self) -> None:
        self.seen = self.built = 0
        self.graphs: list[CompiledSegment] = []
        self.given: list[Any] = []  # weak references to the input tensors of the previous run
        self.scalars: list[Any] | None = None  # scalars passed to kernels in the previous run
        self.varying: set[int] = set()  # positions of the scalars that have changed
        self.refused: str | None = None
        self.next = Event("start", None, (), {})
        self.reason = ""
        self.lies: list[Any] | None = None
        self.positions: list[tuple[int, Any]] = []
        self.loose = -1
        self.family: Any = None  # segments that differ only in sizes (`mindtorch/core/compile/shape_specialization.py`)


class CompiledSegment:
    """A graph, the indices of its outputs, and the scalars baked into it as (position, value)."""

    __slots__ = ("graph", "outputs", "fixed")

    def __init__(self, graph, outputs, fixed):
        self.graph, self.outputs, self.fixed = graph, outputs, fixed

    def holds(self, given, scalars):
        """True if the graph is valid for these tensors and scalars."""
        for i, n in self.fixed:
            if not same(scalars[i], n):
                return False
        return self.graph.holds(given, scalars)


class GeneralizationCount:
    """Global counter of changes of the `loose` flag, over all events."""

    count = 0


#: Maximum number of successors of one event.
MAX_BRANCHES = 256


class Trace:
    """The recorded behavior of one compiled callable."""

    def __init__(self, label: str = "", level: str = "O0", fullgraph: bool = False, dynamic: Any = None, device: Any = None) -> None:
        self.device = device  # None: the user's device
        self.start = Event("start", None, (), {})
        self.label, self.level, self.fullgraph, self.dynamic = label, level, fullgraph, dynamic
        #: `dynamic` False: every size has its own graph; "marked": likewise, unless an input tensor
        #: has a dimension marked as dynamic. `branches` has one entry for each further branch where
        #: runs diverged, except for sizes that a dynamic-shape graph serves.
        self.branches: list[Event] = []
        #: Families of segments that differ only in sizes, and notes why some segments have their
        #: own graphs (`mindtorch/core/compile/shape_specialization.py`).
        self.families: dict[Any, Any] = {}
        self.notes: list[str] = []
        self.used = False  # True if a run queried the device in a way that is not an event.

    def grow(self, at: Event, e: Event) -> None:
        """Adds an event after `at`; the least recently used successors are dropped."""
        if at.children:
            self.branches.append(e)
        at.children = [e, *at.children[:MAX_BRANCHES - 1]]

    def ends(self) -> Iterator[Leaf]:
        """Iterates over all ends."""
        stack = [self.start]
        while stack:
            e = stack.pop()
            stack.extend(e.children)
            if e.end is not None:
                yield e.end
                stack.append(e.end.next)

    def reset(self) -> None:
        """Clears the trace."""
        self.start = Event("start", None, (), {})
        self.branches.clear()
        self.families.clear()
        self.notes.clear()


def operands(ins, values, scalars):
    """Returns the operands of a call, from values and scalars."""
    out, k = [], 0
    for i in ins:
        if i.__class__ is int:
            out.append(values[i])
        elif i is None:
            out.append(None)
        else:
            out.append(scalars[k])
            k += 1
    return out


def same_constants(e, kw):
    """True if the constants are those of the event; a loose event ignores float constants."""
    mine = e.kw
    if len(mine) != len(kw):
        return False
    try:
        if mine == kw and [v.__class__ for v in mine.values()] == [v.__class__ for v in kw.values()]:
            return True
    except ValueError:  # arrays among the constants
        return False
    return e.loose and same_except_floats(mine, kw)


_SWITCHES = (0.0, 1.0)


def same_except_floats(a, b):
    """True if two sets of constants differ at most in Python floats, other than to or from 0 and 1.

    0 and 1 often act as switches: a dropout kernel with keep=1.0 creates no mask, one with keep=0.8
    does.
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
