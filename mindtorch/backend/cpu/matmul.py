"""Kernels of matrix products: the large ones are heavy.py's and product.py's, here stand those of vectors, sums and contractions."""
import math

import numpy as np

from mindtorch.backend.cpu import heavy, kernel, threads
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.pointwise import LOOPS
from mindtorch.backend.cpu.product import blas_ready, product

_MANY = 1 << 13         # elements of an outer product from which on C is faster

kernel("mm bmm", heavy.matmul)
kernel("linear", heavy.linear)
kernel("matmul_rows", heavy.matmul_rows)
kernel("fold", heavy.fold)
kernel("column_sum", heavy.column_sum)


@kernel("spread_rows")
def _spread_rows(g, *, shape):
    return np.broadcast_to(g, shape).copy()


# ------------------------------------------------------------------ vectors, with leading batch dims
@kernel("dot")
@quiet
def _dot(a, b):
    return np.dot(a, b) if a.size <= 8192 else threads.alone(np.dot, a, b)


@kernel("mv")
@quiet
def _mv(a, v):
    return threads.matmul(blas_ready(a), v) if v.ndim == 1 else threads.matmul(a, v[..., None])[..., 0]


@kernel("vm")
@quiet
def _vm(a, u):
    return threads.matmul(u[..., None, :], a)[..., 0, :] if u.ndim > 1 or a.ndim > 2 else threads.matmul(u, a)


@kernel("outer")
@quiet
def _outer(x, y):
    a, b = x[..., :, None], y[..., None, :]
    # us, NumPy and C: 64x64 2.6 and 3.4, 256x256 19.5 and 10.4, 1024x1024 310 and 104
    if x.size * y.shape[-1] >= _MANY and x.dtype == y.dtype and (r := LOOPS[np.multiply](b, a)) is not None:
        return r
    return a * b


@kernel("linalg_cross")
@quiet
def _cross(a, b, *, dim):
    a, b = np.broadcast_arrays(a, b)
    x, y = np.moveaxis(a, dim, 0), np.moveaxis(b, dim, 0)
    r = np.empty(x.shape, x.dtype)
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        r[i] = x[j] * y[k] - x[k] * y[j]
    return np.ascontiguousarray(np.moveaxis(r, 0, dim))


# ------------------------------------------------------------------ with addition
@kernel("addmm")
@quiet
def _addmm(c, a, b, *, beta, alpha):
    r = product(a, b)
    if alpha != 1:
        r *= r.dtype.type(alpha)
    if beta == 1:
        r += c
    elif beta:
        r += c * c.dtype.type(beta)
    return r


# ------------------------------------------------------------------ contractions
def _permuted(a, labels, order):
    """a's dims in the order of the labels `order`."""
    p = tuple(labels.index(i) for i in order)
    return a if p == tuple(range(len(p))) else a.transpose(p)


@kernel("einsum")
@quiet
def _contract(a, b, *, la, lb, lo):
    """Sum of products over the labels that are in `la` and `lb` but not in `lo`; sizes of 1 are stretched.

    Every label of one operand alone must be in `lo`.
    """
    sa, sb = dict(zip(la, a.shape)), dict(zip(lb, b.shape))
    shared = [i for i in la if i in sb]
    if any(sa[i] != sb[i] for i in shared):
        size = {i: max(sa[i], sb[i]) if 0 not in (sa[i], sb[i]) else 0 for i in shared}
        a = np.broadcast_to(a, [size.get(i, n) for i, n in zip(la, a.shape)])
        b = np.broadcast_to(b, [size.get(i, n) for i, n in zip(lb, b.shape)])
        sa.update(size)
        sb.update(size)
    out = set(lo)
    batch = [i for i in lo if i in sa and i in sb]
    con = [i for i in shared if i not in out]
    left = [i for i in lo if i in sa and i not in sb]
    right = [i for i in lo if i in sb and i not in sa]
    size = {**sa, **sb}
    if not con:
        # No sum: elementwise product of the two, spread over each other's dims.
        x = _permuted(a, la, batch + left).reshape([size[i] for i in batch + left] + [1] * len(right))
        y = _permuted(b, lb, batch + right).reshape([size[i] for i in batch] + [1] * len(left) + [size[i] for i in right])
        r = x * y
    else:
        nb, nl, nr, nk = (math.prod([size[i] for i in s]) for s in (batch, left, right, con))
        # Sum in the order in which the larger operand lies in memory.
        con.sort(key=lambda i: -(a if a.size >= b.size else b).strides[(la if a.size >= b.size else lb).index(i)])
        x = _permuted(a, la, batch + left + con).reshape(nb, nl, nk)
        y = _permuted(b, lb, batch + right + con).reshape(nb, nr, nk)
        if nl == 1 and nr == 1 and nb > 1 and a.dtype.kind in "fc":
            r = np.einsum("ijk,ijk->i", x, y)
        elif nb == 1:
            r = product(x[0], y[0].T)
        else:
            r = product(x, y.swapaxes(-1, -2))
        r = np.asarray(r).reshape([size[i] for i in batch + left + right])
    return _permuted(r, batch + left + right, list(lo))
