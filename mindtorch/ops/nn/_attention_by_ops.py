"""Attention from separate ops, for gradients of gradients."""
import math

from mindtorch.core.tensor.dtypes import BOOL
from mindtorch.ops.basic import cast, ne_, new_full, not_
from mindtorch.ops.linalg.matmul import bmm_
from mindtorch.ops.nn.activation import softmax_
from mindtorch.ops.nn.dropout import masked_scale


def _additive_mask(mask, d):
    """Returns an additive mask. False in a bool mask becomes -inf."""
    if mask._np_dtype.kind != "b":
        return cast(mask, d)
    return new_full(mask, size=mask._sizes, value=0, np_dtype=d).masked_fill(not_(mask), -math.inf)


def compose(q, k, v, *, bias, causal, scale, mask, keep):
    """Computes attention; each step has a gradient rule. mask: what dropout keeps, or None."""
    s = bmm_(q, k, ta=False, tb=True) * scale
    if bias is not None:
        s = s + _additive_mask(bias, s._np_dtype)
    if causal:
        s = s.masked_fill(not_(new_full(s, size=s._sizes[-2:], value=1, np_dtype=BOOL).tril()), -math.inf)
    p = softmax_(s, dim=s.ndim - 1)
    p = p.masked_fill(ne_(p, p).all(-1, True), 0.0)  # rows whose keys are all masked
    if mask is not None:
        p = masked_scale(p, mask, scale=1 / keep)
    return bmm_(p, v, ta=False, tb=False)
