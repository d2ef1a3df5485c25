"""Kernels of strided memory regions: zeros or a copy with a region written, and the values in a
region of another tensor's memory.

A region is described by numbers only (see `mindtorch/backend/cpu/as_strided.py`): (shape, strides,
offset, dtype), with strides and offset in bytes.
"""
import math

import numpy as np

from mindtorch.backend.cpu.host import address
from mindtorch.backend.cpu.memory import overlaps_itself
from mindtorch.backend.device import reserve_address_range
from mindtorch.backend.mindspore.kernels._call import (ASCEND, DTYPES, G, stype_of, UnsupportedByKernel, P, cast, dtype_of, from_contiguous, is_contiguous,
                                                       kernel, ms, op, reshape, shape_of, stride_of)
from mindtorch.backend.mindspore.kernels._index_utils import dense, fresh, table, view, write, zeros


# ------------------------------------------------------------------ geometry
def _elements(strides, k):
    return tuple([s // k for s in strides])


def _shape_only(shape, np_dtype, strides=None):
    return np.ndarray.view(reserve_address_range(shape, np_dtype, strides), np.ndarray)


def keyed(h, key):
    """Returns the view that a basic index selects from a tensor."""
    np_dtype = stype_of(h)
    a = _shape_only(shape_of(h), np_dtype, None if is_contiguous(h) else tuple(stride_of(h)))
    v = a[key]
    return view(h, v.shape, _elements(v.strides, np_dtype.itemsize), (address(v) - address(a)) // np_dtype.itemsize if v.size else 0, np_dtype)


def _span(shape, strides, itemsize):
    return 0 if 0 in shape else itemsize + sum([(n - 1) * s for n, s in zip(shape, strides)])


def _canvas(base, region):
    """Allocates zeros and returns (a tensor in the base's layout, the region as a view of the same
    memory, the flat buffer of both; None if the dtypes differ)."""
    have, steps, kind = base
    shape, strides, offset, np_dtype = region
    if ASCEND and kind != np_dtype:
        raise UnsupportedByKernel
    span = _span(have, steps, kind.itemsize)
    # A region created by as_strided may lie partly or completely outside the base.
    low = min(0, offset)
    nbytes = max(span, offset + _span(shape, strides, np_dtype.itemsize)) - low
    k = kind.itemsize
    if kind == np_dtype:
        flat = one = two = zeros((max(nbytes // k, 1),), DTYPES[kind])
    else:
        buf = np.zeros(max(-(-nbytes // 16) * 16, 16), np.uint8)
        flat, one, two = None, from_contiguous(buf.view(kind)), from_contiguous(buf.view(np_dtype))
    return (view(one, have, _elements(steps, k), -low // k if span else 0, kind),
            view(two, shape, _elements(strides, np_dtype.itemsize), (offset - low) // np_dtype.itemsize, np_dtype), flat)


def _overlapping(shape, strides, np_dtype):
    return overlaps_itself(_shape_only(shape, np_dtype, _elements(strides, np_dtype.itemsize)))


# ------------------------------------------------------------------ basic indices
@kernel("slice_backward")
def _add_at(g, *, shape, key):
    r = zeros(shape, dtype_of(g))
    write(keyed(r, key), g)
    return r


@kernel("slice_scatter select_scatter")
def _slice_scatter(a, src, *, key):
    r = copied_as_it_lies(a)
    to = keyed(r, key)
    if shape_of(to) != shape_of(src):
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {list(shape_of(src))}, slice size = {list(shape_of(to))}")
    write(to, src)
    return dense(r)


def copied_as_it_lies(a):
    """Returns a copy. Elements that overlap in memory (unfold, as_strided) overlap in the copy too,
    but those of expand do not, as in PyTorch."""
    shape, np_dtype = shape_of(a), stype_of(a)
    strides = tuple(stride_of(a))
    if is_contiguous(a) or 0 in shape or 0 in strides or not overlaps_itself(_shape_only(shape, np_dtype, strides)):
        return fresh(a)
    flat = fresh(view(a, (_span(shape, strides, 1),), (1,), 0, np_dtype))
    return view(flat, shape, strides, 0, np_dtype)


# ------------------------------------------------------------------ strided regions
@kernel("read_region")
def _read(a, *, base, region):
    """Reads a region of a tensor with the base's shape."""
    have, steps, kind = base
    shape, strides, offset, np_dtype = region
    if (kind == np_dtype and dtype_of(a) == DTYPES[kind] and offset >= 0 and offset + _span(shape, strides, np_dtype.itemsize) <= _span(have, steps,
                                                                                                                                        kind.itemsize)
            and _shape_only(have, kind, _elements(steps, kind.itemsize)).flags.c_contiguous):
        k = kind.itemsize
        return fresh(view(dense(a), shape, _elements(strides, k), offset // k, kind))
    full, part, _ = _canvas(base, region)
    write(full, a)
    return fresh(part)


@kernel("scatter_region")
def _scatter(value, *, base, region):
    """Returns zeros in the base's layout with `value` added into the region. Overlapping elements
    accumulate."""
    have, steps, kind = base
    shape, strides, offset, np_dtype = region
    if _overlapping(have, steps, kind):
        raise UnsupportedByKernel
    if not _overlapping(shape, strides, np_dtype):
        a, part, _ = _canvas(base, region)
        write(part, value)
        return a
    if kind != np_dtype or dtype_of(value) not in _ADDED or offset < 0:
        raise UnsupportedByKernel
    k = kind.itemsize
    _, _, flat = _canvas(base, region)
    flat = _added_at(flat, shape, _elements(strides, k), offset // k, value)
    return view(flat, have, _elements(steps, k), 0, kind)


@kernel("copy_slices as_strided_scatter")
def _punch(a, value, *, base, region):
    """Returns a copy of `a` with the region replaced by `value`."""
    r, part, _ = _canvas(base, region)
    write(r, a)
    write(part, value)
    return r


_ADDED = frozenset([getattr(ms, n) for n in "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8".split()])


def _added_at(flat, shape, strides, offset, value):
    """Adds values at strided indices of a flat tensor of zeros."""
    at = np.full((), offset, np.int64)
    for n, s in zip(shape, strides):
        at = at[..., None] + np.arange(n, dtype=np.int64) * s
    d = dtype_of(value)
    if ASCEND:
        return op(G.IndexAddExt)(flat, 0, table(at.reshape(-1)), reshape(value, (-1,)), 1)
    if d is ms.bfloat16:
        flat, value = cast(flat, ms.float32), cast(dense(value), ms.float32)
    return cast(op(P.TensorScatterAdd)(flat, table(at.reshape(-1, 1)), reshape(dense(value), (-1,))), d)


@kernel("unfold_backward")
def _unfold_backward(g, *, shape, dim, size, step):
    k = stype_of(g).itemsize
    if not shape:
        return reshape(fresh(g), ())
    strides = _elements(_shape_only(shape, stype_of(g)).strides, k)
    s = strides[dim]
    strides = (*strides[:dim], s * step, *strides[dim + 1:], s)
    if step >= size:
        r = zeros(shape, dtype_of(g))
        write(view(r, shape_of(g), strides, 0, stype_of(g)), g)
        return r
    if dtype_of(g) not in _ADDED:
        raise UnsupportedByKernel
    return reshape(_added_at(zeros((math.prod(shape),), dtype_of(g)), shape_of(g), strides, 0, g), shape)


# ------------------------------------------------------------------ contiguous copy
kernel("pairs_in_order", lambda a: fresh(a))
