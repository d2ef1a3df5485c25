"""Kernels that create tensors of other shapes by copying: repeat, roll, flip, triangles, diagonals.
"""
import itertools
import math

import numpy as np

from mindtorch.backend.mindspore.kernels._call import (ASCEND, G, P, stype_of, UnsupportedByKernel, dtype_of, full,
                                                       host_span, kernel, ms, op, reshape, shape_of, stride_of)
from mindtorch.backend.mindspore.kernels._index_utils import bits, counting, dense, fresh, permuted, split_at, table, unbits, view, write, zeros
from mindtorch.backend.mindspore.kernels.joining import joined
from mindtorch.backend.mindspore.kernels.region import copied_as_it_lies


def narrowed(h, dim, start, stop):
    """Returns a view of a range of one dimension."""
    sizes, strides = list(shape_of(h)), tuple(stride_of(h))
    sizes[dim] = stop - start
    return view(h, tuple(sizes), strides, start * strides[dim], stype_of(h))


# ------------------------------------------------------------------ repeating
@kernel("repeat")
def _repeat(a, *, repeats):
    shape = (1,) * (len(repeats) - len(shape_of(a))) + tuple(shape_of(a))
    if 0 in repeats:
        return zeros([n * m for n, m in zip(shape, repeats)], dtype_of(a))
    x = reshape(bits(a), shape)
    if math.prod(repeats) == 1:
        return fresh(unbits(x, a))
    return unbits(op(G.Repeat)(x, tuple(repeats)) if ASCEND else op(P.Tile)(x, tuple(repeats)), a)


@kernel("repeat_interleave")
def _repeat_each(a, *, n, dim):
    if n < 1:
        raise UnsupportedByKernel
    shape = list(shape_of(a))
    if dim is None:
        shape, dim = [math.prod(shape)], 0
    if n == 1:
        return fresh(reshape(dense(a), shape))
    if ASCEND:
        return op(G.RepeatInterleaveInt)(reshape(a, shape), n, dim, None)
    before, m, after = split_at(shape, dim)
    shape[dim] *= n
    return unbits(reshape(op(P.Tile)(reshape(bits(a), (before * m, 1, after)), (1, n, 1)), shape), a)


@kernel("repeat_indices", dynamic_shape=True)
def _repeat_indices(counts, *, np_dtype):
    # The length of the result depends on the values, so this synchronizes.
    if ASCEND:
        raise UnsupportedByKernel
    n = host_span(counts).reshape(-1)
    if n.size and n.min() < 0:
        raise RuntimeError("repeats can not be negative")
    ends = op(P.CumSum)(reshape(dense(counts), (-1,)), 0)
    total = int(n.sum())
    if not total:
        raise UnsupportedByKernel
    if dtype_of(ends) is not ms.int64 or np_dtype != np.int64:
        raise UnsupportedByKernel
    return op(P.SearchSorted, ms.int64, True)(ends, counting(total))


@kernel("combination_indices")
def _combinations(like, *, n, r, with_replacement):
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    return table(np.array(list(choose(range(n), r)), np.int64).reshape(-1, r))


# ------------------------------------------------------------------ roll, flip, transpose
@kernel("roll")
def _roll(a, *, shifts, dims):
    shifts, dims = (shifts,) if shifts.__class__ is int else shifts, (dims,) if dims.__class__ is int else dims
    if ASCEND:
        return op(G.Roll, tuple(shifts), () if dims is None else tuple(dims))(a)
    shape = shape_of(a)
    if dims is None:
        return reshape(_rolled(reshape(dense(a), (-1,)), shifts[0], 0), shape)
    r = a
    for by, dim in zip(shifts, dims):
        r = _rolled(r, by, dim)
    return fresh(a) if r is a else r


def _rolled(h, by, dim):
    """Rolls along one dimension by concatenation. P.Roll has no kernel on this target."""
    n = shape_of(h)[dim]
    by %= n
    return joined((narrowed(h, dim, n - by, n), narrowed(h, dim, 0, n - by)), dim) if by else h


def flipped(a, dims):
    if not dims or not shape_of(a):
        return fresh(a)
    return unbits(op(P.ReverseV2, tuple(dims))(bits(a)), a)


kernel("flip", lambda a, *, dims: flipped(a, (dims,) if dims.__class__ is int else dims))
kernel("flip_axis", lambda a, *, axis: flipped(a, (axis,)))


@kernel("shift")
def _shift(a, *, axis, by, fill):
    shape = shape_of(a)
    n = shape[axis]
    if n < 2:
        return full(shape, fill, dtype_of(a))
    edge = full(shape[:axis] + (1,) + shape[axis + 1:], fill, dtype_of(a))
    return joined((narrowed(a, axis, 1, n), edge) if by > 0 else (edge, narrowed(a, axis, 0, n - 1)), axis)


kernel("unsafe_view", lambda a, *, size: reshape(fresh(a), size))


@kernel("unsafe_transpose")
def _unsafe_transpose(a, *, dim0, dim1):
    order = list(range(len(shape_of(a))))
    if not order:
        return fresh(a)
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return permuted(fresh(a), order)


# ------------------------------------------------------------------ triangles
def _triangle(name, old, new):
    @kernel(name)
    def f(a, *, diagonal):
        if ASCEND:
            return op(new)(a, diagonal) if new is not G.Triu else op(new, diagonal)(a)
        if dtype_of(a) is ms.complex128:
            shape = shape_of(a)
            inside = np.tri(*shape[-2:], diagonal - (old is P.Triu), dtype=bool)
            a, zero = dense(a), zeros(shape, ms.complex128)
            return op(P.Select)(table(np.array(np.broadcast_to(inside, shape), order="C")), *((a, zero) if old is P.Tril else (zero, a)))
        return unbits(op(old, diagonal)(bits(a)), a)


_triangle("tril", P.Tril, G.TrilExt)
_triangle("triu", P.Triu, G.Triu)


@kernel("tri_indices")
def _tri_indices(row, col, offset, lower, np_dtype, device):
    inside = np.tri(row, col, offset if lower else offset - 1, np.bool_)
    return table(np.stack(np.nonzero(inside if lower else ~inside)).astype(np_dtype))


# ------------------------------------------------------------------ diagonals
def diagonal_of(r, offset, dim1, dim2):
    """Returns a view of a diagonal, as the last dimension."""
    sizes, strides, n = shape_of(r), stride_of(r), len(shape_of(r))
    dim1, dim2 = dim1 % n, dim2 % n
    rest = [d for d in range(n) if d not in (dim1, dim2)]
    length = max(min(sizes[dim1] + min(offset, 0), sizes[dim2] - max(offset, 0)), 0)
    at = offset * strides[dim2] if offset >= 0 else -offset * strides[dim1]
    return view(r, tuple([sizes[d] for d in rest]) + (length,), tuple([strides[d] for d in rest]) + (strides[dim1] + strides[dim2],), at if length else 0,
                stype_of(r))


@kernel("diag_embed")
def _diag_embed(a, *, offset, dim1, dim2):
    shape = list(shape_of(a))
    n = shape.pop() + abs(offset)
    for d in sorted((dim1 % (len(shape) + 2), dim2 % (len(shape) + 2))):
        shape.insert(d, n)
    r = zeros(shape, dtype_of(a))
    write(diagonal_of(r, offset, dim1, dim2), a)
    return r


@kernel("diagonal_backward")
def _diagonal_backward(g, *, shape, offset, dim1, dim2):
    r = zeros(shape, dtype_of(g))
    write(diagonal_of(r, offset, dim1, dim2), g)
    return r


@kernel("main_diagonal_backward")
def _main_diagonal_backward(g, *, size):
    r = zeros(size, dtype_of(g))
    write(view(r, (min(size),), (sum(stride_of(r)),), 0, stype_of(g)), g)
    return r


@kernel("diagonal_scatter")
def _diagonal_scatter(a, src, *, offset, dim1, dim2):
    r = copied_as_it_lies(a)
    to = diagonal_of(r, offset, dim1, dim2)
    if shape_of(to) != shape_of(src):
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {list(shape_of(src))}, slice size = {list(shape_of(to))}")
    write(to, src)
    return dense(r)
