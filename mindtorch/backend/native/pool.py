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
    """The library with its argument types set, or None."""
    found = native_build.pool()
    if found is not None:
        native_build.declare(found, _ARGUMENTS, ("mt_sgemm", "mt_sgemms", "mt_plan", "mt_passes", "mt_cast", "mt_update"))
        native_build.declare(found, _DIRECT, _DIRECT, direct=True)
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
_LARGER, _WHERE_POSITIVE = 0, 1
#: Elements from which on a pass is shared out (two threads, us of NumPy and of the pool: 65536 added 8.6 and 5.4, a million 154 and 79), one of functions
#: (16384 roots 6.0 and 4.1, exponentials 7.8 and 4.7, a million 480 and 240); where_positive, which takes NumPy three passes, 32768 in 5 (8), a million in
#: 61 (220).
LARGE, LARGE_FUNCTION, LARGE_WHERE = 1 << 16, 1 << 14, 1 << 15


class Shared:
    """A ufunc of NumPy over large arrays, in pieces that the threads take: NumPy's own loops, so that the results are the ones that it gives.

    Called with operands of one dtype, each of the first one's shape and order of memory or of one element, it gives their result; None where that is not
    to be had: on one thread, where an operand lies otherwise, for dtypes that NumPy has no loop of its own for. Without a compiler Python's threads do it.
    """

    __slots__ = ("ufunc", "loops")

    def __init__(self, ufunc):
        self.ufunc, self.loops = ufunc, {}

    def __call__(self, a, b=None, out=None):
        """out: an array of the result's shape and dtype, which may be one of the operands."""
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
        """The same where C is not to be had: by Python's threads, of arrays in C order for which that pays (handing over takes 15 to 50 us)."""
        if out is not None or a.size < 4 * threads.LARGE or a.dtype.kind not in "biufc" or not a.flags.c_contiguous:
            return None
        if b is None:
            return threads.unary(silent(self.ufunc), a, SILENT)
        if b.__class__ is not _ndarray or b.dtype != a.dtype or b.ndim and (b.shape != a.shape or not b.flags.c_contiguous):
            return None
        return threads.binary(silent(self.ufunc), a, b, SILENT)

    def accumulate(self, a, axis):
        """Whether an array in C order has become ufunc.accumulate(a, axis); for ufuncs whose loop takes one element after another."""
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
    """max(x, 0) of a large C-contiguous array of float32, or None."""
    return _pass(_LARGER, x, _ZERO)


def where_positive(g, y):
    """g where y > 0, else 0, for two such arrays of one shape, or None."""
    return _pass(_WHERE_POSITIVE, y, g)
