"""Elementwise kernels on arrays, for the pointwise and unary ops."""
import functools

from mindtorch.backend.host import SILENT, quiet


def mismatch(a, b):
    """torch's error for shapes that do not broadcast; None if they do."""
    for i in range(1, min(len(a), len(b)) + 1):
        if a[-i] != b[-i] and a[-i] != 1 and b[-i] != 1:
            dim = max(len(a), len(b)) - i
            return RuntimeError(f"The size of tensor a ({a[-i]}) must match the size of tensor b ({b[-i]}) at non-singleton "
                                f"dimension {dim}")
    return None


def binary(ufunc):
    """Kernel of a NumPy ufunc with two operands: no warnings, torch's error for shapes that do not fit."""
    def kernel(a, b):
        try:
            return ufunc(a, b, extobj=SILENT)
        except ValueError as err:
            raise mismatch(a.shape, b.shape) or err from None
    return kernel


def unary(ufunc):
    """Kernel of a NumPy ufunc with one operand, without warnings."""
    def kernel(a):
        return ufunc(a, extobj=SILENT)
    return kernel


def elementwise(fn):
    """Kernel written in NumPy on one or several arrays: no warnings, torch's error for shapes that do not fit.

    NumPy computes expressions of 0-dim arrays and Python numbers in float64, so those come to `fn` with one dimension.
    """
    silent = quiet(fn)

    @functools.wraps(fn)
    def kernel(*arrays, **kw):
        for a in arrays:
            if a is not None and a.ndim:
                break
        else:
            r = silent(*[None if a is None else a.reshape(1) for a in arrays], **kw)
            return tuple(x.reshape(()) for x in r) if r.__class__ is tuple else r.reshape(())
        try:
            return silent(*arrays, **kw)
        except ValueError as err:
            shapes = [a.shape for a in arrays if a is not None]
            for i, a in enumerate(shapes):
                for b in shapes[i + 1:]:
                    bad = mismatch(a, b)
                    if bad is not None:
                        raise bad from None
            raise err
    return kernel


@functools.lru_cache(None)
def scipy_special(name):
    """A ufunc of scipy.special, imported at first use."""
    import scipy.special
    return getattr(scipy.special, name)
