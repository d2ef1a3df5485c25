"""Kernels of lookups: embedding, embedding_bag."""
from mindtorch.backend.mindspore.kernels._call import ASCEND, G, P, Lacking, dtype_of, host_span, kernel, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels._places import bits, dense, unbits, view, write, zeros

_NUMERIC = "float32 float64 float16"


def _look(index, rows):
    if ASCEND:
        return
    a = host_span(index)
    if a.min() < 0 or a.max() >= rows:
        raise IndexError("index out of range in self")


@kernel("embedding embedding_sparse")
def _lookup(w, index, *, padding, by_freq):
    _look(index, shape_of(w)[0])
    return unbits(op(P.Gather)(bits(w), dense(index), 0), w)


@kernel("embedding_dense_backward", only=_NUMERIC + " int64 int32")
def _lookup_grad(g, index, *, padding, by_freq, rows):
    if by_freq:
        raise Lacking
    d = shape_of(g)[-1]
    r = op(P.TensorScatterAdd)(zeros((rows, d), dtype_of(g)), reshape(dense(index), (-1, 1)), reshape(dense(g), (-1, d)))
    if padding >= 0:
        line = view(r, (d,), (1,), padding * d, host_span(r).dtype)
        write(line, zeros((d,), dtype_of(g)))
    return r


@kernel("embedding embedding_sparse", target="Ascend")
def _lookup_ascend(w, index, *, padding, by_freq):
    return op(G.Embedding)(index, w, None, None, 2.0, by_freq)


@kernel("embedding_dense_backward", target="Ascend")
def _lookup_grad_ascend(g, index, *, padding, by_freq, rows):
    return op(G.EmbeddingDenseBackward)(g, index, rows, padding if padding >= 0 else None, by_freq)


@kernel("pick_rows")
def _pick_rows(a, index):
    return unbits(op(P.Gather)(bits(a), dense(index), 0), a)


@kernel("put_rows", only=_NUMERIC + " int64")
def _put_rows(g, index, *, rows):
    d = shape_of(g)[1]
    return op(P.TensorScatterAdd)(zeros((rows, d), dtype_of(g)), reshape(dense(index), (-1, 1)), dense(g))


@kernel("embedding_bag_sum", only=_NUMERIC + " int64")
def _bag_sum(rows, bag, *, bags):
    return _put_rows(rows, bag, rows=bags)
