"""Helpers for kernels computed by NumPy on the host."""
import functools

from numpy.core.umath import geterrobj, seterrobj

# No warnings for division by zero, overflow or invalid values: torch gives inf and nan silently.
_SILENT = [8192, 0, None]


def quiet(kernel):
    """The kernel without NumPy's floating point warnings (0.2 us; `np.errstate` takes 1 us)."""
    @functools.wraps(kernel)
    def silent(*args, **kwargs):
        old = geterrobj()
        seterrobj(_SILENT)
        try:
            return kernel(*args, **kwargs)
        finally:
            seterrobj(old)
    return silent
