"""Helpers for kernels computed by NumPy on the host."""
from __future__ import annotations

import numpy as np

from mindtorch.backend.cpu._numpy_private import SILENT, byte_bounds, quiet  # noqa: F401
from mindtorch.backend.errors import OutOfMemoryError  # noqa: F401
from mindtorch.backend.interface import Array, Number, Stype


def address(a: Array) -> int:
    """Address of an array's memory (half the time of `a.ctypes.data`)."""
    return a.__array_interface__["data"][0]


@quiet
def constant(value: Number, dtype: Stype) -> Array:
    """0-dim array of a number of any size: what does not fit becomes inf, or wraps around in a narrow integer type."""
    if dtype.kind in "iu" and dtype.itemsize < 8:
        return np.array(value, np.int64).astype(dtype)
    return np.array(value, dtype)
