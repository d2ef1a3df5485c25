"""Normalization kernels: batch, layer, group and RMS norm, forward and backward."""
import math

import numpy as np

from mindtorch.backend.cpu import kernel, large, onednn_eltwise, threads
from mindtorch.backend.cpu.copies import channels_last
from mindtorch.backend.cpu.half import downcast, upcast
from mindtorch.backend.cpu.host import F32, ones, quiet
from mindtorch.backend.cpu.sum import channel_sums, column_sum, row_dot, row_sum, sums

# elements up to which the normalized input is saved for the backward pass instead of recomputed
_KEEP = 1 << 20

# Forward kernels accept half precision directly. Their result is in half precision; the statistics
# that they save for the gradient are float32.


def _upcast_operand(v):
    """Returns an operand in at least float32 (None stays None)."""
    return upcast(v) if v is not None and v.itemsize == 2 else v


# ------------------------------------------------------------------ layer norm, rms norm
@kernel("native_layer_norm")
@quiet
def _layer_norm(x, w, b, *, n, dims, eps):
    """Returns (result, mean, 1 / deviation, variance, normalized rows).

    All but the result are for the gradient; None means not saved.
    """
    if x.itemsize == 2:
        y, *saved = layer_norm(upcast(x), _upcast_operand(w), _upcast_operand(b), n=n, eps=eps)
        return downcast(y, x.dtype), *saved
    return layer_norm(x, w, b, n=n, eps=eps)


def layer_norm(x, w, b, *, n, eps, unaliased=True):
    """Normalizes the trailing `n` elements.

    256x128 with weight and bias takes 36 us (MindSpore 160 us, PyTorch 16 us). Returns (result,
    mean, 1 / deviation, variance, normalized rows); values that the gradient does not need are
    None. With own=False and without weight and bias, the result may be the normalized rows
    themselves, which the caller must not modify.
    """
    if x.size >= large.SOME and (got := large.reduce().norm(x, n, w, b, eps)) is not None:
        return *got, None, None
    m = x.reshape(-1, n) if x.size else x.reshape(0 if not n else x.size // n, n)
    if not m.flags.c_contiguous:
        m = np.ascontiguousarray(m)
    if onednn_eltwise.rows_fit(m):
        wf, bf = (None if v is None else np.ascontiguousarray(v).reshape(-1) for v in (w, b))
        y, mean, var = onednn_eltwise.layer_norm(m, wf, bf, eps)
        return y.reshape(x.shape), mean, 1 / np.sqrt(var + F32.type(eps)), var, None
    if m.size >= large.LEAST and m.dtype.kind == "f":
        y, mean, rstd = _layer_norm_in_blocks(m, w, b, n, eps)
        return y.reshape(x.shape), mean, rstd, None, None
    d = m.dtype.type
    xc = m - (row_sum(m) * d(1 / n))[:, None] if n else m.copy()
    var = row_dot(xc, xc)
    var *= d(1 / n) if n else d(0)
    var += d(eps)
    np.sqrt(var, out=var)
    rstd = np.reciprocal(var, out=var)
    xc *= rstd[:, None]
    mean, xhat = None, xc
    if m.size > _KEEP:
        xhat = None
        if n:
            mean = row_sum(m) * d(1 / n)
    if w is not None:
        y = xc * w.reshape(-1)
        if b is not None:
            y += b.reshape(-1)
    elif b is not None:
        y = xc + b.reshape(-1)
    else:
        y = xc.copy() if unaliased and xhat is not None else xc
    return y.reshape(x.shape), mean, rstd, None, xhat


def _layer_norm_in_blocks(m, w, b, n, eps):
    """Computes layer norm in pieces. Saves mean and 1 / deviation of each row for the gradient, not
    the normalized rows."""
    d = m.dtype.type
    y, mean, rstd = np.empty(m.shape, m.dtype), np.empty(len(m), m.dtype), np.empty(len(m), m.dtype)
    w, b = (None if v is None else v.reshape(-1) for v in (w, b))

    def part(i, j):
        c = row_sum(m[i:j])
        c *= d(1 / n)
        mean[i:j] = c
        xc = np.subtract(m[i:j], c[:, None], out=y[i:j])
        v = row_dot(xc, xc)
        v *= d(1 / n)
        v += d(eps)
        np.sqrt(v, out=v)
        np.reciprocal(v, out=v)
        rstd[i:j] = v
        xc *= v[:, None]
        if w is not None:
            xc *= w
        if b is not None:
            xc += b
    large.each_rows(*m.shape, part)
    return y, mean, rstd


def _layer_norm_grad_in_blocks(g2, m, w, mean, rstd, n, needs):
    d = g2.dtype.type
    step = large.rows_at_once(n)
    gx = np.empty(g2.shape, g2.dtype) if needs[0] else None
    # The sums over rows are computed per piece, then over the pieces in order.
    gw, gb = (np.empty((-(-len(g2) // step), n), g2.dtype) if need else None for need in needs[1:])
    w = None if w is None else w.reshape(-1)

    def part(i, j):
        g = g2[i:j]
        xhat = m[i:j] - mean[i:j, None]
        xhat *= rstd[i:j, None]
        gxh = g * xhat
        if gw is not None:
            threads.matmul(ones(j - i, g.dtype), gxh, out=gw[i // step])
        if gb is not None:
            threads.matmul(ones(j - i, g.dtype), g, out=gb[i // step])
        if gx is None:
            return
        c2 = row_sum(gxh) if w is None else threads.matmul(gxh, w)
        c2 *= d(1 / n)
        if w is None:
            h, c1 = g, row_sum(g)
        else:
            h, c1 = np.multiply(g, w, out=gxh), threads.matmul(g, w)
        c1 *= d(1 / n)
        xhat *= c2[:, None]
        r = np.subtract(h, xhat, out=gx[i:j])
        r -= c1[:, None]
        r *= rstd[i:j, None]
    large.each_rows(*g2.shape, part)
    return gx, None if gw is None else column_sum(gw), None if gb is None else column_sum(gb)


@kernel("native_layer_norm_backward")
@quiet
def _layer_norm_grad(g, x, w, mean, rstd, var, xhat, *, n, eps, needs, shape):
    gx, gw, gb = layer_norm_grad(g, x, w, mean, rstd, var, xhat, n=n, eps=eps, needs=needs)
    return gx, gw, None if gb is None else gb.reshape(shape)


def layer_norm_grad(g, x, w, mean, rstd, var, xhat, *, n, eps=None, needs):
    """Returns (gradient of x, of w, of b)."""
    if mean is not None and xhat is None and g.size >= large.SOME and (got := large.reduce().norm_back(g, x, w, mean, rstd, n, needs)) is not None:
        return got[0], None if got[1] is None else got[1].reshape(w.shape), got[2]
    if var is not None and xhat is None and g.dtype == x.dtype == F32:
        m, g2 = np.ascontiguousarray(x).reshape(-1, n), np.ascontiguousarray(g).reshape(-1, n)
        gx, gw, gb = onednn_eltwise.layer_norm_grad(g2, m, mean, var, None if w is None else np.ascontiguousarray(w).reshape(-1), eps)
        return (gx.reshape(g.shape) if needs[0] else None, column_sum(gw).reshape(w.shape) if needs[1] else None,
                column_sum(gb) if needs[2] else None)
    if mean is not None and xhat is None and g.size >= large.LEAST and g.dtype == x.dtype:
        gx, gw, gb = _layer_norm_grad_in_blocks(np.ascontiguousarray(g).reshape(-1, n), np.ascontiguousarray(x).reshape(-1, n), w, mean, rstd, n,
                                                needs)
        return None if gx is None else gx.reshape(g.shape), None if gw is None else gw.reshape(w.shape), gb
    g2 = np.ascontiguousarray(g).reshape(-1, n) if g.size else np.zeros((0, n), g.dtype)
    if xhat is None:
        xhat = x.reshape(-1, n) - mean[:, None]
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
            # If the weight needs a gradient, g * xhat already exists: its product with w is the row
            # sum.
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


@kernel("rms_norm")
@quiet
def _rms_norm(x, w, *, n, dims, eps):
    if x.itemsize == 2:
        y, rstd = rms_norm(upcast(x), _upcast_operand(w), n=n, eps=eps)
        return downcast(y, x.dtype), rstd
    return rms_norm(x, w, n=n, eps=eps)


def rms_norm(x, w, *, n, eps):
    """Computes x / sqrt(mean(x^2) + eps) * w over the trailing `n` elements.

    Returns (result, reciprocal of the root).
    """
    if x.size >= large.SOME and (got := large.reduce().norm(x, n, w, None, eps, False)) is not None:
        return got[0], got[2]
    m = np.ascontiguousarray(x).reshape(-1, n) if x.size else np.zeros((0, n), x.dtype)
    d = m.dtype.type
    y, rstd = np.empty(m.shape, m.dtype), np.empty(len(m), m.dtype)
    row = None if w is None else w.reshape(-1)

    def part(i, j):
        v = row_dot(m[i:j], m[i:j])
        v *= d(1 / n) if n else d(0)
        v += d(eps)
        np.sqrt(v, out=v)
        np.reciprocal(v, out=rstd[i:j])
        r = np.multiply(m[i:j], rstd[i:j, None], out=y[i:j])
        if row is not None:
            r *= row
    if m.size >= large.LEAST:
        large.each_rows(*m.shape, part)
    else:
        part(0, len(m))
    return y.reshape(x.shape), rstd


@kernel("rms_norm_backward")
@quiet
def rms_norm_grad(g, x, w, rstd, *, n, needs):
    """Returns (gradient of x, of w)."""
    if g.size >= large.SOME and (got := large.reduce().norm_back(g, x, w, None, rstd, n, (*needs[:2], False))) is not None:
        return got[0], None if got[1] is None else got[1].reshape(w.shape)
    g2 = np.ascontiguousarray(g).reshape(-1, n) if g.size else np.zeros((0, n), g.dtype)
    m = np.ascontiguousarray(x).reshape(-1, n) if x.size else np.zeros((0, n), x.dtype)
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


# ------------------------------------------------------------------ batch norm
def _per_channel(v, hw):
    """Expands a value per channel to a row over channels and positions.

    Subtracting such a row from 16x16x1024 takes 29 us, subtracting (16, 1) takes 47 us.
    """
    return v if hw == 1 else np.repeat(v, hw)


class _Channels:
    """Passes over a large (N, C, ...) array in pieces: of rows that are one channel each, or of
    entire samples.

    With entire samples, values per channel become a row that repeats each of them. This is twice as
    fast as a column against rows of one channel. However, the row has to be created, and pieces of
    very large samples would not fit into the cache.
    """

    def __init__(self, n, c, hw):
        self.c, self.hw = c, hw
        self.entire_samples = hw == 1 or n >= 4 and c * hw <= large.PIECE
        self.rows, self.width = (n, c * hw) if self.entire_samples else (n * c, hw)
        self.step = large.rows_at_once(self.width)

    def view(self, a):
        return a.reshape(self.rows, self.width)

    def each(self, part):
        large.each_rows(self.rows, self.width, part)

    def broadcast(self, v):
        """Returns a function of (start, stop) that returns the values per channel in a shape that
        broadcasts with those rows."""
        if self.entire_samples:
            row = _per_channel(v, self.hw)
            return lambda i, j: row
        c = self.c
        if self.rows > c:
            v = np.concatenate([v] * min(self.rows // c, 2 + self.step // c))
        return lambda i, j: v[i % c:i % c + j - i, None]

    def sums(self):
        """Returns (array for the pieces' row sums, function that adds them up by channel)."""
        blocks = -(-self.rows // self.step) if self.hw == 1 else self.rows * self.width // (self.c * self.hw)
        s = np.empty((blocks, self.c))
        return s, lambda: s.sum(axis=0)

    def note(self, s, i, j, a, b=None):
        """Stores the sums of the rows a (times b), which are view(...)[i:j], in the array s of
        `sums`."""
        if self.hw == 1:
            s[i // self.step] = threads.matmul(ones(j - i, a.dtype), a if b is None else a * b)
            return
        k = self.c if self.entire_samples else 1
        a = a.reshape(-1, self.hw)
        s.reshape(-1)[i * k:j * k] = row_sum(a) if b is None else row_dot(a, b.reshape(-1, self.hw))


def _batch_norm_in_blocks(x, w, b, n, c, hw, eps):
    d = x.dtype.type
    by = _Channels(n, c, hw)
    m, y = by.view(x), np.empty(x.shape, x.dtype)
    to = by.view(y)
    s, total = by.sums()
    by.each(lambda i, j: by.note(s, i, j, m[i:j]))
    mean = (total() / (n * hw)).astype(x.dtype)
    middle = by.broadcast(mean)

    def squares(i, j):
        xc = m[i:j] - middle(i, j)
        by.note(s, i, j, xc, xc)
    by.each(squares)
    var = (total() / (n * hw)).astype(x.dtype)
    rstd = 1 / np.sqrt(var + d(eps))
    factor = rstd if w is None else rstd * w
    shift = by.broadcast((0 if b is None else b) - mean * factor)
    factor = by.broadcast(factor)

    def norm(i, j):
        r = np.multiply(m[i:j], factor(i, j), out=to[i:j])
        r += shift(i, j)
    by.each(norm)
    return y, mean, var, rstd, None


def _batch_norm_grad_in_blocks(g, x, w, mean, rstd, n, c, hw, needs):
    d = g.dtype.type
    by = _Channels(n, c, hw)
    m, v = by.view(x), by.view(g)
    sg, total_g = by.sums()
    sx, total_x = by.sums()
    middle = by.broadcast(mean)

    def sums(i, j):
        by.note(sg, i, j, v[i:j])
        by.note(sx, i, j, m[i:j] - middle(i, j), v[i:j])
    by.each(sums)
    gb, gw = total_g().astype(g.dtype), total_x().astype(g.dtype)
    gw *= rstd
    gx = None
    if needs[0]:
        count = n * hw
        factor = by.broadcast(rstd if w is None else rstd * w)
        coefficient, mean = by.broadcast(gw * rstd * d(-1 / count)), by.broadcast(gb * d(1 / count))
        gx = np.empty(g.shape, g.dtype)
        to = by.view(gx)

        def grad(i, j):
            r = np.subtract(m[i:j], middle(i, j), out=to[i:j])
            r *= coefficient(i, j)
            r += v[i:j]
            r -= mean(i, j)
            r *= factor(i, j)
        by.each(grad)
    return gx, gw if needs[1] else None, gb if needs[2] else None


def _positions(a):
    """Returns a channels-last (N, C, ...) as a matrix of positions and channels, which these
    kernels treat as (N, C)."""
    return np.moveaxis(a, 1, -1).reshape(-1, a.shape[1])


def _from_positions(m, shape):
    return np.moveaxis(m.reshape(shape[:1] + shape[2:] + shape[1:2]), -1, 1)


@kernel("native_batch_norm_train")
@quiet
def batch_norm_train(x, w, b, *, eps):
    """Normalizes each channel of (N, C, ...) by its own mean and variance.

    16x16x32x32 takes 130 us (MindSpore 489 us, PyTorch 156 us). Returns (result, mean, biased
    variance, 1 / deviation, x minus its mean or None). The last value has rows of channels; for
    channels-last inputs it has rows of positions.
    """
    if x.itemsize == 2:
        y, *saved = batch_norm_train(upcast(x), _upcast_operand(w), _upcast_operand(b), eps=eps)
        return downcast(y, x.dtype), *saved
    if channels_last(x) and x.size:
        y, *saved = batch_norm_train(_positions(x), w, b, eps=eps)
        return _from_positions(y, x.shape), *saved
    n, c = x.shape[:2]
    hw = math.prod(x.shape[2:])
    x = np.ascontiguousarray(x)
    d = x.dtype.type
    count = n * hw
    if not x.size:
        nan = np.full(c, np.nan, x.dtype)
        return x.copy(), nan, nan, nan, None
    # C / NumPy, forward and backward: 1x4x8x8 4.3 / 21 us and 4.4 / 19 us, 16x64x32x32 203 / 1222
    # us and 294 / 1525 us.
    if (got := large.reduce().groups(x, w, b, c, eps, batch=True)) is not None:
        return *got, None
    if x.size >= large.LEAST and x.dtype.kind == "f" and x.dtype.itemsize >= 4:
        return _batch_norm_in_blocks(x, w, b, n, c, hw, eps)
    mean = channel_sums(x, c, hw)
    mean *= d(1 / count)
    xc = x.reshape(n, c * hw) - _per_channel(mean, hw)
    x3 = xc.reshape(n, c, hw)
    var = np.einsum("ncl,ncl->c", x3, x3)
    var *= d(1 / count)
    rstd = 1 / np.sqrt(var + d(eps))
    scale = rstd if w is None else rstd * w
    keep = x.size <= _KEEP
    y = np.multiply(xc, _per_channel(scale, hw), out=None if keep else xc)
    if b is not None:
        y += _per_channel(b, hw)
    return y.reshape(x.shape), mean, var, rstd, xc if keep else None


@kernel("native_batch_norm_train_backward")
@quiet
def batch_norm_train_grad(g, x, w, mean, rstd, xc, *, eps, needs):
    """Returns (gradient of x, of w, of b)."""
    n, c = x.shape[:2]
    hw = math.prod(x.shape[2:])
    if x.ndim > 2 and x.size and (channels_last(x) if xc is None else hw > 1 and len(xc) != n):
        gx, gw, gb = batch_norm_train_grad(_positions(g), _positions(x), w, mean, rstd, xc, eps=eps, needs=needs)
        return None if gx is None else _from_positions(gx, x.shape), gw, gb
    g = np.ascontiguousarray(g)
    d = g.dtype.type
    if not x.size:
        return g.copy(), np.zeros(c, g.dtype), np.zeros(c, g.dtype)
    if xc is None:
        got = large.reduce().groups_back(g, np.ascontiguousarray(x), w, mean, rstd, needs[0], batch=True)
        if got is not None:
            return got[0], got[1] if needs[1] else None, got[2] if needs[2] else None
    if xc is None and x.size >= large.LEAST and x.dtype == g.dtype and x.dtype.kind == "f":
        return _batch_norm_grad_in_blocks(g, np.ascontiguousarray(x), w, mean, rstd, n, c, hw, needs)
    if xc is None:
        xc = x.reshape(n, c * hw) - _per_channel(mean, hw)
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


def _channel_products(a, b):
    """Returns the sums of a * b of (N, C, positions) by channel."""
    n, c, hw = a.shape
    if hw >= _ROW and a.size >= large.FEW and a.dtype == b.dtype:
        r = large.scan_gather().sums(a.reshape(n * c, hw), large.scan_gather().PRODUCT, b.reshape(n * c, hw))
        if r is not None:
            return sums(r.reshape(n, c), (0,))
    return np.einsum("ncl,ncl->c", a, b)


@kernel("native_batch_norm_eval")
def batch_norm_eval(x, w, b, mean, var, *, eps):
    """Normalizes each channel by given statistics, with one multiplication and one addition."""
    if channels_last(x) and x.size:
        return _from_positions(batch_norm_eval(_positions(x), w, b, mean, var, eps=eps), x.shape)
    # 1x3x8x8 takes 2.6 us, with factors and summands computed in NumPy 10.8 us.
    r = large.reduce().scaled(np.ascontiguousarray(x), w, b, mean, var, eps)
    return _scaled(x, w, b, mean, var, eps) if r is None else r


@quiet
def _scaled(x, w, b, mean, var, eps):
    n, c = x.shape[:2]
    hw = math.prod(x.shape[2:])
    d = x.dtype.type
    scale = 1 / np.sqrt(var + d(eps))
    if w is not None:
        scale = scale * w
    shift = -mean * scale
    if b is not None:
        shift += b
    x = np.ascontiguousarray(x)
    if x.size >= large.LEAST and scale.dtype == x.dtype:
        by = _Channels(n, c, hw)
        y = np.empty(x.shape, x.dtype)
        m, to, factor, summand = by.view(x), by.view(y), by.broadcast(scale), by.broadcast(shift)

        def part(i, j):
            r = np.multiply(m[i:j], factor(i, j), out=to[i:j])
            r += summand(i, j)
        by.each(part)
        return y
    y = x.reshape(n, c * hw) * _per_channel(scale, hw)
    y += _per_channel(shift, hw)
    return y.reshape(x.shape)


@kernel("native_batch_norm_eval_backward")
@quiet
def _batch_norm_eval_grad(g, x, w, mean, var, *, eps, needs):
    n, c = x.shape[:2]
    hw = math.prod(x.shape[2:])
    g2 = np.ascontiguousarray(g).reshape(n, c * hw)
    rstd = 1 / np.sqrt(var + var.dtype.type(eps))
    gx = gw = gb = None
    if needs[0]:
        scale = rstd if w is None else rstd * w
        gx = large.reduce().channels(g2.reshape(g.shape), scale) if g.size >= large.SOME else None
        if gx is None:
            gx = (g2 * (np.repeat(scale, hw) if hw != 1 else scale)).reshape(g.shape)
    if needs[2] or needs[1]:
        gb = sums(g2.reshape(n, c, hw), (0, 2)) if g.size else np.zeros(c, g.dtype)
    if needs[1]:
        gw = _channel_products(g2.reshape(n, c, hw), np.ascontiguousarray(x).reshape(n, c, hw))
        gw = (gw - gb * mean) * rstd
    return gx, gw, gb if needs[2] else None, None, None


def _moved(running, value, momentum):
    """Computes (1 - momentum) * running + momentum * value."""
    if running.itemsize == 2:
        return (running.astype(F32) * F32.type(1 - momentum) + value * F32.type(momentum)).astype(running.dtype)
    d = running.dtype.type
    r = running * d(1 - momentum)
    r += value * d(momentum)
    return r


@kernel("running_statistics")
def _running_statistics(mean, var, running_mean, running_var, *, momentum, factor):
    """Returns the running statistics updated by a batch's mean and `factor` times its variance.

    Either of the running statistics may be None.
    """
    return (None if running_mean is None else _moved(running_mean, mean, momentum),
            None if running_var is None else _moved(running_var, var * var.dtype.type(factor), momentum))


@kernel("native_batch_norm_moving")
def _batch_norm_moving(x, w, b, running_mean, running_var, *, momentum, eps):
    """Like `batch_norm_train`, and updates the running statistics in place, for devices that do
    both at once."""
    y, mean, var, *rest = batch_norm_train(x, w, b, eps=eps)
    count = x.size // x.shape[1]
    for r, v in zip((running_mean, running_var), _running_statistics(mean, var, running_mean, running_var, momentum=momentum,
                                                                     factor=count / (count - 1) if count > 1 else math.nan)):
        r[...] = v
    return y, mean, var, *rest


@kernel("instance_statistics")
def _instance_statistics(x):
    """Returns (mean, biased variance) of each channel, averaged over the samples."""
    m = _upcast_operand(x).reshape(x.shape[0], x.shape[1], -1)
    return m.mean(axis=2).mean(axis=0), m.var(axis=2).mean(axis=0)


# ------------------------------------------------------------------ group norm
def channel_affine(y, w, b):
    """Multiplies y (N, C, ...) by w and adds b per channel, in place.

    y is large and contiguous; w or b may be None.
    """
    n, c = y.shape[:2]
    by = _Channels(n, c, math.prod(y.shape[2:]))
    m = by.view(y)
    factor, shift = (None if v is None else by.broadcast(v) for v in (w, b))

    def part(i, j):
        r = m[i:j]
        if factor is not None:
            r *= factor(i, j)
        if shift is not None:
            r += shift(i, j)
    by.each(part)
    return y


_ROW = 16  # elements of a channel from which C processes it as a row


def _by_channel(v, n, c):
    """Returns a weight for each channel of each sample, in float64 (1 if v is None)."""
    return np.concatenate([np.ones(c) if v is None else v.astype(np.float64)] * n)


def _group_norm_rows(x, w, b, n, c, groups, hw, eps):
    """Like `_group_norm`, in C. Returns None if there is no C.

    8x33x113x111 float32 in 3 groups with weight and bias takes 1.4 ms, in pieces 3.3 ms (PyTorch
    1.6 ms).
    """
    c_kernels = large.scan_gather()
    m = x.reshape(n * groups, -1)
    mean = c_kernels.sums(m, times=1 / m.shape[1])
    if mean is None:
        return None
    rstd = (1 / np.sqrt(c_kernels.sums(m, c_kernels.CENTRED, mean, 1 / m.shape[1]) + m.dtype.type(eps))).astype(m.dtype, copy=False)
    factor = np.repeat(rstd.astype(np.float64), c // groups)
    if w is not None:
        factor *= _by_channel(w, n, c)
    shift = np.repeat(-mean.astype(np.float64), c // groups) * factor
    if b is not None:
        shift += _by_channel(b, n, c)
    return c_kernels.combined(x.reshape(n * c, hw), factor, shift).reshape(x.shape), mean, rstd, None


def _group_norm_grad_rows(g, x, w, mean, rstd, n, c, groups, hw):
    c_kernels = large.scan_gather()
    v, xs, rows, cg = g.reshape(n * c, hw), x.reshape(n * c, hw), n * groups, c // groups
    plain = c_kernels.sums(v)
    if plain is None:
        return None
    # gx = a * g + b * x + c with b and c per group
    plain, dot = (s.astype(np.float64).reshape(rows, cg) for s in (plain, c_kernels.sums(v, c_kernels.PRODUCT, xs)))
    mean, rstd, by = mean.astype(np.float64)[:, None], rstd.astype(np.float64)[:, None], _by_channel(w, n, c).reshape(rows, cg)
    gw = (dot - plain * mean) * rstd
    b = (gw * by).sum(1, keepdims=True) * rstd * rstd / (-cg * hw)
    shift = -b * mean - (plain * by).sum(1, keepdims=True) * rstd / (cg * hw)
    gx = c_kernels.combined(xs, np.repeat(b, cg), np.repeat(shift, cg), v, (by * rstd).reshape(-1))
    return gx.reshape(x.shape), *[s.reshape(n, c).sum(0).astype(g.dtype, copy=False) for s in (gw, plain)]


@kernel("native_group_norm native_instance_norm")
@quiet
def _group_norm(x, w, b, *, groups, eps):
    """Returns (result, mean and 1 / deviation of each group, normalized groups).

    Values that the gradient does not need are None.
    """
    if x.itemsize == 2:
        y, *saved = _group_norm(upcast(x), _upcast_operand(w), _upcast_operand(b), groups=groups, eps=eps)
        return downcast(y, x.dtype), *saved
    n, c = x.shape[:2]
    hw = math.prod(x.shape[2:])
    if not x.size:
        return np.zeros_like(x), None, np.zeros(n * groups, x.dtype), None
    if (got := large.reduce().groups(np.ascontiguousarray(x), w, b, n * groups, eps)) is not None:
        y, mean, _, rstd = got
        return y, mean, rstd, None
    if x.size >= large.FEW and hw >= _ROW and (got := _group_norm_rows(np.ascontiguousarray(x), w, b, n, c, groups, hw, eps)) is not None:
        return got
    plain = w is None and b is None
    y, mean, rstd, _, xhat = layer_norm(np.ascontiguousarray(x), None, None, n=c // groups * hw, eps=eps, unaliased=plain)
    y = y.reshape(n, c * hw)
    if x.size >= large.LEAST and (w is not None or b is not None):
        return channel_affine(y.reshape(x.shape), w, b), mean, rstd, xhat
    if w is not None:
        y = y * (np.repeat(w, hw) if hw != 1 else w)
    if b is not None:
        row = np.repeat(b, hw) if hw != 1 else b
        y = y + row if w is None else np.add(y, row, out=y)
    return y.reshape(x.shape), mean, rstd, xhat


@kernel("native_group_norm_backward")
@quiet
def _group_norm_grad(g, x, w, mean, rstd, xhat, *, groups, needs):
    n, c = x.shape[:2]
    hw = math.prod(x.shape[2:])
    size = c // groups * hw
    if not x.size:
        return np.zeros_like(x), np.zeros(c, g.dtype), np.zeros(c, g.dtype)
    g = np.ascontiguousarray(g)
    if xhat is None and (got := large.reduce().groups_back(g, np.ascontiguousarray(x), w, mean, rstd, needs[0])) is not None:
        return got
    if xhat is None and x.size >= large.FEW and x.dtype == g.dtype:
        return group_norm_grad(g, np.ascontiguousarray(x), w, mean, rstd, groups=groups)
    if xhat is None:
        xhat = np.ascontiguousarray(x).reshape(-1, size) - mean[:, None]
        xhat *= rstd[:, None]
    gx = gw = gb = None
    if needs[1]:
        gw = np.einsum("ncl,ncl->c", g.reshape(n, c, hw), xhat.reshape(n, c, hw))
    if needs[2]:
        gb = channel_sums(g, c, hw)
    if needs[0]:
        h = g if w is None else g.reshape(n, c * hw) * (np.repeat(w, hw) if hw != 1 else w)
        gx = layer_norm_grad(h.reshape(-1, size), xhat, None, None, rstd, None, xhat, n=size, needs=(True, False, False))[0]
        gx = gx.reshape(x.shape)
    return gx, gw, gb


def group_norm_grad(g, x, w, mean, rstd, *, groups):
    """Returns (gradient of x, of w, of b) for large arrays, from mean and 1 / deviation of each
    group."""
    n, c = x.shape[:2]
    hw = math.prod(x.shape[2:])
    rows, cg = n * groups, c // groups
    if hw >= _ROW and (got := _group_norm_grad_rows(g, x, w, mean, rstd, n, c, groups, hw)) is not None:
        return got
    d = g.dtype.type
    g3, x3 = g.reshape(rows, cg, hw), x.reshape(rows, cg, hw)
    gx = np.empty((rows, cg, hw), g.dtype)
    gw, gb = np.empty((rows, cg), g.dtype), np.empty((rows, cg), g.dtype)
    weight = np.concatenate([(np.ones(c, g.dtype) if w is None else w).reshape(groups, cg)] * n)
    k = d(1 / (cg * hw))

    def part(i, j):
        # Sums of g and of g * x over each channel; gx = a * g + b * x + c with b and c per group.
        v, xs, by, scale = g3[i:j], x3[i:j], weight[i:j], rstd[i:j]
        dot = row_dot(v.reshape(-1, hw), xs.reshape(-1, hw)).reshape(j - i, cg)
        gb[i:j] = plain = row_sum(v.reshape(-1, hw)).reshape(j - i, cg)
        gw[i:j] = (dot - plain * mean[i:j, None]) * scale[:, None]
        b = row_dot(gw[i:j], by)
        b *= scale
        b *= scale
        b *= -k
        c = b * -mean[i:j] - row_dot(plain, by) * scale * k
        r = np.multiply(v, (by * scale[:, None])[:, :, None], out=gx[i:j])
        t = xs * b[:, None, None]
        t += c[:, None, None]
        r += t
    large.each_rows(rows, cg * hw, part)
    return gx.reshape(x.shape), column_sum(gw.reshape(n, c)), column_sum(gb.reshape(n, c))


# ------------------------------------------------------------------ local response norm
@kernel("channel_window_sum")
@quiet
def _window_sum(x, *, size, before):
    """Sums `size` neighboring channels, `before` of which precede the channel itself."""
    c = x.shape[1]
    padded = np.zeros((x.shape[0], c + size - 1) + x.shape[2:], x.dtype)
    padded[:, before:before + c] = x
    r = padded[:, :c].copy()
    for i in range(1, size):
        r += padded[:, i:i + c]
    return r
