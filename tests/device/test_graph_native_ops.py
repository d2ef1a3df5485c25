"""MindSpore's own ops, loss scalers and optimizers in a compiled step: they are part of the graph,
and the results match the same code run eagerly."""
import pathlib
import sys
import warnings

import mindspore as ms
import numpy as np
import pytest

import mindtorch.torch as mt
from mindtorch.core.compile import replay

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import _graph_flows  # noqa: E402
import _graph_native  # noqa: E402
from _graph_native import OPTIMIZERS, trained  # noqa: E402


@pytest.fixture
def counted(monkeypatch):
    """Resets the session counters and returns them; the flows note them before each step."""
    counters = mt._dynamo.utils.counters["mindspore"]
    monkeypatch.setattr(_graph_flows, "COUNTERS", counters)

    def begin():
        counters.clear()
        replay.breaks.clear()
        _graph_flows.SEEN.clear()
        return counters
    return begin


def same(have, want, tolerance=1e-6):
    assert len(have) == len(want)
    for a, b in zip(have, want):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(npu, eager_mode, name, counted):
    """A step including its optimizer is one graph."""
    want = trained(mt, npu, False, OPTIMIZERS[name])
    ms.set_context(mode=ms.GRAPH_MODE)
    counters = counted()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        have = trained(mt, npu, True, OPTIMIZERS[name])
    same(have, want)
    assert not replay.breaks and counters["graphs"] and counters["eager"] == _graph_flows.SEEN[4], (dict(replay.breaks), _graph_flows.SEEN, dict(counters))


def _set_rate(i, m, opt):
    opt.learning_rate.set_data(ms.Tensor(0.1 / (i + 1), ms.float32))


def _assign_rate(i, m, opt):
    ms.ops.assign(opt.learning_rate, 0.1 / (i + 1))


def _assign_moment(i, m, opt):
    if i == 5:
        ms.ops.assign(opt.moments[0], ms.ops.zeros_like(opt.moments[0]))


def _other_weights(i, m, opt):
    if i in (4, 6):
        m[0].weight.data = m[0].weight.data * 0.5
    if i == 5:
        with mt.no_grad():
            m[3].bias.mul_(2)


def _other_decay(i, m, opt):
    if i == 4:
        opt.weight_decay = ms.Tensor(0.5, ms.float32)
    if i == 6:
        opt.exec_weight_decay = False


@pytest.mark.parametrize("between", [_set_rate, _assign_rate, _assign_moment, _other_weights, _other_decay], ids=lambda f: f.__name__)
def test_changes_between_steps(npu, eager_mode, between, counted):
    """Values that are set between steps take effect in the next step."""
    make = OPTIMIZERS["nesterov"]
    want = trained(mt, npu, False, make, between)
    counters = counted()
    same(trained(mt, npu, True, make, between), want)
    assert counters["graph_runs"] > 1


def _read_step(i, m, opt):
    return int(opt.global_step.asnumpy()[0]), float(opt.moments[3].asnumpy().sum()), float(opt.moments[0].sum())


def _write_after(i, m, opt):
    ms.ops.assign(opt.moments[0], opt.moments[0] * 0.5)
    opt.learning_rate.set_data(ms.Tensor(0.1 / (i + 1), ms.float32))
    return float(opt.learning_rate)


def _step_again(i, m, opt):
    opt(tuple([mt.ones_like(p) * 0.01 for p in opt.parameters]))
    return 0.0


@pytest.mark.parametrize("inside", [_read_step, _write_after, _step_again], ids=lambda f: f.__name__)
def test_reads_and_writes_inside_a_step(npu, eager_mode, inside, counted):
    make = OPTIMIZERS["momentum"]
    want = trained(mt, npu, False, make, inside=inside)
    counters = counted()
    same(trained(mt, npu, True, make, inside=inside), want)
    assert counters["graph_runs"]


def test_user_defined_optimizer_runs_eagerly(npu, eager_mode, counted):
    """Its Python code is unknown to the graph, which is a graph break with a named reason."""
    class Mine(ms.nn.Momentum):
        def construct(self, gradients):
            return super().construct(self.map_(ms.ops.neg, gradients))

    make = lambda ps: Mine(ps, 0.01, 0.9)           # noqa: E731
    want = trained(mt, npu, False, make)
    counted()
    same(trained(mt, npu, True, make), want)
    assert set(replay.breaks) == {"a MindSpore optimizer"}


@pytest.mark.parametrize("dynamic", [False, True])
def test_loss_scalers(npu, eager_mode, dynamic, counted):
    """`if all_finite(...)` reads a value. With a fixed scale nothing else breaks the graph."""
    want = _graph_native.scaled(mt, npu, False, dynamic)
    counters = counted()
    same(_graph_native.scaled(mt, npu, True, dynamic), want)
    seen = [*_graph_flows.SEEN, counters["eager"]]
    assert counters["graph_runs"] >= 8 and (dynamic or seen[-1] == seen[4] and set(replay.breaks) == {"values are read", "MindSpore's ToDtype"}), \
        (dict(counters), dict(replay.breaks), seen)


OTHER = ms.Tensor(np.linspace(-1, 1, 6).astype(np.float32).reshape(2, 3))
TURNED = ms.Tensor(OTHER.asnumpy().T.copy())
IN_GRAPH = {
    "exp": lambda g: ms.ops.exp(g), "times": lambda g: g * OTHER, "number": lambda g: 2 * g - 1, "over": lambda g: g / 3, "minus": lambda g: -(1 - g),
    "power": lambda g: g ** 2, "greater": lambda g: g > 0.5, "not": lambda g: ~(g < 0.5), "sum": lambda g: g.sum(), "mean": lambda g: g.mean(0),
    "max": lambda g: g.max(), "abs": lambda g: g.abs(), "half": lambda g: g.astype(ms.float16), "cast": lambda g: ms.ops.cast(g, ms.int32),
    "add": lambda g: g.add(OTHER), "mint_add": lambda g: ms.mint.add(g, g), "mint_sum": lambda g: ms.mint.sum(g, 0), "cat": lambda g: ms.ops.cat((g, OTHER)),
    "stack": lambda g: ms.ops.stack([g, g]), "norm": lambda g: ms.ops.norm(g), "select": lambda g: ms.ops.select(g > 0.5, g, g * 2),
    "where": lambda g: ms.ops.where(g > 0.5, g, g * 2), "softmax": lambda g: ms.ops.softmax(g), "cumsum": lambda g: ms.ops.cumsum(g, 0),
    "product": lambda g: ms.ops.matmul(g, TURNED), "addn": lambda g: ms.ops.addn((g, g, OTHER)), "clip_value": lambda g: ms.ops.clip_by_value(g, 0.0, 0.5),
    "clip_norm": lambda g: ms.ops.clip_by_global_norm((g, g), 0.5), "finite": lambda g: ms.amp.all_finite((g, g)), "nan": lambda g: g.isnan()}
BY_THEMSELVES = {
    "nonzero": (lambda g: ms.ops.nonzero(g > 0.5), {"MindSpore's NonZero"}), "reshape": (lambda g: g.reshape((-1,)), {"MindSpore's code uses a tensor"}),
    "item": (lambda g: g if float(g.sum()) > 1e6 else g * 2, {"values are read"}), "clip_by_norm": (lambda g: ms.ops.clip_by_norm(g, 0.5), {"values are read"}),
    "part": (lambda g: g[0], {"MindSpore's code uses a tensor"})}


def _of_gradients(npu, compiled, f):
    m = mt.nn.Linear(3, 2)
    m.weight.data.fill_(0.5)
    m.bias.data.fill_(0.1)
    m.to(npu)
    fn = ms.value_and_grad(lambda x: (m(x) ** 2).mean(), None, list(m.parameters()))

    def step(x):
        _, (g, _) = fn(x)
        return f(g)

    step, found = ms.jit(step) if compiled else step, []
    for i in range(6):
        _graph_flows.SEEN.append(_graph_flows.COUNTERS.get("eager", 0))
        r = step(mt.from_numpy(np.random.RandomState(i).rand(4, 3).astype(np.float32)).to(npu))
        r = r if isinstance(r, (tuple, list)) else (r,)
        assert not any(hasattr(type(x), "_is_mindtorch_tensor") for x in r)
        found += [x.asnumpy() for x in r]
    return found


@pytest.mark.parametrize("name", [*IN_GRAPH, *BY_THEMSELVES])
def test_ops(npu, eager_mode, name, counted):
    f, broken = (IN_GRAPH[name], set()) if name in IN_GRAPH else BY_THEMSELVES[name]
    want = _of_gradients(npu, False, f)
    counters = counted()
    have = _of_gradients(npu, True, f)
    for a, b in zip(have, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert set(replay.breaks) == broken and counters["eager"] == _graph_flows.SEEN[3], (dict(replay.breaks), _graph_flows.SEEN)


def test_mindspore_dropout_masks_differ_between_steps(npu, eager_mode):
    step = ms.jit(lambda x: ms.ops.dropout(x * 1, 0.5))
    x = mt.ones(64, 64, device=npu)
    masks = [step(x).asnumpy() != 0 for _ in range(5)]
    assert len({m.tobytes() for m in masks}) == 5


def test_mindspore_tensors_changed_between_steps(npu, eager_mode):
    """A tensor that is modified, or moved to other memory, is read in its current state."""
    other = ms.Tensor(np.zeros((2, 3), np.float32))

    def change(i):
        if i == 3:
            other.assign_value(ms.Tensor(np.full((2, 3), 3, np.float32)))
        elif i == 5:
            ms.ops.assign(other, ms.Tensor(np.full((2, 3), 5, np.float32)))
        elif i == 7:
            # MindSpore's CPU target loses an `add_` to such a tensor, regardless of the caller
            other[:, 1:] = 5.0
            ms.ops.assign(other, other + 1)

    expected = [0, 0, 0, 3, 3, 5, 5, 6, 6]
    m = mt.nn.Linear(3, 2).to(npu)
    fn = ms.value_and_grad(lambda x: m(x).sum(), None, list(m.parameters()))

    @ms.jit
    def step(x):
        _, (g, _) = fn(x)
        return ms.ops.maximum(g * 0, other) + other

    for i, e in enumerate(expected):
        change(i)
        np.testing.assert_array_equal(step(mt.ones(4, 3, device=npu)).asnumpy(), np.full((2, 3), 2.0 * e))


@pytest.mark.ascend
@pytest.mark.parametrize("flows", ["assigned_rate mixed_precision trainer graph_mode", "compiled_module exported inference groups"])
def test_article_flows_on_ascend(standin, flows):
    """In graph mode the results match the eager steps. In the steady state all of a step runs in
    graphs, and only values that it reads are copied."""
    r = standin.run(pathlib.Path(__file__).with_name("_ascend_graph_native.py"), *flows.split())
    assert r.said("SAID").split() == flows.split()


@pytest.mark.ascend
def test_optimizers_on_ascend(standin, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import mindspore as ms, numpy as np, torch
import _graph_flows, _graph_native
from mindtorch.core.compile import replay
_graph_flows.COUNTERS = replay.counters
for name in sys.argv[1:]:
    make = _graph_native.OPTIMIZERS[name]
    want = _graph_native.trained(torch, "npu", False, make)
    replay.counters.clear()
    replay.breaks.clear()
    _graph_flows.SEEN.clear()
    have = _graph_native.trained(torch, "npu", True, make)
    for a, b in zip(have, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=name)
    assert not replay.breaks and replay.counters["graphs"] == 1 and replay.counters["eager"] == _graph_flows.SEEN[2], (name, replay.breaks, _graph_flows.SEEN)
print("SAID", *sys.argv[1:])
""")
    assert standin.run(path, *OPTIMIZERS).said("SAID").split() == list(OPTIMIZERS)
