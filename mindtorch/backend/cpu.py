"""Heavy kernels on CPU: NumPy arrays in, NumPy arrays out, each the fastest way that was measured.

Figures in the comments are microseconds on two AVX-512 cores (NumPy 1.26 with OpenBLAS, MindSpore 2.10), best of twenty.
What they taught, in short:
- NumPy's loops over float32 arrays beat MindSpore's kernels up to about a million elements (a MindSpore call costs 15-40
  before it starts), and its exp, log and tanh are vectorised; `where`, boolean assignment and scalar `maximum` are not.
- A matrix product with a vector of ones is the fastest sum: 256x512 over rows takes 6, `sum` 20, MindSpore 33.
- Convolutions are MindSpore's (oneDNN), matrix products OpenBLAS's.
"""
import functools
import math

import numpy as np

from mindtorch.backend import threads
from mindtorch.backend.host import quiet
from mindtorch.backend.product import product

#: What `extobj=` takes for no warnings (0.03 us a call, `quiet` 0.3): torch gives inf and nan silently.
SILENT = [8192, 0, None]
F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)

_ones = {}


def ones(n, dtype):
    """A vector of ones, kept for reuse: read it, never write it."""
    key = (n, dtype)
    r = _ones.get(key)
    if r is None:
        if len(_ones) > 256:
            _ones.clear()
        r = _ones[key] = np.ones(n, dtype)
        r.flags.writeable = False
    return r


_zeros = {}


def zeros_row(n, dtype):
    """A vector of zeros, kept for reuse: read it, never write it."""
    key = (n, dtype)
    r = _zeros.get(key)
    if r is None:
        if len(_zeros) > 256:
            _zeros.clear()
        r = _zeros[key] = np.zeros(n, dtype)
        r.flags.writeable = False
    return r


def vector(kernel):
    """The kernel with 0-dim arrays passed as vectors of one (NumPy's operators turn them into scalars, which are not
    writable)."""
    @functools.wraps(kernel)
    def at_least_1d(x, *args, **kwargs):
        if x.ndim:
            return kernel(x, *args, **kwargs)
        args = [a.reshape(1) if a.__class__ is np.ndarray and not a.ndim else a for a in args]
        r = kernel(x.reshape(1), *args, **kwargs)
        return tuple(a.reshape(()) for a in r) if r.__class__ is tuple else r.reshape(())
    return at_least_1d


# ------------------------------------------------------------------ matrix products
def matmul(a, b, *, ta, tb):
    """Matrix product over the last two dims, operands transposed first if `ta`/`tb`; leading dims broadcast."""
    if ta:
        a = a.swapaxes(-1, -2)
    if tb:
        b = b.swapaxes(-1, -2)
    return product(a, b)


def rows(a):
    """`a` as a matrix of its last dim (a view where strides allow)."""
    if a.ndim == 2:
        return a
    n = a.shape[-1]
    return a.reshape(math.prod(a.shape[:-1]), n)


def linear(x, w, b):
    """x @ w.T + b over the last dim of x."""
    y = product(rows(x), w.T)
    if b is not None:
        np.add(y, b, out=y, extobj=SILENT)
    return y if x.ndim == 2 else y.reshape(x.shape[:-1] + (w.shape[0],))


def matmul_rows(x, w):
    """x @ w over the last dim of x."""
    y = product(rows(x), w)
    return y if x.ndim == 2 else y.reshape(x.shape[:-1] + (w.shape[1],))


def fold(a, b):
    """Sum of outer products over all leading dims: (..., M), (..., N) -> (M, N)."""
    return product(rows(a).T, rows(b))


@quiet
def _sum(m, axis):
    return m.sum(axis=axis)


def column_sum(a):
    """Sum over all dims but the last."""
    m = rows(a)
    if m.dtype.kind != "f" or not m.flags.c_contiguous:
        return _sum(m, 0)
    return threads.matmul(ones(m.shape[0], m.dtype), m)


def row_sum(m):
    """Sum of each row of a matrix."""
    if m.dtype.kind != "f" or not m.flags.c_contiguous:
        return _sum(m, 1)
    return threads.matmul(m, ones(m.shape[1], m.dtype))


def row_dot(a, b):
    """Scalar product of each row of a with that of b (einsum 11, multiply and sum 30)."""
    return np.einsum("ij,ij->i", a, b)


# ------------------------------------------------------------------ softmax
def _shifted(a, least):
    """(a - shift, exp of it, row sums) of a C-contiguous matrix.

    The largest of all elements serves as the shift of every row if that leaves each row's sum at `least` or more: the
    maxima of rows cost 60 on 1024x64 where the overall maximum costs 4.
    """
    top = a.max()
    if math.isfinite(top):
        y = a - top
        e = np.exp(y)
        s = row_sum(e)
        if s.min() >= least:
            return y, e, s
    y = a - a.max(axis=1, keepdims=True)
    e = np.exp(y)
    return y, e, row_sum(e)


@quiet
def softmax(a, *, dim):
    """exp(a) / sum(exp(a)) along `dim`.  1024x64: 46; MindSpore 70, torch 20."""
    if not a.size or a.ndim == 0:
        return np.asarray(np.exp(a - a), a.dtype) if a.size else a.copy()
    if a.dtype == F32 and dim in (-1, a.ndim - 1):
        m = rows(np.ascontiguousarray(a))
        # Below 1e-20 a row's small members could be lost to underflow.
        _, e, s = _shifted(m, 1e-20)
        e /= s[:, None]
        return e.reshape(a.shape)
    y = a - a.max(axis=dim, keepdims=True)
    np.exp(y, out=y)
    y /= y.sum(axis=dim, keepdims=True)
    return y


@quiet
def log_softmax(a, *, dim):
    """a - log(sum(exp(a))) along `dim`."""
    if not a.size or a.ndim == 0:
        return np.asarray(a - a, a.dtype) if a.size else a.copy()
    if a.dtype == F32 and dim in (-1, a.ndim - 1):
        m = rows(np.ascontiguousarray(a))
        # A far smaller sum would mean a far shift, whose rounding would show in the logarithm.
        y, _, s = _shifted(m, 1e-5)
        y -= np.log(s)[:, None]
        return y.reshape(a.shape)
    y = a - a.max(axis=dim, keepdims=True)
    y -= np.log(np.exp(y).sum(axis=dim, keepdims=True))
    return y


@quiet
def softmax_grad(g, y, *, dim):
    """Gradient of softmax from its result y."""
    if g.ndim and dim in (-1, g.ndim - 1) and g.dtype.kind == "f":
        g2, y2 = rows(np.ascontiguousarray(g)), rows(np.ascontiguousarray(y))
        r = g2 - row_dot(g2, y2)[:, None]
        r *= y2
        return r.reshape(g.shape)
    if not g.ndim:
        return np.zeros_like(g)
    r = g - (g * y).sum(axis=dim, keepdims=True)
    r *= y
    return r


@quiet
def log_softmax_grad(g, y, *, dim):
    """Gradient of log_softmax from its result y."""
    if not g.ndim:
        return np.zeros_like(g)
    r = np.exp(y)
    if dim in (-1, g.ndim - 1) and g.dtype.kind == "f" and g.flags.c_contiguous and r.flags.c_contiguous:
        r2 = rows(r)
        r2 *= row_sum(rows(g))[:, None]
    else:
        r *= g.sum(axis=dim, keepdims=True)
    return np.subtract(g, r, out=r)


# ------------------------------------------------------------------ erf, gelu
# erf(x) = tanh(x p(x^2)) with p fitted so that the error is 1.7e-7 (relative 2.5e-7) over all float32.  131072 elements
# take 130; scipy.special.erf 1470, MindSpore's Erf 606, torch 67.
_ERF = [1.1283792741847753, 0.10276905650201111, -0.0001918316368721847, -0.0006197845373959508, 8.763742678908294e-05,
        -5.66850547918735e-06, 1.4185437486975784e-07]
_ERF32 = [np.float32(c) for c in _ERF]
_CDF32 = [np.float32(c / 2 ** k / math.sqrt(2)) for k, c in enumerate(_ERF)]


def _tanh_odd(x, coef):
    t = x * x
    q = t * coef[6]
    for c in coef[5:0:-1]:
        q += c
        q *= t
    q += coef[0]
    q *= x
    return np.tanh(q, out=q)


@quiet
@vector
def erf(x):
    """The error function, exact to the last digits of the dtype (float32 or float64)."""
    if x.dtype == F32:
        return _tanh_odd(x, _ERF32)
    from scipy.special import erf as exact
    return exact(x)


@quiet
@vector
def normal_cdf(x):
    """Probability that a standard normal number is below x."""
    if x.dtype == F32:
        r = _tanh_odd(x, _CDF32)
        r += np.float32(1)
        r *= np.float32(0.5)
        return r
    from scipy.special import ndtr
    return ndtr(x)


_A = math.sqrt(2 / math.pi)
_B = 0.044715


@quiet
@vector
def gelu(x, *, approximate, ctx):
    """x * cdf(x), exactly or by tanh; what the gradient needs is left in ctx["t"]."""
    d = x.dtype.type
    if approximate == "tanh":
        t = x * x
        t *= d(_A * _B)
        t += d(_A)
        t *= x
        np.tanh(t, out=t)
        ctx["t"] = t
        r = t + d(1)
        r *= x
        r *= d(0.5)
        return r
    ctx["t"] = t = normal_cdf(x)
    return t * x


@quiet
@vector
def gelu_grad(g, x, *, approximate, ctx):
    """Gradient of gelu."""
    d = x.dtype.type
    t = ctx["t"]
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


# ------------------------------------------------------------------ pointwise activations
def _with_zeros(ufunc, x):
    """ufunc(x, 0) against a row of zeros, in one run where x is contiguous."""
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
    """max(x, 0), NaN kept.  256x512: against a row of zeros 15, against the scalar 38, MindSpore 30."""
    if x.ndim and x.dtype.kind == "f" and x.size > 64:
        return _with_zeros(np.maximum, x)
    return np.maximum(x, x.dtype.type(0))


def negative_part(x):
    """min(x, 0), NaN kept."""
    if x.ndim and x.dtype.kind == "f" and x.size > 64:
        return _with_zeros(np.minimum, x)
    return np.minimum(x, x.dtype.type(0))


_ROW = 1 << 15
_SIGNED = {F32: (np.dtype(np.int32), 31), F64: (np.dtype(np.int64), 63)}


def where_positive(g, y):
    """g where y > 0, else 0, for y without negative members: by bits 26, `g * (y > 0)` 30, `where` 480 (branches)."""
    kind = _SIGNED.get(y.dtype)
    if kind is None or g.dtype != y.dtype or g.ndim == 0 or not g.flags.c_contiguous or not y.flags.c_contiguous or \
            g.shape != y.shape:
        return np.where(y > 0, g, g.dtype.type(0))
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


@quiet
@vector
def sigmoid(x):
    """1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2, which cannot overflow and has a vectorised tanh."""
    h = x.dtype.type(0.5)
    t = x * h
    np.tanh(t, out=t)
    t *= h
    t += h
    return t


def sigmoid_exact(x):
    """The logistic function with full relative precision also where it is tiny (tanh's form rounds at 6e-8)."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype, copy=False)


# ------------------------------------------------------------------ normalisation
_KEEP = 1 << 20       # up to this many elements the normalised input is kept for the backward pass rather than made again


@quiet
def layer_norm(x, w, b, *, n, eps, ctx, own=True):
    """Normalises the trailing `n` elements.  256x128 with weight and bias: 36; MindSpore 160, torch 16.

    own=False: without weight and bias the result may be what ctx keeps for the gradient (the caller will not write it).
    """
    m = x.reshape(-1, n) if x.size else x.reshape(0 if not n else x.size // n, n)
    if not m.flags.c_contiguous:
        m = np.ascontiguousarray(m)
    d = m.dtype.type
    xc = m - (row_sum(m) * d(1 / n))[:, None] if n else m.copy()
    var = row_dot(xc, xc)
    var *= d(1 / n) if n else d(0)
    var += d(eps)
    np.sqrt(var, out=var)
    rstd = np.reciprocal(var, out=var)
    xc *= rstd[:, None]
    ctx["rstd"] = rstd
    if m.size <= _KEEP:
        ctx["xhat"] = xc
    elif n:
        ctx["mean"] = row_sum(m) * d(1 / n)
    if w is not None:
        y = xc * w.reshape(-1)
        if b is not None:
            y += b.reshape(-1)
    elif b is not None:
        y = xc + b.reshape(-1)
    else:
        y = xc.copy() if own and "xhat" in ctx else xc
    return y.reshape(x.shape)


def layer_norm_grad(g, x, w, *, n, ctx, needs):
    """(gradient of x, of w, of b)."""
    g2 = np.ascontiguousarray(g).reshape(-1, n) if g.size else np.zeros((0, n), g.dtype)
    rstd = ctx["rstd"]
    xhat = ctx.get("xhat")
    if xhat is None:
        xhat = x.reshape(-1, n) - ctx["mean"][:, None]
        xhat *= rstd[:, None]
    gx = gw = gb = None
    gxh = None
    if needs[1]:
        gxh = g2 * xhat
        gw = column_sum(gxh)
    if needs[2]:
        gb = column_sum(g2)
    if needs[0]:
        d = g2.dtype.type
        if w is None:
            h = g2
            c2 = row_dot(g2, xhat) if gxh is None else row_sum(gxh)
        else:
            wf = w.reshape(-1)
            h = g2 * wf
            # Rows of g * xhat are at hand if the weight has a gradient: their product with w is the row sum wanted.
            c2 = row_dot(h, xhat) if gxh is None else threads.matmul(gxh, wf)
        k = d(1 / n) if n else d(0)
        c1 = row_sum(h)
        c1 *= k
        c2 *= k
        gx = xhat * c2[:, None]
        np.subtract(h, gx, out=gx)
        gx -= c1[:, None]
        gx *= rstd[:, None]
        gx = gx.reshape(g.shape)
    return gx, None if gw is None else gw.reshape(w.shape), None if gb is None else gb


def rms_norm(x, w, *, n, eps, ctx):
    """x / sqrt(mean(x^2) + eps) * w over the trailing `n` elements."""
    m = np.ascontiguousarray(x).reshape(-1, n) if x.size else np.zeros((0, n), x.dtype)
    d = m.dtype.type
    var = row_dot(m, m)
    var *= d(1 / n) if n else d(0)
    var += d(eps)
    np.sqrt(var, out=var)
    rstd = ctx["rstd"] = np.reciprocal(var, out=var)
    y = m * rstd[:, None]
    if w is not None:
        y *= w.reshape(-1)
    return y.reshape(x.shape)


def rms_norm_grad(g, x, w, *, n, ctx, needs):
    """(gradient of x, of w)."""
    g2 = np.ascontiguousarray(g).reshape(-1, n) if g.size else np.zeros((0, n), g.dtype)
    m = np.ascontiguousarray(x).reshape(-1, n) if x.size else np.zeros((0, n), x.dtype)
    rstd = ctx["rstd"]
    d = g2.dtype.type
    xhat = m * rstd[:, None]
    gw = gx = None
    if needs[1]:
        gw = column_sum(g2 * xhat).reshape(w.shape)
    if needs[0]:
        h = g2 if w is None else g2 * w.reshape(-1)
        c = row_dot(h, xhat)
        c *= d(1 / n) if n else d(0)
        xhat *= c[:, None]
        gx = np.subtract(h, xhat, out=xhat)
        gx *= rstd[:, None]
        gx = gx.reshape(g.shape)
    return gx, gw


def _per_channel(v, hw):
    """A value per channel as a row over channels and positions: 16x16x1024 minus such a row 29, minus (16, 1) 47."""
    return v if hw == 1 else np.repeat(v, hw)


@quiet
def channel_sums(a, c, hw):
    """Sum of (N, C, ...) over all but the channels."""
    if a.dtype.kind == "f" and a.flags.c_contiguous:
        if hw > 1:
            return threads.matmul(a.reshape(-1, hw), ones(hw, a.dtype)).reshape(-1, c).sum(axis=0)
        return threads.matmul(ones(a.shape[0], a.dtype), a.reshape(-1, c))
    return a.reshape(a.shape[0], c, hw).sum(axis=(0, 2))


def batch_norm_train(x, w, b, *, eps, ctx):
    """Normalises each channel of (N, C, ...) by its own mean and variance.  16x16x32x32: 130; MindSpore 489, torch 156.

    ctx gets mean, var (biased), rstd and what the gradient needs.
    """
    n, c = x.shape[:2]
    hw = math.prod(x.shape[2:])
    x = np.ascontiguousarray(x)
    d = x.dtype.type
    count = n * hw
    if not x.size:
        ctx["mean"] = ctx["var"] = np.full(c, np.nan, x.dtype)
        ctx["rstd"] = ctx["mean"]
        return x.copy()
    mean = channel_sums(x, c, hw)
    mean *= d(1 / count)
    xc = x.reshape(n, c * hw) - _per_channel(mean, hw)
    x3 = xc.reshape(n, c, hw)
    var = np.einsum("ncl,ncl->c", x3, x3)
    var *= d(1 / count)
    rstd = 1 / np.sqrt(var + d(eps))
    ctx["mean"], ctx["var"], ctx["rstd"] = mean, var, rstd
    if x.size <= _KEEP:
        ctx["xc"] = xc
    scale = rstd if w is None else rstd * w
    y = np.multiply(xc, _per_channel(scale, hw), out=None if "xc" in ctx else xc)
    if b is not None:
        y += _per_channel(b, hw)
    return y.reshape(x.shape)


def batch_norm_train_grad(g, x, w, *, ctx, needs):
    """(gradient of x, of w, of b)."""
    n, c = x.shape[:2]
    hw = math.prod(x.shape[2:])
    g = np.ascontiguousarray(g)
    d = g.dtype.type
    if not x.size:
        return g.copy(), np.zeros(c, g.dtype), np.zeros(c, g.dtype)
    xc = ctx.get("xc")
    if xc is None:
        xc = x.reshape(n, c * hw) - _per_channel(ctx["mean"], hw)
    rstd = ctx["rstd"]
    gb = channel_sums(g, c, hw)
    gw = np.einsum("ncl,ncl->c", g.reshape(n, c, hw), xc.reshape(n, c, hw))
    gw *= rstd
    gx = None
    if needs[0]:
        count = n * hw
        scale = rstd if w is None else rstd * w
        # gx = scale * (g - mean(g) - xhat * mean(g * xhat))
        gx = xc * _per_channel(gw * rstd * d(-1 / count), hw)
        gx += g.reshape(n, c * hw)
        gx -= _per_channel(gb * d(1 / count), hw)
        gx *= _per_channel(scale, hw)
        gx = gx.reshape(g.shape)
    return gx, gw if needs[1] else None, gb if needs[2] else None


def batch_norm_eval(x, w, b, mean, var, *, eps):
    """Normalises each channel by given statistics: one multiply and one add."""
    n, c = x.shape[:2]
    hw = math.prod(x.shape[2:])
    d = x.dtype.type
    scale = 1 / np.sqrt(var + d(eps))
    if w is not None:
        scale = scale * w
    shift = -mean * scale
    if b is not None:
        shift += b
    y = np.ascontiguousarray(x).reshape(n, c * hw) * _per_channel(scale, hw)
    y += _per_channel(shift, hw)
    return y.reshape(x.shape)


# ------------------------------------------------------------------ embedding
@quiet
def embedding_grad(g, index, count):
    """Adds the rows of g (K, D) into zeros (count, D) at `index`.

    256 rows of 128 into 1000: add.at over single elements 44, over rows 168, scipy.sparse product 40, a loop 121, sort and
    reduceat 106, one-hot product 383.  MindSpore's UnsortedSegmentSum takes 23, but its threads then spin for 6 ms beside
    those of OpenBLAS: the matrix products after it take twice as long.
    """
    d = g.shape[1]
    out = np.zeros(count * d, g.dtype)
    np.add.at(out, (index[:, None] * d + np.arange(d)).reshape(-1), g.reshape(-1))
    return out.reshape(count, d)
