"""One set of threads for the kernels of a process, where there is a C compiler (_pool.c, native_build.py).

Python's threads (threads.py) need the interpreter lock between any two calls, OpenBLAS and MindSpore keep threads of their own
that go on spinning for 6 to 25 ms after each job; on two cores a step of a small network loses more to that than the second
core gains it.  Here pieces of oneDNN's products and convolutions, optimizers and torch.compile's kernels are taken by threads
that know of no lock, and wait for the next job for `_SPIN` before they sleep.  Optimizers, casts and passes come out bit for bit as without
them.

us of a 64x784 @ 784x512 on two cores: 123; with Python's threads 230, on one core 228.
"""
import ctypes
import functools

import numpy as np

from mindtorch.backend.native import build as native_build
from mindtorch.backend.cpu import threads
from mindtorch.backend.cpu._numpy_private import reads_arrays
from mindtorch.backend.cpu.host import address

_P, _L, _I, _F = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_float
_SPIN = 300_000         # ns
_ARGUMENTS = {
    "mt_threads": [_I, _L, _P],
    "mt_rest": [],
    "mt_sgemm": [_P, ctypes.c_char, ctypes.c_char, _L, _L, _L, _P, _L, _P, _L, _F, _P, _L, _P],
    "mt_sgemms": [_P, ctypes.c_char, ctypes.c_char, _L, _L, _L, _P, _L, _P, _L, _P, _L, _P, _P, _P, _L, _I],
    "mt_plan": [_P, _P, _L, _P, _P, _P],
    "mt_passes": [_P, _P, _P, _P, _L, _L, _L, _P],
    "mt_pass": [_I, _P, _P, _I, _P, _L],
    "mt_cast": [_I, _P, _P, _L],
    "mt_update": [_I, _L, _L, _P, _P, _P, _P],
}


@functools.cache
def lib():
    """The library with its argument types set, or None."""
    found = native_build.pool()
    if found is not None:
        native_build.declare(found, _ARGUMENTS, ("mt_sgemm", "mt_sgemms", "mt_plan", "mt_passes", "mt_cast", "mt_update"))
        threads.before_share = found.mt_rest
    return found


_set = _prepare = None


def ready():
    """The library with as many threads as threads.count() says, or None."""
    global _set
    n = threads.count()
    if n != _set:
        found = lib()
        if found is None:
            return None
        # More threads than processors would keep each other from working by waiting.
        found.mt_threads(n, _SPIN if n <= threads.processors() else 0, _prepare)
        _set = n
    return lib()


def ready_for(size):
    """Whether a kernel over so many elements may run: threads are made for large arrays, which alone are shared (0.2 us less for others)."""
    return size < SHARED or ready() is not None


#: elements from which on the kernels beside the pool share an array (MANY in _common.h)
SHARED = 1 << 16


def prepare(function):
    """Address of a C function int(int) that every new thread calls first, with 1."""
    global _set, _prepare
    _prepare, _set = function, None


# ------------------------------------------------------------------ optimizers
_F32 = np.dtype(np.float32)
SGD, ADAM = 0, 1


def update(kind, columns, options, numbers):
    """One step of an optimizer for all rows of `columns` (lists of float32 arrays: parameters, states, gradients) in place.

    options, numbers: as backend/cpu/optimizer.py makes them.  False, and nothing is done, where the library is missing or an array
    is not contiguous, aligned and of float32."""
    found = ready()
    if found is None or not reads_arrays():
        return False
    rows, ids = len(columns[0]), []
    for c in columns:
        ids += map(id, c)
    # (an array of the addresses of objects that the caller keeps)
    at = (_P * len(ids))(*ids)
    return not found.mt_update(kind, rows, len(columns), at, id(_F32), (_I * 4)(*options), (_F * 8)(*numbers))


# ------------------------------------------------------------------ elementwise
PASSES = {np.add: 0, np.subtract: 1, np.multiply: 2, np.divide: 3}
_LARGER, _WHERE_POSITIVE = 4, 5
#: Elements from which on a pass is shared out: 131072 added in 9 us (NumPy 15), a million in 66 (114); where_positive, which NumPy
#: needs three passes for, 32768 in 5 (8), a million in 61 (220).
LARGE, LARGE_WHERE = 1 << 17, 1 << 15


def _pass(kind, a, b, out):
    found = ready()
    if found is None:
        return None
    r = np.empty(a.shape, _F32) if out is None else out
    found.mt_pass(kind, address(a), address(b), not b.ndim, address(r), a.size)
    return r


def binary(ufunc, a, b, out=None):
    """ufunc(a, b) of large C-contiguous float32 arrays of one shape (b may be a single number); None where it is not for this."""
    kind = PASSES.get(ufunc)
    return None if kind is None else _pass(kind, a, b, out)


_ZERO = np.zeros((), _F32)


def relu(x):
    """max(x, 0) of such an array, or None."""
    return _pass(_LARGER, x, _ZERO, None)


def where_positive(g, y):
    """g where y > 0, else 0, or None."""
    return _pass(_WHERE_POSITIVE, y, g, None)
