"""Shapes of joined tensors."""
from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import meta_array, on_strides


@kernel("cat")
def _cat(fwd, arrays, kw):
    dim, pieces = kw["dim"], [a for a in arrays if a.shape != (0,)] or arrays[:1]
    first = pieces[0].shape
    if any([len(a.shape) != len(first) or a.shape[:dim] + a.shape[dim + 1:] != first[:dim] + first[dim + 1:] for a in pieces]):
        return None  # the kernel raises the error
    return meta_array(first[:dim] + (sum([a.shape[dim] for a in pieces]),) + first[dim + 1:], pieces[0].dtype)


@kernel("stack")
def _stack(fwd, arrays, kw):
    dim, a = kw["dim"], arrays[0]
    shape = a.shape[:dim] + (len(arrays),) + a.shape[dim:]
    return meta_array(shape, a.dtype) if kw["strides"] is None else on_strides(shape, a.dtype, kw["strides"])
