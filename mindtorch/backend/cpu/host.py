"""Helpers for NumPy kernels on the host."""
from __future__ import annotations

import ctypes
import functools

import numpy as np

from mindtorch.backend.cpu._numpy_private import SILENT, byte_bounds, quiet, reads_arrays  # noqa: F401
from mindtorch.backend.errors import OutOfMemoryError  # noqa: F401
from mindtorch.backend.interface import Array, Kernel, Number, NpDtype

F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)


if reads_arrays():
    _pointer = ctypes.c_size_t.from_address

    def address(a: Array) -> int:
        """Returns the address of an array's memory.

        Takes 0.2 us (`__array_interface__` 1 us, `a.ctypes.data` 2 us).
        """
        return _pointer(id(a) + 16).value
else:
    def address(a: Array) -> int:
        """Returns the address of an array's memory (in half the time of `a.ctypes.data`)."""
        return a.__array_interface__["data"][0]


@quiet
def constant(value: Number, dtype: NpDtype) -> Array:
    """Returns a 0-dim array of a Python scalar of any magnitude.

    Values out of range become inf, or wrap around in an integer dtype of less than 64 bits.
    """
    if dtype.kind in "iu" and dtype.itemsize < 8:
        return np.array(value, np.int64).astype(dtype)
    return np.array(value, dtype)


def _kept_rows(make):
    """Caches the results of make(n, dtype) for reuse. The arrays are read-only."""
    @functools.lru_cache(256)
    def row(n, dtype):
        r = make(n, dtype)
        r.flags.writeable = False
        return r
    return row


#: Cached vectors of ones and of zeros.
ones, zeros_row = _kept_rows(np.ones), _kept_rows(np.zeros)
#: Cached 0-dim zero and one of a dtype: with a Python scalar, ufuncs take twice as long (10
#: elements: 0.55 vs 1 us).
zero, one = (functools.partial(_kept_rows(lambda n, dtype: np.full((), n, dtype)), n) for n in (0, 1))


def vector(kernel: Kernel) -> Kernel:
    """Wraps a kernel so that it receives 0-dim arrays as vectors of one element.

    NumPy's operators turn 0-dim arrays into scalars, which are not writable.
    """
    @functools.wraps(kernel)
    def at_least_1d(x, *args, **kwargs):
        if x.ndim:
            return kernel(x, *args, **kwargs)
        args = [a.reshape(1) if a.__class__ is np.ndarray and not a.ndim else a for a in args]
        r = kernel(x.reshape(1), *args, **kwargs)
        return tuple(None if a is None else a.reshape(()) for a in r) if r.__class__ is tuple else r.reshape(())
    return at_least_1d
