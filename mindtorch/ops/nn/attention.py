"""Attention: scaled_dot_product_attention as one kernel, and multi_head_attention_forward built on
it."""
import math

from mindtorch.core.device import device_dispatch, rng
from mindtorch.core.autograd import forward_ad
from mindtorch.core.tensor.conj_neg_bits import plain
from mindtorch.core.tensor.dtypes import F32
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.stride_rules import as_computed
from mindtorch.core.dispatch.op_registry import OPS, register_op
from mindtorch.core.dispatch.op_schema import Bool, Float, Int
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.sync import of_all
from mindtorch.ops._checks import check_tensor
from mindtorch.ops.nn._attention_by_ops import compose
from mindtorch.ops.nn._flash_attention import flash_attention
from mindtorch.ops.nn._fused import composite_backward_upcast, check_tensor_arg
from mindtorch.ops.nn.activation import softmax_
from mindtorch.ops.basic import cast, new_full
from mindtorch.ops.nn.dropout import _dropout
from mindtorch.ops.linalg.matmul import addmm_, bmm_, broadcast_sizes, linear
from mindtorch.ops.nn.pad import pad_constant_

_backward = primitive("scaled_dot_product_attention_backward", "g, q, k, v, p=None, mask=None, *, scale, keep, needs")


def _rule(ctx, grad):
    keep = ctx.keep or 1.0
    if mode.on:
        bias, causal, scale, mask = ctx.bias, ctx.causal, ctx.scale, ctx.out2
        return composite_backward_upcast(lambda q, k, v: compose(q, k, v, bias=bias, causal=causal, scale=scale, mask=mask, keep=keep), (ctx.q, ctx.k, ctx.v),
                                         grad) + (None,)
    return _backward(grad, ctx.q, ctx.k, ctx.v, ctx.out1, ctx.out2, scale=ctx.scale, keep=keep, needs=ctx.needs) + (None,)


#: (result, attention weights, dropout mask). The mask is None with keep=1.
attention_ = primitive("scaled_dot_product_attention", "q, k, v, bias=None, *, causal, scale, keep, generator", _rule, raw=True, residuals=(1, 2),
                       node="ScaledDotProductFlashAttentionForCpuBackward0", layout=(None, as_computed, as_computed))


def _name(x):
    return {"int64": "long int", "int32": "int", "float32": "float", "float64": "double", "float16": "c10::Half",
            "bfloat16": "c10::BFloat16", "bool": "bool"}.get(x._np_dtype.name, x._np_dtype.name)


@register_op(ns="nn.functional", method=False, autocast="lower")
def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p: Float = 0.0, is_causal: Bool = False, *, scale: Float = None,
                                 enable_gqa: Bool = False):
    """Computes softmax(query @ key.T * scale + mask) @ value.

    query (*, L, E), key (*, S, E), value (*, S, V) -> (*, L, V). A bool mask is True where a key
    takes part in attention.
    """
    check_tensor_arg("scaled_dot_product_attention", "query", query)
    check_tensor_arg("scaled_dot_product_attention", "key", key, 2)
    check_tensor_arg("scaled_dot_product_attention", "value", value, 3)
    q, k, v, d = query._sizes, key._sizes, value._sizes, query._np_dtype
    if d != key._np_dtype or d != value._np_dtype:
        raise RuntimeError("Expected query, key, and value to have the same dtype, but got query.dtype: "
                           f"{_name(query)} key.dtype: "
                           f"{_name(key)} and value.dtype: {_name(value)} instead.")
    if len(q) < 2 or len(k) < 2 or len(v) < 2:
        raise RuntimeError("Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
                           f"{len(q)} key.dim: {len(k)} and value.dim: {len(v)} instead.")
    if d.kind not in "fV":
        raise NotImplementedError(f"'scaled_dot_product_attention' is not implemented for dtype {query.dtype} on "
                                  "device cpu")
    if attn_mask is not None:
        check_tensor_arg("scaled_dot_product_attention", "attn_mask", attn_mask, 4)
        if is_causal and not (len(q) == 4 and q[:2] == k[:2] and q[-1] == v[-1]):
            raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
        if attn_mask._np_dtype.kind != "b" and attn_mask._np_dtype != d and attn_mask._np_dtype != F32:
            raise RuntimeError("Expected attn_mask dtype to be bool or float or to match query dtype, but got "
                               "attn_mask.dtype: "
                               f"{_name(attn_mask)} and  query.dtype: {_name(query)} instead.")
    groups = 1
    if enable_gqa and len(q) > 2:
        heads, kh, vh = q[-3], k[-3], v[-3]
        if heads % kh or heads % vh:
            raise RuntimeError("Number of heads in key and value must divide the number of heads in ")
        if kh == vh and kh != heads:
            groups = heads // kh
        elif kh != heads:
            key, value = key.repeat_interleave(heads // kh, -3), value.repeat_interleave(heads // vh, -3)
            k, v = key._sizes, value._sizes
    if q[-1] != k[-1] or k[-2] != v[-2]:
        batch = math.prod(q[:-2])
        a, b = (q[-1], k[-1]) if q[-1] != k[-1] else (k[-2], v[-2])
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: [{batch}, {a}] but got: "
                           f"[{batch}, {b}].")
    if groups == 1:
        lead, keys = q[:-2], k[:-2]
        if lead != keys or keys != v[:-2]:
            _check_lead(q, k)
            _check_lead(k, v)
    if scale is None:
        scale = 1 / math.sqrt(q[-1]) if q[-1] else 1.0
    y = flash_attention(query, key, value, attn_mask, dropout_p, bool(is_causal), float(scale))
    if y is not None:
        return y
    if groups > 1:
        # Query heads that share a key are adjacent in memory. Splitting them into a dim of their
        # own copies nothing.
        query = query.unflatten(-3, (kh, groups))
        key, value = key.unsqueeze(-3), value.unsqueeze(-3)
        if attn_mask is not None and attn_mask.ndim > 2:
            m = attn_mask._sizes[-3]
            attn_mask = attn_mask.unsqueeze(-3) if m == 1 else attn_mask.unflatten(-3, (kh, groups))
        y = _attend(query, key, value, attn_mask, dropout_p, is_causal, scale)
        return y.flatten(-4, -3)
    return _attend(query, key, value, attn_mask, dropout_p, is_causal, scale)


def _check_lead(a, b):
    for i, (m, n) in enumerate(zip(reversed(a[:-2]), reversed(b[:-2]))):
        if m != n and m != 1 and n != 1:
            raise RuntimeError(f"The size of tensor a ({m}) must match the size of tensor b ({n}) at non-singleton "
                               "dimension "
                               f"{max(len(a), len(b)) - 3 - i}")


def _attend(query, key, value, attn_mask, dropout_p, causal, scale):
    if attn_mask is not None:
        q, k, m = query._sizes, key._sizes, attn_mask._sizes
        shape = broadcast_sizes(q[:-2], k[:-2]) + (q[-2], k[-2])
        if any([x != y and x != 1 and y != 1 for x, y in zip(reversed(m), reversed(shape))]):
            raise RuntimeError(f"The expanded size of the tensor ({shape[-1]}) must match the existing size "
                               f"({m[-1]}) at "
                               f"non-singleton dimension {len(shape) - 1}.  Target sizes: {list(shape)}.  Tensor "
                               "sizes: "
                               f"{list(m)}")
        if forward_ad.is_differentiated(attn_mask):
            return _with_learned_mask(query, key, value, attn_mask, dropout_p, scale)
    keep = 1.0
    if dropout_p > 0:
        if dropout_p > 1:
            raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
        keep = 1.0 - dropout_p
    return attention_(query, key, value, attn_mask, causal=bool(causal), scale=float(scale), keep=keep,
                      generator=rng.default_generator if query._handle is None else rng.default_of(query._device))[0]


def _with_learned_mask(query, key, value, attn_mask, dropout_p, scale):
    """Computes attention from separate ops, so that the mask gets a gradient too."""
    s = bmm_(query, key, ta=False, tb=True) * scale + cast(attn_mask, query._np_dtype)
    p = softmax_(s, dim=s.ndim - 1)
    return bmm_(_dropout(p, dropout_p, True), value, ta=False, tb=False)


@register_op(method=False, name="scaled_dot_product_attention")
def _torch_attention(query, key, value, attn_mask=None, dropout_p: Float = 0.0, is_causal: Bool = False, *, scale: Float = None, enable_gqa: Bool = False):
    """Same as torch.nn.functional.scaled_dot_product_attention."""
    return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


@register_op(method=False, aten="_safe_softmax.default")
def _safe_softmax(input, dim: Int, dtype=None):
    """Computes softmax. Rows of only -inf become zeros."""
    if dtype is not None:
        input = input.to(dtype)
    p = input.softmax(dim)
    dead = input.isneginf().all(dim, True)
    return p.masked_fill(dead, 0.0) if of_all(dead).any() else p


# ------------------------------------------------------------------ multi-head attention
def _canonical_mask(mask, name, other, other_name, target, check_other=True):
    """Returns a mask as an additive float mask (bool: -inf where True). None stays None."""
    if mask is None:
        return None
    kind = mask._np_dtype.kind
    if kind not in "bfV":
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if check_other and other is not None and other._np_dtype != mask._np_dtype:
        import warnings
        warnings.warn(f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both instead.",
                      stacklevel=3)
    if kind == "b":
        return cast(new_full(mask, size=mask._sizes, value=0, np_dtype=F32).masked_fill(mask, -math.inf), target)
    return mask


def _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads):
    """Returns whether the input is batched. AssertionError if the shapes do not match."""
    for i, (name, t) in enumerate((("query", query), ("key", key), ("value", value)), 1):
        check_tensor("multi_head_attention_forward", t, name, i)
    n = query.ndim
    if n not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {n}-D query tensor")
    what = "batched" if n == 3 else "unbatched"
    if key.ndim != n or value.ndim != n:
        raise AssertionError(f"For {what} (`query`) expected `key` and `value` to be {n}-D but found {key.ndim}-D "
                             "and "
                             f"{value.ndim}-D tensors respectively")
    if key_padding_mask is not None and key_padding_mask.ndim != n - 1:
        raise AssertionError(f"For {what} `query`, expected `key_padding_mask` to be `None` or {n - 1}-D but found "
                             f"{key_padding_mask.ndim}-D tensor instead")
    if attn_mask is not None:
        if attn_mask.ndim not in (2, 3):
            raise AssertionError(f"For {what} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found "
                                 f"{attn_mask.ndim}-D tensor instead")
        if n == 2 and attn_mask.ndim == 3:
            want = (num_heads, query._sizes[0], key._sizes[0])
            if attn_mask._sizes != want:
                raise AssertionError(f"Expected `attn_mask` shape to be {want} but got {attn_mask.shape}")
    return n == 3


def _project(q, k, v, w, b, linear=linear):
    """Computes the three projections from one packed weight (3 E, E)."""
    e = q._sizes[-1]
    if k is v:
        if q is k:
            y = linear(q, w, b)
            return y.split(e, -1)
        wq, wkv = w.split([e, e * 2])
        bq, bkv = (None, None) if b is None else b.split([e, e * 2])
        y = linear(k, wkv, bkv)
        return (linear(q, wq, bq),) + tuple(y.split(e, -1))
    ws = w.chunk(3)
    bs = (None, None, None) if b is None else b.chunk(3)
    return tuple(linear(x, a, c) for x, a, c in zip((q, k, v), ws, bs))


def _zeros(shape, like):
    return new_full(like, size=shape, value=0, np_dtype=like._np_dtype)


def _cat(a, b, dim):
    return OPS["cat"].fn([a, b], dim)


def _canonical_masks(attn_mask, key_padding_mask, is_causal, need_weights, d):
    """Returns (additive attention mask, additive padding mask, is_causal)."""
    key_padding_mask = _canonical_mask(key_padding_mask, "key_padding_mask", attn_mask, "attn_mask", d)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    if is_causal and key_padding_mask is None and not need_weights:
        return None, key_padding_mask, is_causal
    attn_mask = _canonical_mask(attn_mask, "attn_mask", None, "", d, False)
    return attn_mask, key_padding_mask, is_causal and key_padding_mask is None


def _project_separately(query, key, value, weights, bias, product):
    """Computes the three projections from one weight each."""
    if key._sizes[:2] != value._sizes[:2]:
        raise AssertionError(f"key's sequence and batch dims {key._sizes[:2]} do not match value's "
                             f"{value._sizes[:2]}")
    for w, n in zip(weights, "qkv"):
        if w is None:
            raise AssertionError(f"use_separate_proj_weight is True but {n}_proj_weight is None")
    bs = (None, None, None) if bias is None else bias.chunk(3)
    return [product(x, w, b) for x, w, b in zip((query, key, value), weights, bs)]


def _with_heads_dim(mask, target, source, heads):
    """Returns an attention mask as (1 or batch size * heads, L, S)."""
    shape = mask._sizes
    if len(shape) == 2:
        if shape != (target, source):
            raise RuntimeError(f"The shape of the 2D attn_mask is {mask.shape}, but should be {(target, source)}.")
        return mask.unsqueeze(0)
    if shape != (heads, target, source):
        raise RuntimeError(f"The shape of the 3D attn_mask is {mask.shape}, but should be {(heads, target, source)}.")
    return mask


def _padding_by_heads(mask, batch, heads, source):
    """Returns a padding mask (N, S) as (N * heads, 1, S)."""
    if mask._sizes != (batch, source):
        raise AssertionError(f"expecting key_padding_mask shape of {(batch, source)}, but got {mask.shape}")
    return mask.reshape(batch, 1, 1, source).expand(batch, heads, 1, source).reshape(batch * heads, 1, source)


def _attention_with_weights(q, k, v, mask, dropout_p):
    """Returns (result, attention weights) of (N * heads, L, D)."""
    scaled = q * (1.0 / math.sqrt(q._sizes[-1]))
    if mask is not None:
        s = addmm_(mask.expand(*q._sizes[:2], k._sizes[1]), scaled, k.transpose(-2, -1), beta=1, alpha=1)
    else:
        s = bmm_(scaled, k, ta=False, tb=True)
    p = softmax_(s, dim=2)
    if dropout_p > 0:
        p = _dropout(p, dropout_p, True)
    return bmm_(p, v, ta=False, tb=False), p


@register_op(ns="nn.functional", method=False)
def multi_head_attention_forward(query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v,
                                 add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=True,
                                 key_padding_mask=None, need_weights=True, attn_mask=None, use_separate_proj_weight=False,
                                 q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None,
                                 average_attn_weights=True, is_causal=False):
    """Computes multi-head attention of (L, N, E) or (L, E). Returns (output, attention weights or
    None)."""
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        same_qk, same_kv = query is key, key is value
        query = query.unsqueeze(1)
        key = query if same_qk else key.unsqueeze(1)
        value = key if same_kv else value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    target, batch, embed = query._sizes
    source = key._sizes[0]
    d = query._np_dtype
    by_views = (plain(query)._handle is not None and device_dispatch.DEVICES[query._device.type].strided and not need_weights and not add_zero_attn
                and bias_k is None and bias_v is None and static_k is None and static_v is None)
    product = _linear_in_layout if by_views else linear
    attn_mask, key_padding_mask, is_causal = _canonical_masks(attn_mask, key_padding_mask, is_causal, need_weights, d)
    if embed != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed}")
    head = embed // num_heads
    if head * num_heads != embed:
        raise AssertionError(f"embed_dim {embed} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight:
        q, k, v = _project_separately(query, key, value, (q_proj_weight, k_proj_weight, v_proj_weight), in_proj_bias, product)
    else:
        if key._sizes != value._sizes:
            raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
        if in_proj_weight is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        if by_views and query is key and key is value:
            q, k, v = _packed_heads(query, in_proj_weight, in_proj_bias, num_heads)
        else:
            q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias, product)
    if attn_mask is not None:
        attn_mask = _with_heads_dim(attn_mask, target, source, batch * num_heads)
    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("bias cannot be added to static key.")
        k = _cat(k, bias_k.expand(1, batch, embed), 0)
        v = _cat(v, bias_v.expand(1, batch, embed), 0)
        attn_mask, key_padding_mask = _pad_key(attn_mask), _pad_key(key_padding_mask)
    elif bias_k is not None or bias_v is not None:
        raise AssertionError("bias_k and bias_v must both be given, or neither")

    if not training:
        dropout_p = 0.0
    if by_views:
        q, k, v = [x if x.ndim == 4 else _split_heads(x, num_heads) for x in (q, k, v)]
        y = scaled_dot_product_attention(q, k, v, _mask_by_views(attn_mask, key_padding_mask, batch, num_heads, source), dropout_p, is_causal)
        y = _merge_heads(y, query)
        y = linear(y, out_proj_weight, out_proj_bias)
        if _batch_first(query):
            y = y.transpose(0, 1)
        return (y if batched else y.squeeze(1)), None

    def heads(x):
        return x.reshape(x._sizes[0], batch * num_heads, head).transpose(0, 1)
    q = heads(q)
    k = heads(k) if static_k is None else _static(static_k, "static_k", batch * num_heads, head)
    v = heads(v) if static_v is None else _static(static_v, "static_v", batch * num_heads, head)
    if add_zero_attn:
        k = _cat(k, _zeros((batch * num_heads, 1, head), k), 1)
        v = _cat(v, _zeros((batch * num_heads, 1, head), v), 1)
        attn_mask, key_padding_mask = _pad_key(attn_mask), _pad_key(key_padding_mask)
    source = k._sizes[1]
    if key_padding_mask is not None:
        pad = _padding_by_heads(key_padding_mask, batch, num_heads, source)
        attn_mask = pad if attn_mask is None else attn_mask + pad
    if need_weights:
        y, p = _attention_with_weights(q, k, v, attn_mask, dropout_p)
        y = y.transpose(0, 1).reshape(target * batch, embed)
        y = linear(y, out_proj_weight, out_proj_bias).reshape(target, batch, out_proj_weight._sizes[0])
        p = p.reshape(batch, num_heads, target, source)
        if average_attn_weights:
            p = p.mean(1)
        if not batched:
            return y.squeeze(1), p.squeeze(0)
        return y, p
    if attn_mask is not None:
        if attn_mask._sizes[0] == 1 and attn_mask.ndim == 3:
            attn_mask = attn_mask.unsqueeze(0)
        else:
            attn_mask = attn_mask.reshape(batch, num_heads, -1, source)
    y = scaled_dot_product_attention(q.reshape(batch, num_heads, target, head), k.reshape(batch, num_heads, source, head),
                                     v.reshape(batch, num_heads, source, head), attn_mask, dropout_p, is_causal)
    y = y.permute(2, 0, 1, 3).reshape(batch * target, embed)
    y = linear(y, out_proj_weight, out_proj_bias).reshape(target, batch, out_proj_weight._sizes[0])
    return (y if batched else y.squeeze(1)), None


# Heads without a copy, for devices whose kernels accept operands of any strides. An (L, N, E)
# tensor that is laid out in memory as (N, L, E) is processed in that order.
def _batch_first(x):
    """True if x (L, N, E) is a transposed (N, L, E)."""
    return x._sizes[0] > 1 and x._sizes[1] > 1 and x.stride(0) < x.stride(1)


def _linear_in_layout(x, w, b):
    return linear(x.transpose(0, 1), w, b).transpose(0, 1) if _batch_first(x) else linear(x, w, b)


def _split_heads(x, n):
    """Returns (L, N, E) as (N, heads, L, E / heads)."""
    return x.unflatten(-1, (n, -1)).permute(1, 2, 0, 3)


def _packed_heads(x, w, b, n):
    """Returns the heads of all three projections. Their gradients are combined in one kernel
    launch."""
    if _batch_first(x):
        y = linear(x.transpose(0, 1), w, b)
        return [a.transpose(1, 2) for a in y.unflatten(-1, (3, n, -1)).unbind(2)]
    return [a.permute(1, 2, 0, 3) for a in linear(x, w, b).unflatten(-1, (3, n, -1)).unbind(2)]


def _merge_heads(y, query):
    """Returns (N, heads, L, D) as (N, L, heads * D) or (L, N, heads * D), following the memory
    layout of the query."""
    return (y.transpose(1, 2) if _batch_first(query) else y.permute(2, 0, 1, 3)).flatten(2)


def _mask_by_views(mask, padding, batch, heads, source):
    """Combines the two masks into one that broadcasts to (N, heads, L, S)."""
    if mask is not None:
        mask = mask.unsqueeze(0) if mask._sizes[0] == 1 else mask.unflatten(0, (batch, heads))
    if padding is None:
        return mask
    if padding._sizes != (batch, source):
        raise AssertionError(f"expecting key_padding_mask shape of {(batch, source)}, but got {padding.shape}")
    padding = padding.unsqueeze(1).unsqueeze(1)
    return padding if mask is None else mask + padding


def _pad_key(mask):
    """Extends a mask by one key, which is not masked."""
    if mask is None:
        return None
    return pad_constant_(mask, pads=((0, 0),) * (mask.ndim - 1) + ((0, 1),), value=0)


def _static(x, name, rows, head):
    if x._sizes[0] != rows:
        raise AssertionError(f"expecting {name}.size(0) of {rows}, but got {x._sizes[0]}")
    if x._sizes[2] != head:
        raise AssertionError(f"expecting {name}.size(2) of {head}, but got {x._sizes[2]}")
    return x
