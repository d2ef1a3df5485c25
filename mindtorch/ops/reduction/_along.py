"""Picking and placing elements along one axis: what max, sort, topk, median ... and their gradients are made of."""
import numpy as np

from mindtorch.core.tape import primitive


def flat_index(index, axis, shape):
    """Positions in a flattened array of `shape` of the elements that `index` (full rank) names along `axis`."""
    before = after = 1
    for n in shape[:axis]:
        before *= n
    for n in shape[axis + 1:]:
        after *= n
    n = shape[axis]
    if after == 1:
        if before == 1:
            return index.reshape(-1)
        return (index.reshape(before, index.shape[axis]) + np.arange(before)[:, None] * n).reshape(-1)
    at = index.reshape(before, index.shape[axis], after)
    return ((np.arange(before)[:, None, None] * n + at) * after + np.arange(after)).reshape(-1)


def _full(x, axis, keepdim):
    return x if keepdim else np.expand_dims(x, axis)


def take(a, index, axis):
    """Array of the elements named by a full-rank index."""
    if a.ndim == 0:
        return a.reshape(index.shape).copy()
    return a.reshape(-1)[flat_index(index, axis, a.shape)].reshape(index.shape)


def _put(g, *, index, axis, keepdim, shape, repeated):
    if not shape:
        return g.reshape(()).copy()
    r = np.zeros(shape, g.dtype)
    flat = flat_index(_full(index, axis, keepdim), axis, shape)
    if repeated:
        np.add.at(r.reshape(-1), flat, g.reshape(-1))
    else:
        r.reshape(-1)[flat] = g.reshape(-1)
    return r


def _take(g, *, index, axis, keepdim, shape, repeated):
    r = take(g, _full(index, axis, keepdim), axis)
    return r if keepdim or not shape else r.reshape(index.shape)


#: put_at: zeros of `shape` with the values at `index` (an array) along `axis`; `keepdim`: index and values have full
#: rank; `repeated`: several values may meet at one place and add up.  take_at is its adjoint.
put_at = primitive("put_along", _put, lambda c, g: take_at(
    g, index=c.index, axis=c.axis, keepdim=c.keepdim, shape=c.shape, repeated=c.repeated))
take_at = primitive("gather", _take, lambda c, g: put_at(
    g, index=c.index, axis=c.axis, keepdim=c.keepdim, shape=c.shape, repeated=c.repeated))
