"""Kernels of cat and stack."""
import math

import numpy as np

from mindtorch.backend.cpu.joining import misfit
from mindtorch.backend.mindspore.kernels._call import ASCEND, G, P, stype_of, dtype_of, from_contiguous, full, kernel, op, reshape, shape_of, stride_of
from mindtorch.backend.mindspore.kernels._index_utils import dense, fresh, view, write


def joined(hs, dim):
    """Concatenates tensors of matching shapes along a dimension."""
    if len(hs) == 1:
        return fresh(hs[0])
    # P.Concat takes 19 us for two small tensors and supports any dtype.
    return op(G.Concat, dim)(tuple(hs)) if ASCEND else op(P.Concat, dim)(tuple([dense(h) for h in hs]))


def fitting(hs, dim):
    """Returns (the non-empty operands of cat, the shape of the result). A vector of shape (0,)
    matches every shape, as in PyTorch."""
    shapes = [shape_of(h) for h in hs]
    some = [h for h, s in zip(hs, shapes) if s != (0,)] or [hs[0]]
    first = shape_of(some[0])
    for h in some:
        s = shape_of(h)
        if len(s) != len(first) or s[:dim] != first[:dim] or s[dim + 1:] != first[dim + 1:]:
            raise misfit(hs if len(some) == len(hs) else some, dim)
    shape = list(first)
    shape[dim] = sum([s[dim] for s in shapes if len(s) == len(first)])
    return [h for h in some if 0 not in shape_of(h)], shape


@kernel("cat", target="CPU", empty=True, half=True)
def _cat(*hs, dim):
    some, shape = fitting(hs, dim)
    if not some:
        return from_contiguous(np.empty(shape, stype_of(hs[0])))
    return joined(some, dim)


@kernel("stack", half=True)
def _stack(*hs, dim, strides):
    shape = shape_of(hs[0])
    full_shape = shape[:dim] + (len(hs),) + shape[dim:]
    if strides is None:
        one = shape[:dim] + (1,) + shape[dim:]
        return reshape(joined([reshape(dense(h), one) for h in hs], dim), full_shape)
    r = full((math.prod(full_shape),), 0, dtype_of(hs[0]))
    np_dtype = stype_of(r)
    r = view(r, full_shape, tuple(strides), 0, np_dtype)
    steps = stride_of(r)
    for i, h in enumerate(hs):
        write(view(r, shape, tuple(steps[:dim] + steps[dim + 1:]), i * steps[dim], np_dtype), h)
    return r
