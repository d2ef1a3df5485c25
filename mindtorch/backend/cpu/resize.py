"""CPU resampling kernels: interpolation along axes, sampling at arbitrary positions."""
import functools
import math

import numpy as np

from mindtorch.backend.cpu import kernel, large, threads
from mindtorch.backend.cpu.copies import copy_c
from mindtorch.backend.cpu.host import quiet


# ------------------------------------------------------------------ interpolation along axes: plans
def _source_scale(n, out, scale, real):
    """Returns the input elements per output element, in the precision that PyTorch uses."""
    return real(1.0 / scale) if scale is not None and scale > 0 else real(n) / real(out)


def _nearest_plan(axis, n, out, scale, exact, real):
    s = _source_scale(n, out, scale, real)
    i = np.arange(out).astype(real)
    i = np.floor((i + real(0.5)) * s if exact else i * s).astype(np.int64)
    return axis, np.minimum(i, n - 1)[None], None, n


def _positions(n, out, scale, align, real):
    i = np.arange(out).astype(real)
    if align:
        return i * (real(n - 1) / real(out - 1) if out > 1 else real(0))
    return _source_scale(n, out, scale, real) * (i + real(0.5)) - real(0.5)


def _linear_plan(axis, n, out, scale, align, real):
    if n == out:
        return None
    p = np.maximum(_positions(n, out, scale, align, real), real(0))
    i = np.minimum(p.astype(np.int64), n - 1)
    f = np.clip(p - i.astype(real), real(0), real(1))
    return axis, np.stack([i, np.minimum(i + 1, n - 1)]), np.stack([real(1) - f, f]), n


def _cubic_plan(axis, n, out, scale, align, real):
    p = _positions(n, out, scale, align, real)
    base = np.floor(p)
    weights = _cubic(p - base, 0)
    i = base.astype(np.int64) + np.arange(-1, 3)[:, None]
    return axis, np.clip(i, 0, n - 1), np.stack(weights).astype(real), n


def _filter_linear(x):
    return np.maximum(0, 1 - np.abs(x))


def _filter_cubic(x):
    a, x = -0.5, np.abs(x)
    return np.where(x < 1, ((a + 2) * x - (a + 3)) * x * x + 1, np.where(x < 2, (((x - 5) * x + 8) * x - 4) * a, 0))


def _filter_lanczos(x):
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


_FILTERS = {"bilinear": (_filter_linear, 2), "bicubic": (_filter_cubic, 4), "lanczos": (_filter_lanczos, 6)}


def _antialias_plan(axis, n, out, scale, align, real, mode):
    """Returns the plan of a filter whose support grows with the reduction, as in Pillow."""
    fn, width = _FILTERS[mode]
    if align:
        s = (n - 1) / (out - 1) if out > 1 else 0.0
    else:
        s = 1.0 / scale if scale is not None and scale > 0 else n / out
    support = width * 0.5 * s if s >= 1 else width * 0.5
    inverse = 1.0 / s if s >= 1 else 1.0
    taps = int(math.ceil(support)) * 2 + 1
    index, weight = np.zeros((taps, out), np.int64), np.zeros((taps, out))
    for o in range(out):
        center = s * (o + 0.5)
        lo = max(int(center - support + 0.5), 0)
        count = min(min(int(center + support + 0.5), n) - lo, taps)
        w = fn((np.arange(count) + lo - center + 0.5) * inverse)
        total = w.sum()
        index[:count, o] = np.arange(lo, lo + count)
        weight[:count, o] = w / total if total else w
    return axis, index, weight.astype(real), n


@functools.lru_cache(256)
def _plan(kind, size, out, scales, align, real):
    """Returns (axis, index (taps, out), weight (taps, out) or None, size) of each axis that
    changes.

    kind: the primitive's name. real: dtype in which the weights are computed.
    """
    mode = kind[len("upsample_"):]
    plan = []
    for args in zip(range(2, 2 + len(size)), size, out, scales):
        if mode.startswith("nearest"):
            plan.append(_nearest_plan(*args, mode.startswith("nearest_exact"), real))
        elif mode.endswith("_aa"):
            plan.append(_antialias_plan(*args, align, real, mode.removesuffix("2d_aa")))
        elif mode == "bicubic2d":
            plan.append(_cubic_plan(*args, align, real))
        else:
            plan.append(_linear_plan(*args, align, real))
    return tuple(p for p in plan if p is not None)


_KINDS = """upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_nearest_exact1d upsample_nearest_exact2d upsample_nearest_exact3d
 upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d upsample_lanczos2d
 upsample_bilinear2d_aa upsample_bicubic2d_aa upsample_lanczos2d_aa""".split()


def _upsample(kind):
    @quiet
    def run(x, *, size, scales, align):
        # Weights for bytes are computed in float64 before they are rounded to 16 bits.
        double = x.dtype == np.float64 or x.dtype == np.uint8 and "nearest" not in kind
        plan = _plan(kind, x.shape[2:], size, scales, align, np.float64 if double else np.float32)
        if x.dtype == np.uint8 and any(w is not None for _, _, w, _ in plan):
            return _resize_bytes(x, plan)
        return _resize(x, plan)
    return run


for _kind in _KINDS:
    kernel(_kind, _upsample(_kind))


@kernel("upsample_backward")
@quiet
def _upsample_backward(g, *, size, kind, scales, align):
    return _resize_grad(g, _plan(kind, size, g.shape[2:], scales, align, np.float64 if g.dtype == np.float64 else np.float32))


def _per_axis(w, axis, ndim):
    shape = [1] * ndim
    shape[axis] = -1
    return w.reshape(shape)


def _resize(x, plan):
    """Computes weighted sums of elements along axes."""
    for axis, index, weight, _ in plan:
        # 1x3x8x8 to 16x16, us of C vs NumPy: bilinear 15 vs 27, its gradient 16 vs 30, bicubic 17
        # vs 48; nearest 10 vs 7.
        c = large.scan_gather() if x.size and (x.size >= large.FEW or weight is not None) else None
        if weight is None:
            r = np.empty((*x.shape[:axis], index.shape[1], *x.shape[axis + 1:]), x.dtype) if c is not None else None
            x = r if c is not None and x.flags.c_contiguous and c.rows(c.GATHER, x, index[0], axis, r) else x.take(index[0], axis=axis)
            continue
        if c is not None and (r := c.taps(x, index, weight, axis)) is not None:
            x = r
            continue
        if len(index) > 4:
            # Antialiasing has many taps: use a matrix product.
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


def _resize_bytes(x, plan):
    """Like `_resize`, for uint8 as in PyTorch: 16-bit weights, the last axis first, rounding to
    bytes after each axis."""
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
    """Returns the map of an axis as a matrix (n, out)."""
    m = np.zeros((n, index.shape[1]), dtype)
    cols = np.arange(index.shape[1])
    for i, w in zip(index, np.ones_like(index, dtype) if weight is None else weight):
        np.add.at(m, (i, cols), w.astype(dtype))
    return m


def _resize_grad(g, plan):
    """Adjoint of `_resize`: along each axis a product with the (small) matrix of the map."""
    for axis, index, weight, n in reversed(plan):
        out = index.shape[1]
        if g.size and (g.size >= large.FEW or weight is not None):
            ones = np.ones(index.shape, g.dtype) if weight is None else weight
            if (r := large.scan_gather().taps(g, index, ones, axis, n)) is not None:
                g = r
                continue
        if weight is None and out == n * (out // n) and np.array_equal(index[0], np.arange(out) // (out // n)):
            # Integer multiples (nearest): sums of neighbors, as strided slices (`sum` over a short
            # dim takes 4 times longer).
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
def _unnormalize(c, n, align):
    """Converts a grid coordinate in [-1, 1] to (position in n pixels, derivative of that map)."""
    t = c.dtype.type
    if align:
        return (c + t(1)) * t((n - 1) / 2), t((n - 1) / 2)
    return ((c + t(1)) * t(n) - t(1)) * t(0.5), t(n / 2)


def _clip(c, n):
    t = c.dtype.type
    inside = (c > 0) & (c < n - 1)
    return np.minimum(np.maximum(c, t(0)), t(n - 1)), inside.astype(c.dtype)


def _reflect(c, low2, high2):
    """Reflects positions into [low2 / 2, high2 / 2]. Returns (positions, derivatives +1 or -1)."""
    t = c.dtype.type
    if low2 == high2:
        return np.zeros_like(c), np.zeros_like(c)
    low, span = t(low2 / 2), t((high2 - low2) / 2)
    d = c - low
    sign = np.where(d < 0, t(-1), t(1))
    d = np.abs(d)
    extra = np.fmod(d, span)
    is_odd = np.floor(d / span).astype(np.int64) % 2 == 1
    return np.where(is_odd, span - extra + low, extra + low), np.where(is_odd, -sign, sign)


def _position(c, n, padding, align):
    """Converts a grid coordinate to (position in pixels, derivative)."""
    p, derivative = _unnormalize(c, n, align)
    derivative = np.full_like(p, derivative)
    if padding == "border":
        p, s = _clip(p, n)
        derivative *= s
    elif padding == "reflection":
        p, s = _reflect(p, 0, 2 * (n - 1)) if align else _reflect(p, -1, 2 * n - 1)
        derivative *= s
        p, s = _clip(p, n)
        derivative *= s
    # Positions that do not fit in an int32 count as outside, as in PyTorch.
    return np.where(np.isfinite(p) & (np.abs(p) < 2 ** 31 - 2), p, p.dtype.type(-100)), derivative


def _cubic(t, order):
    """Returns the weights of the four neighbors at distance 1 + t, t, 1 - t, 2 - t (order 1: their
    derivatives)."""
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


def _taps(c, n, mode, padding, align):
    """Returns [(index, weight, derivative of the weight, inside mask)] of one axis for grid
    coordinates c.

    Weight and index are 0 outside.
    """
    t = c.dtype.type
    if mode == "bicubic":
        p, derivative = _unnormalize(c, n, align)
        p = np.where(np.isfinite(p) & (np.abs(p) < 2 ** 31 - 2), p, t(-100))
        base = np.floor(p)
        f = p - base
        items = []
        for k, (w, d) in enumerate(zip(_cubic(f, 0), _cubic(f, 1))):
            q = base + t(k - 1)
            if padding == "border":
                q = _clip(q, n)[0]
            elif padding == "reflection":
                q = _clip((_reflect(q, 0, 2 * (n - 1)) if align else _reflect(q, -1, 2 * n - 1))[0], n)[0]
            items.append((q.astype(np.int64), w, d * derivative))
    else:
        p, derivative = _position(c, n, padding, align)
        if mode == "nearest":
            items = [(np.rint(p).astype(np.int64), np.ones_like(p), np.zeros_like(p))]
        else:
            base = np.floor(p)
            f = p - base
            i = base.astype(np.int64)
            items = [(i, t(1) - f, -derivative), (i + 1, f, derivative)]
    r = []
    for i, w, d in items:
        ok = (i >= 0) & (i < n)
        r.append((np.where(ok, i, 0), np.where(ok, w, t(0)), np.where(ok, d, t(0)), ok))
    return r


def _combinations(grid, size, mode, padding, align):
    """Yields the combinations of the taps of all axes.

    Each is (flat index (N, P), [weights per axis], [derivatives per axis], inside mask).
    """
    dims = len(size)
    n = grid.shape[0]
    flat = grid.reshape(n, -1, dims)
    # The last coordinate of a position belongs to the first dim.
    axes = [_taps(flat[..., dims - 1 - i], size[i], mode, padding, align) for i in range(dims)]
    for choice in np.ndindex(*[len(a) for a in axes]):
        index, inside = 0, True
        for i, k in enumerate(choice):
            index = index * size[i] + axes[i][k][0]
            inside = inside & axes[i][k][3]
        yield index, [axes[i][k][1] for i, k in enumerate(choice)], [axes[i][k][2] for i, k in enumerate(choice)], inside


@kernel("grid_sampler_2d grid_sampler_3d")
def _grid_sample(x, grid, *, kind, padding, align):
    """Samples x (N, C, *size) at grid (N, *out, dims) -> (N, C, *out)."""
    r = large.copy_pad_grid().grid(x, grid, kind, padding, align)
    return _by_taps(x, grid, kind, padding, align) if r is None else r


@quiet
def _by_taps(x, grid, kind, padding, align):
    n, c = x.shape[:2]
    size, out = x.shape[2:], grid.shape[1:-1]
    flat = np.ascontiguousarray(x).reshape(n, c, math.prod(size))
    r = np.zeros((n, c, math.prod(out)), x.dtype)
    if not r.size:
        return r.reshape((n, c) + out)
    start = (np.arange(n * c) * flat.shape[2]).reshape(n, c, 1)
    finite = np.isfinite(flat).all()
    for index, weights, _, inside in _combinations(grid, size, kind, padding, align):
        w = weights[0]
        for v in weights[1:]:
            w = w * v
        t = flat.reshape(-1).take(start + index[:, None, :])
        t *= w[:, None, :]
        # Nothing outside contributes, not even a NaN times weight 0.
        r += t if finite else np.where(inside[:, None, :], t, x.dtype.type(0))
    return r.reshape((n, c) + out)


@kernel("grid_sampler_backward")
@quiet
def _grid_sample_backward(g, x, grid, *, kind, padding, align, needs):
    """Returns (gradient of x, gradient of grid)."""
    both = large.copy_pad_grid().grid_backward(g, x, grid, kind, padding, align, needs)
    if both is not None:
        return both
    n, c = x.shape[:2]
    size, dims = x.shape[2:], grid.shape[-1]
    plane = math.prod(size)
    g3 = np.ascontiguousarray(g).reshape(n, c, math.prod(g.shape[2:]))
    points = g3.shape[2]
    gx = np.zeros(n * c * plane, x.dtype) if needs[0] else None
    gg = np.zeros((n, points, dims), grid.dtype) if needs[1] else None
    flat = np.ascontiguousarray(x).reshape(n, c, math.prod(size))
    start = (np.arange(n * c) * plane).reshape(n, c, 1)
    if g.size:
        for index, weights, slopes, _ in _combinations(grid, size, kind, padding, align):
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


@kernel("grid_points")
def _at_points(x, index):
    return np.take_along_axis(x.reshape(x.shape[0], x.shape[1], -1), np.broadcast_to(index[:, None], x.shape[:2] + index.shape[1:]), 2)


@kernel("grid_points_backward")
def _add_at_points(g, index, *, size):
    n, c = size[:2]
    plane = math.prod(size[2:])
    flat = (np.arange(n * c) * plane).reshape(n, c, 1) + index[:, None]
    r = np.zeros(n * c * plane, g.dtype)
    np.add.at(r, flat.reshape(-1), g.reshape(-1))
    return r.reshape(size)


def _inside(i, n, dtype):
    return ((i >= 0) & (i < n)).astype(dtype)


@kernel("grid_taps")
@quiet
def _grid_taps(c, *, n, kind, padding, align):
    """Returns the parts of which the weights of one axis are made where they are differentiated.

    nearest: index, weight. bilinear: two indices, two inside masks (1 or 0), the position's
    derivative, and the fractional part of the position minus derivative times coordinate. bicubic:
    four indices, four inside masks, and that remainder.
    """
    items = _taps(c, n, kind, padding, align)
    if kind == "nearest":
        return items[0][:2]
    index = tuple([i for i, *_ in items])
    if kind == "bilinear":
        p, derivative = _position(c, n, padding, align)
        base = np.floor(p)
        i = base.astype(np.int64)
        return (*index, _inside(i, n, c.dtype), _inside(i + 1, n, c.dtype), derivative, p - base - c * derivative)
    p, derivative = _unnormalize(c, n, align)
    base = np.floor(p)
    i = base.astype(np.int64)
    masks = [np.ones_like(p) if padding != "zeros" else _inside(i + (k - 1), n, c.dtype) for k in range(4)]
    return (*index, *masks, p - base - c * c.dtype.type(derivative))


# ------------------------------------------------------------------ affine grids
@kernel("affine_base_grid")
def _base_grid(theta, *, size, align):
    """Returns the homogeneous coordinates of the output positions, (N, prod(size), dims + 1)."""
    n, size = size[0], size[2:]
    dtype = np.dtype(np.float32) if theta.dtype.itemsize == 2 else theta.dtype
    dims = len(size)
    axes = []
    for m in size:
        if m <= 1:
            axes.append(np.zeros(m, dtype))
        else:
            line = np.linspace(-1, 1, m).astype(dtype)
            axes.append(line if align else line * dtype.type((m - 1) / m))
    mesh = np.meshgrid(*axes, indexing="ij")
    r = np.ones(tuple(size) + (dims + 1,), dtype)
    for i in range(dims):
        r[..., i] = mesh[dims - 1 - i]
    return np.broadcast_to(r.reshape(1, -1, dims + 1), (n, math.prod(size), dims + 1)).astype(theta.dtype)


# ------------------------------------------------------------------ shuffles
@kernel("pixel_shuffle")
def _shuffle(x, *, factor):
    """(*, C r^2, H, W) -> (*, C, H r, W r)."""
    r = factor
    *lead, c, h, w = x.shape
    y = x.reshape(*lead, c // (r * r), r, r, h, w)
    k = len(lead)
    return copy_c(y.transpose(*range(k + 1), k + 3, k + 1, k + 4, k + 2)).reshape(*lead, c // (r * r), h * r, w * r)


@kernel("pixel_unshuffle")
def _unshuffle(x, *, factor):
    r = factor
    *lead, c, h, w = x.shape
    y = x.reshape(*lead, c, h // r, r, w // r, r)
    k = len(lead)
    return copy_c(y.transpose(*range(k + 1), k + 2, k + 4, k + 1, k + 3)).reshape(*lead, c * r * r, h // r, w // r)


@kernel("native_channel_shuffle")
def _channels(x, *, groups):
    n, c = x.shape[:2]
    y = x.reshape((n, groups, c // groups) + x.shape[2:])
    return copy_c(y.swapaxes(1, 2)).reshape(x.shape)
