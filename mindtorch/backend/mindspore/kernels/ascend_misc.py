"""Ascend: image windows as columns, counts, quantiles, modes, membership, and preparation of
operands for losses and embedding bags.

They are compositions of aclnn kernels where aclnn has no kernel for the op; docstrings give the
number of launches.
"""
import math

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import DTYPES, G, UnsupportedByKernel, P, broadcast, cast, dtype_of, mint, ms, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels._index_utils import counting
from mindtorch.backend.mindspore.kernels.ascend import CUBE, ascend, copy, strided, swapped, zeros
from mindtorch.backend.mindspore.kernels.reduction import sums
from mindtorch.backend.mindspore.kernels.shapes import narrowed

call = op  # Some primitives have a constant named `op`.
_MOST = 1 << 24  # maximum number of element pairs in memory at a time


# ------------------------------------------------------------------ windows of images
@ascend("im2col", only=CUBE)
def _im2col(x, *, kernel, dilation, padding, stride):
    return op(G.Im2ColExt)(x, tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))


@ascend("col2im", only=CUBE)
def _col2im(cols, *, size, kernel, dilation, padding, stride):
    return op(G.Col2ImExt)(cols, tuple(size), tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))


# ------------------------------------------------------------------ norms and losses
@ascend("running_statistics", only=CUBE)
def _running_statistics(mean, var, running_mean, running_var, *, momentum, factor):
    m = None if running_mean is None else op(G.LerpScalar)(running_mean, mean, float(momentum))
    return m, None if running_var is None else op(G.LerpScalar)(running_var, o.mul(var, float(factor)), float(momentum))


@ascend("huber_loss", only=CUBE)
def _huber(x, target, *, reduction, param):
    """Takes five launches, and one for the reduction."""
    d = o.abs_(op(G.SubExt)(x, target, 1))
    m = o.at_most(d, param)
    v = o.mul(m, o.sub(d, o.mul(m, 0.5)))
    return v if reduction == "none" else op(G.SumExt)(v) if reduction == "sum" else op(G.MeanExt)(v)


@ascend("huber_loss_backward", only=CUBE)
def _huber_backward(g, x, target, *, reduction, param, needs):
    r = op(G.ClampScalar)(op(G.SubExt)(x, target, 1), -param, param)
    if reduction == "mean":
        g = op(G.Muls)(g, 1 / math.prod(shape_of(r)))
    r = o.mul(r, g)
    return r if needs[0] else None, o.neg(r) if needs[1] else None


@ascend("masked_count")
def _masked_count(mask, *, shape, axes, keepdim):
    return sums(broadcast(mask, shape), None if axes is None else tuple(axes), keepdim) if shape else cast(mask, ms.int64)


@ascend("adjoint", only=CUBE)
def _adjoint(a):
    return copy(swapped(a))


# ------------------------------------------------------------------ membership, order
@ascend("isin", only=CUBE + " int64 int32")
def _isin(a, among, *, invert):
    """Compares all pairs of elements (two launches); does not split large operands into pieces."""
    n, m = math.prod(shape_of(a)), math.prod(shape_of(among))
    if n * m > _MOST:
        raise UnsupportedByKernel
    r = mint.any(o.eq(reshape(a, (n, 1)), reshape(among, (1, m))), 1)
    return reshape(o.not_(r) if invert else r, shape_of(a))


def _picked(x, at, axis, keepdim):
    r = op(G.GatherD)(x, axis, at)
    s = shape_of(r)
    return r if keepdim else reshape(r, s[:axis] + s[axis + 1:])


@ascend("mode", only=CUBE + " int64 int32")
def _mode(a, *, axis, keepdim):
    """Returns the value, and the index of the last element, of the first of the longest runs of
    sorted elements (twelve launches)."""
    if not shape_of(a):
        return copy(a), zeros((), ms.int64)
    shape = shape_of(a)
    n = shape[axis]
    v, at = op(G.SortExt)(a, axis, False, True)
    line = reshape(counting(n), [-1 if d == axis else 1 for d in range(len(shape))])
    head = zeros([1 if d == axis else m for d, m in enumerate(shape)], ms.int64)
    if n == 1:
        return _picked(v, head, axis, keepdim), _picked(at, head, axis, keepdim)
    same = o.eq(narrowed(v, axis, 1, n), narrowed(v, axis, 0, n - 1))
    starts = op(G.Concat, axis)((head, o.where(same, 0, copy(broadcast(narrowed(line, axis, 1, n), shape_of(same))))))
    length = o.sub(line, cast(op(G.Cummax, axis)(starts)[0], ms.int64))
    # Lengths minus a share of the index: no two are equal, and the first of the longest runs has
    # the maximum.
    k = op(G.ArgMaxExt)(o.sub(o.mul(length, n), line), axis, True)
    return _picked(v, k, axis, keepdim), _picked(at, k, axis, keepdim)


def _missing(a):
    return o.ne(a, a)


@ascend("nanmedian_dim", only=CUBE + " int64 int32")
def _nanmedian_dim(a, *, axis, keepdim):
    """Returns the lower median of the elements that are not nan: nan sorts last (seven launches).
    """
    shape = shape_of(a)
    if not shape:
        return copy(a), zeros((), ms.int64)
    if dtype_of(a) in (ms.int64, ms.int32):
        return op(G.MedianDim)(a, axis, keepdim)
    v, at = op(G.SortExt)(a, axis, False, True)
    there = sums(op(G.Equal)(a, a), (axis,), True)
    k = mint.floor_divide(o.at_least(o.sub(there, 1), 0), 2)
    return _picked(v, k, axis, keepdim), _picked(at, k, axis, keepdim)


@ascend("nanmedian_all", only=CUBE + " int64 int32")
def _nanmedian_all(a):
    return reshape(_nanmedian_dim(reshape(a, (-1,)), axis=0, keepdim=False)[0], ())


@ascend("quantile_ranks", only="float32")
def _quantile_ranks(v, q, *, axis, interpolation, skip, op: str):
    """Does not check whether all q are within [0, 1]."""
    shape = shape_of(v)
    n, rank_of = shape[axis] if shape else 1, [-1 if k == axis else 1 for k in range(len(shape))]
    missing = sums(_missing(v), (axis,), True) if shape else sums(_missing(v))
    whole = call(G.FillScalar)(shape_of(missing), float(n - 1), ms.float32)
    last = o.at_least(o.sub(whole, cast(missing, ms.float32)), 0) if skip else whole
    rank = o.mul(reshape(q, rank_of), last)
    if not skip:
        rank = o.where(o.gt(missing, 0), last, rank)
    turn = {"lower": o.floor, "higher": mint.ceil, "nearest": o.rint}.get(interpolation)
    if turn is not None:
        return cast(turn(rank), ms.int64), None, None, None
    low = o.floor(rank)
    return cast(low, ms.int64), cast(mint.ceil(rank), ms.int64), o.sub(rank, low), last


# ------------------------------------------------------------------ indices
@ascend("places_once")
def _places_once(i, *, n):
    """Returns the distinct indices of a dimension of size n (four launches)."""
    i = reshape(i, (-1,))
    return call(G.Unique2)(o.where(o.lt(i, 0), o.add(i, n), i), True, False, False)[0]


@ascend("index_rows")
def _index_rows(i, *, n, size, dim):
    shape = [1] * max(len(size), 1)
    shape[dim] = math.prod(shape_of(i))
    return copy(broadcast(reshape(i, tuple(shape) if size else ()), tuple(size)))


@ascend("nonzero_static")
def _nonzero_static(a, *, size, fill_value):
    d = len(shape_of(a))
    if not d or not size:
        raise UnsupportedByKernel
    rows = op(G.NonZero)(a)
    n = min(size, shape_of(rows)[0])
    r = op(G.FillScalar)((size, d), fill_value, ms.int64)
    if n:
        op(G.InplaceCopy)(strided(r, (n, d), (d, 1)), strided(rows, (n, d), (d, 1)))
    return r


def _chosen(mask):
    """Returns the indices where a vector of booleans is set. (MindSpore synchronizes to get their
    number.)"""
    at = reshape(op(G.NonZero)(mask), (-1,))
    if not shape_of(at)[0]:
        raise UnsupportedByKernel
    return at


@ascend("embedding_bag_places", only="int64 int32")
def _bag_places(index, offsets, *, rows, include_last, padding, divisor):
    """Does not check offsets and indices."""
    n = math.prod(shape_of(index))
    live = reshape(copy(index), (-1,))
    if offsets is None:
        bags, width = shape_of(index)
        bag = op(G.RepeatInterleaveInt)(counting(bags), width, 0, None)
        sizes = op(G.FillScalar)((bags,), width, ms.int64)
    else:
        offsets = cast(offsets, ms.int64)
        many = shape_of(offsets)[0]
        bags = many - bool(include_last)
        if not bags:
            raise UnsupportedByKernel
        if include_last == "open":
            offsets, many, include_last = copy(narrowed(offsets, 0, 0, bags)), bags, False
        bag = o.sub(op(G.SearchSorted, ms.int64, True)(offsets, counting(n), None), 1)
        ends = narrowed(offsets, 0, 1, many)
        if include_last:  # Indices after the last offset are in no bag.
            n = shape_of(_chosen(o.lt(bag, bags)))[0]
            live, bag = copy(narrowed(live, 0, 0, n)), copy(narrowed(bag, 0, 0, n))
        else:
            end = op(G.FillScalar)((1,), n, ms.int64)
            ends = op(G.Concat, 0)((ends, end)) if bags > 1 else end
        sizes = o.sub(ends, narrowed(offsets, 0, 0, bags))
    bag_live, there = bag, None
    if padding >= 0:
        there = _chosen(o.ne(live, padding))
        live, bag_live = op(G.IndexSelect)(live, 0, there), op(G.IndexSelect)(bag, 0, there)
        sizes = op(G.IndexAddExt)(zeros((bags,), ms.int64), 0, bag_live, op(G.Ones)(shape_of(there), ms.int64), 1)
    by = None if divisor is None else reshape(cast(o.at_least(sizes, 1), DTYPES[divisor]), (bags, 1))
    return live, bag_live, copy(bag), sizes, there, by


@ascend("embedding_bag_max", only="float32 float16 int64")
def _bag_max(rows, bag, *, bags):
    """Returns (largest element by bag and column, its row or -1).

    Sorts by value, then by bag, so the first element of each bag is its largest (two sorts, nine
    more launches).
    """
    k, d = shape_of(rows)
    by_value = op(G.SortExt)(rows, 0, True, True)[1]
    owner = reshape(op(G.IndexSelect)(bag, 0, reshape(by_value, (-1,))), (k, d))
    by_bag = op(G.SortExt)(owner, 0, False, True)[1]
    starts = o.at_most(op(G.SearchSorted, ms.int64, False)(bag, counting(bags), None), k - 1)
    none = reshape(o.ne(op(G.IndexSelect)(bag, 0, starts), counting(bags)), (bags, 1))
    at = op(G.GatherD)(by_value, 0, op(G.IndexSelect)(by_bag, 0, starts))
    return o.where(none, 0.0, op(G.GatherD)(rows, 0, at)), o.where(none, -1, at)


@ascend("embedding_bag_max_backward", only="float32 float16 int64")
def _bag_max_backward(g, at, *, count):
    return op(G.ScatterAddExt)(zeros((count, shape_of(g)[1]), dtype_of(g)), 0, o.at_least(at, 0), o.where(o.ge(at, 0), g, 0.0))


@ascend("embedding_bag_max_gather", only="float32 float16 int64")
def _bag_max_gather(a, at):
    return o.where(o.ge(at, 0), op(G.GatherD)(a, 0, o.at_least(at, 0)), 0.0)


@ascend("embedding_bag_winners", only="int64 int32")
def _bag_winners(at, live):
    picked = op(G.IndexSelect)(live, 0, reshape(o.at_least(at, 0), (-1,)))
    return o.where(o.ge(at, 0), reshape(cast(picked, ms.int64), shape_of(at)), 0)


# ------------------------------------------------------------------ cumulative products, histograms
@ascend("cumprod", only=CUBE)
def _cumprod(a, *, axis):
    """Uses MindSpore's old op (aclop Cumprod): its plugin has no aclnn kernel for this."""
    return op(P.CumProd)(a, axis) if shape_of(a) else copy(a)


@ascend("histc", only="float32")
def _histc(a, *, bins, low, high):
    if low > high or not (math.isfinite(low) and math.isfinite(high)):
        raise UnsupportedByKernel
    return cast(op(G.HistcExt)(reshape(a, (-1,)), bins, low, high), dtype_of(a))
