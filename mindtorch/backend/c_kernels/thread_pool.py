"""One thread pool for all kernels of a process, if there is a C compiler (thread_pool.c, build.py).

Python's threads (threads.py) need the interpreter lock between any two calls. OpenBLAS and
MindSpore have their own threads, which keep spinning for 6 to 25 ms after each job. On two cores a
step of a small network loses more to that than the second core gains. The threads of this pool
execute pieces of oneDNN's products and convolutions, of optimizers and of torch.compile's kernels.
They need no interpreter lock, and spin for `_SPIN` before they sleep. Optimizers, casts and
elementwise passes give bitwise the same results as without the pool.

64x784 @ 784x512 on two cores takes 123 us; with Python's threads 230 us, on one core 228 us.
"""
import ctypes
import functools

import numpy as np

from mindtorch.backend.c_kernels import build
from mindtorch.backend.cpu import threads
from mindtorch.backend.cpu._numpy_private import SILENT, finds_loops, header, inner_loop, reads_arrays, silent
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
_DIRECT = {"mt_ufunc": [_P] * 4, "mt_accumulate": [_P, _P, _I]}


@functools.cache
def lib():
    """Returns the library with its argument types set, or None."""
    found = build.thread_pool()
    if found is not None:
        build.declare(found, _ARGUMENTS, ("mt_sgemm", "mt_sgemms", "mt_plan", "mt_passes", "mt_cast", "mt_update"))
        build.declare(found, _DIRECT, _DIRECT, direct=True)
        threads.call_before_share(found.mt_rest)
    return found


_set = _prepare = None


def ready():
    """Returns the library after setting its number of threads to threads.count(); None if it is
    unavailable."""
    global _set
    n = threads.count()
    if n != _set:
        found = lib()
        if found is None:
            return None
        # With more threads than processors, spinning threads would block the others.
        found.mt_threads(n, _SPIN if n <= threads.processors() else 0, _prepare)
        _set = n
    return lib()


def ready_for(size):
    """True if a kernel over this many elements can run. Threads are started only for large arrays,
    which alone are shared (saves 0.2 us for small ones)."""
    return size < SHARED or ready() is not None


#: number of elements from which on kernels of the other libraries share an array (MANY in
#: common.h)
SHARED = 1 << 16


def prepare(function):
    """Sets the address of a C function int(int) that every new thread calls first, with 1."""
    global _set, _prepare
    _prepare, _set = function, None


# ------------------------------------------------------------------ optimizers
_F32 = np.dtype(np.float32)
SGD, ADAM = 0, 1


def update(kind, columns, options, numbers):
    """Performs one optimizer step in place for all rows of `columns` (lists of float32 arrays:
    parameters, states, gradients).

    options, numbers: as built by backend/cpu/optimizer.py. Returns False, without doing anything,
    if the library is unavailable or an array is not contiguous, aligned and float32.
    """
    found = ready()
    if found is None or not reads_arrays():
        return False
    rows, ids = len(columns[0]), []
    for c in columns:
        ids += map(id, c)
    # (an array of the addresses of objects that the caller keeps alive)
    at = (_P * len(ids))(*ids)
    return not found.mt_update(kind, rows, len(columns), at, id(_F32), (_I * 4)(*options), (_F * 8)(*numbers))


# ------------------------------------------------------------------ elementwise
_LARGER, _WHERE_POSITIVE = 0, 1
#: Number of elements from which on an elementwise pass uses the pool; of functions; of
#: where_positive. Two threads, NumPy vs pool: adding 65536 elements 8.6 vs 5.4 us, a million 154 vs
#: 79 us; 16384 square roots 6.0 vs 4.1 us, a million exponentials 480 vs 240 us; where_positive,
#: which takes NumPy three passes, of 32768 elements 8 vs 5 us, of a million 220 vs 61 us.
LARGE, LARGE_FUNCTION, LARGE_WHERE = 1 << 16, 1 << 14, 1 << 15


class Shared:
    """A NumPy ufunc over large arrays, split among the threads. It runs NumPy's own loops, so the
    results are identical.

    The operands must have one dtype; each must have the first one's shape and memory order, or one
    element. A call returns None if that does not hold, with one thread, or for dtypes without a
    NumPy loop of their own. Without a compiler, Python's threads are used.
    """

    __slots__ = ("ufunc", "loops")

    def __init__(self, ufunc):
        self.ufunc, self.loops = ufunc, {}

    def __call__(self, a, b=None, out=None):
        """Computes the result; out: an array of its shape and dtype, which may be an operand."""
        d = a.dtype
        try:
            loop = self.loops[d]
        except KeyError:
            loop = self.loops[d] = inner_loop(self.ufunc, d)
        if threads.count() == 1 or a.__class__ is not _ndarray:
            return None
        if loop is None:
            return None if finds_loops() else self._in_python(a, b, out)
        if b is not None and (b.__class__ is not _ndarray or b.dtype is not d and b.dtype != d or b.shape != a.shape and b.size != 1):
            return None
        found = ready()
        if found is None:
            return self._in_python(a, b, out)
        if out is None:
            out = np.empty(a.shape, loop.result) if a.flags.c_contiguous else np.empty_like(a, loop.result, subok=False)
        elif out.dtype != loop.result:
            return None
        return None if found.mt_ufunc(loop, header(out), header(a), _NONE if b is None else header(b)) else out


    def _in_python(self, a, b, out):
        """Fallback without C: Python's threads, for C-contiguous arrays large enough to pay off
        (starting the threads takes 15 to 50 us)."""
        if out is not None or a.size < 4 * threads.LARGE or a.dtype.kind not in "biufc" or not a.flags.c_contiguous:
            return None
        if b is None:
            return threads.unary(silent(self.ufunc), a, SILENT)
        if b.__class__ is not _ndarray or b.dtype != a.dtype or b.ndim and (b.shape != a.shape or not b.flags.c_contiguous):
            return None
        return threads.binary(silent(self.ufunc), a, b, SILENT)

    def accumulate(self, a, axis):
        """Replaces a C-contiguous array by ufunc.accumulate(a, axis); False if not possible. For
        ufuncs whose loop processes the elements in order."""
        loop = self.loops.setdefault(a.dtype, inner_loop(self.ufunc, a.dtype))
        found = ready() if loop is not None and loop.result == a.dtype else None
        return found is not None and not found.mt_accumulate(loop, header(a), axis)


_NONE, _ndarray = header(None), np.ndarray


def _pass(kind, a, b):
    found = ready()
    if found is None:
        return None
    r = np.empty(a.shape, _F32)
    found.mt_pass(kind, address(a), address(b), not b.ndim, address(r), a.size)
    return r


_ZERO = np.zeros((), _F32)


def relu(x):
    """Computes max(x, 0) of a large C-contiguous float32 array; None if the pool is unavailable."""
    return _pass(_LARGER, x, _ZERO)


def where_positive(g, y):
    """Returns g where y > 0, else 0, for two large C-contiguous float32 arrays of one shape; None
    if the pool is unavailable."""
    return _pass(_WHERE_POSITIVE, y, g)
