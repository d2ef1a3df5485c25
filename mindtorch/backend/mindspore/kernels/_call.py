"""What kernels are written with: MindSpore's primitives, and the few calls that nearly every kernel needs."""
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from mindtorch.backend.device import Lacking  # noqa: F401
from mindtorch.backend.mindspore.kernels import ASCEND, kernel  # noqa: F401
from mindtorch.backend.mindspore.npu import (DTYPES, STYPES, converted, dtype_of, host_span, is_contiguous, memory_of, offset_of, plain,  # noqa: F401
                                             shape_of, stride_of, stype_of)
from mindtorch.backend.mindspore.private import MSTensor
from mindtorch.backend.mindspore.private import from_contiguous as _from_contiguous
from mindtorch.backend.mindspore.recording import STATE, Number, aside, check, constant, slot  # noqa: F401
from mindtorch.backend.mindspore.runtime import ms
from mindspore.ops import auto_generate as G
from mindspore.ops import operations as P

class _Types(tuple):
    """Dtypes, which are one object each: comparing two of MindSpore's takes 4 us."""

    def __contains__(self, d: Any) -> bool:
        for t in self:
            if t is d:
                return True
        return False

    def __add__(self, more: Any) -> Any:
        return _Types((*self, *more))


HALF = _Types((ms.float16, ms.bfloat16))
FLOATING = _Types((ms.float32, ms.float64, ms.float16, ms.bfloat16))
COMPLEX = _Types((ms.complex64, ms.complex128))


def from_contiguous(a: Any) -> Any:
    """A tensor on a host array's memory, whose values depend on constants and shapes alone."""
    if STATE.on is None:
        return _from_contiguous(a)
    return constant(aside(on_device, a) if ASCEND else _from_contiguous(a))


def on_device(a: Any) -> Any:
    """A host array's values in the memory of the device."""
    h = _from_contiguous(a)
    return ms.mint.empty_like(h, device="Ascend").copy_(h) if ASCEND else h


@functools.cache
def _instance(cls: Any, *args: Any, **kwargs: Any) -> Any:
    return cls(*args, **kwargs)


def kept(most: int) -> Any:
    """functools.lru_cache for functions of constants that make tensors, which are constants of a graph too; nobody writes to them."""
    def keep(fn):
        found = functools.lru_cache(most)(fn)

        @functools.wraps(fn)
        def get(*args):
            return found(*args) if STATE.on is None else STATE.on.kept(found, args)
        return get
    return keep


def told(call: Any, of: Any, args: Any, keys: Any) -> Any:
    """call(*args), which stands for `of` in a graph; numbers among the arguments may be such that later runs have otherwise."""
    on = STATE.on
    if on is None:
        return call(*args, **keys)
    r = aside(lambda: call(*[_now(a) for a in args], **{k: _now(v) for k, v in keys.items()}))
    return on.called(of, r, args, keys)


def _now(a):
    return a.value if a.__class__ is Number else a


if ASCEND:
    def op(cls: Any, *args: Any, **kwargs: Any) -> Any:
        """The one instance of a MindSpore primitive with these settings."""
        prim = _instance(cls, *args, **kwargs)
        # (A recorder would see what the primitive has made of the arguments: numbers in the place of dtypes and words.)
        return prim if STATE.on is None else lambda *a, **k: told(prim, prim, a, k)
else:
    op = _instance


class _Mint:
    """`mindspore.mint`, whose functions are calls of no primitive that a recorder could see: each is told."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        found = _telling(found) if callable(found) else _Mint(found)
        setattr(self, name, found)
        return found


def _telling(function):
    def call(*args, **keys):
        return function(*args, **keys) if STATE.on is None else told(function, function, args, keys)
    return call


mint: Any = _Mint(ms.mint) if ASCEND else ms.mint


_rows: dict[Any, Any] = {}
_spread: dict[Any, Any] = {}        # numbers in whole shapes, for graphs: one for each shape


def all_of(value: float, x: Any) -> Any:
    """A number in the shape and dtype of x, for reading only, of memory that all of it share (CPU target; keep to a few numbers)."""
    dtype, shape = dtype_of(x), shape_of(x)
    if STATE.on is not None:
        key = value, id(dtype), shape
        h = _spread.get(key)
        if h is None:
            if len(_spread) > 64:
                _spread.clear()
            h = _spread[key] = _from_contiguous(np.full(shape, value, STYPES[dtype]))
        return constant(h)
    n = math.prod(shape)
    row = _rows.get((value, id(dtype)))
    if row is None or row.size < n:
        row = _rows[value, id(dtype)] = np.full(n, value, STYPES[dtype])
    return from_contiguous(row[:n].reshape(shape))


_numbers: dict[Any, Any] = {}


def number(value: Any, dtype: Any) -> Any:
    """A number as a tensor of no dimensions, kept; what is a tensor already is returned."""
    c = value.__class__
    if c is not float and c is not int:
        if isinstance(value, MSTensor):
            return value
        if c is Number:
            return slot(value, STYPES[dtype])
    key = value, id(dtype), math.copysign(1, value) if c is float else c
    t = _numbers.get(key)
    if t is None:
        if len(_numbers) > 4096:
            _numbers.clear()
        t = _numbers[key] = aside(on_device, np.asarray(value).astype(STYPES[dtype]))
    return t if STATE.on is None else constant(t)


def cast(x: Any, dtype: Any) -> Any:
    """In another dtype; x itself if it has that."""
    return x if dtype_of(x) == dtype else op(P.Cast)(x, dtype) if ASCEND else converted(x, STYPES[dtype])


def copied(x: Any) -> Any:
    """A contiguous copy."""
    return op(G.Copy)(x) if ASCEND else converted(x, stype_of(x))


def reshape(x: Any, shape: Any) -> Any:
    return op(P.Reshape)(x, tuple(shape))


def broadcast(x: Any, shape: Any) -> Any:
    shape = tuple(shape)
    return x if shape_of(x) == shape else op(P.BroadcastTo, shape)(x)


def full(shape: Any, value: Any, dtype: Any) -> Any:
    """A new tensor of one value."""
    if ASCEND:
        return op(G.FillScalar)(tuple(shape), value, dtype)
    stype = STYPES[dtype]
    if not value:
        return from_contiguous(np.zeros(shape, stype))
    if value.__class__ is Number:
        return copied(broadcast(slot(value, stype), shape))
    if stype.kind == "V":
        return from_contiguous(np.full(shape, value, np.float32).astype(stype))
    return from_contiguous(np.full(shape, value, stype))        # (memory of this target is the host's; FillV2 takes 30 us)
