"""Scaled dot product attention on arrays, forward and backward.

Batch 4, 4 heads of 64x32, causal: the forward pass takes 190 us (PyTorch's math kernel: 210 us;
MindSpore's FlashAttention has no CPU kernel).
"""
import functools
import math
from typing import Any

import numpy as np

from mindtorch.backend.cpu import kernel, large
from mindtorch.backend.cpu.half import downcast, upcast
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.blas import blas_ready, product
from mindtorch.backend.cpu.random import bernoulli_mask
from mindtorch.backend.cpu.sum import row_dot, row_sum, rows

_triangles: dict[Any, Any] = {}


def triangle(n, m, dtype):
    """Returns an (n, m) array of 1 on and below the diagonal and 0 above it. It is cached and
    read-only."""
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
    """Returns an (n, m) float32 array of 0 on and below the diagonal and -inf above it. It is
    cached and read-only."""
    r = np.where(triangle(n, m, np.dtype(bool)), np.float32(0), np.float32(-np.inf))
    r.flags.writeable = False
    return r


def _weights(s, bias, causal):
    """Computes the softmax of the scores `s` over the last dim; overwrites `s`.

    Rows without any key become zeros.
    """
    n, m = s.shape[-2:]
    if bias is not None:
        s += bias
    if s.size >= large.SOME:
        p = large.reduce().soft(large.reduce().SOFT, s + _without_later(n, m) if causal else s, -1)
        # 2x8x8 takes 4 us here, 9 us below. The result has nan if a row has no key.
        if p is not None and not math.isnan(p.max()):
            return p
    if bias is None and s.size and s.flags.c_contiguous:
        # Subtract one maximum from all rows, if no row's sum then comes near underflow.
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


#: Limits of the C kernel: multiplications of the scores, and elements of the keys if there are
#: fewer than four queries (keys are copied). Time on one thread, C vs NumPy, for (heads, queries,
#: keys, head size): float32 8x32x32x16 55 vs 100 us, 8x64x64x64 397 vs 333 us, causal 296 vs 374
#: us, 8x1x64x64 90 vs 57 us; float64 8x32x32x16 53 vs 140 us, causal 16x64x64x32 513 vs 1058 us
#: (with AVX2). Fewer than four queries use C at any size if the last dim of keys and values is
#: contiguous: then they are read in place, and 8x1x64x64 takes 8 us vs 17 us by matrix products.
_SMALL, _SMALL_CAUSAL, _FEW_KEYS = 1 << 19, 1 << 21, 1 << 12


@kernel("scaled_dot_product_attention")
def attention(q, k, v, bias, *, causal, scale, keep, generator):
    """Computes attention over the last two dims.

    Returns (softmax(q @ k.T * scale + bias) @ v, the softmax, the dropout mask or None). A numeric
    `bias` is added to the scores; a bool `bias` is False for keys that are masked out. `keep` is
    the probability that a weight survives dropout; surviving weights are scaled by 1 / keep. The
    result has q's dtype. The computation uses at least float32.
    """
    few = q.shape[-2] < 4 and (k.size <= _FEW_KEYS or k.strides[-1] == k.itemsize and v.strides[-1] == v.itemsize)
    if keep == 1 and (few or q.shape[-2] >= 4 and q.size * k.shape[-2] <= (_SMALL_CAUSAL if causal else _SMALL)):
        r = large.reduce().attend(q, k, v, bias, causal, scale)
        if r is not None:
            return *r, None
    return _by_products(q, k, v, bias, causal=causal, scale=scale, keep=keep, generator=generator)


@quiet
def _by_products(q, k, v, bias, *, causal, scale, keep, generator):
    if q.itemsize == 2:
        y, *saved = attention(upcast(q), upcast(k), upcast(v), bias, causal=causal, scale=scale, keep=keep, generator=generator)
        return downcast(y, q.dtype), *saved
    s = product(q, k.swapaxes(-1, -2))
    s *= s.dtype.type(scale)
    if bias is not None:
        if bias.dtype.kind == "b":
            out = np.logical_not(bias)
            bias = np.zeros(bias.shape, q.dtype)
            bias[out] = -np.inf
        else:
            bias = (upcast(bias) if bias.itemsize == 2 else bias).astype(q.dtype, copy=False)
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
    """Returns (gradient of q, of k, of v), not yet summed over broadcast dims."""
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
    gs = large.reduce().soft(large.reduce().SOFT_BACK, gp, -1, p) if gp.size >= large.SOME else None
    if gs is None:
        gp2, p2 = rows(gp), rows(p)
        gp2 -= row_dot(gp2, p2)[:, None]
        gp2 *= p2
        gs = gp2.reshape(gp.shape)
    gs *= d(scale)
    gq = product(gs, k) if needs[0] else None
    gk = product(gs.swapaxes(-1, -2), q) if needs[1] else None
    return gq, gk, gv
