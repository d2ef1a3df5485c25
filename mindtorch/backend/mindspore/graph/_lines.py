"""Writer of a recording's lines."""
from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mindtorch.backend.mindspore.graph._expressions import PLAIN, Expr, Instruction, Keyword, TupleExpr
from mindtorch.backend.mindspore.graph._state_order import StateOrder
from mindtorch.backend.mindspore.private import MSTensor
from mindtorch.backend.mindspore.recorder_api import Number


class LineWriter:
    """Lines, and the attributes of the Cell that they use: primitives and constants.

    `resolve` refers to a method of the recorder, weakly, so that a recording is freed at once. The
    method returns the expression of a tensor, an array or a `Number`; the plain Python value of a
    `Number` that becomes a constant.
    """

    def __init__(self, order: StateOrder, resolve: weakref.WeakMethod[Callable[[Any], Any]]) -> None:
        self.order, self._resolve = order, resolve
        self.lines: list[Instruction] = []
        self.attributes: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._keep: list[Any] = []
        self._count = 0
        # name -> (primitive, sizes, other operands) of filled tensors
        self._fills: dict[str, tuple[Any, tuple[int, ...], tuple[Any, ...]]] = {}

    def attribute(self, value: Any) -> str:
        """Returns the expression of an object, which becomes an attribute."""
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"a{len(self.attributes)}"
            self.attributes[name] = value
            self._keep.append(value)
        return f"self.{name}"

    def emit(self, prim: Any, *args: Any) -> Expr:
        """Records a call of a primitive as a line; returns the name of its result."""
        kind = type(prim).__name__
        if kind == "SliceExt" and args[0].__class__ is Expr and args[0] in self._fills and all([a.__class__ is int and a >= 0 for a in args[1:]]):
            # A slice of a filled tensor: the compiler computes a smaller fill once, whereas the
            # slice would be a launch.
            fill, sizes, rest = self._fills[args[0]]
            d, start, stop, step = args[1:]
            return self.emit(fill, (*sizes[:d], len(range(start, min(stop, sizes[d]), step)), *sizes[d + 1:]), *rest)
        name = self.call(prim, [self.expression(a) for a in args])
        if kind in ("Zeros", "Ones", "FillScalar") and args[0].__class__ is tuple:
            self._fills[name] = prim, args[0], args[1:]
        return name

    def call(self, prim: Any, operands: Sequence[Any], effect: bool = False) -> Expr:
        """Like `emit`, for operands that are expressions already. effect: it writes to state."""
        name = f"v{self._count}"
        self._count += 1
        self.order.note(type(prim).__name__, name, operands)
        self.lines.append(Instruction(name, self.attribute(prim), list(operands), effect))
        return Expr(name)

    def expression(self, a: Any) -> Any:
        """Returns the expression of an operand."""
        if a.__class__ is Expr:
            return a
        if isinstance(a, MSTensor):
            return self._tensor(a)
        if a.__class__ is tuple or a.__class__ is list:
            inner = [self.expression(x) for x in a]
            if all([x.__class__ is str for x in inner]):
                return repr(a) if all([x.__class__ in PLAIN for x in a]) else self.attribute(a)
            return TupleExpr(inner)
        if a.__class__ is Keyword:
            return a.with_value(self.expression(a.value))
        if a.__class__ is Number:
            return self.expression(self._tensor(a))
        if isinstance(a, np.integer):
            a = int(a)
        if isinstance(a, np.ndarray):
            return self._tensor(a)
        if a.__class__ in PLAIN and (a.__class__ is not float or math.isfinite(a)):
            return repr(a)
        return Expr(self.attribute(a))

    def _tensor(self, a):
        resolve = self._resolve()
        assert resolve is not None, "the recorder no longer exists"
        return resolve(a)
