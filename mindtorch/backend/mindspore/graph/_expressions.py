"""Operands and lines of the function that a recording writes.

An operand is the text of an expression. A plain string is the text of a constant.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

#: Classes whose repr is source code.
PLAIN = frozenset((int, float, bool, str, type(None)))


class Expr(str):
    """An expression with the value of a line, an argument, a piece of state or an attribute."""

    __slots__ = ()


class TupleExpr(list):
    """Expressions of a tuple's elements."""


class WeakExprs(list):
    """Expressions that are dropped where nothing needs them."""


class Keyword:
    """A keyword argument."""

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value

    def with_value(self, value: Any) -> Keyword:
        return Keyword(self.name, value)


class Instruction:
    """One statement, target = call(operands). `effect`: it writes to state."""

    __slots__ = ("target", "call", "operands", "effect")

    def __init__(self, target: str, call: str, operands: list[Any], effect: bool) -> None:
        self.target, self.call, self.operands, self.effect = target, call, operands, effect


def leaves(operands: Iterable[Any]) -> Iterator[str]:
    """Yields the expressions in nested operands, without weak ones."""
    for o in operands:
        if o.__class__ is TupleExpr:
            yield from leaves(o)
        elif o.__class__ is Keyword:
            yield from leaves([o.value])
        elif o.__class__ is not WeakExprs:
            yield o
