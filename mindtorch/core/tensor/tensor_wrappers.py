"""Wrapper tensors: instances of classes with `__torch_dispatch__`, and slices of a vmap.

Such a tensor has an `SubclassHandle` (or `BatchedHandle`) handle, and a geometry-only array (`Opaque`). Code
that reads or writes its values without the dispatcher therefore raises an error. The functions that
handle these tensors are set by the facade (torch/_dispatch_protocol.py) and by core/transforms/vmap.py.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

#: set by the facade: (tensor) -> another one on the same values without history; (tensor, value) ->
#: None, stores a value; (tensor) -> its values, or raises an error
shallow_copy: Callable[[Any], Any]
write: Callable[[Any, Any], None]
values: Callable[[Any], Any]
#: set by the facade: called when a tensor becomes or stops being an instance of such a class
changed: Callable[[Any], None]


def _unique_callback(ref):
    """Callback that makes a weak reference unique; Python shares one plain reference per object."""


def count_weakrefs(t: Any) -> int:
    """Returns the number of weak references that only track the tensor's lifetime.

    Set by the facade.
    """
    return 0


class SubclassHandle:
    """Handle of a tensor whose class manages its values."""

    __slots__ = ("of", "__weakref__")

    def __init__(self, of: Any) -> None:
        self.of = weakref.ref(of, _unique_callback)

    def tensor(self) -> Any:
        """The tensor itself."""
        return self.of()


class BatchedHandle:
    """Handle of a tensor that represents one slice of a vmap.

    value: the tensor of all slices, along its first dimension if `mapped`; else one tensor that is
    the same for all slices. level: the vmap.
    """

    __slots__ = ("value", "mapped", "level", "__weakref__")

    def __init__(self, value: Any, mapped: bool, level: Any) -> None:
        self.value, self.mapped, self.level = value, mapped, level


#: set by core.vmap: as `write` and `values`; (tensor, kernel's name, kernel, operands,
#: constants) -> None, runs a kernel that writes to its values
write_batched: Callable[[Any, Any], None]
values_of_batched: Callable[[Any], Any]
write_batched_by: Callable[..., None]


def is_wrapper_subclass(t: Any) -> bool:
    """True if the values of a tensor (or of what a node saved of one) are managed by its class."""
    return t._handle.__class__ is SubclassHandle


def is_batched(t: Any) -> bool:
    """True if a tensor represents the slices of a vmap."""
    return t._handle.__class__ is BatchedHandle


def is_wrapped(t: Any) -> bool:
    """True if a tensor (or what a node saved of one) has no memory of its own."""
    return t._handle.__class__ is SubclassHandle or t._handle.__class__ is BatchedHandle
