"""Shapes of results of masking and indexed writes."""
from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import meta_array
from mindtorch.backend.meta.elementwise import elementwise

kernel("masked_fill", elementwise)


@kernel("masked_pick masked_zero copies fill zero copy")
def _same(fwd, arrays, kw):
    return meta_array(arrays[0].shape, arrays[0].dtype, arrays[0])


@kernel("index_add index_copy index_fill scatter scatter_add scatter_multiply scatter_reduce "
        + " ".join(f"index_put_{n} index_put_add_{n}" for n in range(1, 33)))
def _written(fwd, arrays, kw):
    """Returns the shape of the first operand; the ops have already checked the other sizes."""
    return meta_array(arrays[0].shape, arrays[0].dtype)
