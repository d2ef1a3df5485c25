"""Building blocks of kernels: MindSpore's primitives, and the few calls that nearly every kernel
needs."""
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from mindtorch.backend.device import UnsupportedByKernel  # noqa: F401
from mindtorch.backend.mindspore.kernels import ASCEND, kernel  # noqa: F401
from mindtorch.backend.mindspore.npu import (DTYPES, STYPES, converted, dtype_of, host_span, is_contiguous, memory_of, offset_of, plain,  # noqa: F401
                                             shape_of, stride_of, stype_of)
from mindtorch.backend.mindspore.private import MSTensor
from mindtorch.backend.mindspore.private import from_contiguous as _from_contiguous
from mindtorch.backend.mindspore.recorder_api import STATE, Number, untraced, runtime_assert, constant, slot  # noqa: F401
from mindtorch.backend.mindspore.runtime import ms
from mindspore.ops import auto_generate as G
from mindspore.ops import operations as P

class _Types(tuple):
    """Dtypes, compared by identity because each is one object: comparing two MindSpore dtypes takes
    4 us."""

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
    """Returns a tensor on a host array's memory, whose values depend only on constants and shapes.
    """
    if STATE.on is None:
        return _from_contiguous(a)
    return constant(untraced(on_device, a) if ASCEND else _from_contiguous(a))


def on_device(a: Any) -> Any:
    """Returns a host array's values in device memory."""
    h = _from_contiguous(a)
    return ms.mint.empty_like(h, device="Ascend").copy_(h) if ASCEND else h


@functools.cache
def _instance(cls: Any, *args: Any, **kwargs: Any) -> Any:
    return cls(*args, **kwargs)


def cached_constants(most: int) -> Any:
    """Like functools.lru_cache, for functions of constants that create tensors.

    The tensors are constants of a graph as well; they must not be modified in place.
    """
    def decorate(fn):
        found = functools.lru_cache(most)(fn)

        @functools.wraps(fn)
        def get(*args):
            return found(*args) if STATE.on is None else STATE.on.cached(found, args)
        return get
    return decorate


def record_call(call: Any, of: Any, args: Any, keys: Any) -> Any:
    """Returns call(*args), recorded in a graph as a call of `of`. Scalars among the arguments may
    differ in later runs."""
    on = STATE.on
    if on is None:
        return call(*args, **keys)
    r = untraced(lambda: call(*[_now(a) for a in args], **{k: _now(v) for k, v in keys.items()}))
    return on.called(of, r, args, keys)


def _now(a):
    return a.value if a.__class__ is Number else a


if ASCEND:
    def op(cls: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns the shared instance of a MindSpore primitive with these settings."""
        prim = _instance(cls, *args, **kwargs)
        # A recorder would see the primitive's converted arguments: integers instead of dtypes and
        # strings.
        return prim if STATE.on is None else lambda *a, **k: record_call(prim, prim, a, k)
else:
    op = _instance


class _Mint:
    """`mindspore.mint` with calls that are recorded explicitly: its functions call no primitive
    that a recorder could see."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        found = _recorded(found) if callable(found) else _Mint(found)
        setattr(self, name, found)
        return found


def _recorded(function):
    def call(*args, **keys):
        return function(*args, **keys) if STATE.on is None else record_call(function, function, args, keys)
    return call


mint: Any = _Mint(ms.mint) if ASCEND else ms.mint


_rows: dict[Any, Any] = {}
# scalars expanded to whole shapes, for graphs: one tensor for each shape
_full_tensors: dict[Any, Any] = {}


def all_of(value: float, x: Any) -> Any:
    """Returns a read-only tensor of one value in the shape and dtype of x, whose memory all such
    tensors share.

    For the CPU target, and for few different values.
    """
    dtype, shape = dtype_of(x), shape_of(x)
    if STATE.on is not None:
        key = value, id(dtype), shape
        h = _full_tensors.get(key)
        if h is None:
            if len(_full_tensors) > 64:
                _full_tensors.clear()
            h = _full_tensors[key] = _from_contiguous(np.full(shape, value, STYPES[dtype]))
        return constant(h)
    n = math.prod(shape)
    row = _rows.get((value, id(dtype)))
    if row is None or row.size < n:
        row = _rows[value, id(dtype)] = np.full(n, value, STYPES[dtype])
    return from_contiguous(row[:n].reshape(shape))


_scalars: dict[Any, Any] = {}


def number(value: Any, dtype: Any) -> Any:
    """Returns a scalar as a cached 0-d tensor; a tensor is returned unchanged."""
    c = value.__class__
    if c is not float and c is not int:
        if isinstance(value, MSTensor):
            return value
        if c is Number:
            return slot(value, STYPES[dtype])
    key = value, id(dtype), math.copysign(1, value) if c is float else c
    t = _scalars.get(key)
    if t is None:
        if len(_scalars) > 4096:
            _scalars.clear()
        t = _scalars[key] = untraced(on_device, np.asarray(value).astype(STYPES[dtype]))
    return t if STATE.on is None else constant(t)


def cast(x: Any, dtype: Any) -> Any:
    """Returns x in another dtype; x itself if it has that dtype."""
    return x if dtype_of(x) == dtype else op(P.Cast)(x, dtype) if ASCEND else converted(x, STYPES[dtype])


def copied(x: Any) -> Any:
    """Returns a contiguous copy."""
    return op(G.Copy)(x) if ASCEND else converted(x, stype_of(x))


def reshape(x: Any, shape: Any) -> Any:
    return op(P.Reshape)(x, tuple(shape))


def broadcast(x: Any, shape: Any) -> Any:
    shape = tuple(shape)
    return x if shape_of(x) == shape else op(P.BroadcastTo, shape)(x)


def full(shape: Any, value: Any, dtype: Any) -> Any:
    """Returns a new tensor of one value."""
    if ASCEND:
        return op(G.FillScalar)(tuple(shape), value, dtype)
    np_dtype = STYPES[dtype]
    if not value:
        return from_contiguous(np.zeros(shape, np_dtype))
    if value.__class__ is Number:
        return copied(broadcast(slot(value, np_dtype), shape))
    if np_dtype.kind == "V":
        return from_contiguous(np.full(shape, value, np.float32).astype(np_dtype))
    # This target's memory is the host's; FillV2 takes 30 us.
    return from_contiguous(np.full(shape, value, np_dtype))
