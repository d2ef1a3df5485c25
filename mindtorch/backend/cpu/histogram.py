"""Kernels of bincount and histograms."""
import math

import numpy as np

from mindtorch.backend.cpu import kernel, large
from mindtorch.backend.cpu.host import quiet

_F32, _F64, _I64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)


def _numbered(a, least):
    """Counts each integer from 0 to the maximum. Returns at least `least` counts; values must not
    be negative.

    NumPy converts the values to 64-bit integers. In pieces, eight million uint8 take 10 ms and no
    extra memory; at once they take 28 ms (PyTorch 11 to 16 ms).
    """
    n = max(least, int(a.max()) + 1 if a.size else 0)
    if a.size <= large.PIECE or n > large.PIECE:
        return np.bincount(a, minlength=least).astype(_I64)
    counts = np.zeros(n, _I64)
    for i in range(0, a.size, large.PIECE):
        counts += np.bincount(a[i:i + large.PIECE], minlength=n)
    return counts


@kernel("bincount")
def _bincount(a, weights, *, minlength):
    if weights is None and (r := large.scan_gather().counted(a, minlength)) is not None:
        return r
    if a.size and a.min() < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        return _numbered(a, minlength)
    if weights.shape != a.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    if not a.size:
        return np.zeros(minlength, _I64)
    return np.bincount(a, weights.astype(_F64), minlength=minlength).astype(_F32 if weights.dtype == _F32 else _F64)


def _limits(name, a, low, high):
    if low > high:
        raise RuntimeError(f"torch.{name}: max must be larger than min")
    if low == high and a.size:
        low, high = a.min(), a.max()
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.{name}: range of [{low}, {high}] is not finite")
    return (low - 1, high + 1) if low == high else (low, high)


@kernel("histc")
def _histc(a, *, bins, low, high):
    """Computes histc in pieces that threads share.

    Two million float32 take 6.7 ms, at once 9.3 ms (PyTorch 20 ms).
    """
    x = a.astype(_F32 if a.itemsize < 8 else _F64, copy=False).reshape(-1)
    low, high = _limits("histc", x, low, high)
    low, high = x.dtype.type(low), x.dtype.type(high)
    step = large.PIECE if bins <= large.PIECE else max(x.size, 1)
    found = [None] * -(-x.size // step)

    def part(k):
        y = x[k * step:(k + 1) * step]
        at = ((y[(y >= low) & (y <= high)] - low) / (high - low) * bins).astype(_I64)
        found[k] = np.bincount(np.minimum(at, bins - 1, out=at), minlength=bins)
    large.each(len(found), part, x.size)
    return sum(found, np.zeros(bins, _I64)).astype(a.dtype)


@kernel("histogram_edges")
def _edges(x, *, bins, low, high, op, dim):
    """Returns the edges of `bins` equal bins over the range (None: the range of the data)."""
    if low is None:
        low, high = (x.min(), x.max()) if x.size else (0.0, 0.0)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RuntimeError(f"{op}(): dimension {dim}'s range [{low}, {high}] is not finite")
        if not x.size:
            high = 1.0
    # Compute in the tensor's own precision and from both ends, like torch.linspace.
    half = x.dtype.type(0.5)
    low, high = x.dtype.type(low), x.dtype.type(high)
    if low == high:
        low, high = low - half, high + half
    step = (high - low) / x.dtype.type(bins)
    at = np.arange(bins + 1)
    return np.where(at < (bins + 1) // 2, low + step * at.astype(x.dtype), high - step * (bins - at).astype(x.dtype))


@kernel("histogram_bins")
@quiet
def _bins(x, e, before):
    """Returns the bin of each point after the grid gets one more dimension (edges `e`); -1 if
    outside.

    `before` has the bins in the grid so far (None: there is no dimension yet).
    """
    at = np.searchsorted(e, x, side="right") - 1
    at = np.where(x == e[-1], len(e) - 2, at)
    inside = (x >= e[0]) & (x <= e[-1])
    if before is not None:
        inside &= before >= 0
        at = before * (len(e) - 1) + at
    return np.where(inside, at, -1)


@kernel("histogram_counts")
def _counts(at, weight, *, shape):
    """Counts the points, or sums their weights, per bin of the grid, in double precision."""
    inside = at >= 0
    w = None if weight is None else weight.reshape(-1).astype(_F64)[inside]
    return np.bincount(at[inside], w, minlength=math.prod(shape)).astype(_F64).reshape(shape)


@kernel("histogram_density")
@quiet
def _density(r, e, *, dim):
    """Divides a histogram by the bin widths along one dimension."""
    return r / np.diff(e.astype(_F64)).reshape([-1 if i == dim else 1 for i in range(r.ndim)])


@kernel("histogram_share")
@quiet
def _share(r):
    return r / r.sum()


@kernel("histogram_result")
def _result(r, x, weight):
    """Returns the counts `r` as a result of the points and weights."""
    return r.copy()
