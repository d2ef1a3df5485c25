"""Layers that dispatch modes see as ATen operators, forward and backward, compared with PyTorch:
names, arguments and shapes; values, gradients and second-order gradients."""
import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine
from tests.facade.test_python_dispatch import SIDES, kinds

F = {"x": (2, 4, 6, 6), "w": (6, 2, 3, 3), "n": (4,), "s": (2, 4, 10), "q": (2, 2, 5, 4)}

LAYERS = {
    "conv2d": lambda f, t: f.conv2d(t.x, t.w, None, 2, 1, 1, 2), "conv_transpose2d": lambda f, t: f.conv_transpose2d(t.x, t.w[:4], None, 2, 1, 1),
    "uneven padding": lambda f, t: f.conv2d(t.x, t.w[:, :, :2, :2], None, padding="same", groups=2),
    "batch_norm": lambda f, t: f.batch_norm(t.x, t.a, t.b, t.n, t.n + 1, True, 0.2, 1e-4), "batch_norm eval": lambda f, t: f.batch_norm(t.x, t.a, t.b, t.n, None, False),
    "instance_norm": lambda f, t: f.instance_norm(t.x, weight=t.n, bias=t.n), "group_norm": lambda f, t: f.group_norm(t.x, 2, t.n, None),
    "layer_norm": lambda f, t: f.layer_norm(t.x, (6, 6), t.x[0, 0], t.x[0, 1]),
    "max_pool2d": lambda f, t: f.max_pool2d(t.x, 3, 2, 1), "max_pool2d with indices": lambda f, t: f.max_pool2d(t.x, (2, 3), return_indices=True, ceil_mode=True)[0],
    "max_pool1d": lambda f, t: f.max_pool1d(t.s, 3, 2), "max_pool3d": lambda f, t: f.max_pool3d(t.x, 2), "avg_pool2d": lambda f, t: f.avg_pool2d(t.x, 3, 2, 1, True, False, 5),
    "avg_pool1d": lambda f, t: f.avg_pool1d(t.s, 2), "avg_pool3d": lambda f, t: f.avg_pool3d(t.x, 2), "adaptive_avg_pool2d": lambda f, t: f.adaptive_avg_pool2d(t.x, (3, 4)),
    "adaptive_max_pool2d": lambda f, t: f.adaptive_max_pool2d(t.x, 3), "nll_loss": lambda f, t: f.nll_loss(t.x[:, :, 0, 0], t.i, t.n.detach(), ignore_index=3),
    "nll_loss2d": lambda f, t: f.nll_loss(t.x, t.k, reduction="none"), "nll_loss1d": lambda f, t: f.nll_loss(t.s, t.k[:, 0, :1].expand(2, 10), reduction="sum"),
    "cross_entropy": lambda f, t: f.cross_entropy(t.x[:, :, 0, 0], t.i), "nearest": lambda f, t: f.interpolate(t.x, scale_factor=2),
    "bilinear": lambda f, t: f.interpolate(t.x, (4, 9), mode="bilinear", align_corners=True), "bicubic": lambda f, t: f.interpolate(t.x, (4, 9), mode="bicubic"),
    "linear": lambda f, t: f.interpolate(t.s, 4, mode="linear"), "reflect": lambda f, t: f.pad(t.x, (1, 2, 0, 1), mode="reflect"), "replicate": lambda f, t: f.pad(t.s, (2, 0), mode="replicate"),
    "constant": lambda f, t: f.pad(t.x, (1, 0, 0, 2), value=2.0), "unfold": lambda f, t: f.unfold(t.x, 2, padding=1), "gelu": lambda f, t: f.gelu(t.x, approximate="tanh"),
    "embedding": lambda f, t: f.embedding(t.i, t.s[0], padding_idx=1), "attention": lambda f, t: f.scaled_dot_product_attention(t.q, t.q * 2, t.q + 1, is_causal=True),
    "attention with a mask": lambda f, t: f.scaled_dot_product_attention(t.q, t.q * 2, t.q[..., :], t.q.detach()[:1, :1, :, :1].expand(2, 1, 5, 5), scale=0.3),
    "attention of shared heads": lambda f, t: f.scaled_dot_product_attention(t.q, t.q[:, :1], t.q[:, 1:], enable_gqa=True),
}

#: operators before and after the layers, which are not compared
_UNSEEN = frozenset("""aten.detach.default aten.empty.memory_format aten.ones_like.default aten.lift_fresh.default aten.clone.default aten.add_.Tensor aten.add.Tensor aten._unsafe_view.default
 aten.new_empty_strided.default aten.copy_.default aten.view.default aten.expand.default aten.repeat.default aten.zeros.default aten.full.default aten.scalar_tensor.default
 aten.unsqueeze.default aten.squeeze.dim aten.squeeze.dims aten.sum.dim_IntList""".split())


class Operands:
    def __init__(self, T):
        rs = np.random.RandomState(5)
        for name, size in F.items():
            setattr(self, name, T.tensor(rs.randn(*size).round(3)).requires_grad_())
        self.a, self.b = T.tensor(rs.randn(4)), T.tensor(rs.rand(4) + 1)
        self.i, self.k = T.tensor([1, 3]), T.tensor(rs.randint(0, 4, (2, 6, 6)))
        self.leaves = [getattr(self, n) for n in F]


def run(side, name, kind=None):
    """Returns (operators seen, arrays: the result, first- and second-order gradients, tensors
    modified in place)."""
    T = SIDES[side][0]
    t, Noting = Operands(T), kinds(side)[1]
    mode = Noting()
    with mode:
        before = len(mode.seen)
        out = LAYERS[name](T.nn.functional, t)
        out.sum().backward()
        seen = mode.seen[before:]
        first = [g if g is None else g.clone() for g in T.autograd.grad((LAYERS[name](T.nn.functional, t) * out.detach().cos()).sum(), t.leaves, create_graph=True, allow_unused=True)]
        # PyTorch's CPU attention has no double backward.
        parts = [(g * g).sum() for g in first if g is not None and g.requires_grad and name[:9] != "attention"]
        twice = T.autograd.grad(sum(parts), t.leaves, allow_unused=True) if parts else [None] * len(t.leaves)
    tensors = [out, t.a, t.b, *[x.grad for x in t.leaves], *first, *twice]
    return seen, [None if x is None else x.detach().numpy() for x in tensors]


@pytest.mark.parametrize("name", LAYERS)
def test_layers_dispatch_and_compute_as_in_torch(name):
    (want, values), (got, mine_) = run("real", name), run("mine", name)

    def shown(seen):
        return [s for s in seen if str(s[0] if isinstance(s, tuple) else s) not in _UNSEEN]
    assert shown(got) == shown(want)
    for a, b in zip(mine_, values, strict=True):
        if a is not None or b is not None:
            np.testing.assert_allclose(0 if a is None else a, 0 if b is None else b, rtol=1e-6, atol=1e-8)


def test_batch_norm_updates_statistics_under_a_mode():
    T, Noting, _ = kinds("mine")
    module, other = real.nn.BatchNorm2d(3, momentum=None), mine.nn.BatchNorm2d(3, momentum=None)
    x = np.random.RandomState(0).randn(4, 3, 5, 5).astype("float32")
    for _ in range(2):
        module(real.tensor(x))
        with Noting():
            other(mine.tensor(x)).sum().backward()
    np.testing.assert_allclose(other.running_var.numpy(), module.running_var.numpy(), rtol=1e-5)
    np.testing.assert_allclose(other.running_mean.numpy(), module.running_mean.numpy(), rtol=1e-5, atol=1e-6)


def test_nested_modes_see_the_same_operators():
    T, Noting, _ = kinds("mine")
    outer, inner = Noting(), Noting()
    t = Operands(T)
    with outer, inner:
        (LAYERS["conv2d"](T.nn.functional, t).sum() + LAYERS["max_pool2d"](T.nn.functional, t).sum() + LAYERS["cross_entropy"](T.nn.functional, t)).backward()
    assert outer.seen == inner.seen and len(inner.seen) > 10


def test_backward_operators_are_callable():
    """Direct calls of ATen's backward operators, compared with PyTorch."""
    rs = np.random.RandomState(1)
    x, w, g = rs.randn(2, 3, 6, 6), rs.randn(4, 3, 3, 3), rs.randn(2, 4, 4, 4)
    for args in ((g, x, w, [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]), (g, x, w, [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False])):
        found = []
        for T in (real, mine):
            given = [T.tensor(a) if isinstance(a, np.ndarray) else a for a in args]
            found.append([None if r is None else r.numpy() for r in T.ops.aten.convolution_backward(*given)])
        for a, b in zip(*found, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-6)
