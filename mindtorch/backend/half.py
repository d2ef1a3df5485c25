"""float16 and bfloat16 to float32 and back: what an op in half precision spends most of its time on.

NumPy's loops take a value at a time.  A million elements, us, NumPy / here / torch: bfloat16 to float32 3400 / 60 / 30 (220
without a C compiler), back 790 / 50 / 30; float16 to float32 1300 / 60, back 1600 / 50.  Bit for bit the same (to the nearest,
ties to even).
"""
import numpy as np

from mindtorch.backend import pool
from mindtorch.backend.private import bfloat16_np

_F32, _F16 = np.dtype(np.float32), np.dtype(np.float16)
_LEAST = 1 << 9         # elements from which on a call of C pays


def _in_c(kind, a, dtype):
    """A C-contiguous array cast in C, or None."""
    lib = pool.ready()
    if lib is None:
        return None
    r = np.empty(a.shape, dtype)
    if lib.mt_cast(kind, a.__array_interface__["data"][0], r.__array_interface__["data"][0], a.size):
        return None
    return r


def _ordered(f, a, *rest):
    """f of a large array that is contiguous or its transpose is, laid out as `a` is; None where it is neither."""
    if a.flags.c_contiguous:
        return f(a, *rest)
    if a.flags.f_contiguous:
        r = f(a.T, *rest)
        return None if r is None else r.T
    return None


def widen(a):
    """A new float32 array from one of float16 or bfloat16, in the same order in memory."""
    low = a.dtype == bfloat16_np
    if a.size >= _LEAST:
        r = _ordered(lambda x: _in_c(0 if low else 2, x, _F32), a)
        if r is not None:
            return r
    if not low:
        return a.astype(_F32)
    bits = a.view(np.uint16).astype(np.uint32)
    bits <<= np.uint32(16)
    return bits.view(_F32)


def narrow(a, dtype):
    """A new array of float16 or bfloat16 from one of float32, in the same order in memory."""
    if a.size >= _LEAST:
        r = _ordered(lambda x: _in_c(1 if dtype == bfloat16_np else 3, x, dtype), a)
        if r is not None:
            return r
    return a.astype(dtype)
