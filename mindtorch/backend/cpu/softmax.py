"""Kernels of softmax, log_softmax and their gradients.

Uses C if there is a compiler (`csrc/reduce_softmax.h`). Time in us on one thread, C /
oneDNN or NumPy / PyTorch: 256x256 softmax 30 / 50 / 45, its gradient 11 / 33 / 11, log_softmax 27
/ 73 / 38, its gradient 20 / 54 / 26.
"""
import functools
import math

import numpy as np

from mindtorch.backend.cpu import kernel, large, onednn_eltwise
from mindtorch.backend.cpu.host import F32, ones, quiet
from mindtorch.backend.cpu.sum import row_dot, row_sum, rows


def _in_c(what):
    """Decorator that tries C first, without silencing NumPy (which takes 0.4 us)."""
    def deco(fn):
        by_numpy = quiet(fn)

        @functools.wraps(fn)
        def kernel(x, y=None, *, dim):
            if x.dtype is F32 and x.size >= large.SOME and (r := large.reduce().soft(what, x, dim, y)) is not None:
                return r
            return by_numpy(x, dim=dim) if y is None else by_numpy(x, y, dim=dim)
        return kernel
    return deco


_SOFT, _LOG_SOFT, _SOFT_BACK, _LOG_SOFT_BACK = range(4)


def shifted(a, least):
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
            _, e, s = shifted(m[i:j], 1e-20)
            np.divide(e, s[:, None], out=r[i:j])
        large.each_rows(*m.shape, part)
        return r
    # Below 1e-20, small elements of a row could be lost to underflow.
    _, e, s = shifted(m, 1e-20)
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


@kernel("softmax")
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


@kernel("log_softmax")
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
                y, _, s = shifted(m[i:j], 1e-5)
                np.subtract(y, np.log(s)[:, None], out=to[i:j])
            large.each_rows(*m.shape, part)
            return r
        # A much smaller sum would mean a distant shift, whose rounding would affect the logarithm.
        y, _, s = shifted(m, 1e-5)
        y -= np.log(s)[:, None]
        return y.reshape(a.shape)
    y = a - a.max(axis=dim, keepdims=True)
    y -= np.log(np.exp(y).sum(axis=dim, keepdims=True))
    return y


@kernel("softmax_backward")
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


@kernel("log_softmax_backward")
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
