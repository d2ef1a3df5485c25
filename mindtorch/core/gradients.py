"""What backward does to gradients where nothing is recorded: it adds them up, and gives a leaf one that is its own.

One function for each purpose, each with a kernel under its name; a device that has no such kernel adds by `add`, and copies by `clone`.
"""
from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from mindtorch.backend.device import is_root
from mindtorch.backend.kernels import TABLES
from mindtorch.backend.mindspore.private import STRIDED
from mindtorch.core import bits, devices, layout
from mindtorch.core.bits import Bits
from mindtorch.core.tape import HOST
from mindtorch.core.tensor import Tensor, bump, wrap
from mindtorch.core.wrapped import is_wrapped

_sum, _accumulate, _copy = HOST["gradient_sum"], HOST["gradient_accumulate"], HOST["gradient_copy"]
_ops: dict[str, Callable[..., Any]] = {}        # add, clone, store: set by the ops floor


#: how many references to a tensor's memory there are where nobody else has it: its own two, and the call's
_fresh = wrap(np.empty(1, np.float32))
_REFERENCES = getrefcount(_fresh._a)


def total(g: Tensor, h: Tensor) -> Tensor:
    """A new tensor: the sum of two gradients of one shape and dtype."""
    if (g._h is not None or h._h is not None) and (g._h is not None and h._h is not None or _odd(g) or _odd(h)):
        # (A sparse one has neither handle nor array, and says so below.)
        fn = None if _odd(g) or _odd(h) else TABLES[g._dev.type].get("gradient_sum")
        if fn is None:
            return _ops["add"](g, h)
        return _sum_there(fn, g, h)
    return wrap(_sum(g._a, h._a))


def _odd(t):
    """Whether a tensor is on no device's memory as it is."""
    return t._h.__class__ is Bits or is_wrapped(t)


@devices.alone
def _sum_there(fn, g, h):
    t = devices.tensor(g._dev, fn(g._h, h._h))
    t._when = g._when if g._when in devices.doubt.windows else h._when if h._when in devices.doubt.windows else devices.doubt.now
    return t


def accumulate(to: Tensor, g: Tensor) -> None:
    """Adds a gradient to `to`, in that one's memory, whose writes the caller counts."""
    if g._h.__class__ is Bits:
        g = bits.whole(g)
    if to._h is None:
        _accumulate(to._a, g._a)
        return
    if g._h is None and not _odd(to):
        _accumulate(to._a, g._a)
        return
    fn = None if _odd(to) else TABLES[to._dev.type].get("gradient_accumulate")
    if fn is None:
        devices.write(to, _ops["add"](to, g))
    else:
        devices.alone(fn)(to._h, g._h)


def own(leaf: Tensor, g: Tensor) -> Tensor:
    """A leaf's first gradient: g itself if nobody else sees its memory and its strides are the leaf's, else a copy."""
    if g._h is not None:
        return _ops["clone"](g) if shared(g) or g._rg else g
    if not STRIDED.on:
        return wrap(_copy(g._a, strides=None)) if shared(g) or g._rg else g
    # In the leaf's strides where they are dense, else in C order.
    if leaf._contiguous and not STRIDED.odd:
        return wrap(_copy(g._a, strides=None)) if shared(g) or g._rg or not g._contiguous else g
    a, b = leaf._a, g._a
    plain = layout.contiguous_strides(a.shape)
    strides = layout.strides_of(a)
    if not layout.is_dense(a.shape, strides):
        strides = plain
    if not shared(g) and not g._rg and all(n == 1 or have == want for n, have, want in zip(b.shape, layout.strides_of(b), strides)):
        # (Strides of size 1 address nothing, but say which format a convolution's weight of one channel or place is in.)
        if strides != plain:
            b.strides = [s * b.itemsize for s in strides]
        return g
    return wrap(_copy(b, strides=strides))


def shared(g: Tensor) -> bool:
    """True if somebody else may see this gradient's memory (it was passed through a node, or is a view)."""
    return g._passed or g._base is not None or g._a.base is not None and (g._h is None or not is_root(g._a))


def alone(g: Tensor) -> bool:
    """True if nothing but this Tensor refers to its host memory: no other tensor, array, storage or capsule, and no code of MindSpore's."""
    return g.__class__ is Tensor and g._h is None and not g._lent and g._a.flags.writeable and getrefcount(g._a) == _REFERENCES


def add_to(old: Tensor, g: Tensor) -> None:
    """Adds a gradient to a leaf's present one.  As torch: the same tensor is kept, so that references to it and views of it stay valid."""
    if old._h is None and g._h is None:
        _accumulate(old._a, g._a)
    else:
        accumulate(old, g)
    bump(old)
