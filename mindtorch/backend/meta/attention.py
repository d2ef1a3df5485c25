"""Scaled dot product attention."""
import numpy as np

from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import meta_array

_F32 = np.dtype(np.float32)


@kernel("scaled_dot_product_attention")
def _attention(fwd, arrays, kw):
    q, k, v, bias = arrays
    shape = (*np.broadcast_shapes(q.shape[:-2], k.shape[:-2]), q.shape[-2], k.shape[-2])
    if bias is not None:
        shape = np.broadcast_shapes(shape, bias.shape)
    return (meta_array((*np.broadcast_shapes(shape[:-2], v.shape[:-2]), q.shape[-2], v.shape[-1]), q.dtype),
            meta_array(shape, _F32 if q.itemsize == 2 else q.dtype), None if kw["keep"] == 1 else meta_array(shape, np.dtype(bool)))


@kernel("scaled_dot_product_attention_backward")
def _attention_grad(fwd, arrays, kw):
    g, q, k, v = arrays[:4]
    lead = g.shape[:-2]
    return tuple(meta_array((*np.broadcast_shapes(lead, a.shape[:-2]), *a.shape[-2:]), g.dtype) if need else None
                 for a, need in zip((q, k, v), kw["needs"]))


@kernel("flash_attention")
def _flash(fwd, arrays, kw):
    q, k = arrays[:2]
    rows = meta_array((*q.shape[:3], 8), _F32)
    bits = None if kw["keep"] == 1 else meta_array((-(-q.size // q.shape[-1] * k.shape[2] // 128) * 16,), np.dtype(np.uint8))
    return meta_array(q.shape, q.dtype), rows, rows, bits, None


@kernel("flash_attention_backward")
def _flash_grad(fwd, arrays, kw):
    return tuple(meta_array(a.shape, a.dtype) for a in arrays[1:4])
