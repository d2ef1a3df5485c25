"""Attention on Ascend: one flash kernel, and for other calls two products, scale, softmax, and masks."""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels._call import dtype_of, G, cached_constants, mint, ms, number, on_device, op, P, shape_of, UnsupportedByKernel
from mindtorch.backend.mindspore.kernels.ascend import ascend, CUBE, swapped
from mindtorch.backend.mindspore.kernels.random import drawn, keep_mask, rng_state
from mindtorch.backend.mindspore.recorder_api import new_buffer


@cached_constants(64)
def _triangle(n, m, dtype):
    """Returns a matrix with -inf above the diagonal, 0 elsewhere."""
    return op(P.Cast)(on_device(np.triu(np.full((n, m), -math.inf, np.float32), 1)), dtype)


@ascend("scaled_dot_product_attention", only=CUBE + " bool")
def _attention(q, k, v, bias, *, causal, scale, keep, generator):
    """Returns (result, weights, mask of the weights that dropout keeps)."""
    s = op(G.Muls)(op(G.MatMulExt)(q, swapped(k)), scale)
    some = None
    if bias is not None:
        if dtype_of(bias) is ms.bool_:
            s, some = mint.where(bias, s, number(-math.inf, dtype_of(s))), bias
        else:
            if dtype_of(bias) is not dtype_of(s):
                raise UnsupportedByKernel
            s, some = op(G.AddExt)(s, bias, 1), mint.ne(bias, number(-math.inf, dtype_of(s)))
    if causal:
        s = op(G.AddExt)(s, _triangle(*shape_of(s)[-2:], dtype_of(s)), 1)
    p = op(P.Softmax, -1)(s)
    if some is not None:
        p = mint.where(some, p, number(0.0, dtype_of(p)))  # Rows without any key are nan so far.
    mask = None if keep == 1 else keep_mask(shape_of(p), keep, generator, dtype_of(p))
    return op(G.MatMulExt)(_dropped(p, mask, keep), v), p, mask


def _dropped(x, mask, keep):
    return x if mask is None else op(G.Muls)(op(G.Mul)(x, mask), 1 / (keep or 1.0))


@ascend("scaled_dot_product_attention_backward", only=CUBE)
def _attention_backward(g, q, k, v, p, mask, *, scale, keep, needs):
    gv = op(G.MatMulExt)(swapped(_dropped(p, mask, keep)), g) if needs[2] else None
    if not (needs[0] or needs[1]):
        return None, None, gv
    gs = op(G.Muls)(op(G.SoftmaxBackward)(_dropped(op(G.MatMulExt)(g, swapped(v)), mask, keep), p, -1), scale)
    return op(G.MatMulExt)(gs, k) if needs[0] else None, op(G.MatMulExt)(swapped(gs), q) if needs[1] else None, gv


# ------------------------------------------------------------------ the flash kernel
#: Causal masks of any size are this one, of which the kernel reads a part (sparse mode 2).
_CAUSAL = 2048
_ALL = 2147483647  # no limit of the distance between query and key


@cached_constants(1)
def _upper():
    return op(P.Triu, 1)(op(G.Ones)((_CAUSAL, _CAUSAL), ms.bool_))


def _settings(q, causal, scale, keep):
    return shape_of(q)[1], keep, scale, _ALL, _ALL, 0, "BNSD", 2 if causal else 0


def _bits(q, k, keep, seed, offset):
    """Returns dropout's mask of the weights, one bit each. The gradient draws it again."""
    return op(G.DropoutGenMaskExt)((*shape_of(q)[:3], shape_of(k)[2]), 1 - keep, seed, offset, dtype_of(q))


@ascend("flash_attention", only=CUBE + " bool")
def _flash(q, k, v, hidden, bias, *, causal, scale, keep, generator):
    """Returns (result, maxima and sums of the rows, eight times each, seed and offset of dropout)."""
    seed, offset = (None, None) if keep == 1 else new_buffer(rng_state, drawn(generator), 0)
    bits = None if keep == 1 else _bits(q, k, keep, seed, offset)
    most, total, _, r = op(G.FlashAttentionScore, *_settings(q, causal, scale, keep))(q, k, v, bias, bits, None, _upper() if causal else hidden)
    return r, most, total, seed, offset


@ascend("flash_attention_backward", only=CUBE + " bool int64")
def _flash_backward(g, q, k, v, out, most, total, seed, offset, hidden, bias, *, causal, scale, keep):
    bits = None if keep == 1 else _bits(q, k, keep, seed, offset)
    return op(G.FlashAttentionScoreGrad, *_settings(q, causal, scale, keep))(q, k, v, g, bias, bits, None, _upper() if causal else hidden, most, total, None,
                                                                             out)[:3]
