"""Constant padding and padding by elements of the tensor itself, for the CPU target."""
import numpy as np

from mindtorch.backend.mindspore.kernels._call import (STATE, UnsupportedByKernel, P, cast, constant, copied, dtype_of, from_contiguous, host_span, kernel, ms,
                                                       number, op,
                                                       reshape, shape_of, stype_of)
from mindtorch.backend.mindspore.kernels._index_utils import dense


def _cut(x, pads):
    """Crops x by the negative padding (P.PadV3 would hang) and returns it with the remaining
    padding."""
    if min([n for pair in pads for n in pair], default=0) >= 0:
        return x, pads
    s = shape_of(x)
    begin = tuple([max(-lo, 0) for lo, _ in pads])
    size = tuple([n + min(lo, 0) + min(hi, 0) for n, (lo, hi) in zip(s, pads)])
    if min(size) <= 0:
        raise UnsupportedByKernel
    return op(P.Slice)(x, begin, size), tuple([(max(lo, 0), max(hi, 0)) for lo, hi in pads])


def _as_numeric(x, value):
    """Returns (x reinterpreted as numbers of the same bytes with an extra dimension, the fill value
    likewise) for a dtype that PadV3 does not support, or None."""
    a = host_span(dense(x))
    if a.dtype.kind == "c" and not value:
        return from_contiguous(a.view(a.real.dtype).reshape(*a.shape, 2)), 0
    if a.dtype == bool:
        return from_contiguous(a.view(np.uint8).reshape(*a.shape, 1)), int(bool(value))
    if a.dtype.kind == "V":
        return from_contiguous(a.view(np.int16).reshape(*a.shape, 1)), int(np.asarray(value, np.float32).astype(a.dtype).view(np.int16))
    return None


@kernel("constant_pad_nd", target="CPU", half=True)
def _constant_pad(x, *, pads, value):
    if not shape_of(x):
        raise UnsupportedByKernel
    np_dtype = stype_of(x)
    if np_dtype.kind in "bV" and STATE.on is not None:
        return cast(_constant_pad(cast(x, ms.int32 if np_dtype.kind == "b" else ms.float32), pads=pads, value=value), dtype_of(x))
    if np_dtype.kind in "cbV":
        other = _as_numeric(x, value)
        if other is None:
            raise UnsupportedByKernel
        r = _constant_pad(other[0], pads=(*pads, (0, 0)), value=other[1])
        a = host_span(dense(r))
        return from_contiguous(a.view(np_dtype).reshape(a.shape[:-1]))
    if np_dtype.kind == "u" and np_dtype.itemsize > 1:
        raise UnsupportedByKernel
    x, pads = _cut(x, pads)
    flat = [n for pair in reversed(pads) for n in pair]
    while flat and not flat[-1] and not flat[-2]:
        flat = flat[:-2]
    if not flat:
        return copied(x)
    d = dtype_of(x)
    return op(P.PadV3, "constant", True)(x, tuple(flat), number(value, d))


_indices: dict = {}


def _index(mode, n, lo, hi):
    """Returns the source index, of n, of each element of the padded axis. Cached."""
    key = mode, n, lo, hi
    h = _indices.get(key)
    if h is None:
        from mindtorch.backend.cpu.padding import _index as pad_indices
        if len(_indices) > 512:
            _indices.clear()
        h = _indices[key] = from_contiguous(np.ascontiguousarray(pad_indices(*key), np.int32))
    return constant(h)


@kernel("pad_by_index", target="CPU", only="float32 float64 int64 int32 float16 uint8")
def _pad_by_index(x, *, plan):
    for axis, mode, n, lo, hi in plan:
        x = op(P.Gather)(x, _index(mode, n, lo, hi), axis)
    return x


@kernel("pad_by_index_backward", target="CPU", only="float32")
def _pad_by_index_backward(g, *, plan):
    for axis, mode, n, lo, hi in reversed(plan):
        s = shape_of(g)
        lead = int(np.prod(s[:axis]))
        if axis and lead > 1:
            # UnsortedSegmentSum works along the first dimension.
            order = (axis, *range(axis), *range(axis + 1, len(s)))
            back = (*range(1, axis + 1), 0, *range(axis + 1, len(s)))
            g = op(P.UnsortedSegmentSum)(op(P.Transpose)(g, order), _index(mode, n, lo, hi), n)
            g = op(P.Transpose)(g, back)
        else:
            g = reshape(op(P.UnsortedSegmentSum)(reshape(g, s[axis:]), _index(mode, n, lo, hi), n), (*s[:axis], n, *s[axis + 1:]))
    return dense(g)
