"""Fused attention and rotary position embeddings.

Gradients use the forward's saved tensors (maximum score, sum of exponentials, the result), not only
the scores, so that stale buffers are detected. A row that is masked completely returns zeros.
"""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._results import upcast
from mindtorch.tools.standin.kernels._table import gradients, kernel

_LOWEST = -3.4028234663852886e38


def _lacking(what, present):
    if present:
        raise NotImplementedError(f"attention with {what}")


def _heads(x, layout, heads):
    """Reshapes to [batch, heads, length, size]. `heads` matters only in layouts that do not contain
    it."""
    if layout == "BNSD":
        return upcast(x)
    if layout == "BSND":
        return upcast(x).transpose(1, 2)
    if layout in ("BSH", "SBH"):
        x = upcast(x).reshape(x.shape[0], x.shape[1], heads, -1)
        return x.transpose(1, 2) if layout == "BSH" else x.permute(1, 2, 0, 3)
    raise NotImplementedError(f"attention in the layout {layout}")


def _laid(x, layout):
    """Reshapes back from [batch, heads, length, size] to the layout."""
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.transpose(1, 2)
    return x.transpose(1, 2).flatten(2) if layout == "BSH" else x.permute(2, 0, 1, 3).flatten(2)


def _key_heads(query, key, layout, heads):
    """Returns the number of key heads."""
    if layout == "BNSD":
        return key.shape[1]
    return key.shape[2] if layout == "BSND" else key.shape[2] // (query.shape[2] // heads)


def _left_out(mask, sparse, before, after, prefix, batch, rows, columns):
    """Returns the mask of ignored scores, broadcastable to [batch, heads, rows, columns], or None.
    Sparse modes 2 to 6 define the pattern themselves; their mask argument is not read."""
    r, c = torch.arange(rows).reshape(-1, 1), torch.arange(columns)
    if sparse in (0, 1):
        if mask is None:
            return None
        mask = mask.bool() if mask.dim() != 3 else mask.bool().unsqueeze(1)
        mask = mask[..., :rows, :columns]
        return mask | (c > r + after) | (c < r - before) if sparse == 0 else mask
    shift = columns - rows
    if sparse == 2:
        return c > r
    if sparse == 3:
        return c > r + shift
    if sparse == 4:
        return (c > r + shift + after) | (c < r + shift - before)
    if sparse in (5, 6):
        return (c > r + shift) & (c >= torch.tensor(list(prefix)).reshape(batch, 1, 1, 1))
    raise NotImplementedError(f"attention with sparse mode {sparse}")


def _keep_mask(bits, keep, start, shape):
    """Returns the scaling of probabilities by a dropout mask (one bit each, least significant
    first): 0 or 1/keep; and the bit offset after it."""
    n = 1
    for s in shape:
        n *= s
    if bits is None:
        return None, start + n
    positions = torch.arange(start, start + n)
    ones = (bits.reshape(-1)[positions // 8].long() >> (positions % 8)) & 1
    return ones.reshape(list(shape)).float() / keep, start + n


class _Setting:
    """The parameters of attention other than queries, keys and values."""

    def __init__(self, pse, bits, padding, mask, prefix, scale, keep, before, after, heads, layout, sparse, pse_type=1):
        _lacking("a padding mask", padding is not None)
        _lacking(f"positions of type {pse_type}", pse is not None and pse_type not in (0, 1))
        _lacking("dropout without a mask", keep != 1 and bits is None)
        self.pse, self.bits, self.mask, self.prefix, self.scale, self.keep = upcast(pse), bits, mask, prefix, scale, keep
        self.before, self.after, self.heads, self.layout, self.sparse, self.pse_type = before, after, heads, layout, sparse, pse_type

    def scores(self, q, k):
        """Returns the scaled products of [B, N, S, D], and the mask of ignored ones."""
        s = q @ _repeated(k, q).transpose(-1, -2)
        if self.pse is None:
            s = s * self.scale
        else:
            s = (s + self.pse) * self.scale if self.pse_type == 1 else s * self.scale + self.pse
        left_out = _left_out(self.mask, self.sparse, self.before, self.after, self.prefix, s.shape[0], *s.shape[-2:])
        return s, left_out

    def forward(self, q, k, v, start=0):
        """Returns the result, maximum scores, sums, and the offset of the next mask bits."""
        s, left_out = self.scores(q, k)
        s = s if left_out is None else s.masked_fill(left_out, float("-inf"))
        largest = s.amax(-1, keepdim=True).clamp(min=_LOWEST)
        p = (s - largest).exp()
        total = p.sum(-1, keepdim=True)
        p = p / total.masked_fill(total == 0, 1)
        keep_scale, start = _keep_mask(self.bits, self.keep, start, p.shape)
        return (p if keep_scale is None else p * keep_scale) @ _repeated(v, q), largest, total, start

    def backward(self, q, k, v, g, largest, total, result, start=0):
        """Returns the gradients of queries, keys, values and the bias of the scores, and the offset
        of the next mask bits."""
        s, left_out = self.scores(q, k)
        p = (s - largest[..., :1]).exp() / total[..., :1].masked_fill(total[..., :1] == 0, 1)
        p = p if left_out is None else p.masked_fill(left_out, 0)
        keep_scale, start = _keep_mask(self.bits, self.keep, start, p.shape)
        of_v = (p if keep_scale is None else p * keep_scale).transpose(-1, -2) @ g
        of_p = g @ _repeated(v, q).transpose(-1, -2)
        of_s = p * ((of_p if keep_scale is None else of_p * keep_scale) - (g * result).sum(-1, keepdim=True))
        scaled = of_s * self.scale
        of_pse = None if self.pse is None else (scaled if self.pse_type == 1 else of_s)
        return scaled @ _repeated(k, q), _together(scaled.transpose(-1, -2) @ q, k), _together(of_v, v), of_pse, start


def _repeated(k, q):
    """Repeats keys (or values) for each head of the queries."""
    return k if k.shape[1] == q.shape[1] else k.repeat_interleave(q.shape[1] // k.shape[1], 1)


def _together(g, k):
    """Sums gradients of keys that are shared by several heads."""
    return g if g.shape[1] == k.shape[1] else g.reshape(k.shape[0], k.shape[1], -1, *g.shape[-2:]).sum(2)


def _summed(g, like):
    """Sums a gradient to a shape that was broadcast."""
    if g is None or like is None:
        return None
    dims = [d for d in range(g.dim()) if like.shape[d] == 1 and g.shape[d] != 1]
    return g.sum(dims, keepdim=True) if dims else g


def _of(setting, q, k, v):
    """Returns the operands as [batch, heads, length, size]."""
    n = _key_heads(q, k, setting.layout, setting.heads)
    return _heads(q, setting.layout, setting.heads), _heads(k, setting.layout, n), _heads(v, setting.layout, n)


def _into(x, receiver):
    """Expands a value per row to the output's last dimension; None for an empty output."""
    return None if receiver is None or not receiver.numel() else x.expand(receiver.shape)


def _forward(setting, q, k, v, largest, total):
    y, m, s, _ = setting.forward(*_of(setting, q, k, v))
    return _into(m, largest), _into(s, total), None, _laid(y, setting.layout)


def _backward(setting, q, k, v, g, largest, total, result):
    heads = _of(setting, q, k, v)
    g, result = (_heads(x, setting.layout, setting.heads) for x in (g, result))
    *found, of_pse, _ = setting.backward(*heads, g, largest, total, result)
    return *(_laid(x, setting.layout) for x in found), _summed(of_pse, setting.pse)


# Concatenated sequences of different lengths ("TND": all tokens, heads, size), described by the
# cumulative sums of their lengths.

def _pieces(queries, keys):
    return [(slice(a, b), slice(c, d)) for a, b, c, d in zip([0] + list(queries[:-1]), queries, [0] + list(keys[:-1]), keys)]


def _one(x, piece):
    return upcast(x[piece]).transpose(0, 1).unsqueeze(0)


def _row(x):
    return x.squeeze(0).transpose(0, 1)


def _various(setting, queries, keys):
    """Yields each sequence's slices, after setting its prefix."""
    _lacking(f"the layout {setting.layout} here", setting.layout != "TND")
    _lacking("positions and several lengths", setting.pse is not None)
    prefix = setting.prefix
    for k, piece in enumerate(_pieces(queries, keys)):
        setting.prefix = prefix[k:k + 1] if prefix else prefix
        yield piece


def _forward_various(setting, q, k, v, queries, keys, largest, total):
    found, start = [], 0
    for a, b in _various(setting, queries, keys):
        *one, start = setting.forward(_one(q, a), _one(k, b), _one(v, b), start)
        found.append([_row(x) for x in one])
    y, m, s = (torch.cat(x) for x in zip(*found))
    return _into(m, largest), _into(s, total), None, y


def _backward_various(setting, q, k, v, g, largest, total, result, queries, keys):
    found, start = [], 0
    for a, b in _various(setting, queries, keys):
        *one, _, start = setting.backward(_one(q, a), _one(k, b), _one(v, b), _one(g, a), _one(largest, a), _one(total, a), _one(result, a), start)
        found.append([_row(x) for x in one])
    return *(torch.cat(x) for x in zip(*found)), None


_BESIDES = "pse, bits, padding, mask"
_SCALARS = "scale:double, keep:double, before:int, after:int, heads:int, layout:string, precise:int, sparse:int"
_OUT = "largest!, total!, softmax!, out!"
_SAVED = "largest, total, softmax, result"
_GRADS = "grad_q!, grad_k!, grad_v!, grad_pse!"
_LENGTHS = "queries:ints, keys:ints"
_STARTS = "query_start:ints, key_start:ints"


@kernel("FlashAttentionScore", f"q, k, v, {_BESIDES}, prefix:ints, {_SCALARS}, {_OUT}")
def _flash(q, k, v, pse, bits, padding, mask, prefix, scale, keep, before, after, heads, layout, precise, sparse, largest, total, *_):
    return _forward(_Setting(pse, bits, padding, mask, prefix, scale, keep, before, after, heads, layout, sparse), q, k, v, largest, total)


@kernel("FlashAttentionScoreV2", f"q, k, v, {_BESIDES}, prefix:ints, {_STARTS}, {_SCALARS}, pse_type:int, {_OUT}")
def _flash2(q, k, v, pse, bits, padding, mask, prefix, qs, ks, scale, keep, before, after, heads, layout, precise, sparse, pse_type, largest, total, *_):
    return _forward(_Setting(pse, bits, padding, mask, prefix, scale, keep, before, after, heads, layout, sparse, pse_type), q, k, v, largest, total)


@kernel("FlashAttentionScoreGrad", f"q, k, v, grad, {_BESIDES}, {_SAVED}, prefix:ints, {_SCALARS}, {_GRADS}")
def _flash_grad(q, k, v, g, pse, bits, padding, mask, largest, total, softmax, result, prefix, scale, keep, before, after, heads, layout, precise, sparse, *_):
    return _backward(_Setting(pse, bits, padding, mask, prefix, scale, keep, before, after, heads, layout, sparse), q, k, v, g, largest, total, result)


@kernel("FlashAttentionScoreGradV2", f"q, k, v, grad, {_BESIDES}, {_SAVED}, prefix:ints, {_STARTS}, {_SCALARS}, pse_type:int, {_GRADS}")
def _flash_grad2(q, k, v, g, pse, bits, padding, mask, largest, total, softmax, result, prefix, qs, ks, scale, keep, before, after, heads, layout, precise,
                 sparse, pse_type, *_):
    setting = _Setting(pse, bits, padding, mask, prefix, scale, keep, before, after, heads, layout, sparse, pse_type)
    return _backward(setting, q, k, v, g, largest, total, result)


@kernel("FlashAttentionVarLenScore", f"q, k, v, {_BESIDES}, prefix:ints, {_LENGTHS}, {_SCALARS}, {_OUT}")
def _various_flash(q, k, v, pse, bits, padding, mask, prefix, queries, keys, scale, keep, before, after, heads, layout, precise, sparse, largest, total, *_):
    setting = _Setting(pse, bits, padding, mask, prefix, scale, keep, before, after, heads, layout, sparse)
    return _forward_various(setting, q, k, v, queries, keys, largest, total)


@kernel("FlashAttentionVarLenScoreV2", f"q, k, v, {_BESIDES}, prefix:ints, {_LENGTHS}, {_STARTS}, {_SCALARS}, pse_type:int, {_OUT}")
def _various_flash2(q, k, v, pse, bits, padding, mask, prefix, queries, keys, qs, ks, scale, keep, before, after, heads, layout, precise, sparse, pse_type,
                    largest, total, *_):
    setting = _Setting(pse, bits, padding, mask, prefix, scale, keep, before, after, heads, layout, sparse, pse_type)
    return _forward_various(setting, q, k, v, queries, keys, largest, total)


@kernel("FlashAttentionUnpaddingScoreGrad", f"q, k, v, grad, {_BESIDES}, {_SAVED}, prefix:ints, {_LENGTHS}, {_SCALARS}, {_GRADS}")
def _various_grad(q, k, v, g, pse, bits, padding, mask, largest, total, softmax, result, prefix, queries, keys, scale, keep, before, after, heads, layout,
                  precise, sparse, *_):
    setting = _Setting(pse, bits, padding, mask, prefix, scale, keep, before, after, heads, layout, sparse)
    return _backward_various(setting, q, k, v, g, largest, total, result, queries, keys)


@kernel("FlashAttentionUnpaddingScoreGradV2", f"q, k, v, grad, {_BESIDES}, {_SAVED}, prefix:ints, {_LENGTHS}, {_STARTS}, {_SCALARS}, pse_type:int, {_GRADS}")
def _various_grad2(q, k, v, g, pse, bits, padding, mask, largest, total, softmax, result, prefix, queries, keys, qs, ks, scale, keep, before, after, heads,
                   layout, precise, sparse, pse_type, *_):
    setting = _Setting(pse, bits, padding, mask, prefix, scale, keep, before, after, heads, layout, sparse, pse_type)
    return _backward_various(setting, q, k, v, g, largest, total, result, queries, keys)


# Attention for inference: no gradient; the valid length of each sequence in the batch.

def _inferred(q, k, v, pse, mask, queries, keys, heads, scale, before, after, layout, key_heads, sparse):
    """Returns the result and the logarithm of the sum of exponentials (B, N, S, 1)."""
    layout = "BNSD" if layout == "BNSD_BSND" else layout
    setting = _Setting(pse, None, None, mask, None, scale, 1.0, before, after, heads, layout, sparse)
    q, k, v = _heads(q, layout, heads), _heads(k, layout, key_heads or heads), _heads(v, layout, key_heads or heads)
    if keys:
        short = torch.arange(k.shape[2]) >= torch.tensor(list(keys) * (q.shape[0] // len(keys))).reshape(-1, 1, 1, 1)
        left_out = _left_out(mask, sparse, before, after, None, q.shape[0], q.shape[2], k.shape[2])
        setting.mask = short.expand(q.shape[0], 1, q.shape[2], k.shape[2]) if left_out is None else short | left_out
        setting.sparse = 1
    y, largest, total, _ = setting.forward(q, k, v)
    if queries:
        past = torch.arange(q.shape[2]).reshape(-1, 1) >= torch.tensor(list(queries) * (q.shape[0] // len(queries))).reshape(-1, 1, 1, 1)
        y = y.masked_fill(past, 0)
    return y, largest + total.log()


@kernel("PromptFlashAttentionV3", "q, k, v, pse, mask, queries:ints, keys:ints, dequant1, quant1, dequant2, quant2, offset2, heads:int, scale:double, "
        "before:int, after:int, layout:string, key_heads:int, sparse:int, precise:int, out!")
def _prompt(q, k, v, pse, mask, queries, keys, dequant1, quant1, dequant2, quant2, offset2, heads, scale, before, after, layout, key_heads, sparse, precise,
            out):
    _lacking("quantized numbers", any(x is not None for x in (dequant1, quant1, dequant2, quant2, offset2)))
    y, _ = _inferred(q, k, v, pse, mask, queries, keys, heads, scale, before, after, layout, key_heads, sparse)
    return _laid(y, "BSND" if layout == "BNSD_BSND" else layout)


@kernel("IncreFlashAttentionV4", "q, k:tensors, v:tensors, pse, mask, keys:ints, dequant1, quant1, dequant2, quant2, offset2, antiquant, antiquant_offset, "
        "blocks, padding, heads:int, scale:double, layout:string, key_heads:int, block:int, precise:int, out!")
def _increment(q, k, v, pse, mask, keys, dequant1, quant1, dequant2, quant2, offset2, antiquant, antiquant_offset, blocks, padding, heads, scale, layout,
               key_heads, block, precise, out):
    _lacking("quantized numbers", any(x is not None for x in (dequant1, quant1, dequant2, quant2, offset2, antiquant, antiquant_offset)))
    _lacking("keys in blocks or padded on the left", blocks is not None or padding is not None)
    k, v = (x[0] if len(x) == 1 else torch.cat(list(x)) for x in (k, v))
    return _laid(_inferred(q, k, v, pse, mask, None, keys, heads, scale, 1 << 31, 1 << 31, layout, key_heads, 1)[0], layout)


@kernel("FusedInferAttentionScoreV2", "q, k:tensors, v:tensors, pse, mask, queries:ints, keys:ints, dequant1, quant1, dequant2, quant2, offset2, antiquant, "
        "antiquant_offset, blocks, query_padding, key_padding, key_antiquant, key_antiquant_offset, value_antiquant, value_antiquant_offset, key_prefix, "
        "value_prefix, prefix_length:ints, heads:int, scale:double, before:int, after:int, layout:string, key_heads:int, sparse:int, precise:int, block:int, "
        "antiquant_mode:int, with_sum:bool, key_mode:int, value_mode:int, out!, log_sum!")
def _fused(q, k, v, pse, mask, queries, keys, dequant1, quant1, dequant2, quant2, offset2, antiquant, antiquant_offset, blocks, query_padding, key_padding,
           key_antiquant, key_antiquant_offset, value_antiquant, value_antiquant_offset, key_prefix, value_prefix, prefix_length, heads, scale, before, after,
           layout, key_heads, sparse, precise, block, antiquant_mode, with_sum, key_mode, value_mode, *_):
    _lacking("quantized numbers", any(x is not None for x in (dequant1, quant1, dequant2, quant2, offset2, antiquant, antiquant_offset, key_antiquant,
                                                              key_antiquant_offset, value_antiquant, value_antiquant_offset)))
    _lacking("keys in blocks, padded on the left or with a prefix", any(x is not None for x in (blocks, query_padding, key_padding, key_prefix, value_prefix)))
    k, v = (x[0] if len(x) == 1 else torch.cat(list(x)) for x in (k, v))
    y, log_sum = _inferred(q, k, v, pse, mask, queries, keys, heads, scale, before, after, layout, key_heads, sparse)
    return _laid(y, "BSND" if layout == "BNSD_BSND" else layout), log_sum if with_sum else None


@kernel("RingAttentionUpdate", "result, largest, total, new_result, new_largest, new_total, queries:tensor, layout:string, out!, out_largest!, out_total!")
def _ring(result, largest, total, new_result, new_largest, new_total, queries, layout, *_):
    m = torch.maximum(largest, new_largest)
    a, b = total * (largest - m).exp(), new_total * (new_largest - m).exp()
    shares = [(x / (a + b))[..., :1] for x in (a, b)]
    each = list(result.shape)                                          # TND
    if layout == "SBH":
        shares = [x.permute(2, 0, 1, 3) for x in shares]  # [B, N, S, 1] to match [S, B, N, size]
        each = each[:2] + [a.shape[1], -1]
    y = sum(upcast(x).reshape(each) * share for x, share in zip((result, new_result), shares))
    return y.reshape(result.shape), m, a + b


def _turned(x, mode):
    """Returns the signed partner of each element's pair. Modes: 0 halves, 1 neighbours, 2 halves of
    each half, 3 neighbours, stored as halves."""
    if mode == 0:
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)
    if mode == 1:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    if mode == 2:
        a, b, c, d = x.chunk(4, -1)
        return torch.cat((-b, a, -d, c), -1)
    if mode == 3:
        return torch.cat((-x[..., 1::2], x[..., ::2]), -1)
    raise NotImplementedError(f"rotary positions of mode {mode}")


def _rotated(x, cos, sin, mode):
    turned = _turned(x, mode)
    return (torch.cat((x[..., ::2], x[..., 1::2]), -1) if mode == 3 else x) * cos + turned * sin


kernel("RotaryPositionEmbedding", "x, cos, sin, mode:int, out!")(lambda x, cos, sin, mode, out: _rotated(upcast(x), upcast(cos), upcast(sin), mode))


@kernel("RotaryPositionEmbeddingGrad", "grad, cos, sin, x, mode:int, grad_x!, grad_cos!, grad_sin!")
def _rotated_grad(g, cos, sin, x, mode, *_):
    if x is None:  # x does not affect its own gradient
        return gradients(lambda x: _rotated(x, upcast(cos), upcast(sin), mode), upcast(g), torch.zeros_like(upcast(g)))[0], None, None
    return tuple(gradients(lambda x, c, s: _rotated(x, c, s, mode), upcast(g), upcast(x), upcast(cos), upcast(sin)))


def _compressed(x, weight, lengths, block, stride):
    """Sums weighted blocks of tokens (lengths are cumulative; no block extends beyond the end of a
    sequence)."""
    starts = [s for a, b in zip([0] + list(lengths[:-1]), lengths) for s in range(a, b - block + 1, stride)]
    return torch.stack([(x[s:s + block] * weight.unsqueeze(-1)).sum(0) for s in starts])


kernel("NsaCompress", "x, weight, lengths:ints, layout:string, block:int, stride:int, kind:int, out!")(
    lambda x, weight, lengths, layout, block, stride, kind, out: _compressed(upcast(x), upcast(weight), lengths, block, stride))
kernel("NsaCompressGrad", "grad, x, weight, lengths:ints, block:int, stride:int, kind:int, layout:string, grad_x!, grad_weight!")(
    lambda g, x, weight, lengths, block, stride, *_: tuple(
        gradients(lambda x, weight: _compressed(x, weight, lengths, block, stride), upcast(g), upcast(x), upcast(weight))))
