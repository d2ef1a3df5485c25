"""Helpers for kernels computed by NumPy on the host."""
from __future__ import annotations

import functools

import numpy as np
from numpy.core._exceptions import _ArrayMemoryError
from numpy.core.umath import geterrobj, seterrobj   # type: ignore[attr-defined]

from mindtorch.backend.interface import Array, Kernel, Number, Stype

#: NumPy's buffer size, "ignore" for every floating point error, no callback: what ufuncs take as `extobj` (0.03 us).
#: torch gives inf and nan silently.
SILENT = [8192, 0, None]


class OutOfMemoryError(RuntimeError):
    """Memory is used up."""


def _say_what_did_not_fit(self, shape, dtype=None):
    self.shape, self.dtype = shape, dtype
    # One string that holds the words which retrying code looks for.
    text = shape if dtype is None else (f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {self._total_size} bytes. Error code 12 "
                                        f"(Cannot allocate memory): out of memory for an array of shape {list(shape)} and dtype {np.dtype(dtype)}")
    self.args = (text,)


def _only_words(self):
    return self.args[0]


# NumPy allocates nearly everything here, and says in this class that it could not.  Code that retries with less catches RuntimeError or
# torch.OutOfMemoryError, so the class becomes one of those as well; it stays the MemoryError that other users of NumPy wait for.
_ArrayMemoryError.__bases__ = (MemoryError, OutOfMemoryError)
_ArrayMemoryError.__init__, _ArrayMemoryError.__str__ = _say_what_did_not_fit, _only_words    # type: ignore[method-assign]


def address(a: Array) -> int:
    """Address of an array's memory (half the time of `a.ctypes.data`)."""
    return a.__array_interface__["data"][0]


def quiet(kernel: Kernel) -> Kernel:
    """The kernel without NumPy's floating point warnings (0.2 us; `np.errstate` takes 1 us)."""
    @functools.wraps(kernel)
    def silent(*args, **kwargs):
        old = geterrobj()
        seterrobj(SILENT)
        try:
            return kernel(*args, **kwargs)
        finally:
            seterrobj(old)
    return silent


@quiet
def constant(value: Number, dtype: Stype) -> Array:
    """0-dim array of a number of any size: what does not fit becomes inf, or wraps around in a narrow integer type."""
    if dtype.kind in "iu" and dtype.itemsize < 8:
        return np.array(value, np.int64).astype(dtype)
    return np.array(value, dtype)
