"""torch.compile with a callable backend: as in PyTorch, the backend receives an fx GraphModule and
example inputs, and the callable it returns is executed."""
import copy
import operator

import numpy as np
import pytest
import torch as real

import _export_programs as programs
import mindtorch.torch as torch
from mindtorch.torch._dynamo.testing import CompileCounter, CompileCounterWithBackend, EagerAndRecordGraphs

nn, F, D = torch.nn, torch.nn.functional, torch._dynamo
pytestmark = pytest.mark.usefixtures("forgotten_variants")


@pytest.fixture(autouse=True)
def forgotten():
    real._dynamo.reset()
    validates = real.distributions.Distribution._validate_args
    yield
    # torch.compile disables the validation for the whole process
    real.distributions.Distribution.set_default_validate_args(validates)


class Seen:
    """Backend that saves graphs and counts the runs of the callables it returned."""

    def __init__(self, change=lambda gm: None):
        self.graphs, self.inputs, self.runs, self.change = [], [], 0, change

    def __call__(self, gm, example_inputs):
        self.change(gm)
        gm.graph.lint()
        gm.recompile()
        self.graphs.append(gm)
        self.inputs.append(example_inputs)

        def run(*args):
            self.runs += 1
            return gm(*args)
        return run


def spelled(gm):
    """Returns (op, target) of the calls, without the module that a function comes from."""
    return [(n.op, n.target if isinstance(n.target, str) else n.target.__name__) for n in gm.graph.nodes if n.op.startswith("call_")]


def elementwise(t, F):
    def f(x, y):
        return (x.sin() * y + 2 - 3 / x) ** 2 // 1.5
    return f


def writes(t, F):
    def f(x, y):
        z = F.relu(x + y, inplace=True)
        z[0] = 1
        z += x
        z.mul_(2)
        x.add_(1)
        return z, x * 2
    return f


def views(t, F):
    def f(x, y):
        a, b = t.split(x, 2)
        c = x.view(-1)[1:5].reshape(2, 2).T
        a.mul_(3)
        return a + b[:2], t.cat([c, c], dim=1), x.max(1).values, t.max(y, 1)[1]
    return f


def structure(t, F):
    def f(x, y):
        return {"a": x + 1, "b": [y, (x * y, 3)], "c": None}, -x
    return f


def modes(t, F):
    def f(x, y):
        with t.no_grad():
            a = x * 2
        with t.inference_mode():
            b = y.exp()
        return a + x, b, ~(x > y) & (x != 0)
    return f


def layers(t, F):
    def f(x, y):
        h = F.layer_norm(F.linear(x, y), (4,))
        return F.softmax(F.gelu(h), dim=-1).sum(0), F.cross_entropy(h, t.zeros(4, dtype=t.long))
    return f


PROGRAMS = [elementwise, writes, views, structure, modes, layers]


def flat(x):
    if isinstance(x, (torch.Tensor, real.Tensor)):
        return [x.detach().numpy()]
    if isinstance(x, dict):
        x = [*x, *x.values()]
    return [i for v in x for i in flat(v)] if isinstance(x, (list, tuple)) else [x]


@pytest.mark.parametrize("program", PROGRAMS)
def test_backend_graphs_match_torch(program):
    data = np.random.RandomState(0).randn(2, 4, 4).astype(np.float32)
    got = {}
    for name, t, fn in (("ours", torch, F), ("real", real, real.nn.functional)):
        backend = Seen()
        c = t.compile(program(t, fn), backend=backend)
        out = []
        for i in range(3):
            x, y = (t.tensor(a + i) for a in data)
            out += flat(c(x, y)) + flat([x, y])
        got[name] = out, spelled(backend.graphs[0]), backend
    (a, calls, mine), (b, wanted, theirs) = got["ours"], got["real"]
    assert len(a) == len(b)
    for x, y in zip(a, b):
        if isinstance(x, np.ndarray):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
        else:
            assert x == y
    assert mine.runs == theirs.runs == 3 and len(mine.graphs) == len(theirs.graphs) == 1
    # ours switch directly from one mode to the next
    mode_calls = ("_enter_inference_mode", "_exit_inference_mode", "_set_grad_enabled")
    assert [c for c in calls if c[1] not in mode_calls] == [c for c in wanted if c[1] not in mode_calls]
    assert [n.target for n in mine.graphs[0].graph.nodes if n.op == "placeholder"] == [
        n.target for n in theirs.graphs[0].graph.nodes if n.op == "placeholder"]
    assert [tuple(x.shape) for x in mine.inputs[0]] == [tuple(x.shape) for x in theirs.inputs[0]]


def net(t):
    m = t.nn.Sequential(t.nn.Conv2d(2, 3, 3), t.nn.BatchNorm2d(3), t.nn.ReLU(), t.nn.Flatten(), t.nn.Linear(48, 4))
    with t.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(t.linspace(-1, 1, p.numel()).reshape(p.shape) * (i + 1) / 3)
    return m


def test_training_through_a_backend_matches_torch():
    data = np.random.RandomState(1).randn(3, 6, 2, 6, 6).astype(np.float32)
    results = []
    for t in (torch, real):
        m, backend = net(t), Seen()
        c = t.compile(m, backend=backend)
        opt, losses = t.optim.SGD(m.parameters(), lr=0.1), []
        for x in data:
            opt.zero_grad()
            loss = c(t.tensor(x)).square().mean()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        m.eval()
        losses.append(c(t.tensor(data[0])).sum().item())
        results.append((losses, {k: v.numpy() for k, v in m.state_dict().items()}, spelled(backend.graphs[0]),
                        sorted((type(x).__name__, tuple(x.shape)) for x in backend.inputs[0]), len(backend.graphs), backend.runs))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-4)
    for k, v in results[0][1].items():
        np.testing.assert_allclose(v, results[1][1][k], rtol=1e-4, atol=1e-5, err_msg=k)
    assert results[0][3:] == results[1][3:]
    assert [n for _, n in results[0][2]] == [n for _, n in results[1][2]]


def test_placeholder_names_of_module_members():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.k = nn.Linear(3, 3), nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.fc(x) * self.k
    backend = Seen()
    torch.compile(Net(), backend=backend)(torch.ones(1, 3))
    names = [n.name for n in backend.graphs[0].graph.nodes if n.op == "placeholder"]
    assert names == ["l_x_", "l_self_modules_fc_parameters_weight_", "l_self_modules_fc_parameters_bias_", "l_self_parameters_k_"]


def test_backend_result_runs_from_the_first_call():
    def to_product(gm):
        for n in gm.graph.nodes:
            if n.target is operator.add:
                n.target = operator.mul
    f = torch.compile(lambda x, y: x + y, backend=Seen(to_product))
    x, y = torch.tensor([3.0]), torch.tensor([4.0])
    assert [f(x, y).item() for _ in range(3)] == [12.0, 12.0, 12.0]


def test_first_call_has_its_side_effects_once():
    m = nn.BatchNorm1d(2)
    other = nn.BatchNorm1d(2)
    c = torch.compile(m, backend=Seen())
    x = torch.randn(4, 2)
    for _ in range(2):
        np.testing.assert_array_equal(c(x).detach(), other(x).detach())
    assert m.num_batches_tracked.item() == 2
    np.testing.assert_array_equal(m.running_mean, other.running_mean)

    def f(x):
        x.add_(1)
        return F.dropout(x, 0.5) + torch.rand(3)
    g = torch.compile(f, backend=Seen())
    torch.manual_seed(0)
    a = torch.zeros(3)
    got = [g(a), g(a)]
    torch.manual_seed(0)
    b = torch.zeros(3)
    assert all(torch.equal(r, f(b)) for r in got) and torch.equal(a, b)

    base = torch.ones(3, requires_grad=True)
    backend = Seen()
    c = torch.compile(lambda x: x.mul_(2).sum(), backend=backend)
    for _ in range(2):
        y = base * 1
        c(y).backward()
        np.testing.assert_array_equal(y.detach(), [2, 2, 2])
    np.testing.assert_array_equal(base.grad, [4, 4, 4])
    assert backend.runs == 1


def test_guards_trigger_recompilation():
    backend = Seen()
    c = torch.compile(lambda x, k: x * k, backend=backend)
    for x, k in ((torch.ones(2), 2), (torch.ones(2), 2), (torch.ones(3), 2), (torch.ones(3), 3), (torch.ones(2), 2)):
        np.testing.assert_array_equal(c(x, k), np.full(x.shape, k))
    assert len(backend.graphs) == 3 and backend.runs == 5

    m = nn.Linear(2, 2)
    backend = Seen()
    c = torch.compile(m, backend=backend)
    x = torch.ones(1, 2)
    c(x)
    with torch.no_grad():
        m.weight.add_(1)
    np.testing.assert_allclose(c(x).detach(), m(x).detach())
    m.weight = nn.Parameter(torch.zeros(2, 2))
    np.testing.assert_allclose(c(x).detach(), m(x).detach())
    assert len(backend.graphs) == 2


def test_graph_break_yields_one_graph_per_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU())

        def forward(self, x):
            h = self.a(x)
            if h.sum() > 1e9:
                h = h * 2
            return self.b(h)
    m, backend = Net(), Seen()
    c = torch.compile(m, backend=backend)
    for _ in range(3):
        x = torch.randn(2, 3)
        np.testing.assert_allclose(c(x).detach(), m(x).detach(), rtol=1e-6)
    assert sorted(len(spelled(g)) for g in backend.graphs) == [1, 2] and backend.runs >= 2
    with pytest.raises(D.exc.Unsupported, match="fullgraph=True"):
        torch.compile(m, backend=backend, fullgraph=True)(torch.randn(2, 3))


def test_backend_errors():
    def bad(gm, example_inputs):
        raise ValueError("no")
    for backend, text in ((bad, "backend='bad' raised:\nValueError: no"), (lambda gm, x: 3, "compiler_fn did not return callable"), (3, "not callable")):
        messages = []
        for t, inner in ((torch, D), (real, real._dynamo)):
            with pytest.raises(inner.exc.BackendCompilerFailed) as e:
                t.compile(lambda x: x + 1, backend=backend)(t.ones(2))
            messages.append(str(e.value).split("\n\n")[0])
        assert messages[0] == messages[1] and text in messages[0]
    with D.config.patch(suppress_errors=True):
        assert torch.compile(lambda x: x + 1, backend=bad)(torch.ones(1)).item() == 2

    def broken(gm, example_inputs):
        def run(*args):
            raise KeyError("inside")
        return run
    with pytest.raises(KeyError, match="inside"):
        torch.compile(lambda x: x + 1, backend=broken)(torch.ones(2))
    with pytest.raises(RuntimeError, match="produced 2 values, but the graph has 1"):
        torch.compile(lambda x: x + 1, backend=lambda gm, x: lambda *a: (1, 2))(torch.ones(2))


def test_backend_registration():
    for t in (torch, real):
        inner = t._dynamo
        calls = []

        def made(gm, example_inputs, _calls=calls, **kwargs):
            _calls.append(kwargs)
            return gm.forward
        name = "of this test"
        inner.register_backend(made, name=name)
        try:
            assert inner.lookup_backend(name) is made and name in inner.list_backends() and "eager" not in inner.list_backends()
            assert {"eager", "aot_eager", "inductor"} <= set(inner.list_backends(None))
            assert t.compile(lambda x: x + 1, backend=name, options={"a": 1})(t.ones(1)).item() == 2
            assert t.compile(lambda x: x + 2, backend=name, mode="reduce-overhead")(t.ones(1)).item() == 3
            assert calls == [{"options": {"a": 1}}, {"mode": "reduce-overhead"}]
            with pytest.raises(AssertionError, match="duplicate name"):
                inner.register_backend(made, name=name)
        finally:
            if t is torch:
                inner.backends.registry.REGISTERED.pop(name)
            else:
                inner.backends.registry._COMPILER_FNS.pop(name)
                inner.backends.registry._BACKENDS.pop(name)
        with pytest.raises(inner.exc.InvalidBackend, match="Invalid backend: 'nope'"):
            t.compile(lambda x: x, backend="nope")(t.ones(1))
    for name in ("eager", "aot_eager", "inductor"):
        f = torch.compile(lambda x: x.exp() + 1, backend=lambda gm, x, name=name: D.lookup_backend(name)(gm, x))
        for _ in range(2):
            np.testing.assert_allclose(f(torch.zeros(3)), [2, 2, 2])


def test_counters():
    def f(x):
        return (x + 1).relu()
    counter = CompileCounter()
    torch.compile(f, backend=counter)(torch.ones(2))
    assert (counter.frame_count, counter.op_count) == (1, 2)
    kept = CompileCounterWithBackend("eager")
    torch.compile(f, backend=kept)(torch.ones(2))
    assert kept.frame_count == 1 and len(kept.graphs) == 1
    kept = EagerAndRecordGraphs()
    torch.compile(f, backend=kept)(torch.ones(2))
    node = next(n for n in kept.graphs[0].graph.nodes if n.op == "call_method")
    assert node.target == "relu" and node.meta["example_value"].shape == (2,)


def test_custom_functions_and_generators_in_graphs():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 5
    backend = Seen()
    c = torch.compile(lambda x: Twice.apply(x).sum(), backend=backend)
    for _ in range(2):
        x = torch.ones(3, requires_grad=True)
        c(x).backward()
        np.testing.assert_array_equal(x.grad, [5, 5, 5])
    gen = torch.Generator()
    c = torch.compile(lambda x: x + torch.rand(3, generator=gen), backend=backend)
    gen.manual_seed(1)
    got = [c(torch.zeros(3)) for _ in range(3)]
    gen.manual_seed(1)
    for r in got:
        np.testing.assert_array_equal(r, torch.rand(3, generator=gen))
    assert len(backend.graphs) == 2


@pytest.mark.parametrize("backend", ["eager", "inductor", Seen()], ids=["eager", "inductor", "callable"])
def test_autocast_regions_and_new_shapes_are_captured(backend):
    def f(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = x.reshape(2, 8) @ x.view(8, 2)
        return y, x @ x, x.permute(1, 0).reshape(-1)
    c = torch.compile(f, backend=backend, fullgraph=True)
    for _ in range(3):
        x = torch.randn(4, 4)
        for a, b in zip(c(x), f(x)):
            assert a.dtype is b.dtype and torch.equal(a, b)
    assert not torch.is_autocast_enabled("cpu")

    def broken(x):
        with torch.autocast("cpu", torch.bfloat16):
            return (x @ x).view(3)
    c = torch.compile(lambda x: broken(x) if x.shape[0] == 3 else x, backend=backend)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            c(torch.ones(3, 3))
        assert not torch.is_autocast_enabled("cpu") and (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32


def check_random(seeds):
    """Random modules through a callable backend: values match PyTorch, gradients and buffers match
    the uncompiled module, over steps with other sizes."""
    for seed in seeds:
        real._dynamo.reset()
        found = []
        for t in (torch, real):
            m = programs.filled(programs.module(t, seed), t)
            other, backend = copy.deepcopy(m), Seen()
            c, values = t.compile(m, backend=backend, dynamic=False), []
            for i, n in enumerate((4, 4, 7, 4)):
                results = []
                for use in (c, other):
                    x = t.tensor(np.random.RandomState(seed + i).randn(n, 6).astype(np.float32), requires_grad=True)
                    listed, total = use(x)
                    if total.requires_grad:
                        total.backward()
                    results.append([v.detach().numpy() for v in (*listed, total)] + [np.zeros(1) if x.grad is None else x.grad.numpy()])
                if t is torch:
                    for p, q in zip(*results):
                        np.testing.assert_array_equal(p, q, err_msg=str(seed))
                    for k, v in other.state_dict().items():
                        np.testing.assert_array_equal(m.state_dict()[k], v, err_msg=f"{seed} {k}")
                values += results[0][:-1]
            found.append((values, backend.runs, len(backend.graphs)))
        assert found[0][1:] == found[1][1:], seed
        for p, q in zip(found[0][0], found[1][0]):
            np.testing.assert_allclose(p, q, rtol=2e-3, atol=2e-3, err_msg=str(seed))


def test_random_programs():
    check_random(range(6))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_more_random_programs():
    check_random(range(100, 135))


def test_on_a_device(npu):
    """The callable receives the graph on the npu device too, and programs are exported there."""
    m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5), nn.Dropout(0.3)).to(npu)
    other, backend = copy.deepcopy(m), Seen()
    c = torch.compile(m, backend=backend)
    for i in range(3):
        x = torch.randn(2, 3, 8, 8, device=npu)
        results = []
        for use in (c, other):
            torch.manual_seed(i)
            results.append(use(x))
        assert results[0].device == npu and torch.equal(*results)
    assert torch.equal(m[1].running_mean, other[1].running_mean) and len(backend.graphs) == 1 and backend.runs == 3
    program = torch.export.export(m, (x,), dynamic_shapes=({0: torch.export.Dim("n")},)).module()
    x = torch.randn(5, 3, 8, 8, device=npu)
    results = []
    for use in (program, other):
        torch.manual_seed(7)
        results.append(use(x))
    assert results[0].device == npu and torch.equal(*results)
