"""Activation functions and their gradients on arrays.

The code avoids `where` and boolean assignment: their branches take 480 us on 256x512 elements, an
arithmetic pass takes 10-15 us.

A NumPy loop over float32 arrays is faster than a kernel of MindSpore's up to about a million
elements (a MindSpore call takes 15-40 us before it starts). NumPy's exp, log and tanh are
vectorized; `where`, boolean assignment and scalar `maximum` are not.

Figures in the comments are microseconds on two AVX-512 cores (NumPy 1.26 with OpenBLAS, MindSpore
2.10), best of twenty.
"""
import functools
import math

import numpy as np

from mindtorch.backend.cpu import kernel, onednn_eltwise, random, threads
from mindtorch.backend.cpu._numpy_private import SILENT, maximum, minimum
from mindtorch.backend.cpu.half import downcast, upcast
from mindtorch.backend.cpu.host import F32, F64, quiet, vector, zero, zeros_row
from mindtorch.backend.cpu.large import LEAST, PIECE, each, elementwise
from mindtorch.backend.cpu.pointwise import Loop, before, bound, limited, looped, plain
from mindtorch.backend.cpu.special import normal_cdf
from mindtorch.backend.c_kernels import thread_pool

#: Number of elements from which the C loop is faster than NumPy: relu of 4096 elements takes 1.7 us
#: in NumPy vs 3.4 us in C, of 65536 elements 20 us vs 11 us.
_MORE = 1 << 14
_INTS = {F32: np.dtype(np.int32), F64: np.dtype(np.int64)}


def where_or_zero(g, mask):
    """Returns g where the mask is set, else 0 (also where g is inf or nan).

    Masking the bits takes 30 us, `np.where` 480 us.
    """
    ints = _INTS.get(g.dtype)
    if ints is None or not g.ndim or g.shape != mask.shape or not g.flags.c_contiguous or not mask.flags.c_contiguous:
        return np.where(mask, g, np.zeros((), g.dtype))
    m = mask.view(np.int8).astype(ints)
    np.negative(m, out=m)
    m &= g.view(ints)
    return m.view(g.dtype)


def _gradient_factors(mask, d, low):
    """Returns 1 where the mask is set, else `low`."""
    r = mask.astype(d)
    if low != 0:
        r *= d.type(1 - low)
        r += d.type(low)
    return r


# ------------------------------------------------------------------ relu
def _with_zeros(ufunc, x):
    """Computes ufunc(x, 0) against a row of zeros, in one run if x is contiguous."""
    if not x.flags.c_contiguous:
        return ufunc(x, zeros_row(x.shape[-1], x.dtype))
    n = x.size
    if n <= _ROW:
        return ufunc(x.reshape(-1), zeros_row(n, x.dtype)).reshape(x.shape)
    r = np.empty_like(x)
    a, y = x.reshape(-1), r.reshape(-1)
    row = zeros_row(_ROW, x.dtype)

    def part(start, stop):
        for i in range(start * _ROW, min(stop * _ROW, n), _ROW):
            p = a[i:i + _ROW]
            ufunc(p, row[:p.size], out=y[i:i + _ROW])
    pieces = -(-n // _ROW)
    if n < 4 * threads.LARGE:
        part(0, pieces)
    else:
        threads.share(pieces, part)
    return r


def relu(x):
    """Computes max(x, 0); nan stays nan.

    256x512 takes 15 against a row of zeros, 38 against the scalar; MindSpore 30.
    """
    if x.ndim and x.dtype.kind == "f" and x.size > 64:
        if x.size >= thread_pool.LARGE and x.dtype is F32 and x.flags.c_contiguous:
            r = thread_pool.relu(x)
            if r is not None:
                return r
        return _with_zeros(np.maximum, x)
    return maximum(x, zero(x.dtype), extobj=SILENT)


def negative_part(x):
    """Computes min(x, 0); nan stays nan."""
    if x.ndim and x.dtype.kind == "f" and x.size > 64:
        return _with_zeros(np.minimum, x)
    return minimum(x, zero(x.dtype), extobj=SILENT)


relu.pointwise = negative_part.pointwise = True     # type: ignore[attr-defined]


_ROW = 1 << 15
_SIGNED = {F32: (np.dtype(np.int32), 31), F64: (np.dtype(np.int64), 63)}


def where_positive(g, y):
    """Returns g where y > 0, else 0. y must not have negative elements.

    Masking the bits takes 26, `g * (y > 0)` 30, `where` 480 (branches).
    """
    kind = _SIGNED.get(y.dtype)
    if kind is None or g.dtype != y.dtype or g.ndim == 0 or not g.flags.c_contiguous or not y.flags.c_contiguous or \
            g.shape != y.shape:
        return np.where(y <= 0, g.dtype.type(0), g)
    if y.size >= thread_pool.LARGE_WHERE and y.dtype is F32 and g.dtype is F32:
        r = thread_pool.where_positive(g, y)
        if r is not None:
            return r
    ints, shift = kind
    if y.size < 4 * threads.LARGE:
        m = np.negative(y.view(ints))
        m >>= shift
        m &= g.view(ints)
        return m.view(y.dtype)
    r = np.empty_like(y)
    a, b, m = y.reshape(-1).view(ints), g.reshape(-1).view(ints), r.reshape(-1).view(ints)

    def part(start, stop):
        # Three passes over a piece that stays in the cache.
        for i in range(start * _ROW, min(stop * _ROW, y.size), _ROW):
            p = m[i:i + _ROW]
            np.negative(a[i:i + _ROW], out=p)
            p >>= shift
            p &= b[i:i + _ROW]
    threads.share(-(-y.size // _ROW), part)
    return r


where_positive.pointwise = True     # type: ignore[attr-defined]


_ZEROS = {d: np.zeros((), d) for d in (F32, F64)}


def _relu_in_blocks(x):
    r, row = np.empty(x.shape, x.dtype), zeros_row(PIECE, x.dtype)
    a, to = x.reshape(-1), r.reshape(-1)

    def part(k):
        p = a[k * PIECE:(k + 1) * PIECE]
        maximum(row[:p.size], p, to[k * PIECE:(k + 1) * PIECE], extobj=SILENT)
    each(-(-x.size // PIECE), part, x.size)
    return r


def _relu(x):
    """Computes max(x, 0) of up to some thousand elements in one call; nan stays nan.

    256 elements take 0.8 us (`relu`: 1.3 us). Zero is the first operand: of two zeros the
    ufunc returns the second, so -0 stays -0 as in PyTorch. For larger inputs the zeros are a row
    instead of a scalar, because the ufunc processes one element at a time against a scalar.
    """
    z = _ZEROS.get(x.dtype)
    if z is None:
        return relu(x)
    n = x.size
    if n <= 512:
        return maximum(z, x, extobj=SILENT)
    if not x.flags.c_contiguous:
        return maximum(zeros_row(x.shape[-1], x.dtype), x, extobj=SILENT)
    if n < PIECE:
        return maximum(zeros_row(PIECE, x.dtype)[:n], x.reshape(n), extobj=SILENT).reshape(x.shape)
    return _relu_in_blocks(x)


_relu.pointwise = True      # type: ignore[attr-defined]
kernel("relu", looped("relu", least=_MORE)(_relu))


@quiet
@elementwise
def _relu_grad(g, y):
    """Returns g where y > 0 or y is nan, else 0."""
    return where_or_zero(g, np.logical_not(y <= 0))


# 256 elements take 1.4 us in C vs 3.5 us in NumPy, 14400 elements 3.3 us vs 7 us.
kernel("relu_backward", looped("relu_backward")(_relu_grad))
kernel("negative_part", negative_part)


@kernel("rrelu_noise")
def _rrelu_noise(x, *, low, high, generator):
    return random.rrelu_noise(x, low, high, generator)


@kernel("negative_part_backward")
def _negative_part_grad(g, x):
    return where_or_zero(g, np.logical_not(x > 0))


# ------------------------------------------------------------------ piecewise linear
@kernel("leaky_relu")
@looped("leaky_relu", lambda slope: plain(slope))
@quiet
@elementwise
@vector
def leaky_relu(x, *, slope):
    r = x * x.dtype.type(slope)
    if slope > 0:
        # For 0 < slope <= 1 the result is the larger of x and slope * x, for slope > 1 the smaller.
        # (With slope 0, slope * x is nan at infinity.)
        return (np.maximum if slope <= 1 else np.minimum)(r, x, out=r)
    r = np.minimum(x, x.dtype.type(0))
    r *= x.dtype.type(slope)
    r += relu(x)
    return r


@kernel("leaky_relu_backward")
@looped("leaky_relu_backward", lambda slope: plain(slope))
@quiet
@elementwise
@vector
def leaky_relu_grad(g, x, *, slope):
    r = _gradient_factors(x > 0, x.dtype, slope)
    r *= g
    return r


@kernel("hardtanh")
@looped("clamp", lambda low, high: plain(low, high))
@quiet
def hardtanh(x, *, low, high):
    return limited(x, low, high)


@kernel("hardtanh_backward")
@looped("hardtanh_backward", lambda low, high: plain(low, high))
@quiet
@elementwise
def hardtanh_grad(g, x, *, low, high):
    m = x <= low
    m |= x >= high
    return where_or_zero(g, np.logical_not(m))  # where x is nan, the gradient passes


@kernel("threshold")
@looped("threshold", lambda threshold, value: plain(threshold, value))
@quiet
def threshold(x, *, threshold, value):
    d = x.dtype.type
    return np.where(x <= d(threshold), d(value), x)


@kernel("threshold_backward")
@looped("threshold_backward", lambda threshold: plain(threshold))
@quiet
@elementwise
def threshold_grad(g, x, *, threshold):
    return where_or_zero(g, np.logical_not(x <= x.dtype.type(threshold)))


@kernel("hardshrink")
@looped("hardshrink", lambda lambd: plain(lambd))
@quiet
@elementwise
def hardshrink(x, *, lambd):
    return where_or_zero(x, np.logical_not(np.abs(x) <= x.dtype.type(lambd)))


@kernel("shrink_backward")
@looped("shrink_backward", lambda lambd: plain(lambd))
@quiet
@elementwise
def shrink_grad(g, x, *, lambd):
    return where_or_zero(g, np.logical_not(np.abs(x) <= x.dtype.type(lambd)))


@kernel("softshrink")
@looped("softshrink", lambda lambd: plain(lambd))
@quiet
@elementwise
def softshrink(x, *, lambd):
    r = limited(x, -lambd, lambd)
    return np.subtract(x, r, out=r) if r.ndim else x - r


@quiet
@elementwise
@vector
def _hardsigmoid(x):
    d = x.dtype.type
    r = x + d(3)
    bound(r, 0, 6, r) if r.ndim == 1 and r.size <= PIECE else np.clip(r, d(0), d(6), out=r)
    r *= d(1 / 6)
    return r


@kernel("hardsigmoid")
@looped("hardsigmoid")
def hardsigmoid(x):
    return onednn_eltwise.eltwise("hardsigmoid", x, backup=_hardsigmoid) if onednn_eltwise.fits(x) else _hardsigmoid(x)


@quiet
@elementwise
@vector
def _hardsigmoid_grad(g, x):
    m = x > -3
    m &= x < 3
    r = where_or_zero(g, m)
    r *= x.dtype.type(1 / 6)
    return r


@kernel("hardsigmoid_backward")
@looped("hardsigmoid_backward")
def hardsigmoid_grad(g, x):
    return onednn_eltwise.eltwise("hardsigmoid", g, x, backup=_hardsigmoid_grad) if onednn_eltwise.fits(g, x) else _hardsigmoid_grad(g, x)


@quiet
@elementwise
@vector
def _hardswish(x):
    r = _hardsigmoid(x)
    r *= x
    return r


@kernel("hardswish")
@looped("hardswish")
def hardswish(x):
    return onednn_eltwise.eltwise("hardswish", x) if onednn_eltwise.fits(x) else _hardswish(x)


@quiet
@elementwise
@vector
def _hardswish_grad(g, x):
    d = x.dtype.type
    derivative = x * d(1 / 3)
    derivative += d(0.5)
    if x.size < 256:
        derivative[x <= -3] = 0
        derivative[x >= 3] = 1
    else:
        over = x >= 3
        outside = x <= -3
        outside |= over
        derivative = where_or_zero(derivative, np.logical_not(outside, out=outside))
        derivative += over.astype(x.dtype)
    derivative *= g
    return derivative


@kernel("hardswish_backward")
@looped("hardswish_backward")
def hardswish_grad(g, x):
    return onednn_eltwise.eltwise("hardswish", g, x, backup=_hardswish_grad) if onednn_eltwise.fits(g, x) else _hardswish_grad(g, x)


# ------------------------------------------------------------------ gelu
_A = math.sqrt(2 / math.pi)
_B = 0.044715


def _gelu(x, approximate):
    """Returns (gelu, values that its gradient needs)."""
    d = x.dtype.type
    if approximate == "tanh":
        t = x * x
        t *= d(_A * _B)
        t += d(_A)
        t *= x
        np.tanh(t, out=t)
        r = t + d(1)
        r *= x
        r *= d(0.5)
        return r, t
    t = normal_cdf(x)
    return t * x, t


@functools.cache
def _loops():
    """Returns the C loops of ((exact gelu, its gradient), (tanh gelu, its gradient)); see `Loop` in
    `pointwise.py`."""
    return (Loop("gelu"), Loop("gelu_backward")), (Loop("gelu_tanh"), Loop("gelu_tanh_backward"))


@kernel("gelu")
@quiet
@vector
def gelu(x, *, approximate):
    """Computes x * cdf(x), exactly or by tanh.

    Returns (result, values that the gradient needs in at least float32, or None).
    """
    fits = onednn_eltwise.fits(x)
    if not fits and (r := _loops()[approximate == "tanh"][0](x)) is not None:
        return r, None
    if x.itemsize == 2:
        r, t = gelu(upcast(x), approximate=approximate)
        return downcast(r, x.dtype), t
    if fits:
        return onednn_eltwise.eltwise("gelu_tanh" if approximate == "tanh" else "gelu_erf", x), None
    if x.size < LEAST or not x.flags.c_contiguous:
        return _gelu(x, approximate)
    r, t = np.empty(x.shape, x.dtype), np.empty(x.shape, x.dtype)
    flat, to, ts = x.reshape(-1), r.reshape(-1), t.reshape(-1)

    def part(k):
        cut = slice(k * PIECE, (k + 1) * PIECE)
        to[cut], ts[cut] = _gelu(flat[cut], approximate)
    each(-(-x.size // PIECE), part, x.size)
    return r, t


@kernel("gelu_backward")
@quiet
@vector
def gelu_grad(g, x, t, *, approximate):
    """Returns the gradient of gelu."""
    if t is None:
        if onednn_eltwise.fits(x):
            return onednn_eltwise.eltwise("gelu_tanh" if approximate == "tanh" else "gelu_erf", np.ascontiguousarray(g), np.ascontiguousarray(x))
        if (r := _loops()[approximate == "tanh"][1](g, x)) is not None:
            return r
        t = _gelu(x, approximate)[1]
    return _gelu_grad(g, x, t, approximate=approximate)


@elementwise
def _gelu_grad(g, x, t, *, approximate):
    d = x.dtype.type
    if approximate == "tanh":
        # 0.5 (1 + t) + 0.5 x (1 - t^2) A (1 + 3 B x^2)
        u = x * x
        u *= d(3 * _A * _B)
        u += d(_A)
        u *= x
        v = t * t
        v -= d(1)
        u *= v
        np.subtract(t, u, out=u)
        u += d(1)
        u *= d(0.5)
        u *= g
        return u
    u = x * x
    u *= d(-0.5)
    np.exp(u, out=u)
    u *= d(1 / math.sqrt(2 * math.pi))
    u *= x
    u += t
    u *= g
    return u


# ------------------------------------------------------------------ exponential
def sigmoid(x):
    """Computes 1 / (1 + exp(-x))."""
    return onednn_eltwise.eltwise("logistic", x) if onednn_eltwise.fits(x) else _sigmoid(x)


@quiet
@elementwise
@vector
def _sigmoid(x):
    """Computes (1 + tanh(x / 2)) / 2, which cannot overflow and uses a vectorized tanh."""
    h = x.dtype.type(0.5)
    t = x * h
    np.tanh(t, out=t)
    t *= h
    t += h
    return t


def _elu_scalars(*, alpha, scale, input_scale):
    return plain(alpha * scale, scale, input_scale)


@kernel("elu celu")
@looped("elu", _elu_scalars)
@quiet
@elementwise
@vector
def elu(x, *, alpha, scale, input_scale):
    d = x.dtype.type
    r = negative_part(x)
    if input_scale != 1:
        r *= d(input_scale)
    np.expm1(r, out=r)
    r *= d(alpha * scale)
    p = relu(x)
    if scale != 1:
        p *= d(scale)
    r += p
    return r


@kernel("elu_backward celu_backward")
@looped("elu_backward", _elu_scalars)
@quiet
@elementwise
@vector
def elu_grad(g, x, *, alpha, scale, input_scale):
    d = x.dtype.type
    r = negative_part(x)
    if input_scale != 1:
        r *= d(input_scale)
    np.exp(r, out=r)
    r *= d(alpha * scale * input_scale)
    m = (x > 0).astype(x.dtype)
    # For x > 0 the derivative is `scale`; r is alpha * scale * input_scale there.
    m *= d(scale - alpha * scale * input_scale)
    r += m
    if r.size and np.isnan(r.max()):
        r[x != x] = scale  # nan counts as positive: PyTorch tests x <= 0
    r *= g
    return r


def _exp_negative(x):
    """Returns exp(-x)."""
    e = np.negative(x)
    return np.exp(e, out=e)


@quiet
@elementwise
@vector
def _silu(x):
    e = np.exp(-x) if x.dtype.kind == "c" else _exp_negative(x)
    e += x.dtype.type(1)
    return np.divide(x, e, out=e)


@kernel("silu")
@looped("silu")
def silu(x):
    """Computes x / (1 + exp(-x))."""
    return onednn_eltwise.eltwise("swish", x) if onednn_eltwise.fits(x) else _silu(x)


@quiet
@elementwise
@vector
def _silu_grad(g, x):
    one = x.dtype.type(1)
    s = _exp_negative(x)
    s += one
    np.reciprocal(s, out=s)
    r = one - s
    r *= x
    r += one
    r *= s
    r *= g
    return r


@kernel("silu_backward")
@looped("silu_backward")
def silu_grad(g, x):
    """Computes g * s * (1 + x * (1 - s)), where s is the sigmoid of x."""
    return onednn_eltwise.eltwise("swish", g, x) if onednn_eltwise.fits(g, x) else _silu_grad(g, x)


def _mish_parts(x):
    """Returns (exp(x), n) with tanh(log(1 + exp(x))) = n / (n + 2). x is limited to 20."""
    e = np.exp(np.minimum(x, x.dtype.type(20)))
    n = e + x.dtype.type(2)
    n *= e
    return e, n


@kernel("mish")
@looped("mish")
@quiet
@elementwise
@vector
def mish(x):
    _, n = _mish_parts(x)
    n /= n + x.dtype.type(2)
    n *= x
    return n


@kernel("mish_backward")
@looped("mish_backward")
@quiet
@elementwise
@vector
def mish_grad(g, x):
    d = x.dtype.type
    e, n = _mish_parts(x)
    t = n / (n + d(2))
    r = d(1) - t * t
    r *= e / (e + d(1))
    r *= x
    r += t
    r *= g
    return r


@kernel("softplus")
@looped("softplus", lambda beta, threshold: plain(beta, threshold))
@quiet
@elementwise
@vector
def softplus(x, *, beta, threshold):
    d = x.dtype.type
    z = x if beta == 1 else x * d(beta)
    r = np.abs(z)
    np.negative(r, out=r)
    np.exp(r, out=r)
    np.log1p(r, out=r)
    r += relu(z)
    if beta != 1:
        r *= d(1 / beta)
    over = z > d(threshold)
    if over.any():
        np.copyto(r, x, where=over)
    return r


@kernel("softplus_backward")
@looped("softplus_backward", lambda beta, threshold: plain(beta, threshold))
@quiet
@elementwise
@vector
def softplus_grad(g, x, *, beta, threshold):
    d = x.dtype.type
    z = x if beta == 1 else x * d(beta)
    r = _exp_negative(z)
    r += d(1)
    np.reciprocal(r, out=r)
    over = z > d(threshold)
    if over.any():
        r[over] = 1
    r *= g
    return r


@kernel("log_sigmoid")
@looped("log_sigmoid")
@quiet
@elementwise
@vector
def logsigmoid(x):
    r = np.abs(x)
    np.negative(r, out=r)
    np.exp(r, out=r)
    np.log1p(r, out=r)
    return np.subtract(negative_part(x), r, out=r)


@kernel("log_sigmoid_backward")
@looped("log_sigmoid_backward")
@quiet
@elementwise
@vector
def logsigmoid_grad(g, x):
    r = np.exp(x)
    r += x.dtype.type(1)
    return np.divide(g, r, out=r)


_glu, _glu_elementwise_backward = Loop("glu"), Loop("glu_elementwise_backward")


def _halves(x, dim):
    dim %= x.ndim
    n = x.shape[dim] // 2
    before = (slice(None),) * dim
    return x[before + (slice(0, n),)], x[before + (slice(n, None),)]


def _glu_in_c(x, *, dim):
    return _glu(*_halves(x, dim))


def _glu_grad_in_c(g, x, *, dim):
    a, b = _halves(x, dim)
    out = np.empty(x.shape, x.dtype)
    ga, gb = _halves(out, dim)
    return None if g.dtype != x.dtype or _glu(g, b, out=ga) is None or _glu_elementwise_backward(g, a, b, out=gb) is None else out


@kernel("glu")
@before(_glu_in_c)
@quiet
def glu(x, *, dim):
    """Multiplies the first half along `dim` by the sigmoid of the second half."""
    a, b = np.split(x, 2, axis=dim)
    if x.size >= LEAST and x.dtype == F32:
        r = sigmoid(np.ascontiguousarray(b))
        r *= a
        return r
    e = np.exp(-b)
    e += x.dtype.type(1)
    return np.divide(a, e, out=e)


@kernel("glu_backward")
@before(_glu_grad_in_c)
@quiet
def glu_grad(g, x, *, dim):
    one = x.dtype.type(1)
    a, b = np.split(x, 2, axis=dim)
    out = np.empty(x.shape, x.dtype)
    ga, gb = np.split(out, 2, axis=dim)
    s = sigmoid(np.ascontiguousarray(b)) if x.size >= LEAST and x.dtype == F32 else 1 / (one + np.exp(-b))
    np.multiply(g, s, out=ga)
    s *= one - s
    s *= a
    np.multiply(g, s, out=gb)
    return out


# ------------------------------------------------------------------ prelu
@kernel("prelu_kernel")
@looped("prelu")
@quiet
def prelu(x, w):
    if w.size == 1 and x.ndim and x.dtype == w.dtype:
        return leaky_relu(x, slope=w.item())
    r = negative_part(x) * w
    return r + relu(x)


_prelu_in, _prelu_weight_backward = Loop("prelu_backward"), Loop("prelu_weight_backward")


@kernel("prelu_kernel_backward")
@quiet
def prelu_grad(g, x, w, *, needs):
    """Returns (gradient of x, unreduced gradient of w), each None if it is not needed.

    256x256 elements with a row of weights take 43 us, in separate NumPy passes 92 us.
    """
    gx = gw = below = None
    if needs[0]:
        gx = _prelu_in(g, x, w) if g.dtype == x.dtype == w.dtype else None
        if gx is None:
            below = np.logical_not(x > 0)
            gx = np.where(below, g * w, g)
    if needs[1]:
        gw = _prelu_weight_backward(g, x) if g.dtype == x.dtype else None
        if gw is None:
            below = np.logical_not(x > 0) if below is None else below
            gw = np.where(below, g * x, g.dtype.type(0))
    return gx, gw
