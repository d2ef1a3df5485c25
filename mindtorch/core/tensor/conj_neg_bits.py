"""Lazy conjugation and negation: tensors whose memory holds the un-conjugated (un-negated) values.

Such a tensor has `ConjNegBits` as its handle and a geometry-only array (`UnmaterializedArray`, or the device's own) as
its `_array`, so that code that would read or write its values without the dispatcher raises an error.
Memory operations (storages, addresses, overlaps) use `plain(t)`, the tensor without the bits.

A layer of the dispatcher (`mindtorch/core/dispatch/lazy_conj.py`) resolves the bits: views keep them, every
other primitive gets a materialized operand. The layer is active only while such tensors exist.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from mindtorch.backend.device import GeometryArray, UnmaterializedArray, view_of
from mindtorch.core.tensor.tensor_wrappers import BatchedHandle

#: Ids of the live `ConjNegBits` objects; they keep the layer active. Adding to a set and removing from it
#: are atomic, so no lock is needed.
LIVE: set[int] = set()


class ConjNegBits:
    """Handle of a tensor with bits.

    `of` is a tensor on the same memory without bits and history; the two share a version counter.
    """

    __slots__ = ("of", "conj", "neg")

    def __init__(self, of: Any, conj: bool, neg: bool) -> None:
        self.of, self.conj, self.neg = of, conj, neg
        LIVE.add(id(self))

    def __del__(self, discard: Any = LIVE.discard) -> None:
        discard(id(self))


def plain(t: Any) -> Any:
    """Returns the tensor on the memory of `t` without bits: `t` itself if it has none."""
    h = t._handle
    return h.of if h.__class__ is ConjNegBits else t


def bits_of(t: Any) -> tuple[bool, bool]:
    """Returns (conjugate bit, negative bit)."""
    h = t._handle
    return (h.conj, h.neg) if h.__class__ is ConjNegBits else (False, False)


def is_conj(t: Any) -> bool:
    """True if the conjugate bit is set."""
    h = t._handle
    return h.__class__ is ConjNegBits and h.conj or h.__class__ is BatchedHandle and is_conj(h.value)


def is_neg(t: Any) -> bool:
    """True if the negative bit is set."""
    h = t._handle
    return h.__class__ is ConjNegBits and h.neg or h.__class__ is BatchedHandle and is_neg(h.value)


def unmaterialized(of: Any) -> GeometryArray:
    """Returns the geometry of a tensor with bits on the memory of `of`."""
    a = of._array
    if isinstance(a, GeometryArray):
        # A new array, because tensors are distinguished by their arrays.
        return view_of(a, np.ndarray.view(a, np.ndarray))
    v = a.view(UnmaterializedArray)
    v.frozen = not a.flags.writeable and of._device.type != "meta"
    v.flags.writeable = False
    return v


def rebuilt(t: Any) -> Any:
    """Updates the geometry of `t` after its memory without bits has moved, and returns `t`."""
    t._array = unmaterialized(t._handle.of)
    return t


def lazy_bits_error(t: Any) -> RuntimeError:
    """Returns the error for code that would read the memory directly."""
    what, how = ("conjugate", "resolve_conj") if t._handle.conj else ("negative", "resolve_neg")
    return RuntimeError(f"Can't call numpy() on Tensor that has {what} bit set. Use tensor.{how}().numpy() instead.")
