"""Attention by a device's flash kernel: it keeps two numbers for each row of scores and no weights.

The kernel has the primitive `flash_attention`. Devices without it, and calls that it does not cover,
use `scaled_dot_product_attention` (`mindtorch/ops/nn/attention.py`).
"""
import math

from mindtorch.core.autograd import forward_ad
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.device import device_dispatch, rng
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor import tensor_wrappers
from mindtorch.core.tensor.conj_neg_bits import plain
from mindtorch.core.tensor.stride_rules import as_computed
from mindtorch.core.tensor.tensor import ScalarOperand
from mindtorch.ops.basic import cast, eq_, mul_, not_
from mindtorch.ops.indexing._masks import masked_fill_
from mindtorch.ops.nn._attention_by_ops import compose
from mindtorch.ops.nn._fused import composite_backward_upcast

_backward = primitive("flash_attention_backward", "g, q, k, v, out, most, total, drop=None, drop_offset=None, hidden=None, bias=None, *, causal, scale, keep")


def _shared(k, q):
    """Repeats key or value heads for the query heads that share them."""
    return k if k._sizes[1] == q._sizes[1] else k.repeat_interleave(q._sizes[1] // k._sizes[1], 1)


def _rule(ctx, grads):
    grad = grads[0]
    causal, scale, keep, hidden, bias = ctx.causal, ctx.scale, ctx.keep, ctx.hidden, ctx.bias
    if not mode.on:
        return (*_backward(grad, ctx.q, ctx.k, ctx.v, ctx.out0, ctx.out1, ctx.out2, ctx.out3, ctx.out4, hidden, bias, causal=causal, scale=scale, keep=keep),
                None, None)
    if ctx.out3 is not None:
        raise NotImplementedError(f"gradients of the gradient of scaled_dot_product_attention with dropout, {ctx.q.dtype}, on device {ctx.q._device}")
    mask = None if hidden is None else not_(hidden)
    if bias is not None:
        mask = bias if mask is None else masked_fill_(bias, ScalarOperand(-math.inf, bias._np_dtype), hidden)
    return (*composite_backward_upcast(lambda q, k, v: compose(q, _shared(k, q), _shared(v, q), bias=mask, causal=causal, scale=scale, mask=None, keep=1.0),
                                       (ctx.q, ctx.k, ctx.v), grad), None, None)


#: (result, maximum of each row of scores, sum of the exponentials, two tensors that determine dropout's
#: mask: seed and offset on a device, which draws it again, and its bits and None on the host). Keys are
#: left out where `hidden` is True; `bias` is added to the scores. Operands are (batch, heads, length, size).
flash_ = primitive("flash_attention", "q, k, v, hidden=None, bias=None, *, causal, scale, keep, generator", _rule, raw=True, residuals=(3, 4), nondiff=(1, 2),
                   node="ScaledDotProductFusedAttentionOverrideableBackward0", layout=(None, as_computed, as_computed, as_computed, as_computed))


def _mask_sizes(mask, q, k):
    """Returns the sizes that the kernel accepts for a mask: the last two complete, the others 1 or
    complete. None if the mask has others."""
    m = (1,) * (4 - mask.ndim) + tuple(mask._sizes)
    full = (*q[:2], q[2], k[2])
    if mask.ndim > 4 or any(a not in (1, b) for a, b in zip(m, full)):
        return None
    if m[1] != 1 and m[0] == 1 and q[0] != 1:
        return (q[0], *m[1:2], *full[2:])
    return (*m[:2], *full[2:])


def flash_attention(query, key, value, mask, dropout_p, causal, scale):
    """Computes attention by the device's flash kernel; None if it does not cover the call."""
    found = flash_with_statistics(query, key, value, mask, dropout_p, causal, scale)
    return None if found is None else found[0]


def flash_with_statistics(query, key, value, mask, dropout_p, causal, scale):
    """Returns (attention, maximum of each row of scores, sum of the exponentials), the latter two eight
    times each; None if the device has no flash kernel that covers the call. mask: as of
    scaled_dot_product_attention."""
    query, key, value = plain(query), plain(key), plain(value)
    if query._handle is None or not device_dispatch.has_kernel(query._device, "flash_attention"):
        return None
    q, k, v = query._sizes, key._sizes, value._sizes
    if (len(q) != 4 or len(k) != 4 or len(v) != 4 or q[0] != k[0] or k[:3] != v[:3] or not k[1] or q[1] % k[1] or q[3] != v[3] or not query._numel
            or not key._numel or causal and mask is not None or dropout_p >= 1):
        return None
    generator = rng.default_of(query._device)
    if dropout_p and generator.on_host:
        return None
    if any(x._device != query._device or tensor_wrappers.is_wrapped(x) for x in (query, key, value)) or dispatch_state.dual is not None:
        return None
    hidden = bias = None
    if mask is not None:
        sizes = _mask_sizes(mask, q, k)
        if sizes is None or mask._device != query._device or tensor_wrappers.is_wrapped(mask) or forward_ad.is_differentiated(mask):
            return None
        if mask._np_dtype.kind == "b":
            hidden = not_(mask)
        else:
            # A row of scores that are all -inf has no maximum: keys with -inf are left out.
            mask = cast(mask, query._np_dtype)
            hidden = eq_(mask, ScalarOperand(-math.inf, mask._np_dtype))
            # (the kernel scales the sum of product and bias)
            bias = masked_fill_(mul_(mask, ScalarOperand(1 / scale, mask._np_dtype)), ScalarOperand(0.0, mask._np_dtype), hidden).expand(
                q[0] if sizes[0] != 1 else 1, q[1], *sizes[2:]).contiguous()
        hidden = hidden.expand(sizes).contiguous()
    return flash_(query, key, value, hidden, bias, causal=causal, scale=scale, keep=1.0 - dropout_p, generator=generator)[:3]
