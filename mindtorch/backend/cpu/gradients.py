"""Kernels by which backward adds gradients up and gives them to leaves."""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.copies import copy_c, store
from mindtorch.backend.cpu.pointwise import EXPRESSIONS, plain
from mindtorch.backend.strides import empty

_F32 = np.dtype(np.float32)


@kernel("gradient_sum")
def _sum(a, b):
    """A new array: bfloat16 is added in float32, and so without NumPy's loops for it."""
    if a.dtype.kind == "V":
        return (a.astype(_F32) + b.astype(_F32)).astype(a.dtype)
    r = a + b
    return r if r.__class__ is np.ndarray else np.asarray(r)


EXPRESSIONS[_sum] = "add", plain


@kernel("gradient_accumulate")
def _accumulate(a, b):
    """Adds b to a, in a's memory."""
    if a.dtype.kind == "V":
        a[...] = (a.astype(_F32) + b.astype(_F32)).astype(a.dtype)
    else:
        np.add(a, b, out=a)


@kernel("gradient_copy")
def _copy(a, *, strides):
    """A copy: with these dense strides (in elements), or None: in C order."""
    if strides is None:
        return copy_c(a)
    r = empty(a.shape, a.dtype, strides)
    store(r, a)
    return r
