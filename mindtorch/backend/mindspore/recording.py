"""What kernels tell whoever writes their MindSpore calls down as a graph (backend/mindspore/graph); without one these functions do nothing or compute at once.

A kernel is recorded while it runs.  Its calls of MindSpore's primitives are seen by themselves, and tensors are known by their memory.  What has to be told is
what happens beside the primitives: tensors made of numbers (`constant`), numbers that a later run may have otherwise (`Number`, `slot`), random places
(`fresh`), values that a later run must look at before the graph runs (`check`), and memory that the host reads (refused: `host_reads`) or writes.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any


class NoGraph(Exception):
    """A kernel does what no graph can: it reads values, or makes tensors in a way that is not seen."""


class _State:
    """The recorder at work, or None."""

    on: Any = None


STATE = _State()


def host_reads(h: Any) -> None:
    """Refuses to read a tensor's memory while kernels are recorded, unless it is known to be a constant."""
    if STATE.on is not None:
        STATE.on.host_reads(h)


def refuse(why: str) -> None:
    """Says that a kernel does for these values what a graph would do for all."""
    if STATE.on is not None:
        STATE.on.broken = why


def constant(h: Any) -> Any:
    """Says that a tensor's values are the same at every run of the kernel with these constants and shapes."""
    if STATE.on is not None:
        STATE.on.constant(h)
    return h


def is_state(h: Any) -> bool:
    """Whether a primitive may write to a tensor where it lies: all that is no part of a graph, and a graph's own state."""
    return STATE.on is None or STATE.on.is_state(h)


def aside(make: Callable[..., Any], *given: Any) -> Any:
    """make(*given), which is no part of what is recorded: of something kept, say."""
    if STATE.on is None:
        return make(*given)
    with STATE.on.aside():
        return make(*given)


def fresh(make: Callable[..., Any], *given: Any) -> Any:
    """make(*given), a tensor or a tuple of them, that every run of a graph makes anew: of a generator's numbers, say."""
    return make(*given) if STATE.on is None else STATE.on.fresh(make, given)


def take(generator: Any) -> Any:
    """A generator's next (seed, offset); for a graph what `fresh` may be given, and what every run takes anew."""
    return generator.take() if STATE.on is None else STATE.on.take(generator)


def check(h: Any, look: Callable[[Any], None]) -> bool:
    """Whether look(h), which raises for values that the kernel refuses, has been called now and will be before each run of the graph.

    False: the values are computed by the graph itself, so that nobody can look at them beforehand: it will be called after each run.
    """
    if STATE.on is not None:
        return STATE.on.check(h, look)
    look(h)
    return True


def one(obj: Any, compute: Callable[..., Any], handles: tuple[Any, ...]) -> Any:
    """compute(*handles), which a graph has as one call of `obj`, something that MindSpore's compiler reads."""
    return compute(*handles) if STATE.on is None else STATE.on.one(obj, compute, handles)


class Number:
    """A number that later runs of a graph may have otherwise: arithmetic gives another one.  Where it is asked for its value, a graph holds for that alone."""

    __slots__ = ("value", "how", "owner")

    def __init__(self, value: Any, how: tuple[Any, ...], owner: Any) -> None:
        self.value, self.how, self.owner = value, how, owner

    def _with(self, name: str, f: Callable[..., Any], *others: Any) -> Number:
        values = [o.value if o.__class__ is Number else o for o in others]
        return Number(f(self.value, *values), (f, self, *others), self.owner)

    def _seen(self) -> Any:
        self.owner.holds_for(self)
        return self.value

    def __float__(self) -> float:
        return float(self._seen())

    def __int__(self) -> int:
        return int(self._seen())

    def __index__(self) -> int:
        return self._seen().__index__()

    def __bool__(self) -> bool:
        return bool(self._with("bool", bool)._seen())

    def __hash__(self) -> int:
        return hash(self._seen())

    def __eq__(self, o: object) -> Any:
        return self._with("eq", _eq, o)._seen()

    def __ne__(self, o: object) -> Any:
        return not self == o

    def __neg__(self) -> Number:
        return self._with("neg", lambda a: -a)

    def __abs__(self) -> Number:
        return self._with("abs", abs)

    def root(self) -> Number:
        """The square root."""
        return self._with("sqrt", math.sqrt)


def _eq(a, b):
    return a == b


def _arithmetic(name, f):
    setattr(Number, f"__{name}__", lambda a, b: a._with(name, f, b))
    setattr(Number, f"__r{name}__", lambda a, b: a._with(name, lambda x, y: f(y, x), b))


for _name, _f in {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "truediv": lambda a, b: a / b,
                  "pow": lambda a, b: a ** b, "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b}.items():
    _arithmetic(_name, _f)


def _comparison(name, f):
    setattr(Number, f"__{name}__", lambda a, b: a._with(name, f, b)._seen())


for _name, _f in {"lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}.items():
    _comparison(_name, _f)


def value(n: Any, given: Sequence[Any]) -> Any:
    """What a number is in another run: `given` has the numbers that were given to kernels, by their places."""
    if n.__class__ is not Number:
        return n
    how = n.how
    if how[0] == "given":
        return given[how[1]]
    return how[0](*[value(x, given) for x in how[1:]])


def same(a: Any, b: Any) -> bool:
    """Whether two numbers are the same to the last bit, and of one class."""
    if a.__class__ is not b.__class__:
        return False
    if a.__class__ is float:
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    return bool(a == b)


def plain(n: Any) -> Any:
    """A number as Python's: its value, for which the graph then holds."""
    return n._seen() if n.__class__ is Number else n


def slot(n: Number, stype: Any) -> Any:
    """The tensor of no dimensions, or the operand, that stands for a number in a graph."""
    return n.owner.slot(n, stype)
