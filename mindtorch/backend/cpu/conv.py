"""Convolution kernels on CPU: forward, input gradient (transposed convolution), weight gradient.

On x86, float32 uses oneDNN (`onednn.py`). The kernels here are for other dtypes and machines, and
for the few shapes where they are faster.

Unfolding by rows: only the kernel offsets along the last dims are unfolded (copied). A step along
the first spatial dim is a shift by whole rows. Each kernel row is therefore one BLAS product over a
strided view, and the products are summed. A 3x3 kernel needs 3 copies instead of 9, and no product
is smaller than an image. Threads split the images (`backend/cpu/threads.py`). CPU time in us (one
core of an AVX-512 machine; forward / input gradient / weight gradient):
                             MindSpore           by rows             by rows, AVX2       PyTorch
  16x32x32x32 -> 32 3x3     3896 / 6969 / 5212  2712 / 2750 / 2809  4569 / 4586 / 4546  1474 / 4100
  16x64x16x16 -> 64 3x3     3179 / 3597 / 3298  1958 / 2000 / 2043  3527 / 3523 / 3580  1290 / 3280
  16x32x32x32 -> 64 3x3 /2  1878 / 2194 / 1960  1374 / 1500 / 1391  2132 /      / 2232   752 / 2800
  64x1x28x28  ->  6 5x5      681 /  992 / 11165  320 /  500 /  241   740 /  679 / 1456
  4x3x64x64   -> 64 7x7 /2  1592 / 1569 / 1188   779 /      /  927  1117 /      / 1278
  16x32x32x32 depthwise     1826 / 91000        1200
"by rows, AVX2" limits BLAS to AVX2. PyTorch's second figure, and MindSpore's for the depthwise
convolution, are both gradients together. MindSpore (oneDNN) unfolds each image as a whole. On
AVX-512 machines it also has to be limited to AVX2: otherwise it uses its reference kernel (57 ms
instead of 1.1 ms). With few positions and many channels, one product over the whole batch is
fastest: 4x512x2x2 -> 512 3x3 takes 555 us, by rows 4423 us, in MindSpore 1780 us.
"""
import functools
import itertools
import math

import numpy as np

from mindtorch.backend.cpu import kernel, large, onednn, onednn_parallel, threads
from mindtorch.backend.cpu._numpy_private import SILENT, add
from mindtorch.backend.cpu.copies import channels_last, empty_like_one
from mindtorch.backend.cpu.host import F32, F64, quiet
from mindtorch.backend.cpu.blas import product
from mindtorch.backend.cpu.sum import channel_sums, column_sum
from mindtorch.backend.sizes import out_size

# elements unfolded at a time per thread: 1 MB (half or twice that is 2 to 10% slower)
_BLOCK = 1 << 18
_CACHE = 1 << 20  # elements of images and results that oneDNN processes at a time per thread
_WORTH = 1 << 22  # multiplications from which several threads are used


def _share(n, work, part):
    """Runs `part` over n images, on several threads if there is enough work."""
    if work < _WORTH:
        threads.single_threaded(part, 0, n)
    else:
        threads.share(n, part)


def _added(sums):
    """Sums {start of a piece: its sum} in a fixed order.

    The rounding must not depend on which thread finished first.
    """
    first, *rest = sorted(sums)
    for start in rest:
        sums[first] += sums[start]
    return sums[first]


def _add_bias(y, b):
    """Adds a value per channel in place.

    A row over channels and positions is cheaper than (C, 1).
    """
    n, c = y.shape[:2]
    if not y.flags.c_contiguous:
        add(y, b.reshape((-1,) + (1,) * (y.ndim - 2)), out=y, extobj=SILENT)
        return y
    hw = math.prod(y.shape[2:])
    y2 = y.reshape(n, c * hw)
    add(y2, np.repeat(b, hw) if hw > 1 else b, out=y2, extobj=SILENT)
    return y


def _valid(first, step, size, count):
    """Returns the range (start, stop) of i in range(count) for which first + i * step is in
    range(size)."""
    return max(0, -(first // step)), min(count, (size - 1 - first) // step + 1)


def _is_product(kernel, stride, padding, groups):
    return groups == 1 and all(k == 1 for k in kernel) and all(s == 1 for s in stride) and not any(
        lo or hi for lo, hi in padding)


# ------------------------------------------------------------------ unfolding by rows
class _Rows:
    """Geometry of a convolution whose first spatial dim is not unfolded."""

    def __init__(self, channels, size, kernel, stride, padding, dilation, out, groups):
        self.size, self.kernel, self.stride, self.padding, self.dilation, self.out = (
            size, kernel, stride, padding, dilation, out)
        self.channels, self.groups = channels, groups
        s, d = stride[0], dilation[0]
        # Rows that a stride skips belong to other kernel rows, so each remainder has its own array.
        self.rests = sorted({i * d % s for i in range(kernel[0])})
        self.height = (kernel[0] - 1) * d // s + out[0]
        self.where = [(self.rests.index(i * d % s), i * d // s) for i in range(kernel[0])]
        self.side = math.prod(out[1:])
        self.inner = channels // groups * math.prod(kernel[1:])
        self.positions = out[0] * self.side
        self.each = len(self.rests) * channels * math.prod(kernel[1:]) * self.height * self.side
        self.moves = []
        for r, rest in enumerate(self.rests):
            first = rest - padding[0][0]
            a, z = _valid(first, s, size[0], self.height)
            if z <= a:
                continue
            rows = slice(first + a * s, first + (z - 1) * s + 1, s)
            for at in itertools.product(*map(range, kernel[1:])):
                into, of = [], []
                for i, st, di, (lo, _), n, m in zip(at, stride[1:], dilation[1:], padding[1:], size[1:], out[1:]):
                    f = i * di - lo
                    p, q = _valid(f, st, n, m)
                    if q <= p:
                        break
                    into.append(slice(p, q))
                    of.append(slice(f + p * st, f + (q - 1) * st + 1, st))
                else:
                    everything = slice(None)
                    self.moves.append(((r, everything, everything) + at + (slice(a, z),) + tuple(into),
                                       (everything, everything, rows) + tuple(of)))

    def block(self, n):
        """Returns how many of n images are unfolded at a time."""
        return max(1, min(n, _BLOCK // max(1, self.each)))

    def buffer(self, n, dtype):
        """Allocates a buffer for n unfolded images. The padding stays zero."""
        return np.zeros((len(self.rests), n, self.channels) + tuple(self.kernel[1:]) + (self.height,) + tuple(self.out[1:]),
                        dtype)

    def fill(self, buffer, x):
        """Unfolds images x. Returns each kernel row's operand (n, groups, inner, positions)."""
        n = x.shape[0]
        if buffer.shape[1] != n:
            buffer = buffer[:, :n]
        for into, of in self.moves:
            buffer[into] = x[of]
        flat = buffer.reshape((len(self.rests), n, self.groups, self.inner, self.height * self.side))
        return [flat[r][..., start * self.side:start * self.side + self.positions] for r, start in self.where]


def _by_rows(x, w, geometry, y):
    """Computes the convolution into y (N, O, *out)."""
    n, o = y.shape[:2]
    g = geometry
    ws = [np.ascontiguousarray(w[:, :, i]).reshape(g.groups, o // g.groups, g.inner) for i in range(g.kernel[0])]
    y4 = y.reshape(n, g.groups, o // g.groups, g.positions)

    def part(start, stop):
        step = g.block(stop - start)
        buffer = g.buffer(step, x.dtype)
        more = np.empty((step,) + y4.shape[1:], y.dtype) if len(ws) > 1 else None
        for a in range(start, stop, step):
            z = min(a + step, stop)
            into = y4[a:z]
            for i, (wi, xi) in enumerate(zip(ws, g.fill(buffer, x[a:z]))):
                if not i:
                    np.matmul(wi, xi, out=into)
                else:
                    into += np.matmul(wi, xi, out=more[:z - a])
    _share(n, y.size * g.inner * g.kernel[0], part)
    return y


def _weight_by_rows(gy, x, geometry, channels_out):
    """Returns the gradient of the weight, (O, C / groups, *kernel)."""
    n, o = gy.shape[0], channels_out
    g = geometry
    g4 = np.ascontiguousarray(gy).reshape(n, g.groups, o // g.groups, g.positions)
    sums = {}

    def part(start, stop):
        step = g.block(stop - start)
        buffer = g.buffer(step, x.dtype)
        total = np.zeros((g.kernel[0], g.groups, o // g.groups, g.inner), gy.dtype)
        for a in range(start, stop, step):
            z = min(a + step, stop)
            for i, xi in enumerate(g.fill(buffer, x[a:z])):
                r = np.matmul(g4[a:z], xi.swapaxes(-1, -2))
                total[i] += r[0] if z - a == 1 else r.sum(axis=0)
        sums[start] = total
    _share(n, gy.size * g.inner * g.kernel[0], part)
    total = _added(sums)
    total = total.reshape((g.kernel[0], o, g.channels // g.groups) + tuple(g.kernel[1:]))
    return np.ascontiguousarray(np.moveaxis(total, 0, 2))


def _scatter_by_rows(gy, w, x, size, stride, padding, dilation, groups):
    """Computes the gradient of the input into x (N, C, *size).

    Each kernel row's product is added at its offsets.
    """
    n, o = gy.shape[:2]
    c, kernel, out = x.shape[1], w.shape[2:], gy.shape[2:]
    inner = c // groups * math.prod(kernel[1:])
    ws = [np.ascontiguousarray(w[:, :, i]).reshape(groups, o // groups, inner).swapaxes(1, 2) for i in range(kernel[0])]
    ws = [np.ascontiguousarray(wi) for wi in ws]
    g4 = np.ascontiguousarray(gy).reshape(n, groups, o // groups, math.prod(out))
    full = tuple(max(m + lo + hi, (p - 1) * s + d * (k - 1) + 1)
                 for m, (lo, hi), p, s, d, k in zip(size, padding, out, stride, dilation, kernel))
    inside = (slice(None), slice(None)) + tuple(slice(lo, lo + m) for m, (lo, _) in zip(size, padding))

    def region(at):
        return tuple(slice(i * d, i * d + s * (m - 1) + 1, s) for i, d, s, m in zip(at, dilation, stride, out))
    regions = [[region((i,) + at) for at in itertools.product(*map(range, kernel[1:]))] for i in range(kernel[0])]
    each = groups * inner * math.prod(out)

    def part(start, stop):
        step = max(1, min(stop - start, _BLOCK // max(1, each)))
        buffer = np.empty((step, c) + full, gy.dtype)
        scratch = np.empty((step, groups, inner, math.prod(out)), gy.dtype)
        for a in range(start, stop, step):
            z = min(a + step, stop)
            sheet = buffer[:z - a]
            sheet[...] = 0
            for wi, row in zip(ws, regions):
                t = np.matmul(wi, g4[a:z], out=scratch[:z - a]).reshape((z - a, c, math.prod(kernel[1:])) + tuple(out))
                for k, p in enumerate(row):
                    sheet[(slice(None), slice(None)) + p] += t[:, :, k]
            x[a:z] = sheet[inside]
    _share(n, gy.size * inner * kernel[0], part)
    return x


# ------------------------------------------------------------------ one product over the whole batch
def _all_columns(x, kernel, stride, padding, dilation, out):
    """Returns the unfolded input (C * prod(kernel), N * prod(out)).

    Makes one copy of a strided slice per kernel offset.
    """
    n, c = x.shape[:2]
    r = np.zeros((c,) + tuple(kernel) + (n,) + tuple(out), x.dtype)
    xt = x.swapaxes(0, 1)
    for at in np.ndindex(*kernel):
        into, of = [], []
        for i, s, d, (lo, _), size, m in zip(at, stride, dilation, padding, x.shape[2:], out):
            first = i * d - lo
            a, z = _valid(first, s, size, m)
            if z <= a:
                break
            into.append(slice(a, z))
            of.append(slice(first + a * s, first + (z - 1) * s + 1, s))
        else:
            r[(slice(None),) + at + (slice(None),) + tuple(into)] = xt[(slice(None), slice(None)) + tuple(of)]
    return r.reshape(c * math.prod(kernel), n * math.prod(out))


def _batch_first(a, n, out):
    """Transposes (O, N * prod(out)) to (N, O, *out)."""
    return np.ascontiguousarray(a.reshape((a.shape[0], n) + tuple(out)).swapaxes(0, 1))


def _channels_first(a):
    """Transposes (N, O, *out) to (O, N * prod(out))."""
    return np.ascontiguousarray(a.swapaxes(0, 1)).reshape(a.shape[1], -1)


def _few_positions(channels, kernel, out, groups):
    """True if one product over the whole batch is faster than one per image."""
    return groups == 1 and math.prod(out) <= 16 and channels * math.prod(kernel) >= 256


@functools.lru_cache(1024)
def _pixels(n, out, kernel, channels, groups):
    """True if the weights are so much larger than the images that reordering them for oneDNN costs
    more than it gains.

    4x512x2x2 -> 512 3x3 takes oneDNN 1015 us (forward) and 1560 us (weight gradient), one product
    910 us and 840 us.
    """
    return groups == 1 and n * math.prod(out) <= 16 and channels * math.prod(kernel) >= 1024


# ------------------------------------------------------------------ depthwise
class _Shifts:
    """Geometry of a depthwise convolution with stride 1.

    The rows of the padded image follow each other in memory, so each kernel offset is one
    contiguous shift of the image. The columns where rows meet are discarded.
    """

    def __init__(self, size, kernel, padding, dilation, out):
        self.full = tuple((o - 1) + d * (k - 1) + 1 for o, d, k in zip(out, dilation, kernel))
        self.size, self.padding, self.out = size, padding, out
        strides = [math.prod(self.full[i + 1:]) for i in range(len(out))]
        self.offsets = [sum(i * d * s for i, d, s in zip(at, dilation, strides))
                        for at in itertools.product(*map(range, kernel))]
        self.span = sum((o - 1) * s for o, s in zip(out, strides)) + 1
        into, of = [], []
        for (lo, _), n, m in zip(padding, size, self.full):
            a, z = _valid(-lo, 1, n, m)
            into.append(slice(a, z))
            of.append(slice(a - lo, z - lo))
        self.into, self.of = tuple(into), tuple(of)
        self.strides = strides

    def lay(self, x):
        """Returns the padded images as (n, C, prod(full))."""
        r = np.zeros(x.shape[:2] + self.full, x.dtype)
        both = (slice(None), slice(None))
        r[both + self.into] = x[both + self.of]
        return r.reshape(x.shape[:2] + (-1,))

    def windows(self, a):
        """Returns the (n, C, *out) view of results (n, C, >= span)."""
        it = a.itemsize
        return np.lib.stride_tricks.as_strided(a, a.shape[:2] + tuple(self.out),
                                               a.strides[:2] + tuple(s * it for s in self.strides))

    def block(self, c):
        return max(1, _BLOCK // max(1, c * math.prod(self.full)))


def _depthwise(x, w, padding, dilation, out):
    """Computes a depthwise convolution with stride 1."""
    n, c = x.shape[:2]
    g = _Shifts(x.shape[2:], w.shape[2:], padding, dilation, out)
    y = np.empty((n, c) + tuple(out), x.dtype)
    ws = w.reshape(c, -1).T[:, :, None]

    def part(start, stop):
        step = g.block(c)
        for a in range(start, stop, step):
            z = min(a + step, stop)
            flat = g.lay(x[a:z])
            total = more = None
            for offset, wk in zip(g.offsets, ws):
                v = flat[:, :, offset:offset + g.span]
                if total is None:
                    total = v * wk
                    more = np.empty_like(total)
                else:
                    total += np.multiply(v, wk, out=more)
            y[a:z] = g.windows(total)
    _share(n, y.size * w[0].size * 4, part)
    return y


def _depthwise_weight(gy, x, kernel, padding, dilation):
    """Returns the gradient of a depthwise convolution's weight."""
    n, c = x.shape[:2]
    out = gy.shape[2:]
    g = _Shifts(x.shape[2:], kernel, padding, dilation, out)
    sums = {}

    def part(start, stop):
        step = g.block(c)
        total = np.zeros((len(g.offsets), c), gy.dtype)
        for a in range(start, stop, step):
            z = min(a + step, stop)
            flat = g.lay(x[a:z])
            # Lay out the gradient in the same rows as the image; it is zero where rows meet.
            sheet = np.zeros((z - a, c, g.span), gy.dtype)
            g.windows(sheet)[...] = gy[a:z]
            for k, offset in enumerate(g.offsets):
                total[k] += np.einsum("ncl,ncl->c", flat[:, :, offset:offset + g.span], sheet)
        sums[start] = total
    _share(n, gy.size * len(g.offsets) * 4, part)
    total = _added(sums)
    return np.ascontiguousarray(total.T).reshape((c, 1) + tuple(kernel))


# ------------------------------------------------------------------ oneDNN
def _fast(a, b):
    return a.dtype is F32 and b.dtype is F32 and onednn.available()


def _split(n, x, w, y, channels, groups):
    """Returns (number of parts, size of a part, True if parts are channels) for the split over
    threads.

    The parts are images or blocks of 16 channels. Each thread reorders the weights that it uses. If
    the weights are the largest array, or if there is only one image, each thread therefore gets its
    own block of channels.
    """
    if groups == 1 and channels >= 32 and not channels % 16 and (n == 1 or w.size > x.size + y.size):
        return channels // 16, 16, True
    return n, 1, False


def _blocks(start, stop, x, y):
    """Returns slices of images that fit into the cache together with their results."""
    step = max(1, _CACHE // (x[0].size + y[0].size))
    return [slice(a, min(a + step, stop)) for a in range(start, stop, step)]


def _on_pool(kind, x, w, b, y, count, each, channels, work, geometry):
    """True if the thread pool of `thread_pool.py` ran the convolution.

    The `count` parts of `each` images or channels are divided into as many pieces as there are
    threads.
    """
    k = min(threads.count(), count) if work >= _WORTH else 1

    def tasks():
        cuts = [count * i // k for i in range(k + 1)]
        full, out = (), []
        for start, stop in zip(cuts, cuts[1:]):
            if channels:
                at = slice(start * each, stop * each)
                rows, columns = (at,), (slice(None), at)
                out.append([{"y": (full, rows, columns, rows), "x": (columns, columns, full, full),
                             "w": (full, rows, columns, full)}[kind]])
            else:
                out.append([(at, full, at, full) for at in _blocks(start, stop, x, y)])
        return out
    return onednn_parallel.run(kind, x, w, y, b, (k, channels), tasks, geometry)


def _onednn(x, w, b, y, **geometry):
    """Computes the convolution into y. Returns False if oneDNN has no such kernel."""
    x, w = onednn.ready(x), onednn.ready(w)
    if b is not None:
        b = np.ascontiguousarray(b)
    count, each, channels = _split(x.shape[0], x, w, y, w.shape[0], geometry["groups"])

    def part(start, stop):
        at = slice(start * each, stop * each)
        if channels:
            onednn.conv(x, w[at], None if b is None else b[at], y[:, at], **geometry)
        else:
            for at in _blocks(start, stop, x, y):
                onednn.conv(x[at], w, b, y[at], **geometry)
    return _tried(count, y.size * w[0].size, part, lambda work: _on_pool("y", x, w, b, y, count, each, channels, work, geometry))


def _onednn_input(g, w, x, **geometry):
    """Computes the gradient of the input into x. Returns False if oneDNN has no such kernel."""
    g, w = onednn.ready(g), onednn.ready(w)
    count, each, channels = _split(g.shape[0], x, w, g, w.shape[1], geometry["groups"])

    def part(start, stop):
        at = slice(start * each, stop * each)
        if channels:
            onednn.conv_input(g, w[:, at], x[:, at], **geometry)
        else:
            for at in _blocks(start, stop, x, g):
                onednn.conv_input(g[at], w, x[at], **geometry)
    return _tried(count, g.size * w[0].size, part, lambda work: _on_pool("x", x, w, None, g, count, each, channels, work, geometry))


def _onednn_weight(g, x, w, **geometry):
    """Computes the gradient of the weight into w. Returns False if oneDNN has no such kernel."""
    g, x = onednn.ready(g), onednn.ready(x)
    count, each, channels = _split(g.shape[0], x, w, g, w.shape[0], geometry["groups"])
    sums = {}

    def part(start, stop):
        at = slice(start * each, stop * each)
        if channels:
            onednn.conv_weight(g[:, at], x, w[at], **geometry)
        else:
            for at in _blocks(start, stop, x, g):
                into = w if not at.start else np.empty_like(w)
                onednn.conv_weight(g[at], x[at], into, **geometry)
                if at.start == start:
                    sums[start] = into
                else:
                    sums[start] += into
    if not _tried(count, g.size * w[0].size, part, lambda work: _on_pool("w", x, w, None, g, count, each, channels, work, geometry)):
        return False
    # in a fixed order: the rounding must not depend on which thread finished first
    for start in sorted(sums)[1:]:
        w += sums[start]
    return True


def _tried(count, work, part, on_pool):
    try:
        if not on_pool(work):
            _share(count, work, part)
    except onednn.Unsupported:
        return False
    return True


# ------------------------------------------------------------------ small convolutions in C
#
# Sizes up to which the C kernels (`csrc/pooling_conv.h`) are tried first: multiplications
# (`_SMALL`), multiplications where nothing is unfolded (`_PLAIN`), elements of an unfolded image
# (`_ROOM`). CPU time relative to oneDNN (float64: relative to NumPy), without AVX-512, as medians
# over random shapes with 1 to 64 channels and kernels of 1 to 5, for forward, input gradient,
# weight gradient: 65000 multiplications 0.32, 0.23, 0.33 (float64: 0.20, 0.12, 0.19); 500000 0.78,
# 0.54, 0.86 (0.46, 0.30, 0.42); 1.5 million 1.25, 1.00, 1.09 (0.65, 0.43, 0.55). 1x1 kernels,
# 2x64x16x16 -> 64: 0.7, 0.7, 0.8.
#
# The input gradient with few channels uses C at any size, because oneDNN pads them to 16 (8 without
# AVX-512). With AVX-512, 8x64x64x64 -> 3 3x3 takes 7.8 ms in oneDNN vs 2.0 ms in C. C takes 0.85
# times oneDNN's time with 6 channels, 1.1 times with 8.
_SMALL, _PLAIN, _ROOM, _TILE = {F32: 3 << 17, F64: 1 << 20}, 1 << 21, 1 << 18, 16
_FILLED, _FILLED_ROOM = 4, 1 << 21


#: Marks, in place of windows, that the image is the only window.
_WHOLE = object()


@functools.lru_cache(1024)
def _small(dtype, size, weight, stride, padding, dilation, groups, out, turned=False):
    """Returns (shape of the result of (size, weight), windows).

    The windows are a description for C, `_WHOLE`, or None where other kernels are faster. `turned`
    is True for the input gradient.
    """
    kernel = weight[2:]
    if out is None:
        out = out_size(size[2:], kernel, stride, padding, dilation)
    y = (size[0], weight[0], *out)
    most = _SMALL.get(dtype, 0)
    if most and groups == 1 and weight[2:] == size[2:] and not any(map(any, padding)) and max(out) == min(out) == 1 and 0 not in y and 0 not in weight:
        return y, _WHOLE
    if most and _is_product(kernel, stride, padding, groups) and math.prod(out) >= 64:
        most = _PLAIN
    scratch_limit = _ROOM
    if turned and groups == 1 and dtype is F32 and weight[1] <= _FILLED:
        most, scratch_limit = math.inf, _FILLED_ROOM
    # C processes whole vectors of windows.
    if y[0] * y[1] * max(math.prod(out), _TILE) * math.prod(weight[1:]) > most or 0 in size or 0 in weight or min(out) <= 0:
        return y, None
    if math.prod(out) * weight[1] * math.prod(kernel) > scratch_limit or weight[1] * math.prod(
            [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(out, stride, kernel, dilation)]) > scratch_limit:
        return y, None
    return y, large.pooling().described(size[2:], kernel, stride, tuple([lo for lo, _ in padding]), dilation, out)


def _laid(a):
    """Returns the array in C order. Channels-last arrays stay as they are: other kernels compute
    their results."""
    return a if a.flags.c_contiguous or channels_last(a) else np.ascontiguousarray(a)


# ------------------------------------------------------------------ the three kernels
_out_size = functools.lru_cache(1024)(out_size)


def _flat(a):
    """Reshapes (N, C, L) to (N, C, 1, L)."""
    return a.reshape(a.shape[:2] + (1,) + a.shape[2:])


def _turned(w, groups):
    """Returns the weights of the convolution that computes the input gradient of a convolution with
    stride 1."""
    o, c = w.shape[:2]
    r = w[(slice(None), slice(None)) + (slice(None, None, -1),) * (w.ndim - 2)]
    r = r.reshape((groups, o // groups, c) + w.shape[2:]).swapaxes(1, 2)
    return np.ascontiguousarray(r).reshape((groups * c, o // groups) + w.shape[2:])


def _batched_product(w, x, size):
    """Multiplies w (O, C) by each image of x (N, C, prod(size))."""
    n = x.shape[0]
    x3 = np.ascontiguousarray(x).reshape(n, x.shape[1], -1)
    y = np.empty((n, w.shape[0], x3.shape[2]), x.dtype)
    _share(n, y.size * w.shape[1], lambda a, z: np.matmul(w, x3[a:z], out=y[a:z]))
    return y.reshape((n, w.shape[0]) + tuple(size))


@kernel("convolution")
def conv(x, w, b=None, *, stride, padding, dilation, groups, out=None):
    """Computes the cross-correlation of (N, C, *spatial) with (O, C / groups, *kernel).

    `padding` has (before, after) pairs. `out` is the spatial size of the result if the other
    arguments do not imply it.
    """
    shape, windows = _small(x.dtype, x.shape, w.shape, stride, padding, dilation, groups, out)
    if windows is _WHOLE:
        if x.flags.c_contiguous and w.dtype == x.dtype:
            y = product(x.reshape(shape[0], -1), w.reshape(shape[1], -1).T).reshape(shape)
            return y if b is None else _add_bias(y, b)
    elif windows is not None:
        y = np.empty(shape, x.dtype)
        if (c := large.pooling()).convolve(c.FORWARD, windows, groups, x, w, b, y):
            return y
    return _conv(x, w, b, stride, padding, dilation, groups, out)


@quiet
def _conv(x, w, b, stride, padding, dilation, groups, out):
    kernel = w.shape[2:]
    n, c, o = x.shape[0], x.shape[1], w.shape[0]
    if out is None:
        out = _out_size(x.shape[2:], kernel, stride, padding, dilation)
    if len(kernel) == 1:
        y = _conv(_flat(x), _flat(w), b, (1,) + stride, ((0, 0),) + tuple(padding), (1,) + dilation, groups, (1,) + tuple(out))
        return y.reshape((n, o) + tuple(out))
    if not x.size or not w.size or 0 in out:
        y = np.zeros((n, o) + tuple(out), x.dtype)
        return y if b is None else _add_bias(y, b)
    if _fast(x, w) and not _pixels(n, tuple(out), kernel, c, groups):
        y = empty_like_one((n, o) + tuple(out), x.dtype, x, w)
        if _onednn(x, w, b, y, stride=stride, padding=padding, dilation=dilation, groups=groups):
            return y
    if _is_product(kernel, stride, padding, groups) and tuple(out) == x.shape[2:]:
        y = _batched_product(w.reshape(o, c), x, out)
    elif groups == c == o and all(s == 1 for s in stride):
        y = _depthwise(x, w, padding, dilation, out)
    elif _few_positions(c, kernel, out, groups):
        cols = _all_columns(x, kernel, stride, padding, dilation, out)
        y = _batch_first(product(np.ascontiguousarray(w).reshape(o, -1), cols), n, out)
    else:
        y = _by_rows(x, w, _Rows(c, x.shape[2:], kernel, stride, padding, dilation, out, groups),
                     np.empty((n, o) + tuple(out), x.dtype))
    return y if b is None else _add_bias(y, b)


@kernel("convolution_transposed")
def conv_transposed(g, w, b=None, *, size, stride, padding, dilation, groups):
    """Returns the gradient of `conv` with respect to its input of spatial `size`.

    This is the transposed convolution of g (N, O, *out) with w.
    """
    shape = (g.shape[0], w.shape[1] * groups, *size)
    windows = _small(g.dtype, shape, w.shape, stride, padding, dilation, groups, g.shape[2:], True)[1]
    if windows is _WHOLE:
        if g.flags.c_contiguous and w.flags.c_contiguous and w.dtype == g.dtype:
            x = product(g.reshape(g.shape[:2]), w.reshape(w.shape[0], -1)).reshape(shape)
            return x if b is None else _add_bias(x, b)
    elif windows is not None:
        x = np.empty(shape, g.dtype)
        if (c := large.pooling()).convolve(c.INPUT, windows, groups, x, w, None, _laid(g)):
            return x if b is None else _add_bias(x, b)
    return _conv_transposed(g, w, b, size, stride, padding, dilation, groups)


@quiet
def _conv_transposed(g, w, b, size, stride, padding, dilation, groups):
    kernel = w.shape[2:]
    n, o = g.shape[:2]
    c = w.shape[1] * groups
    if len(kernel) == 1:
        x = _conv_transposed(_flat(g), _flat(w), b, (1,) + tuple(size), (1,) + stride, ((0, 0),) + tuple(padding), (1,) + dilation, groups)
        return x.reshape((n, c) + tuple(size))
    # With stride 1 this is a convolution of g with the flipped weights.
    back = tuple((d * (k - 1) - lo, 0) for d, k, (lo, _) in zip(dilation, kernel, padding))
    plain = all(s == 1 for s in stride) and min(lo for lo, _ in back) >= 0
    if not g.size or not w.size:
        x = np.zeros((n, c) + tuple(size), g.dtype)
        return x if b is None else _add_bias(x, b)
    if _fast(g, w) and not (groups == 1 and c == 1 and math.prod(size) > 64):
        # oneDNN pads a single channel to 16: 64x6x28x28 -> 1 5x5 takes 2490 us, by rows 1420 us.
        x = empty_like_one((n, c) + tuple(size), g.dtype, g, w)
        if _onednn_input(g, w, x, stride=stride, padding=padding, dilation=dilation, groups=groups):
            return x if b is None else _add_bias(x, b)
    if _is_product(kernel, stride, padding, groups) and tuple(size) == g.shape[2:]:
        x = _batched_product(np.ascontiguousarray(w.reshape(o, c).T), g, size)
    elif groups == c == o and plain:
        x = _depthwise(g, _turned(w, groups), back, dilation, tuple(size))
    elif _few_positions(o, kernel, g.shape[2:], groups):
        cols = product(np.ascontiguousarray(w).reshape(o, -1).T, _channels_first(g))
        cols = cols.reshape((c,) + tuple(kernel) + (n,) + g.shape[2:])
        x = fold(np.moveaxis(cols, 1 + len(kernel), 0), size, stride, padding, dilation)
    elif plain and w.shape[1] >= 16:
        x = _by_rows(g, _turned(w, groups), _Rows(o, g.shape[2:], kernel, stride, back, dilation, tuple(size), groups),
                     np.empty((n, c) + tuple(size), g.dtype))
    else:
        x = _scatter_by_rows(g, w, np.empty((n, c) + tuple(size), g.dtype), size, stride, padding, dilation, groups)
    return x if b is None else _add_bias(x, b)


@kernel("convolution_weight")
def conv_weight(g, x, *, kernel, stride, padding, dilation, groups):
    """Returns the gradient of `conv` with respect to its weight, (O, C / groups, *kernel)."""
    shape = (g.shape[1], x.shape[1] // groups, *kernel)
    windows = _small(g.dtype, x.shape, shape, stride, padding, dilation, groups, g.shape[2:])[1]
    if windows is _WHOLE:
        if x.flags.c_contiguous and g.dtype == x.dtype:
            return product(g.reshape(g.shape[:2]).T, x.reshape(x.shape[0], -1)).reshape(shape)
    elif windows is not None:
        w = np.empty(shape, g.dtype)
        if (c := large.pooling()).convolve(c.WEIGHT, windows, groups, x, w, None, _laid(g)):
            return w
    return _conv_weight(g, x, kernel, stride, padding, dilation, groups)


@quiet
def _conv_weight(g, x, kernel, stride, padding, dilation, groups):
    n, o = g.shape[:2]
    c = x.shape[1]
    shape = (o, c // groups) + tuple(kernel)
    if not g.size or not x.size:
        return np.zeros(shape, g.dtype)
    if len(kernel) == 1:
        return _conv_weight(_flat(g), _flat(x), (1,) + tuple(kernel), (1,) + stride, ((0, 0),) + tuple(padding), (1,) + dilation, groups).reshape(shape)
    out = g.shape[2:]
    if _fast(g, x) and not _pixels(n, tuple(out), tuple(kernel), c, groups):
        w = empty_like_one(shape, g.dtype, g, x)
        if _onednn_weight(g, x, w, stride=stride, padding=padding, dilation=dilation, groups=groups):
            return w
    if _is_product(kernel, stride, padding, groups) and x.shape[2:] == out:
        return _weight_of_product(g, x).reshape(shape)
    if groups == c == o and all(s == 1 for s in stride):
        return _depthwise_weight(g, x, kernel, padding, dilation)
    if _few_positions(c, kernel, out, groups):
        cols = _all_columns(x, kernel, stride, padding, dilation, out)
        return product(_channels_first(g), cols.T).reshape(shape)
    return _weight_by_rows(g, x, _Rows(c, x.shape[2:], kernel, stride, padding, dilation, out, groups), o)


def _weight_of_product(g, x):
    n = g.shape[0]
    g3 = np.ascontiguousarray(g).reshape(n, g.shape[1], -1)
    x3 = np.ascontiguousarray(x).reshape(n, x.shape[1], -1).swapaxes(1, 2)
    sums = {}

    def part(start, stop):
        r = np.matmul(g3[start], x3[start])
        more = np.empty_like(r)
        for i in range(start + 1, stop):
            r += np.matmul(g3[i], x3[i], out=more)
        sums[start] = r
    _share(n, g.size * x.shape[1], part)
    total = _added(sums)
    return total


@kernel("convolution_backward")
def conv_backward(g, x=None, w=None, *, transposed, sizes, kernel, stride, padding, dilation, groups, needs):
    """Returns (gradient of the input, of the weight, of the bias), each None if `needs` is False
    for it.

    `sizes` and `kernel` are the complete shapes of input and weight.
    """
    kw = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    gx = gw = None
    if needs[0]:
        gx = conv(g, w, None, out=sizes[2:], **kw) if transposed else conv_transposed(g, w, None, size=sizes[2:], **kw)
    if needs[1]:
        gw = conv_weight(*(x, g) if transposed else (g, x), kernel=kernel[2:], **kw)
    return gx, gw, channel_sum(g) if needs[2] else None


@kernel("channel_sum")
@quiet
def channel_sum(g):
    """Returns the gradient of a convolution's bias: the sum over all dims but the channels."""
    if not g.size:
        return np.zeros(g.shape[1], g.dtype)
    if channels_last(g):
        return column_sum(np.moveaxis(g, 1, -1))
    return channel_sums(g, g.shape[1], math.prod(g.shape[2:]))


@kernel("expand_channels")
def _expand_channels(g, *, shape):
    return np.broadcast_to(g.reshape((-1,) + (1,) * (len(shape) - 2)), shape).copy()


@kernel("squeeze_batch")
def _squeeze_batch(a):
    return a[0]


@kernel("unsqueeze_batch")
def _unsqueeze_batch(a):
    return a[None]


# ------------------------------------------------------------------ unfold, fold
def fold(cols, size, stride, padding, dilation):
    """Sums windows (N, C, *kernel, *out) into (N, C, *size).

    This is the adjoint of extracting windows from the padded array.
    """
    dims = len(size)
    kernel, out = cols.shape[2:2 + dims], cols.shape[2 + dims:]
    # The last window may extend beyond the padded size if the gradient's size is not the natural
    # one.
    full = tuple(max(n + lo + hi, (m - 1) * s + d * (k - 1) + 1)
                 for n, (lo, hi), m, s, d, k in zip(size, padding, out, stride, dilation, kernel))
    buf = np.zeros(cols.shape[:2] + full, cols.dtype)
    head = (slice(None), slice(None))
    for at in np.ndindex(*kernel):
        region = tuple(slice(i * d, i * d + s * (m - 1) + 1, s) for i, d, s, m in zip(at, dilation, stride, out))
        buf[head + region] += cols[head + at]
    if full == tuple(size):
        return buf
    return np.ascontiguousarray(buf[head + tuple(slice(lo, lo + n) for n, (lo, _) in zip(size, padding))])


def windows(x, kernel, stride, dilation, out):
    """Returns a (N, C, *kernel, *out) view of the windows of a padded (N, C, *spatial)."""
    s = x.strides
    steps = tuple(a * d for a, d in zip(s[2:], dilation)) + tuple(a * t for a, t in zip(s[2:], stride))
    return np.lib.stride_tricks.as_strided(x, x.shape[:2] + tuple(kernel) + tuple(out), s[:2] + steps, writeable=False)


@kernel("im2col")
def im2col(x, *, kernel, dilation, padding, stride):
    """Unfolds (N, C, H, W) to (N, C * prod(kernel), L)."""
    pads = tuple((p, p) for p in padding)
    out = out_size(x.shape[2:], kernel, stride, pads, dilation)
    if (r := large.pooling().columns(x, kernel, stride, padding, dilation, out)) is not None:
        return r
    if any(padding):
        r = np.zeros(x.shape[:2] + tuple(n + 2 * p for n, p in zip(x.shape[2:], padding)), x.dtype)
        r[(slice(None), slice(None)) + tuple(slice(p, p + n) for n, p in zip(x.shape[2:], padding))] = x
        x = r
    v = windows(x, kernel, stride, dilation, out)
    return v.reshape(x.shape[0], x.shape[1] * math.prod(kernel), math.prod(out))


@kernel("col2im")
@quiet
def col2im(cols, *, size, kernel, dilation, padding, stride):
    """Folds (N, C * prod(kernel), L) to (N, C, *size); overlapping elements are summed."""
    pads = tuple((p, p) for p in padding)
    out = out_size(size, kernel, stride, pads, dilation)
    if (r := large.pooling().columns_back(cols, tuple(size), kernel, stride, padding, dilation, out)) is not None:
        return r
    n = cols.shape[0]
    return fold(np.ascontiguousarray(cols).reshape((n, cols.shape[1] // math.prod(kernel)) + tuple(kernel) + out),
                size, stride, pads, dilation)
