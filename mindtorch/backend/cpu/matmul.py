"""Kernels of matrix products, products of vectors, and contractions. `blas.py` selects the
library."""
import functools
import math

import numpy as np

from mindtorch.backend.cpu import kernel, threads
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.pointwise import LOOPS
from mindtorch.backend.cpu.blas import by_vector, product, product_plus
from mindtorch.backend.cpu.sum import column_sum, rows

_MANY = 1 << 13  # elements of an outer product from which C is faster


# ------------------------------------------------------------------ matrices
@kernel("mm bmm")
def matmul(a, b, *, ta, tb):
    """Returns the matrix product over the last two dims.

    Operands are transposed first if `ta`/`tb`; leading dims broadcast.
    """
    if ta:
        a = a.swapaxes(-1, -2)
    if tb:
        b = b.swapaxes(-1, -2)
    return product(a, b)


@kernel("linear")
def linear(x, w, b):
    """Computes x @ w.T + b over the last dim of x."""
    y = product(rows(x), w.T) if b is None else product_plus(rows(x), w.T, b)
    return y if x.ndim == 2 else y.reshape(x.shape[:-1] + (w.shape[0],))


@kernel("matmul_rows")
def matmul_rows(x, w):
    """Computes x @ w over the last dim of x."""
    y = product(rows(x), w)
    return y if x.ndim == 2 else y.reshape(x.shape[:-1] + (w.shape[1],))


@kernel("fold")
def fold(a, b):
    """Sums outer products over all leading dims: (..., M), (..., N) -> (M, N)."""
    return product(rows(a).T, rows(b))


kernel("column_sum", column_sum)


@kernel("expand_rows")
def _expand_rows(g, *, shape):
    return np.broadcast_to(g, shape).copy()


# ------------------------------------------------------------------ vectors, with leading batch dims
@kernel("dot")
@quiet
def _dot(a, b):
    return np.dot(a, b) if a.size <= 8192 else threads.single_threaded(np.dot, a, b)


@kernel("mv")
@quiet
def _mv(a, v):
    return by_vector(a, v) if v.ndim == 1 else threads.matmul(a, v[..., None])[..., 0]


@kernel("vm")
@quiet
def _vm(a, u):
    return threads.matmul(u[..., None, :], a)[..., 0, :] if u.ndim > 1 or a.ndim > 2 else by_vector(a.T, u)


@kernel("outer")
@quiet
def _outer(x, y):
    a, b = x[..., :, None], y[..., None, :]
    # NumPy vs C: 64x64 2.6 vs 3.4 us, 256x256 19.5 vs 10.4 us, 1024x1024 310 vs 104 us
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
def _order(labels, wanted):
    """Returns the positions of the labels `wanted` in `labels`, or None if both are the same."""
    p = tuple([labels.index(i) for i in wanted])
    return None if p == tuple(range(len(labels))) else p


@functools.lru_cache(512)
def _contraction(la, lb, lo, shape_a, strides_a, shape_b, strides_b):
    """Plans a contraction. The plan is cached, because planning takes 6 us.

    Returns the order of the dims and the shape to flatten them to, for each operand; the kind of
    multiplication; the result's shape and the order of its dims. Returns None if sizes of 1 have to
    be broadcast.
    """
    sa, sb = dict(zip(la, shape_a)), dict(zip(lb, shape_b))
    shared = [i for i in la if i in sb]
    if any([sa[i] != sb[i] for i in shared]):
        return None
    batch = [i for i in lo if i in sa and i in sb]
    con = [i for i in shared if i not in lo]
    left = [i for i in lo if i in sa and i not in sb]
    right = [i for i in lo if i in sb and i not in sa]
    size = {**sa, **sb}
    many = [[size[i] for i in s] for s in (batch, left, right)]
    if not con:
        # No sum: elementwise product of both operands, broadcast over each other's dims.
        x, y = [*many[0], *many[1], *[1] * len(right)], [*many[0], *[1] * len(left), *many[2]]
        how = "times"
    else:
        nb, nl, nr, nk = (math.prod(s) for s in (*many, [size[i] for i in con]))
        # Sum in the memory order of the larger operand.
        labels, strides = (la, strides_a) if math.prod(shape_a) >= math.prod(shape_b) else (lb, strides_b)
        con.sort(key=lambda i: -strides[labels.index(i)])
        x, y = [nb, nl, nk], [nb, nr, nk]
        how = "rows" if nl == 1 and nr == 1 and nb > 1 else "one" if nb == 1 else "many"
        if how == "one":
            del x[0], y[0]
    return _order(la, batch + left + con), x, _order(lb, batch + right + con), y, how, sum(many, []), _order(batch + left + right, lo)


@kernel("einsum")
@quiet
def _contract(a, b, *, la, lb, lo):
    """Sums products over the labels that are in `la` and `lb` but not in `lo`. Sizes of 1
    broadcast.

    Every label of only one operand must be in `lo`.
    """
    plan = _contraction(la, lb, lo, a.shape, a.strides, b.shape, b.strides)
    if plan is None:
        sa, sb = dict(zip(la, a.shape)), dict(zip(lb, b.shape))
        size = {i: max(sa[i], sb[i]) if 0 not in (sa[i], sb[i]) else 0 for i in la if i in sb}
        a = np.broadcast_to(a, [size.get(i, n) for i, n in zip(la, a.shape)])
        b = np.broadcast_to(b, [size.get(i, n) for i, n in zip(lb, b.shape)])
        plan = _contraction(la, lb, lo, a.shape, a.strides, b.shape, b.strides)
    order_a, shape_a, order_b, shape_b, how, shape, order = plan
    x = (a if order_a is None else a.transpose(order_a)).reshape(shape_a)
    y = (b if order_b is None else b.transpose(order_b)).reshape(shape_b)
    if how == "times":
        r = x * y
    elif how == "one":
        r = product(x, y.T)
    elif how == "rows" and a.dtype.kind in "fc":
        r = np.einsum("ijk,ijk->i", x, y)
    else:
        r = product(x, y.swapaxes(-1, -2))
    if how != "times":
        r = np.asarray(r).reshape(shape)
    return r if order is None else r.transpose(order)
