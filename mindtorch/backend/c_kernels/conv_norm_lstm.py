"""NumPy interface of conv_norm_lstm.c: the kernels of torch.compile.

Convolution kernels are selected by shape, by measurements on the current machine (`conv_choice`).
CPU time in us on one core of an AVX-512 machine, forward / input gradient / weight gradient; in
parentheses the time of eager mode (MindSpore's oneDNN where it can be called, else unfolded rows
and BLAS):

    16x32x32x32 -> 32 3x3     1605 / 1657 / 1508   (1572 / 1692 / 1529)
    64x1x28x28  ->  6 5x5      211 /  280 /  219   ( 321 / 1465 /  275)
    16x3x32x32  -> 16 3x3      173 /  200 /  171   ( 161 /  407 /  127)
    4x3x64x64   -> 64 7x7 /2   455 /  801 /  432   ( 445 / 1997 /  415)
    16x64x8x8   -> 64 3x3      495 /  487 /  432   ( 352 /  346 /  377)

Without oneDNN, eager mode takes two to three times as long as C. An LSTM with 2 layers of 128
units, 32 steps, batch 16, forward and backward: C 4.5 ms vs NumPy 8.8 ms vs PyTorch 5 ms.
"""
import ctypes
import functools

import numpy as np

from mindtorch.backend.cpu import blas, conv as cpu_conv, threads
from mindtorch.backend.c_kernels import build, thread_pool
from mindtorch.backend.cpu.host import address as at

_F32 = np.dtype(np.float32)
_P = ctypes.c_void_p
_L, _I, _F = ctypes.c_long, ctypes.c_int, ctypes.c_float

_ARGUMENTS = {
    "mt_same": [_P, _P, _L],
    "mt_conv": [_P] * 5,
    "mt_conv_weight": [_P] * 5,
    "mt_batch_norm": [_P] * 9 + [_L, _L, _L, _F, _F, _I, _F],
    "mt_batch_norm_grad": [_P] * 10 + [_L, _L, _L, _I, _F],
    "mt_max_pool": [_P, _P, _P, _L, _P, _I],
    "mt_max_pool_grad": [_P, _P, _P, _L, _P],
    "mt_gemm": [_P] * 4 + [_L, _L, _L, _I, _I, _I],
    "mt_width": [],
    "mt_lstm": [_P] * 7 + [_L, _L, _L, _I],
    "mt_lstm_grad": [_P] * 11 + [_L, _L, _L, _I],
}


@functools.cache
def lib():
    """Returns the library with its argument types set, or None."""
    found = build.conv_norm_lstm()
    if found is not None:
        build.declare(found, _ARGUMENTS, ("mt_same", "mt_width"))
    return found


def _ready():
    thread_pool.ready()
    return lib()


def ptr(a):
    """Returns the address of an array's memory; None for None."""
    return None if a is None else at(a)


def flat(a):
    """Returns the array in C order."""
    return a if a.flags.c_contiguous else np.ascontiguousarray(a)


# ------------------------------------------------------------------ convolution
def _phases(geo, phases):
    out = list(geo)
    for oh, ow, first, off, places in phases:
        out += [len(off), oh, ow, first, *off, *places]
    return np.array(out, np.int32)


@functools.lru_cache(1024)
def forward_geometry(n, c, h, w, oc, kernel, s, padding, dilation, out, turned=False):
    """Returns the geometry of y = conv(x): x (n, c, h, w), split into planes by position modulo the
    stride."""
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
    """Returns the geometry of the input gradient: the source (n, c, h, w) is the result's gradient,
    oc the number of input channels, size the spatial size of the input."""
    (top, _), (left, _) = padding

    def axis(k, d, p, extent):
        # position modulo the stride -> (number of positions, [(shift in the source, index in the
        # kernel)])
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
    """Computes conv(x, w) + b."""
    n, c, h, wd = x.shape
    geo = forward_geometry(n, c, h, wd, w.shape[0], w.shape[2:], stride[0], padding, dilation, out)
    y = np.empty((n, w.shape[0]) + out, _F32)
    x, w = flat(x), flat(w)
    _ready().mt_conv(at(geo), at(x), at(w), ptr(b), at(y))
    return y


def conv_input(g, w, size, stride, padding, dilation, bias=None):
    """Computes the gradient of conv's input, (N, C, *size); also the transposed convolution."""
    n, o, h, wd = g.shape
    geo = backward_geometry(n, o, h, wd, w.shape[1], w.shape[2:], stride[0], padding, dilation, tuple(size))
    y = np.empty((n, w.shape[1]) + tuple(size), _F32)
    g, w = flat(g), flat(w)
    _ready().mt_conv(at(geo), at(g), at(w), ptr(bias), at(y))
    return y


def conv_weight(g, x, kernel, stride, padding, dilation, bias=False):
    """Returns (gradient of conv's weight, of its bias or None)."""
    n, c, h, wd = x.shape
    o, out = g.shape[1], g.shape[2:]
    geo = forward_geometry(n, c, h, wd, o, tuple(kernel), stride[0], padding, dilation, out)
    gw, gb = np.empty((o, c) + tuple(kernel), _F32), np.empty(o, _F32) if bias else None
    g, x = flat(g), flat(x)
    _ready().mt_conv_weight(at(geo), at(g), at(x), at(gw), ptr(gb))
    return gw, gb


# ------------------------------------------------------------------ batch norm
def batch_norm(x, w, b, res, rm, rv, eps, momentum, act, slope):
    """Computes training batch norm, then + res, then relu (act 1) or leaky relu (act 2). Returns
    (y, mean, 1 / std); updates the running statistics rm and rv in place."""
    x = flat(x)
    n, c = x.shape[:2]
    y, mean, rstd = np.empty(x.shape, _F32), np.empty(c, _F32), np.empty(c, _F32)
    res = None if res is None else flat(res)
    _ready().mt_batch_norm(at(x), ptr(w), ptr(b), ptr(res), at(y), at(mean), at(rstd), ptr(rm), ptr(rv),
                           n, c, x.size // (n * c), eps, momentum, act, slope)
    return y, mean, rstd


def batch_norm_grad(g, x, y, w, mean, rstd, act, slope, needs):
    """Returns the gradients of x, w, b and res, as far as `needs` requests them (without act the
    gradient of res is g itself: None)."""
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
    """Returns (y, index of each maximum in its plane; -1 where relu clipped it)."""
    x = flat(x)
    shape = x.shape[:-2] + tuple(out)
    y, where = np.empty(shape, _F32), np.empty(shape, np.int32)
    geo = _pool_geometry(*x.shape[-2:], *out, *kernel, *stride, *padding)
    _ready().mt_max_pool(at(x), at(y), at(where), y.size // (out[0] * out[1]), at(geo), relu)
    return y, where


def max_pool_grad(g, where, shape):
    """Returns the gradient of the input, which has the given shape."""
    g = flat(g)
    gx = np.empty(shape, _F32)
    geo = _pool_geometry(*shape[-2:], *g.shape[-2:])
    _ready().mt_max_pool_grad(at(g), at(where), at(gx), g.size // (g.shape[-2] * g.shape[-1]), at(geo))
    return gx


# ------------------------------------------------------------------ matrix products
def gemm_nt(a, b, bias=None, relu=False):
    """Computes a (M, K) @ b (N, K).T + bias, then relu if requested."""
    a, b = flat(a), flat(b)
    c = np.empty((a.shape[0], b.shape[0]), _F32)
    _ready().mt_gemm(at(a), at(b), ptr(bias), at(c), a.shape[0], a.shape[1], b.shape[0], 0, 1, relu)
    return c


def gemm_nn(a, b):
    """Computes a (M, K) @ b (K, N)."""
    a, b = flat(a), flat(b)
    c = np.empty((a.shape[0], b.shape[1]), _F32)
    _ready().mt_gemm(at(a), at(b), None, at(c), a.shape[0], a.shape[1], b.shape[1], 0, 0, 0)
    return c


def gemm_tn(a, b):
    """Computes a (K, M).T @ b (K, N)."""
    a, b = flat(a), flat(b)
    c = np.empty((a.shape[1], b.shape[1]), _F32)
    _ready().mt_gemm(at(a), at(b), None, at(c), a.shape[1], a.shape[0], b.shape[1], 1, 0, 0)
    return c


#: Maximum size of a dimension of a timed product: for the logits of GPT-2, with 50257 columns, the
#: three arrays would take 460 MB.
_TIMED = 2048


def product_choice(m, k, n, ta=False, tb=False):
    """True if C is faster than eager mode's product (oneDNN or BLAS, blas.product) for (m, k) @ (k,
    n), one of them stored transposed.

    OpenBLAS uses AVX2 on processors that it does not recognize. Compared with it, in us on one
    core, C / OpenBLAS / PyTorch: (64, 784) @ (512, 784).T 282 / 535 / 541, its gradients 254 / 525
    / 529 and 228 / 449 / 535; (256, 128) @ (512, 128).T 168 / 309 / 339.
    """
    if m < 8 or m * k * n < WORTH or lib() is None:
        return False
    return _timed_choice(min(m, _TIMED), min(k, _TIMED), min(n, _TIMED), ta, tb)


@functools.lru_cache(4096)
def _timed_choice(m, k, n, ta, tb):
    rs = np.random.RandomState(0)
    a, b = rs.rand(*((k, m) if ta else (m, k))).astype(_F32), rs.rand(*((n, k) if tb else (k, n))).astype(_F32)
    f = gemm_nt if tb else gemm_tn if ta else gemm_nn
    return build.choices.ask(f"product {m} {k} {n} {ta} {tb} {threads.count()}", lambda: f(a, b),
                             lambda: blas.product(a.T if ta else a, b.T if tb else b), by=0.9)


def conv_choice(x, w, stride, padding, dilation, out):
    """Returns for which of forward, input gradient and weight gradient of these shapes C is faster
    than eager mode (cpu/conv.py)."""
    key = f"conv {x} {w} {stride} {padding} {dilation} {threads.count()}"
    rs = np.random.RandomState(0)
    a, b, g = (rs.rand(*s).astype(_F32) for s in (x, w, (x[0], w[0]) + out))
    kw = {"stride": stride, "padding": padding, "dilation": dilation, "groups": 1}
    ask = build.choices.ask
    return (ask(key + " y", lambda: conv_forward(a, b, None, stride, padding, dilation, out), lambda: cpu_conv.conv(a, b, **kw)),
            ask(key + " x", lambda: conv_input(g, b, x[2:], stride, padding, dilation),
                lambda: cpu_conv.conv_transposed(g, b, size=x[2:], **kw)),
            ask(key + " w", lambda: conv_weight(g, a, w[2:], stride, padding, dilation)[0],
                lambda: cpu_conv.conv_weight(g, a, kernel=w[2:], **kw)))


def product(a, b, ta=False, tb=False):
    """Computes a @ b, with at most one of them transposed, by C or like eager mode."""
    m, k = a.shape[::-1] if ta else a.shape
    if product_choice(m, k, b.shape[0] if tb else b.shape[1], ta, tb):
        return gemm_nt(a, b) if tb else gemm_tn(a, b) if ta else gemm_nn(a, b)
    return blas.product(a.T if ta else a, b.T if tb else b)


#: Below these sizes there is little to gain, and results stay bitwise identical to eager mode:
#: multiplications of a matrix product, multiplications of a convolution, elements of a batch norm.
WORTH, WORTH_CONV, WORTH_NORM = 200000, 100000, 4096


# ------------------------------------------------------------------ LSTM
def vector_width():
    """Returns the number of floats in a vector register of this machine."""
    return lib().mt_width()


def lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, *, steps, reverse):
    """Maps x (steps * B, I), h0 and c0 (B, H) to (y (steps * B, H), h, c, and for lstm_grad: y,
    gates, cell states, tanh of the cell states)."""
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
    return y.copy(), y[last].copy(), c[last].copy(), y, gates, c, tc


def lstm_grad(gy, gh, gc, x, h0, c0, w_ih, w_hh, y, gates, c, tc, *, steps, reverse, needs):
    """Returns the gradients of x, h0, c0, w_ih, w_hh, b_ih, b_hh."""
    h0, c0 = flat(h0), flat(c0)
    b, n = h0.shape
    gy, gh, gc = (None if g is None else flat(g) for g in (gy, gh, gc))
    w = flat(w_hh)
    d, dh, dc = np.empty((steps * b, 4 * n), _F32), np.empty((b, n), _F32), np.empty((b, n), _F32)
    _ready().mt_lstm_grad(ptr(gy), ptr(gh), ptr(gc), at(gates), at(w), at(c0), at(c), at(tc), at(d), at(dh), at(dc), steps, b, n, reverse)
    before = np.concatenate((y[b:], h0) if reverse else (h0, y[:-b])) if needs[4] else None
    gb = d.sum(axis=0) if needs[5] or needs[6] else None
    return (product(d, w_ih) if needs[0] else None, dh if needs[1] else None, dc if needs[2] else None,
            product(d, x, ta=True) if needs[3] else None, product(d, before, ta=True) if needs[4] else None, gb if needs[5] else None,
            None if not needs[6] else gb.copy() if needs[5] else gb)
