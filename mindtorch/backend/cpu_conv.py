"""Convolution kernels on CPU: forward, gradient of the input (= transposed convolution), gradient of the weight.

float32 in one and two dimensions runs on MindSpore's Conv2D (oneDNN; `ONEDNN_MAX_CPU_ISA=AVX2` in the environment, or it
takes its reference kernel on AVX-512 machines: 57 ms for what takes 1.1).  Measured, us: MindSpore / im2col + matmul / torch
    64x1x28x28  6 5x5 pad 2     511 /  720 / 206    its weight gradient 1180 / 880
    64x6x14x14 16 5x5           586 /  816 / 240                         653 / 900
    16x16x32x32 16 3x3 pad 1   1113 / 2121 / 462                        1876 / 2160
    16x64x8x8   64 3x3 pad 1    827 / 1226 / 342
    4x3x64x64   64 7x7 stride 2 715 / 1015 / 330                        1072 / 1141
    16x32x32x32 depthwise 3x3  1466 / shifted multiply-adds 1952 / matmul 3276 / 156
Its gradient of the input loses to its own forward with turned weights where channels are many: 16x32x32x32 -> 32 3x3 takes
9060 against 6710, 16x64x16x16 4330 against 3700 (CPU time), but 64x6x14x14 880 against 2250.
On a few positions of many channels one product over the whole batch wins: 4x512x2x2 -> 512 3x3 forward 1840 / 1020, weight
2400 / 870 (MindSpore / unfolded).
1x1 kernels are matrix products (16x64x32x32 -> 64: 1420 where MindSpore takes 1937).  Three dimensions, other dtypes and
complex numbers go through im2col + matmul (2x16x8x16x16 -> 32 3x3x3: 1226, MindSpore's Conv3D 1656).
"""
import math

import numpy as np

import mindspore.ops.operations as P
from mindspore.ops.operations import _grad_ops as G

from mindtorch.backend.cpu import F32, blas_ready, channel_sums
from mindtorch.backend.host import quiet
from mindtorch.backend.private import MSTensor, from_contiguous

_asnumpy = MSTensor.asnumpy
_LIMIT = 1 << 23        # elements of unfolded input held at a time

_native = {}


def _primitive(kind, channels, kernel, stride, padding, dilation, groups):
    """MindSpore's primitive of that configuration (making one costs 100 us)."""
    key = (kind, channels, kernel, stride, padding, dilation, groups)
    p = _native.get(key)
    if p is None:
        if len(_native) > 1024:
            _native.clear()
        pad = (*padding[0], *padding[1])
        if kind == 0:
            p = P.Conv2D(channels, kernel, pad_mode="pad", pad=pad, stride=stride, dilation=dilation, group=groups)
        else:
            cls = P.Conv2DBackpropInput if kind == 1 else G.Conv2DBackpropFilter
            p = cls(channels, kernel, pad_mode="pad", pad=pad, pad_list=pad, stride=stride, dilation=dilation, group=groups)
        _native[key] = p
    return p


def _tensor(a):
    return from_contiguous(a if a.flags.c_contiguous else np.ascontiguousarray(a))


def _flat(a):
    """(N, C, L) as (N, C, 1, L)."""
    return a.reshape(a.shape[:2] + (1,) + a.shape[2:])


def _is_product(kernel, stride, padding, groups):
    return groups == 1 and all(k == 1 for k in kernel) and all(s == 1 for s in stride) and not any(
        lo or hi for lo, hi in padding)


def _fast(*arrays):
    for a in arrays:
        if a.dtype != F32 or not a.size:
            return False
    return True


def _add_bias(y, b):
    """Adds a value per channel in place: a row over channels and positions costs less than (C, 1)."""
    n, c = y.shape[:2]
    hw = math.prod(y.shape[2:])
    y2 = y.reshape(n, c * hw)
    y2 += np.repeat(b, hw) if hw > 1 else b
    return y


def out_size(size, kernel, stride, padding, dilation):
    """Spatial size of a convolution's result."""
    return tuple((n + lo + hi - d * (k - 1) - 1) // s + 1
                 for n, k, s, (lo, hi), d in zip(size, kernel, stride, padding, dilation))


def _padded(x, padding, fill=0):
    if not any(lo or hi for lo, hi in padding):
        return x
    shape = x.shape[:2] + tuple(n + lo + hi for n, (lo, hi) in zip(x.shape[2:], padding))
    r = np.zeros(shape, x.dtype) if fill == 0 else np.full(shape, fill, x.dtype)
    r[(slice(None), slice(None)) + tuple(slice(lo, lo + n) for n, (lo, _) in zip(x.shape[2:], padding))] = x
    return r


def windows(x, kernel, stride, dilation, out):
    """(N, C, *kernel, *out) view of the windows of a padded (N, C, *spatial)."""
    s = x.strides
    return np.lib.stride_tricks.as_strided(
        x, x.shape[:2] + tuple(kernel) + tuple(out),
        s[:2] + tuple(a * d for a, d in zip(s[2:], dilation)) + tuple(a * t for a, t in zip(s[2:], stride)), writeable=False)


def _columns(xp, kernel, stride, dilation, out, groups):
    """Unfolded input (N, groups, C / groups * prod(kernel), prod(out))."""
    n, c = xp.shape[:2]
    v = windows(xp, kernel, stride, dilation, out)
    return v.reshape(n, groups, c // groups * math.prod(kernel), math.prod(out))


def _all_columns(x, kernel, stride, padding, dilation, out):
    """Unfolded input (C * prod(kernel), N * prod(out)): one copy of a strided slice for each place of the kernel."""
    n, c = x.shape[:2]
    r = np.zeros((c,) + tuple(kernel) + (n,) + tuple(out), x.dtype)
    xt = x.swapaxes(0, 1)
    for at in np.ndindex(*kernel):
        into, of = [], []
        for i, s, d, (lo, _), size, m in zip(at, stride, dilation, padding, x.shape[2:], out):
            first = i * d - lo
            a = max(0, -(first // s))
            z = min(m, (size - 1 - first) // s + 1)
            if z <= a:
                break
            into.append(slice(a, z))
            of.append(slice(first + a * s, first + (z - 1) * s + 1, s))
        else:
            r[(slice(None),) + at + (slice(None),) + tuple(into)] = xt[(slice(None), slice(None)) + tuple(of)]
    return r.reshape(c * math.prod(kernel), n * math.prod(out))


def _batch_first(a, n, out):
    """(O, N * prod(out)) -> (N, O, *out)."""
    return np.ascontiguousarray(a.reshape((a.shape[0], n) + tuple(out)).swapaxes(0, 1))


def _channels_first(a):
    """(N, O, *out) -> (O, N * prod(out))."""
    return np.ascontiguousarray(a.swapaxes(0, 1)).reshape(a.shape[1], -1)


def _few_positions(channels, kernel, out, groups):
    """True where one product over the whole batch beats MindSpore's, which is one an image."""
    return groups == 1 and math.prod(out) <= 16 and channels * math.prod(kernel) >= 256


def _turned(w):
    """Weights of the convolution that computes the input's gradient of one with stride 1."""
    return np.ascontiguousarray(w[(slice(None), slice(None)) + (slice(None, None, -1),) * (w.ndim - 2)].swapaxes(0, 1))


@quiet
def conv(x, w, b=None, *, stride, padding, dilation, groups, out=None):
    """Cross-correlation of (N, C, *spatial) with (O, C / groups, *kernel); `padding` holds (before, after) pairs.

    `out`: spatial size wanted, if not what the other arguments give.
    """
    kernel = w.shape[2:]
    n, o = x.shape[0], w.shape[0]
    if out is None:
        out = out_size(x.shape[2:], kernel, stride, padding, dilation)
    elif out != out_size(x.shape[2:], kernel, stride, padding, dilation):
        # Move the end of the padding so that exactly `out` positions fit.
        after = [(m - 1) * s + d * (k - 1) + 1 - lo - size
                 for m, s, d, k, (lo, _), size in zip(out, stride, dilation, kernel, padding, x.shape[2:])]
        x = x[(slice(None), slice(None)) + tuple(slice(0, size + min(a, 0)) for a, size in zip(after, x.shape[2:]))]
        padding = tuple((lo, max(a, 0)) for (lo, _), a in zip(padding, after))
    if not x.size or not w.size or 0 in out:
        y = np.zeros((n, o) + tuple(out), x.dtype)
    elif _is_product(kernel, stride, padding, groups):
        y = np.matmul(w.reshape(o, -1), np.ascontiguousarray(x).reshape(n, x.shape[1], -1)).reshape((n, o) + tuple(out))
    elif _few_positions(x.shape[1], kernel, out, groups):
        cols = _all_columns(x, kernel, stride, padding, dilation, out)
        y = _batch_first(np.matmul(np.ascontiguousarray(w).reshape(o, -1), cols), n, out)
    elif len(kernel) <= 2 and _fast(x, w):
        if len(kernel) == 1:
            p = _primitive(0, o, (1, kernel[0]), (1, stride[0]), ((0, 0), padding[0]), (1, dilation[0]), groups)
            y = _asnumpy(p(_tensor(_flat(x)), _tensor(_flat(w)))).reshape((n, o) + tuple(out))
        else:
            y = _asnumpy(_primitive(0, o, kernel, stride, padding, dilation, groups)(_tensor(x), _tensor(w)))
    else:
        xp = _padded(x, padding)
        w3 = np.ascontiguousarray(w).reshape(groups, o // groups, -1)
        y = np.empty((n, groups, o // groups, math.prod(out)), x.dtype)
        step = max(1, _LIMIT // max(1, w3.shape[2] * groups * y.shape[3]))
        for i in range(0, n, step):
            np.matmul(w3, _columns(xp[i:i + step], kernel, stride, dilation, out, groups), out=y[i:i + step])
        y = y.reshape((n, o) + tuple(out))
    return y if b is None else _add_bias(y, b)


@quiet
def conv_transposed(g, w, b=None, *, size, stride, padding, dilation, groups):
    """Gradient of `conv` with respect to its input of spatial `size`: transposed convolution of (N, O, *out) with w."""
    kernel = w.shape[2:]
    n, o = g.shape[:2]
    c = w.shape[1] * groups
    if not g.size or not w.size:
        x = np.zeros((n, c) + tuple(size), g.dtype)
    elif _is_product(kernel, stride, padding, groups) and tuple(size) == g.shape[2:]:
        x = np.matmul(w.reshape(o, -1).T, np.ascontiguousarray(g).reshape(n, o, -1)).reshape((n, c) + tuple(size))
    elif _few_positions(o, kernel, g.shape[2:], groups):
        cols = np.matmul(np.ascontiguousarray(w).reshape(o, -1).T, _channels_first(g))
        cols = cols.reshape((c,) + tuple(kernel) + (n,) + g.shape[2:])
        x = fold(np.moveaxis(cols, 1 + len(kernel), 0), size, stride, padding, dilation)
    elif len(kernel) <= 2 and _fast(g, w) and g.shape[2:] == out_size(size, kernel, stride, padding, dilation):
        back = tuple((d * (k - 1) - lo, d * (k - 1) - hi) for d, k, (lo, hi) in zip(dilation, kernel, padding))
        if len(kernel) == 2 and groups == 1 and c >= 16 and o >= 16 and w.size <= 1 << 18 and all(
                s == 1 for s in stride) and min(min(p) for p in back) >= 0:
            x = _asnumpy(_primitive(0, c, kernel, stride, back, dilation, 1)(_tensor(g), _tensor(_turned(w))))
        elif len(kernel) == 1:
            p = _primitive(1, o, (1, kernel[0]), (1, stride[0]), ((0, 0), padding[0]), (1, dilation[0]), groups)
            x = _asnumpy(p(_tensor(_flat(g)), _tensor(_flat(w)), (n, c, 1) + tuple(size))).reshape((n, c) + tuple(size))
        else:
            p = _primitive(1, o, kernel, stride, padding, dilation, groups)
            x = _asnumpy(p(_tensor(g), _tensor(w), (n, c) + tuple(size)))
    else:
        w3 = np.ascontiguousarray(w).reshape(groups, o // groups, -1).swapaxes(1, 2)
        g3 = np.ascontiguousarray(g).reshape(n, groups, o // groups, -1)
        x = np.empty((n, c) + tuple(size), g.dtype)
        step = max(1, _LIMIT // max(1, w3.shape[1] * groups * g3.shape[3]))
        for i in range(0, n, step):
            cols = np.matmul(w3, g3[i:i + step])
            cols = cols.reshape((cols.shape[0], c) + tuple(kernel) + g.shape[2:])
            x[i:i + step] = fold(cols, size, stride, padding, dilation)
    return x if b is None else _add_bias(x, b)


def fold(cols, size, stride, padding, dilation):
    """Adds windows (N, C, *kernel, *out) up into (N, C, *size): the adjoint of taking windows of the padded array."""
    dims = len(size)
    kernel, out = cols.shape[2:2 + dims], cols.shape[2 + dims:]
    # The last window may reach beyond the padded size when the gradient's size was not the natural one.
    full = tuple(max(n + lo + hi, (m - 1) * s + d * (k - 1) + 1)
                 for n, (lo, hi), m, s, d, k in zip(size, padding, out, stride, dilation, kernel))
    buf = np.zeros(cols.shape[:2] + full, cols.dtype)
    head = (slice(None), slice(None))
    for at in np.ndindex(*kernel):
        place = tuple(slice(i * d, i * d + s * (m - 1) + 1, s) for i, d, s, m in zip(at, dilation, stride, out))
        buf[head + place] += cols[head + at]
    if full == tuple(size):
        return buf
    return np.ascontiguousarray(buf[head + tuple(slice(lo, lo + n) for n, (lo, _) in zip(size, padding))])


@quiet
def conv_weight(g, x, *, kernel, stride, padding, dilation, groups):
    """Gradient of `conv` with respect to its weight, (O, C / groups, *kernel)."""
    n, o = g.shape[:2]
    c = x.shape[1]
    shape = (o, c // groups) + tuple(kernel)
    if not g.size or not x.size:
        return np.zeros(shape, g.dtype)
    if _is_product(kernel, stride, padding, groups) and x.shape[2:] == g.shape[2:]:
        g3 = np.ascontiguousarray(g).reshape(n, o, -1)
        x3 = np.ascontiguousarray(x).reshape(n, c, -1).swapaxes(1, 2)
        r = np.matmul(g3[0], x3[0])
        for i in range(1, n):
            r += np.matmul(g3[i], x3[i])
        return r.reshape(shape)
    if _few_positions(c, kernel, g.shape[2:], groups):
        cols = _all_columns(x, kernel, stride, padding, dilation, g.shape[2:])
        return np.matmul(_channels_first(g), cols.T).reshape(shape)
    if len(kernel) <= 2 and _fast(g, x) and g.shape[2:] == out_size(x.shape[2:], kernel, stride, padding, dilation):
        if len(kernel) == 1:
            p = _primitive(2, o, (1, kernel[0]), (1, stride[0]), ((0, 0), padding[0]), (1, dilation[0]), groups)
            return _asnumpy(p(_tensor(_flat(g)), _tensor(_flat(x)), shape[:2] + (1,) + shape[2:])).reshape(shape)
        return _asnumpy(_primitive(2, o, kernel, stride, padding, dilation, groups)(_tensor(g), _tensor(x), shape))
    out = g.shape[2:]
    # As in `fold`: room for windows that reach beyond the padded input.
    padding = tuple((lo, max(hi, (m - 1) * s + d * (k - 1) + 1 - lo - size))
                    for (lo, hi), m, s, d, k, size in zip(padding, out, stride, dilation, kernel, x.shape[2:]))
    xp = _padded(x, padding)
    g3 = np.ascontiguousarray(g).reshape(n, groups, o // groups, -1)
    r = np.zeros((groups, o // groups, c // groups * math.prod(kernel)), g.dtype)
    step = max(1, _LIMIT // max(1, c * math.prod(kernel) * g3.shape[3]))
    for i in range(0, n, step):
        cols = _columns(xp[i:i + step], kernel, stride, dilation, out, groups)
        r += np.matmul(g3[i:i + step], blas_ready(cols.swapaxes(-1, -2))).sum(axis=0)
    return r.reshape(shape)


@quiet
def channel_sum(g):
    """Gradient of a convolution's bias: the sum over all but the channels."""
    if not g.size:
        return np.zeros(g.shape[1], g.dtype)
    return channel_sums(g, g.shape[1], math.prod(g.shape[2:]))


# ------------------------------------------------------------------ unfold, fold
def im2col(x, *, kernel, dilation, padding, stride):
    """(N, C, H, W) -> (N, C * prod(kernel), L)."""
    pads = tuple((p, p) for p in padding)
    out = out_size(x.shape[2:], kernel, stride, pads, dilation)
    v = windows(_padded(x, pads), kernel, stride, dilation, out)
    r = v.reshape(x.shape[0], x.shape[1] * math.prod(kernel), math.prod(out))
    return r if r.flags.writeable else r.copy()       # (windows of one element need no copying, yet may not share memory)


@quiet
def col2im(cols, *, size, kernel, dilation, padding, stride):
    """(N, C * prod(kernel), L) -> (N, C, *size), overlapping places added up."""
    pads = tuple((p, p) for p in padding)
    out = out_size(size, kernel, stride, pads, dilation)
    n = cols.shape[0]
    return fold(np.ascontiguousarray(cols).reshape((n, cols.shape[1] // math.prod(kernel)) + tuple(kernel) + out),
                size, stride, pads, dilation)
