"""New values of whole tensors: fill, zero, copy."""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.basic import cast_array

kernel("fill", lambda a, value: np.full(a.shape, value, a.dtype))
kernel("zero", lambda a: np.zeros(a.shape, a.dtype))


@kernel("copy")
def _copy(a, src):
    r = np.empty(a.shape, a.dtype)
    r[...] = src if src.dtype == a.dtype else cast_array(src, a.dtype)
    return r
