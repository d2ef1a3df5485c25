"""Kernels of comparison, logic, bitwise ops and masks."""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.pointwise import binary, elementwise, select, unary


# ------------------------------------------------------------------ comparison
@kernel("equal")
def _equal(a, b):
    return bool((a == b).all())


@kernel("isclose")
@elementwise
def _isclose(a, b, *, rtol, atol, equal_nan):
    close = a == b
    if a.dtype.kind in "fc" and equal_nan:
        close |= (a != a) & (b != b)
    if rtol == 0 and atol == 0:
        return close
    if a.dtype.kind in "biu":
        a, b = a.astype(np.float64), b.astype(np.float64)
    diff = np.abs(a - b)
    return close | (np.isfinite(diff) & (diff <= np.abs(b) * rtol + atol))


@kernel("allclose")
def _allclose(a, b, *, rtol, atol, equal_nan):
    return _isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan).all()


# ------------------------------------------------------------------ logic and bits
for _name, _ufunc in (("logical_xor", np.logical_xor), ("bitwise_and", np.bitwise_and), ("bitwise_or", np.bitwise_or), ("bitwise_xor", np.bitwise_xor),
                      ("gcd", np.gcd)):
    kernel(_name, binary(_ufunc))
kernel("bitwise_not", unary(np.invert))


@kernel("lcm")
@elementwise
def _lcm(a, b):
    r = np.lcm(a, b)
    # PyTorch makes an overflowed result positive again. It computes dtypes of fewer bits as int32.
    return np.abs(r) if r.itemsize >= 4 else r


@kernel("bitwise_left_shift")
@elementwise
def _shift_left(a, b):
    bits = a.itemsize * 8
    ok = (b >= 0) & (b < bits)
    return np.where(ok, np.left_shift(a, np.where(ok, b, 0)), 0).astype(a.dtype)


@kernel("bitwise_right_shift")
@elementwise
def _shift_right(a, b):
    # A shift that is too large or negative leaves the sign bit everywhere, and zero in unsigned
    # dtypes.
    bits = a.itemsize * 8
    fits = (b >= 0) & (b < bits)
    r = np.right_shift(a, np.where(fits, b, bits - 1).astype(a.dtype))
    return np.where(fits, r, np.zeros((), a.dtype)) if a.dtype.kind == "u" else r


kernel("where", elementwise(select))


@kernel("masked_count")
def _masked_count(mask, *, shape, axes, keepdim):
    return np.add.reduce(np.broadcast_to(mask, shape), axis=axes, keepdims=keepdim, dtype=np.int64)
