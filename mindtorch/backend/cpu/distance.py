"""Distances between rows."""
import math

import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.activation import relu
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.pointwise import binary, fill_where, unary
from mindtorch.backend.cpu.blas import product
from mindtorch.backend.cpu.sum import sums
from mindtorch.backend.c_kernels import thread_pool

_sqrt, _over, _same = unary(np.sqrt, thread_pool.LARGE_FUNCTION), binary(np.true_divide), binary(np.equal)
_BLOCK = 1 << 22  # elements of the (P, R, M) differences in memory at a time


@kernel("cdist")
@quiet
def _cdist(a, b, *, p, mm):
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    n, m, k = a.shape[-2], b.shape[-2], a.shape[-1]
    if not k or not n or not m or 0 in shape:
        return np.zeros(shape + (n, m), a.dtype)
    if p == 2 and mm:
        # Compute |a|^2 - 2 a b + |b|^2 in one product, like PyTorch. This leaves two of five passes
        # over the distances.
        x, y = np.empty(a.shape[:-1] + (k + 2,), a.dtype), np.empty(b.shape[:-1] + (k + 2,), b.dtype)
        np.multiply(a, a.dtype.type(-2), out=x[..., :k])
        y[..., :k] = b
        x[..., k], x[..., k + 1], y[..., k], y[..., k + 1] = (a * a).sum(-1), 1, 1, (b * b).sum(-1)
        r = product(x, y.swapaxes(-1, -2))
        return _sqrt(relu(r))
    out = np.empty(shape + (n, m), a.dtype)
    step = max(1, _BLOCK // max(1, m * k * math.prod(shape)))
    for i in range(0, n, step):
        d = a[..., i:i + step, None, :] - b[..., None, :, :]
        if p == 2:
            out[..., i:i + step, :] = np.sqrt(np.einsum("...k,...k->...", d, d))
            continue
        np.abs(d, out=d)
        if p == 1:
            r = d.sum(-1)
        elif p == 0:
            r = np.minimum(np.ceil(d), d.dtype.type(1)).sum(-1)  # nan stays nan
        elif p == math.inf:
            r = d.max(-1)
        else:
            r = (d ** d.dtype.type(p)).sum(-1) ** d.dtype.type(1 / p)
        out[..., i:i + step, :] = r
    return out


@kernel("cdist_backward")
@quiet
def _cdist_backward(g, a, b, dist, *, p, second):
    """Returns the gradient of the distances with respect to a, or to b if `second`."""
    return _cdist_grad(g.swapaxes(-1, -2), b, a, dist.swapaxes(-1, -2), p) if second else _cdist_grad(g, a, b, dist, p)


def _cdist_grad(g, a, b, dist, p):
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    n, m, k = a.shape[-2], b.shape[-2], a.shape[-1]
    out = np.zeros(shape + (n, k), a.dtype)
    if not out.size or not m or p == 0:
        return out
    t = a.dtype.type
    if p == 2:
        w, none = _over(g, dist), _same(dist, np.zeros((), dist.dtype))
        fill_where(w, np.zeros((), w.dtype), none)
        return a * sums(w, (w.ndim - 1,), True) - product(w, b)
    step = max(1, _BLOCK // max(1, m * k * math.prod(shape)))
    for i in range(0, n, step):
        s = slice(i, i + step)
        d = a[..., s, None, :] - b[..., None, :, :]
        gi, di = g[..., s, :, None], dist[..., s, :, None]
        if p == 1:
            r = np.sign(d) * gi
        elif p == math.inf:
            r = np.sign(d) * (np.abs(d) == di) * gi
        else:
            # sign(d) |d|^(p-1) / dist^(p-1), and zero where the distance is zero
            e = np.where(di == 0, t(0), np.abs(d) / np.where(di == 0, t(1), di))
            w = e ** t(p - 1)
            if p < 1:
                w[d == 0] = 0
            r = np.where(di == 0, t(0), np.sign(d) * w * gi)
        out[..., s, :] = r.sum(-2)
    return out


# ------------------------------------------------------------------ all pairs of rows i < j
@kernel("pdist")
@quiet
def _pdist(a, *, p):
    i, j = np.triu_indices(a.shape[0], 1)
    return _row_norms(a[i] - a[j], p)


def _row_norms(d, p):
    if not d.shape[1]:
        return np.zeros(d.shape[0], d.dtype)
    if p == 2:
        return np.sqrt(np.einsum("ij,ij->i", d, d))
    d = np.abs(d)
    if p == 0:
        return np.minimum(np.ceil(d), d.dtype.type(1)).sum(-1)
    if p == 1:
        return d.sum(-1)
    if p == math.inf:
        return d.max(-1)
    return (d ** d.dtype.type(p)).sum(-1) ** d.dtype.type(1 / p)


@kernel("pdist_backward")
@quiet
def _pdist_backward(g, a, dist, *, p):
    i, j = np.triu_indices(a.shape[0], 1)
    d = (a[i] - a[j])[:, None, :]
    r = np.zeros_like(a)
    if d.size:
        # Treat each pair as a distance between two sets of one row.
        w = _cdist_grad(g[:, None, None], d, np.zeros_like(d), dist[:, None, None], p)[:, 0]
        np.add.at(r, i, w)
        np.subtract.at(r, j, w)
    return r
