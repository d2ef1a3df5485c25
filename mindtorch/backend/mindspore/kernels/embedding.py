"""Kernels of embedding and embedding_bag."""
import numpy as np

from mindtorch.backend.mindspore.kernels._call import (DTYPES, STATE, P, UnsupportedByKernel, cast, runtime_assert, dtype_of, full, host_span, memory_of, ms,
                                                       number, op, reshape,
                                                       shape_of, stype_of)
from mindtorch.backend.mindspore.kernels._index_utils import (bag_by_values, bits, counting, cpu_kernel as kernel, dense, expanded, fresh, part, size_of, table,
                                                              unbits, view, write, zeros)
from mindtorch.backend.mindspore.kernels.indexing import gathered
from mindtorch.backend.mindspore.kernels.joining import joined
from mindtorch.backend.mindspore.kernels.ordering import has_nan
from mindtorch.backend.mindspore.kernels.shapes import narrowed

_NUMERIC = "float32 float64 float16"


def _look(index, rows, bag=False):
    def outside(h):
        a = memory_of(h)
        for i in (a.min(), a.max()):
            if not 0 <= i < rows:
                raise RuntimeError(f"embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {i}") if bag else IndexError(
                    "index out of range in self")
    runtime_assert(index, outside)


@kernel("embedding embedding_sparse")
def _lookup(w, index, *, padding, by_freq):
    _look(index, shape_of(w)[0])
    return unbits(op(P.Gather)(bits(w), dense(index), 0), w)


@kernel("embedding_dense_backward", only=_NUMERIC + " int64 int32")
def _lookup_grad(g, index, *, padding, by_freq, rows):
    if by_freq:
        raise UnsupportedByKernel
    d = shape_of(g)[-1]
    r = op(P.TensorScatterAdd)(zeros((rows, d), dtype_of(g)), reshape(dense(index), (-1, 1)), reshape(dense(g), (-1, d)))
    if padding >= 0:
        line = view(r, (d,), (1,), padding * d, stype_of(r))
        write(line, zeros((d,), dtype_of(g)))
    return r


@kernel("embedding_scale")
def _scale(index, *, padding, by_freq, rows, np_dtype):
    """Returns the factor of each looked-up row in the gradient: 0 for the padding index, else 1."""
    if by_freq:
        raise UnsupportedByKernel
    d = DTYPES[np_dtype]
    if padding < 0:
        return full((*shape_of(index), 1), 1, d)
    return reshape(cast(op(P.NotEqual)(dense(index), number(padding, dtype_of(index))), d), (*shape_of(index), 1))


@kernel("indices_not_equal", dynamic_shape=True)
def _indices_not_equal(index, *, value):
    r = op(P.NonZero)(op(P.NotEqual)(reshape(dense(index), (-1,)), number(value, dtype_of(index))))
    return reshape(r, (-1,))


# ------------------------------------------------------------------ embedding_bag
@kernel("embedding_bag_indices", dynamic_shape=bag_by_values)
def _bag_indices(index, offsets, *, rows, include_last, padding, divisor):
    """Like the host kernel. It reads the offsets on the host, because the result shapes depend on
    them."""
    _look(index, rows, bag=True)
    n = size_of(index)
    if offsets is None:
        starts, bags = table(np.arange(0, n, shape_of(index)[1])), shape_of(index)[0]
        ends, last = op(P.Add)(starts, number(shape_of(index)[1], ms.int64)), n
    else:
        off = host_span(offsets)
        if off[0] != 0:
            raise RuntimeError("offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
                               f"However, got {off[0]}")
        if off[-1] > n:
            raise RuntimeError(f"offsets[-1] can not be greater than input's length {n} but got offsets[-1] of {off[-1]}")
        if (np.diff(off) < 0).any():
            raise UnsupportedByKernel
        bags = off.size - bool(include_last)
        if not bags:
            raise UnsupportedByKernel
        offsets = cast(dense(offsets), ms.int64)
        if include_last == "open":
            offsets, off, include_last = fresh(part(offsets, (bags,))), off[:-1], False
        last = int(off[-1]) if include_last else n
        starts = offsets if not include_last else fresh(part(offsets, (bags,)))
        ends = fresh(narrowed(offsets, 0, 1, off.size))
        if not include_last:
            end = full((1,), n, ms.int64)
            ends = joined((ends, end), 0) if bags > 1 else end
    if not last:
        raise UnsupportedByKernel
    sizes = op(P.Sub)(ends, starts)
    bag = op(P.SearchSorted, ms.int64, True)(ends, counting(last))
    live, bag_live, there = fresh(part(reshape(dense(index), (-1,)), (last,))), bag, None
    if padding >= 0:
        there = _indices_not_equal(live, value=padding)
        if not size_of(there):
            raise UnsupportedByKernel
        live, bag_live = op(P.Gather)(live, there, 0), op(P.Gather)(bag, there, 0)
        sizes = op(P.TensorScatterAdd)(zeros((bags,), ms.int64), reshape(bag_live, (-1, 1)), full((size_of(there),), 1, ms.int64))
    by = None if divisor is None else reshape(cast(op(P.Maximum)(sizes, number(1, ms.int64)), DTYPES[divisor]), (bags, 1))
    return live, bag_live, fresh(bag), fresh(sizes), there, by


@kernel("embedding_bag_max", only="float32 float64 int64")
def _bag_max(rows, bag, *, bags):
    """Returns (maximum per bag and column, index of its row or -1)."""
    if STATE.on is None and has_nan(rows):
        raise UnsupportedByKernel
    k, d = shape_of(rows)
    rows, bag, kind = dense(rows), dense(bag), dtype_of(rows)
    at = reshape(bag, (-1, 1))
    nan = None
    # no NaN check is possible in a graph, so NaN is handled here as the largest value
    if STATE.on is not None and kind is not ms.int64:
        nan, real = op(P.NotEqual)(rows, rows), rows
        rows = op(P.Select)(nan, full((k, d), np.inf, kind), rows)
    best = op(P.TensorScatterMax)(full((bags, d), -np.inf, kind), at, rows)
    position = expanded(reshape(counting(k), (k, 1)), (k, d))
    largest = op(P.Equal)(rows, op(P.Gather)(best, bag, 0))
    if nan is not None:
        some = op(P.TensorScatterMax)(zeros((bags, d), ms.int32), at, cast(nan, ms.int32))
        some = cast(op(P.Gather)(some, bag, 0), ms.bool_)
        largest = op(P.Select)(some, nan, largest)
    position = op(P.Select)(largest, position, full((k, d), k, ms.int64))
    first = op(P.TensorScatterMin)(full((bags, d), k, ms.int64), at, position)
    none = op(P.Equal)(first, number(k, ms.int64))
    if nan is not None:
        best = gathered(real, op(P.Minimum)(first, number(k - 1, ms.int64)), 0)
    return op(P.Select)(none, zeros((bags, d), kind), best), op(P.Select)(none, full((bags, d), -1, ms.int64), first)


@kernel("embedding_bag_max_backward", only="float32 float64 int64")
def _bag_max_grad(g, at, *, count):
    d = shape_of(g)[1]
    # Gradients of empty bags are added to an extra row after the last one.
    at = op(P.Select)(op(P.Less)(dense(at), number(0, ms.int64)), full(shape_of(at), count, ms.int64), dense(at))
    flat = op(P.Add)(op(P.Mul)(at, number(d, ms.int64)), counting(d))
    r = op(P.TensorScatterAdd)(zeros(((count + 1) * d,), dtype_of(g)), reshape(flat, (-1, 1)), reshape(dense(g), (-1,)))
    return reshape(fresh(narrowed(r, 0, 0, count * d)), (count, d))


@kernel("embedding_bag_max_gather", only="float32 float64 int64")
def _bag_max_pick(a, at):
    live, picked = _or_first(at)
    return op(P.Select)(live, gathered(dense(a), picked, 0), zeros(shape_of(at), dtype_of(a)))


@kernel("embedding_bag_winners")
def _bag_winners(at, live):
    some, picked = _or_first(at)
    return op(P.Select)(some, cast(op(P.Gather)(dense(live), picked, 0), ms.int64), zeros(shape_of(at), ms.int64))


def _or_first(at):
    at = dense(at)
    return op(P.GreaterEqual)(at, number(0, ms.int64)), op(P.Maximum)(at, number(0, ms.int64))


kernel("pick_rows", lambda a, index: unbits(op(P.Gather)(bits(a), dense(index), 0), a))


@kernel("put_rows", only=_NUMERIC + " int64")
def _put_rows(g, index, *, rows):
    d = shape_of(g)[1]
    return op(P.TensorScatterAdd)(zeros((rows, d), dtype_of(g)), reshape(dense(index), (-1, 1)), dense(g))


kernel("embedding_bag_sum", lambda rows, bag, *, bags: _put_rows(rows, bag, rows=bags), only=_NUMERIC + " int64")
