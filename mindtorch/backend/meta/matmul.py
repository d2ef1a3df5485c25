"""Shapes of matrix products."""
import numpy as np

from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import meta_array


@kernel("mm bmm")
def _mm(fwd, arrays, kw):
    a, b = arrays
    m = a.shape[-1] if kw["ta"] else a.shape[-2]
    n = b.shape[-2] if kw["tb"] else b.shape[-1]
    if (a.shape[-2] if kw["ta"] else a.shape[-1]) != (b.shape[-1] if kw["tb"] else b.shape[-2]):
        return None
    return meta_array((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), m, n), a.dtype)


@kernel("linear")
def _linear(fwd, arrays, kw):
    x, w = arrays[:2]
    return meta_array((*x.shape[:-1], w.shape[0]), x.dtype)


@kernel("matmul_rows")
def _rows(fwd, arrays, kw):
    x, w = arrays
    return meta_array((*x.shape[:-1], w.shape[1]), x.dtype)


@kernel("fold")
def _fold(fwd, arrays, kw):
    a, b = arrays
    return meta_array((a.shape[-1], b.shape[-1]), a.dtype)


@kernel("expand_rows")
def _expand_rows(fwd, arrays, kw):
    return meta_array(kw["shape"], arrays[0].dtype)


@kernel("addmm")
def _addmm(fwd, arrays, kw):
    _, a, b = arrays
    return meta_array((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), a.dtype)


@kernel("outer")
def _outer(fwd, arrays, kw):
    x, y = arrays
    return meta_array((*np.broadcast_shapes(x.shape[:-1], y.shape[:-1]), x.shape[-1], y.shape[-1]), x.dtype)
