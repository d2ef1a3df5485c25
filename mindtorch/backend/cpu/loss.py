"""Loss kernels on CPU: classification losses and CTC as single passes forward and backward."""
import math

import numpy as np

from mindtorch.backend.cpu import kernel, large, threads
from mindtorch.backend.cpu.activation import sigmoid
from mindtorch.backend.cpu.half import downcast, upcast
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.pointwise import Loop, bound, write
from mindtorch.backend.cpu.softmax import shifted
from mindtorch.backend.cpu.sum import row_sum, sum_all


_I64, _U64 = np.dtype(np.int64), np.dtype(np.uint64)


# ------------------------------------------------------------------ targets
def _all_below(t, count):
    """True if all class indices are in [0, count).

    As unsigned integers, negative indices are the largest. argmax takes 0.3 us, min and max take
    2.4 us.
    """
    u = t.view(_U64) if t.dtype == _I64 else t
    return u.item(u.argmax()) < count and (u.dtype.kind == "u" or t.min() >= 0)


def _samples(t, weight, count, ignore_index, dtype):
    """Returns (targets, sample weights, mask).

    Ignored targets are 0. The weights are None if all are 1. The mask selects the samples that
    count; it is None if all do.
    """
    if t.size and not 0 <= ignore_index < count and _all_below(t, count):
        mask = None
    else:
        mask = t != ignore_index
        bad = mask & ((t < 0) | (t >= count))
        if bad.any():
            raise IndexError(f"Target {t[bad].reshape(-1)[0]} is out of bounds.")
        t = np.where(mask, t, 0)
    if weight is None:
        return t, None if mask is None else mask.astype(dtype), mask
    w = weight.astype(dtype)[t]
    if mask is not None:
        w = np.where(mask, w, w.dtype.type(0))
    return t, w, mask


@kernel("sample_weights")
def _sample_weights(x, target, weight, *, ignore_index):
    """Returns only the weight of each sample (None: all are 1)."""
    return _samples(target, weight, x.shape[1], ignore_index, np.dtype(np.float32) if x.itemsize == 2 else x.dtype)[1:2]


def _masked_targets(t, w, ignore_index):
    """Returns (targets, mask) like `_samples`, from the weights w that `_samples` returned."""
    if w is None:
        return t, None
    mask = t != ignore_index
    return np.where(mask, t, 0), mask


def _plainly(v, reduction, over):
    """Reduces the losses v of samples with weight 1.

    `over` is the divisor of a mean. If it is negative, the losses are negated.
    """
    if reduction == "none":
        return v if over > 0 else -v
    return np.asarray(sum_all(v) / v.dtype.type(over if reduction == "mean" else math.copysign(1, over)), v.dtype)


def _total(t, w):
    """Returns the divisor of a mean."""
    return t.size if w is None else float(w.sum())


# ------------------------------------------------------------------ negative log likelihood
def _nll(x, t, w, mask, reduction):
    v = np.take_along_axis(x, t[:, None], 1)[:, 0]
    if w is not None:
        v = v * w
    if reduction == "none":
        return -v if mask is None else -np.where(mask, v, v.dtype.type(0))
    s = -v.sum(dtype=x.dtype)
    if mask is not None and not np.isfinite(s):
        # An ignored sample does not count, even if it is infinite.
        s = -np.where(mask, v, v.dtype.type(0)).sum(dtype=x.dtype)
    if reduction == "mean":
        total = _total(t, w)
        s = s / x.dtype.type(total) if total else x.dtype.type(np.nan)
    return np.asarray(s, x.dtype)


@kernel("nll_loss")
def nll(x, target, weight, *, reduction, ignore_index):
    """Computes the negative log likelihood of (N, C, *spatial) with targets (N, *spatial).

    Returns (-x at each sample's class times the class weight, reduced; weight of each sample).
    Ignored samples have weight 0. The weights are None if all are 1.
    """
    if weight is None and x.size >= large.SOME and not 0 <= ignore_index < x.shape[1]:
        # If all targets are in range, none of them is ignored. 8x8 takes 2.2 us, in NumPy 14 us.
        v = np.empty(target.shape, x.dtype)
        if large.scan_gather().move(large.scan_gather().GATHER, x, target[:, None], 1, v[:, None]):
            return _plainly(v, reduction, -v.size), None
    return _nll_of_all(x, target, weight, reduction, ignore_index)


@quiet
def _nll_of_all(x, target, weight, reduction, ignore_index):
    t, w, mask = _samples(target, weight, x.shape[1], ignore_index, x.dtype)
    return _nll(x, t, w, mask, reduction), w


@kernel("nll_of_samples")
@quiet
def nll_of_samples(x, target, w, *, reduction, ignore_index):
    """Like `nll`, with the sample weights that `nll` returned."""
    t, mask = _masked_targets(target, w, ignore_index)
    return _nll(x, t, w, mask, reduction)


@kernel("nll_loss_backward")
@quiet
def nll_grad(g, target, w, *, reduction, ignore_index, size):
    """Returns the gradient of `nll`."""
    t, mask = _masked_targets(target, w, ignore_index)
    r = np.zeros(size, g.dtype)
    v = -g if w is None else -g * w
    if reduction == "mean":
        v = v / g.dtype.type(_total(t, w))
    v = np.broadcast_to(v, t.shape)
    if mask is not None:
        # If every sample is ignored, the loss is nan and its gradient is zero.
        v = np.where(mask, v, v.dtype.type(0))
    t, v = t[:, None], v[:, None].astype(g.dtype, copy=False)
    # 8x8: 1.5 us, in NumPy 12 us
    if not r.size or not large.scan_gather().move(large.scan_gather().PUT, r, t, 1, v):
        np.put_along_axis(r, t, v, 1)
    return r


# ------------------------------------------------------------------ cross entropy
@kernel("cross_entropy_loss")
def cross_entropy(x, target, weight, *, ignore_index, smoothing, reduction):
    """Computes the cross entropy of logits (N, C) in one pass.

    64x10 takes 15 us (MindSpore's ops.cross_entropy 2200 us, PyTorch 12 us). Returns (loss,
    exponentials of the shifted logits, their sums, weight of each sample or None as in `nll`).
    """
    if weight is None and not smoothing and x.size >= large.SOME and not 0 <= ignore_index < x.shape[1] and \
            (got := large.reduce().cross(x, target)) is not None:  # as in nll; 8x8: 3 us, below 9 us
        e, s, v = got
        return _plainly(v, reduction, v.size), e, s, None
    return _cross_entropy(x, target, weight, ignore_index, smoothing, reduction)


@quiet
def _cross_entropy(x, target, weight, ignore_index, smoothing, reduction):
    low = x.dtype if x.itemsize == 2 else None
    if low is not None:
        x, weight = upcast(x), None if weight is None else upcast(weight)
    x = np.ascontiguousarray(x)
    n = x.shape[0]
    t, w, mask = _samples(target, weight, x.shape[1], ignore_index, x.dtype)
    if not smoothing and x.size >= large.SOME and (got := large.reduce().cross(x, t)) is not None:
        e, s, v = got
    elif x.size >= large.LEAST and not smoothing and x.dtype.kind == "f":
        e, s, v = np.empty(x.shape, x.dtype), np.empty(n, x.dtype), np.empty(n, x.dtype)

        def part(i, j):
            y, e[i:j], here = shifted(x[i:j], 1e-5)
            s[i:j] = here
            np.subtract(np.log(here), y[np.arange(j - i), t[i:j]], out=v[i:j])
        large.each_rows(n, x.shape[1], part)
    else:
        y, e, s = shifted(x, 1e-5)
        logs = np.log(s)
        v = logs - y[np.arange(n), t]
    if w is not None:
        v *= w
        if mask is not None and not np.isfinite(v).all():
            v = np.where(mask, v, v.dtype.type(0))
    if smoothing:
        # The smoothing term is a sum over all classes: w_c (log s - y_c).
        if weight is None:
            m = logs * x.dtype.type(x.shape[1]) - row_sum(y)
            if w is not None:
                m *= w
        else:
            m = logs * weight.sum() - threads.matmul(y, weight)
            m *= w != 0
            if mask is not None:
                m *= mask
        v *= x.dtype.type(1 - smoothing)
        v += m * x.dtype.type(smoothing / x.shape[1])
    if reduction != "none":
        r = v.sum(dtype=x.dtype)
        if reduction == "mean":
            total = _total(t, w)
            r = r / x.dtype.type(total) if total else x.dtype.type(np.nan)
        v = np.asarray(r, x.dtype)
    return v if low is None else downcast(v, low), e, s, w


@kernel("cross_entropy_backward")
@quiet
def cross_entropy_grad(g, target, weight, e, s, w, *, ignore_index, smoothing, reduction):
    """Returns the gradient of `cross_entropy`: sum of weights times softmax, minus the weights
    themselves."""
    low = g.dtype if g.itemsize == 2 else None
    if low is not None:
        g, weight = upcast(g), None if weight is None else upcast(weight)
    t, mask = _masked_targets(target, w, ignore_index)
    d = e.dtype.type
    n, c = e.shape
    total = _total(t, w) if reduction == "mean" else None
    a = g if w is None else w * g
    if reduction == "mean":
        a = a / d(total)
        if not total and mask is not None:
            a = np.where(mask, a, d(0))
    a = np.broadcast_to(a, (n,)).astype(e.dtype)
    if not smoothing:
        if e.size >= large.SOME and (r := large.reduce().cross_back(e, t, a / s, a)) is not None:
            return r if low is None else downcast(r, low)
        by = (a / s)[:, None]
        if e.size >= large.LEAST:
            r = np.empty(e.shape, e.dtype)
            large.each_rows(n, c, lambda i, j: np.multiply(e[i:j], by[i:j], out=r[i:j]))
        else:
            r = e * by
        r[np.arange(n), t] -= a
        return r if low is None else downcast(r, low)
    b = g if w is None else g * (w if weight is None else mask)
    if reduction == "mean":
        b = b / d(total) if total else b * d(0)
    b = np.broadcast_to(b * d(smoothing / c), (n,))
    a = a * d(1 - smoothing)
    weight_sum = d(c) if weight is None else weight.sum()
    r = e * ((a + b * weight_sum) / s)[:, None]
    r -= b[:, None] * (d(1) if weight is None else weight)
    r[np.arange(n), t] -= a
    return r if low is None else downcast(r, low)


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
    """Returns (labels with blanks between them, 0 where a step may skip the blank before it, else
    -inf)."""
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


@kernel("ctc_loss")
@quiet
def ctc(lp, targets, *, input_lengths, target_lengths, blank, zero_infinity):
    """Computes the CTC loss of log probabilities (T, N, C) for labels, which are (N, S) or
    concatenated.

    Returns (loss of each sample, log_alpha, labels as (N, S), divisor of each sample's loss in a
    mean). The gradient needs log_alpha and the labels.
    """
    labels = _padded(targets, target_lengths, blank)
    input_lengths, target_lengths = np.array(input_lengths, np.int64), np.array(target_lengths, np.int64)
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
    # Without a time step only the empty label sequence is possible.
    nll = np.where(input_lengths == 0, np.where(target_lengths == 0, 0, np.inf), nll).astype(lp.dtype)
    return nll, alpha, labels, np.maximum(target_lengths, 1).astype(lp.dtype)


def _padded(targets, lengths, blank):
    """Returns the labels as a matrix; short rows are padded with blanks."""
    labels = np.full((len(lengths), max(lengths, default=0)), blank, np.int64)
    start = 0
    for i, k in enumerate(lengths):
        if targets.ndim == 1:
            labels[i, :k] = targets[start:start + k]
            start += k
        else:
            labels[i, :k] = targets[i, :k]
    return labels


@kernel("ctc_loss_backward")
@quiet
def ctc_grad(g, lp, nll, alpha, labels, *, input_lengths, target_lengths, blank, zero_infinity):
    """Returns the gradient of `ctc` in PyTorch's form.

    This is the gradient of logits before a log_softmax: exp(lp) minus the share of each class.
    """
    t_max, n, c = lp.shape
    ext, skip = _extended(labels, blank, lp.dtype)
    input_lengths, target_lengths = np.array(input_lengths, np.int64), np.array(target_lengths, np.int64)
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
        # alpha and beta both include this step's own probability.
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


# ----------------------------------------------------- pointwise losses: value and derivative
def _in_one_pass(name):
    """Decorates a loss to try the C loop `name` before the NumPy passes."""
    loop = Loop(name)

    def deco(fn):
        def either(x, t, param):
            r = loop(x, t, scalars=(param or 0.0, 0.0, 0.0))
            return fn(x, t, param) if r is None else r
        either.loop = loop
        return either
    return deco


def _clip(d, most):
    if d.ndim == 1 and d.size <= large.PIECE:
        return bound(d, -most, most, d)
    return np.clip(d, d.dtype.type(-most), d.dtype.type(most), out=d)


def _below(d, most):
    if d.ndim == 1 and 64 <= d.size <= large.PIECE:
        return bound(d, None, most, np.empty_like(d))
    return np.minimum(d, d.dtype.type(most))


@_in_one_pass("smooth_l1")
def smooth_l1(x, t, beta):
    d = np.abs(x - t)
    m = _below(d, beta)
    d -= m * x.dtype.type(0.5)
    d *= m
    d *= x.dtype.type(1 / beta)
    return d


@_in_one_pass("smooth_l1_elementwise_backward")
def smooth_l1_elementwise_backward(x, t, beta):
    d = x - t
    d *= x.dtype.type(1 / beta)
    return _clip(d, 1)


@_in_one_pass("huber")
def huber(x, t, delta):
    d = np.abs(x - t)
    m = _below(d, delta)
    d -= m * x.dtype.type(0.5)
    d *= m
    return d


@_in_one_pass("huber_elementwise_backward")
def huber_elementwise_backward(x, t, delta):
    d = x - t
    return _clip(d, delta)


@_in_one_pass("mse")
def mse(x, t, _):
    d = x - t
    d *= d
    return d


@_in_one_pass("mse_elementwise_backward")
def mse_elementwise_backward(x, t, _):
    d = x - t
    d *= x.dtype.type(2)
    return d


@_in_one_pass("l1")
def l1(x, t, _):
    d = x - t
    return np.abs(d) if d.dtype.kind == "c" else np.abs(d, out=d)


@_in_one_pass("l1_elementwise_backward")
def l1_elementwise_backward(x, t, _):
    """Returns the sign of x - t, and 0 for nan, like PyTorch.

    The difference of two masks takes 0.3 ms for 1e6 elements; np.sign branches on every element and
    takes 4 ms.
    """
    d = x - t
    if d.dtype.kind == "c":
        return np.sign(d, out=d)
    r = np.greater(d, 0).view(np.int8)
    r -= np.less(d, 0).view(np.int8)
    return r.astype(d.dtype)


@_in_one_pass("bce")
def bce(x, t, _):
    d = x.dtype.type
    a = np.maximum(np.log(x), d(-100))
    b = np.maximum(np.log1p(-x), d(-100))
    a -= b
    a *= t
    a += b
    return np.negative(a, out=a)


@_in_one_pass("bce_elementwise_backward")
def bce_elementwise_backward(x, t, _):
    d = x.dtype.type
    v = (d(1) - x) * x
    np.maximum(v, d(1e-12), out=v)
    r = x - t
    r /= v
    return r


def bce_target_backward(x, t, _):
    # The limits of the loss do not apply to its derivative.
    r = np.log1p(-x)
    r -= np.log(x)
    return r


@_in_one_pass("bce_logits")
def bce_logits(x, t, _):
    """Computes (1 - t) x - log(sigmoid(x)) with log(sigmoid(x)) = min(x, 0) - log(1 + exp(-|x|)).

    Infinite x gives the same result as in PyTorch.
    """
    r = np.abs(x)
    np.negative(r, out=r)
    np.exp(r, out=r)
    np.log1p(r, out=r)
    r -= np.minimum(x, x.dtype.type(0))
    return (x.dtype.type(1) - t) * x + r


@_in_one_pass("bce_logits_elementwise_backward")
def bce_logits_elementwise_backward(x, t, _):
    r = sigmoid(x)
    r -= t
    return r


def bce_logits_target_backward(x, t, _):
    return np.negative(x) if t.shape == x.shape else np.broadcast_to(-x, np.broadcast_shapes(x.shape, t.shape)).copy()


def reduce_values(v, reduction):
    """Returns an elementwise loss unreduced, or its mean or sum."""
    if reduction == "none":
        return v
    s = v.sum(dtype=v.dtype)
    if reduction == "mean":
        s = s / v.dtype.type(v.size) if v.size else v.dtype.type(math.nan)
    return np.asarray(s, v.dtype)


def in_blocks(x, t):
    """True if an elementwise loss of these arrays runs in pieces."""
    return x.size >= large.LEAST and x.shape == t.shape and x.dtype == t.dtype and x.dtype.kind == "f" and \
        x.flags.c_contiguous and t.flags.c_contiguous


def value_in_blocks(value, x, t, param, reduction):
    """Computes an elementwise loss of large arrays, or its mean or sum."""
    n = large.PIECE
    count = -(-x.size // n)
    loop = getattr(value, "loop", None)
    if loop is not None:
        scalars = (param or 0.0, 0.0, 0.0)
        r = loop(x, t, scalars=scalars) if reduction == "none" else loop.total(x, t, scalars)
        if r is not None:
            return r if reduction == "none" else np.asarray(r / x.size if reduction == "mean" else r, x.dtype)
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
        sums[k] = np.add.reduce(row_sum(v.reshape(4, -1)) if v.size == n else v)
    large.each(count, part_sum, x.size)
    s = sums.sum()
    return np.asarray(s / x.size if reduction == "mean" else s, x.dtype)


def gradient_in_blocks(derivative, x, t, param, scale):
    """Computes the gradient of an elementwise loss of large arrays times `scale` (a scalar or an
    array of their shape)."""
    n = large.PIECE
    loop = getattr(derivative, "loop", None)
    if loop is not None and (r := loop(x, t, scalars=(param or 0.0, 0.0, 0.0))) is not None:
        write(np.multiply, r, scale)
        return r
    r = np.empty(x.shape, x.dtype)
    a, b, to = x.reshape(-1), t.reshape(-1), r.reshape(-1)
    by = np.broadcast_to(scale, x.shape).reshape(-1) if scale.ndim else None

    def part(k):
        cut = slice(k * n, (k + 1) * n)
        np.multiply(derivative(a[cut], b[cut], param), scale if by is None else by[cut], out=to[cut])
    large.each(-(-x.size // n), part, x.size)
    return r


# ------------------------------------------------------------------ pointwise losses as one kernel
def _pair(name, value, derivative, target_backward=None, check=None):
    """Registers the kernels of a loss of two arrays and of its gradients, from its value and
    derivatives.

    Without `target_backward` the loss depends on the difference only. check(x) raises for invalid
    values.
    """
    def forward(x, target, *, reduction, param):
        if check is not None:
            check(x)
        if in_blocks(x, target):
            return value_in_blocks(value, x, target, param, reduction)
        return reduce_values(_atleast(value, x, target, param), reduction)

    def gradients(g, x, target, *, reduction, param, needs):
        t = target
        gx = gt = None
        scale = g
        if reduction == "mean":
            n = math.prod(np.broadcast_shapes(x.shape, t.shape))
            scale = g * g.dtype.type(1 / n if n else math.nan)
        if in_blocks(x, t):
            if needs[0] or target_backward is None:
                gx = gradient_in_blocks(derivative, x, t, param, scale)
            if needs[1] and target_backward is not None:
                gt = gradient_in_blocks(target_backward, x, t, param, scale)
        elif needs[0] or target_backward is None:
            gx = _atleast(derivative, x, t, param)
            gx *= scale
        if needs[1]:
            if target_backward is None:
                gt = np.negative(gx)
            elif gt is None:
                gt = _atleast(target_backward, x, t, param)
                gt *= scale
        return gx if needs[0] else None, gt
    kernel(name, quiet(forward))
    kernel(name + "_backward", quiet(gradients))


def _atleast(fn, x, t, param):
    if x.ndim or t.ndim:
        return fn(x, t, param)
    return fn(x.reshape(1), t.reshape(1), param).reshape(())


def _probabilities(x):
    if x.size:
        low, high = x.min(), x.max()
        if not (low >= 0 and high <= 1) and not (np.isnan(low) and not ((x < 0) | (x > 1)).any()):
            raise RuntimeError("all elements of input should be between 0 and 1")


_pair("mse_loss", mse, mse_elementwise_backward)
_pair("l1_loss", l1, l1_elementwise_backward)
_pair("smooth_l1_loss", smooth_l1, smooth_l1_elementwise_backward)
_pair("huber_loss", huber, huber_elementwise_backward)
_pair("binary_cross_entropy", bce, bce_elementwise_backward, bce_target_backward, _probabilities)
_pair("binary_cross_entropy_with_logits", bce_logits, bce_logits_elementwise_backward, bce_logits_target_backward)


# ------------------------------------------------------------------ helpers of other losses
@kernel("limited_variance")
@quiet
def _limited_variance(a, *, least):
    """Increases elements below `least` to `least`, by an addition.

    Raises ValueError if one is negative.
    """
    if (a < 0).any():
        raise ValueError("var has negative entry/entries")
    low = a if a.itemsize != 2 else a.astype(np.float32)
    lift = np.where(low < low.dtype.type(least), low.dtype.type(least) - low, low.dtype.type(0))
    return a + lift.astype(a.dtype) if lift.any() else a.copy()


@kernel("limited_norm")
@quiet
def _limited_norm(a, *, least):
    return np.maximum(a, np.asarray(least, a.dtype))


def _in_range(t, low, high):
    if t.size and (t.min() < low or t.max() >= high):
        raise RuntimeError("target out of range")


@kernel("class_hits")
def _class_hits(t, *, classes):
    """Returns an (N, C) mask of each sample's target class."""
    _in_range(t, 0, classes)
    hit = np.zeros((t.size, classes), bool)
    hit[np.arange(t.size), t] = True
    return hit


@kernel("multilabel_targets")
def _multilabel_targets(t, *, classes):
    """Converts rows of targets that end at the first -1.

    Returns (targets, with 0 where there is none; mask of the (target, class) pairs that do not
    count).
    """
    if classes is not None:
        _in_range(t, -1, classes)
    t = t.astype(np.int64)
    live = np.cumprod(t >= 0, axis=1).astype(bool)
    is_target = np.zeros(t.shape, bool)
    r, k = np.nonzero(live)
    is_target[r, t[r, k]] = True
    return np.where(live, t, 0), ~live[:, :, None] | is_target[:, None, :]
