"""Shapes of kernels' results, for meta tensors: rule(fwd, arrays, kw) gives blank arrays, or None where it knows nothing.

Elementwise kernels tell their result's dtype by running on one element of each operand; what makes models large
(products, convolutions, normalisations, lookups) has its formula here.  A kernel without a rule runs on zeros.
"""
import numpy as np

from mindtorch.core import layout
from mindtorch.backend.meta.elementwise import elementwise
from mindtorch.core.meta import RULES, blank, on_strides
from mindtorch.ops.shapes._sizes import check_rank


_ELEMENTWISE = """l1_loss_backward mse_loss_backward""".split()

# The result has the shape and dtype of the first operand.
_SAME = """native_group_norm rms_norm
 flip roll tril triu alpha_dropout dropout""".split()

def _same(fwd, arrays, kw):
    return blank(arrays[0].shape, arrays[0].dtype, arrays[0])


def _rule(*names):
    def deco(fn):
        for n in names:
            RULES[n] = fn
        return fn
    return deco


for _n in _ELEMENTWISE:
    RULES[_n] = elementwise
for _n in _SAME:
    RULES[_n] = _same


@_rule("clone")
def _clone(fwd, arrays, kw):
    a = arrays[0]
    if len(arrays) != 1:
        return None
    if kw:
        return _in_format(a, a.dtype, kw["fmt"]) if kw.keys() == {"fmt"} else None
    # Both kernels of this name keep shape and dtype; the compacting one gives C order.
    small = np.empty(tuple(min(n, 2) for n in a.shape), a.dtype)
    order = sorted(range(a.ndim), key=lambda i: -a.strides[i])
    kept = fwd(small.transpose(order).copy().transpose([order.index(i) for i in range(a.ndim)]))
    return blank(a.shape, a.dtype, None if kept.flags.c_contiguous else a)


@_rule("to_copy")
def _to_copy(fwd, arrays, kw):
    a = arrays[0]
    return _in_format(a, a.dtype if kw["dtype"] is None else kw["dtype"], kw.get("fmt", "preserve"))


def _in_format(a, dtype, fmt):
    if fmt == "preserve":
        return on_strides(a.shape, dtype, layout.like_strides(a.shape, layout.strides_of(a)))
    check_rank(a.shape, fmt)
    return on_strides(a.shape, dtype, layout.format_strides(a.shape, fmt))


@_rule("native_layer_norm", "native_batch_norm")
def _norm(fwd, arrays, kw):
    if "ctx" in kw and "dims" not in kw:
        # The caller reads mean and variance out of ctx: these are per channel.
        return None
    return _same(fwd, arrays, kw)


@_rule("scaled_dot_product_attention")
def _attention(fwd, arrays, kw):
    q, _, v = arrays[:3]
    return blank((*q.shape[:-1], v.shape[-1]), q.dtype)


@_rule("expand")
def _expand(fwd, arrays, kw):
    return blank(kw["shape"], arrays[0].dtype) if "shape" in kw else None
