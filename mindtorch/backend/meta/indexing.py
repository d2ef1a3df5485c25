"""Shapes of what masks and writes give."""
from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import blank
from mindtorch.backend.meta.elementwise import elementwise

kernel("masked_fill", elementwise)


@kernel("masked_pick masked_zero copies fill zero copy")
def _same(fwd, arrays, kw):
    return blank(arrays[0].shape, arrays[0].dtype, arrays[0])
