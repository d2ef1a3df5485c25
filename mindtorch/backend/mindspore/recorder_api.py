"""Interface between kernels and the recorder that builds a graph of their MindSpore calls
(`mindtorch/backend/mindspore/graph`). Without a recorder these functions do nothing or compute
immediately.

A kernel is recorded while it runs. The recorder sees calls of MindSpore primitives by itself and
identifies tensors by their memory. Kernels have to report what happens outside the primitives:
tensors created from scalars (`constant`), scalars that may differ in a later run (`Number`,
`slot`), random state (`new_buffer`), values that a later run has to check before the graph runs
(`runtime_assert`), and memory that the host reads (a graph break: `host_reads`) or writes.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any


class _State:
    """The active recorder, or None."""

    on: Any = None


STATE = _State()


def host_reads(h: Any) -> None:
    """Breaks the graph if a tensor's memory is read while kernels are recorded, unless the tensor
    is known to be constant."""
    if STATE.on is not None:
        STATE.on.host_reads(h)


def graph_break(why: str) -> None:
    """Breaks the graph: the kernel depends on these values, but a graph would apply it to all
    values."""
    if STATE.on is not None:
        STATE.on.broken = why


def constant(h: Any) -> Any:
    """Reports that a tensor's values are the same in every run of the kernel with these constants
    and shapes."""
    if STATE.on is not None:
        STATE.on.constant(h)
    return h


def is_state(h: Any) -> bool:
    """True if a primitive may modify a tensor in place: any tensor outside a graph, and a graph's
    own state."""
    return STATE.on is None or STATE.on.is_state(h)


def untraced(make: Callable[..., Any], *given: Any) -> Any:
    """Calls make(*given) without recording it, for example to create a cached tensor."""
    if STATE.on is None:
        return make(*given)
    with STATE.on.aside():
        return make(*given)


def new_buffer(make: Callable[..., Any], *given: Any) -> Any:
    """Calls make(*given), whose result (a tensor or a tuple of tensors) every run of a graph
    creates again, for example a generator's random numbers."""
    return make(*given) if STATE.on is None else STATE.on.new_buffer(make, given)


def next_rng(generator: Any) -> Any:
    """Returns a generator's next (seed, offset). While recording, it returns a value that can be
    passed to `new_buffer`, and every run of the graph advances the generator again."""
    return generator.take() if STATE.on is None else STATE.on.next_rng(generator)


def runtime_assert(h: Any, look: Callable[[Any], None]) -> bool:
    """Calls look(h), which raises for values that the kernel rejects, and arranges for the same
    call before each run of the graph. Returns True.

    Returns False if the graph itself computes the values, so they cannot be checked beforehand.
    Then look(h) is called after each run.
    """
    if STATE.on is not None:
        return STATE.on.runtime_assert(h, look)
    look(h)
    return True


def opaque_call(obj: Any, compute: Callable[..., Any], handles: tuple[Any, ...]) -> Any:
    """Calls compute(*handles). A graph contains it as one call of `obj`, which MindSpore's compiler
    can read."""
    return compute(*handles) if STATE.on is None else STATE.on.opaque_call(obj, compute, handles)


class Number:
    """A scalar that may differ in later runs of a graph. Arithmetic with it returns another
    `Number`. Reading its value specializes the graph for that value."""

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
        """Returns the square root."""
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
    """Returns the value of a scalar in another run. `given` holds the scalars that were passed to
    kernels, by position."""
    if n.__class__ is not Number:
        return n
    how = n.how
    if how[0] == "given":
        return given[how[1]]
    return how[0](*[value(x, given) for x in how[1:]])


def same(a: Any, b: Any) -> bool:
    """True if two scalars have the same class and are bitwise identical (any two NaNs are)."""
    if a.__class__ is not b.__class__:
        return False
    if a.__class__ is float:
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    return bool(a == b)


def plain(n: Any) -> Any:
    """Returns a Python scalar. For a `Number` the graph is specialized for its value."""
    return n._seen() if n.__class__ is Number else n


def slot(n: Number, np_dtype: Any) -> Any:
    """Returns the 0-d tensor, or the operand, that represents a scalar in a graph."""
    return n.owner.slot(n, np_dtype)
