"""torch.compile of code that cannot be captured as a whole: its modules are replayed one by one,
and the results match eager code."""
import copy
import gc
import logging
import pickle
import threading
import weakref

import numpy as np
import pytest

import mindtorch.torch as torch
from mindtorch.torch._inductor import _plans as c_plans

D = torch._dynamo
nn, F = torch.nn, torch.nn.functional


@pytest.fixture(autouse=True)
def clean(forgotten_variants):
    yield
    from mindtorch.torch._dynamo import _parts
    from mindtorch.torch.nn.modules import module
    assert module._route is None and not _parts._running and D.eval_frame.state.within is None


def counts(c):
    """Returns (replayed calls of all parts, parts with variants, parts that gave up) of a compiled
    callable."""
    c = getattr(c, "_torchdynamo_compiled", None) or c._compiled
    parts = list(c.table.parts.values()) if c.table is not None else []
    return (sum(p.replayed_calls for p in parts), sorted(p.title for p in parts if p.entries),
            sorted(p.title for p in parts if p.given_up))


class Block(nn.Module):
    def __init__(self, n=8, act=None):
        super().__init__()
        self.a, self.norm, self.drop, self.b = nn.Linear(n, n), nn.BatchNorm1d(n), nn.Dropout(0.2), nn.Linear(n, n)
        self.act = act or nn.ReLU()

    def forward(self, x):
        return x + self.b(self.drop(self.act(self.norm(self.a(x)))))


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.out = Block(), Block(), nn.Linear(8, 3)

    def between(self, x):
        return x

    def forward(self, x):
        return self.out(self.two(self.between(self.one(x))))


class Item(Base):
    def between(self, x):
        return x * (1 + 0.1 * np.tanh(x.sum().item()))


class Prints(Base):
    def between(self, x):
        print("between", x.shape)
        return x


class Branches(Base):
    def between(self, x):
        return x * 2 if x.mean() > 0 else self.two(x)


class Loops(Base):
    def between(self, x):
        for _ in range(int(x[0, 0].abs() * 3) % 4):
            x = self.one(x)
        return x


class Counts(Base):
    calls = 0

    def between(self, x):
        self.calls += 1
        return x / self.calls


class Shared(Base):
    def __init__(self):
        super().__init__()
        self.two = self.one

    def between(self, x):
        return x + float(x.max())


class Tied(Item):
    def __init__(self):
        super().__init__()
        self.two.a.weight = self.one.a.weight
        self.two.b = self.one.b


class Deep(Base):
    def __init__(self):
        super().__init__()
        self.one, self.two = Item(), nn.Sequential(nn.Linear(8, 8), Prints(), nn.Linear(3, 8), nn.Tanh())
        self.one.out, self.two[1].one = nn.Linear(8, 8), Branches()
        self.two[1].one.out = nn.Linear(8, 8)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 3)

    def forward(self, x):
        h = torch.zeros_like(x)
        for _ in range(4):
            h = self.cell(torch.cat([x, h], 1))
            if h.sum() > 1e9:
                break
        return self.out(h)


class Attributes(Base):
    """Parent that passes state to its children through attributes, not arguments."""

    def __init__(self):
        super().__init__()
        self.two.forward = self.scaled
        self.kept, self.step = None, 0

    def scaled(self, x):
        return self.two.b(x * self.kept) + self.two.scale

    def between(self, x):
        self.kept = x.detach().mean(0)
        self.two.scale = self.step = (self.step + 1) % 3
        return x


class InPlace(Item):
    """Views, in-place writes and detached values that cross the borders of parts."""

    def __init__(self):
        super().__init__()
        self.one.act, self.two.act = nn.ReLU(inplace=True), nn.ReLU(inplace=True)

    def between(self, x):
        x = x.clone()
        left = x[:, :4]
        left.mul_(1.5)
        x[0].add_(float(left.sum() > 0))
        return x.view(-1, 8)


MODELS = [Item, Prints, Branches, Loops, Counts, Shared, Tied, Deep, Recurrent, Attributes, InPlace]


def train(build, wrap, steps=14, change=None, step_wrap=None, amp=False):
    """Returns the losses and the final state of a training run. `change(i, net)` runs between the
    steps."""
    torch.manual_seed(7)
    net = build()
    model = wrap(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5)
    out = []

    def step(x, y):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            loss = F.cross_entropy(model(x).float(), y)
        loss.backward()
        opt.step()
        return loss
    used = step_wrap(step) if step_wrap else step
    for i in range(steps):
        b = (6, 6, 6, 5)[i % 4]
        if change is not None:
            net = change(i, net) or net
        x, y = torch.randn(b, 8), torch.randint(0, 3, (b,))
        out.append(used(x, y).item())
        if i % 5 == 4:
            net.eval()
            with torch.no_grad():
                out.append(model(x).sum().item())
            net.train()
    out.append(torch.rand(1).item())  # the generator state matches
    grads = [None if p.grad is None else p.grad.numpy().copy() for p in net.parameters()]
    return out, {k: v.numpy().copy() for k, v in net.state_dict().items()}, grads, used if step_wrap else model


def same(a, b):
    np.testing.assert_allclose(b[0], a[0], rtol=1e-4, atol=1e-5)
    assert list(a[1]) == list(b[1])
    for k in a[1]:
        np.testing.assert_allclose(b[1][k], a[1][k], rtol=1e-3, atol=1e-5, err_msg=k)
    for g, h in zip(a[2], b[2]):
        assert (g is None) == (h is None)
        if g is not None:
            np.testing.assert_allclose(h, g, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("build", MODELS, ids=lambda b: b.__name__)
def test_models_with_graph_breaks_train_as_eager(build, capsys):
    want = train(build, lambda net: net)
    printed = capsys.readouterr().out
    got = train(build, torch.compile)
    assert capsys.readouterr().out == printed
    same(want, got)
    replayed, captured, _ = counts(got[3])
    assert got[3]._compiled.given_up and got[3]._compiled.replayed_calls == 0
    assert replayed >= 8 and captured


@pytest.mark.parametrize("build", [Base, Item, Deep, Shared, Recurrent], ids=lambda b: b.__name__)
@pytest.mark.parametrize("amp", [False, True])
def test_a_compiled_training_step(build, amp):
    want = train(build, lambda net: net, amp=amp)
    got = train(build, lambda net: net, step_wrap=torch.compile, amp=amp)
    same(want, got)
    c = got[3]._torchdynamo_compiled
    replayed, captured, _ = counts(got[3])
    assert c.given_up and replayed >= 8
    if build is Base:
        assert [t.split()[0] for t in captured] == ["Base"]


def test_a_step_with_a_compiled_model_inside():
    want = train(Deep, lambda net: net)
    same(want, train(Deep, torch.compile, step_wrap=torch.compile))


def swap(i, net):
    if i == 4:
        net.one.b = nn.Linear(8, 8)
        net.one.b.weight.data.fill_(0.1)
    if i == 6:
        net.two = Block(8, nn.Tanh())
    if i == 8:
        net.one, net.two = net.two, net.one
    if i == 10:
        net.two.act = nn.Sequential(nn.GELU(), nn.Tanh())


def freeze(i, net):
    for p in net.two.parameters():
        p.requires_grad_(i % 6 < 3)
    net.one.train(i % 4 != 1)
    net.one.drop.p = 0.1 * (i // 5)


_SAVED = {}


def load(i, net):
    if i == 3:
        _SAVED.update(copy.deepcopy(net.state_dict()))
    if i in (6, 9):
        net.load_state_dict(_SAVED, assign=i == 9)


def hook(i, net):
    if i == 3:
        _SAVED["h"] = [net.one.register_forward_hook(lambda m, a, r: r * 0.9), net.two.a.register_forward_pre_hook(lambda m, a: (a[0] + 1,)),
                       net.two.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))]
    if i == 8:
        [h.remove() for h in _SAVED["h"]]
    if i == 10:
        seen = []
        net.two.register_forward_hook(lambda m, a, r: seen.append(float(r.sum())))


@pytest.mark.parametrize("change", [swap, freeze, load, hook], ids=lambda c: c.__name__)
@pytest.mark.parametrize("how", ["model", "step"])
@pytest.mark.parametrize("build", [Item, Tied], ids=lambda b: b.__name__)
def test_changes_between_steps(build, how, change):
    options = {"wrap": torch.compile} if how == "model" else {"wrap": lambda net: net, "step_wrap": torch.compile}
    want = train(build, lambda net: net, change=change)
    _SAVED.clear()
    got = train(build, change=change, **options)
    _SAVED.clear()
    same(want, got)
    assert counts(got[3])[0] >= 3


def test_parts_belong_to_the_compiled_callable():
    net = Item()
    m = torch.compile(net)
    x = torch.randn(4, 8)
    for _ in range(4):
        m(x)
    before = counts(m)
    assert before[0] == 4 and before[1] == ["Block (one, part of Item)", "Block (two, part of Item)"]
    net(x), net.one(x)
    assert counts(m) == before
    other = torch.compile(lambda x: (net(x), print(end=""))[0])
    for _ in range(4):
        other(x)
    # one call later: the model itself breaks before its blocks become parts
    assert counts(m) == before and counts(other)[0] == 2
    assert not any("compile" in k or "part" in k for k in vars(net.one))


def test_copies_pickles_and_collection():
    net = Item()
    m = torch.compile(net)
    x = torch.randn(4, 8)
    for _ in range(3):
        m(x)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m)), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        other.eval(), net.eval()
        assert other(x).tolist() == net(x).tolist() == m(x).tolist()
        net.train()
    c = copy.deepcopy(m)
    c.one.a.weight.data.zero_()
    c.eval(), net.eval()
    for _ in range(4):
        assert c(x).tolist() == c._orig_mod(x).tolist() != m(x).tolist()
    refs = [weakref.ref(net), weakref.ref(m), weakref.ref(net.one)]
    del net, m, other, c
    gc.collect()
    assert [r() for r in refs] == [None] * 3


def test_arguments_are_not_kept():
    net = Item()
    m = torch.compile(net)
    refs = []
    net.two.register_forward_pre_hook(lambda mod, args: note(args[0]))

    @torch.compiler.disable
    def note(x):
        refs.append(weakref.ref(x))
    for _ in range(4):
        m(torch.randn(3, 8)).sum().backward()
    gc.collect()
    assert len(refs) == 4 and [r() for r in refs] == [None] * 4
    f = torch.compile(lambda d, *, k: d["x"][0] * k)
    x, k = torch.ones(2, requires_grad=True) * 2, torch.ones(2)
    refs = [weakref.ref(x), weakref.ref(k)]
    f({"x": [x]}, k=k), f({"x": [x]}, k=k)
    assert f._torchdynamo_compiled.replayed_calls == 1
    del x, k
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_modules_made_in_the_call_are_not_kept():
    made = []

    def f(x):
        block = Block()
        made.append(weakref.ref(block))
        return block(x)
    g = torch.compile(f)
    for _ in range(5):
        g(torch.randn(3, 8))
    gc.collect()
    assert [r() for r in made] == [None] * 5 and not g._torchdynamo_compiled.table.parts


def test_unused_parts_are_freed(monkeypatch):
    from mindtorch.torch._dynamo import _parts
    monkeypatch.setattr(_parts, "PATIENCE", 4)
    net = Item()
    m = torch.compile(net)
    x = torch.randn(3, 8)
    for _ in range(4):
        m(x)
    old = weakref.ref(net.one)
    net.one = Block()
    for _ in range(14):
        m(x)
    gc.collect()
    assert old() is None and counts(m)[0] > 10 and m._compiled.table.variants == 2


def test_exceptions_inside_and_between_parts():
    class Fails(Base):
        def between(self, x):
            if x.shape[0] == 2:
                raise KeyError("between")
            return x + x.sum().item()

    class Strict(Block):
        def forward(self, x):
            if x.shape[0] == 3:
                raise ValueError("in the part")
            return super().forward(x)
    net = Fails()
    net.two = Strict()
    m = torch.compile(net)
    for i in range(12):
        n = (4, 4, 2, 3)[i % 4]
        if n == 4:
            m(torch.randn(n, 8))
        else:
            with pytest.raises(KeyError if n == 2 else ValueError):
                m(torch.randn(n, 8))
        assert D.eval_frame.state.within is None and not D.eval_frame.state.capturing
    net.one.a = nn.Linear(7, 8)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            m(torch.randn(4, 8))
    assert counts(m)[0] >= 8
    caught = []

    @torch.compile
    def forgiving(x):
        try:
            return net(x)
        except ValueError as e:
            caught.append(e)
            return x
    net.one.a = nn.Linear(8, 8)
    for n in (4, 3, 4, 3, 4, 4):
        forgiving(torch.randn(n, 8))
    assert len(caught) == 2


def test_threads():
    nets = [Item().eval(), Deep().eval()]
    ms = [torch.compile(n) for n in nets]
    xs = [torch.randn(4 + k % 2, 8) for k in range(4)]
    with torch.no_grad():
        want = [[n(x).numpy() for x in xs] for n in nets]
    wrong, direct = [], []

    def run(k):
        try:
            for i in range(12):
                j = (i + k) % 2
                with torch.no_grad():
                    if not np.allclose(ms[j](xs[k]).numpy(), want[j][k], atol=1e-4):
                        wrong.append(k)
                    direct.append(nets[j].one(xs[k]))
        except BaseException as e:
            wrong.append(e)
            raise
    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong and len(direct) == 48 and counts(ms[0])[0] > 20


def test_modules_that_wait_across_threads_do_not_deadlock(monkeypatch):
    """The wait for a concurrent capture is bounded. Otherwise two threads that wait for each other
    inside their models would deadlock."""
    monkeypatch.setattr(D.config, "capture_wait", 0.2)
    meet = threading.Barrier(2, timeout=30)

    class Waits(Base):
        def between(self, x):
            torch.compiler.disable(meet.wait)()
            return x

    def run(m):
        try:
            for _ in range(5):
                done.append(m(torch.randn(3, 8)))
        except threading.BrokenBarrierError:
            pass
    done, ms = [], [torch.compile(nn.Sequential(Waits())) for _ in range(2)]
    threads = [threading.Thread(target=run, args=(m,)) for m in ms]
    [t.start() for t in threads], [t.join() for t in threads]
    assert len(done) == 10


def test_fullgraph_raises_in_every_call():
    m = torch.compile(Item(), fullgraph=True)
    for _ in range(5):
        with pytest.raises(D.exc.Unsupported, match="item"):
            m(torch.randn(3, 8))
    assert counts(m)[0] == 0 and not counts(m)[1]


def test_graph_break_that_appears_later():
    class Later(Base):
        def __init__(self):
            super().__init__()
            self.loud = False

        def between(self, x):
            return x * float(x.sum() > 0) if self.loud else x
    net = Later()
    m = torch.compile(net)
    x = torch.randn(4, 8)
    for _ in range(3):
        m(x)
    assert m._compiled.replayed_calls == 2 and m._compiled.table is None
    net.loud = True
    for _ in range(4):
        torch.manual_seed(1)
        a = m(x)
        torch.manual_seed(1)
        assert a.tolist() == net(x).tolist()
    assert counts(m)[0] == 4 and m._compiled.replayed_calls == 2
    net.loud = False  # the earlier variant is still valid
    m(x)
    assert m._compiled.replayed_calls == 3


def test_disable_stances_config_and_reset():
    class Half(Base):
        def __init__(self):
            super().__init__()
            torch.compiler.disable(self.one)

        def between(self, x):
            return x + x.sum().item()
    m = torch.compile(Half())
    x = torch.randn(4, 8)
    for _ in range(4):
        m(x)
    assert counts(m)[1] == ["Block (two, part of Half)"] and counts(m)[0] == 2
    with torch.compiler.set_stance("force_eager"):
        m(x)
    with D.config.patch(disable=True):
        m(x)
    torch.compiler.disable(lambda: m(x))()
    assert counts(m)[0] == 2
    with torch.compiler.set_stance("eager_on_recompile"):
        m(x), m(torch.randn(5, 8))
    assert counts(m)[0] == 3 and m._compiled.table.variants == 1
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(D.exc.RecompileError, match="two, part of Half"):
        m(torch.randn(5, 8))
    with D.config.patch(recompile_limit=2):
        for n in range(3, 9):
            m(torch.randn(n, 8))
    assert m._compiled.table.variants == 2
    with D.config.patch(parts_limit=2):
        m(torch.randn(13, 8))
    assert m._compiled.table.variants == 2
    D.reset()
    assert m._compiled.table is None and m._compiled.given_up is None
    for _ in range(3):
        m(x)
    assert counts(m)[0] == 1


def test_modes_inside_a_call_with_graph_breaks():
    net = Base().eval()

    @torch.compile
    def f(x, i):
        print(end="")
        with torch.set_grad_enabled(i % 2 == 0), torch.autocast("cpu", dtype=torch.bfloat16, enabled=i % 3 == 0):
            y = net(x)
        with torch.inference_mode():
            return y, net(x)
    for i in range(14):
        x = torch.randn(4, 8, requires_grad=i % 4 < 2)
        y, z = f(x, i)
        with torch.set_grad_enabled(i % 2 == 0), torch.autocast("cpu", dtype=torch.bfloat16, enabled=i % 3 == 0):
            w = net(x)
        assert y.dtype == w.dtype and y.requires_grad == w.requires_grad and y.tolist() == w.tolist()
        with torch.inference_mode():
            w = net(x)
        assert z.is_inference() == w.is_inference() and not z.requires_grad and z.tolist() == w.tolist()
    assert counts(f)[0] >= 12


def test_explain_counters_and_log(caplog):
    e = D.explain(Item())(torch.randn(4, 8))
    assert (e.graph_count, e.graph_break_count, e.op_count) == (2, 1, 14) and "item()" in e.break_reasons[0]
    assert e.ops_per_graph == [["linear", "add_", "batch_norm", "relu", "dropout", "linear", "__add__"]] * 2
    e = D.explain(Deep())(torch.randn(4, 8))
    # A call reports only its first break, so the break of Prints after Branches is not listed.
    assert e.graph_count == 5 and e.graph_break_count == 2 and len(e.break_reasons) == 2, e.break_reasons
    assert "Item (one, part of Deep)" in str(e) and "Branches (two.1.one, part of Deep)" in str(e)
    D.reset()
    with caplog.at_level(logging.DEBUG, "torch._dynamo"):
        m = torch.compile(Item())
        for _ in range(4):
            m(torch.randn(4, 8))
        m(torch.randn(5, 8))
    stats = D.utils.counters
    assert sum(stats["graph_break"].values()) == 1 and stats["stats"]["unique_graphs"] == 4 == stats["frames"]["ok"]
    assert stats["recompiles"] == {"Block (one, part of Item)": 1, "Block (two, part of Item)": 1}
    assert "Linear (out, part of Item) stays eager" in caplog.text and "Recompiling Block (one, part of Item)" in caplog.text


def test_captures_of_changing_parts_are_limited():
    net = Item()

    @torch.compile
    def f(x):
        net.one.note = net.one.__dict__.get("note", 0) + 1
        return net.one(x)
    for _ in range(60):
        f(torch.randn(4, 8))
    part = next(iter(f._torchdynamo_compiled.table.parts.values()))
    assert part.captures == 32 and part.replayed_calls == 0 and "recompile_limit" in part.reasons


def test_tensor_attributes_pass_between_parts():
    class Reads(Block):
        def forward(self, x):
            return super().forward(x) * getattr(x, "scale", 1.0)

    class Marks(Base):
        def between(self, x):
            if x.sum() > 0:
                x.scale = 3.0
            return x
    net = Marks()
    net.two = Reads()
    m = torch.compile(net)
    torch.manual_seed(0)
    for i in range(16):
        x = torch.randn(4, 8)
        torch.manual_seed(i)
        a = m(x)
        torch.manual_seed(i)
        assert a.tolist() == net(x).tolist()
    f = torch.compile(lambda x: x * x.scale if hasattr(x, "scale") else x)
    for k in (None, None, 2.0, 3.0, None):
        x = torch.ones(1)
        if k:
            x.scale = k
        assert f(x).item() == (k or 1)


def test_fusion_sees_writes_through_aliases():
    w, b = torch.ones(8), torch.zeros(8)

    def f(x, v):
        y = F.batch_norm(v, None, None, w, b, True, 0.1, 1e-5)
        x.add_(torch.ones(8, 8, 16, 16).cumsum(2))
        return F.relu(y)
    g = torch.compile(f)
    for i in range(4):
        x = torch.randn(8, 8, 16, 16)
        z = x.clone()
        other = torch.randn(8, 8, 16, 16)
        want, got = f(x, x.detach() if i % 2 else other), g(z, z.detach() if i % 2 else other)
        np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-4)
    assert g._torchdynamo_compiled.replayed_calls == 3


def test_reset_inside_a_call_with_graph_breaks():
    class Resets(Base):
        def between(self, x):
            if x.sum() != 0 and self.when:
                D.reset()
            return x
    net = Resets()
    m = torch.compile(net)
    for i in range(12):
        net.when = i % 4 == 3
        x = torch.randn(4, 8)
        torch.manual_seed(i)
        a = m(x)
        torch.manual_seed(i)
        assert a.tolist() == net(x).tolist()
        assert (m._compiled.table is None) == net.when


class Decorated(Base):
    """Module whose class-level decorator compiles one function for all instances."""

    @torch.compile
    def forward(self, x):
        return self.out(self.two(self.one(x) * (1 if x.sum().item() > 0 else 2)))


class Asks(Base):
    """Module that calls itself in a method; the test compiles that method."""

    def training_step(self, x):
        return self(x) * x.sum().item()


def test_compiled_methods():
    nets = [Decorated(), Decorated()]
    for i in range(10):
        x = torch.randn(4, 8)
        for net in nets:
            torch.manual_seed(i)
            a = net(x)
            torch.manual_seed(i)
            h = net.one(x) * (1 if x.sum().item() > 0 else 2)
            assert a.tolist() == net.out(net.two(h)).tolist()
    c = Decorated.__dict__["forward"]
    assert counts(c)[0] >= 30 and len(counts(c)[1]) == 4
    net = Asks()
    step = torch.compile(net.training_step)
    for i in range(6):
        x = torch.randn(4, 8)
        torch.manual_seed(i)
        a = step(x)
        torch.manual_seed(i)
        assert a.tolist() == net.training_step(x).tolist()
    assert counts(step)[0] == 4 and counts(step)[1] == ["Asks (part of Asks.training_step)"]
    net = Item()
    net.compile()
    for i in range(6):
        net(torch.randn(4, 8))
    assert counts(net._compiled_call_impl)[0] == 8
    assert pickle.loads(pickle.dumps(net))._compiled_call_impl is None


@pytest.mark.skipif(not c_plans.available(), reason="no C compiler")
def test_only_large_single_layers_become_parts():
    conv = nn.Conv2d(8, 16, 3)

    @torch.compile
    def f(x):
        D.graph_break()
        return conv(x)
    small, large = torch.randn(1, 8, 4, 4), torch.randn(8, 8, 32, 32)
    for _ in range(4):
        np.testing.assert_allclose(f(small).detach().numpy(), conv(small).detach().numpy(), atol=1e-5)
    part, = f._torchdynamo_compiled.table.parts.values()
    assert part.skipped and not part.entries
    for _ in range(4):
        np.testing.assert_allclose(f(large).detach().numpy(), conv(large).detach().numpy(), atol=1e-4)
    assert not part.skipped and part.replayed_calls == 3
