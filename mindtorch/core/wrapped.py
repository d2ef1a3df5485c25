"""Tensors that stand for others: those of a class with `__torch_dispatch__`, slices of a vmap, and what they have in place of memory.

Such a tensor has `Elsewhere` (or `Batched`) as its handle and an array without memory (`Opaque`) as its geometry, so that whoever would read or write its
values behind the dispatcher's back is told so.  Who answers for it is set by the facade (torch/_dispatch_protocol.py), and by core/batching.py.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

#: set by the facade: (tensor) -> another one on the same values without history; (tensor, value) -> None, stores a value; (tensor) -> its values, or an error
again: Callable[[Any], Any]
write: Callable[[Any, Any], None]
values: Callable[[Any], Any]
#: set by the facade: notes that a tensor has become one of such a class, or is none any more
changed: Callable[[Any], None]


def _gone(ref):
    """(With a callback the reference is one of its own: Python gives all that ask for a plain one the same.)"""


def listed(t: Any) -> int:
    """How many weak references to a tensor are there only to know that it lives (set by the facade)."""
    return 0


class Elsewhere:
    """The handle of a tensor whose values are its class's own affair."""

    __slots__ = ("of", "__weakref__")

    def __init__(self, of: Any) -> None:
        self.of = weakref.ref(of, _gone)

    def tensor(self) -> Any:
        """The tensor itself."""
        return self.of()


class Batched:
    """The handle of a tensor that stands for one slice of many: the tensor of all slices, along its first dimension if `mapped`, and the vmap.

    Not mapped: all slices are the same, and the tensor is one of them.
    """

    __slots__ = ("value", "mapped", "level", "__weakref__")

    def __init__(self, value: Any, mapped: bool, level: Any) -> None:
        self.value, self.mapped, self.level = value, mapped, level


#: set by core.batching: as `write` and `values`; (tensor, kernel's name, kernel, operands, constants) -> None, has a kernel write into its values
write_batched: Callable[[Any, Any], None]
values_of_batched: Callable[[Any], Any]
write_batched_by: Callable[..., None]


def is_elsewhere(t: Any) -> bool:
    """Whether a tensor's (or what a node saved of one) values are its class's own affair."""
    return t._h.__class__ is Elsewhere


def is_batched(t: Any) -> bool:
    """Whether a tensor stands for the slices of a vmap."""
    return t._h.__class__ is Batched


def is_wrapped(t: Any) -> bool:
    """Whether a tensor (or what a node saved of one) has no memory of its own."""
    return t._h.__class__ is Elsewhere or t._h.__class__ is Batched
