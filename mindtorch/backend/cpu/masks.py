"""Kernels with a bool mask: masked_fill, masked_select, masked_scatter."""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu._numpy_private import where
from mindtorch.backend.cpu.pointwise import fill_where, masked


_FEW = 1 << 10


@kernel("masked_fill")
def _masked_fill(a, value, mask):
    shape = mask.shape
    if a.shape == shape:
        if a.size <= _FEW and value.dtype == a.dtype:
            return where(mask, value, a)  # 8x8: 0.8 us, filling a copy 1.3 us
        r = a.copy()
    else:
        shape = np.broadcast_shapes(a.shape, shape)
        r = np.broadcast_to(a, shape).copy()
    fill_where(r, value, mask)
    return r


kernel("masked_pick", masked)


@kernel("masked_zero")
def _masked_zero(a, mask):
    return masked(a, ~mask)


@kernel("masked_select")
def _masked_select(a, m):
    if a.shape != m.shape:
        a, m = np.broadcast_arrays(a, m)
    return a[m]


@kernel("masked_select_backward")
def _masked_select_backward(g, mask, *, size):
    r = np.zeros(np.broadcast_shapes(size, mask.shape), g.dtype)
    r[np.broadcast_to(mask, r.shape)] = g
    return r


@kernel("masked_scatter")
def _masked_scatter(a, src, m):
    r = np.broadcast_to(a, np.broadcast_shapes(a.shape, m.shape)).copy()
    m = np.broadcast_to(m, r.shape)
    n = int(np.count_nonzero(m))
    if n > src.size:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    r[m] = src.reshape(-1)[:n]
    return r


@kernel("masked_source")
def _masked_source(g, mask, *, size):
    """Returns the gradient of masked_scatter's source: the elements that the mask selects, then
    zeros."""
    r = np.zeros(size, g.dtype)
    selected = _masked_select(g, mask)
    r.reshape(-1)[:selected.size] = selected
    return r
