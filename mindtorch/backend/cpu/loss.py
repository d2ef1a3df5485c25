"""Loss kernels on CPU: classification losses and CTC as single passes forward and backward."""
import math

import numpy as np

from mindtorch.backend.cpu import heavy as cpu, large, threads
from mindtorch.backend.cpu.pointwise import bound
from mindtorch.backend.cpu.host import quiet


# ------------------------------------------------------------------ negative log likelihood
def nll(x, *, target, weight, total, reduction, counted):
    """-x at each sample's class, times the sample's weight; (N, C, *spatial) with targets (N, *spatial)."""
    v = np.take_along_axis(x, target[:, None], 1)[:, 0]
    v = v * weight
    if reduction == "none":
        return -v if counted is None else -np.where(counted, v, v.dtype.type(0))
    s = -v.sum(dtype=x.dtype)
    if counted is not None and not np.isfinite(s):
        # An ignored sample does not count, be it infinite.
        s = -np.where(counted, v, v.dtype.type(0)).sum(dtype=x.dtype)
    if reduction == "mean":
        s = s / x.dtype.type(total) if total else x.dtype.type(np.nan)
    return np.asarray(s, x.dtype)


def nll_grad(g, *, target, weight, total, reduction, counted, size):
    """Gradient of nll."""
    r = np.zeros(size, g.dtype)
    v = -g * weight
    if reduction == "mean":
        v = v / g.dtype.type(total)
    v = np.broadcast_to(v, target.shape)
    if counted is not None:
        # With every sample ignored the loss is nan and its gradient nought.
        v = np.where(counted, v, v.dtype.type(0))
    np.put_along_axis(r, target[:, None], v[:, None].astype(g.dtype, copy=False), 1)
    return r


# ------------------------------------------------------------------ cross entropy
@quiet
def cross_entropy(x, *, target, weight, classes, total, smoothing, reduction, ctx):
    """Cross entropy of logits (N, C) in one pass; 64x10 takes 15 us (MindSpore's ops.cross_entropy 2200, torch 12).

    weight: of each sample (0: ignored); classes: of each class, or None; total: what a mean is divided by.
    """
    x = np.ascontiguousarray(x)
    n = x.shape[0]
    if x.size >= large.LEAST and not smoothing and x.dtype.kind == "f":
        e, s, v = np.empty(x.shape, x.dtype), np.empty(n, x.dtype), np.empty(n, x.dtype)

        def part(i, j):
            y, e[i:j], here = cpu._shifted(x[i:j], 1e-5)
            s[i:j] = here
            np.subtract(np.log(here), y[np.arange(j - i), target[i:j]], out=v[i:j])
        large.each_rows(n, x.shape[1], part)
    else:
        y, e, s = cpu._shifted(x, 1e-5)
        logs = np.log(s)
        v = logs - y[np.arange(n), target]
    ctx["e"], ctx["s"] = e, s
    v *= weight
    if ctx["counted"] is not None and not np.isfinite(v).all():
        v = np.where(ctx["counted"], v, v.dtype.type(0))
    if smoothing:
        # The smooth part weighs all classes: sum of w_c (log s - y_c).
        if classes is None:
            m = logs * x.dtype.type(x.shape[1]) - cpu.row_sum(y)
        else:
            m = logs * classes.sum() - threads.matmul(y, classes)
        m *= weight != 0 if classes is not None else weight
        if classes is not None:
            m *= ctx["mask"]
        v *= x.dtype.type(1 - smoothing)
        v += m * x.dtype.type(smoothing / x.shape[1])
    if reduction == "none":
        return v
    r = v.sum(dtype=x.dtype)
    if reduction == "mean":
        r = r / x.dtype.type(total) if total else x.dtype.type(np.nan)
    return np.asarray(r, x.dtype)


@quiet
def cross_entropy_grad(g, *, target, weight, classes, total, smoothing, reduction, ctx):
    """Gradient of cross_entropy: sum of weights times softmax, less the weights themselves."""
    e, s = ctx["e"], ctx["s"]
    d = e.dtype.type
    n, c = e.shape
    a = weight * g
    if reduction == "mean":
        a = a / d(total)
        if not total and ctx["counted"] is not None:
            a = np.where(ctx["counted"], a, d(0))
    a = np.broadcast_to(a, (n,)).astype(e.dtype)
    if not smoothing:
        by = (a / s)[:, None]
        if e.size >= large.LEAST:
            r = np.empty(e.shape, e.dtype)
            large.each_rows(n, c, lambda i, j: np.multiply(e[i:j], by[i:j], out=r[i:j]))
        else:
            r = e * by
        r[np.arange(n), target] -= a
        return r
    b = g * (ctx["mask"] if classes is not None else weight)
    if reduction == "mean":
        b = b / d(total) if total else b * d(0)
    b = np.broadcast_to(b * d(smoothing / c), (n,))
    a = a * d(1 - smoothing)
    whole = d(c) if classes is None else classes.sum()
    r = e * ((a + b * whole) / s)[:, None]
    r -= b[:, None] * (d(1) if classes is None else classes)
    r[np.arange(n), target] -= a
    return r


# ------------------------------------------------------------------ CTC
def _log_add(*terms):
    m = terms[0]
    for t in terms[1:]:
        m = np.maximum(m, t)
    safe = np.where(np.isinf(m), 0, m)
    s = np.exp(terms[0] - safe)
    for t in terms[1:]:
        s = s + np.exp(t - safe)
    return np.where(np.isinf(m), m, safe + np.log(s))


def _extended(labels, blank, dtype):
    """Labels with blanks between them, and where a step may skip the blank before it."""
    n, s = labels.shape
    ext = np.full((n, 2 * s + 1), blank, np.int64)
    ext[:, 1::2] = labels
    skip = np.full((n, 2 * s + 1), -np.inf, dtype)
    if s > 1:
        skip[:, 3::2] = np.where(labels[:, 1:] != labels[:, :-1], 0, -np.inf)
    return ext, skip


def _shift(a, k):
    r = np.full_like(a, -np.inf)
    if k > 0:
        r[:, k:] = a[:, :-k]
    else:
        r[:, :k] = a[:, -k:]
    return r


@quiet
def ctc(lp, *, labels, input_lengths, target_lengths, blank, ctx):
    """CTC loss of log probabilities (T, N, C) for labels (N, S): one number for each sample."""
    t_max, n, _ = lp.shape
    ext, skip = _extended(labels, blank, lp.dtype)
    width = ext.shape[1]
    alpha = np.full((t_max, n, width), -np.inf, lp.dtype)
    rows = np.arange(n)[:, None]
    nll = np.full(n, np.inf, lp.dtype)
    if t_max:
        first = lp[0][rows, ext]
        alpha[0, :, 0] = first[:, 0]
        if width > 1:
            alpha[0, :, 1] = np.where(target_lengths > 0, first[:, 1], -np.inf)
    for t in range(1, t_max):
        a = alpha[t - 1]
        s1 = _shift(a, 1)
        s2 = _shift(a, 2) + skip if width > 2 else np.full_like(a, -np.inf)
        alpha[t] = _log_add(a, s1, s2) + lp[t][rows, ext]
    r = np.arange(n)
    last = np.maximum(input_lengths - 1, 0)
    if t_max:
        end = 2 * target_lengths
        a1 = alpha[last, r, end]
        a2 = np.where(target_lengths > 0, alpha[last, r, np.maximum(end - 1, 0)], -np.inf)
        nll = -_log_add(a1, a2)
    # Without a step only the empty label sequence is possible.
    nll = np.where(input_lengths == 0, np.where(target_lengths == 0, 0, np.inf), nll).astype(lp.dtype)
    ctx["alpha"], ctx["nll"], ctx["ext"], ctx["skip"] = alpha, nll, ext, skip
    return nll


@quiet
def ctc_grad(g, lp, *, input_lengths, target_lengths, zero_infinity, ctx):
    """Gradient of ctc, in torch's form: that of logits behind a log_softmax, exp(lp) less the share of each class."""
    t_max, n, c = lp.shape
    alpha, nll, ext, skip = ctx["alpha"], ctx["nll"], ctx["ext"], ctx["skip"]
    width = ext.shape[1]
    rows = np.arange(n)[:, None]
    r = np.arange(n)
    beta = np.full((n, width), -np.inf, lp.dtype)
    out = np.zeros(lp.shape, lp.dtype)
    cols = np.arange(width)[None, :]
    valid = cols <= 2 * target_lengths[:, None]
    skip_from = _shift(skip, -2) if width > 2 else np.full_like(skip, -np.inf)
    for t in range(t_max - 1, -1, -1):
        here = lp[t][rows, ext]
        s1 = _shift(beta, -1)
        s2 = _shift(beta, -2) + skip_from if width > 2 else np.full_like(beta, -np.inf)
        b = _log_add(beta, s1, s2) + here
        start = np.full((n, width), -np.inf, lp.dtype)
        start[r, 2 * target_lengths] = here[r, 2 * target_lengths]
        k = np.maximum(2 * target_lengths - 1, 0)
        start[r, k] = np.where(target_lengths > 0, here[r, k], start[r, k])
        ends = (t == input_lengths - 1)[:, None]
        beta = np.where(ends, start, b)
        beta = np.where(valid & (t < input_lengths)[:, None], beta, -np.inf)
        both = alpha[t] + beta
        share = np.zeros((n, c), lp.dtype)
        live = (t < input_lengths)[:, None]
        # alpha and beta both hold this step's own probability.
        p = np.where(live & valid, np.exp(both - here + nll[:, None]), 0)
        np.add.at(share, (rows, ext), np.where(np.isnan(p), 0, p) if zero_infinity else p)
        out[t] = np.where(live, np.exp(lp[t]) - share, 0)
    bad = np.isinf(nll)
    scale = g[None, :, None]
    if zero_infinity:
        return np.where(bad[None, :, None], 0, out * scale).astype(lp.dtype)
    out *= scale
    if bad.any():
        out[:, bad] = np.where((np.arange(t_max)[:, None] < input_lengths[bad])[..., None], np.nan, 0)
    return out


# ------------------------------------------------------------------ pointwise losses: value and slope
def _clip(d, most):
    if d.ndim == 1 and d.size <= large.PIECE:
        return bound(d, -most, most, d)
    return np.clip(d, d.dtype.type(-most), d.dtype.type(most), out=d)


def _below(d, most):
    if d.ndim == 1 and 64 <= d.size <= large.PIECE:
        return bound(d, None, most, np.empty_like(d))
    return np.minimum(d, d.dtype.type(most))


def smooth_l1(x, t, beta):
    d = np.abs(x - t)
    m = _below(d, beta)
    d -= m * x.dtype.type(0.5)
    d *= m
    d *= x.dtype.type(1 / beta)
    return d


def smooth_l1_slope(x, t, beta):
    d = x - t
    d *= x.dtype.type(1 / beta)
    return _clip(d, 1)


def huber(x, t, delta):
    d = np.abs(x - t)
    m = _below(d, delta)
    d -= m * x.dtype.type(0.5)
    d *= m
    return d


def huber_slope(x, t, delta):
    d = x - t
    return _clip(d, delta)


def mse(x, t, _):
    d = x - t
    d *= d
    return d


def mse_slope(x, t, _):
    d = x - t
    d *= x.dtype.type(2)
    return d


def l1(x, t, _):
    d = x - t
    return np.abs(d) if d.dtype.kind == "c" else np.abs(d, out=d)


def l1_slope(x, t, _):
    """The sign; 0 for nan, as in torch.  A difference of two masks: np.sign branches on every element (1e6: 4 ms and 0.3)."""
    d = x - t
    if d.dtype.kind == "c":
        return np.sign(d, out=d)
    r = np.greater(d, 0).view(np.int8)
    r -= np.less(d, 0).view(np.int8)
    return r.astype(d.dtype)


def bce(x, t, _):
    d = x.dtype.type
    a = np.maximum(np.log(x), d(-100))
    b = np.maximum(np.log1p(-x), d(-100))
    a -= b
    a *= t
    a += b
    return np.negative(a, out=a)


def bce_slope(x, t, _):
    d = x.dtype.type
    v = (d(1) - x) * x
    np.maximum(v, d(1e-12), out=v)
    r = x - t
    r /= v
    return r


def bce_target_slope(x, t, _):
    # The limits of the loss do not hold for its slope.
    r = np.log1p(-x)
    r -= np.log(x)
    return r


def bce_logits(x, t, _):
    """max(x, 0) - x t + log(1 + exp(-|x|))."""
    r = np.abs(x)
    np.negative(r, out=r)
    np.exp(r, out=r)
    np.log1p(r, out=r)
    r += cpu.relu(x)
    r -= x * t
    return r


def bce_logits_slope(x, t, _):
    r = cpu.sigmoid(x)
    r -= t
    return r


def bce_logits_target_slope(x, t, _):
    return np.negative(x) if t.shape == x.shape else np.broadcast_to(-x, np.broadcast_shapes(x.shape, t.shape)).copy()


def reduce_values(v, reduction):
    """An elementwise loss as it is, or its mean or sum."""
    if reduction == "none":
        return v
    s = v.sum(dtype=v.dtype)
    if reduction == "mean":
        s = s / v.dtype.type(v.size) if v.size else v.dtype.type(math.nan)
    return np.asarray(s, v.dtype)


def in_pieces(x, t):
    """Whether an elementwise loss of these arrays is done in pieces."""
    return x.size >= large.LEAST and x.shape == t.shape and x.dtype == t.dtype and x.dtype.kind == "f" and \
        x.flags.c_contiguous and t.flags.c_contiguous


def value_in_pieces(value, x, t, param, reduction):
    """An elementwise loss of large arrays, or its mean or sum."""
    n = large.PIECE
    count = -(-x.size // n)
    a, b = x.reshape(-1), t.reshape(-1)
    if reduction == "none":
        r = np.empty(x.shape, x.dtype)
        to = r.reshape(-1)

        def part(k):
            to[k * n:(k + 1) * n] = value(a[k * n:(k + 1) * n], b[k * n:(k + 1) * n], param)
        large.each(count, part, x.size)
        return r
    sums = np.empty(count)

    def part_sum(k):
        v = value(a[k * n:(k + 1) * n], b[k * n:(k + 1) * n], param)
        sums[k] = np.add.reduce(cpu.row_sum(v.reshape(4, -1)) if v.size == n else v)
    large.each(count, part_sum, x.size)
    s = sums.sum()
    return np.asarray(s / x.size if reduction == "mean" else s, x.dtype)


def slope_in_pieces(slope, x, t, param, scale):
    """Gradient of an elementwise loss of large arrays times `scale` (a number or an array of their shape)."""
    n = large.PIECE
    r = np.empty(x.shape, x.dtype)
    a, b, to = x.reshape(-1), t.reshape(-1), r.reshape(-1)
    by = np.broadcast_to(scale, x.shape).reshape(-1) if scale.ndim else None

    def part(k):
        cut = slice(k * n, (k + 1) * n)
        np.multiply(slope(a[cut], b[cut], param), scale if by is None else by[cut], out=to[cut])
    large.each(-(-x.size // n), part, x.size)
    return r
