"""Gather and scatter along one axis."""
import numpy as np

from mindtorch.backend.cpu import kernel


def flat_index(index, axis, shape):
    """Returns the flat indices, in an array of `shape`, of the elements that `index` (full rank)
    selects along `axis`."""
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
    """Returns the elements that a full-rank index selects along `axis`."""
    if a.ndim == 0:
        return a.reshape(index.shape).copy()
    return a.reshape(-1)[flat_index(index, axis, a.shape)].reshape(index.shape)


def picked(a, at, axis, keepdim):
    """Returns (values, indices) of one element per slice, selected by `at` (full rank)."""
    v = take(a, at, axis)
    return (v, at) if keepdim else (v.squeeze(axis), at.squeeze(axis))


@kernel("put_along")
def _put(g, index, *, axis, keepdim, shape, repeated):
    if not shape:
        return g.reshape(()).copy()
    r = np.zeros(shape, g.dtype)
    flat = flat_index(_full(index, axis, keepdim), axis, shape)
    if repeated:
        np.add.at(r.reshape(-1), flat, g.reshape(-1))
    else:
        r.reshape(-1)[flat] = g.reshape(-1)
    return r


@kernel("take_along")
def _take(g, index, *, axis, keepdim, shape, repeated):
    r = take(g, _full(index, axis, keepdim), axis)
    return r if keepdim or not shape else r.reshape(index.shape)
