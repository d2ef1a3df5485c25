"""Shapes of copies in the same or another memory format, and of ops whose result has the operand's
shape."""
import numpy as np

from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import meta_array, on_strides
from mindtorch.backend.strides import check_rank, format_strides, like_strides, strides_of


@kernel("flip roll tril triu")
def _same(fwd, arrays, kw):
    return meta_array(arrays[0].shape, arrays[0].dtype, arrays[0])


@kernel("clone")
def _clone(fwd, arrays, kw):
    a = arrays[0]
    if len(arrays) != 1 or kw:
        return None
    small = np.empty(tuple(min(n, 2) for n in a.shape), a.dtype)
    order = sorted(range(a.ndim), key=lambda i: -a.strides[i])
    kept = fwd(small.transpose(order).copy().transpose([order.index(i) for i in range(a.ndim)]))
    return meta_array(a.shape, a.dtype, None if kept.flags.c_contiguous else a)


@kernel("clone_format")
def _clone_format(fwd, arrays, kw):
    return _in_format(arrays[0], arrays[0].dtype, kw["fmt"])


@kernel("to_copy to_copy_format")
def _to_copy(fwd, arrays, kw):
    a = arrays[0]
    return _in_format(a, a.dtype if kw["dtype"] is None else kw["dtype"], kw.get("fmt", "preserve"))


def _in_format(a, dtype, fmt):
    if fmt == "preserve":
        return on_strides(a.shape, dtype, like_strides(a.shape, strides_of(a)))
    check_rank(a.shape, fmt)
    return on_strides(a.shape, dtype, format_strides(a.shape, fmt))
