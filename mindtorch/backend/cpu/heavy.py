"""Expensive kernels on CPU: NumPy arrays in, NumPy arrays out, each in the fastest way that was
measured.

Figures in the comments are microseconds on two AVX-512 cores (NumPy 1.26 with OpenBLAS, MindSpore
2.10), best of twenty. The main results:
- NumPy's loops over float32 arrays are faster than MindSpore's kernels up to about a million
  elements (a MindSpore call takes 15-40 before it starts). NumPy's exp, log and tanh are
  vectorized; `where`, boolean assignment and scalar `maximum` are not.
- A matrix product with a vector of ones is the fastest sum: 256x512 over rows takes 6, `sum` 20,
  MindSpore 33.
- Convolutions and large matrix products call oneDNN directly (`onednn.py`); small products use
  OpenBLAS. No MindSpore kernel runs here.
"""
import functools
import math

import numpy as np

from mindtorch.backend.cpu import large, onednn_eltwise, threads
from mindtorch.backend.native import pool
from mindtorch.backend.cpu import _numpy_private
from mindtorch.backend.cpu._numpy_private import SILENT, quiet
from mindtorch.backend.cpu.half import downcast, upcast
from mindtorch.backend.cpu.blas import product, product_plus

F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)
_maximum, _minimum = _numpy_private.maximum, _numpy_private.minimum


def _kept_rows(make):
    """Caches the results of make(n, dtype) for reuse. The arrays are read-only."""
    @functools.lru_cache(256)
    def row(n, dtype):
        r = make(n, dtype)
        r.flags.writeable = False
        return r
    return row


#: Cached vectors of ones and of zeros.
ones, zeros_row = _kept_rows(np.ones), _kept_rows(np.zeros)
#: Cached 0-dim zero and one of a dtype: with a Python scalar, ufuncs take twice as long (10
#: elements: 0.55 vs 1 us).
zero, one = (functools.partial(_kept_rows(lambda n, dtype: np.full((), n, dtype)), n) for n in (0, 1))


def vector(kernel):
    """Wraps a kernel so that it receives 0-dim arrays as vectors of one element.

    NumPy's operators turn 0-dim arrays into scalars, which are not writable.
    """
    @functools.wraps(kernel)
    def at_least_1d(x, *args, **kwargs):
        if x.ndim:
            return kernel(x, *args, **kwargs)
        args = [a.reshape(1) if a.__class__ is np.ndarray and not a.ndim else a for a in args]
        r = kernel(x.reshape(1), *args, **kwargs)
        return tuple(None if a is None else a.reshape(()) for a in r) if r.__class__ is tuple else r.reshape(())
    return at_least_1d


# ------------------------------------------------------------------ matrix products
def matmul(a, b, *, ta, tb):
    """Returns the matrix product over the last two dims.

    Operands are transposed first if `ta`/`tb`; leading dims broadcast.
    """
    if ta:
        a = a.swapaxes(-1, -2)
    if tb:
        b = b.swapaxes(-1, -2)
    return product(a, b)


def rows(a):
    """Reshapes `a` to a matrix over its last dim (a view if strides allow)."""
    if a.ndim == 2:
        return a
    n = a.shape[-1]
    return a.reshape(math.prod(a.shape[:-1]), n)


def linear(x, w, b):
    """Computes x @ w.T + b over the last dim of x."""
    y = product(rows(x), w.T) if b is None else product_plus(rows(x), w.T, b)
    return y if x.ndim == 2 else y.reshape(x.shape[:-1] + (w.shape[0],))


def matmul_rows(x, w):
    """Computes x @ w over the last dim of x."""
    y = product(rows(x), w)
    return y if x.ndim == 2 else y.reshape(x.shape[:-1] + (w.shape[1],))


def fold(a, b):
    """Sums outer products over all leading dims: (..., M), (..., N) -> (M, N)."""
    return product(rows(a).T, rows(b))


@quiet
def _sum(m, axis):
    return m.sum(axis=axis)


def column_sum(a):
    """Sums over all dims but the last."""
    m = rows(a)
    if m.dtype.kind != "f" or not m.flags.c_contiguous:
        return _sum(m, 0)
    if m.size >= large.FEW and (r := large.rows().reduce(m, (0,), False, large.rows().SUM)) is not None:
        return r  # 256x128 takes 2.3, the matrix product 3.7; 4096x64 on two threads 8 and 18
    return threads.matmul(ones(m.shape[0], m.dtype), m)


def row_sum(m):
    """Sums each row of a matrix."""
    if m.dtype.kind != "f" or not m.flags.c_contiguous:
        return _sum(m, 1)
    return threads.matmul(m, ones(m.shape[1], m.dtype))


def row_dot(a, b):
    """Returns the dot product of each row of a with the same row of b.

    einsum takes 11, multiply and sum 30. On 2x5 einsum takes 1.7, the product with ones 0.7.
    """
    if 1 < a.size <= 1 << 10 and a.dtype.kind == "f" and a.dtype is b.dtype:
        return np.multiply(a, b).dot(ones(a.shape[1], a.dtype))
    return np.einsum("ij,ij->i", a, b)


@quiet
def channel_sums(a, c, hw):
    """Sums (N, C, ...) over all dims but the channels."""
    if a.dtype.kind == "f" and a.flags.c_contiguous:
        if hw > 1:
            return threads.matmul(a.reshape(-1, hw), ones(hw, a.dtype)).reshape(-1, c).sum(axis=0)
        return threads.matmul(ones(a.shape[0], a.dtype), a.reshape(-1, c))
    return a.reshape(a.shape[0], c, hw).sum(axis=(0, 2))


# ------------------------------------------------------------------ softmax
#
# Uses C if there is a compiler (`backend/native/_rows_soft.h`). Time in us on one thread, C /
# oneDNN or NumPy / PyTorch: 256x256 softmax 30 / 50 / 45, its gradient 11 / 33 / 11, log_softmax 27
# / 73 / 38, its gradient 20 / 54 / 26.
def _in_c(what):
    """Decorator that tries C first, without silencing NumPy (which takes 0.4 us)."""
    def deco(fn):
        by_numpy = quiet(fn)

        @functools.wraps(fn)
        def kernel(x, y=None, *, dim):
            if x.dtype is F32 and x.size >= large.SOME and (r := large.rows().soft(what, x, dim, y)) is not None:
                return r
            return by_numpy(x, dim=dim) if y is None else by_numpy(x, y, dim=dim)
        return kernel
    return deco


_SOFT, _LOG_SOFT, _SOFT_BACK, _LOG_SOFT_BACK = range(4)


def _shifted(a, least):
    """Returns (a - shift, its exponential, row sums) of a C-contiguous matrix.

    The overall maximum is the shift of every row if each row's sum is then at least `least`: on
    1024x64 the row maxima take 60, the overall maximum takes 4. Otherwise each row is shifted by
    its own maximum.
    """
    # (argmax and item take a third of the time of max on small arrays; nan counts as the maximum)
    top = a.item(a.argmax())
    if math.isfinite(top):
        y = np.subtract(a, np.array(top, a.dtype))
        # (oneDNN's exponential does not handle nan, but there is none here; it takes half of the
        # time)
        e = onednn_eltwise.eltwise("exp", y) if y.size >= large.PIECE and onednn_eltwise.fits(y) else np.exp(y)
        s = e.dot(ones(e.shape[1], e.dtype)) if e.size <= 1 << 13 else row_sum(e)
        if s.item(s.argmin()) >= least:
            return y, e, s
    y = a - a.max(axis=1, keepdims=True)
    e = np.exp(y)
    return y, e, row_sum(e)


def _softmax_rows(m):
    if m.size >= large.LEAST:
        r = np.empty(m.shape, m.dtype)

        def part(i, j):
            _, e, s = _shifted(m[i:j], 1e-20)
            np.divide(e, s[:, None], out=r[i:j])
        large.each_rows(*m.shape, part)
        return r
    # Below 1e-20, small elements of a row could be lost to underflow.
    _, e, s = _shifted(m, 1e-20)
    e /= s[:, None]
    return e


def _softmax_grad_rows(g, y):
    if g.size >= large.LEAST:
        out = np.empty(g.shape, g.dtype)

        def part(i, j):
            r = g[i:j] - row_dot(g[i:j], y[i:j])[:, None]
            np.multiply(r, y[i:j], out=out[i:j])
        large.each_rows(*g.shape, part)
        return out
    r = g - row_dot(g, y)[:, None]
    r *= y
    return r


def _log_softmax_grad_rows(g, y):
    if g.size >= large.LEAST:
        out = np.empty(g.shape, g.dtype)

        def part(i, j):
            r = np.exp(y[i:j])
            r *= row_sum(g[i:j])[:, None]
            np.subtract(g[i:j], r, out=out[i:j])
        large.each_rows(*g.shape, part)
        return out
    r = np.exp(y)
    r *= row_sum(g)[:, None]
    return np.subtract(g, r, out=r)


@_in_c(_SOFT)
def softmax(a, *, dim):
    """Computes exp(a) / sum(exp(a)) along `dim`. 1024x64 takes 46 (MindSpore 70, PyTorch 20)."""
    if not a.size or a.ndim == 0:
        return np.asarray(np.exp(a - a), a.dtype) if a.size else a.copy()
    if a.dtype == F32 and dim in (-1, a.ndim - 1):
        m = rows(np.ascontiguousarray(a))
        if onednn_eltwise.rows_fit(m):
            return onednn_eltwise.softmax("softmax", m, backup=_softmax_rows).reshape(a.shape)
        return _softmax_rows(m).reshape(a.shape)
    y = a - a.max(axis=dim, keepdims=True)
    np.exp(y, out=y)
    y /= y.sum(axis=dim, keepdims=True)
    return y


@_in_c(_LOG_SOFT)
def log_softmax(a, *, dim):
    """Computes a - log(sum(exp(a))) along `dim`."""
    if not a.size or a.ndim == 0:
        return np.asarray(a - a, a.dtype) if a.size else a.copy()
    if a.dtype == F32 and dim in (-1, a.ndim - 1):
        m = rows(np.ascontiguousarray(a))
        if a.size >= large.LEAST:
            r = np.empty(a.shape, F32)
            to = rows(r)

            def part(i, j):
                y, _, s = _shifted(m[i:j], 1e-5)
                np.subtract(y, np.log(s)[:, None], out=to[i:j])
            large.each_rows(*m.shape, part)
            return r
        # A much smaller sum would mean a distant shift, whose rounding would affect the logarithm.
        y, _, s = _shifted(m, 1e-5)
        y -= np.log(s)[:, None]
        return y.reshape(a.shape)
    y = a - a.max(axis=dim, keepdims=True)
    y -= np.log(np.exp(y).sum(axis=dim, keepdims=True))
    return y


@_in_c(_SOFT_BACK)
def softmax_grad(g, y, *, dim):
    """Returns the gradient of softmax, computed from its result y."""
    if g.ndim and dim in (-1, g.ndim - 1) and g.dtype.kind == "f":
        g2, y2 = rows(np.ascontiguousarray(g)), rows(np.ascontiguousarray(y))
        if onednn_eltwise.rows_fit(g2, y2):
            return onednn_eltwise.softmax("softmax", g2, y2, backup=_softmax_grad_rows).reshape(g.shape)
        return _softmax_grad_rows(g2, y2).reshape(g.shape)
    if not g.ndim:
        return np.asarray((g - g * y) * y, g.dtype)
    r = g - (g * y).sum(axis=dim, keepdims=True)
    r *= y
    return r


@_in_c(_LOG_SOFT_BACK)
def log_softmax_grad(g, y, *, dim):
    """Returns the gradient of log_softmax, computed from its result y."""
    if not g.ndim:
        return np.asarray(g - np.exp(y) * g, g.dtype)
    if dim in (-1, g.ndim - 1) and g.dtype.kind == "f" and g.flags.c_contiguous and y.flags.c_contiguous and g.dtype == y.dtype:
        g2, y2 = rows(g), rows(y)
        if onednn_eltwise.rows_fit(g2, y2):
            return onednn_eltwise.softmax("log_softmax", g2, y2, backup=_log_softmax_grad_rows).reshape(g.shape)
        return _log_softmax_grad_rows(g2, y2).reshape(g.shape)
    r = np.exp(y)
    r *= g.sum(axis=dim, keepdims=True)
    return np.subtract(g, r, out=r)


# ------------------------------------------------------------------ erf, gelu
#
# erf(x) = tanh(x p(x^2)), with p fitted to an error of 1.7e-7 (relative 2.5e-7) over all float32
# values. 131072 elements take 130; scipy.special.erf 1470, MindSpore's Erf 606, PyTorch 67.
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
@large.elementwise
@vector
def erf(x):
    """Computes the error function to the last digits of the dtype (float32 or float64)."""
    if x.dtype == F32:
        return _tanh_odd(x, _ERF32)
    from scipy.special import erf as exact
    return exact(x)


@quiet
@vector
def normal_cdf(x):
    """Returns the probability that a standard normal sample is below x."""
    if x.dtype == F32:
        r = _tanh_odd(x, _CDF32)
        r += np.float32(1)
        r *= np.float32(0.5)
        return r
    from scipy.special import ndtr
    return ndtr(x)


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
    from mindtorch.backend.cpu.pointwise import Loop
    return (Loop("gelu"), Loop("gelu_backward")), (Loop("gelu_tanh"), Loop("gelu_tanh_backward"))


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
    if x.size < large.LEAST or not x.flags.c_contiguous:
        return _gelu(x, approximate)
    r, t = np.empty(x.shape, x.dtype), np.empty(x.shape, x.dtype)
    flat, to, ts = x.reshape(-1), r.reshape(-1), t.reshape(-1)

    def part(k):
        cut = slice(k * large.PIECE, (k + 1) * large.PIECE)
        to[cut], ts[cut] = _gelu(flat[cut], approximate)
    large.each(-(-x.size // large.PIECE), part, x.size)
    return r, t


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


@large.elementwise
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


# ------------------------------------------------------------------ pointwise activations
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
        if x.size >= pool.LARGE and x.dtype is F32 and x.flags.c_contiguous:
            r = pool.relu(x)
            if r is not None:
                return r
        return _with_zeros(np.maximum, x)
    return _maximum(x, zero(x.dtype), extobj=SILENT)


def negative_part(x):
    """Computes min(x, 0); nan stays nan."""
    if x.ndim and x.dtype.kind == "f" and x.size > 64:
        return _with_zeros(np.minimum, x)
    return _minimum(x, zero(x.dtype), extobj=SILENT)


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
    if y.size >= pool.LARGE_WHERE and y.dtype is F32 and g.dtype is F32:
        r = pool.where_positive(g, y)
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


def sigmoid(x):
    """Computes 1 / (1 + exp(-x))."""
    return onednn_eltwise.eltwise("logistic", x) if onednn_eltwise.fits(x) else _sigmoid(x)


@quiet
@large.elementwise
@vector
def _sigmoid(x):
    """Computes (1 + tanh(x / 2)) / 2, which cannot overflow and uses a vectorized tanh."""
    h = x.dtype.type(0.5)
    t = x * h
    np.tanh(t, out=t)
    t *= h
    t += h
    return t


# ------------------------------------------------------------------ embedding
@quiet
def embedding_grad(g, index, count):
    """Adds the rows of g (K, D) into zeros (count, D) at `index`.

    256 rows of 128 into 1000 rows: add.at over single elements 44, over rows 168, scipy.sparse
    product 40, a loop 121, sort and reduceat 106, one-hot product 383. MindSpore's
    UnsortedSegmentSum takes 23, but its threads then spin for 6 ms and compete with OpenBLAS's: the
    next matrix products take twice as long.
    """
    d = g.shape[1]
    if g.size:
        out = np.zeros((count, d), g.dtype)
        if large.along().rows(2, out, index, 0, g):
            return out
    if d >= 384:
        # Row by row, 1024 rows of 1024 take 600 us; element by element 2500 us.
        out, add = np.zeros((count, d), g.dtype), np.add
        for i, row in zip(index.tolist(), g):
            line = out[i]
            add(line, row, line)
        return out
    out = np.zeros(count * d, g.dtype)
    np.add.at(out, (index[:, None] * d + np.arange(d)).reshape(-1), g.reshape(-1))
    return out.reshape(count, d)
