"""Ascend: distances between the rows of matrices, composed of aclnn kernels where aclnn has no
kernel."""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import broadcast, dtype_of, G, cached_constants, op, reshape, shape_of, UnsupportedByKernel
from mindtorch.backend.mindspore.kernels._index_utils import table
from mindtorch.backend.mindspore.kernels.ascend import ascend, empty, zeros
from mindtorch.backend.mindspore.kernels.ascend_scatter import _common
from mindtorch.backend.mindspore.kernels.reduction import sums

_MOST = 1 << 24  # maximum number of element differences in memory at a time


# ------------------------------------------------------------------ rows of one matrix
@cached_constants(64)
def _pairs(n):
    """Returns the row indices of each pair i < j, cached on the device."""
    i, j = np.triu_indices(n, 1)
    return table(i), table(j)


def _differences(a):
    n, m = shape_of(a)
    if not m or n * (n - 1) // 2 * m > _MOST:
        raise UnsupportedByKernel
    i, j = _pairs(n)
    return op(G.SubExt)(op(G.IndexSelect)(a, 0, i), op(G.IndexSelect)(a, 0, j), 1)


@ascend("pdist", only="float32")
def _pdist(a, *, p):
    """Takes five to seven launches."""
    if shape_of(a)[0] < 2:
        return empty((0,), dtype_of(a))
    d = _differences(a)
    if p == 2:
        return op(G.Sqrt)(op(G.SumExt)(op(G.Mul)(d, d), (1,), False))
    d = o.abs_(d)
    if p == 0:
        return op(G.SumExt)(o.where(o.eq(d, 0), 0.0, o.where(o.isnan(d), d, 1.0)), (1,), False)
    if p == 1:
        return op(G.SumExt)(d, (1,), False)
    if p == math.inf:
        return op(G.ReduceMax, False)(d, (1,))
    return o.pow_(op(G.SumExt)(o.pow_(d, p), (1,), False), 1 / p)


@ascend("pdist_backward", only="float32")
def _pdist_backward(g, a, dist, *, p):
    if p == 0 or shape_of(a)[0] < 2:
        return zeros(shape_of(a), dtype_of(a))
    if p < 1:
        raise UnsupportedByKernel
    d = _differences(a)
    n = shape_of(d)[0]
    none = reshape(o.eq(dist, 0), (n, 1))
    g, dist = reshape(g, (n, 1)), reshape(dist, (n, 1))
    if p == 2:
        r = op(G.Mul)(d, o.where(none, 0.0, o.div(g, dist)))
    elif p == 1:
        r = op(G.Mul)(o.sign(d), g)
    elif p == math.inf:
        r = o.where(o.eq(o.abs_(d), dist), op(G.Mul)(o.sign(d), g), 0.0)
    else:
        r = o.where(none, 0.0, op(G.Mul)(op(G.Mul)(o.sign(d), o.pow_(o.div(o.abs_(d), dist), p - 1)), g))
    i, j = _pairs(shape_of(a)[0])
    r = op(G.IndexAddExt)(op(G.IndexAddExt)(zeros(shape_of(a), dtype_of(a)), 0, i, r, 1), 0, j, r, -1)
    return r


# ------------------------------------------------------------------ rows of two matrices
@ascend("cdist", only="float32 float16")
def _cdist(a, b, *, p, mm):
    x, y = shape_of(a), shape_of(b)
    lead = _common(x[:-2], y[:-2])
    if len(x) == len(y) and len(x) < 4:
        return op(G.Cdist, float(p))(a, b)
    a, b = [reshape(broadcast(h, (*lead, *shape_of(h)[-2:])), (-1, *shape_of(h)[-2:])) for h in (a, b)]
    return reshape(op(G.Cdist, float(p))(a, b), (*lead, x[-2], y[-2]))


@ascend("cdist_backward", only="float32 float16")
def _cdist_backward(g, a, b, dist, *, p, second):
    """Gradient of the distances with respect to `a`, or to `b` if `second`. Up to ten launches,
    because aclnn has no gradient kernel: MindSpore's is an aclop kernel."""
    if not (p == 0 or p >= 1):
        raise UnsupportedByKernel
    x, y, s = shape_of(a), shape_of(b), shape_of(g)
    e = o.sub(reshape(a, (*x[:-1], 1, x[-1])), reshape(b, (*y[:-2], 1, *y[-2:])))
    expanded_shape = (*s, 1)
    none = o.eq(dist, 0.0)
    far = o.where(none, 1.0, dist)
    if p == 0:
        r = o.mul(e, 0.0)
    elif p == 1:
        r = o.mul(o.sign(e), reshape(g, expanded_shape))
    elif p == 2:
        r = o.mul(e, reshape(o.div(o.where(none, 0.0, g), far), expanded_shape))
    elif p == math.inf:
        r = o.mul(o.where(o.eq(o.abs_(e), reshape(dist, expanded_shape)), o.sign(e), 0.0), reshape(g, expanded_shape))
    else:
        ratio = o.pow_(o.div(o.abs_(e), reshape(far, expanded_shape)), float(p - 1))
        r = o.mul(o.mul(o.sign(e), ratio), reshape(o.where(none, 0.0, g), expanded_shape))
    r = sums(r, (len(s) - (2 if second else 1),))
    return o.neg(r) if second else r
