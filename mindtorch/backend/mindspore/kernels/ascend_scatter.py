"""Ascend: scatters with a reduction and masked scatters, composed of aclnn kernels without reading
values on the host."""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import broadcast, dtype_of, G, cached_constants, mint, ms, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels._index_utils import table
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy, CUBE, strided, zeros
from mindtorch.backend.mindspore.kernels.ascend_reduction import NUMERIC


# ------------------------------------------------------------------ scatters with a reduction
def _corner(src, i):
    shape = shape_of(i)
    return src if shape_of(src) == shape else strided(src, shape, src.stride())


@cached_constants(256)
def _lines(shape, size, dim):
    """For an index tensor of `shape`, returns the linear index of the first element of each
    element's line along `dim`, in a tensor of shape `size`."""
    r = np.zeros([1] * len(shape), np.int64)
    step = 1
    for d in range(len(shape) - 1, -1, -1):
        if d != dim:
            r = r + (np.arange(shape[d]) * step).reshape([-1 if k == d else 1 for k in range(len(shape))])
        step *= size[d]
    return table(r)


def _last_of_each(a, src, i, dim, low):
    """Returns `a` with the largest (`low`: the smallest) of the values scattered to each index. The
    values are sorted, then stably sorted by index, and the last value of each run is written."""
    size = shape_of(a)
    n = math.prod(size)
    step = math.prod(size[dim + 1:])
    position = reshape(op(G.AddExt)(_lines(shape_of(i), size, dim), o.mul(i, step), 1), (-1,))
    values = reshape(src, (-1,))
    integral = dtype_of(a) in (ms.int64, ms.int32)
    if low and not integral:
        values = o.neg(values)  # NaN sorts last
    values, by = op(G.SortExt)(values, 0, low and integral, True)
    position, then = op(G.SortExt)(op(G.IndexSelect)(position, 0, by), 0, False, True)
    values = op(G.IndexSelect)(values, 0, then)
    if low and not integral:
        values = o.neg(values)
    m = shape_of(position)[0]
    if m > 1:
        ends = o.ne(strided(position, (m - 1,), (1,), 1), strided(position, (m - 1,), (1,)))
        last = strided(position, (1,), (1,), m - 1)
        position = op(G.Concat, 0)((o.where(ends, strided(position, (m - 1,), (1,)), n), last))
    # One additional element receives the values that do not count.
    padded = op(G.Concat, 0)((reshape(a, (-1,)), zeros((1,), dtype_of(a))))
    r = op(G.Scatter)(padded, 0, position, values, "none")
    return reshape(copy(strided(r, (n,), (1,))), size)


def _times(a, dim, i, src):
    r = copy(a)
    op(G.InplaceScatterSrcReduce)(r, dim, i, src, "multiply")
    return r


def _counts(like, dim, i, include_self):
    d = dtype_of(like)
    start = op(G.OnesLikeExt)(like, d) if include_self else zeros(shape_of(like), d)
    one = op(G.Ones)(shape_of(i), d)
    n = op(G.ScatterAddExt)(start, dim, i, one)
    return n if include_self else o.at_least(n, 1)


@ascend("scatter_count", only=CUBE + " int64")
def _scatter_count(g, i, *, dim, include_self):
    x, at = _line(g), _line(i)
    return reshape(_counts(x, dim, at, include_self), shape_of(g))


def _line(h):
    return h if shape_of(h) else reshape(h, (1,))


@ascend("scatter_reduce", only=NUMERIC)
def _scatter_reduce(a, src, i, *, dim, how, include_self, check):
    """Launches: one for sums, three or four for products and means, fourteen for amax and amin,
    because aclnn has no such scatter."""
    shape = shape_of(a)
    a, i = _line(a), _line(i)
    src = _corner(_line(src), i)
    if how in ("amax", "amin"):
        r = _last_of_each(a, src, i, dim, how == "amin")
        if include_self:
            r = (o.maximum if how == "amax" else o.minimum)(a, r)
        return reshape(r, shape)
    start = a if include_self else op(G.ScatterValue)(a, dim, i, 1 if how == "prod" else 0, "none")
    if how == "prod":
        return reshape(_times(start, dim, i, src), shape)
    r = op(G.ScatterAddExt)(start, dim, i, src)
    if how == "mean":
        n = _counts(a, dim, i, include_self)
        r = mint.floor_divide(r, n) if dtype_of(a) in (ms.int64, ms.int32) else o.div(r, n)
    return reshape(r, shape)


@ascend("scatter_multiply", only=NUMERIC)
def _scatter_multiply(a, src, i, *, dim):
    shape = shape_of(a)
    a, i = _line(a), _line(i)
    src = _corner(src, i) if shape_of(src) else broadcast(src, shape_of(i))
    return reshape(_times(a, dim, i, src), shape)


# ------------------------------------------------------------------ masked scatter
def _common(*shapes):
    n = max([len(s) for s in shapes])
    padded = [(1,) * (n - len(s)) + tuple(s) for s in shapes]
    return tuple([next((m for m in sizes if m != 1), 1) for sizes in zip(*padded)])


def _write_masked(r, mask, src):
    """Writes the elements of src, in order, to the masked elements of r, in place. Returns r."""
    shape = shape_of(r)
    if not shape:
        _write_masked(reshape(r, (1,)), reshape(mask, (1,)), src)
        return r
    op(G.InplaceMaskedScatter)(r, mask if shape_of(mask) == shape else copy(broadcast(mask, shape)), src)
    return r


@ascend("masked_scatter")
def _masked_scatter(a, src, mask):
    """Does not check that src has enough elements, just as indices are not checked."""
    shape = _common(shape_of(a), shape_of(mask))
    return _write_masked(copy(broadcast(a, shape)), mask, src)


ascend("masked_select_backward", lambda g, mask, *, size: _write_masked(zeros(_common(size, shape_of(mask)), dtype_of(g)), mask, g))


@ascend("masked_source")
def _masked_source(g, mask, *, size):
    selected = mint.masked_select(g, mask)
    r = zeros(size, dtype_of(g))
    n = shape_of(selected)[0]
    if n:
        op(G.InplaceCopy)(strided(r, (n,), (1,)), selected)
    return r
