"""Ascend kernels for min/max, variance of any shape including 0-d, product gradients, scatters with
a reduction, masked scatters and distances.

Where aclnn has no kernel, aclnn kernels are composed without reading values on the host.
"""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import G, UnsupportedByKernel, P, broadcast, dtype_of, mint, ms, kept, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels._index_utils import table
from mindtorch.backend.mindspore.kernels.ascend import CUBE, ascend, copy, strided, zeros
from mindtorch.backend.mindspore.kernels.reduction import count, reduced, sums

NUMBERS = CUBE + " int64 int32"


# ------------------------------------------------------------------ min and max
def _extreme(name, dim_prim, arg_prim):
    @ascend(name + "_dim")
    def pair(a, *, axis, keepdim):
        if not shape_of(a):
            return copy(a), zeros((), ms.int64)
        return op(dim_prim)(a, axis, keepdim)

    @ascend("arg" + name)
    def place(a, *, axis, keepdim):
        shape = shape_of(a)
        if not shape:
            return zeros((), ms.int64)
        if axis is None:
            return reshape(op(arg_prim)(a, None, False), (1,) * len(shape) if keepdim else ())
        return op(arg_prim)(a, axis, keepdim)


_extreme("max", G.MaxDim, G.ArgMaxExt)
_extreme("min", G.MinDim, G.ArgMinExt)


# ------------------------------------------------------------------ variance and standard deviation
def _moment(name, prim):
    @ascend(name, only=CUBE)
    def f(a, *, axes, keepdim, correction):
        shape = shape_of(a)
        if not shape:
            return reshape(f(reshape(a, (1,)), axes=None, keepdim=False, correction=correction), ())
        axes = None if axes is None else tuple(axes)
        if int(correction) == correction:
            return op(prim)(a, axes, int(correction), keepdim)
        # aclnn accepts only an integer correction; this path takes three launches
        n = count(shape, axes)
        r = o.div(o.mul(op(G.Var)(a, axes, 0, keepdim), float(n)), max(n - correction, 0.0))
        return r if prim is G.Var else op(G.Sqrt)(r)


_moment("var", G.Var)
_moment("std", G.Std)


# ------------------------------------------------------------------ products
@ascend("prod_dim")
def _prod_dim(a, *, axis, keepdim):
    shape = shape_of(a)
    if axis is None or not shape:
        return reshape(op(G.ProdExt)(a, None, False, None), (1,) * len(shape) if keepdim and shape else ())
    return op(G.ProdExt)(a, axis, keepdim, None)


@ascend("prod_backward", only=CUBE)
def _prod_backward(g, a, out, *, axis, keepdim):
    """Computes g * out / a for each factor. If a line holds one zero, the gradient of the zero is
    the product of the other factors. If it holds two or more, all gradients are zero. Ten launches.
    """
    shape = shape_of(a)
    if not shape:
        return copy(g)
    axes = None if axis is None else (axis,)
    wide = reshape(g, reduced(shape, axes, True))
    whole = reshape(out, reduced(shape, axes, True))
    zero = o.eq(a, 0)
    zeroes = sums(zero, axes, True)
    rest = o.where(zero, 1.0, a)
    product = reshape(op(G.ProdExt)(rest, axis, axis is not None, None), shape_of(whole))
    beside = o.where(o.and_(zero, o.eq(zeroes, 1)), product, 0.0)
    return o.mul(o.where(o.eq(zeroes, 0), o.div(whole, rest), beside), wide)


# ------------------------------------------------------------------ scatters with a reduction
def _corner(src, i):
    shape = shape_of(i)
    return src if shape_of(src) == shape else strided(src, shape, src.stride())


@kept(256)
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
    place = reshape(op(G.AddExt)(_lines(shape_of(i), size, dim), o.mul(i, step), 1), (-1,))
    values = reshape(src, (-1,))
    whole = dtype_of(a) in (ms.int64, ms.int32)
    if low and not whole:
        values = o.neg(values)  # NaN sorts last
    values, by = op(G.SortExt)(values, 0, low and whole, True)
    place, then = op(G.SortExt)(op(G.IndexSelect)(place, 0, by), 0, False, True)
    values = op(G.IndexSelect)(values, 0, then)
    if low and not whole:
        values = o.neg(values)
    m = shape_of(place)[0]
    if m > 1:
        ends = o.ne(strided(place, (m - 1,), (1,), 1), strided(place, (m - 1,), (1,)))
        last = strided(place, (1,), (1,), m - 1)
        place = op(G.Concat, 0)((o.where(ends, strided(place, (m - 1,), (1,)), n), last))
    # One additional element receives the values that do not count.
    room = op(G.Concat, 0)((reshape(a, (-1,)), zeros((1,), dtype_of(a))))
    r = op(G.Scatter)(room, 0, place, values, "none")
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


@ascend("scatter_reduce", only=NUMBERS)
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


@ascend("scatter_multiply", only=NUMBERS)
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


def _placed(r, mask, src):
    """Writes the elements of src, in order, to the masked elements of r, in place. Returns r."""
    shape = shape_of(r)
    if not shape:
        _placed(reshape(r, (1,)), reshape(mask, (1,)), src)
        return r
    op(G.InplaceMaskedScatter)(r, mask if shape_of(mask) == shape else copy(broadcast(mask, shape)), src)
    return r


@ascend("masked_scatter")
def _masked_scatter(a, src, mask):
    """Does not check that src has enough elements, just as indices are not checked."""
    shape = _common(shape_of(a), shape_of(mask))
    return _placed(copy(broadcast(a, shape)), mask, src)


@ascend("masked_select_backward")
def _masked_select_backward(g, mask, *, size):
    return _placed(zeros(_common(size, shape_of(mask)), dtype_of(g)), mask, g)


@ascend("masked_source")
def _masked_source(g, mask, *, size):
    taken = mint.masked_select(g, mask)
    r = zeros(size, dtype_of(g))
    n = shape_of(taken)[0]
    if n:
        op(G.InplaceCopy)(strided(r, (n,), (1,)), taken)
    return r


# ------------------------------------------------------------------ distances
@ascend("cdist", only="float32 float16")
def _cdist(a, b, *, p, mm):
    x, y = shape_of(a), shape_of(b)
    lead = _common(x[:-2], y[:-2])
    if len(x) == len(y) and len(x) < 4:
        return op(G.Cdist, float(p))(a, b)
    a, b = [reshape(broadcast(h, (*lead, *shape_of(h)[-2:])), (-1, *shape_of(h)[-2:])) for h in (a, b)]
    return reshape(op(G.Cdist, float(p))(a, b), (*lead, x[-2], y[-2]))


@ascend("cdist_backward", only="float32 float16")
def _cdist_backward(g, a, b, dist, *, p, second):
    """Gradient of the distances with respect to `a`, or to `b` if `second`. Up to ten launches,
    because aclnn has no gradient kernel: MindSpore's is an aclop kernel."""
    if not (p == 0 or p >= 1):
        raise UnsupportedByKernel
    x, y, s = shape_of(a), shape_of(b), shape_of(g)
    e = o.sub(reshape(a, (*x[:-1], 1, x[-1])), reshape(b, (*y[:-2], 1, *y[-2:])))
    wide = (*s, 1)
    none = o.eq(dist, 0.0)
    far = o.where(none, 1.0, dist)
    if p == 0:
        r = o.mul(e, 0.0)
    elif p == 1:
        r = o.mul(o.sign(e), reshape(g, wide))
    elif p == 2:
        r = o.mul(e, reshape(o.div(o.where(none, 0.0, g), far), wide))
    elif p == math.inf:
        r = o.mul(o.where(o.eq(o.abs_(e), reshape(dist, wide)), o.sign(e), 0.0), reshape(g, wide))
    else:
        ratio = o.pow_(o.div(o.abs_(e), reshape(far, wide)), float(p - 1))
        r = o.mul(o.mul(o.sign(e), ratio), reshape(o.where(none, 0.0, g), wide))
    r = sums(r, (len(s) - (2 if second else 1),))
    return o.neg(r) if second else r


# ------------------------------------------------------------------ unbatched samples
@ascend("unsqueeze_batch")
def _unsqueeze_batch(a):
    return op(P.Reshape)(copy(a), (1, *shape_of(a)))


@ascend("squeeze_batch")
def _squeeze_batch(a):
    return op(P.Reshape)(copy(a), shape_of(a)[1:])
