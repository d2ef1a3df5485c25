"""Scaled dot product attention on MindSpore's CPU target, as two matrix products, a softmax and a
mask. The Ascend kernels are in `ascend_attention.py`.

The CPU target has no FlashAttention kernel.
"""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels._call import HALF, P, cast, dtype_of, from_contiguous, full, kernel, ms, number, op, shape_of
from mindtorch.backend.mindspore.kernels import _call
from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import STYPES, broadcast
from mindtorch.backend.mindspore.kernels.matmul import batched
from mindtorch.backend.mindspore.kernels.random import keep_mask
from mindtorch.backend.mindspore.kernels.reduction import sums
from mindtorch.backend.mindspore.kernels.softmax import softmax_backward


@_call.cached_constants(64)
def _triangle(n, m, dtype):
    """Returns an (n, m) matrix with 0 on and below the diagonal and -inf above. Cached."""
    a = np.full((n, m), -np.inf, STYPES[dtype])
    return from_contiguous(np.triu(a, 1) if n and m else a)


def _added(bias, d):
    """Converts a mask to an additive bias: False becomes -inf."""
    if dtype_of(bias) is ms.bool_:
        return op(P.Select)(bias, full(shape_of(bias), 0, d), full(shape_of(bias), -math.inf, d))
    return cast(bias, d)


def _softmax(s, complete):
    """Computes the softmax over the last dimension. If `complete`, every row has a key that is not
    masked. A row without such a key becomes zeros."""
    if complete:
        return op(P.Softmax, -1)(s)
    d = dtype_of(s)
    info = np.finfo(STYPES[d])
    top = op(P.Maximum)(op(P.ReduceMax, True)(s, (-1,)), number(float(info.min), d))
    e = o.exp(op(P.Sub)(s, top))
    total = sums(e, (len(shape_of(s)) - 1,), True)
    # A row that has a key has a sum of at least 1.
    none = op(P.Mul)(op(P.Equal)(total, number(0.0, d)), number(1.0, d))
    return op(P.RealDiv)(e, op(P.Add)(total, none))


@kernel("scaled_dot_product_attention", target="CPU", only="float32 float64 float16 bfloat16 bool", varying="scale keep")
def _attention(q, k, v, bias, *, causal, scale, keep, generator):
    """Returns (softmax(q @ k.T * scale + bias) @ v, the softmax, the dropout mask). The result has
    the dtype of q; the other two are float32 or higher precision."""
    mask = None
    if keep != 1:
        low = dtype_of(q)
        sizes = weights_of(shape_of(q), shape_of(k), *(() if bias is None else (shape_of(bias),)))
        mask = keep_mask(sizes, keep, generator, ms.float32 if low in HALF else low)
    return (*weighed(q, k, v, bias, mask, causal=causal, scale=scale, keep=keep), mask)


def weights_of(q, k, *bias):
    """Returns the shape of the attention weights for operands of these shapes."""
    return np.broadcast_shapes((*np.broadcast_shapes(q[:-2], k[:-2]), q[-2], k[-2]), *bias)


def weighed(q, k, v, bias, mask, *, causal, scale, keep):
    """Returns (the result, the softmax) of attention with a given dropout mask."""
    low = dtype_of(q)
    if low in HALF:
        q, k, v = [op(P.Cast)(x, ms.float32) for x in (q, k, v)]
    d = dtype_of(q)
    s = batched(q, k, False, True)
    if scale != 1:
        s = op(P.Mul)(s, number(scale, d))
    if bias is not None:
        s = op(P.Add)(s, _added(bias, d))
    if causal:
        s = op(P.Add)(s, _triangle(*shape_of(s)[-2:], d))
    p = _softmax(s, bias is None)
    drop = p
    if mask is not None:
        drop = op(P.Mul)(op(P.Mul)(p, mask), number(1 / (keep or 1.0), d))
    y = batched(drop, v)
    return (op(P.Cast)(y, low) if low in HALF else y), p


@kernel("scaled_dot_product_attention_backward", target="CPU", varying="scale keep")
def _attention_grad(g, q, k, v, p, mask, *, scale, keep, needs):
    """Returns the gradients of q, k and v, not yet summed over broadcast dimensions."""
    d = dtype_of(p)

    def dropped(x):
        if mask is None:
            return x
        return op(P.Mul)(op(P.Mul)(x, cast(mask, d)), number(1 / keep, d))
    gv = batched(dropped(p), g, True) if needs[2] else None
    if not (needs[0] or needs[1]):
        return None, None, gv
    gp = dropped(batched(g, v, False, True))
    lead = shape_of(p)
    if shape_of(gp) != lead:
        gp = broadcast(gp, lead)
    gs = op(P.Mul)(softmax_backward(gp, p, dim=-1), number(scale, d))
    return batched(gs, k) if needs[0] else None, batched(gs, q, True) if needs[1] else None, gv
