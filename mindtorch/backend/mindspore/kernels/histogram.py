"""Kernels of bincount and histc. The shape of bincount depends on the values, so it synchronizes.
"""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels._call import P, cast, dtype_of, from_contiguous, host_span, ms, number, op, reshape, shape_of, stype_of
from mindtorch.backend.mindspore.kernels._index_utils import cpu_kernel as kernel, dense, expanded, fresh, size_of, zeros
from mindtorch.backend.mindspore.kernels.shapes import narrowed


def _counted(indices, weights, n):
    """Returns the number of occurrences of each of n indices, or the sum of their weights."""
    return op(P.TensorScatterAdd)(zeros((n,), dtype_of(weights)), reshape(indices, (-1, 1)), weights)


@kernel("bincount", dynamic_shape=True)
def _bincount(a, weights, *, minlength):
    x = host_span(a)
    if x.min() < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and shape_of(weights) != shape_of(a):
        raise RuntimeError("weights should be 1-d and have the same length as input")
    n, at = max(minlength, int(x.max()) + 1), cast(dense(a), ms.int64)
    if weights is None:
        return _counted(at, from_contiguous(np.ones(x.shape, np.int64)), n)
    r = _counted(at, cast(dense(weights), ms.float64), n)
    return cast(r, ms.float32) if dtype_of(weights) is ms.float32 else r


@kernel("histc", only="float32 float64")
def _histc(a, *, bins, low, high):
    if low > high:
        raise RuntimeError("torch.histc: max must be larger than min")
    if low == high:
        x = host_span(a)
        low, high = x.min(), x.max()
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low}, {high}] is not finite")
    if low == high:
        low, high = low - 1, high + 1
    d, n = dtype_of(a), size_of(a)
    low, high = stype_of(a).type(low), stype_of(a).type(high)
    a = reshape(dense(a), (n,))
    lo, hi = number(float(low), d), number(float(high), d)
    inside = op(P.LogicalAnd)(op(P.GreaterEqual)(a, lo), op(P.LessEqual)(a, hi))
    a = op(P.Select)(inside, a, expanded(lo, (n,)))
    at = op(P.Mul)(op(P.RealDiv)(op(P.Sub)(a, lo), number(float(high - low), d)), number(float(bins), d))
    at = op(P.Minimum)(cast(at, ms.int64), number(bins - 1, ms.int64))
    # Values outside the range are counted in an extra bin after the last one.
    at = op(P.Select)(inside, at, expanded(number(bins, ms.int64), (n,)))
    r = _counted(at, from_contiguous(np.ones(n, np.int64)), bins + 1)
    return cast(fresh(narrowed(r, 0, 0, bins)), d)
