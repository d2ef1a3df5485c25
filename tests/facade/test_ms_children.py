"""MindSpore Cells as children of torch-style modules, and torch-style modules inside Cells."""
import copy
import io

import mindspore as ms
import mindspore.nn as mnn
import numpy as np
import pytest
import torch as real

import mindtorch.torch as mt
from mindtorch.torch import nn
from mindtorch.torch.nn.utils import prune


pytestmark = pytest.mark.usefixtures("eager_mode")


def draw(seed, *shape):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


class Mixed(nn.Module):
    """The same network as `Pure`, with every second layer from MindSpore."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)
        self.fc = mnn.Dense(3, 5)
        self.acts = nn.ModuleList([mnn.Tanh(), nn.ReLU()])
        self.deep = nn.ModuleDict({"x": nn.Sequential(mnn.SequentialCell(mnn.Dense(5, 4), nn.Linear(4, 2)), mnn.ReLU())})

    def forward(self, x):
        return self.deep["x"](self.acts[0](self.fc(self.a(x))))


class Pure(real.nn.Module):
    def __init__(self):
        super().__init__()
        T = real.nn
        self.a = T.Linear(4, 3)
        self.fc = T.Linear(3, 5)
        self.acts = T.ModuleList([T.Tanh(), T.ReLU()])
        self.deep = T.ModuleDict({"x": T.Sequential(T.Sequential(T.Linear(5, 4), T.Linear(4, 2)), T.ReLU())})

    forward = Mixed.forward


def pair():
    a, b = Mixed(), Pure()
    b.load_state_dict({k: real.tensor(draw(i, *v.shape)) for i, (k, v) in enumerate(b.state_dict().items())})
    a.load_state_dict({k: mt.tensor(v.numpy()) for k, v in b.state_dict().items()})
    return a, b


def same(a, b, rtol=1e-4, atol=1e-5):
    np.testing.assert_allclose(a.asnumpy() if isinstance(a, ms.Tensor) else np.asarray(a), b.detach().numpy(), rtol=rtol, atol=atol)


X = draw(99, 6, 4)


def test_parameter_names_match_torch():
    a, b = pair()
    for what in ("named_parameters", "named_modules", "named_children", "named_buffers", "state_dict"):
        u, v = getattr(a, what)(), getattr(b, what)()
        assert [k for k, _ in u] == [k for k, _ in v] if what != "state_dict" else list(u) == list(v), what
    assert len(list(a.parameters())) == 8 and all(isinstance(p, nn.Parameter) and p.requires_grad for p in a.parameters())
    assert a.fc.weight is dict(a.named_parameters())["fc.weight"]
    assert isinstance(a.fc, mnn.Dense) and isinstance(a.fc, nn.Module) and type(a.fc).__name__ == "Dense"
    assert a.get_submodule("deep.x.0.0") is a.deep["x"][0][0] and a.get_parameter("fc.bias") is a.fc.bias
    same(a(mt.tensor(X)), b(real.tensor(X)))
    assert isinstance(a(mt.tensor(X)), mt.Tensor)
    for k, p in a.state_dict().items():
        same(p, b.state_dict()[k])


def test_load_state_dict_errors_match_torch():
    a, b = pair()
    for change in (lambda s, T: s.pop("deep.x.0.0.bias"), lambda s, T: s.update({"fc.other": T.zeros(1)}),
                   lambda s, T: s.update({"fc.weight": T.zeros(2, 2)}), lambda s, T: s.update({"other.weight": T.zeros(1)})):
        said = []
        for m, T in ((a, mt), (b, real)):
            state = dict(m.state_dict())
            change(state, T)
            with pytest.raises(RuntimeError) as e:
                m.load_state_dict(state)
            said.append(str(e.value).replace("Mixed", "Pure"))
        assert said[0] == said[1]
    missing, unexpected = a.load_state_dict({"fc.weight": mt.ones(5, 3), "z": mt.ones(1)}, strict=False)
    assert unexpected == ["z"] and len(missing) == 7
    assert bool((a.fc.weight == 1).all()) and bool((a.fc(mt.ones(1, 3)) == 3 + a.fc.bias).all())


@pytest.mark.parametrize("assign", [False, True])
def test_saved_and_loaded(assign):
    a, _ = pair()
    expect = a(mt.tensor(X))
    file = io.BytesIO()
    mt.save(a.state_dict(), file)
    file.seek(0)
    c = Mixed()
    assert not mt.equal(c(mt.tensor(X)), expect)
    assert str(c.load_state_dict(mt.load(file), assign=assign)) == "<All keys matched successfully>"
    assert mt.equal(c(mt.tensor(X)), expect)


def test_copies_are_independent():
    a, _ = pair()
    c = copy.deepcopy(a)
    x, expect = mt.tensor(X), a(mt.tensor(X))
    assert isinstance(c.fc, mnn.Dense) and isinstance(c.fc, nn.Module) and c.fc is not a.fc
    assert not {id(p) for p in c.parameters()} & {id(p) for p in a.parameters()}
    assert mt.equal(c(x), expect)
    with mt.no_grad():
        for p in c.parameters():
            p.zero_()
    assert mt.equal(a(x), expect) and not c(x).any()
    same(a.deep["x"][0][0].weight, a.state_dict()["deep.x.0.0.weight"])


def test_modes():
    a, _ = pair()
    cells = [m for m in a.modules() if isinstance(m, (mnn.Dense, mnn.SequentialCell, mnn.Tanh, mnn.ReLU))]
    assert len(cells) == 5 and all(m.training for m in cells)
    a.eval()
    assert not any(m.training for m in cells)
    a.set_train()
    assert all(m.training for m in cells)
    # a Cell whose mode was set explicitly keeps it; any other takes its parent's
    told = mnn.Dropout(p=0.5).set_train(False)
    assert not nn.Sequential(told)[0].training
    m = nn.Sequential(nn.ReLU()).eval()
    m.append(mnn.Dropout(p=0.5))
    assert not m[1].training
    drop = nn.Sequential(mnn.Dropout(p=0.5))
    x = mt.ones(1000)
    assert 300 < int((drop(x) == 0).sum()) < 700 and mt.equal(drop.eval()(x), x)


def test_casts_and_flags():
    a, b = pair()
    a.double(), b.double()
    assert all(p.dtype is mt.float64 for p in a.parameters())
    same(a(mt.tensor(X).double()), b(real.tensor(X).double()))
    assert a(mt.tensor(X).double()).dtype is mt.float64
    a.to(mt.float32), b.float()
    same(a(mt.tensor(X)), b(real.tensor(X)))
    a.requires_grad_(False)
    assert not any(p.requires_grad for p in a.parameters()) and not a.trainable_params() and not a.fc.weight.requires_grad
    a.requires_grad_(True)
    assert [p.name for p in a.trainable_params()] == [k for k, _ in b.named_parameters()]
    for p in a.parameters():
        p.grad = mt.ones_like(p)
    a.zero_grad()
    assert all(p.grad is None for p in a.parameters())
    seen = []
    a.apply(lambda m: seen.append(type(m).__name__))
    assert len(seen) == len(list(b.modules())) and seen.count("Dense") == 2
    same(mt.nn.utils.parameters_to_vector(a.parameters()), real.nn.utils.parameters_to_vector(b.parameters()))


def test_half_and_autocast():
    m = nn.Sequential(nn.Linear(4, 4), mnn.Dense(4, 3))
    expect = m(mt.tensor(X))
    with mt.autocast("cpu", mt.bfloat16):
        out = m(mt.tensor(X))
    assert out.dtype is mt.float32 and float((out - expect).abs().max()) < 0.1
    out = copy.deepcopy(m).half()(mt.tensor(X).half())
    assert out.dtype is mt.float16 and float((out.float() - expect).abs().max()) < 0.1


def test_print():
    assert repr(nn.Sequential(nn.Linear(2, 3), mnn.Dense(3, 4), mnn.SequentialCell(mnn.ReLU()))) == """Sequential(
  (0): Linear(in_features=2, out_features=3, bias=True)
  (1): Dense(input_channels=3, output_channels=4, has_bias=True)
  (2): SequentialCell(
    (0): ReLU()
  )
)"""


def test_hooks():
    a, _ = pair()
    seen = []
    handles = [a.fc.register_forward_pre_hook(lambda m, args: seen.append(("pre", args[0].shape))),
               a.fc.register_forward_hook(lambda m, args, out: out * 0),
               mt.nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__))]
    try:
        a.fc(mt.tensor(draw(1, 2, 3)))
        out = a(mt.tensor(X))
    finally:
        for h in handles:
            h.remove()
    assert seen[0] == ("pre", (2, 3)) and seen.count("Dense") == 3 and seen[-1] == "Mixed"
    same(out, Pure_zeroed(a))
    # hooks registered earlier through MindSpore keep running
    d = mnn.Dense(3, 2)
    handle = d.register_forward_hook(lambda cell, args, out: out * 0 + 7)
    m = nn.Sequential(d)
    assert bool((m(mt.ones(1, 3)) == 7).all())
    handle.remove()
    assert not bool((m(mt.ones(1, 3)) == 7).any())


def Pure_zeroed(a):
    b = Pure()
    b.load_state_dict({k: real.tensor(v.numpy()) for k, v in a.state_dict().items()})
    b.fc.register_forward_hook(lambda m, args, out: out * 0)
    return b(real.tensor(X))


@pytest.mark.parametrize("how", ["attribute", "later", "add_module", "set_submodule", "setattr in a child", "append", "insert", "dict",
                                 "insert_child_to_cell", "_cells", "_modules"])
def test_every_way_to_add_a_child_cell(how):
    d = mnn.Dense(3, 2)
    m = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU()))
    path = {"attribute": "d", "later": "d", "add_module": "d", "set_submodule": "1.0", "setattr in a child": "1.d", "append": "2", "insert": "0",
            "dict": "d", "insert_child_to_cell": "d", "_cells": "d", "_modules": "d"}[how]
    if how in ("attribute", "later"):
        if how == "later":
            m(mt.ones(1, 3))
        m.d = d
    elif how == "add_module":
        m.add_module("d", d)
    elif how == "set_submodule":
        m.set_submodule("1.0", d)
    elif how == "setattr in a child":
        m[1].d = d
    elif how == "append":
        m.append(d)
    elif how == "insert":
        m.insert(0, d)
    elif how == "dict":
        m = nn.ModuleDict({"d": d})
    elif how == "insert_child_to_cell":
        m.insert_child_to_cell("d", d)
    elif how == "_cells":
        m._cells["d"] = d
    else:
        m._modules["d"] = d
    assert path in dict(m.named_modules()) and m.get_submodule(path) is d
    assert {f"{path}.weight", f"{path}.bias"} <= set(m.state_dict()) & set(dict(m.named_parameters())) & set(m.parameters_dict())
    assert len(list(d.parameters())) == 2 and d in set(m.modules()) and "Dense(" in repr(m)
    assert m.eval() is m and not d.training
    m.to(mt.float64)
    assert d.weight.dtype is mt.float64


def test_changes_of_mindspore_containers_take_effect():
    """Later changes to MindSpore's own containers are seen as well."""
    m = nn.Sequential(mnn.SequentialCell(mnn.Dense(2, 2)), mnn.CellList([mnn.Dense(2, 2)]), mnn.CellDict({"k": mnn.Dense(2, 2)}))
    m[0].append(mnn.Dense(2, 3))
    m[1].append(nn.Linear(2, 2))
    m[1].insert(0, mnn.ReLU())
    m[2]["z"] = mnn.Dense(1, 1)
    del m[0][0]
    assert [k for k, _ in m.named_parameters()] == ["0.0.weight", "0.0.bias", "1.1.weight", "1.1.bias", "1.2.weight", "1.2.bias",
                                                    "2.k.weight", "2.k.bias", "2.z.weight", "2.z.bias"]
    assert m[0](mt.ones(1, 2)).shape == (1, 3) and len(m[1]) == 3
    m[0] = mnn.ReLU()
    assert "0.0.weight" not in m.state_dict()


def test_optimizers_and_training_cells_are_not_children():
    m = nn.Linear(2, 2)
    m.opt = mnn.Adam(m.trainable_params(), 0.1)
    m.step = mnn.TrainOneStepCell(m, m.opt)
    assert list(m.state_dict()) == ["weight", "bias"] and not list(m.children()) and m.train().opt is m.opt
    for wrong in (m.opt, 3):
        with pytest.raises(TypeError, match="is not a Module subclass"):
            m.add_module("x", wrong)

    class Early(nn.Module):
        def __init__(self):
            self.fc = mnn.Dense(2, 2)

    with pytest.raises(AttributeError, match="cannot assign module before Module.__init__"):
        Early()


def test_parameters_in_tuples_and_buffers_of_cells():
    class Own(mnn.Cell):
        def __init__(self):
            super().__init__()
            self.w = ms.Parameter(ms.Tensor(draw(1, 2)), name="w")
            self.many = ms.ParameterTuple([ms.Parameter(ms.Tensor(draw(i, 2)), name=f"many.{i}") for i in range(2)])
            self.register_buffer("kept", ms.Tensor(draw(5, 2)))
            self.register_buffer("dropped", ms.Tensor(draw(6, 2)), persistent=False)

        def construct(self, x):
            return x * self.w + self.many[0] + self.many[1] + self.kept + self.dropped

    m = nn.Sequential(Own())
    assert list(m.state_dict()) == ["0.w", "0.many.0", "0.many.1", "0.kept"]
    assert [k for k, _ in m.named_buffers()] == ["0.kept", "0.dropped"]
    m.load_state_dict({k: mt.full_like(v, i + 1.) for i, (k, v) in enumerate(m.state_dict().items())})
    same(m(mt.ones(2)), real.tensor(1 + 2 + 3 + 4 + draw(6, 2)))
    m[0].w = ms.Tensor(np.array([5., 5.], np.float32))  # MindSpore semantics: set_data
    assert m[0].w is m.get_parameter("0.w") and m[0].w.tolist() == [5, 5]
    m[0].kept = mt.zeros(2)
    assert m.state_dict()["0.kept"].tolist() == [0, 0]


# ------------------------------------------------------------------ training
def losses_of(b, opt, steps=4):
    out = []
    for i in range(steps):
        opt.zero_grad()
        loss = (b(real.tensor(draw(i, 6, 4))) ** 2).mean()
        loss.backward()
        opt.step()
        out.append(loss.item())
    return out


@pytest.mark.parametrize("name", ["SGD", "AdamW", "RMSprop", "MindSpore's SGD"])
def test_training_by_value_and_grad(name):
    a, b = pair()
    if name == "MindSpore's SGD":
        name = "SGD"
        opt = mnn.SGD(a.trainable_params(), 0.05)
        weights = opt.parameters
    else:
        opt = getattr(mt.optim, name)(a.parameters(), lr=0.05)
        weights = opt.parameters
    assert len(weights) == 8
    fn = ms.value_and_grad(lambda x: (a(x) ** 2).mean(), None, weights)
    losses = []
    for i in range(4):
        loss, grads = fn(mt.tensor(draw(i, 6, 4)))
        opt(grads)
        losses.append(float(loss))
    np.testing.assert_allclose(losses, losses_of(b, getattr(real.optim, name)(b.parameters(), lr=0.05)), rtol=1e-3)
    for u, v in zip(a.parameters(), b.parameters()):
        same(u, v, 1e-3, 1e-4)


def test_batchnorm_cell_keeps_its_statistics_from_the_optimizer():
    """A MindSpore BatchNorm's moving statistics are frozen parameters: part of the state, not
    trained, not decayed."""
    m = nn.Sequential(nn.Linear(4, 3), mnn.BatchNorm1d(3))
    r = real.nn.Sequential(real.nn.Linear(4, 3), real.nn.BatchNorm1d(3))
    r[0].load_state_dict({k: real.tensor(v.numpy()) for k, v in m[0].state_dict().items()})
    assert {k for k, p in m.named_parameters() if not p.requires_grad} == {"1.moving_mean", "1.moving_variance"}
    opt, ropt = mt.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.5), real.optim.SGD(r.parameters(), lr=0.1, weight_decay=0.5)
    fn = ms.value_and_grad(lambda x: (m(x) ** 3).mean(), None, opt.parameters)
    for i in range(3):
        opt(fn(mt.tensor(draw(i, 6, 4)))[1])
        ropt.zero_grad()
        (r(real.tensor(draw(i, 6, 4))) ** 3).mean().backward()
        ropt.step()
    same(m[1].moving_mean, r[1].running_mean, 1e-3, 1e-4)
    same(m[1].gamma, r[1].weight, 1e-3, 1e-4)
    # running_var differs by n/(n-1): MindSpore uses the biased variance
    m.eval()
    before = m[1].moving_mean.detach().clone()
    m(mt.tensor(X))
    assert mt.equal(m[1].moving_mean, before)


def test_ms_model_trains_a_mixed_network(tmp_path):
    a, b = pair()
    batches = ms.dataset.NumpySlicesDataset({"x": np.concatenate([draw(i, 6, 4) for i in range(4)]), "y": np.zeros((24, 2), np.float32)},
                                            shuffle=False).batch(6)
    ms.Model(a, nn.MSELoss(), mnn.Momentum(a.trainable_params(), 0.05, 0.9)).train(1, batches, dataset_sink_mode=False)
    losses_of(b, real.optim.SGD(b.parameters(), lr=0.05, momentum=0.9))
    for u, v in zip(a.parameters(), b.parameters()):
        same(u, v, 1e-3, 1e-4)
    path = str(tmp_path / "a.ckpt")
    ms.save_checkpoint(a, path)
    c = Mixed()
    assert ms.load_param_into_net(c, ms.load_checkpoint(path), strict_load=True) == ([], [])
    for u, v in zip(c.parameters(), a.parameters()):
        assert mt.equal(u, v)


# ------------------------------------------------------------------ tools over networks
@pytest.mark.parametrize("how", ["compile", "fx", "functional_call", "checkpoint", "weight_norm", "prune", "AveragedModel", "jit.trace"])
def test_tools(how):
    m = nn.Sequential(nn.Linear(4, 3), mnn.Dense(3, 2), nn.Tanh())
    x, y = mt.tensor(X), mt.tensor(draw(5, 6, 4))
    if how == "prune":
        prune.l1_unstructured(m[1], "weight", 0.5)
        assert int((m[1].weight == 0).sum()) == 3 and "1.weight_orig" in m.state_dict()
    expect = [m(x).detach(), m(y).detach()]
    if how == "prune":
        with mt.no_grad():
            expect = [(v @ m[0].weight.T + m[0].bias) @ m[1].weight.T + m[1].bias for v in (x, y)]
            expect = [mt.tanh(v) for v in expect]
    f = m
    if how == "compile":
        f = mt.compile(m)
        f(x)
    elif how == "fx":
        f = mt.fx.symbolic_trace(m)
    elif how == "functional_call":
        weights = {k: v.detach().clone() for k, v in m.named_parameters()}
        with mt.no_grad():
            for p in m.parameters():
                p.zero_()
        f = lambda v: mt.func.functional_call(m, weights, (v,))  # noqa: E731
    elif how == "checkpoint":
        f = lambda v: mt.utils.checkpoint.checkpoint(m, v, use_reentrant=False)  # noqa: E731
    elif how == "weight_norm":
        mt.nn.utils.parametrizations.weight_norm(m[1])
        assert "1.parametrizations.weight.original0" in m.state_dict()
    elif how == "AveragedModel":
        f = mt.optim.swa_utils.AveragedModel(m)
    elif how == "jit.trace":
        f = mt.jit.trace(m, x)
    for v, e in zip((x, y), expect):
        assert mt.allclose(f(v), e, atol=1e-6)
    if how == "compile":  # the compiled call does not treat the Cell's weights as constants
        with mt.no_grad():
            m[1].weight.zero_()
            m[1].bias.zero_()
        assert not f(x).any()


def test_graph_mode():
    a, b = pair()
    ms.set_context(mode=ms.GRAPH_MODE)
    same(a(mt.tensor(X)), b(real.tensor(X)))
    with mt.no_grad():
        a.fc.bias.add_(1)
    with real.no_grad():
        b.fc.bias.add_(1)
    same(a(mt.tensor(X)), b(real.tensor(X)))


# ------------------------------------------------------ modules inside Cells: names, modes, buffers
class Outer(mnn.Cell):
    def __init__(self, net, auto_prefix=True, **more):
        super().__init__(auto_prefix=auto_prefix)
        self.net = net
        for k, v in more.items():
            setattr(self, k, v)

    def construct(self, x):
        return self.net(x)


def normed(T, seed=0):
    m = T.nn.Sequential(T.nn.Linear(4, 3, bias=False), T.nn.BatchNorm1d(3), T.nn.ReLU(), T.nn.BatchNorm1d(3, affine=False))
    m[0].weight.data.copy_(T.tensor(draw(seed, 3, 4)))
    return m


BUFFERS = [f"{i}.{k}" for i in (1, 3) for k in ("running_mean", "running_var", "num_batches_tracked")]
WRAP = {"module": (lambda m: m, ""), "cell": (Outer, "net."), "no prefix": (lambda m: Outer(m, False), ""),
        "cell in cell": (lambda m: Outer(Outer(m)), "net.net."), "SequentialCell": (lambda m: mnn.SequentialCell(m, mnn.ReLU()), "0."),
        "CellList": (lambda m: mnn.CellList([mnn.Dense(2, 2), m]), "1."), "WithLossCell": (lambda m: mnn.WithLossCell(m, nn.MSELoss()), ""),
        "module in cell in module": (lambda m: nn.Sequential(mnn.SequentialCell(m)), "0.0."),
        "TrainOneStepCell": (lambda m: mnn.TrainOneStepCell(mnn.WithLossCell(m, nn.MSELoss()), mnn.SGD(m.trainable_params(), 0.1)), "")}


@pytest.mark.parametrize("how", WRAP)
def test_buffers_are_in_the_checkpoints_of_every_cell(how, tmp_path):
    wrap, prefix = WRAP[how]
    a, b = normed(mt), normed(real)
    for i in range(3):
        a(mt.tensor(draw(i, 6, 4))), b(real.tensor(draw(i, 6, 4)))
    net = wrap(a)
    names = {prefix + k for k in a.state_dict()}
    assert names <= set(net.parameters_dict()) and len({p.name for p in net.get_parameters()}) == len(list(net.get_parameters()))
    assert not {prefix + k for k in BUFFERS} & {p.name for p in net.trainable_params()}
    assert {prefix + k for k in BUFFERS} <= {p.name for p in net.untrainable_params()}
    assert len(list(a.parameters())) == 3 and len(a.trainable_params()) == 3
    path = str(tmp_path / "a.ckpt")
    ms.save_checkpoint(net, path)
    saved = ms.load_checkpoint(path)
    assert names <= set(saved)
    for k, v in b.state_dict().items():
        same(saved[prefix + k], v)
    for strict in (False, True):
        c = normed(mt, 5)
        fresh = wrap(c)
        assert ms.load_param_into_net(fresh, saved, strict_load=strict)[0] == []
        for k, v in a.state_dict().items():
            assert mt.equal(c.state_dict()[k], v) and c.state_dict()[k].dtype is v.dtype, k
        b.eval(), c.eval()
        same(c(mt.tensor(X)), b(real.tensor(X)))
        b.train()
        c.train()(mt.tensor(X))
        assert c[1].num_batches_tracked.item() == 4 and c[3].num_batches_tracked.dtype is mt.int64
    # a pickle of the values, and MindSpore's own state dict
    values = {k: v.asnumpy().copy() for k, v in net.parameters_dict().items()}
    c = normed(mt, 6)
    ms.load_param_into_net(wrap(c), {k: ms.Parameter(ms.Tensor(v), name=k) for k, v in values.items()})
    assert mt.equal(c[1].running_var, a[1].running_var)


def test_checkpoint_without_buffers_says_so():
    a = normed(mt)
    old = {p.name: p for p in Outer(a).trainable_params()}
    for net, prefix in ((Outer(normed(mt, 3)), "net."), (Outer(Outer(normed(mt, 3))), "net.net.")):
        with pytest.warns(RuntimeWarning, match=rf"no value for 6 buffers, which stay as they are: {prefix}1.running_mean, "):
            missing, unused = ms.load_param_into_net(net, {prefix + k.removeprefix("net."): p for k, p in old.items()}, strict_load=True)
        assert missing == [prefix + k for k in BUFFERS] and unused == []


class Counting(nn.Module):
    """Buffers of every kind, one of which is replaced at every call."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(mt.ones(2))
        self.register_buffer("count", mt.zeros(2))
        self.register_buffer("hidden", mt.ones(2), persistent=False)
        self.register_buffer("none", None)
        self.register_buffer("flag", mt.tensor([True, False]))
        self.register_buffer("steps", mt.tensor(0))

    def forward(self, x):
        self.count = self.count + 1
        self.steps += 1
        return x * self.w + self.count * self.hidden


def test_buffers_of_every_kind():
    m = Counting()
    net = Outer(m)
    assert list(net.parameters_dict()) == ["net.w", "net.count", "net.flag", "net.steps"]
    held = net.parameters_dict()
    for i in range(1, 4):
        net(mt.ones(2))
        again = net.parameters_dict()
        assert again["net.count"] is held["net.count"] and again["net.count"].asnumpy().tolist() == [i, i] == m.count.tolist()
        assert int(again["net.steps"].asnumpy()) == i
    # the next call reads what MindSpore writes
    ms.ops.assign(net.parameters_dict()["net.count"], ms.Tensor(np.array([10., 20.], np.float32)))
    net.parameters_dict()["net.flag"].set_data(ms.Tensor(np.array([False, True])))
    assert m.count.tolist() == [10, 20] and m.flag.tolist() == [False, True]
    assert net(mt.zeros(2)).asnumpy().tolist() == [11, 21]
    m.none = mt.ones(3)
    m.register_buffer("later", mt.zeros(1))
    del m.flag
    m.hidden = None
    assert set(net.parameters_dict()) == {"net.w", "net.count", "net.none", "net.steps", "net.later"}
    m.double()
    assert net.parameters_dict()["net.count"].asnumpy().dtype == np.float64
    assert [k for k, _ in m.named_parameters()] == ["w"] and len(net.trainable_params()) == 1


def test_a_copy_of_a_cell_keeps_names():
    net = Outer(normed(mt), other=nn.BatchNorm1d(2, affine=False), more=nn.BatchNorm1d(2, affine=False))
    names = list(net.parameters_dict())
    c = copy.deepcopy(net)
    assert list(c.parameters_dict()) == names and len(names) == 3 + 6 + 3 + 3
    c.net[1].running_mean.fill_(5)
    c.net[0].weight.data.fill_(5)
    assert not bool((net.net[1].running_mean == 5).any()) and not bool((net.net[0].weight == 5).any())
    assert bool((c.parameters_dict()["net.1.running_mean"] == 5).all())


def test_names_do_not_depend_on_query_order():
    def make():
        return nn.Sequential(nn.Linear(4, 3), mnn.Dense(3, 3), nn.Sequential(mnn.SequentialCell(mnn.Dense(3, 2))))

    expect = ["0.weight", "0.bias", "1.weight", "1.bias", "2.0.0.weight", "2.0.0.bias"]
    for asked in ("", "0", "1", "2", "2.0", "2.0.0"):
        m = make()
        m.get_submodule(asked).trainable_params()
        assert list(mnn.WithLossCell(m, nn.MSELoss()).parameters_dict()) == expect
        assert list(Outer(m).parameters_dict()) == ["net." + k for k in expect]
        m.get_submodule(asked).trainable_params()
        assert list(m.parameters_dict()) == ["net." + k for k in expect]


def test_modes_reach_a_module_in_a_cell():
    """The train() override of a module (frozen statistics) is called, as under a torch-style
    parent."""
    class Frozen(nn.BatchNorm1d):
        def train(self, mode=True):
            return super().train(False)

    m = nn.Sequential(nn.Dropout(0.5), Frozen(3), mnn.Dropout(p=0.5))
    net = Outer(m)
    net.set_train()
    assert m.training and m[0].training and not m[1].training and m[2].training
    net.set_train(False)
    assert not m.training and not m[0].training and not m[2].training


def test_cell_methods_apply_to_child_modules():
    net = Outer(nn.Sequential(nn.Linear(4, 3, bias=False), mnn.Dense(3, 2)))
    net.init_parameters_data()
    state = {k: v.asnumpy() * 0 for k, v in net.state_dict().items()}
    assert list(state) == ["net.0.weight", "net.1.weight", "net.1.bias"]
    net.load_state_dict({k: ms.Tensor(v) for k, v in state.items()})
    assert not net(mt.ones(1, 4)).asnumpy().any()
    net.to(ms.float16)
    assert net.net[0].weight.dtype is mt.float16 and net.net[1].weight.dtype is mt.float16
    net.net.insert_param_to_cell("extra", ms.Parameter(ms.Tensor(draw(1, 2))))
    assert "extra" in net.net.state_dict() and "net.extra" in net.parameters_dict()


# ------------------------------------------------------------------ torch-style backward
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_training_by_backward(name):
    a, b = pair()
    oa, ob = getattr(mt.optim, name)(a.parameters(), lr=0.02), getattr(real.optim, name)(b.parameters(), lr=0.02)
    for i in range(4):
        x, y = mt.tensor(draw(i, 6, 4), requires_grad=True), real.tensor(draw(i, 6, 4), requires_grad=True)
        la, lb = (a(x) ** 2).mean(), (b(y) ** 2).mean()
        oa.zero_grad(), ob.zero_grad()
        la.backward(), lb.backward()
        same(x.grad, y.grad, 1e-2, 3e-3)
        for u, v in zip(a.parameters(), b.parameters()):
            same(u.grad, v.grad, 1e-2, 5e-3)
        mt.nn.utils.clip_grad_norm_(a.parameters(), 1.), real.nn.utils.clip_grad_norm_(b.parameters(), 1.)
        oa.step(), ob.step()
    for u, v in zip(a.parameters(), b.parameters()):
        same(u, v, 1e-3, 1e-3)


def test_backward_and_value_and_grad_agree():
    a, _ = pair()
    x = mt.tensor(X)
    _, grads = ms.value_and_grad(lambda x: (a(x) ** 2).mean(), None, list(a.parameters()))(x)
    (a(x) ** 2).mean().backward()
    for g, p in zip(grads, a.parameters()):
        np.testing.assert_allclose(p.grad.numpy(), g.asnumpy(), rtol=1e-4, atol=1e-5)


def test_frozen_children_and_hooks_in_backward():
    a, b = pair()
    for m in (a, b):
        m.fc.requires_grad_(False)
    seen = []
    a.fc.register_full_backward_hook(lambda m, gi, go: seen.append((m, gi[0].detach().numpy().copy(), go[0].detach().numpy().copy())))
    expect = []
    b.fc.register_full_backward_hook(lambda m, gi, go: expect.append((gi[0].numpy(), go[0].numpy())))
    (a(mt.tensor(X)) ** 2).mean().backward(), (b(real.tensor(X)) ** 2).mean().backward()
    assert a.fc.weight.grad is None and seen[0][0] is a.fc
    for u, v in zip(seen[0][1:], expect[0]):
        np.testing.assert_allclose(u, v, rtol=1e-2, atol=3e-3)
    same(a.a.weight.grad, b.a.weight.grad, 1e-3, 1e-3)


def test_module_in_a_cell_in_a_module_by_backward():
    class Residual(mnn.Cell):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.scale = inner, ms.Parameter(ms.Tensor(np.array([2.], np.float32)), name="scale")

        def construct(self, x):
            return x + ms.ops.tanh(self.inner(x)) * self.scale

    lin = nn.Linear(4, 4)
    m = nn.Sequential(nn.Linear(4, 4), Residual(lin), nn.Linear(4, 1))
    r = [real.nn.Linear(4, 4), real.nn.Linear(4, 4), real.nn.Linear(4, 1)]
    for u, v in zip((m[0], lin, m[2]), r):
        v.load_state_dict({k: real.tensor(w.numpy()) for k, w in u.state_dict().items()})
    s = real.tensor([2.], requires_grad=True)
    y = r[0](real.tensor(X))
    out = r[2](y + real.tanh(r[1](y)) * s).sum()
    out.backward()
    got = m(mt.tensor(X)).sum()
    got.backward()
    same(got, out)
    for u, v in zip((m[0], lin, m[2]), r):
        same(u.weight.grad, v.weight.grad, 1e-3, 1e-4)
        same(u.bias.grad, v.bias.grad, 1e-3, 1e-4)
    same(m[1].scale.grad, s.grad, 1e-3, 1e-4)


def test_functional_call_and_checkpoint_have_gradients():
    a, b = pair()
    weights = {k: v.detach().clone().requires_grad_() for k, v in a.named_parameters()}
    theirs = {k: v.detach().clone().requires_grad_() for k, v in b.named_parameters()}
    (mt.func.functional_call(a, weights, (mt.tensor(X),)) ** 2).mean().backward()
    (real.func.functional_call(b, theirs, (real.tensor(X),)) ** 2).mean().backward()
    for k in weights:
        same(weights[k].grad, theirs[k].grad, 1e-2, 5e-3)
    assert all(p.grad is None for p in a.parameters())
    (mt.utils.checkpoint.checkpoint(a, mt.tensor(X), use_reentrant=False) ** 2).mean().backward()
    for k, p in a.named_parameters():
        same(p.grad, theirs[k].grad, 1e-2, 5e-3)


# ------------------------------------------------------------------ interpreter shutdown
_AT_MODULE_LEVEL = {
    "cells alone": "d = mnn.Dense(2, 2)\nd(ms.Tensor(np.ones((1, 2), np.float32)))\nkeep = [mnn.SequentialCell(mnn.ReLU(), mnn.Conv2d(1, 1, 3))]\n",
    "everything": """
import torch
net = torch.nn.Sequential(torch.nn.Linear(2, 2), mnn.Dense(2, 2), torch.nn.BatchNorm1d(2))
outer = mnn.SequentialCell(net, mnn.ReLU())
outer(ms.Tensor(np.ones((3, 2), np.float32)))
opt = mnn.SGD(net.trainable_params(), 0.1)
data = ms.dataset.NumpySlicesDataset({"x": np.ones((8, 2), np.float32), "y": np.zeros((8, 2), np.float32)}).batch(4)
it = data.create_tuple_iterator()
next(it)
model = ms.Model(net, torch.nn.MSELoss(), opt)
model.train(1, data, dataset_sink_mode=False)
fn = ms.value_and_grad(lambda x: net(x).sum(), None, opt.parameters)
fn(torch.ones(3, 2))
class Scale(mnn.Cell):
    def __init__(self, w):
        super().__init__()
        self.w = w
    def construct(self, x):
        return x * self.w
ms.set_context(mode=ms.GRAPH_MODE)
scale = Scale(torch.nn.Parameter(torch.ones(2)))
scale(ms.Tensor(np.ones(2, np.float32)))
@ms.jit
def double(x):
    return x * 2
double(ms.Tensor(np.ones(2, np.float32)))
""",
    "an error": "d = mnn.Dense(2, 2)\nraise SystemExit(3)\n"}


@pytest.mark.parametrize("what, how", [("cells alone", "run"), ("everything", "line"), ("an error", "run")])
def test_nothing_is_printed_at_the_end(what, how, process):
    """Networks at module level outlive the Python modules that their destructors use."""
    text = "import mindspore as ms, mindspore.nn as mnn, numpy as np\n" + _AT_MODULE_LEVEL[what]
    process.file("program.py", text if how == "run" else "from mindtorch.tools import mstorch_enable\n" + text)
    done = process.run(*(["-m", "mindtorch", "run"] if how == "run" else []), "program.py")
    assert done.returncode == (3 if what == "an error" else 0) and "ignored" not in done.stderr and "Error" not in done.stderr, done.stderr
