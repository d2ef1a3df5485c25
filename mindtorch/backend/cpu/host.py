"""Helpers for NumPy kernels on the host."""
from __future__ import annotations

import ctypes

import numpy as np

from mindtorch.backend.cpu._numpy_private import SILENT, byte_bounds, quiet, reads_arrays  # noqa: F401
from mindtorch.backend.errors import OutOfMemoryError  # noqa: F401
from mindtorch.backend.interface import Array, Number, NpDtype


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
