"""torch.compile matches eager results: twelve models over twenty training steps, with changes to
the model in between."""
import copy
import pickle

import numpy as np
import pytest

import mindtorch.torch as torch
from _compile_models import MODELS, F, Structured, nn

pytestmark = pytest.mark.usefixtures("forgotten_variants")
D = torch._dynamo


def compiled(model):
    """Returns the compiled form and its counters."""
    m = torch.compile(model)
    return m, m._compiled if isinstance(model, nn.Module) else m._torchdynamo_compiled


def train(name, use, steps=20, optimizer=torch.optim.Adam):
    """Returns losses, evaluations and the final state of a run that includes every kind of change
    to a model."""
    build, makers, loss_of = MODELS[name]
    torch.manual_seed(3)
    net = build()
    model = use(net)
    opt = optimizer(net.parameters(), lr=0.01)
    out, saved = [], None
    for i in range(steps):
        b = (6, 6, 6, 4, 6, 6, 3, 6, 6, 6)[i % 10]
        data = [make(b) for make in makers]
        if i == 5:
            saved = copy.deepcopy(net.state_dict())
        if i == 9:
            net.load_state_dict(saved)
        if i in (11, 15):
            next(net.parameters()).requires_grad_(i == 15)
        opt.zero_grad()
        loss = loss_of(model, *data)
        loss.backward()
        opt.step()
        out.append(loss.item())
        if i % 5 == 4:
            net.eval()
            with torch.no_grad():
                out.append(loss_of(model, *data).item())
            net.train()
    return out, {k: v.numpy().copy() for k, v in net.state_dict().items()}, model


@pytest.mark.parametrize("name", MODELS)
def test_training_equals_eager(name):
    # Adam turns the rounding of gradients that should be zero (a bias before batch norm) into
    # full-size steps.
    opt = torch.optim.SGD if name in ("norms", "depthwise", "generator") else torch.optim.Adam
    losses, state, _ = train(name, lambda net: net, optimizer=opt)
    again, state_again, model = train(name, torch.compile, optimizer=opt)
    np.testing.assert_allclose(again, losses, rtol=2e-4, atol=1e-5)
    assert list(state) == list(state_again)
    for k in state:
        np.testing.assert_allclose(state_again[k], state[k], rtol=2e-3, atol=2e-4, err_msg=k)
    c = model._compiled
    assert c.given_up is None, c.reasons
    assert c.replayed_calls > c.eager_calls, (c.replayed_calls, c.eager_calls, c.reasons)


def test_wrapper_exposes_the_models_parameters():
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    net.note = "hello"
    m = torch.compile(net)
    assert isinstance(m, nn.Module) and isinstance(m, D.OptimizedModule) and m._orig_mod is net
    assert [p is q for p, q in zip(m.parameters(), net.parameters())] == [True] * 4
    assert [k.replace("_orig_mod.", "") for k in m.state_dict()] == list(net.state_dict())
    assert m.note == "hello" and len(m) == 2 and m[0] is net[0]
    m.note = "changed"
    assert net.note == "changed"
    m.eval()
    assert not net.training and not net[1].training and not m.training
    m.train()
    assert net.training and net[1].training
    assert torch.compile(m) is m
    other = copy.deepcopy(m)
    x = torch.randn(4, 3)
    assert other(x).tolist() == m(x).tolist() and other[0].weight is not net[0].weight
    assert pickle.loads(pickle.dumps(torch.compile(nn.Linear(2, 2)))).weight.shape == (2, 2)


def test_attribute_global_and_closure_changes_take_effect():
    class Net(nn.Module):
        factor = 1.0

        def __init__(self):
            super().__init__()
            self.config = {"shift": [0.0, 1.0]}
            self.k = 2

        def forward(self, x):
            return x * self.k * self.factor + self.config["shift"][1] + GLOBAL["g"] + offset

    offset = 0.0
    net = Net()
    m, c = compiled(net)
    x = torch.ones(2)

    def both():
        a, b = net(x).tolist(), m(x).tolist()
        assert a == b
        assert m(x).tolist() == b
        return a
    assert both() == [3, 3]
    net.k = 5
    assert both() == [6, 6]
    net.config["shift"][1] = 10.0
    assert both() == [15, 15]
    net.config["shift"] = [0, 20.0]
    assert both() == [25, 25]
    Net.factor = 2.0
    assert both() == [30, 30]
    GLOBAL["g"] = 100.0
    try:
        assert both() == [130, 130]
    finally:
        GLOBAL["g"] = 0.0
    offset = 1000.0
    assert both() == [1030, 1030]
    net.forward = lambda x: x - 1
    assert both() == [0, 0]
    assert c.replayed_calls >= 8


GLOBAL = {"g": 0.0}


def test_replaced_frozen_moved_or_hooked_parameters():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    m, c = compiled(net)
    x = torch.randn(4, 3)

    def check():
        for _ in range(3):
            net.zero_grad()
            net(x).sum().backward()
            want = [None if p.grad is None else p.grad.tolist() for p in net.parameters()]
            net.zero_grad()
            y = m(x)
            y.sum().backward()
            assert [None if p.grad is None else p.grad.tolist() for p in net.parameters()] == want
            assert y.tolist() == net(x).tolist()
    check()
    net[0].weight.requires_grad_(False)
    check()
    net[0].weight = nn.Parameter(torch.ones(3, 3))
    check()
    net[0].bias.data = torch.ones(3)
    check()
    net[2].weight.data.mul_(2)
    check()
    seen = []
    h = net[2].weight.register_hook(lambda g: seen.append(1) or g * 3)
    check()
    assert seen
    h.remove()
    check()
    net[1] = nn.Tanh()
    check()
    net.append(nn.Linear(2, 2))
    check()
    h = net[0].register_forward_hook(lambda mod, args, out: out * 2)
    check()
    h.remove()
    check()
    net.double()
    x = x.double()
    check()


def test_dtypes_modes_and_autocast_compile_separate_variants():
    net = nn.Linear(4, 4)
    m, c = compiled(net)
    x = torch.randn(2, 4)
    assert m(x).requires_grad
    with torch.no_grad():
        assert not m(x).requires_grad
        assert not m(x).requires_grad
    with torch.inference_mode():
        assert m(x).is_inference() == m(x).is_inference() == net(x).is_inference()
    with torch.autocast("cpu", torch.bfloat16):
        assert m(x).dtype is torch.bfloat16
        assert m(x).dtype is torch.bfloat16
    assert m(x).dtype is torch.float32 and m(x).requires_grad
    assert m(x.t().contiguous().t()).tolist() == net(x).tolist()
    x.requires_grad_()
    for _ in range(2):
        x.grad = None
        m(x).sum().backward()
        assert x.grad is not None
    assert c.replayed_calls >= 5


def test_functions_methods_nesting_and_views():
    w = torch.randn(3, 3, requires_grad=True)

    @torch.compile
    def inner(a, *, k=2):
        return a.sin() * k

    @torch.compile(fullgraph=True)
    def outer(a, b, flag=True, *rest, k=2):
        with torch.no_grad():
            c = a * 2
        y = inner(a @ w, k=k) + c.T + b[..., None] if flag else a
        return y, {"b": b, "view": y[:, 1:], "k": k}, [a, y.T]
    for k in (2, 2, 3, 2, 3):
        a, b = torch.randn(3, 3), torch.randn(3)
        y, d, rest = outer(a, b, k=k)
        with torch.no_grad():
            c = a * 2
        want = (a @ w).sin() * k + c.T + b[..., None]
        assert y.tolist() == want.tolist() and d["b"] is b and d["k"] == k and rest[0] is a
        assert d["view"].data_ptr() == y.data_ptr() + 4 and d["view"]._base is y
        w.grad = None
        d["view"].sum().backward()
        g = w.grad.clone()
        w.grad = None
        want[:, 1:].sum().backward()
        assert torch.equal(g, w.grad)
    assert outer._torchdynamo_compiled.replayed_calls >= 3

    class Thing:
        def __init__(self):
            self.k = 3

        @torch.compile
        def times(self, x):
            return x * self.k
    t = Thing()
    assert [t.times(torch.ones(1)).item() for _ in range(3)] == [3, 3, 3]
    t.k = 4
    assert t.times(torch.ones(1)).item() == 4

    net = nn.Linear(2, 2)
    net.compile()
    x = torch.randn(3, 2)
    assert net(x).tolist() == net(x).tolist() == F.linear(x, net.weight, net.bias).tolist()
    assert "_compiled_call_impl" in vars(net)


def test_inplace_ops_on_inputs_and_buffers():
    @torch.compile(fullgraph=True)
    def f(x, y):
        x.add_(1)
        y[0] = x.sum()
        z = x[1:]
        z.mul_(y[1:])
        return z, x
    for _ in range(4):
        x, y = torch.arange(3.), torch.ones(3) * 2
        a, b = torch.arange(3.), torch.ones(3) * 2
        z, same = f(x, y)
        b[0] = a.add_(1).sum()
        a[1:].mul_(b[1:])
        assert same is x and z._base is x and x.tolist() == a.tolist() and y.tolist() == b.tolist()


def test_same_tensor_twice_and_aliases():
    @torch.compile
    def f(x, y):
        x = x.clone()
        x += 1
        return x * y
    a, b = torch.ones(3), torch.full((3,), 3.0)
    for _ in range(2):
        assert f(a, a).tolist() == [2, 2, 2]
        assert f(a, b).tolist() == [6, 6, 6]

    net = nn.Linear(2, 2)

    @torch.compile
    def g(w, x):
        return F.linear(x, w) + net(x)
    x, other = torch.randn(1, 2), torch.randn(2, 2)
    for w in (net.weight, net.weight, other, net.weight, other):
        assert g(w, x).tolist() == (F.linear(x, w) + net(x)).tolist()


def test_random_numbers_match_the_eager_order():
    def f(x):
        a = F.dropout(x, 0.4)
        b = torch.rand(5)
        return a, b, F.dropout(x, 0.1) + torch.randn_like(x), torch.bernoulli(torch.full((4,), 0.5))
    g = torch.compile(f, fullgraph=True)
    x = torch.randn(40)
    torch.manual_seed(0)
    want = [[t.tolist() for t in f(x)] for _ in range(4)]
    torch.manual_seed(0)
    got = [[t.tolist() for t in g(x)] for _ in range(4)]
    assert got == want and got[1] != got[2]


def test_double_backward_and_retained_graphs():
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    m, _ = compiled(net)
    for _ in range(3):
        x = torch.randn(4, 3, requires_grad=True)
        results = []
        for f in (net, m):
            g, = torch.autograd.grad(f(x).sum(), x, create_graph=True)
            net.zero_grad()
            (g ** 2).sum().backward()
            results.append([g.tolist()] + [None if p.grad is None else p.grad.numpy().copy() for p in net.parameters()])
        assert results[0][0] == results[1][0]
        for a, b in zip(results[0][1:], results[1][1:]):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
        y = m(x).sum()
        y.backward(retain_graph=True)
        y.backward()
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()


def test_two_calls_before_one_backward():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    m, _ = compiled(net)
    m(torch.randn(5, 3))
    xs = [torch.randn(5, 3) for _ in range(3)]

    def grads(f):
        net.zero_grad()
        total = sum(f(x).pow(2).sum() for x in xs)
        total.backward()
        return [p.grad.numpy().copy() for p in net.parameters()]
    for a, b in zip(grads(net), grads(m)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_hooks_on_results_and_retain_grad():
    net = nn.Linear(3, 3)
    m, _ = compiled(net)
    for _ in range(3):
        x = torch.randn(2, 3)
        y = m(x)
        y.retain_grad()
        seen = []
        y.register_hook(lambda g: seen.append(g) or g * 2)
        net.zero_grad()
        (y * 3).sum().backward()
        assert len(seen) == 1 and net.bias.grad.tolist() == [12, 12, 12]


def test_cache_is_bounded_and_can_be_reset(caplog):
    net = nn.Linear(3, 2)
    m, c = compiled(net)
    for n in range(1, 14):
        assert m(torch.ones(n, 3)).shape == (n, 2)
    assert len(c.entries) == D.config.recompile_limit == 8
    assert "recompile_limit" in caplog.text
    before = c.replayed_calls
    m(torch.ones(2, 3))
    assert c.replayed_calls == before + 1
    with D.config.patch(cache_size_limit=2):
        f = torch.compile(lambda x: x + 1, fullgraph=True)
        f(torch.ones(1)), f(torch.ones(2))
        with pytest.raises(D.exc.FailOnRecompileLimitHit, match="recompile_limit"):
            f(torch.ones(3))
    D.reset()
    assert c.entries == []
    assert m(torch.ones(2, 3)).shape == (2, 2) and len(c.entries) == 1



def test_deleted_callables_do_not_count_against_the_limit():
    """The shared budget of all callables covers only live ones, not every callable the process ever
    created."""
    with D.config.patch(accumulated_recompile_limit=6):
        x = torch.ones(2, 3)
        for i in range(30):
            m, c = compiled(nn.Linear(3, 3))
            for _ in range(3):
                m(x)
            assert c.replayed_calls == 2, i
        del m, c
        kept = [compiled(nn.Linear(3, 3)) for _ in range(9)]
        for m, _ in kept:
            m(x), m(x)
        assert sum([c.replayed_calls for _, c in kept]) == 6


def test_old_variants_are_evicted():
    net = nn.Linear(3, 2)
    m, c = compiled(net)
    for i in range(20):
        net.weight = nn.Parameter(torch.full((2, 3), float(i)))
        assert m(torch.ones(1, 3)).tolist() == net(torch.ones(1, 3)).tolist()
    assert len(c.entries) <= 8 and c.given_up is None


def test_structured_outputs_are_fresh_objects():
    net = Structured()
    m = torch.compile(net)
    seen = []
    for i in range(3):
        r = m(torch.randn(4, 6))
        seen.append(r)
        assert type(r).__name__ == "Answer" and type(r.parts["pair"]).__name__ == "Pair" and r.parts["n"] == 4
        assert isinstance(r.parts["all"], list) and r.parts["all"][1][0].shape == (3, 4)
        r.parts["mine"] = i
    assert seen[1] is not seen[2] and seen[1].parts is not seen[2].parts


def test_options_are_honored_or_raise():
    f = torch.relu
    assert torch.compile(f, disable=True) is f
    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        assert torch.compile(lambda x: x + 1, mode=mode)(torch.ones(1)).item() == 2
    for backend in ("inductor", "eager", "aot_eager"):
        assert torch.compile(lambda x: x + 1, backend=backend, dynamic=True)(torch.ones(1)).item() == 2
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        torch.compile(f, mode="fastest")
    with pytest.raises(RuntimeError, match="Either mode or options"):
        torch.compile(f, mode="default", options={"max_autotune": True})
    with pytest.raises(RuntimeError, match="Unexpected optimization option"):
        torch.compile(f, options={"no_such": 1})
    with pytest.raises(D.exc.InvalidBackend, match="Invalid backend"):
        torch.compile(f, backend="nothing")
    assert torch.compile(lambda x: x + 1, backend=lambda gm, ex: gm)(torch.ones(1)).item() == 2
    with pytest.raises(AssertionError, match="callable"):
        torch.compile(3)


def test_optimizer_step_in_a_compiled_function():
    def run(use):
        torch.manual_seed(0)
        net = nn.Linear(4, 2)
        opt = torch.optim.Adam(net.parameters(), lr=0.1)

        @use
        def step():
            opt.step()

        @use
        def whole(x, y):
            opt.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            step()
            return loss
        return [whole(torch.randn(3, 4), torch.randn(3, 2)).item() for _ in range(6)] + net.weight.tolist()
    assert run(lambda f: f) == run(torch.compile)


def test_small_networks_replay_bitwise_equal():
    """Even where rounding would be amplified: Adam on a bias before batch norm, whose gradient
    consists only of rounding."""
    def run(use):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5))
        m, opt = use(net), torch.optim.Adam(net.parameters(), lr=0.01)
        for i in range(8):
            opt.zero_grad()
            F.cross_entropy(m(torch.randn(8 - i % 2, 1, 8, 8)), torch.arange(8 - i % 2) % 5).backward()
            opt.step()
        return [p.tolist() for p in net.parameters()]
    assert run(lambda net: net) == run(torch.compile)
