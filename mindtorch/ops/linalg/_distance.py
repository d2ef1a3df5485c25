"""Distances between rows: cdist, pdist."""
import math

import numpy as np

from mindtorch.backend.cpu import threads
from mindtorch.backend.cpu.host import quiet
from mindtorch.core.grad_mode import mode
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import wrap
from mindtorch.ops.nn._fused import again, need_float, tensor_arg, title
from mindtorch.ops.basic import cast

_BLOCK = 1 << 22     # elements of the (P, R, M) differences held at a time


@quiet
def _cdist(a, b, *, p, mm):
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    n, m, k = a.shape[-2], b.shape[-2], a.shape[-1]
    if not k or not n or not m or 0 in shape:
        return np.zeros(shape + (n, m), a.dtype)
    if p == 2 and mm:
        sq = (a * a).sum(-1)[..., :, None] + (b * b).sum(-1)[..., None, :]
        r = threads.matmul(a, b.swapaxes(-1, -2))
        r *= -2
        r += sq
        np.maximum(r, 0, out=r)
        return np.sqrt(r, out=r)
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
            r = np.minimum(np.ceil(d), d.dtype.type(1)).sum(-1)      # nan counts as nan
        elif p == math.inf:
            r = d.max(-1)
        else:
            r = (d ** d.dtype.type(p)).sum(-1) ** d.dtype.type(1 / p)
        out[..., i:i + step, :] = r
    return out


@quiet
def _cdist_grad(g, a, b, dist, *, p):
    """Gradient of the distances with respect to a."""
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    n, m, k = a.shape[-2], b.shape[-2], a.shape[-1]
    out = np.zeros(shape + (n, k), a.dtype)
    if not out.size or not m or p == 0:
        return out
    t = a.dtype.type
    if p == 2:
        w = np.where(dist == 0, t(0), g / np.where(dist == 0, t(1), dist))
        return a * w.sum(-1)[..., None] - threads.matmul(w, b)
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
            # sign(d) |d|^(p-1) / dist^(p-1), nought where the distance is
            e = np.where(di == 0, t(0), np.abs(d) / np.where(di == 0, t(1), di))
            w = e ** t(p - 1)
            if p < 1:
                w[d == 0] = 0
            r = np.where(di == 0, t(0), np.sign(d) * w * gi)
        out[..., s, :] = r.sum(-2)
    return out


_cdist_grad_ = primitive("cdist_backward", _cdist_grad)


def _compose_cdist(a, b, p):
    d = a.unsqueeze(-2) - b.unsqueeze(-3)
    return _norm_of(d, p)


def _norm_of(d, p):
    """p-norm over the last dim out of ops with gradients, with a gradient of nought at nought."""
    if p == 0:
        return cast((d != 0).sum(-1), d._stype)
    if p == math.inf:
        return d.abs().amax(-1)
    if p == 1:
        return d.abs().sum(-1)
    s = (d * d).sum(-1) if p == 2 else (d.abs() + wrap((d._a == 0).astype(d._stype)) * 1e-30).pow(p).sum(-1)
    zero = wrap(s._a == 0) if p == 2 else wrap((d._a == 0).all(-1))
    return s.masked_fill(zero, 1.0).pow(1 / p).masked_fill(zero, 0.0)


cdist_ = primitive(
    "cdist", _cdist,
    lambda c, g: (again(lambda a, b: _compose_cdist(a, b, c.p), (c.a, c.b), g)[0] if mode.on
                  else _cdist_grad_(g, c.a, c.b, c.out, p=c.p)),
    lambda c, g: (again(lambda a, b: _compose_cdist(a, b, c.p), (c.a, c.b), g)[1] if mode.on
                  else _cdist_grad_(wrap(g._a.swapaxes(-1, -2)), c.b, c.a, wrap(c.out._a.swapaxes(-1, -2)), p=c.p)))


@op(method=False)
def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """p-norm distances between all rows: (*, P, M), (*, R, M) -> (*, P, R)."""
    tensor_arg("cdist", "x1", x1)
    tensor_arg("cdist", "x2", x2, 2)
    a, b = x1._a, x2._a
    for n, x in (("X1", a), ("X2", b)):
        if x.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {n} got: {x.ndim}D")
    if a.shape[-1] != b.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {a.shape[-1]} X2: {b.shape[-1]}")
    for n, x in (("X1", x1), ("X2", x2)):
        if x._stype.kind != "f":
            raise RuntimeError(f"cdist only supports floating-point dtypes, {n} got: {title(x)}") if x._stype.kind != "V" else \
                NotImplementedError("\"cdist\" not implemented for 'BFloat16' on device cpu")
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected scalar type {title(a)} but found {title(b)}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    modes = {"use_mm_for_euclid_dist_if_necessary": None, "use_mm_for_euclid_dist": True, "donot_use_mm_for_euclid_dist": False,
             None: None, 0: None, 1: True, 2: False}
    if compute_mode not in modes:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    mm = modes[compute_mode]
    if mm is None:
        mm = a.shape[-2] > 25 or b.shape[-2] > 25
    return cdist_(x1, x2, p=float(p), mm=mm)


@op(method=False, aliases="nn.functional.pdist")
def pdist(input, p=2):
    """Distances between all pairs of rows i < j of a matrix, as a vector."""
    tensor_arg("pdist", "input", input)
    a = input._a
    if a.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {a.ndim}D")
    if a.dtype.kind != "f":
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    i, j = np.triu_indices(a.shape[0], 1)
    need_float("pdist", input)
    return pdist_(input, p=float(p), i=i, j=j)


@quiet
def _pdist_kernel(a, *, p, i, j):
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


@quiet
def _pdist_grad(g, a, dist, *, p, i, j):
    d = (a[i] - a[j])[:, None, :]
    r = np.zeros_like(a)
    if d.size:
        # Each pair is a distance between two sets of one row.
        w = _cdist_grad(g[:, None, None], d, np.zeros_like(d), dist[:, None, None], p=p)[:, 0]
        np.add.at(r, i, w)
        np.subtract.at(r, j, w)
    return r


_pdist_grad_ = primitive("pdist_backward", _pdist_grad)
pdist_ = primitive(
    "pdist", _pdist_kernel,
    lambda c, g: (again(lambda a: _norm_of(a.index_select(0, wrap(c.i)) - a.index_select(0, wrap(c.j)), c.p), (c.a,), g)[0]
                  if mode.on else _pdist_grad_(g, c.a, c.out, p=c.p, i=c.i, j=c.j)))
