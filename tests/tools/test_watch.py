"""watch: each kind of finding on a run made for it, and none on a healthy run, with mindtorch and
with PyTorch."""
import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine
from mindtorch.tools import watch, watch_training

SIDES = pytest.mark.parametrize("T", [mine, real], ids=["mindtorch", "torch"])


def run(T, model, n=4, lr=0.05, params=None, prepare=None, **options):
    opt = T.optim.SGD(params(model) if params else model.parameters(), lr=lr)
    x = T.from_numpy(np.random.RandomState(5).randn(8, 4).astype("float32"))

    def step(i):
        if prepare:
            prepare(i)
        opt.zero_grad()
        (model(x) ** 2).mean().backward()
        opt.step()
    return watch_training(model, opt, step, n, **options)


def mlp(T, act="Tanh"):
    T.manual_seed(1)
    return T.nn.Sequential(T.nn.Linear(4, 8), getattr(T.nn, act)(), T.nn.Linear(8, 2))


@SIDES
@pytest.mark.parametrize("act", ["Tanh", "ReLU", "Sigmoid"])
def test_a_healthy_run_has_no_findings_and_is_not_changed(T, act):
    a, b = mlp(T, act), mlp(T, act)
    assert run(T, a, on_finding=None) == []
    opt = T.optim.SGD(b.parameters(), lr=0.05)
    x = T.from_numpy(np.random.RandomState(5).randn(8, 4).astype("float32"))
    for _ in range(4):
        opt.zero_grad()
        (b(x) ** 2).mean().backward()
        opt.step()
    for p, q in zip(a.parameters(), b.parameters()):
        np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in a.modules())


@SIDES
def test_overflow_is_reported_at_its_first_module_and_step(T):
    class Odd(T.nn.Module):
        step = 0

        def forward(self, x):
            return T.log(x * 0) + 1 if self.step >= 2 else x
    model = T.nn.Sequential(T.nn.Linear(4, 4), Odd(), T.nn.Linear(4, 2))

    def prepare(i):
        model[1].step = i
    found = run(T, model, prepare=prepare)
    assert [(f["kind"], f["name"], f["step"]) for f in found] == [("overflow", "1", 2)]
    assert found[0]["op"] == "Add"  # autograd reveals only the last op of the module
    model[1].step = 0
    for p in model.parameters():
        T.nn.init.normal_(p)
    found = run(T, model, prepare=prepare, ops=True)
    assert (found[0]["name"], found[0]["step"], found[0]["op"]) == ("1", 2, "torch.log")


@SIDES
def test_overflow_between_modules_belongs_to_the_parent(T):
    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = T.nn.Linear(4, 3), T.nn.Linear(3, 1)

        def forward(self, x):
            return self.b(self.a(x) / 0)
    found = run(T, Net(), n=1)
    assert [(f["kind"], f["name"]) for f in found] == [("overflow", "")] and "before b" in found[0]["text"]


@SIDES
def test_gradients_and_weights(T):
    model = mlp(T)
    found = run(T, model, params=lambda m: [m[0].weight, m[0].bias, m[2].weight])
    assert [(f["kind"], f["name"], f["step"]) for f in found] == [("unchanged_weight", "2.bias", 2)]
    found = run(T, mlp(T), n=1, lr=1e4)
    assert {f["kind"] for f in found} == {"weight_change_too_large"} and "2.weight" in {f["name"] for f in found}
    found = run(T, mlp(T), n=1, vanishing=1e9)
    assert {f["name"] for f in found if f["kind"] == "vanishing_gradient"} == {"0.weight", "0.bias", "2.weight", "2.bias"}
    found = run(T, mlp(T), n=1, exploding=1e-9)
    assert {f["kind"] for f in found} == {"exploding_gradient"} and len(found) == 4


@SIDES
def test_dead_relus_and_saturated_activations(T):
    model = mlp(T, "ReLU")
    with T.no_grad():
        model[0].bias.fill_(-100.0)
    kinds = {(f["kind"], f["name"]) for f in run(T, model)}
    assert ("dead_relu", "1") in kinds and ("unchanged_weight", "0.weight") in kinds
    model = mlp(T, "Sigmoid")
    with T.no_grad():
        model[0].weight.mul_(1e4)
    assert ("saturated_activation", "1") in {(f["kind"], f["name"]) for f in run(T, model)}


def test_watch_as_context_manager_and_callback_with_every():
    model, said = mlp(mine), []
    with watch(model, every=2, patience=2, on_finding=said.append) as w:
        for i in range(6):
            hooked = bool(model[0]._forward_hooks)
            assert hooked == (i % 2 == 0)
            model(mine.ones(3, 4)).sum().backward()
            w("any", "arguments of a trainer")
    assert {f["kind"] for f in w.findings} == {"unchanged_weight"} and said == w.findings and w.step == 6
    assert w.findings[0]["step"] == 2
    with pytest.raises(ValueError):
        watch(model, every=0)


@SIDES
def test_overflow_in_backward_is_reported_where_it_starts(T):
    model = T.nn.Sequential(T.nn.Linear(4, 4), T.nn.Tanh(), T.nn.Linear(4, 4), T.nn.Linear(4, 1))
    model[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * float("nan"),))
    found = run(T, model, n=1)
    assert [(f["kind"], f["name"]) for f in found] == [("overflow", "0.bias")], found
    found = run(T, T.nn.Sequential(*list(mlp(T))[:2], Blow(T)), n=1)
    assert [(f["kind"], f["name"]) for f in found] == [("overflow", "2.fc.bias")], found


def Blow(T):
    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = T.nn.Linear(8, 1)

        def forward(self, x):
            y = self.fc(x)
            y.register_hook(lambda g: g * float("inf"))
            return y
    return Net()


def test_unwatched_steps_cost_nothing(monkeypatch):
    """Between the watched steps, a watch does no work that grows with the model: no hooks, no
    values read, and about ten Python function calls. (benchmarks/watch_cost.py measures its share
    of a training step.)"""
    import sys

    from mindtorch.tools import _training_monitor
    from mindtorch.tools.model_diff import activation_recorder
    read = []
    array, tensors = _training_monitor._array, activation_recorder.tensors
    monkeypatch.setattr(_training_monitor, "_array", lambda t: read.append(t) or array(t))
    monkeypatch.setattr(activation_recorder, "tensors", lambda *a: read.append(a) or tensors(*a))

    def calls_of_a_step(layers, watched):
        model = mine.nn.Sequential(*(mine.nn.Linear(4, 4) for _ in range(layers)))
        opt = mine.optim.SGD(model.parameters(), lr=0.1)
        x, calls = mine.ones(2, 4), 0

        def step():
            opt.zero_grad()
            model(x).sum().backward()
            opt.step()

        def count(frame, event, argument):
            nonlocal calls
            calls += event in ("call", "c_call")
        w = watch(model, opt, every=100, on_finding=None)
        if watched:
            w.start()
            assert len(model[0]._forward_hooks) == 1
        for _ in range(3):
            step()
        assert not model._forward_hooks and not model[0]._forward_hooks and not model[0]._forward_pre_hooks
        assert not watched or w.step == 3
        del read[:]
        sys.setprofile(count)
        try:
            step()
        finally:
            sys.setprofile(None)
        assert read == []
        w.stop()
        return calls
    small, large = (calls_of_a_step(n, True) - calls_of_a_step(n, False) for n in (1, 8))
    assert 0 < small <= 30 and abs(large - small) <= 4, (small, large)


@SIDES
def test_unit_that_fires_sometimes_is_not_dead(T):
    model = T.nn.Sequential(T.nn.Conv2d(1, 4, 1), T.nn.ReLU())
    with T.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.fill_(0.0)
    said = []
    with watch(model, on_finding=said.append, patience=2, dead=0.5) as w:
        for i in range(4):
            x = -np.ones((3, 1, 2, 2), "float32")
            if i % 2:
                x[2, 0, 1, 1] = 5.0  # only the last sample of the batch activates the units
            model(T.from_numpy(x)).sum().backward()
            w.step_end()
    assert "dead_relu" not in {f["kind"] for f in said}
    with watch(model, on_finding=said.append, patience=2, dead=0.5) as w:
        for _ in range(2):
            model(T.from_numpy(-np.ones((3, 1, 2, 2), "float32"))).sum().backward()
            w.step_end()
    assert [f["share"] for f in said if f["kind"] == "dead_relu"] == [1.0]


@pytest.mark.parametrize("value, finite", [(1e30, True), (float("nan"), False), (float("-inf"), False), (3e38, True), (0.0, True)])
def test_large_values_are_not_infinite(value, finite):
    from mindtorch.tools._training_monitor import _finite
    for T in (mine, real):
        x = T.zeros(5, 7)
        x[2, 3] = value
        for y in (x, x.t(), x.double(), x[:, 3], x[0:0]):
            assert _finite(y) is (finite or not y.numel())
        for kind in (T.complex64, T.bfloat16):
            assert _finite(x.to(kind)) is finite or (kind is T.bfloat16 and value == 3e38)


# ----------------------------------------------------- intended infinities, and faults next to them
def lm(T, mask="masked_fill", fault=None):
    """Returns a causal language model of two blocks. `mask` is how it masks scores, `fault` what
    goes wrong in the second block."""
    F = T.nn.functional

    class Attention(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = T.nn.Linear(8, 24), T.nn.Linear(8, 8)
            self.register_buffer("causal", T.full((5, 5), float("-inf")).triu(1))

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            s = q @ k.transpose(1, 2) / 8 ** 0.5
            above = self.causal != 0
            if mask == "masked_fill":
                s = s.masked_fill(above, float("-inf"))
            elif mask == "masked_fill_":
                s.masked_fill_(above, float("-inf"))
            elif mask == "buffer":
                s = s + self.causal
            elif mask == "where":
                s = T.where(above, T.tensor(float("-inf")), s)
            elif mask == "setitem":
                s[:, above] = -float("inf")
            elif mask == "log":
                s = s + T.log((~above).float())
            elif mask == "lowest":      # negative scores overflow
                s = s + T.finfo(s.dtype).min * above
                s = s + T.finfo(s.dtype).min * above
            elif mask == "row":
                s = s.masked_fill(above | (T.arange(5) == 2)[:, None], float("-inf"))
            return self.out(T.softmax(s, -1) @ v)

    class Block(T.nn.Module):
        def __init__(self, fault):
            super().__init__()
            self.attention, self.norm, self.fc, self.fault = Attention(), T.nn.LayerNorm(8), T.nn.Linear(8, 8), fault

        def forward(self, x):
            x = x + self.attention(self.norm(x))
            h = T.tanh(self.fc(x))
            return x + (self.fault(T, h) if self.fault else h)

    class Model(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.blocks, self.head = T.nn.Embedding(7, 8), T.nn.Sequential(Block(None), Block(fault)), T.nn.Linear(8, 7)

        def forward(self, tokens):
            logits = self.head(self.blocks(self.embed(tokens)))
            never = T.arange(7) == 6
            # a token that must never be generated: infinite on purpose
            return logits.masked_fill(never, float("-inf"))

    def loss(model, tokens):
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten() % 6)
    T.manual_seed(4)
    return Model(), loss


def train_lm(T, mask, fault, steps=2, **options):
    model, loss = lm(T, mask, fault)
    opt = T.optim.SGD(model.parameters(), lr=0.05)
    tokens = T.arange(10).reshape(2, 5) % 7

    def step(i):
        opt.zero_grad()
        loss(model, tokens).backward()
        opt.step()
    return [f for f in watch_training(model, opt, step, steps, **options) if f["kind"] == "overflow"]


@SIDES
@pytest.mark.parametrize("ops", [False, True])
@pytest.mark.parametrize("mask", ["masked_fill", "masked_fill_", "buffer", "where", "setitem", "log", "lowest"])
def test_masks_of_minus_infinity_are_not_reported(T, mask, ops):
    assert train_lm(T, mask, None, ops=ops) == []


def _custom(T, h):
    class Bad(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x / 0

        @staticmethod
        def backward(ctx, g):
            return g
    return Bad.apply(h)


# fault -> its cause, and the op that must be named (None: no traced function)
FAULTS = {
    "log of zero": (lambda T, h: T.log(h * 0), "torch.log"),
    "division by zero": (lambda T, h: h / (h - h), "Tensor.__truediv__"),
    "in place": (lambda T, h: (h + 0).div_(0), "Tensor.div_"),
    "float16 overflow": (lambda T, h: (h.abs().half() + 1).mul(60000.0).float(), "Tensor.mul"),
    "cast to float16": (lambda T, h: (h * 0 + 1e5).half().float(), "Tensor.half"),
    "inf - inf": (lambda T, h: T.full_like(h, float("inf")) - float("inf") + h, "Tensor.__sub__"),
    "inf - inf, of an overflow": (lambda T, h: T.exp(h * 0 + 100) - T.exp(h * 0 + 99), "torch.exp"),
    "zero times infinity": (lambda T, h: (h * 0) * float("inf"), "Tensor.__mul__"),
    "root of a negative": (lambda T, h: T.sqrt(-1 - h * h), "torch.sqrt"),
    "softmax of nothing": (lambda T, h: T.softmax(h.masked_fill(h == h, float("-inf")), -1), "torch.softmax"),
    "through a view": (lambda T, h: T.log(h * 0).mT.flip(0).mT.nan_to_num(nan=1.0, neginf=float("-inf")), "torch.log"),
    # The forward hides the infinity, the gradient does not.
    "log behind where": (lambda T, h: T.where(h > 9, T.log(h * 0), h), "torch.log"),
    "sigmoid by hand": (lambda T, h: 1 / (1 + T.exp(100 - h)), "torch.exp"),
}


@SIDES
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_next_to_masks_is_reported_with_op_and_module(T, fault):
    fn, op = FAULTS[fault]
    for mask in ("masked_fill", "log")[:1 + (fault in ("log of zero", "inf - inf", "log behind where"))]:
        found = train_lm(T, mask, fn, steps=1, ops=True)
        assert [(f["name"], f["op"], f["step"]) for f in found] == [("blocks.1", op, 0)], found
    found = train_lm(T, mask, fn, steps=1)
    assert [f["step"] for f in found] == [0]
    # no module output shows these two faults
    if fault not in ("log behind where", "sigmoid by hand"):
        assert found[0]["name"] == "blocks.1", found


@SIDES
def test_fault_in_an_untraced_op_belongs_to_its_module(T):
    for ops in (False, True):
        found = train_lm(T, "buffer", _custom, ops=ops)
        assert [f["name"] for f in found] == ["blocks.1"], found
    found = train_lm(T, "row", None, ops=True)
    assert [(f["name"], f["op"]) for f in found] == [("blocks.0.attention", "torch.softmax")]


@SIDES
def test_benign_infinity_does_not_hide_a_later_fault(T):
    state = {"n": 0}

    def late(T, h):
        state["n"] += 1
        return T.log(h * 0) if state["n"] == 3 else h
    found = train_lm(T, "log", late, steps=4, ops=True)
    assert [(f["name"], f["op"], f["step"]) for f in found] == [("blocks.1", "torch.log", 2)]


@SIDES
@pytest.mark.parametrize("ops", [False, True])
def test_masks_and_infinities_in_the_model_inputs(T, ops):
    T.manual_seed(0)
    layer = T.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = T.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    mask = T.nn.Transformer.generate_square_subsequent_mask(5)

    def overflow(x):
        with watch(model, ops=ops, on_finding=None) as w:
            model(x, mask=mask).square().mean().backward()
        return [f["name"] for f in w.findings if f["kind"] == "overflow"]
    x = T.randn(2, 5, 8)
    assert overflow(x) == []
    x[0, 1, 2] = float("nan")
    assert overflow(x) == ["the model's input"]
    with T.no_grad():
        model.layers[1].linear1.weight[0, 0] = float("nan")
    assert overflow(T.randn(2, 5, 8)) == ["layers.1.linear1"]


@SIDES
def test_infinite_loss_and_forward_aborted_by_nan(T):
    head = T.nn.Linear(4, 3)
    x, never = T.ones(2, 4), T.tensor([False, True, False])
    with watch(head, ops=True, on_finding=None) as w:
        T.nn.functional.cross_entropy(head(x).masked_fill(never, float("-inf")), T.tensor([0, 1])).backward()
    assert [(f["kind"], f["name"]) for f in w.findings] == [("overflow", "the loss")]
    with watch(head, ops=True, on_finding=None) as w:
        T.log(head(x) * 0).mean().backward()
    assert [(f["name"], f["op"]) for f in w.findings] == [("the loss", "torch.log")]

    class Strict(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = T.nn.Linear(4, 4)

        def forward(self, x):
            y = T.sqrt(-1 - self.fc(x) ** 2)
            if bool(T.isnan(y).any()):
                raise ValueError("there is NaN")
            return y
    model = Strict()
    with pytest.raises(ValueError), watch(model, ops=True, on_finding=None) as w:
        model(x)
    assert [(f["name"], f["op"]) for f in w.findings] == [("", "torch.sqrt")]
