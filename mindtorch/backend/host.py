"""Helpers for kernels computed by NumPy on the host."""
import functools

from numpy.core.umath import geterrobj, seterrobj

#: NumPy's buffer size, "ignore" for every floating point error, no callback: what ufuncs take as `extobj` (0.03 us).
#: torch gives inf and nan silently.
SILENT = [8192, 0, None]


def address(a):
    """Address of an array's memory (half the time of `a.ctypes.data`)."""
    return a.__array_interface__["data"][0]


def quiet(kernel):
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
