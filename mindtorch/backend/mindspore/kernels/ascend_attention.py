"""Attention on Ascend: two products, scale, softmax, and masks."""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels._call import dtype_of, G, cached_constants, mint, ms, number, on_device, op, P, shape_of, UnsupportedByKernel
from mindtorch.backend.mindspore.kernels.ascend import ascend, CUBE, swapped
from mindtorch.backend.mindspore.kernels.random import keep_mask


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
