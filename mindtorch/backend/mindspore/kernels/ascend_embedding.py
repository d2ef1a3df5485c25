"""Ascend: embedding and embedding_bag. Indices are not checked on the host.

The docstrings give the number of launches where it is not one.
"""
import math

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import cast, dtype_of, DTYPES, G, ms, op, reshape, shape_of, UnsupportedByKernel
from mindtorch.backend.mindspore.kernels._index_utils import bag_by_values, counting
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy, zeros
from mindtorch.backend.mindspore.kernels.shapes import narrowed


# ------------------------------------------------------------------ embedding
ascend("embedding embedding_sparse pick_rows", lambda w, index, *, padding=-1, by_freq=False: op(G.Embedding)(index, w, None, None, 2.0, by_freq))


@ascend("embedding_dense_backward")
def _lookup_grad(g, index, *, padding, by_freq, rows):
    return op(G.EmbeddingDenseBackward)(g, index, rows, padding if padding >= 0 else None, by_freq)


ascend("put_rows", lambda g, index, *, rows: op(G.EmbeddingDenseBackward)(g, index, rows, None, False))
ascend("embedding_bag_sum", lambda rows, bag, *, bags: op(G.IndexAddExt)(zeros((bags, shape_of(rows)[1]), dtype_of(rows)), 0, bag, rows, 1))


# ------------------------------------------------------------------ embedding_bag
def _chosen(mask):
    """Returns the indices where a vector of booleans is set. (MindSpore synchronizes to get their
    number.)"""
    at = reshape(op(G.NonZero)(mask), (-1,))
    if not shape_of(at)[0]:
        raise UnsupportedByKernel
    return at


@ascend("embedding_bag_indices", only="int64 int32", dynamic_shape=bag_by_values)
def _bag_indices(index, offsets, *, rows, include_last, padding, divisor):
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


ascend("embedding_bag_max_gather", lambda a, at: o.where(o.ge(at, 0), op(G.GatherD)(a, 0, o.at_least(at, 0)), 0.0), only="float32 float16 int64")


@ascend("embedding_bag_winners", only="int64 int32")
def _bag_winners(at, live):
    picked = op(G.IndexSelect)(live, 0, reshape(o.at_least(at, 0), (-1,)))
    return o.where(o.ge(at, 0), reshape(cast(picked, ms.int64), shape_of(at)), 0)
