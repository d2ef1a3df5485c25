"""Scaled dot product attention on MindSpore's CPU target: two products, a softmax, and what the mask takes (Ascend: ascend_nn.py).

FlashAttention has no kernel there.
"""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels._call import HALF, P, cast, dtype_of, from_contiguous, full, kernel, ms, number, op, shape_of
from mindtorch.backend.mindspore.kernels import _call
from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import STYPES, broadcast
from mindtorch.backend.mindspore.kernels.matmul import batched
from mindtorch.backend.mindspore.kernels.random import kept
from mindtorch.backend.mindspore.kernels.reduction import sums
from mindtorch.backend.mindspore.kernels.softmax import softmax_backward


@_call.kept(64)
def _triangle(n, m, dtype):
    """0 on and below the diagonal of (n, m), -inf above; kept."""
    a = np.full((n, m), -np.inf, STYPES[dtype])
    return from_contiguous(np.triu(a, 1) if n and m else a)


def _added(bias, d):
    """A mask as numbers to be added: -inf where a bool one is False."""
    if dtype_of(bias) is ms.bool_:
        return op(P.Select)(bias, full(shape_of(bias), 0, d), full(shape_of(bias), -math.inf, d))
    return cast(bias, d)


def _softmax(s, whole):
    """Softmax over the last dimension; whole: every row has a key.  Rows without any become zeros."""
    if whole:
        return op(P.Softmax, -1)(s)
    d = dtype_of(s)
    info = np.finfo(STYPES[d])
    top = op(P.Maximum)(op(P.ReduceMax, True)(s, (-1,)), number(float(info.min), d))
    e = o.exp(op(P.Sub)(s, top))
    total = sums(e, (len(shape_of(s)) - 1,), True)
    # (A row that has a key has a sum of 1 at least.)
    none = op(P.Mul)(op(P.Equal)(total, number(0.0, d)), number(1.0, d))
    return op(P.RealDiv)(e, op(P.Add)(total, none))


@kernel("scaled_dot_product_attention", target="CPU", only="float32 float64 float16 bfloat16 bool", varying="scale keep")
def _attention(q, k, v, bias, *, causal, scale, keep, generator):
    """(softmax(q @ k.T * scale + bias) @ v, the softmax, which of its weights stay); the result in q's dtype, the rest in float32 at least."""
    mask = None
    if keep != 1:
        low = dtype_of(q)
        sizes = weights_of(shape_of(q), shape_of(k), *(() if bias is None else (shape_of(bias),)))
        mask = kept(sizes, keep, generator, ms.float32 if low in HALF else low)
    return (*weighed(q, k, v, bias, mask, causal=causal, scale=scale, keep=keep), mask)


def weights_of(q, k, *bias):
    """Sizes of the weights for operands of such sizes."""
    return np.broadcast_shapes((*np.broadcast_shapes(q[:-2], k[:-2]), q[-2], k[-2]), *bias)


def weighed(q, k, v, bias, mask, *, causal, scale, keep):
    """(the result, the softmax): attention of which the weights that stay are known."""
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
    """(gradient of q, of k, of v), not yet summed over dims that were stretched."""
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
