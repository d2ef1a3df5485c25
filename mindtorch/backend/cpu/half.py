"""Casts, mainly between float32 and float16 or bfloat16: they take most of the time of
half-precision ops.

NumPy's loops convert one value at a time. A million elements, NumPy / this module / PyTorch:
bfloat16 to float32 3400 / 60 / 30 us (220 us without a C compiler), back 790 / 50 / 30 us; float16
to float32 1300 / 60 us, back 1600 / 50 us. The results are bit-identical (round to nearest, ties to
even).
"""
from __future__ import annotations

import functools

import numpy as np

from mindtorch.backend.cpu import threads
from mindtorch.backend.c_kernels import thread_pool
from mindtorch.backend.cpu.host import address
from mindtorch.backend.interface import Array, Kernel, NpDtype
from mindtorch.backend.mindspore.private import bfloat16_np

_F32 = np.dtype(np.float32)
_LEAST = 1 << 9  # elements from which a call of C pays off


def _in_c(kind, a, dtype):
    """Casts a large array in C and preserves its memory order. Returns None if C does not support
    it.

    The array or its transpose has to be contiguous.
    """
    lib = thread_pool.ready() if a.size >= _LEAST else None
    if lib is None or not (a.flags.c_contiguous or a.flags.f_contiguous):
        return None
    r = np.empty_like(a, dtype)
    return None if lib.mt_cast(kind, address(a), address(r), a.size) else r


def upcast(a: Array) -> Array:
    """Converts a float16 or bfloat16 array to a new float32 array with the same memory order."""
    low = a.dtype == bfloat16_np
    r = _in_c(0 if low else 2, a, _F32)
    if r is not None:
        return r
    if not low:
        return a.astype(_F32)
    bits = a.view(np.uint16).astype(np.uint32)
    bits <<= np.uint32(16)
    return bits.view(_F32)


def downcast(a: Array, dtype: NpDtype) -> Array:
    """Converts a float32 array to a new float16 or bfloat16 array with the same memory order."""
    r = _in_c(1 if dtype == bfloat16_np else 3, a, dtype)
    return a.astype(dtype) if r is None else r


#: Dtypes that C casts to one another like NumPy, in the order of `thread_pool.c`.
_PLAIN = {np.dtype(t): i for i, t in enumerate((np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.float32, np.float64))}
_I64 = _PLAIN[np.dtype(np.int64)]
_SHARED = 1 << 16  # elements from which threads share a cast


def cast(a: Array, dtype: NpDtype) -> Array:
    """Returns a.astype(dtype) for NumPy's own dtypes. All threads share large arrays.

    On one thread C is only faster with int64. 65536 elements, NumPy vs C: float32 to int64 34 vs 12
    us, back 19 vs 10 us, to float64 9.7 vs 11.9 us.
    """
    if a.size >= _SHARED:
        x, y = _PLAIN.get(a.dtype), _PLAIN.get(dtype)
        if x is not None and y is not None and (threads.count() > 1 or _I64 in (x, y)):
            r = _in_c(16 + len(_PLAIN) * x + y, a, dtype)
            if r is not None:
                return r
    return a.astype(dtype)


def stepwise(fn: Kernel) -> Kernel:
    """Decorates a step of a kernel that receives half-precision arrays unconverted.

    The step is computed in float32 and its result is rounded, as if it were an op of its own.
    """
    @functools.wraps(fn)
    def step(*arrays, **kw):
        d = arrays[0].dtype
        if d.itemsize != 2 or d.kind not in "fV":
            return fn(*arrays, **kw)
        return downcast(fn(*[upcast(a) for a in arrays], **kw), d)
    return step


#: Elements that PyTorch's vector loops over half precision process at a time. They round only the
#: results. The remaining elements are computed one by one and rounded after each step.
_AT_ONCE = 32
_GRAIN = 1 << 15  # elements from which PyTorch shares them between threads


def scalar_tails(n: int, *arrays: Array) -> list[slice]:
    """Returns the slices of the last axis (of length n) that PyTorch computes element by element.

    These are the remainders of each thread's part, or the entire axis if memory is strided.
    """
    if any([a.strides[-1] != 2 for a in arrays]):
        return [slice(None)]
    if n % _AT_ONCE == 0 and n <= _GRAIN:
        return []
    part = n if n <= _GRAIN else -(-n // min(threads.count(), -(-n // _GRAIN)))
    ends = [min(start + part, n) for start in range(0, n, part)]
    return [slice(stop - size % _AT_ONCE, stop) for start, stop in zip([0, *ends], ends) for size in [stop - start] if size % _AT_ONCE]
