"""Scaled dot product attention on arrays, forward and backward.

4 heads of 64x32, batch 4, causal: forward 190 us (torch's math path 210, MindSpore's FlashAttention has no CPU kernel).
"""
import functools
import math
from typing import Any

import numpy as np

from mindtorch.backend.cpu import kernel, large
from mindtorch.backend.cpu.half import narrow, widen
from mindtorch.backend.cpu.heavy import row_dot, row_sum, rows
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.product import blas_ready, product
from mindtorch.backend.cpu.rng import bernoulli_mask

_triangles: dict[Any, Any] = {}


def triangle(n, m, dtype):
    """1 on and below the diagonal of (n, m), 0 above; read only."""
    key = (n, m, dtype)
    r = _triangles.get(key)
    if r is None:
        if len(_triangles) > 64:
            _triangles.clear()
        r = _triangles[key] = np.tri(n, m, dtype=dtype)
        r.flags.writeable = False
    return r


@functools.lru_cache(64)
def _without_later(n, m):
    """0 on and below the diagonal of (n, m), minus infinity above, in float32; read only."""
    r = np.where(triangle(n, m, np.dtype(bool)), np.float32(0), np.float32(-np.inf))
    r.flags.writeable = False
    return r


def _weights(s, bias, causal):
    """Softmax over the last dim of the scores s (overwritten); rows without any key become zeros."""
    n, m = s.shape[-2:]
    if bias is not None:
        s += bias
    if s.size >= large.SOME:
        p = large.rows().soft(large.rows().SOFT, s + _without_later(n, m) if causal else s, -1)
        # (2x8x8: 4 us, what follows 9; nan: in a row without any key)
        if p is not None and not math.isnan(p.max()):
            return p
    if bias is None and s.size and s.flags.c_contiguous:
        # One shift for all rows, if it leaves every row a sum that is far from underflow.
        top = s.max()
        if math.isfinite(top):
            e = s - top
            np.exp(e, out=e)
            if causal:
                e *= triangle(n, m, s.dtype)
            e2 = rows(e)
            total = row_sum(e2)
            if total.min() >= 1e-20:
                e2 *= np.reciprocal(total)[:, None]
                return e
    if causal:
        s = np.where(triangle(n, m, np.dtype(bool)), s, s.dtype.type(-np.inf))
    top = s.max(axis=-1, keepdims=True) if m else np.zeros(s.shape[:-1] + (1,), s.dtype)
    s -= np.where(np.isneginf(top), 0, top)
    np.exp(s, out=s)
    total = s.sum(axis=-1, keepdims=True)
    total[total == 0] = 1
    s /= total
    return s


#: Multiplications of the scores up to which C does all of it, and elements of keys beside fewer than four queries (they are copied).  us of one
#: thread, C / NumPy, (heads, queries, keys, elements): float32 2x8x8x8 5 / 25, 4x16x16x16 8 / 30, 8x32x32x16 55 / 100, 8x64x64x64 397 / 333,
#: causal 296 / 374, 8x1x64x64 90 / 57; float64 4x16x16x16 12 / 55, 8x32x32x16 53 / 140,
#: causal 16x64x64x32 513 / 1058 (with AVX2).  Fewer than four queries go there at any size where keys and values lie in rows, which are read in
#: their places: 8x1x64x64 8 us, by products 17.
_SMALL, _SMALL_CAUSAL, _FEW_KEYS = 1 << 19, 1 << 21, 1 << 12


@kernel("scaled_dot_product_attention")
def attention(q, k, v, bias, *, causal, scale, keep, generator):
    """(softmax(q @ k.T * scale + bias) @ v over the last two dims, the softmax, which of its weights stay).

    bias: numbers to be added, or bools, False where a key takes no part; keep: the probability with which a weight stays, and grows by
    1 / keep.  The result has q's dtype, the rest is computed in float32 at least.
    """
    few = q.shape[-2] < 4 and (k.size <= _FEW_KEYS or k.strides[-1] == k.itemsize and v.strides[-1] == v.itemsize)
    if keep == 1 and (few or q.shape[-2] >= 4 and q.size * k.shape[-2] <= (_SMALL_CAUSAL if causal else _SMALL)):
        r = large.rows().attend(q, k, v, bias, causal, scale)
        if r is not None:
            return *r, None
    return _by_products(q, k, v, bias, causal=causal, scale=scale, keep=keep, generator=generator)


@quiet
def _by_products(q, k, v, bias, *, causal, scale, keep, generator):
    if q.itemsize == 2:
        y, *held = attention(widen(q), widen(k), widen(v), bias, causal=causal, scale=scale, keep=keep, generator=generator)
        return narrow(y, q.dtype), *held
    s = product(q, k.swapaxes(-1, -2))
    s *= s.dtype.type(scale)
    if bias is not None:
        if bias.dtype.kind == "b":
            out = np.logical_not(bias)
            bias = np.zeros(bias.shape, q.dtype)
            bias[out] = -np.inf
        else:
            bias = (widen(bias) if bias.itemsize == 2 else bias).astype(q.dtype, copy=False)
        shape = np.broadcast_shapes(s.shape, bias.shape)
        if shape != s.shape:
            s = np.broadcast_to(s, shape).copy()
    mask = None
    if keep != 1:
        mask = bernoulli_mask(s.shape, keep, generator) if keep else np.zeros(s.shape, bool)
    p = _weights(s, bias, causal)
    if mask is None:
        return product(p, v), p, None
    drop = p * mask
    drop *= p.dtype.type(1 / (keep or 1.0))
    return product(drop, v), p, mask


@kernel("scaled_dot_product_attention_backward")
@quiet
def attention_grad(g, q, k, v, p, mask, *, scale, keep, needs):
    """(gradient of q, of k, of v), not yet summed over dims that were stretched."""
    d = p.dtype.type
    g = blas_ready(g)
    drop = p
    if mask is not None:
        drop = p * mask
        drop *= d(1 / keep)
    gv = product(drop.swapaxes(-1, -2), g) if needs[2] else None
    if not (needs[0] or needs[1]):
        return None, None, gv
    gp = product(g, v.swapaxes(-1, -2))
    if mask is not None:
        gp *= mask
        gp *= d(1 / keep)
    # gs = p (gp - sum(gp p)) scale
    gs = large.rows().soft(large.rows().SOFT_BACK, gp, -1, p) if gp.size >= large.SOME else None
    if gs is None:
        gp2, p2 = rows(gp), rows(p)
        gp2 -= row_dot(gp2, p2)[:, None]
        gp2 *= p2
        gs = gp2.reshape(gp.shape)
    gs *= d(scale)
    gq = product(gs, k) if needs[0] else None
    gk = product(gs.swapaxes(-1, -2), q) if needs[1] else None
    return gq, gk, gv
