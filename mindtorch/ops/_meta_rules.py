"""Shapes of kernels' results, for meta tensors: rule(fwd, arrays, kw) gives blank arrays, or None where it knows nothing.

Elementwise kernels tell their result's dtype by running on one element of each operand; what makes models large
(products, convolutions, normalisations, lookups) has its formula here.  A kernel without a rule runs on zeros.
"""
from mindtorch.backend.meta.arrays import blank
from mindtorch.core.meta import RULES

# The result has the shape and dtype of the first operand.
_SAME = "alpha_dropout dropout".split()

def _same(fwd, arrays, kw):
    return blank(arrays[0].shape, arrays[0].dtype, arrays[0])


def _rule(*names):
    def deco(fn):
        for n in names:
            RULES[n] = fn
        return fn
    return deco


for _n in _SAME:
    RULES[_n] = _same


@_rule("scaled_dot_product_attention")
def _attention(fwd, arrays, kw):
    q, _, v = arrays[:3]
    return blank((*q.shape[:-1], v.shape[-1]), q.dtype)


@_rule("expand")
def _expand(fwd, arrays, kw):
    return blank(kw["shape"], arrays[0].dtype) if "shape" in kw else None
