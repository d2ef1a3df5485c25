"""torch.compile: what a variant compares in its arguments, and training steps of many forms whose
modules are replayed."""
import numpy as np
import pytest

import mindtorch.torch as torch

pytestmark = pytest.mark.usefixtures("forgotten_variants")
D = torch._dynamo
nn, F = torch.nn, torch.nn.functional


# --------------------------------------------------------- what a variant compares in its arguments
class Named(dict):
    pass


class Listed(list):
    __slots__ = ("flag",)


def flagged(cls, x, flag):
    made = cls(x)
    made.flag = flag
    return made


SPECIAL = torch.ones(2)
KNOWN, ROW = {SPECIAL}, torch.arange(8.0)
ARGUMENTS = {
    "storage_offset": (lambda x: x * (1 + x.storage_offset()), [(ROW[:2],), (ROW[2:4],), (ROW[4:6],)]),
    "_is_view": (lambda x: x + (1 if x._is_view() else 2), [(torch.ones(2),), (ROW[2:4],)]),
    "_base": (lambda x: x + (1 if x._base is None else 2), [(torch.ones(2),), (ROW[2:4],)]),
    "identity": (lambda x: x + (1 if any(x is t for t in KNOWN) else 2), [(torch.ones(2),), (SPECIAL,), (torch.ones(2),)]),
    "membership": (lambda x: x + (1 if x in KNOWN else 2), [(SPECIAL,), (torch.ones(2),), (SPECIAL,)]),
    "dict subclass": (lambda b: b["x"] * b.flag, [(flagged(Named, {"x": ROW}, k),) for k in (1, 2, 2)]),
    "list subclass": (lambda b: b[0] * b.flag, [(flagged(Listed, [ROW], k),) for k in (1, 2, 2)]),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_compared_completely(name):
    fn, calls = ARGUMENTS[name]
    f = torch.compile(fn)
    for _ in range(2):
        for args in calls:
            assert f(*args).tolist() == fn(*args).tolist()


def test_order_of_keyword_arguments():
    f = torch.compile(lambda **k: list(k.values()))
    a, b = torch.zeros(1), torch.ones(1)
    for _ in range(2):
        assert [t.item() for t in f(a=a, b=b)] == [0, 1] and [t.item() for t in f(b=b, a=a)] == [1, 0]


# ------------------------------------------------------------------ steps of other forms
def mlp(out=8):
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, out))


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.net = nn.Embedding(5, 8), mlp()

    def forward(self, i):
        try:
            return self.net(self.table(i))
        except IndexError:
            return self.net(self.table(i * 0)) + 100


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp()
        self.register_buffer("h", torch.zeros(6, 8))

    def forward(self, x):
        self.h.copy_(self.net(x + self.h).detach())
        return self.h


def descend(*nets):
    with torch.no_grad():
        for net in nets:
            for p in net.parameters():
                if p.grad is not None:
                    p.sub_(p.grad * 0.05)
                    p.grad = None


def gan(i, x, g, d):
    fake = g(torch.randn(6, 8))
    first = F.softplus(-d(x)).mean() + F.softplus(d(fake.detach())).mean()
    first.backward()
    descend(d)
    for p in d.parameters():
        p.requires_grad_(False)
    second = F.softplus(-d(fake)).mean()
    second.backward()
    descend(g)
    for p in d.parameters():
        p.requires_grad_(True)
    return first, second


def gradient_penalty(i, x, net):
    x.requires_grad_()
    y = net(x).sum()
    g, = torch.autograd.grad(y, x, create_graph=True)
    loss = (g.norm(dim=1) - 1).pow(2).mean() + y * 0.01
    loss.backward()
    descend(net)
    return loss


def checkpointed(i, x, net):
    x.requires_grad_()
    loss = torch.utils.checkpoint.checkpoint(net, x, use_reentrant=i % 2 == 0).pow(2).mean()
    loss.backward()
    descend(net)
    return loss, x.grad


def functional(i, x, net):
    return torch.func.functional_call(net, {k: v * (1 + i) for k, v in net.named_parameters()}, (x,)), net(x)


def mapped(i, x, net):
    return torch.func.vmap(torch.func.grad(lambda t: net(t).sum()))(x), torch.func.vmap(net)(x)


def teacher(i, x, student, mean):
    with torch.no_grad():
        y = mean(x)
    loss = F.mse_loss(student(x), y)
    loss.backward()
    descend(student)
    with torch.no_grad():
        for p, q in zip(mean.parameters(), student.parameters()):
            p.data = p.data * 0.9 + q.data * 0.1
    return loss


def plain(i, x, net):
    loss = net(x).pow(2).mean()
    if loss.requires_grad:
        loss.backward()
        descend(net)
    return loss


def indices(i, x, net):
    return net(torch.full((2,), i % 7))


def in_hook(i, x, net):
    y = net(x)
    y.register_hook(lambda g: net(x).detach())
    y.sum().backward()
    descend(net)
    return y


def written(i, x, net):
    y = net(x)
    if i % 2:
        y.add_(1)  # overwrites what backward needs: an error
    y.sum().backward()
    return y


def normed():
    net = mlp()
    torch.nn.utils.parametrizations.spectral_norm(net[0])
    torch.nn.utils.parametrizations.weight_norm(net[2])
    return net


STEPS = {"gan": (gan, lambda: (mlp(), mlp(1))), "gradient_penalty": (gradient_penalty, lambda: (mlp(),)),
         "checkpoint": (checkpointed, lambda: (nn.Sequential(mlp(), nn.Dropout(0.5), mlp()),)), "functional_call": (functional, lambda: (mlp(),)),
         "vmap": (mapped, lambda: (mlp(),)), "teacher": (teacher, lambda: (mlp(), mlp())), "parametrized": (plain, lambda: (normed(),)),
         "memory": (plain, lambda: (Memory(),)), "except": (indices, lambda: (Lookup(),)), "in a hook": (in_hook, lambda: (mlp(),)),
         "written": (written, lambda: (nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid()),))}


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_many_forms_match_eager(name):
    fn, build = STEPS[name]

    def run(wrap):
        torch.manual_seed(0)
        nets = build()

        @wrap
        def step(i, x):
            D.graph_break()
            return fn(i, x, *nets)
        out = []
        for i in range(14):
            torch.manual_seed(i)
            try:
                r = step(i, torch.randn(6, 8))
            except RuntimeError as e:
                r = ()
                out.append(str(e).split(",")[0])
            out += [t.detach().numpy().copy() for t in (r if isinstance(r, tuple) else (r,))]
            out += [t.numpy().copy() for net in nets for t in net.state_dict().values()] + [torch.rand(1).numpy()]
        return out, step
    want, _ = run(lambda f: f)
    got, step = run(torch.compile)
    assert len(got) == len(want)
    for a, b in zip(want, got):
        if isinstance(a, str):
            assert a == b
        else:
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)
    assert sum(p.replayed_calls for p in step._torchdynamo_compiled.table.parts.values()) >= 6


class Made(nn.Module):
    """Creates modules in forward and tests their truth value."""

    def __init__(self):
        super().__init__()
        self.a, self.none, self.list = nn.Linear(4, 3), None, nn.ModuleList()
        self.smooth, self.fresh = 0.0, False

    def forward(self, x, y):
        h = self.a(x)
        if self.a:
            h = h * 2
        if self.list:
            h = self.list[0](h)
        if self.fresh:
            h = nn.Linear(3, 3)(h)
        return nn.CrossEntropyLoss(label_smoothing=self.smooth)(nn.Sequential(nn.Tanh(), nn.Softplus())(h), y)


def test_modules_made_in_forward():
    net = Made()
    m = torch.compile(net, fullgraph=True)

    def check():
        for _ in range(3):
            x, y = torch.randn(5, 4), torch.randint(0, 3, (5,))
            assert m(x, y).item() == net(x, y).item()
    check()
    net.smooth = 0.2
    check()
    net.list.append(nn.Linear(3, 3))
    check()
    assert m._compiled.replayed_calls == 6 and m._compiled.captures == 3
    net.fresh = True
    with pytest.raises(D.exc.Unsupported):
        m(torch.randn(5, 4), torch.randint(0, 3, (5,)))


class Keeps(nn.Module):
    """Returns its own containers."""

    def __init__(self):
        super().__init__()
        self.net, self.rows, self.table = mlp(), [], {"k": [torch.ones(1)]}

    def forward(self, x):
        return self.net(x), self.rows, self.table["k"], self.table


def test_parts_return_their_own_containers():
    a, b = Keeps(), Keeps()
    b.load_state_dict(a.state_dict())

    def step(net, x, i):
        D.graph_break()
        y, rows, inner, table = net(x)
        if i % 3 == 2:
            rows.append(i)
            inner[0] = inner[0] + 1
            table[i] = i
        return y.tolist(), rows is net.rows, inner is net.table["k"], table is net.table, len(rows), inner[0].item(), list(table)
    f = torch.compile(step)
    for i in range(18):
        x = torch.randn(6, 8)
        assert f(b, x, i) == step(a, x, i)
    part, = (p for p in f._torchdynamo_compiled.table.parts.values() if p.captures)
    assert part.replayed_calls >= 6


def test_container_arguments_are_returned_by_identity():
    def same(d, x):
        return d, x + 1

    def twice(x):
        rows = [x + 1]
        return rows, rows
    f, g = torch.compile(same), torch.compile(twice)
    for k in range(4):
        for given in (Named(x=torch.full((1,), k)), [torch.full((1,), k)], {"x": k}, (torch.full((1,), k),)):
            r, _ = f(given, torch.ones(1))
            assert r == given and (r is given or type(given) is tuple)
        a, b = g(torch.ones(1))
        assert a is b


def relu_pool(x, w):
    x = x * 1
    keep = x.detach()
    x = F.max_pool2d(F.relu(x, inplace=True), 3, 1, 1)
    return x + keep * w.sum()


def norm_leaky(x, w):
    y = F.leaky_relu(F.batch_norm(x * w.sum(), None, None, w, w, True, 0.1, 1e-5), 0.1)
    return y


def norm_leaky_written(x, w):
    y = norm_leaky(x, w)
    y.view(-1).add_(1)
    return y * 2


@pytest.mark.parametrize("fn", [relu_pool, norm_leaky, norm_leaky_written], ids=lambda f: f.__name__)
def test_fused_kernels_and_writes_around_them(fn):
    """Aliases created before an in-place relu, and results that are modified where eager code
    allows it."""
    f = torch.compile(fn)
    for i in range(3):
        torch.manual_seed(i)
        x, grads = torch.randn(4, 8, 32, 32), []
        for use in (fn, f):
            w = torch.ones(8, requires_grad=True)
            y = use(x.clone(), w)
            y += 1
            (y * torch.linspace(-1, 1, 32)).mean().backward()
            grads.append((y.detach().numpy(), w.grad.numpy()))
        for a, b in zip(*grads):
            np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4)
    assert f._torchdynamo_compiled.replayed_calls == 2
