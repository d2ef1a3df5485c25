"""Resampling kernels on CPU: padding by index, interpolation along axes, sampling at arbitrary places."""
import math

import numpy as np

from mindtorch.backend.cpu import threads
from mindtorch.backend.cpu.host import quiet


# ------------------------------------------------------------------ padding
def pad_constant(x, *, pads, value):
    """x with `value` before and after each axis; a negative count cuts off.  `pads` holds a pair per axis."""
    size = [n + lo + hi for n, (lo, hi) in zip(x.shape, pads)]
    r = np.zeros(size, x.dtype) if value == 0 else np.full(size, value, np.float32 if x.dtype.kind == "V" else x.dtype)
    if x.dtype.kind == "V" and r.dtype != x.dtype:
        r = r.astype(x.dtype)
    into = tuple(slice(max(lo, 0), m - max(hi, 0)) for m, (lo, hi) in zip(size, pads))
    part = x[tuple(slice(max(-lo, 0), n - max(-hi, 0)) for n, (lo, hi) in zip(x.shape, pads))]
    if part.size:        # NumPy crashes on copying an empty piece of a bfloat16 array
        r[into] = part
    return r


def pad_index(mode, n, lo, hi):
    """Which element of n each element of the padded axis repeats."""
    i = np.arange(-lo, n + hi)
    if mode == "replicate":
        return np.clip(i, 0, n - 1)
    if mode == "circular":
        # What negative counts cut off is cut off first, and the rest goes round.
        first, last = max(-lo, 0), n - max(-hi, 0)
        m = last - first
        return first + np.arange(-max(lo, 0), m + max(hi, 0)) % max(m, 1)
    i = np.abs(i)
    return np.where(i >= n, 2 * (n - 1) - i, i)


def take_axes(x, *, plan):
    """x with the elements `index` along each axis of `plan`, a tuple of (axis, index, size, before)."""
    for axis, index, _, _ in plan:
        x = x.take(index, axis=axis)
    return x


@quiet
def take_axes_grad(g, *, plan):
    """Adjoint of take_axes for indices that run on by one but at the ends."""
    low = None
    if g.dtype.kind == "V" or g.dtype == np.float16:
        low, g = g.dtype, g.astype(np.float32)
    for axis, index, n, before in reversed(plan):
        m = index.size
        shape = list(g.shape)
        shape[axis] = n
        r = np.zeros(shape, g.dtype)
        a, b = np.moveaxis(r, axis, 0), np.moveaxis(g, axis, 0)
        start, stop = max(before, 0), min(before + n, m)
        if stop > start:
            a[start - before:stop - before] = b[start:stop]
        for j in [*range(0, min(start, m)), *range(max(stop, start), m)]:
            a[index[j]] += b[j]
        g = r
    return g if low is None else g.astype(low)


# ------------------------------------------------------------------ interpolation along axes
def _per_axis(w, axis, ndim):
    shape = [1] * ndim
    shape[axis] = -1
    return w.reshape(shape)


@quiet
def resize(x, *, plan):
    """Weighted sums of elements along axes: `plan` holds (axis, index (taps, out), weight (taps, out) or None, size)."""
    for axis, index, weight, _ in plan:
        if weight is None:
            x = x.take(index[0], axis=axis)
            continue
        if len(index) > 4:
            # Antialiasing takes many taps: a matrix product.
            m = _matrix(index, weight, x.shape[axis], x.dtype)
            x = np.moveaxis(threads.matmul(np.moveaxis(x, axis, -1), m), -1, axis)
            continue
        r = None
        for i, w in zip(index, weight):
            t = x.take(i, axis=axis)
            t *= _per_axis(w.astype(x.dtype), axis, x.ndim)
            r = t if r is None else np.add(r, t, out=r)
        x = r
    return np.ascontiguousarray(x)


def resize_bytes(x, *, plan):
    """resize of uint8 as torch does it: weights of 16 bits, the last axis first, rounded to bytes after each axis."""
    for axis, index, weight, _ in reversed(plan):
        bits = 0
        while bits < 22 and int(0.5 + weight.max() * (1 << (bits + 1))) < 1 << 15:
            bits += 1
        w = np.trunc(np.where(weight < 0, -0.5, 0.5) + weight * (1 << bits)).astype(np.int64)
        total = np.int64(1 << (bits - 1))
        for i, v in zip(index, w):
            total = total + x.take(i, axis=axis).astype(np.int64) * _per_axis(v, axis, x.ndim)
        x = np.clip(total >> bits, 0, 255).astype(np.uint8)
    return x


def _matrix(index, weight, n, dtype):
    """The axis map as a matrix (n, out)."""
    m = np.zeros((n, index.shape[1]), dtype)
    cols = np.arange(index.shape[1])
    for i, w in zip(index, np.ones_like(index, dtype) if weight is None else weight):
        np.add.at(m, (i, cols), w.astype(dtype))
    return m


@quiet
def resize_grad(g, *, plan):
    """Adjoint of resize: along each axis a product with the (small) matrix of the map."""
    for axis, index, weight, n in reversed(plan):
        out = index.shape[1]
        if weight is None and out == n * (out // n) and np.array_equal(index[0], np.arange(out) // (out // n)):
            # Whole multiples (nearest): sums of neighbours, as strided slices (`sum` over a short dim takes 4 times longer).
            k = out // n
            head = (slice(None),) * axis
            r = g[head + (slice(0, None, k),)]
            r = r + g[head + (slice(1, None, k),)] if k > 1 else r.copy()
            for j in range(2, k):
                r += g[head + (slice(j, None, k),)]
            g = r
            continue
        m = _matrix(index, weight, n, g.dtype)
        if axis == g.ndim - 1:
            g = threads.matmul(g, m.T)
        else:
            lead, tail = g.shape[:axis], g.shape[axis + 1:]
            g = threads.matmul(m, np.ascontiguousarray(g).reshape((math.prod(lead), out, math.prod(tail)))).reshape(
                lead + (n,) + tail)
    return np.ascontiguousarray(g)


# ------------------------------------------------------------------ grid_sample
def unnormalize(c, n, align):
    """Grid coordinate in [-1, 1] -> position in n pixels, and the slope of that map."""
    t = c.dtype.type
    if align:
        return (c + t(1)) * t((n - 1) / 2), t((n - 1) / 2)
    return ((c + t(1)) * t(n) - t(1)) * t(0.5), t(n / 2)


def _clip(c, n):
    t = c.dtype.type
    inside = (c > 0) & (c < n - 1)
    return np.minimum(np.maximum(c, t(0)), t(n - 1)), inside.astype(c.dtype)


def _reflect(c, low2, high2):
    """Reflects positions into [low2 / 2, high2 / 2]; slope +1 or -1."""
    t = c.dtype.type
    if low2 == high2:
        return np.zeros_like(c), np.zeros_like(c)
    low, span = t(low2 / 2), t((high2 - low2) / 2)
    d = c - low
    sign = np.where(d < 0, t(-1), t(1))
    d = np.abs(d)
    extra = np.fmod(d, span)
    odd = np.floor(d / span).astype(np.int64) % 2 == 1
    return np.where(odd, span - extra + low, extra + low), np.where(odd, -sign, sign)


def position(c, n, padding, align):
    """Grid coordinate -> (position in pixels, slope)."""
    p, slope = unnormalize(c, n, align)
    slope = np.full_like(p, slope)
    if padding == "border":
        p, s = _clip(p, n)
        slope *= s
    elif padding == "reflection":
        p, s = _reflect(p, 0, 2 * (n - 1)) if align else _reflect(p, -1, 2 * n - 1)
        slope *= s
        p, s = _clip(p, n)
        slope *= s
    # Positions that no integer holds are outside; torch takes the same way out.
    return np.where(np.isfinite(p) & (np.abs(p) < 2 ** 31 - 2), p, p.dtype.type(-100)), slope


def cubic(t, order):
    """Weights of the four neighbours at distance 1 + t, t, 1 - t, 2 - t (order 1: their derivatives)."""
    a = t.dtype.type(-0.75)
    if order == 0:
        def near(x):
            return ((a + 2) * x - (a + 3)) * x * x + 1

        def far(x):
            return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return [far(t + 1), near(t), near(1 - t), far(2 - t)]

    def near(x):
        return (3 * (a + 2) * x - 2 * (a + 3)) * x

    def far(x):
        return (3 * a * x - 10 * a) * x + 8 * a
    return [far(t + 1), near(t), -near(1 - t), -far(2 - t)]


def taps(c, n, mode, padding, align):
    """[(index, weight, slope of the weight)] of one axis for grid coordinates c; weight 0 and index 0 outside."""
    t = c.dtype.type
    if mode == "bicubic":
        p, slope = unnormalize(c, n, align)
        p = np.where(np.isfinite(p) & (np.abs(p) < 2 ** 31 - 2), p, t(-100))
        base = np.floor(p)
        f = p - base
        items = []
        for k, (w, d) in enumerate(zip(cubic(f, 0), cubic(f, 1))):
            q = base + t(k - 1)
            if padding == "border":
                q = _clip(q, n)[0]
            elif padding == "reflection":
                q = _clip((_reflect(q, 0, 2 * (n - 1)) if align else _reflect(q, -1, 2 * n - 1))[0], n)[0]
            items.append((q.astype(np.int64), w, d * slope))
    else:
        p, slope = position(c, n, padding, align)
        if mode == "nearest":
            items = [(np.rint(p).astype(np.int64), np.ones_like(p), np.zeros_like(p))]
        else:
            base = np.floor(p)
            f = p - base
            i = base.astype(np.int64)
            items = [(i, t(1) - f, -slope), (i + 1, f, slope)]
    r = []
    for i, w, d in items:
        ok = (i >= 0) & (i < n)
        r.append((np.where(ok, i, 0), np.where(ok, w, t(0)), np.where(ok, d, t(0))))
    return r


def _combinations(grid, size, mode, padding, align):
    """All taps of all axes: (flat index (N, P), [per-axis weights], [per-axis slopes])."""
    dims = len(size)
    n = grid.shape[0]
    flat = grid.reshape(n, -1, dims)
    # The last coordinate of a place is the first dim.
    axes = [taps(flat[..., dims - 1 - i], size[i], mode, padding, align) for i in range(dims)]
    for choice in np.ndindex(*[len(a) for a in axes]):
        index = 0
        for i, k in enumerate(choice):
            index = index * size[i] + axes[i][k][0]
        yield index, [axes[i][k][1] for i, k in enumerate(choice)], [axes[i][k][2] for i, k in enumerate(choice)]


@quiet
def grid_sample(x, grid, *, kind, padding, align):
    """x (N, C, *size) at grid (N, *out, dims) -> (N, C, *out)."""
    n, c = x.shape[:2]
    size, out = x.shape[2:], grid.shape[1:-1]
    flat = np.ascontiguousarray(x).reshape(n, c, -1)
    r = np.zeros((n, c, math.prod(out)), x.dtype)
    if not r.size:
        return r.reshape((n, c) + out)
    start = (np.arange(n * c) * flat.shape[2]).reshape(n, c, 1)
    finite = np.isfinite(flat).all()
    for index, weights, _ in _combinations(grid, size, kind, padding, align):
        w = weights[0]
        for v in weights[1:]:
            w = w * v
        t = flat.reshape(-1).take(start + index[:, None, :])
        t *= w[:, None, :]
        # Nothing outside is read, not even a nan.
        r += t if finite else np.where(w[:, None, :] == 0, x.dtype.type(0), t)
    return r.reshape((n, c) + out)


@quiet
def grid_sample_grad(g, x, grid, *, kind, padding, align, needs):
    """(gradient of x, of grid)."""
    n, c = x.shape[:2]
    size, dims = x.shape[2:], grid.shape[-1]
    plane = math.prod(size)
    g3 = np.ascontiguousarray(g).reshape(n, c, -1)
    points = g3.shape[2]
    gx = np.zeros(n * c * plane, x.dtype) if needs[0] else None
    gg = np.zeros((n, points, dims), grid.dtype) if needs[1] else None
    flat = np.ascontiguousarray(x).reshape(n, c, -1)
    start = (np.arange(n * c) * plane).reshape(n, c, 1)
    if g.size:
        for index, weights, slopes in _combinations(grid, size, kind, padding, align):
            if needs[0]:
                w = weights[0]
                for v in weights[1:]:
                    w = w * v
                np.add.at(gx, (start + index[:, None, :]).reshape(-1), (g3 * w[:, None, :]).reshape(-1))
            if needs[1] and kind != "nearest":
                s = np.einsum("ncp,ncp->np", g3, flat.reshape(-1).take(start + index[:, None, :]))
                for i in range(dims):
                    d = slopes[i]
                    for j in range(dims):
                        if j != i:
                            d = d * weights[j]
                    gg[..., dims - 1 - i] += d * s
    return (None if gx is None else gx.reshape(x.shape),
            None if gg is None else gg.reshape(grid.shape))
