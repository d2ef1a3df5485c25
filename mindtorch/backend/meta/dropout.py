"""Dropout: no random numbers are drawn for meta tensors."""
import numpy as np

from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import meta_array
from mindtorch.backend.meta.elementwise import elementwise

kernel("masked_scale", elementwise)


@kernel("dropout alpha_dropout native_dropout")
def _dropout(fwd, arrays, kw):
    a = arrays[0]
    shape = a.shape[:2] + (1,) * (a.ndim - 2) if kw.get("feature") else a.shape
    return meta_array(a.shape, a.dtype, a), meta_array(shape, np.dtype(bool))


@kernel("dropout_do_mask")
def _do_mask(fwd, arrays, kw):
    return meta_array(arrays[0].shape, arrays[0].dtype)


@kernel("dropout_by_bits")
def _by_bits(fwd, arrays, kw):
    x, = arrays
    return meta_array(x.shape, x.dtype), meta_array((-(-x.size // 128) * 16,), np.dtype(np.uint8))
