"""watch: each of its findings on a run made for it, none on a healthy one; with the facade and with real torch."""
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
def test_overflow_is_named_where_and_when_it_begins(T):
    class Odd(T.nn.Module):
        step = 0

        def forward(self, x):
            return T.log(x * 0) + 1 if self.step >= 2 else x
    model = T.nn.Sequential(T.nn.Linear(4, 4), Odd(), T.nn.Linear(4, 2))

    def prepare(i):
        model[1].step = i
    found = run(T, model, prepare=prepare)
    assert [(f["kind"], f["name"], f["step"]) for f in found] == [("overflow", "1", 2)]
    assert found[0]["op"] == "Add"          # the last op of the module, all that autograd tells
    model[1].step = 0
    for p in model.parameters():
        T.nn.init.normal_(p)
    found = run(T, model, prepare=prepare, ops=True)
    assert (found[0]["name"], found[0]["step"], found[0]["op"]) == ("1", 2, "torch.log")


@SIDES
def test_overflow_in_the_code_between_modules_belongs_to_the_module_around_it(T):
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


def test_as_context_manager_and_callback_and_only_now_and_then():
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
def test_an_overflow_in_backward_is_named_where_backward_comes_to_it_first(T):
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


def test_steps_that_are_not_looked_at_cost_nothing(monkeypatch):
    """Between the steps it looks at, a watch does no work that grows with the model: no hooks, no values read, and some ten
    calls of Python functions. (How much that is of a training step: benchmarks/watch_cost.py.)"""
    import sys

    from mindtorch.tools import _trace, _watch
    read = []
    array, tensors = _watch._array, _trace.tensors
    monkeypatch.setattr(_watch, "_array", lambda t: read.append(t) or array(t))
    monkeypatch.setattr(_trace, "tensors", lambda *a: read.append(a) or tensors(*a))

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
def test_a_unit_that_fires_now_and_then_is_alive(T):
    model = T.nn.Sequential(T.nn.Conv2d(1, 4, 1), T.nn.ReLU())
    with T.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.fill_(0.0)
    said = []
    with watch(model, on_finding=said.append, patience=2, dead=0.5) as w:
        for i in range(4):
            x = -np.ones((3, 1, 2, 2), "float32")
            if i % 2:
                x[2, 0, 1, 1] = 5.0         # only the last of the batch moves the units
            model(T.from_numpy(x)).sum().backward()
            w.step_end()
    assert "dead_relu" not in {f["kind"] for f in said}
    with watch(model, on_finding=said.append, patience=2, dead=0.5) as w:
        for _ in range(2):
            model(T.from_numpy(-np.ones((3, 1, 2, 2), "float32"))).sum().backward()
            w.step_end()
    assert [f["share"] for f in said if f["kind"] == "dead_relu"] == [1.0]


@pytest.mark.parametrize("value, finite", [(1e30, True), (float("nan"), False), (float("-inf"), False), (3e38, True), (0.0, True)])
def test_large_values_are_not_taken_for_infinity(value, finite):
    from mindtorch.tools._watch import _finite
    for T in (mine, real):
        x = T.zeros(5, 7)
        x[2, 3] = value
        for y in (x, x.t(), x.double(), x[:, 3], x[0:0]):
            assert _finite(y) is (finite or not y.numel())
        for kind in (T.complex64, T.bfloat16):
            assert _finite(x.to(kind)) is finite or (kind is T.bfloat16 and value == 3e38)
