"""Wrapper tensors: instances of classes with `__torch_dispatch__`, and slices of a vmap.

Such a tensor has an `SubclassHandle` (or `BatchedHandle`) handle, and a geometry-only array (`Opaque`). Code
that reads or writes its values without the dispatcher therefore raises an error. The functions that
handle these tensors are hooks (`core/hooks.py`), which torch/_dispatch_protocol.py and
core/transforms/vmap.py provide.
"""
from __future__ import annotations

import weakref
from typing import Any


def _unique_callback(ref):
    """Callback that makes a weak reference unique; Python shares one plain reference per object."""


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


def is_wrapper_subclass(t: Any) -> bool:
    """True if the values of a tensor (or of what a node saved of one) are managed by its class."""
    return t._handle.__class__ is SubclassHandle


def is_batched(t: Any) -> bool:
    """True if a tensor represents the slices of a vmap."""
    return t._handle.__class__ is BatchedHandle


def is_wrapped(t: Any) -> bool:
    """True if a tensor (or what a node saved of one) has no memory of its own."""
    return t._handle.__class__ is SubclassHandle or t._handle.__class__ is BatchedHandle
