"""Kernels that accumulate gradients and store them in leaves during the backward pass."""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.copies import beside, copy_c, crosses, store
from mindtorch.backend.cpu.pointwise import EXPRESSIONS, binary, plain, write
from mindtorch.backend.c_kernels import thread_pool
from mindtorch.backend.strides import empty

_F32 = np.dtype(np.float32)
_plus = binary(np.add)


def _in_order(a, b):
    """Returns both arrays, copied to C order where that is cheaper.

    If one array is in C order, the other is copied when reading both side by side would cost more
    than the copy.
    """
    if a.flags.c_contiguous:
        return a, beside(b, thread_pool.LARGE) if not b.flags.c_contiguous and crosses(b) else b
    return beside(a, thread_pool.LARGE) if b.flags.c_contiguous and crosses(a) else a, b


@kernel("gradient_sum")
def _sum(a, b):
    """Returns a + b as a new array. bfloat16 is added in float32, which avoids NumPy's loops for
    it."""
    if a.dtype.kind == "V":
        return (a.astype(_F32) + b.astype(_F32)).astype(a.dtype)
    r = _plus(*_in_order(a, b))
    return r if r.__class__ is np.ndarray else np.asarray(r)


EXPRESSIONS[_sum] = "add", plain


@kernel("gradient_accumulate")
def _accumulate(a, b):
    """Adds b to a in place."""
    if a.dtype.kind == "V":
        a[...] = (a.astype(_F32) + b.astype(_F32)).astype(a.dtype)
    else:
        write(np.add, a, b)


@kernel("gradient_copy")
def _copy(a, *, strides):
    """Returns a copy with these dense strides (in elements), or in C order if `strides` is None."""
    if strides is None:
        return copy_c(a)
    r = empty(a.shape, a.dtype, strides)
    store(r, a)
    return r
