"""Attention and rotary embedding kernels of the CANN simulator: both engines agree with each other
and with an explicit formula whose gradients PyTorch computes.

Gradients use what the forward saved.
"""
import numpy as np
import torch
from _standin_cases import Outcome, call, out

r = np.random.RandomState(0)
FAR = (1 << 31) - 1


def f(*shape):
    return r.randn(*shape).astype(np.float32)


def laid(x, layout):
    """Converts [B, N, S, D] to a layout."""
    if layout in ("BSND", "BSH"):
        x = x.transpose(0, 2, 1, 3)
    if layout == "SBH":
        x = x.transpose(2, 0, 1, 3)
    return np.ascontiguousarray(x.reshape(*x.shape[:2], -1) if layout in ("BSH", "SBH") else x)


def bits(kept):
    """Packs one bit per element, least significant first."""
    flat = kept.reshape(-1)
    return np.packbits(np.pad(flat, (0, -flat.size % 128)), bitorder="little")


def written_out(q, k, v, g, scale, left_out, pse=None, pse_type=1, kept=None, keep=1.):
    """Returns the result, the maximum scores and the sums (last dimension of 8), and the gradients;
    operands are [B, N, S, D]."""
    q, k, v, *p = (torch.from_numpy(x).requires_grad_() for x in (q, k, v, *([pse] if pse is not None else [])))
    n = q.shape[1] // k.shape[1]
    s = q @ k.repeat_interleave(n, 1).transpose(2, 3)
    s = s * scale if not p else (s + p[0]) * scale if pse_type == 1 else s * scale + p[0]
    s = s.masked_fill(torch.from_numpy(left_out), -torch.inf) if left_out is not None else s
    w = torch.softmax(s, -1)
    w = w if kept is None else w * torch.from_numpy(kept) / keep
    y = w @ v.repeat_interleave(n, 1)
    grads = torch.autograd.grad(y, (q, k, v, *p), torch.from_numpy(g))
    largest = s.amax(-1, keepdim=True)
    total = (s - largest).exp().sum(-1, keepdim=True)
    return [x.detach().numpy() for x in (y, largest.repeat(1, 1, 1, 8), total.repeat(1, 1, 1, 8), *grads)]


class Set:
    """A forward, its backward, and their expected results."""

    def __init__(self, layout="BNSD", b=2, n=4, m=2, s=6, t=6, scale=.3, mask=None, left_out=None, pse=None, pse_type=1, keep=1., sparse=0,
                 before=FAR, after=FAR, prefix=None):
        q, k, v, g = f(b, n, s, 8), f(b, m, t, 8), f(b, m, t, 8), f(b, n, s, 8)
        kept = r.rand(b, n, s, t) < keep if keep < 1 else None
        y, largest, total, *grads = written_out(q, k, v, g, scale, left_out, pse, pse_type, kept, keep)
        q, k, v, g, y = (laid(x, layout) for x in (q, k, v, g, y))
        beside = pse, bits(kept) if kept is not None else None, None, mask
        numbers = scale, keep, before, after, n, layout, 0, sparse
        self.v2 = pse_type != 1
        more = ([0], [0]) if self.v2 else ()
        last = (pse_type,) if self.v2 else ()
        v2 = "V2" * self.v2
        saved, empty = (largest, total, None, y), [out(*x.shape) for x in (q, k, v)] + [out(*pse.shape) if pse is not None else None]
        self.cases = [call("FlashAttentionScore" + v2, q, k, v, *beside, prefix, *more, *numbers, *last, out(b, n, s, 8), out(b, n, s, 8), None, out(*y.shape)),
                      call("FlashAttentionScoreGrad" + v2, q, k, v, g, *beside, *saved, prefix, *more, *numbers, *last, *empty)]
        stale = largest + 1, total, None, y
        self.cases.append(call("FlashAttentionScoreGrad" + v2, q, k, v, g, *beside, *stale, prefix, *more, *numbers, *last, *empty))
        self.wanted = [[largest, total, None, y], [laid(x, layout) for x in grads[:3]] + ([grads[3]] if pse is not None else [None])]


def triangle(s, t, shift=0):
    return np.triu(np.ones((s, t), bool), 1 + shift)


def sets():
    for layout in ("BNSD", "BSND", "BSH", "SBH"):
        yield Set(layout)
    mask = r.rand(2, 1, 6, 6) > .7
    mask[..., 0] = False
    yield Set("BSH", mask=mask.astype(np.uint8), left_out=mask)
    yield Set(mask=mask, left_out=mask, sparse=1, before=1, after=0)
    i, j = np.indices((6, 6))
    yield Set(mask=np.zeros((6, 6), bool), left_out=(j > i + 1) | (j < i - 2), before=2, after=1)
    yield Set("SBH", s=4, t=7, mask=triangle(16, 16), left_out=triangle(4, 7), sparse=2)
    yield Set(s=4, t=7, mask=triangle(16, 16), left_out=triangle(4, 7, 3), sparse=3)
    i, j = np.indices((4, 7))
    yield Set(s=4, t=7, mask=triangle(16, 16), left_out=(j > i + 3) | (j < i + 1), sparse=4, before=2, after=0)
    prefix = np.array([3, 5]).reshape(2, 1, 1, 1)
    yield Set(s=6, t=6, mask=mask, left_out=triangle(6, 6) & (np.arange(6) >= prefix), sparse=5, prefix=[3, 5])
    yield Set("BSND", keep=.75)
    yield Set(keep=.5, mask=triangle(6, 6), left_out=triangle(6, 6), s=6, t=6)
    yield Set(pse=f(2, 4, 6, 6))
    yield Set(pse=f(1, 4, 1, 6), keep=.75)
    yield Set("BSH", pse=f(2, 4, 6, 6), pse_type=0)


def various(v2):
    """Sequences of 5 and 7 tokens with 5 and 8 keys, with dropout."""
    queries, keys, n, m = [5, 12], [5, 13], 4, 2
    q, k, v, g = f(12, n, 8), f(13, m, 8), f(13, m, 8), f(12, n, 8)
    kept = [r.rand(1, n, 5, 5) < .75, r.rand(1, n, 7, 8) < .75]
    found = []
    for (a, b, c, d), one in zip(((0, 5, 0, 5), (5, 12, 5, 13)), kept):
        found.append([x[0].transpose(1, 0, 2) for x in written_out(*(np.ascontiguousarray(x.transpose(1, 0, 2))[None] for x in (q[a:b], k[c:d], v[c:d], g[a:b])),
                                                                   .3, triangle(b - a, d - c, d - c - b + a), kept=one, keep=.75)])
    y, largest, total, *grads = (np.ascontiguousarray(np.concatenate(x)) for x in zip(*found))
    beside = None, bits(np.concatenate([x.reshape(-1) for x in kept])), None, triangle(16, 16)
    lengths = [None, queries, keys] + [[0], [0]] * v2
    numbers = [.3, .75, FAR, FAR, n, "TND", 0, 3] + [1] * v2
    empty = [out(*x.shape) for x in (q, k, v)] + [None]
    more = "V2" * v2
    return [call("FlashAttentionVarLenScore" + more, q, k, v, *beside, *lengths, *numbers, out(12, n, 8), out(12, n, 8), None, out(12, n, 8)),
            call("FlashAttentionUnpaddingScoreGrad" + more, q, k, v, g, *beside, largest, total, None, y, *lengths, *numbers, *empty)], \
        [[largest, total, None, y], [*grads, None]]


def inference():
    """Lengths 6 and 4 with 6 and 3 keys: expected results, or None where only the engines are
    compared."""
    q, k, v, g = f(2, 4, 6, 8), f(2, 2, 6, 8), f(2, 2, 6, 8), f(2, 4, 6, 8)
    short = np.arange(6) >= np.array([6, 3]).reshape(2, 1, 1, 1)
    y, largest, total, *_ = written_out(q, k, v, g, .3, triangle(6, 6) | short)
    y[1, :, 4:] = 0
    none = [None] * 5
    for layout in ("BNSD", "BSH", "BSND", "BNSD_BSND"):
        given, answer = "BNSD" if layout == "BNSD_BSND" else layout, "BSND" if layout == "BNSD_BSND" else layout
        a, b, c = (laid(x, given) for x in (q, k, v))
        yield call("PromptFlashAttentionV3", a, b, c, None, triangle(16, 16), [6, 4], [6, 3], *none, 4, .3, FAR, FAR, layout, 2, 2, 1,
                   out(*laid(y, answer).shape)), [laid(y, answer)]
    yield call("FusedInferAttentionScoreV2", q, [k], [v], None, triangle(16, 16), [6, 4], [6, 3], *none, *[None] * 11, None, 4, .3, FAR, FAR, "BNSD", 2, 2, 1,
               0, 0, True, 0, 0, out(*y.shape), out(2, 4, 6, 1)), [y, (largest + np.log(total))[..., :1]]
    one, mask = f(2, 4, 1, 8), r.rand(2, 1, 1, 6) > .7
    mask[..., 0] = False
    y = written_out(one, k, v, one, .3, mask | short)[0]
    yield call("IncreFlashAttentionV4", laid(one, "BSH"), [laid(k, "BSH")], [laid(v, "BSH")], None, mask, [6, 3], *none, *[None] * 4, 4, .3, "BSH", 2, 0, 1,
               out(2, 1, 32)), [laid(y, "BSH")]


def ring():
    """Results for two halves of the keys are combined."""
    q, k, v, g = f(2, 4, 6, 8), f(2, 4, 6, 8), f(2, 4, 6, 8), f(2, 4, 6, 8)
    halves = [written_out(q, *(np.ascontiguousarray(x[:, :, h]) for x in (k, v)), g, .3, None)[:3] for h in (slice(0, 3), slice(3, 6))]
    y, largest, total, *_ = written_out(q, k, v, g, .3, None)
    arguments = [x for y, m, s in halves for x in (laid(y, "SBH"), m, s)]
    yield call("RingAttentionUpdate", *arguments, None, "SBH", out(6, 2, 32), out(2, 4, 6, 8), out(2, 4, 6, 8)), [laid(y, "SBH"), largest, total]

    def flat(x):
        return np.ascontiguousarray(x.transpose(0, 2, 1, 3).reshape(12, 4, -1))
    arguments = [flat(x) for half in halves for x in half]
    lengths = np.array([0, 6, 12])
    yield call("RingAttentionUpdate", *arguments, lengths, "TND", out(12, 4, 8), out(12, 4, 8), out(12, 4, 8)), [flat(x) for x in (y, largest, total)]


def compressed():
    x, weight, sizes = f(14, 2, 8), f(4, 2), ([6, 14], 4, 2)
    yield call("NsaCompress", x, weight, sizes[0], "TND", *sizes[1:], 0, out(5, 2, 8)), [np.stack([(x[k:k + 4] * weight[..., None]).sum(0) for k in (0, 2, 6, 8, 10)])]
    yield call("NsaCompressGrad", f(5, 2, 8), x, weight, *sizes, 0, "TND", out(14, 2, 8), out(4, 2)), None


def rotary():
    for mode in (0, 1, 2, 3):
        for shape in ((1, 6, 1, 8), (2, 6, 3, 8)):
            x, cos, sin = f(2, 6, 3, 8), f(*shape), f(*shape)
            yield call("RotaryPositionEmbedding", x, cos, sin, mode, out(2, 6, 3, 8))
            for given in (x, None):
                yield call("RotaryPositionEmbeddingGrad", f(2, 6, 3, 8), cos, sin, given, mode, out(2, 6, 3, 8), out(*shape), out(*shape))


def test_attention():
    cases, wanted, stale = [], [], []
    for one in sets():
        stale.append(len(cases) + 2)
        cases += one.cases
        wanted += [*one.wanted, None]
    for v2 in (False, True):
        c, w = various(v2)
        cases += c
        wanted += w
    for c, w in [*inference(), *ring(), *compressed()]:
        cases.append(c)
        wanted.append(w)
    cases += rotary()
    found = Outcome(cases, "attention", rtol=1e-4, atol=1e-5)
    assert not found.differences
    assert not found.without_case
    for k, (case, w) in enumerate(zip(cases, wanted)):
        for got, one in zip(found.results[k][-len(w):] if w else [], w or []):
            if one is not None:
                np.testing.assert_allclose(got, one, 1e-4, 1e-5, err_msg=f"{case.name} (case {k})")
    for k in stale:
        assert not np.allclose(found.results[k][-2], found.results[k - 1][-2], 1e-2), f"case {k} has not used the largest scores"
