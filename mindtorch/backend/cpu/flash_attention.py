"""What a device's flash attention kernel computes, for calls that the device leaves to the host.

The cpu device itself uses `mindtorch/backend/cpu/attention.py`.
"""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.half import downcast, upcast
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.random import bernoulli_mask

_LANES = 8      # the kernel repeats each number of a row eight times


def _scores(q, k, hidden, bias, causal, scale):
    """Returns the scaled scores in float32 or more; -inf for keys that are left out."""
    q, k = upcast(q), _repeated(upcast(k), q)
    s = q @ k.swapaxes(-1, -2)
    s = (s if bias is None else s + upcast(bias)) * s.dtype.type(scale)
    if causal:
        hidden = np.triu(np.ones(s.shape[-2:], bool), 1)
    return s if hidden is None else np.where(hidden, s.dtype.type(-np.inf), s)


def _repeated(k, q):
    return k if k.shape[1] == q.shape[1] else np.repeat(k, q.shape[1] // k.shape[1], 1)


def _together(g, k):
    """Sums the gradients of a key that several query heads share."""
    return g if g.shape[1] == k.shape[1] else g.reshape(k.shape[0], k.shape[1], -1, *g.shape[2:]).sum(2)


def _weights(s, most, total):
    return np.exp(s - most) / np.where(total == 0, 1, total)


def _kept(bits, shape, keep):
    """Returns the factors of dropout: 0 or 1 / keep."""
    n = int(np.prod(shape))
    return np.unpackbits(bits, bitorder="little")[:n].reshape(shape) * np.float32(1 / keep)


@kernel("flash_attention")
@quiet
def flash_attention(q, k, v, hidden, bias, *, causal, scale, keep, generator):
    """Returns (result, maxima and sums of the rows, bits of dropout's mask or None, None)."""
    s = _scores(q, k, hidden, bias, causal, scale)
    most = np.maximum(s.max(-1, keepdims=True), np.finfo(s.dtype).min)
    total = np.exp(s - most).sum(-1, keepdims=True)
    p, bits = _weights(s, most, total), None
    if keep != 1:
        bits = np.packbits(bernoulli_mask(p.shape, keep, generator).reshape(-1), bitorder="little")
        bits = np.pad(bits, (0, -bits.size % 16))
        p = p * _kept(bits, p.shape, keep)
    rows = (*q.shape[:3], _LANES)
    most, total = [np.broadcast_to(x.astype(np.float32), rows).copy() for x in (most, total)]
    y = p @ _repeated(upcast(v), q)
    return downcast(y, q.dtype) if q.itemsize == 2 else y.astype(q.dtype, copy=False), most, total, bits, None


@kernel("flash_attention_backward")
@quiet
def flash_attention_grad(g, q, k, v, out, most, total, bits, _, hidden, bias, *, causal, scale, keep):
    """Returns the gradients of q, k and v."""
    p = _weights(_scores(q, k, hidden, bias, causal, scale), most[..., :1], total[..., :1])
    factors = 1 if bits is None else _kept(bits, p.shape, keep)
    g, wide = upcast(g), _repeated(upcast(v), q)
    gs = p * ((g @ wide.swapaxes(-1, -2)) * factors - (g * upcast(out)).sum(-1, keepdims=True)) * p.dtype.type(scale)
    found = gs @ _repeated(upcast(k), q), _together(gs.swapaxes(-1, -2) @ upcast(q), k), _together((p * factors).swapaxes(-1, -2) @ g, v)
    return tuple(downcast(x, q.dtype) if q.itemsize == 2 else x.astype(q.dtype, copy=False) for x in found)
