"""Saved-tensor hooks: they receive the tensors that PyTorch's nodes save, in the same order, and
gradient rules read what the hooks return."""
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

import mindtorch.torch as mt
from mindtorch.torch.utils.checkpoint import checkpoint as our_checkpoint


class Side:
    """Inputs and buffers of one implementation (PyTorch or mindtorch)."""

    def __init__(self, T):
        self.T, self.F, self.leaves, self.buffers = T, T.nn.functional, [], []

    def t(self, *sizes, positive=False):
        a = np.random.RandomState(len(self.leaves)).randn(*sizes).astype(np.float32)
        x = self.T.tensor(np.abs(a) + 0.5 if positive else a).requires_grad_()
        self.leaves.append(x)
        return x

    def running(self, n):
        self.buffers += [self.T.zeros(n), self.T.ones(n)]
        return self.buffers[-2:]

    def ids(self, *values):
        return self.T.tensor(values)


#: calls whose nodes save the same tensors as PyTorch's
CASES = {
    "dropout": lambda s: s.F.dropout(s.t(2, 2, 4), 0.5),
    "dropout in place": lambda s: s.F.dropout(s.t(2, 2, 4) * 1, 0.3, inplace=True),
    "dropout of channels": lambda s: s.F.dropout2d(s.t(2, 4, 3, 3), 0.5),
    "alpha_dropout": lambda s: s.F.alpha_dropout(s.t(2, 2, 4), 0.5, True),
    "feature_alpha_dropout": lambda s: s.F.feature_alpha_dropout(s.t(2, 4, 3, 3), 0.5, True),
    "dropout in half precision": lambda s: s.F.dropout(s.t(2, 2, 4).bfloat16(), 0.3),
    "max_pool1d": lambda s: s.F.max_pool1d(s.t(2, 2, 5), 3, 1),
    "max_pool2d": lambda s: s.F.max_pool2d(s.t(2, 2, 6, 6), 3, 2, 1),
    "max_pool2d with indices": lambda s: s.F.max_pool2d(s.t(2, 2, 6, 6), 2, return_indices=True)[0],
    "max_pool3d": lambda s: s.F.max_pool3d(s.t(1, 1, 4, 4, 4), 2),
    "avg_pool1d": lambda s: s.F.avg_pool1d(s.t(2, 2, 4), 2),
    "avg_pool2d": lambda s: s.F.avg_pool2d(s.t(2, 2, 6, 6), 2),
    "adaptive_avg_pool2d": lambda s: s.F.adaptive_avg_pool2d(s.t(2, 2, 6, 6), 2),
    "adaptive_max_pool2d": lambda s: s.F.adaptive_max_pool2d(s.t(2, 2, 6, 6), 3),
    "fractional_max_pool2d": lambda s: s.F.fractional_max_pool2d(s.t(2, 2, 6, 6), 2, output_size=3),
    "layer_norm": lambda s: s.F.layer_norm(s.t(2, 3, 4), (4,)),
    "layer_norm of two dims": lambda s: s.F.layer_norm(s.t(2, 3, 4), (3, 4), s.t(3, 4), s.t(3, 4)),
    "layer_norm with a weight": lambda s: s.F.layer_norm(s.t(2, 3, 4), (4,), s.t(4)),
    "batch_norm": lambda s: s.F.batch_norm(s.t(2, 3, 4, 4), *s.running(3), training=True),
    "batch_norm with weights": lambda s: s.F.batch_norm(s.t(2, 3, 4, 4), *s.running(3), s.t(3), s.t(3), training=True),
    "batch_norm without statistics": lambda s: s.F.batch_norm(s.t(4, 3), None, None, s.t(3), s.t(3), training=True),
    "batch_norm in evaluation": lambda s: s.F.batch_norm(s.t(4, 3), *s.running(3), s.t(3), s.t(3)),
    "group_norm": lambda s: s.F.group_norm(s.t(2, 4, 3, 3), 2),
    "group_norm with weights": lambda s: s.F.group_norm(s.t(2, 4, 3), 2, s.t(4), s.t(4)),
    "instance_norm": lambda s: s.F.instance_norm(s.t(2, 4, 3, 3)),
    "instance_norm with weights": lambda s: s.F.instance_norm(s.t(2, 4, 3, 3), None, None, s.t(4), s.t(4)),
    "instance_norm with statistics": lambda s: s.F.instance_norm(s.t(2, 4, 3, 3), *s.running(4), s.t(4), s.t(4)),
    "rms_norm": lambda s: s.F.rms_norm(s.t(2, 3, 4), (4,)),
    "rms_norm with a weight": lambda s: s.F.rms_norm(s.t(2, 3, 4), (4,), s.t(4)),
    "attention": lambda s: s.F.scaled_dot_product_attention(s.t(1, 2, 4, 8), s.t(1, 2, 4, 8), s.t(1, 2, 4, 8)),
    "causal attention": lambda s: s.F.scaled_dot_product_attention(s.t(1, 2, 4, 8), s.t(1, 2, 4, 8), s.t(1, 2, 4, 8), is_causal=True),
    "attention with a mask": lambda s: s.F.scaled_dot_product_attention(
        s.t(1, 2, 4, 8), s.t(1, 2, 4, 8), s.t(1, 2, 4, 8), attn_mask=s.T.ones(4, 4, dtype=s.T.bool).tril()),
    "attention with a mask of numbers": lambda s: s.F.scaled_dot_product_attention(
        s.t(1, 2, 4, 8), s.t(1, 2, 4, 8), s.t(1, 2, 4, 8), attn_mask=s.T.ones(4, 4).tril()),
    "attention of three dims": lambda s: s.F.scaled_dot_product_attention(s.t(2, 4, 8), s.t(2, 4, 8), s.t(2, 4, 8)),
    "cross_entropy": lambda s: s.F.cross_entropy(s.t(3, 5), s.ids(1, 2, 0)),
    "cross_entropy with weights": lambda s: s.F.cross_entropy(s.t(3, 5), s.ids(1, 2, 0), s.T.arange(1., 6)),
    "cross_entropy of ignored": lambda s: s.F.cross_entropy(s.t(3, 5), s.ids(1, -100, 0)),
    "nll_loss": lambda s: s.F.nll_loss(s.t(3, 5), s.ids(1, 2, 0), s.T.arange(1., 6)),
    "nll_loss of each": lambda s: s.F.nll_loss(s.t(3, 5), s.ids(1, 2, 0), reduction="none"),
    "nll_loss of ignored": lambda s: s.F.nll_loss(s.t(3, 5), s.ids(1, -100, 0), reduction="sum"),
    "gather": lambda s: s.t(2, 3).gather(1, s.ids([0, 1], [2, 2])),
    "gelu": lambda s: s.F.gelu(s.t(2, 3)),
    "embedding": lambda s: s.F.embedding(s.ids(1, 2), s.t(5, 3)),
}
#: calls whose kernels save other tensors than PyTorch's; the hooks see those
OTHERS = {
    "gru": lambda s: _cell(s, "GRU", 12),
    "rnn": lambda s: _cell(s, "RNN", 4),
    "lstm": lambda s: _cell(s, "LSTM", 16),
    "ctc_loss": lambda s: s.F.ctc_loss(s.t(5, 2, 4).log_softmax(2), s.ids([1, 2], [2, 3]), s.ids(5, 5), s.ids(2, 2)),
    "embedding_bag": lambda s: s.F.embedding_bag(s.ids([1, 2]), s.t(5, 3), mode="max"),
    "quantile": lambda s: s.t(2, 5).quantile(0.3),
    "cross_entropy with smoothing": lambda s: s.F.cross_entropy(s.t(3, 5), s.ids(1, 2, 0), label_smoothing=0.1),
    "attention with dropout": lambda s: s.F.scaled_dot_product_attention(s.t(1, 2, 4, 8), s.t(1, 2, 4, 8), s.t(1, 2, 4, 8), dropout_p=0.5),
    "rrelu": lambda s: s.F.rrelu(s.t(2, 3), training=True),
}


def _cell(s, kind, n):
    net = getattr(s.T.nn, kind)(3, 4)
    with s.T.no_grad():
        for p in net.parameters():
            p.copy_(s.t(*p.shape).detach() * 0.3)
    s.leaves = list(net.parameters())
    return net(s.t(2, 1, 3))[0]


def _run(T, f, hooked=True, double=False):
    """Returns the packed (shape, dtype) pairs, the results and gradients, and the number of unpack
    calls."""
    s, seen, asked = Side(T), [], []
    T.manual_seed(3)

    def pack(x):
        seen.append((tuple(x.shape), str(x.dtype).rpartition(".")[2]))
        return x

    def unpack(x):
        asked.append(None)
        return x
    if hooked:
        with T.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = f(s)
    else:
        y = f(s)
    grads = T.autograd.grad((y * y).sum(), s.leaves, create_graph=double)
    values = [y, *grads]
    if double and any(g.requires_grad for g in grads):
        values += [g for g in T.autograd.grad(sum((g * g).sum() for g in grads), s.leaves, allow_unused=True) if g is not None]
    return seen, [v.detach().float().numpy() for v in (*values, *s.buffers)], len(asked)


@pytest.mark.parametrize("name", CASES)
def test_hooks_see_what_torch_saves(name):
    real, ours = (_run(T, CASES[name]) for T in (torch, mt))
    assert ours[0] == real[0]
    assert ours[2] >= real[2]  # PyTorch unpacks only what the requested gradients need
    for a, b in zip(ours[1], real[1]):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", [*CASES, *OTHERS])
@pytest.mark.parametrize("double", [False, True])
def test_gradients_match_the_run_without_hooks(name, double):
    f = {**CASES, **OTHERS}[name]
    if double and ("pool" in name or name in ("ctc_loss", "embedding_bag", "quantile")):
        double = False
    (seen, ours, _), plain = _run(mt, f, double=double), _run(mt, f, hooked=False, double=double)[1]
    assert seen or name == "embedding"
    assert len(ours) == len(plain)
    for a, b in zip(ours, plain):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [*CASES, *OTHERS])
def test_gradient_rules_read_only_unpacked_tensors(name):
    """Gradient rules read only what the hooks return: when unpacking raises, the gradient fails."""
    class Gone(Exception):
        pass

    def unpack(_):
        raise Gone
    s = Side(mt)
    with mt.autograd.graph.saved_tensors_hooks(lambda x: None, unpack):
        y = {**CASES, **OTHERS}[name](s)
    if y.grad_fn is not None:
        with pytest.raises(Gone):
            mt.autograd.grad((y * y.detach()).sum(), s.leaves, allow_unused=True)


LAYERS = ("Linear(4, 4)", "Dropout(0.5)", "ReLU()", "BatchNorm1d(4)", "LayerNorm(4)", "Tanh()", "GELU()", "Softmax(-1)", "Identity()", "AlphaDropout(0.3)",
          "GroupNorm(2, 4)", "RMSNorm(4)", "Unflatten(1, (2, 2)), MaxPool1d(2, 1, padding=1), Flatten(), Linear(6, 4)")


def _checkpointed(T, recompute, layers, preserve, early):
    nn = T.nn
    net = nn.Sequential(*[m for text in layers for m in eval("[" + text + "]", {k: getattr(nn, k) for k in dir(nn)})])
    with T.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(T.tensor(np.random.RandomState(i).randn(*p.shape).astype(np.float32)))
    x = T.tensor(np.random.RandomState(99).randn(5, 4).astype(np.float32)).requires_grad_()
    T.manual_seed(5)
    y = recompute(net, x, use_reentrant=False, preserve_rng_state=preserve, early_stop=early)
    if y.requires_grad:
        (y * y).sum().backward()
    return [t.detach().numpy() for t in (y, x.grad, *(p.grad for p in net.parameters()), *net.buffers(), T.rand(3)) if t is not None]


@given(st.lists(st.sampled_from(LAYERS), min_size=1, max_size=4), st.booleans(), st.booleans())
@settings(deadline=None)
@pytest.mark.nightly
def test_checkpoint_recomputation_matches_torch(layers, preserve, early):
    """Running statistics, masks and the generator state match PyTorch."""
    real = _checkpointed(torch, checkpoint, layers, preserve, early)
    ours = _checkpointed(mt, our_checkpoint, layers, preserve, early)
    assert len(ours) == len(real)
    for a, b in zip(ours, real):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)
