"""torch.nn.attention.flex_attention compared with PyTorch: results, block masks, errors, and
gradients (compared with explicit formulas, because PyTorch supports them only on other devices)."""
import importlib
import math
import warnings

import numpy as np
import pytest
import torch as real
import torch.nn.attention.flex_attention as real_flex
from hypothesis import given, settings, strategies as st

import mindtorch.torch as mine
import mindtorch.torch.nn.attention.flex_attention as my_flex

SIDES = ((real, real_flex), (mine, my_flex))


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Uses PyTorch's function without its compiler."""
    monkeypatch.setattr(real_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


class Captured:
    """Tensors captured by score and mask functions."""

    def __init__(self, T, length, requires_grad=False):
        rs = np.random.RandomState(7)
        self.T = T
        self.bias = T.tensor(rs.randn(4, length, length)).requires_grad_(requires_grad)
        self.slopes = T.tensor(rs.rand(4)).requires_grad_(requires_grad)
        self.documents = T.tensor(np.sort(rs.randint(0, 3, (2, length))))
        self.offset = T.tensor(2)


SCORES = {
    "none": lambda c: None, "relative": lambda c: lambda s, b, h, q, k: s + (q - k), "alibi": lambda c: lambda s, b, h, q, k: s + c.slopes[h] * (k - q),
    "bias": lambda c: lambda s, b, h, q, k: s + c.bias[h, q, k], "soft cap": lambda c: lambda s, b, h, q, k: 3 * (s / 3).tanh(),
    "causal": lambda c: lambda s, b, h, q, k: c.T.where(q >= k, s * c.slopes[h], -math.inf), "heads differ": lambda c: lambda s, b, h, q, k: s * (b + 1) / (h + 1),
}
MASKS = {
    "none": lambda c, F: None, "causal": lambda c, F: lambda b, h, q, k: q >= k, "window": lambda c, F: lambda b, h, q, k: (q - k <= 3) & (q >= k),
    "documents": lambda c, F: F.and_masks(lambda b, h, q, k: c.documents[b, q] == c.documents[b, k], lambda b, h, q, k: q >= k),
    "prefix": lambda c, F: F.or_masks(lambda b, h, q, k: k < c.offset + b, lambda b, h, q, k: q >= k), "rows without keys": lambda c, F: lambda b, h, q, k: (q > 4) & (h < 3) & (k > 0),
    "nothing": lambda c, F: F.noop_mask,
}


def operands(T, length, heads=4, dtype="float64", requires_grad=False):
    rs = np.random.RandomState(3)
    return [T.tensor(rs.randn(2, n, length, 6)).to(getattr(T, dtype)).requires_grad_(requires_grad) for n in (4, heads, heads)]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORES)
def test_results(score, mask):
    found = []
    for T, F in SIDES:
        c = Captured(T, 11)
        mod = MASKS[mask](c, F)
        blocks = None if mod is None else F.create_block_mask(mod, 2, 4, 11, 11, device="cpu", BLOCK_SIZE=4)
        found.append([t.numpy() for t in F.flex_attention(*operands(T, 11), SCORES[score](c), blocks, return_lse=True)])
    for a, b in zip(*found, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(b, a, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtypes_grouped_heads_and_scale(dtype):
    found = []
    for T, F in SIDES:
        r, aux = F.flex_attention(*operands(T, 5, 2, dtype), scale=0.7, enable_gqa=True, return_aux=F.AuxRequest(lse=True))
        assert aux.max_scores is None and str(aux.lse.dtype)[6:] == "float32" and str(r.dtype)[6:] == dtype
        found.append([r.float().numpy(), aux.lse.numpy()])
    for a, b in zip(*found):
        np.testing.assert_allclose(b, a, rtol=1e-5 if dtype == "float32" else 2e-2, atol=1e-5 if dtype == "float32" else 2e-2)


@pytest.mark.parametrize("score", ["alibi", "bias", "causal"])
def test_gradients_include_captured_tensors(score):
    def leaves(T):
        c, given = Captured(T, 8, True), operands(T, 8, requires_grad=True)
        return c, given, [*given, c.bias, c.slopes]

    c, (q, k, v), wanted = leaves(real)
    s = q @ k.mT / math.sqrt(6)
    h, m, n = real.arange(4)[:, None, None], real.arange(8)[:, None], real.arange(8)
    s = SCORES[score](c)(s, 0, h, m, n)
    mask = (m > 1) & (m - n <= 5)
    p = real.nan_to_num(s.masked_fill(~mask, -math.inf).softmax(-1))
    want = real.autograd.grad((p @ v).square().sum(), wanted, allow_unused=True)
    c, given, mine_ = leaves(mine)
    blocks = my_flex.create_block_mask(lambda b, h, q, k: (q > 1) & (q - k <= 5), None, None, 8, 8, device="cpu", BLOCK_SIZE=4)
    got = mine.autograd.grad(my_flex.flex_attention(*given, SCORES[score](c), blocks).square().sum(), mine_, allow_unused=True)
    for a, b in zip(want, got, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(b.numpy(), a.nan_to_num().numpy(), rtol=1e-8, atol=1e-10)


def parts(block_mask, T):
    """Returns a BlockMask's parts for comparison."""
    return [x.tolist() if isinstance(x, T.Tensor) else x for x in block_mask.as_tuple()[:-1]], [str(t.dtype)[6:] for t in block_mask.as_tuple() if isinstance(t, T.Tensor)]


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(sorted(set(MASKS) - {"none"})), st.sampled_from([3, 4, (2, 5)]), st.integers(9, 14), st.booleans())
def test_block_masks(mask, size, length, apart):
    found = []
    for T, F in SIDES:
        made = F.create_block_mask(MASKS[mask](Captured(T, 14), F), 2, 4, length, 12, device="cpu", BLOCK_SIZE=size, separate_full_blocks=apart)
        some = made[1, :2], made[:, -1, T.tensor([0, 2])], made._adjust(7, 6), F.BlockMask.from_kv_blocks(made.kv_num_blocks, made.kv_indices, BLOCK_SIZE=4, compute_q_blocks=False)
        found.append([made.shape, made.sparsity(), made.numel(), made.to_dense().tolist(), made.to_string(), made.to_string(2, 1), made.to_string(-1), str(made),
                      repr(made).replace("<lambda>", "fn"), made.as_tuple(False)[0], *[parts(m, T) for m in (made, *some)], [m.to_dense().tolist() for m in some], made.to("cpu").shape])
    assert found[0] == found[1]


def test_masks():
    for name in SCORES:
        if name != "none":
            a, b = [F.create_mask(SCORES[name](Captured(T, 6)), 2, 4, 6, 6, device="cpu").tolist() for T, F in SIDES]
            assert a == b
    for name in sorted(set(MASKS) - {"none"}):
        a, b = [F.create_mask(MASKS[name](Captured(T, 6), F), 2, 4, 5, 6, device="cpu").tolist() for T, F in SIDES]
        assert a == b


ERRORS = {
    "heads": lambda T, F, q: F.flex_attention(q, q[:, :2], q[:, :2]), "multiples": lambda T, F, q: F.flex_attention(q, q[:, :3], q[:, :3], enable_gqa=True),
    "three dims": lambda T, F, q: F.flex_attention(q[0], q[0], q[0]), "embedding": lambda T, F, q: F.flex_attention(q, q[..., :3], q),
    "batches": lambda T, F, q: F.flex_attention(q, q[:1], q[:1]),
    "larger": lambda T, F, q: F.flex_attention(q, q, q, block_mask=F.create_block_mask(lambda b, h, m, n: m >= n, 1, 1, 9, 9, device="cpu")),
    "smaller": lambda T, F, q: F.flex_attention(q, q, q, block_mask=F.create_block_mask(lambda b, h, m, n: m >= n, 1, 1, 4, 9, device="cpu")),
    "sliced": lambda T, F, q: F.flex_attention(q, q, q, block_mask=F.create_block_mask(lambda b, h, m, n: m >= n, 1, 1, 6, 6, device="cpu")[0]),
    "both": lambda T, F, q: F.flex_attention(q, q, q, return_lse=True, return_aux=F.AuxRequest(lse=True)), "arguments": lambda T, F, q: F.create_mask(lambda b, h: b, 1, 1, 2, 2, device="cpu"),
    "not a mask": lambda T, F, q: F.create_block_mask(lambda s, b, h, m, n: s, 1, 1, 2, 2, device="cpu"), "no function": lambda T, F, q: F.and_masks(1),
    "half a list": lambda T, F, q: F.BlockMask.from_kv_blocks(q, q, q), "one dim": lambda T, F, q: F.BlockMask.from_kv_blocks(q[0, 0, 0], q[0, 0, 0]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    raised = []
    for T, F in SIDES:
        with pytest.raises(Exception) as e:
            ERRORS[name](T, F, T.ones(2, 4, 6, 5))
        raised.append(type(e.value))
    assert raised[0] is raised[1]


FUNCTIONS = {
    "chained indices": lambda T, x: lambda b, h, q, k: x[h][q][k] > 0, "a row": lambda T, x: lambda b, h, q, k: x[h, q].sum() > x[h, k].sum(),
    "an index by a number": lambda T, x: lambda b, h, q, k: x[0, q, k] + x[h, -1, 0] > 0, "stacked": lambda T, x: lambda b, h, q, k: T.stack([q, k]).amax() > 2,
    "in place": lambda T, x: lambda b, h, q, k: (q + k).add_(1) > 4, "of tables": lambda T, x: lambda b, h, q, k: x.cumsum(2)[h, q, k] > x.mean(),
    "a vector by hand": lambda T, x: lambda b, h, q, k: (T.arange(3) * k).sum() > q,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_mask_functions_that_do_not_broadcast(name):
    """Such functions see single indices. A function that would behave differently on all indices at
    once is run through vmap."""
    rs = np.random.RandomState(2).randn(2, 5, 5)
    a, b = [F.create_mask(FUNCTIONS[name](T, T.tensor(rs)), 1, 2, 5, 5, device="cpu").tolist() for T, F in SIDES]
    assert a == b


def test_the_operator():
    T, F = SIDES[1]
    q = T.ones(1, 1, 3, 2)
    blocks = F.create_block_mask(lambda b, h, m, n: m >= n, 1, 1, 3, 3, device="cpu")
    out, lse, top = T.ops.higher_order.flex_attention(q, q, q, lambda s, b, h, m, n: s, blocks.as_tuple(), 1.0, {})
    np.testing.assert_allclose(lse.numpy() * math.log(2), [[[2, 2 + math.log(2), 2 + math.log(3)]]], rtol=1e-6)
    np.testing.assert_allclose(top.numpy() * math.log(2), np.full((1, 1, 3), 2), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="compute_dq_write_order"):
        F.create_block_mask(lambda b, h, m, n: m >= n, 1, 1, 3, 3, compute_dq_write_order=True)


@pytest.mark.parametrize("lengths", [(3, 3), (2, 4), (4, 2)])
@pytest.mark.parametrize("variant", ["causal_upper_left", "causal_lower_right"])
def test_causal_biases(variant, lengths):
    ends = []
    for T in (real, mine):
        bias = importlib.import_module("torch.nn.attention.bias" if T is real else "mindtorch.torch.nn.attention.bias")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            b = getattr(bias, variant)(*lengths)
        rs = np.random.RandomState(0)
        q, k, v = [T.tensor(rs.rand(1, 2, n, 4)).requires_grad_() for n in (lengths[0], lengths[1], lengths[1])]
        F = T.nn.functional
        r = F.scaled_dot_product_attention(q, k, v, b, scale=0.3)
        r.nan_to_num().sum().backward()
        for bad in (lambda: F.scaled_dot_product_attention(q, k, v, b, is_causal=True), lambda: bias.CausalBias(1, 2, 3), *([] if T is real else [lambda: b + 1, lambda: b.sum()])):
            with pytest.raises((ValueError, AssertionError, NotImplementedError)):
                bad()
        ends.append((r.detach().nan_to_num().numpy(), q.grad.nan_to_num().numpy(), np.array(b._materialize().tolist()), str(b.variant), bool(said) and variant))
        assert repr(b) == repr(b._materialize())
    if T.isfinite(r).all():
        np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(ends[1][1], ends[0][1], rtol=1e-10, atol=1e-14)
    assert ends[0][2].tolist() == ends[1][2].tolist() and ends[0][3:] == ends[1][3:]
