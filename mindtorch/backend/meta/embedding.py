"""Shapes of embedding lookups."""
from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import meta_array


@kernel("embedding embedding_sparse")
def _lookup(fwd, arrays, kw):
    w, index = arrays
    return meta_array(index.shape + w.shape[1:], w.dtype)


@kernel("embedding_dense_backward")
def _lookup_grad(fwd, arrays, kw):
    g = arrays[0]
    return meta_array((kw["rows"], g.shape[-1]), g.dtype)


@kernel("embedding_renorm_")
def _renorm(fwd, arrays, kw):
    return meta_array(arrays[0].shape, arrays[0].dtype)
