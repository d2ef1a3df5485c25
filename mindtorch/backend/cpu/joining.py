"""Kernels that join arrays: cat, stack."""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu._numpy_private import concatenate
from mindtorch.backend.strides import empty

_ALL = slice(None)


@kernel("cat")
def _cat(*arrays, dim):
    try:
        return concatenate(arrays, dim) if len(arrays) > 1 else arrays[0].copy()
    except ValueError:
        pieces = [a for a in arrays if a.shape != (0,)]
        if len(pieces) in (0, len(arrays)):
            raise misfit(arrays, dim) from None
    # By old custom empty one-dimensional arrays fit everywhere.
    return _cat(*pieces, dim=dim)


def misfit(arrays, dim):
    """The error for arrays that do not fit together, to be raised."""
    first = arrays[0]
    for i, a in enumerate(arrays):
        if a.ndim != first.ndim:
            return RuntimeError(f"Tensors must have same number of dimensions: got {first.ndim} and {a.ndim}")
        for j, (m, n) in enumerate(zip(first.shape, a.shape)):
            if m != n and j != dim:
                return RuntimeError(f"Sizes of tensors must match except in dimension {dim}. Expected size {m} but "
                                    f"got size {n} "
                                    f"for tensor number {i} in the list.")
    return RuntimeError(f"cat(): cannot join tensors of shapes {[list(a.shape) for a in arrays]} along dimension {dim}")


@kernel("stack")
def _stack(*arrays, dim, strides):
    if strides is not None:
        first = arrays[0]
        r = empty(first.shape[:dim] + (len(arrays),) + first.shape[dim:], first.dtype, strides)
        for i, a in enumerate(arrays):
            r[(_ALL,) * dim + (i, ...)] = a
        return r
    if dim == 0:
        shape = arrays[0].shape
        if shape:
            r = concatenate(arrays)
            if r.flags.c_contiguous:
                r.shape = (len(arrays), *shape)         # (half the time of joining a[None] of each)
                return r
        r = concatenate([a[None] for a in arrays])
    else:
        key = (_ALL,) * dim + (None, ...)
        r = concatenate([a[key] for a in arrays], dim)
    return r if r.flags.c_contiguous else np.ascontiguousarray(r)
