"""NumPy-facing side of the C kernels (see _kernels.c, native_build.py).

CPU time in us on one core of an AVX-512 machine, C kernel / NumPy and BLAS (cpu_conv.py):
"""
import ctypes
import functools
import time

import numpy as np

from mindtorch.backend import native_build, threads

_F32 = np.dtype(np.float32)
_P = ctypes.c_void_p
_L, _I, _F = ctypes.c_long, ctypes.c_int, ctypes.c_float

_ARGUMENTS = {
    "mt_threads": [_I],
    "mt_conv": [_P] * 5,
    "mt_conv_weight": [_P] * 5,
    "mt_batch_norm": [_P] * 9 + [_L, _L, _L, _F, _F, _I, _F],
    "mt_batch_norm_grad": [_P] * 10 + [_L, _L, _L, _I, _F],
    "mt_max_pool": [_P, _P, _P, _L, _P, _I],
    "mt_max_pool_grad": [_P, _P, _P, _L, _P],
    "mt_gemm": [_P] * 4 + [_L, _L, _L, _I, _I, _I],
    "mt_lstm": [_P] * 7 + [_L, _L, _L, _I],
    "mt_lstm_grad": [_P] * 11 + [_L, _L, _L, _I],
}


@functools.cache
def lib():
    """The library with its argument types set, or None."""
    found = native_build.library()
    if found is not None:
        for name, types in _ARGUMENTS.items():
            f = getattr(found, name)
            f.argtypes, f.restype = types, None
    return found


_set = None


def _ready():
    global _set
    n = threads.count()
    if n != _set:
        lib().mt_threads(n)
        _set = n
    return lib()


def at(a):
    """Address of an array's memory (half the time of `a.ctypes.data`)."""
    return a.__array_interface__["data"][0]


def ptr(a):
    """The same, or None for None."""
    return None if a is None else a.__array_interface__["data"][0]


def flat(a):
    """The array in C order."""
    return a if a.flags.c_contiguous else np.ascontiguousarray(a)


# ------------------------------------------------------------------ convolution
def _phases(geo, phases):
    out = list(geo)
    for oh, ow, first, off, places in phases:
        out += [len(off), oh, ow, first, *off, *places]
    return np.array(out, np.int32)


@functools.lru_cache(1024)
def forward_geometry(n, c, h, w, oc, kernel, s, padding, dilation, out, turned=False):
    """Geometry of y = conv(x): x (n, c, h, w) in planes split by the stride's remainders."""
    (kh, kw), (dh, dw), (oh, ow) = kernel, dilation, out
    hp, wp = (kh - 1) * dh // s + oh, (kw - 1) * dw // s + ow
    off, places = [], []
    for i in range(kh):
        for j in range(kw):
            y, x = i * dh, j * dw
            off.append((y % s * s + x % s) * hp * wp + y // s * wp + x // s)
            places.append(i * kw + j)
    g = [c, h, w, s, padding[0][0], padding[1][0], hp, wp, n, oc, oh, ow, 1, 1, kh * kw, int(turned)]
    return _phases(g, [(oh, ow, 0, off, places)])


@functools.lru_cache(1024)
def backward_geometry(n, c, h, w, oc, kernel, s, padding, dilation, size):
    """Geometry of the input's gradient: source (n, c, h, w) is the result's gradient, oc the input's channels, size its extent."""
    (top, _), (left, _) = padding

    def axis(k, d, p, extent):
        # remainder r of the position -> (how many positions, [(shift in the source, place in the kernel)])
        found = []
        for r in range(s):
            taps = [((r + p - i * d) // s, i) for i in range(k) if (r + p - i * d) % s == 0]
            found.append((max(0, -(-(extent - r) // s)), taps))
        low = min((e for _, taps in found for e, _ in taps), default=0)
        pad = max(0, -low)
        high = max((count - 1 + e for count, taps in found for e, _ in taps if count), default=0)
        return found, pad, high + pad + 1
    ys, pt, hp = axis(kernel[0], dilation[0], top, size[0])
    xs, pl, wp = axis(kernel[1], dilation[1], left, size[1])
    phases = []
    for ry, (oh, ty) in enumerate(ys):
        for rx, (ow, tx) in enumerate(xs):
            off = [(ey + pt) * wp + ex + pl for ey, _ in ty for ex, _ in tx]
            places = [i * kernel[1] + j for _, i in ty for _, j in tx]
            if not off or not oh or not ow:
                off, places, oh_, ow_ = [], [], 0, 0
            else:
                oh_, ow_ = oh, ow
            phases.append((oh_, ow_, ry * size[1] + rx, off, places))
    g = [c, h, w, 1, pt, pl, hp, wp, n, oc, size[0], size[1], s, s * s, kernel[0] * kernel[1], 1]
    return _phases(g, phases)


def conv_forward(x, w, b, stride, padding, dilation, out):
    """y = conv(x, w) + b."""
    n, c, h, wd = x.shape
    geo = forward_geometry(n, c, h, wd, w.shape[0], w.shape[2:], stride[0], padding, dilation, out)
    y = np.empty((n, w.shape[0]) + out, _F32)
    x, w = flat(x), flat(w)
    _ready().mt_conv(at(geo), at(x), at(w), ptr(b), at(y))
    return y


def conv_input(g, w, size, stride, padding, dilation, bias=None):
    """Gradient of conv's input, (N, C, *size); also the transposed convolution."""
    n, o, h, wd = g.shape
    geo = backward_geometry(n, o, h, wd, w.shape[1], w.shape[2:], stride[0], padding, dilation, tuple(size))
    y = np.empty((n, w.shape[1]) + tuple(size), _F32)
    g, w = flat(g), flat(w)
    _ready().mt_conv(at(geo), at(g), at(w), ptr(bias), at(y))
    return y


def conv_weight(g, x, kernel, stride, padding, dilation, bias=False):
    """(gradient of conv's weight, of its bias or None)."""
    n, c, h, wd = x.shape
    o, out = g.shape[1], g.shape[2:]
    geo = forward_geometry(n, c, h, wd, o, tuple(kernel), stride[0], padding, dilation, out)
    gw, gb = np.empty((o, c) + tuple(kernel), _F32), np.empty(o, _F32) if bias else None
    g, x = flat(g), flat(x)
    _ready().mt_conv_weight(at(geo), at(g), at(x), at(gw), ptr(gb))
    return gw, gb


# ------------------------------------------------------------------ batch norm
def batch_norm(x, w, b, res, rm, rv, eps, momentum, act, slope):
    """(y, mean, 1 / std) of training batch norm, then + res, then relu (act 1) or leaky relu (2); rm and rv move in place."""
    x = flat(x)
    n, c = x.shape[:2]
    y, mean, rstd = np.empty(x.shape, _F32), np.empty(c, _F32), np.empty(c, _F32)
    res = None if res is None else flat(res)
    _ready().mt_batch_norm(at(x), ptr(w), ptr(b), ptr(res), at(y), at(mean), at(rstd), ptr(rm), ptr(rv),
                           n, c, x.size // (n * c), eps, momentum, act, slope)
    return y, mean, rstd


def batch_norm_grad(g, x, y, w, mean, rstd, act, slope, needs):
    """Gradients of x, w, b and res (without act that is g itself: None); `needs` tells which are wanted."""
    g, x = flat(g), flat(x)
    n, c = x.shape[:2]
    gx = np.empty(x.shape, _F32)
    gw = np.empty(c, _F32) if needs[1] else None
    gb = np.empty(c, _F32) if needs[2] else None
    gr = np.empty(x.shape, _F32) if needs[3] and act else None
    _ready().mt_batch_norm_grad(at(g), at(x), ptr(y), ptr(w), at(mean), at(rstd), at(gx), ptr(gw),
                                ptr(gb), ptr(gr), n, c, x.size // (n * c), act, slope)
    return gx, gw, gb, gr


# ------------------------------------------------------------------ max pooling
@functools.lru_cache(256)
def _pool_geometry(*numbers):
    return np.array(numbers, np.int32)


def max_pool(x, out, kernel, stride, padding, relu):
    """(y, place of each maximum in its plane, -1 where relu cut it off)."""
    x = flat(x)
    shape = x.shape[:-2] + tuple(out)
    y, where = np.empty(shape, _F32), np.empty(shape, np.int32)
    geo = _pool_geometry(*x.shape[-2:], *out, *kernel, *stride, *padding)
    _ready().mt_max_pool(at(x), at(y), at(where), y.size // (out[0] * out[1]), at(geo), relu)
    return y, where


def max_pool_grad(g, where, shape):
    """Gradient of its input, of that shape."""
    g = flat(g)
    gx = np.empty(shape, _F32)
    geo = _pool_geometry(*shape[-2:], *g.shape[-2:])
    _ready().mt_max_pool_grad(at(g), at(where), at(gx), g.size // (g.shape[-2] * g.shape[-1]), at(geo))
    return gx


# ------------------------------------------------------------------ matrix products
def gemm_nt(a, b, bias=None, relu=False):
    """a (M, K) @ b (N, K).T + bias, then relu."""
    a, b = flat(a), flat(b)
    c = np.empty((a.shape[0], b.shape[0]), _F32)
    _ready().mt_gemm(at(a), at(b), ptr(bias), at(c), a.shape[0], a.shape[1], b.shape[0], 0, 1, relu)
    return c


def gemm_nn(a, b):
    """a (M, K) @ b (K, N)."""
    a, b = flat(a), flat(b)
    c = np.empty((a.shape[0], b.shape[1]), _F32)
    _ready().mt_gemm(at(a), at(b), None, at(c), a.shape[0], a.shape[1], b.shape[1], 0, 0, 0)
    return c


def gemm_tn(a, b):
    """a (K, M).T @ b (K, N)."""
    a, b = flat(a), flat(b)
    c = np.empty((a.shape[1], b.shape[1]), _F32)
    _ready().mt_gemm(at(a), at(b), None, at(c), a.shape[1], a.shape[0], b.shape[1], 1, 0, 0)
    return c


@functools.cache
def products_are_faster():
    """Whether the C products beat NumPy's BLAS here (timed once a process, a millisecond): OpenBLAS knows some processors better
    than others.  On the machine of the figures above, us on one core, C / OpenBLAS / torch: (64, 784) @ (512, 784).T
    282 / 535 / 541, its gradients 254 / 525 / 529 and 228 / 449 / 535; (256, 128) @ (512, 128).T 168 / 309 / 339."""
    if lib() is None:
        return False
    a, b = np.ones((64, 256), _F32), np.ones((192, 256), _F32)

    def best(f):
        times = []
        for _ in range(7):
            start = time.perf_counter()
            f()
            times.append(time.perf_counter() - start)
        return min(times)
    return best(lambda: gemm_nt(a, b)) < 0.95 * best(lambda: np.matmul(a, b.T))


def product(a, b, ta=False, tb=False):
    """a @ b with one of them transposed or none, by C or BLAS."""
    n = b.shape[0] if tb else b.shape[1]
    if a.size * n >= WORTH and a.shape[1 if ta else 0] >= 8 and products_are_faster():
        return gemm_nt(a, b) if tb else gemm_tn(a, b) if ta else gemm_nn(a, b)
    return np.matmul(a.T if ta else a, b.T if tb else b)


WORTH = 200000         # multiplications from which on the call pays


# ------------------------------------------------------------------ LSTM
def vector_width():
    """Floats in a vector of this machine."""
    return lib().mt_width()


def lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, *, steps, reverse, ctx):
    """x (steps * B, I), h0 and c0 (B, H) -> (y (steps * B, H), h, c)."""
    b, n = h0.shape
    gates = product(x, w_ih, tb=True)
    if b_ih is not None:
        gates += b_ih + b_hh
    h0, c0 = flat(h0), flat(c0)
    y, c, tc = (np.empty((steps * b, n), _F32) for _ in range(3))
    w = np.ascontiguousarray(w_hh.T)
    _ready().mt_lstm(at(gates), at(w), at(h0), at(c0), at(y), at(c), at(tc),
                     steps, b, n, reverse)
    last = slice(0, b) if reverse else slice((steps - 1) * b, None)
    ctx.update(gates=gates, c=c, tc=tc, y=y, h0=h0, c0=c0)
    return y.copy(), y[last].copy(), c[last].copy()


def lstm_grad(gy, gh, gc, x, w_ih, w_hh, *, steps, reverse, ctx, needs):
    """Gradients of x, h0, c0, w_ih, w_hh, b_ih, b_hh."""
    h0, y = ctx["h0"], ctx["y"]
    b, n = h0.shape
    gy, gh, gc = (None if g is None else flat(g) for g in (gy, gh, gc))
    w = flat(w_hh)
    d, dh, dc = np.empty((steps * b, 4 * n), _F32), np.empty((b, n), _F32), np.empty((b, n), _F32)
    _ready().mt_lstm_grad(ptr(gy), ptr(gh), ptr(gc), at(ctx["gates"]), at(w), at(ctx["c0"]), at(ctx["c"]),
                          at(ctx["tc"]), at(d), at(dh), at(dc), steps, b, n, reverse)
    before = np.concatenate((y[b:], h0) if reverse else (h0, y[:-b])) if needs[4] else None
    gb = d.sum(axis=0) if needs[5] or needs[6] else None
    return (product(d, w_ih) if needs[0] else None, dh if needs[1] else None, dc if needs[2] else None,
            product(d, x, ta=True) if needs[3] else None, product(d, before, ta=True) if needs[4] else None, gb if needs[5] else None,
            None if not needs[6] else gb.copy() if needs[5] else gb)
