"""torch._higher_order_ops.flex_attention: attention with user-modified scores, computed on the full
score matrix."""
import math

from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

from mindtorch.torch._higher_order_ops._operators import operator

__all__ = ["flex_attention", "flex_attention_backward", "math_attention", "TransformGetItemToIndex"]


def over_indices(fn, b, h, m, n, score=None, more=()):
    """Returns fn(score, b, h, m, n, *more) for each entry of a (B, H, M, N) score matrix; without
    `score`, fn(b, h, m, n, *more).

    b, h, m, n: index vectors. The function accepts scalars, as 0-d tensors. If its calls are
    element-wise or read one element of a tensor, it is called once for all entries, else through
    torch.vmap.
    """
    from mindtorch.torch._higher_order_ops import _broadcast
    try:
        return _broadcast.over_indices(fn, tuple([len(t) for t in (b, h, m, n)]), score, (b, h, m, n), more)
    except _broadcast.Unsure:
        pass
    from mindtorch.torch.func import vmap
    first, rest = (() if score is None else (0,)), (None,) * len(more)
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        fn = vmap(fn, in_dims=(*first, *dims, *rest), out_dims=0)
    return fn(*(() if score is None else (score,)), b, h, m, n, *more)


def math_attention(query, key, value, score_mod, mask_mod, scale, score_mod_other_buffers=(), mask_mod_other_buffers=()):
    """Returns (attention output, log2 of the sum of exponentials per row, maximum score per row in
    base 2).

    query (B, Hq, L, E), key (Bkv, Hkv, S, E), value (Bkv, Hkv, S, Ev). Scores have at least float32
    precision. A fully masked row yields 0.
    """
    f = OPS["where"].public
    key, value = key.to(query.dtype), value.to(query.dtype)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if key.shape[0] != query.shape[0]:
        key, value = [t.expand(query.shape[0], *t.shape[1:]) for t in (key, value)]
    working = query.dtype if query.element_size() > 4 else _float32()
    # The scale is applied last, as in PyTorch: half-precision products are rounded before it.
    scores = (query @ key.transpose(-2, -1)).to(working) * scale
    at = [OPS["arange"].public(n, device=query.device) for n in scores.shape]
    if score_mod is not None:
        scores = over_indices(score_mod, *at, score=scores, more=score_mod_other_buffers).to(working)
    if mask_mod is not None:
        scores = f(over_indices(mask_mod, *at, more=mask_mod_other_buffers), scores, -math.inf)
    dead = (scores == -math.inf).all(-1)
    lse = f(dead, -math.inf, scores.logsumexp(-1))
    weights = OPS["_safe_softmax"].public(scores, -1)
    return weights.to(query.dtype) @ value, lse / math.log(2), scores.amax(-1) / math.log(2)


def _float32():
    from mindtorch.core.tensor.dtypes import float32
    return float32


@operator("flex_attention")
def flex_attention(query, key, value, score_mod, block_mask, scale, kernel_options, score_mod_other_buffers=(), mask_mod_other_buffers=()):
    """Like `math_attention`, for a BlockMask as a tuple whose last element is its mask_mod."""
    return math_attention(query, key, value, score_mod, block_mask[-1], scale, score_mod_other_buffers, mask_mod_other_buffers)


@operator("flex_attention_backward")
def flex_attention_backward(query, key, value, out, logsumexp, grad_out, grad_logsumexp, *rest, **named):
    """Not supported: gradients come from differentiating `flex_attention`."""
    assert is_tensor(query)
    raise NotImplementedError("torch.ops.higher_order.flex_attention_backward is not supported: differentiate flex_attention instead")
