"""The conjugate bit and the negative bit: tensors whose values are those of their memory conjugated, or negated, which nobody has done yet.

Such a tensor has `Bits` as its handle and an array without memory (`Veiled`, or its device's own) as its geometry, so that whoever would read or write its
values behind the dispatcher's back is told so.  What it does with memory (storages, addresses, overlaps) it does as `plain(t)`, the tensor without the bits.

A layer of the dispatcher (core/conjugate.py) makes it whole: views of it have its bits, every other primitive gets a materialised operand.  It is in use
only while there are such tensors.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.device import Opaque, Veiled, view_of
from mindtorch.core.wrapped import Batched

#: what keeps the layer in use: ids of the `Bits` there are.  (Adding to a set and taking from it are one step each, whatever the thread.)
LIVE: set[int] = set()


#: set by core.conjugate: (tensor with bits) -> another one on the same values, without history
again: Callable[[Any], Any]
#: likewise: (tensor with bits, number or tensor that broadcasts to it) -> None, stores a value and counts no write
write: Callable[[Any, Any], None]
#: likewise: (tensor with bits) -> its values as a host array; and as a tensor without bits and history, on its device
values: Callable[[Any], Any]
whole: Callable[[Any], Any]
#: likewise: (tensor that has bits or is to have them, tensor without, conjugate bit, negative bit) -> None, puts the one on the other's memory
become: Callable[[Any, Any, bool, bool], None]
#: likewise: (tensor with bits, value) -> what has to be in its memory so that it has this value
turned: Callable[[Any, Any], Any]
#: likewise: (view, its base, value of the view) -> what the base's region is then, with history
related: Callable[[Any, Any, Any], Any]
#: likewise: (node that reads the region, view, base) -> one that reads the view
turning: Callable[[Any, Any, Any], Any]


class Bits:
    """Handle of a tensor with bits; `of`: a tensor on the same memory without bits and history, with its write counter."""

    __slots__ = ("of", "conj", "neg")

    def __init__(self, of: Any, conj: bool, neg: bool) -> None:
        self.of, self.conj, self.neg = of, conj, neg
        LIVE.add(id(self))

    def __del__(self, discard: Any = LIVE.discard) -> None:
        discard(id(self))


def plain(t: Any) -> Any:
    """The tensor on t's memory without bits: t itself if it has none."""
    h = t._h
    return h.of if h.__class__ is Bits else t


def bits_of(t: Any) -> tuple[bool, bool]:
    """(conjugate bit, negative bit)."""
    h = t._h
    return (h.conj, h.neg) if h.__class__ is Bits else (False, False)


def is_conj(t: Any) -> bool:
    """Whether its values are those of its memory conjugated."""
    h = t._h
    return h.__class__ is Bits and h.conj or h.__class__ is Batched and is_conj(h.value)


def is_neg(t: Any) -> bool:
    """Whether its values are those of its memory negated."""
    h = t._h
    return h.__class__ is Bits and h.neg or h.__class__ is Batched and is_neg(h.value)


def veiled(of: Any) -> Opaque:
    """The geometry of a tensor with bits on the memory of `of`."""
    a = of._a
    if isinstance(a, Opaque):
        return view_of(a, np.ndarray.view(a, np.ndarray))         # (of its own: tensors are told apart by their arrays)
    v = a.view(Veiled)
    v.frozen = not a.flags.writeable and of._dev.type != "meta"
    v.flags.writeable = False
    return v


def renewed(t: Any) -> Any:
    """t itself, whose memory without bits stands elsewhere than it did."""
    t._a = veiled(t._h.of)
    return t


def refused(t: Any) -> RuntimeError:
    """What a reader of the memory itself is told."""
    what, how = ("conjugate", "resolve_conj") if t._h.conj else ("negative", "resolve_neg")
    return RuntimeError(f"Can't call numpy() on Tensor that has {what} bit set. Use tensor.{how}().numpy() instead.")
