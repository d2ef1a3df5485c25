"""NumPy interface of elementwise.c: elementwise ops in one pass. Without a compiler nothing here is
available, and cpu/pointwise.py uses NumPy."""
import ctypes
import functools

import numpy as np

from mindtorch.backend.interface import NpDtype
from mindtorch.backend.mindspore.private import bfloat16_np
from mindtorch.backend.c_kernels import build, thread_pool

_P, _D, _I = ctypes.c_void_p, ctypes.c_double, ctypes.c_int
_KINDS: dict[NpDtype, int] = {np.dtype(np.float32): 0, np.dtype(np.float64): 1, np.dtype(np.float16): 2, np.dtype(bfloat16_np): 3}


@functools.cache
def lib():
    """Returns the library, or None. It has `mt_loop(how, result, x, y, z)` and
    `mt_loop_numbers(..., p, q, r)` over arrays (their `header`s), and `mt_loop_sums`, which is like
    the latter and also has an array for sums."""
    threads = thread_pool.lib()
    found = build.elementwise() if threads is not None else None
    if found is not None:
        with_numbers = [_I] + [_P] * 4 + [_D] * 3
        direct = {"mt_loop": [_I] + [_P] * 4, "mt_loop_numbers": with_numbers, "mt_loop_sums": with_numbers}
        build.declare(found, direct, direct, direct=True)
        build.declare(found, {"mt_loop_named": [ctypes.c_char_p, _I], "mt_use": [_P, _P]}, ("mt_loop_named",))
        found.mt_use(threads.mt_share, id(np.dtype(np.float32)))
    return found


def code(name: str, dtype: NpDtype) -> int | None:
    """Returns the code of an op over a dtype (first argument of mt_loop); None if there is no loop.
    """
    kind = _KINDS.get(dtype)
    if kind is None or lib() is None:
        return None
    place = lib().mt_loop_named(name.encode(), kind)
    return None if place < 0 else place | kind << 16
