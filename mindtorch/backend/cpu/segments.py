"""Reductions over segments of one axis."""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.host import quiet

_I64 = np.dtype(np.int64)
_UFUNC = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
_EMPTY = {"sum": 0.0, "mean": 0.0, "max": -np.inf, "min": np.inf, "prod": 1.0}


def _elements(starts, counts, n):
    """Returns (element, segment) of everything that is in a segment, and the length of each
    segment.

    Elements are numbered over all rows of n, one row after another. starts, counts: (batch,
    segments), the start of each segment along the axis and its length.
    """
    rows = np.arange(starts.shape[0])[:, None] * n + starts
    flat = counts.reshape(-1)
    ids = np.repeat(np.arange(flat.size), flat)
    at = np.repeat(rows.reshape(-1), flat) + np.arange(ids.size) - np.repeat(np.cumsum(flat) - flat, flat)
    return at, ids, flat


@kernel("segment_starts")
def _starts(v, *, n, lengths, unsafe):
    """Returns (starts, counts), each (batch, segments), from lengths or offsets (..., segments) on
    an axis of n elements."""
    v = v.reshape(-1, v.shape[-1]).astype(_I64)
    if not lengths:
        starts, counts = v[:, :-1].copy(), np.diff(v, axis=1)
    else:
        if (v < 0).any():
            raise RuntimeError("lengths contains negative value!")
        starts, counts = np.cumsum(v, axis=1) - v, v
        if not unsafe and (v.sum(axis=1) != n).any():
            raise RuntimeError("segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when "
                               "!unsafe.")
    if (counts < 0).any() or (starts < 0).any() or (starts + counts > n).any():
        raise RuntimeError(f"segment_reduce(): a segment extends outside the data axis of size {n}")
    return starts, counts


@kernel("segment_reduce")
@quiet
def _reduce(a, starts, counts, *, how, n, initial):
    """Reduces a (elements, rest) to one row per segment."""
    at, ids, counts = _elements(starts, counts, n)
    r = np.full((counts.size, a.shape[1]), _EMPTY[how] if initial is None else initial, a.dtype)
    _UFUNC[how].at(r, ids, a[at])
    if how == "mean":
        empty = counts == 0
        r /= np.where(empty, 1, counts)[:, None].astype(a.dtype)
        if initial is None:
            r[empty] = np.nan
    return r


@kernel("segment_reduce_backward")
@quiet
def _reduce_backward(g, a, out, starts, counts, *, how, n, initial):
    at, ids, counts = _elements(starts, counts, n)
    r = np.zeros(a.shape, g.dtype)
    if how == "sum":
        part = g[ids]
    elif how == "mean":
        part = (g / np.maximum(counts, 1)[:, None].astype(g.dtype))[ids]
    elif how == "prod":
        part = g[ids] * _others(a[at], ids, initial)
    else:
        x, best = a[at], out[ids]
        hit = (x == best) | ((x != x) & (best != best))
        ties = np.zeros(out.shape, _I64)
        np.add.at(ties, ids, hit)
        part = np.where(hit, (g / np.maximum(ties, 1))[ids], 0).astype(g.dtype)
    np.add.at(r, at, part)
    return r


def _others(x, ids, initial):
    """Returns for each element the product of the others of its segment: product from the left
    times product from the right."""
    left, right = np.ones_like(x), np.ones_like(x)
    for i in range(1, len(ids)):
        if ids[i] == ids[i - 1]:
            left[i] = left[i - 1] * x[i - 1]
    for i in range(len(ids) - 2, -1, -1):
        if ids[i] == ids[i + 1]:
            right[i] = right[i + 1] * x[i + 1]
    r = left * right
    return r if initial is None else r * x.dtype.type(initial)
