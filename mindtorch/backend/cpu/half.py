"""Casts; float16 and bfloat16 to float32 and back above all: what an op in half precision spends most of its time on.

NumPy's loops take a value at a time.  A million elements, us, NumPy / here / torch: bfloat16 to float32 3400 / 60 / 30 (220
without a C compiler), back 790 / 50 / 30; float16 to float32 1300 / 60, back 1600 / 50.  Bit for bit the same (to the nearest,
ties to even).
"""
from __future__ import annotations

import functools

import numpy as np

from mindtorch.backend.cpu import threads
from mindtorch.backend.native import pool
from mindtorch.backend.cpu.host import address
from mindtorch.backend.interface import Array, Kernel, Stype
from mindtorch.backend.mindspore.private import bfloat16_np

_F32 = np.dtype(np.float32)
_LEAST = 1 << 9         # elements from which on a call of C pays


def _in_c(kind, a, dtype):
    """A large array that is contiguous, or whose transpose is, cast in C and laid out as `a` is; None where it is not for that."""
    lib = pool.ready() if a.size >= _LEAST else None
    if lib is None or not (a.flags.c_contiguous or a.flags.f_contiguous):
        return None
    r = np.empty_like(a, dtype)
    return None if lib.mt_cast(kind, address(a), address(r), a.size) else r


def widen(a: Array) -> Array:
    """A new float32 array from one of float16 or bfloat16, in the same order in memory."""
    low = a.dtype == bfloat16_np
    r = _in_c(0 if low else 2, a, _F32)
    if r is not None:
        return r
    if not low:
        return a.astype(_F32)
    bits = a.view(np.uint16).astype(np.uint32)
    bits <<= np.uint32(16)
    return bits.view(_F32)


def narrow(a: Array, dtype: Stype) -> Array:
    """A new array of float16 or bfloat16 from one of float32, in the same order in memory."""
    r = _in_c(1 if dtype == bfloat16_np else 3, a, dtype)
    return a.astype(dtype) if r is None else r


#: dtypes that C casts to one another as NumPy does, in _pool.c's order
_PLAIN = {np.dtype(t): i for i, t in enumerate((np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.float32, np.float64))}
_I64 = _PLAIN[np.dtype(np.int64)]
_SHARED = 1 << 16       # elements from which on threads share a cast


def cast(a: Array, dtype: Stype) -> Array:
    """a.astype(dtype) for dtypes of NumPy's own; large arrays by all threads.

    On one thread C is faster with int64 alone: us of NumPy and C for 65536 elements of float32 to int64 34 and 12, back 19 and 10, to float64 9.7 and 11.9."""
    if a.size >= _SHARED:
        x, y = _PLAIN.get(a.dtype), _PLAIN.get(dtype)
        if x is not None and y is not None and (threads.count() > 1 or _I64 in (x, y)):
            r = _in_c(16 + len(_PLAIN) * x + y, a, dtype)
            if r is not None:
                return r
    return a.astype(dtype)


def stepwise(fn: Kernel) -> Kernel:
    """A step of a kernel that takes half precision as it is: computed in float32, its result rounded, as an op of its own would be."""
    @functools.wraps(fn)
    def step(*arrays, **kw):
        d = arrays[0].dtype
        if d.itemsize != 2 or d.kind not in "fV":
            return fn(*arrays, **kw)
        return narrow(fn(*[widen(a) for a in arrays], **kw), d)
    return step


#: Elements that PyTorch's vector loops over half precision do at a time.  They round results alone; the elements that are left are computed one by one, and
#: rounded after each step.
_AT_ONCE = 32
_GRAIN = 1 << 15        # elements from which on it shares them out between threads


def alone(n: int, *arrays: Array) -> list[slice]:
    """Slices of the last axis, of length n, in which PyTorch computes elements one by one: what is left of each thread's part, all where memory is strided."""
    if any([a.strides[-1] != 2 for a in arrays]):
        return [slice(None)]
    if n % _AT_ONCE == 0 and n <= _GRAIN:
        return []
    part = n if n <= _GRAIN else -(-n // min(threads.count(), -(-n // _GRAIN)))
    ends = [min(start + part, n) for start in range(0, n, part)]
    return [slice(stop - size % _AT_ONCE, stop) for start, stop in zip([0, *ends], ends) for size in [stop - start] if size % _AT_ONCE]
