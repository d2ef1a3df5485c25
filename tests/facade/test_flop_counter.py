"""torch.utils.flop_counter compared with PyTorch: the same counts by module and operator, forward
and backward."""
import warnings

import numpy as np
import pytest
import torch as real
import torch.utils.flop_counter as real_flops
from hypothesis import given, settings, strategies as st

import mindtorch.torch as mine
import mindtorch.torch.utils.flop_counter as my_flops
from mindtorch.torch.nn import attention as my_attention
from tests._parity import few

SIDES = ((real, real_flops), (mine, my_flops))


def counts(T, F, program):
    with F.FlopCounterMode(display=False) as counter:
        program(T)
    return {name: {str(op): n for op, n in by.items()} for name, by in counter.get_flop_counts().items()}, counter.get_total_flops()


def same(program):
    """Returns the counts of a program after asserting that both sides agree."""
    want, got = [counts(T, F, program) for T, F in SIDES]
    assert got == want
    return want


def vision_transformer(T, math):
    """A small ViT in plain torch.nn, with PyTorch's attention or with attention written out
    (`math`)."""
    nn = T.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
            self.qkv, self.proj = nn.Linear(32, 96), nn.Linear(32, 32)
            self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

        def forward(self, x):
            b, n, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
            y = (q @ k.transpose(-2, -1) * 0.35).softmax(-1) @ v if math else nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + self.proj(y.transpose(1, 2).reshape(b, n, c))
            return x + self.mlp(self.norm2(x))

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 32, 4, stride=4)
            self.token, self.places = nn.Parameter(T.zeros(1, 1, 32)), nn.Parameter(T.zeros(1, 17, 32))
            self.blocks = nn.Sequential(Block(), Block())
            self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = T.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
            return self.head(self.norm(self.blocks(x))[:, 0])
    return ViT()


@pytest.mark.parametrize("math", [True, False])
def test_a_vision_transformer_forward_and_backward(math):
    def program(T):
        x = T.ones(2, 3, 16, 16)
        T.nn.functional.cross_entropy(vision_transformer(T, math)(x), T.tensor([1, 2])).backward()
    found, total = same(program)
    assert found["ViT.blocks.1.mlp.0"].keys() == {"aten.addmm", "aten.mm"} and found["ViT.patches"].keys() == {"aten.convolution", "aten.convolution_backward"}
    assert total == sum(found["Global"].values()) and ("aten.bmm" in found["ViT.blocks.0"]) == math


LAYERS = {
    "conv1d": (lambda nn: nn.Conv1d(4, 6, 3, padding=1), (2, 4, 9)), "conv2d": (lambda nn: nn.Conv2d(4, 8, 3, stride=2, groups=2, bias=False), (2, 4, 9, 8)),
    "conv3d": (lambda nn: nn.Conv3d(2, 3, 2, dilation=2), (1, 2, 5, 6, 7)), "depthwise": (lambda nn: nn.Conv2d(4, 4, 3, groups=4, padding="same"), (2, 4, 6, 6)),
    "even": (lambda nn: nn.Conv2d(4, 4, 2, padding="same"), (2, 4, 6, 6)), "reflected": (lambda nn: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), (2, 4, 6, 6)),
    "transposed": (lambda nn: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), (2, 4, 5, 5)),
    "transposed1d": (lambda nn: nn.ConvTranspose1d(4, 6, 3, groups=2), (2, 4, 5)), "transposed3d": (lambda nn: nn.ConvTranspose3d(2, 3, 2, stride=2), (1, 2, 3, 4, 5)),
    "mlp": (lambda nn: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 8, bias=False), nn.Tanh()), nn.Linear(8, 1)), (3, 5, 6)),
    "cnn": (lambda nn: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)), (2, 3, 8, 8)),
    "encoder": (lambda nn: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), (2, 5, 8)),
    "bilinear upsampling": (lambda nn: nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(2, 2, 1), nn.GroupNorm(2, 2)), (2, 2, 4, 4)),
}


RECURRENT = {
    "gru": lambda nn: nn.GRU(6, 5, num_layers=2), "both ways": lambda nn: nn.GRU(6, 5, bidirectional=True, bias=False), "rnn": lambda nn: nn.RNN(6, 5, nonlinearity="relu"),
    "lstm": lambda nn: nn.LSTM(6, 5), "wide lstm": lambda nn: nn.LSTM(6, 5).double(), "gru cell": lambda nn: nn.GRUCell(6, 5), "lstm cell": lambda nn: nn.LSTMCell(6, 5),
    "rnn cell": lambda nn: nn.RNNCell(6, 5),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers(name):
    values = []

    def program(T):
        T.manual_seed(0)
        module = RECURRENT[name](T.nn)
        x = (T.arange(72.).reshape(3, 4, 6) / 72).to(next(module.parameters()).dtype)
        x = (x[0] if name.endswith("cell") else x).clone().requires_grad_()
        r = module(x)
        (r[0] if isinstance(r, tuple) else r).square().sum().backward()
        values.append(x.grad.numpy())
    assert bool(same(program)[1]) == (name != "lstm")
    np.testing.assert_allclose(values[1], values[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("leaf", [False, True])
def test_layers(name, leaf):
    """leaf: the input requires a gradient as well."""
    make, shape = LAYERS[name]

    def program(T):
        module = make(T.nn)
        module(T.ones(shape).requires_grad_(leaf)).sum().backward()
    assert same(program)[1]


PRODUCTS = {
    "mm": lambda T, x, y: x[0] @ y[0].T, "bmm": lambda T, x, y: T.bmm(x, y.mT), "matmul": lambda T, x, y: T.matmul(x[:, None], y.mT), "mv": lambda T, x, y: x @ y[0, 0],
    "addmm": lambda T, x, y: T.addmm(x[0, :, :1], x[0], y[0].T, beta=0.5), "baddbmm": lambda T, x, y: T.baddbmm(x[:, :, :1], x, y.mT, alpha=2),
    "einsum": lambda T, x, y: T.einsum("bik,bjk->bji", x, y), "einsum of two": lambda T, x, y: T.einsum("bik,cjk->bcij", x, y),
    "linear": lambda T, x, y: T.nn.functional.linear(x, y[0]),
}


@pytest.mark.parametrize("name", PRODUCTS)
@settings(max_examples=5, deadline=None)
@given(st.tuples(*[st.integers(1, 4)] * 4))
def test_products(name, sizes):
    b, m, n, k = sizes

    def program(T):
        x, y = T.ones(b, m, k, requires_grad=True), T.ones(b, n, k, requires_grad=True)
        PRODUCTS[name](T, x, y).sum().backward()
    same(program)


@pytest.mark.parametrize("how", ["plain", "causal", "mask", "math", "grouped", "three dims", "gradient of the mask"])
def test_attention(how):
    def program(T):
        attend = T.nn.functional.scaled_dot_product_attention
        q, k = T.ones(2, 4, 5, 8, requires_grad=True), T.ones(2, 2 if how == "grouped" else 4, 5, 8, requires_grad=True)
        if how == "math":
            at = real.nn.attention if T is real else my_attention
            with at.sdpa_kernel(at.SDPBackend.MATH):
                y = attend(q, k, k, is_causal=True)
        elif how == "three dims":
            y = attend(q[0], k[0], k[0])
        else:
            mask = T.ones(5, 5).tril().bool() if how == "mask" else T.zeros(5, 5, requires_grad=True) if how[:2] == "gr" and how != "grouped" else None
            y = attend(q, k, k, mask, is_causal=how == "causal", enable_gqa=how == "grouped")
        y.sum().backward()
    assert bool(same(program)[1]) == (how in ("math", "three dims", "gradient of the mask"))


def test_counting_does_not_change_gradients():
    module = LAYERS["cnn"][0](mine.nn)
    x = mine.randn(2, 3, 8, 8)
    plain = [g.clone() for g in mine.autograd.grad(module(x).square().sum(), list(module.parameters()))]
    with my_flops.FlopCounterMode(display=False):
        counted = mine.autograd.grad(module(x).square().sum(), list(module.parameters()))
    for a, b in zip(plain, counted, strict=True):
        assert mine.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_formulas_are_registered_and_checked():
    for T, F in SIDES:
        with T.library._scoped_library("mtflop", "FRAGMENT"):
            op = T.library.custom_op("mtflop::double", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
            packet = T.ops.mtflop.double
            try:
                F.register_flop_formula(packet)(lambda x, out_shape=None, **kw: 7 * x[0] + out_shape[1])
                with F.FlopCounterMode(display=False, custom_mapping={T.ops.aten.mm: lambda a, b, **kw: 1}) as counter:
                    T.ops.mtflop.double(T.ones(2, 3)), T.ones(2, 2) @ T.ones(2, 2)
                assert counter.get_total_flops() == 18 and counter.get_flop_counts()["Global"][T.ops.aten.mm] == 1
                with pytest.raises(RuntimeError, match="duplicate registrations"):
                    F.register_flop_formula([packet])(lambda *a, **k: 0)
            finally:
                F.flop_registry.pop(packet, None)
        with pytest.raises(ValueError, match="expected each target to be OpOverloadPacket"):
            F.register_flop_formula(T.add)(lambda *a, **k: 0)
        assert op is not None


@few
@given(st.lists(st.integers(1, 6), min_size=4, max_size=4), st.integers(1, 3))
def test_formulas_of_operators_without_kernels(sizes, groups):
    b, s, t, d = sizes
    q, k, v = (b, 2 * groups, s, d), (b, 2, t, d), (b, 2, t, d + 1)
    g = (b, 2 * groups, s, d + 1)
    assert my_flops.sdpa_flop_count(q, k, v) == real_flops.sdpa_flop_count(q, k, v)
    assert my_flops.sdpa_backward_flop_count(g, q, k, v) == real_flops.sdpa_backward_flop_count(g, q, k, v)
    number = b * 10 ** s + t
    suffix = real_flops.get_suffix_str(number)
    assert my_flops.get_suffix_str(number) == suffix and my_flops.convert_num_with_suffix(number, suffix) == real_flops.convert_num_with_suffix(number, suffix)
    for bad in ((q, k, (b, 1, t, d)), (k, q, q)) if groups > 1 else ():
        for F in (real_flops, my_flops):
            with pytest.raises(AssertionError):
                F.sdpa_flop_count(*bad)


def test_the_table():
    pytest.importorskip("tabulate")

    def tables(T, F):
        module = T.nn.Sequential(T.nn.Linear(4, 8), T.nn.Sequential(T.nn.Linear(8, 8)))
        with F.FlopCounterMode(display=False) as counter:
            module(T.ones(100, 4)), T.ones(3, 3) @ T.ones(3, 3)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            empty = F.FlopCounterMode(module, display=False)
        return counter.get_table(), counter.get_table(1), counter.get_table(3), empty.get_table(), [str(w.message) for w in said]
    assert tables(*SIDES[1]) == tables(*SIDES[0])


def test_module_tracker_matches_torch():
    def seen(T):
        tracker = __import__(T.__name__ + ".utils.module_tracker", fromlist=["x"]).ModuleTracker()
        out = []

        class Looks(T.nn.Module):
            def forward(self, x):
                out.append((sorted(tracker.parents), tracker.is_bw))
                y = x * 2
                y.register_hook(lambda g: out.append((sorted(tracker.parents), tracker.is_bw)))
                return y
        module = T.nn.Sequential(Looks(), T.nn.Sequential(Looks()))
        with tracker:
            module(T.ones(2, requires_grad=True)).sum().backward()
            out.append((sorted(tracker.parents), tracker.is_bw))
        return out
    assert seen(mine) == seen(real)


def test_branches_count_as_the_larger_branch():
    def program(T, yes):
        x = T.ones(3, 3)
        T.cond(T.tensor(yes), lambda x: x @ x @ x, lambda x: x @ x, (x,))
    for yes in (True, False):
        with my_flops.FlopCounterMode(display=False) as counter:
            program(mine, yes)
        assert counter.get_total_flops() == 2 * 2 * 27
