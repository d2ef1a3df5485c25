"""Attention and rotary position embedding."""
import math

from mindtorch import torch
from mindtorch.ops.nn._flash_attention import flash_with_statistics


def npu_rotary_mul(self, r1, r2, rotary_mode="half"):
    """Computes self * r1 + rotated * r2 for cosines r1 and sines r2, which broadcast.

    rotated: (-second, first) of the halves of the last dimension ("half") or of adjacent pairs
    ("interleave").
    """
    return self * r1 + _rotated(self, rotary_mode) * r2


def _rotated(x, mode):
    if mode == "half":
        a, b = x.chunk(2, -1)
        return torch.cat([-b, a], -1)
    if mode == "interleave":
        return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    raise NotImplementedError(f"rotary_mode={mode!r} is not supported; 'half' and 'interleave' are")


def npu_apply_rotary_pos_emb(query, key, cos, sin, layout="BSH", rotary_mode="half"):
    """Returns (query, key), both rotated by npu_rotary_mul."""
    return npu_rotary_mul(query, cos, sin, rotary_mode), npu_rotary_mul(key, cos, sin, rotary_mode)


_HEADS = {"BNSD": lambda x, n: x, "BSND": lambda x, n: x.transpose(1, 2), "BSH": lambda x, n: x.unflatten(-1, (n, -1)).transpose(1, 2),
          "SBH": lambda x, n: x.unflatten(-1, (n, -1)).permute(1, 2, 0, 3)}
_BACK = {"BNSD": lambda x: x, "BSND": lambda x: x.transpose(1, 2), "BSH": lambda x: x.transpose(1, 2).flatten(2),
         "SBH": lambda x: x.permute(2, 0, 1, 3).flatten(2)}


def npu_fusion_attention(query, key, value, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None, scale=1.0, keep_prob=1.0,
                         pre_tockens=2147483647, next_tockens=2147483647, inner_precise=0, prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None,
                         sparse_mode=0, gen_mask_parallel=True, sync=False):
    """Computes softmax(query @ key.T * scale + pse, masked) @ value. Returns (attention, row
    maxima, row sums, empty, 0, 0, 0).

        input_layout     BNSD, BSND, BSH, SBH; TND with the cumulative lengths actual_seq_qlen and
                         actual_seq_kvlen
        atten_mask       True (or 1) where attention is masked out, broadcast to (B, N, Sq, Skv)
        sparse_mode      0, 1: atten_mask as given; 2, 3: causal from the upper left, lower right
                         corner; 4: a band of pre_tockens and next_tockens around the lower right
                         diagonal; other modes are not supported

    Maxima and sums are float32 (B, N, Sq, 8), TND: (T, N, 8), each repeated eight times. head_num
    is the number of query heads; it may be a multiple of the number of key heads.
    """
    if padding_mask is not None or prefix is not None or sparse_mode not in (0, 1, 2, 3, 4):
        raise NotImplementedError(f"torch_npu.npu_fusion_attention with padding_mask, prefix or sparse_mode={sparse_mode} is not supported")
    options = dict(scale=scale, keep_prob=keep_prob, pre=pre_tockens, next=next_tockens, mode=sparse_mode)
    if input_layout == "TND":
        out, most, total = _by_sequence(query, key, value, pse, atten_mask, actual_seq_qlen, actual_seq_kvlen, options)
    else:
        if input_layout not in _HEADS:
            raise ValueError(f"npu_fusion_attention: input_layout must be one of BNSD, BSND, BSH, SBH, TND, not {input_layout!r}")
        heads = _HEADS[input_layout]
        q = heads(query, head_num)
        n = head_num if input_layout in ("BNSD", "BSND") else key.shape[-1] // q.shape[-1]
        out, most, total = _attend(q, heads(key, n), heads(value, n), pse, atten_mask, **options)
        out = _BACK[input_layout](out)
    return out, most, total, torch.empty(0, device=query.device, dtype=query.dtype), 0, 0, 0


def _attend(q, k, v, pse, mask, *, scale, keep_prob, pre, next, mode):
    if k.shape[1] != q.shape[1]:
        if q.shape[1] % k.shape[1]:
            raise ValueError(f"npu_fusion_attention: {q.shape[1]} query heads are not a multiple of {k.shape[1]} key heads")
        k, v = [x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v)]
    every = pre >= k.shape[2] and next >= k.shape[2]
    # (modes 2 and 3 differ only if there are more keys than queries, or fewer)
    if pse is None and (mode == 1 or mode == 0 and every or mode == 2 or mode == 3 and q.shape[2] == k.shape[2]):
        hidden = None if mask is None or mode >= 2 else mask.bool()
        found = flash_with_statistics(q, k, v, None if hidden is None else ~hidden, 1 - keep_prob, mode >= 2, float(scale))
        if found is not None:
            return found
    scores = (q.float() @ k.float().transpose(-1, -2)) * scale
    if pse is not None:
        scores = scores + pse
    rows, columns = scores.shape[-2:]
    if mode >= 2:
        place = torch.arange(columns, device=q.device) - torch.arange(rows, device=q.device)[:, None] - (columns - rows if mode > 2 else 0)
        mask = place > 0 if mode < 4 else (place > next) | (place < -pre)
    if mask is not None:
        scores = scores.masked_fill(mask.bool(), -math.inf)
    most = scores.amax(-1, keepdim=True)
    e = torch.exp(scores - most.detach().masked_fill(most.detach() == -math.inf, 0.0))
    total = e.sum(-1, keepdim=True)
    # (a fully masked row results in zeros)
    weights = e / total.masked_fill(total.detach() == 0, 1.0)
    if keep_prob < 1:
        weights = torch.dropout(weights, 1 - keep_prob, True)
    return (weights.to(v.dtype) @ v).to(q.dtype), most.detach().expand(*most.shape[:-1], 8), total.detach().expand(*total.shape[:-1], 8)


def _by_sequence(query, key, value, pse, mask, ends_q, ends_k, options):
    if ends_q is None or ends_k is None:
        raise ValueError("npu_fusion_attention: input_layout='TND' needs actual_seq_qlen and actual_seq_kvlen")
    found, a, b = [], 0, 0
    for i, (c, d) in enumerate(zip(ends_q, ends_k)):
        q, k, v = [x.transpose(0, 1).unsqueeze(0) for x in (query[a:c], key[b:d], value[b:d])]
        here = mask if mask is None or options["mode"] >= 2 else mask[..., :c - a, :d - b]
        r = _attend(q, k, v, None if pse is None else pse[i:i + 1], here, **options)
        found.append([x[0].transpose(0, 1) for x in r])
        a, b = c, d
    return [torch.cat(x) for x in zip(*found)]
