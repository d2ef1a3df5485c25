"""Kernels by which backward adds gradients up and gives them to leaves."""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.copies import beside, copy_c, crosses, store
from mindtorch.backend.cpu.pointwise import EXPRESSIONS, plain
from mindtorch.backend.native import pool
from mindtorch.backend.strides import empty

_F32 = np.dtype(np.float32)


def _in_order(a, b):
    """The same two, each in C order where the other one is and reading them side by side would cost more than a copy."""
    if a.flags.c_contiguous:
        return a, beside(b, pool.LARGE) if not b.flags.c_contiguous and crosses(b) else b
    return beside(a, pool.LARGE) if b.flags.c_contiguous and crosses(a) else a, b


def _shareable(a, b):
    """Whether threads may add these up (a million 114 us on one, 66 on two)."""
    return a.dtype is _F32 and b.dtype is _F32 and a.shape == b.shape and a.flags.c_contiguous and b.flags.c_contiguous


@kernel("gradient_sum")
def _sum(a, b):
    """A new array: bfloat16 is added in float32, and so without NumPy's loops for it."""
    if a.dtype.kind == "V":
        return (a.astype(_F32) + b.astype(_F32)).astype(a.dtype)
    a, b = _in_order(a, b)
    if a.size >= pool.LARGE and _shareable(a, b):
        r = pool.binary(np.add, a, b)
        if r is not None:
            return r
    r = a + b
    return r if r.__class__ is np.ndarray else np.asarray(r)


EXPRESSIONS[_sum] = "add", plain


@kernel("gradient_accumulate")
def _accumulate(a, b):
    """Adds b to a, in a's memory."""
    if a.dtype.kind == "V":
        a[...] = (a.astype(_F32) + b.astype(_F32)).astype(a.dtype)
        return
    if a.flags.c_contiguous and not b.flags.c_contiguous and a.shape == b.shape and crosses(b):
        b = beside(b, pool.LARGE)
    if a.size < pool.LARGE or not _shareable(a, b) or pool.binary(np.add, a, b, a) is None:
        np.add(a, b, out=a)


@kernel("gradient_copy")
def _copy(a, *, strides):
    """A copy: with these dense strides (in elements), or None: in C order."""
    if strides is None:
        return copy_c(a)
    r = empty(a.shape, a.dtype, strides)
    store(r, a)
    return r
