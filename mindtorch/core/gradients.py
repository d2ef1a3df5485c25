"""Gradient accumulation in a backward pass that is not recorded.

Each function has a kernel of its own name. A device without such a kernel sums with `add` and
copies with `clone`.
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
_ops: dict[str, Callable[..., Any]] = {}  # add, clone, store: set by the ops package


#: Reference count of the array of a tensor that nothing else refers to: the tensor's two references
#: and that of the call.
_fresh = wrap(np.empty(1, np.float32))
_REFERENCES = getrefcount(_fresh._a)


def total(g: Tensor, h: Tensor) -> Tensor:
    """Returns a new tensor: the sum of two gradients of the same shape and dtype."""
    if (g._h is not None or h._h is not None) and (g._h is not None and h._h is not None or _odd(g) or _odd(h)):
        # a sparse gradient has neither handle nor array, and raises SparseUse below
        fn = None if _odd(g) or _odd(h) else TABLES[g._dev.type].get("gradient_sum")
        if fn is None:
            return _ops["add"](g, h)
        return _sum_there(fn, g, h)
    return wrap(_sum(g._a, h._a))


def _odd(t):
    """True if the tensor's handle is not directly its device memory."""
    return t._h.__class__ is Bits or is_wrapped(t)


@devices.alone
def _sum_there(fn, g, h):
    t = devices.tensor(g._dev, fn(g._h, h._h))
    t._when = g._when if g._when in devices.doubt.windows else h._when if h._when in devices.doubt.windows else devices.doubt.now
    return t


def accumulate(to: Tensor, g: Tensor) -> None:
    """Adds a gradient to `to` in place; the caller bumps the version."""
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
    """Returns a leaf's first gradient.

    This is g itself if its memory is not shared and it has the leaf's strides, else a copy.
    """
    if g._h is not None:
        return _ops["clone"](g) if shared(g) or g._rg else g
    if not STRIDED.on:
        return wrap(_copy(g._a, strides=None)) if shared(g) or g._rg else g
    # Use the leaf's strides if they are dense, else C order.
    if leaf._contiguous and not STRIDED.odd:
        return wrap(_copy(g._a, strides=None)) if shared(g) or g._rg or not g._contiguous else g
    a, b = leaf._a, g._a
    plain = layout.contiguous_strides(a.shape)
    strides = layout.strides_of(a)
    if not layout.is_dense(a.shape, strides):
        strides = plain
    if not shared(g) and not g._rg and all(n == 1 or have == want for n, have, want in zip(b.shape, layout.strides_of(b), strides)):
        # The strides of size-1 dimensions address nothing. They indicate the memory format of a
        # convolution weight with one channel or a 1x1 kernel.
        if strides != plain:
            b.strides = [s * b.itemsize for s in strides]
        return g
    return wrap(_copy(b, strides=strides))


def shared(g: Tensor) -> bool:
    """True if this gradient's memory may be shared (it was passed through a node, or is a view)."""
    return g._passed or g._base is not None or g._a.base is not None and (g._h is None or not is_root(g._a))


def alone(g: Tensor) -> bool:
    """True if nothing but this Tensor refers to its host memory.

    Such a reference can be a tensor, array, storage, capsule or MindSpore code.
    """
    return g.__class__ is Tensor and g._h is None and not g._lent and g._a.flags.writeable and getrefcount(g._a) == _REFERENCES


def add_to(old: Tensor, g: Tensor) -> None:
    """Adds a gradient to a leaf's current one in place.

    As in PyTorch, references to it and views of it stay valid.
    """
    if old._h is None and g._h is None:
        _accumulate(old._a, g._a)
    else:
        accumulate(old, g)
    bump(old)
