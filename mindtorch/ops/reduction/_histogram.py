"""Counting: bincount and histograms (no gradients)."""
import math

import numpy as np

from mindtorch.backend.cpu.host import quiet
from mindtorch.core.dtypes import F32, F64
from mindtorch.core.return_types import struct
from mindtorch.core.table import fresh, op
from mindtorch.core.tensor import Tensor
from mindtorch.ops._checks import need_tensor, unsupported



@op
def bincount(input, weights=None, minlength=0):
    """How often each non-negative integer occurs in a 1-d tensor, or the sum of its weights."""
    need_tensor("bincount", input)
    a = input._a
    if a.dtype.kind not in "iu":
        raise unsupported("bincount", a.dtype)
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if a.ndim != 1 or (a.size and a.min() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        return fresh(np.bincount(a, minlength=minlength).astype(np.int64))
    need_tensor("bincount", weights, "weights", 2)
    w = weights._a
    if w.shape != a.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    if not a.size:
        return fresh(np.zeros(minlength, np.int64))
    d = F32 if w.dtype == F32 else F64
    return fresh(np.bincount(a, w.astype(F64), minlength=minlength).astype(d))


def _limits(name, a, low, high):
    if low > high:
        raise RuntimeError(f"torch.{name}: max must be larger than min")
    if low == high and a.size:
        low, high = a.min(), a.max()
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.{name}: range of [{low}, {high}] is not finite")
    return (low - 1, high + 1) if low == high else (low, high)


@op(out=True)
def histc(input, bins=100, min=0, max=0):
    """Histogram with equal bins between min and max (both 0: between the extremes of the data)."""
    need_tensor("histc", input)
    a = input._a
    if a.dtype.kind not in "fV":
        raise unsupported("histc", a.dtype)
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    x = a.astype(F32 if a.itemsize < 8 else F64).reshape(-1)
    low, high = _limits("histc", x, min, max)
    low, high = x.dtype.type(low), x.dtype.type(high)
    at = ((x[(x >= low) & (x <= high)] - low) / (high - low) * bins).astype(np.int64)
    return fresh(np.bincount(np.minimum(at, bins - 1), minlength=bins).astype(a.dtype))


def _real_float(name, input):
    need_tensor(name, input)
    a = input._a
    if a.dtype.kind != "f" or a.itemsize < 4:
        raise unsupported(name, a.dtype)
    return a


def _edges(name, a, bins, low_high, d):
    """Bin edges along one axis: given ones, or `bins` equal ones over the range (default: of the data)."""
    if isinstance(bins, Tensor):
        if bins.ndim != 1:
            raise RuntimeError(f"{name}(): bins tensor should have one dimension, but got {bins.ndim} dimensions")
        if bins._stype != a.dtype:
            raise RuntimeError(f"{name}(): input tensor and bins tensors should have the same dtype")
        return bins._a
    if bins <= 0:
        raise RuntimeError(f"{name}(): bins must be > 0, but got {bins} for dimension {d}")
    if low_high is None:
        low, high = (a.min(), a.max()) if a.size else (0.0, 0.0)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RuntimeError(f"{name}(): dimension {d}'s range [{low}, {high}] is not finite")
        if not a.size:
            high = 1.0
    else:
        low, high = low_high
        if low > high:
            raise RuntimeError(f"{name}(): min should not exceed max, but got min {low} max {high} for dimension {d}")
    # In the tensor's own precision and from both ends, as torch's linspace.
    half = a.dtype.type(0.5)
    low, high = a.dtype.type(low), a.dtype.type(high)
    if low == high:
        low, high = low - half, high + half
    step = (high - low) / a.dtype.type(bins)
    at = np.arange(bins + 1)
    return np.where(at < (bins + 1) // 2, low + step * at.astype(a.dtype), high - step * (bins - at).astype(a.dtype))


@quiet
def _histogram(name, points, edges, weight, density):
    """points (n, d), one array of edges per column -> counts, or sums of weights, over the grid."""
    n, dims = points.shape
    inside = np.ones(n, bool)
    flat = np.zeros(n, np.int64)
    for x, e in zip(points.T, edges):
        at = np.searchsorted(e, x, side="right") - 1
        at = np.where(x == e[-1], len(e) - 2, at)
        inside &= (x >= e[0]) & (x <= e[-1])
        flat = flat * (len(e) - 1) + at
    shape = [len(e) - 1 for e in edges]
    size = math.prod(shape)
    w = None if weight is None else weight.reshape(-1).astype(F64)[inside]
    r = np.bincount(flat[inside], w, minlength=size).astype(F64).reshape(shape)
    if density:
        r = r / r.sum()
        for d, e in enumerate(edges):
            r = r / np.diff(e.astype(F64)).reshape([-1 if i == d else 1 for i in range(dims)])
    return r.astype(points.dtype)


def _weight(name, weight, a, shape):
    if weight is None:
        return None
    need_tensor(name, weight, "weight", 4)
    if weight._stype != a.dtype:
        raise RuntimeError(f"{name}(): if weight tensor is provided, input tensor and weight tensor should have the "
                           f"same dtype")
    if weight._sizes != shape:
        raise RuntimeError(f"{name}(): if weight tensor is provided it should have the same shape as the input tensor "
                           f"excluding "
                           "its innermost dimension")
    return weight._a


_Histogram, _Histogramdd = struct("histogram", "hist bin_edges"), struct("histogramdd", "hist bin_edges")


@op(out=True)
def histogram(input, bins=100, *, range=None, weight=None, density=False):
    """(hist, bin_edges) with `bins` equal bins over the range, or with the given increasing edges."""
    a = _real_float("histogram", input)
    w = _weight("histogram", weight, a, a.shape)
    e = _edges("histogram", a, bins, range, 0)
    return _Histogram(fresh(_histogram("histogram", a.reshape(-1, 1), [e], w, density)), fresh(e.copy()))


@op(method=True)
def histogramdd(input, bins, range=None, weight=None, density=False):
    """(hist, bin_edges) of points, the last dimension of `input` being their coordinates."""
    a = _real_float("histogramdd", input)
    if a.ndim < 2:
        raise RuntimeError(f"histogramdd(): input tensor should have at least 2 dimensions, but got {a.ndim}")
    d = a.shape[-1]
    bins = [bins] * d if isinstance(bins, int) else list(bins)
    if len(bins) != d:
        raise RuntimeError(f"histogramdd(): expected {d} bin counts or edges for input with {d} columns, but got "
                           f"{len(bins)}")
    w = _weight("histogramdd", weight, a, a.shape[:-1])
    p = a.reshape(-1, d)
    pairs = [None] * d if range is None else list(zip(range[::2], range[1::2]))
    if len(pairs) != d:
        raise RuntimeError(f"histogramdd(): for a {d}-dimensional histogram range should have {2 * d} elements")
    edges = [_edges("histogramdd", x, b, r, i) for i, (x, b, r) in enumerate(zip(p.T, bins, pairs))]
    return _Histogramdd(fresh(_histogram("histogramdd", p, edges, w, density)), tuple(fresh(e.copy()) for e in edges))
