"""What every run of a graph receives: arguments, random numbers, scalars and checks of values."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.mindspore.graph._expressions import Expr
from mindtorch.backend.mindspore.private import from_contiguous
from mindtorch.backend.mindspore.recorder_api import Number


class RngDraw(tuple):
    """(seed, offset) of a generator, the draw with index `position` in the graph."""

    position: int


class DrawIndex:
    """Index of a draw, in place of its (seed, offset)."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at


class RuntimeInputs:
    """Descriptions of the arguments of a recording, and of what precedes and follows each run."""

    def __init__(self) -> None:
        #: description of each argument: ("given", index), ("number", Number, element type),
        #: ("fresh", call, which), ...
        self.arguments: list[tuple[Any, ...]] = []
        #: (attribute, index of the given tensor, handle)
        self.states: list[tuple[str, int, Any]] = []
        #: (generator's key in the scalars of a run, index among its draws)
        self.takes: list[tuple[Any, int]] = []
        #: calls that create tensors before a run
        self.makes: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        #: values to check before a run: (index, view, function)
        self.checks: list[tuple[int, Any, Callable[[Any], None]]] = []
        #: values to check after the run: (expression, element type, function)
        self.afterwards: list[tuple[str, Any, Callable[[Any], None]]] = []
        #: scalars on whose values the graph is guarded
        self.conditions: list[tuple[Number, Any]] = []
        self._ones: dict[Any, Expr] = {}
        self._scalars: dict[int, Expr] = {}
        self._tensors: dict[tuple[int, Any], Any] = {}
        self._keep: list[Any] = []

    def argument(self, *description: Any) -> Expr:
        """Appends an argument; returns its name."""
        self.arguments.append(description)
        return Expr(f"x{len(self.arguments) - 1}")

    def state(self, index: int, h: Any) -> str:
        """Appends a piece of state, a Parameter; returns the name of its attribute."""
        name = f"p{len(self.states)}"
        self.states.append((name, index, h))
        return name

    # ---- random numbers
    def draw(self, generator: Any) -> RngDraw:
        """Draws the next (seed, offset) of a generator."""
        t = RngDraw(generator.take())
        t.position = len(self.takes)
        self.takes.append((generator.key, generator.at - 1))
        return t

    def make(self, make: Callable[..., Any], given: tuple[Any, ...]) -> int:
        """Appends a call that creates tensors before each run; returns its index."""
        self.makes.append((make, tuple([DrawIndex(g.position) if g.__class__ is RngDraw else g for g in given])))
        return len(self.makes) - 1

    # ---- scalars
    def one(self, np_dtype: Any) -> Expr:
        """Returns the argument that is 1 in an element type."""
        name = self._ones.get(np_dtype)
        if name is None:
            name = self._ones[np_dtype] = self.argument("one", np_dtype)
        return name

    def scalar(self, n: Number, emit: Callable[[Expr], Expr]) -> Expr:
        """Returns a `Number` as a scalar of the graph. `emit` extracts it from a tensor argument.

        A scalar argument would be copied to the device and back for each kernel that takes it.
        """
        name = self._scalars.get(id(n))
        if name is None:
            self._keep.append(n)
            name = self._scalars[id(n)] = emit(self.argument("number", n, np.dtype(np.float32 if n.value.__class__ is float else np.int64)))
        return name

    def tensor(self, n: Number, np_dtype: Any, add: Callable[[Any, Expr], object]) -> Any:
        """Returns a `Number` as a 0-d tensor. `add` registers it under its argument's name."""
        h = self._tensors.get((id(n), np_dtype))
        if h is None:
            h = self._tensors[id(n), np_dtype] = from_contiguous(np.asarray(n.value).astype(np_dtype))
            self._keep.append(n)
            add(h, self.argument("number", n, np_dtype))
        return h
