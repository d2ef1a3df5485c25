"""MindSpore-style code in graph mode and under `ms.jit` on the npu: it is compiled, and the results
match the same code run eagerly."""
import os
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
from _graph_flows import FLOWS  # noqa: E402

ALL = pytest.mark.parametrize("flow", FLOWS)


def same(have, want, tolerance=1e-6):
    assert len(have) == len(want)
    for a, b in zip(have, want):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


#: Flows that include MindSpore's own code -> expected graph breaks. That code runs as a MindSpore
#: graph or a MindSpore op.
BREAKS = {"through_ops": {"MindSpore's Exp", "MindSpore's backward"}}


@ALL
@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE], ids=["jit", "graph"])
def test_flows_are_compiled_and_match_eager(npu, eager_mode, flow, mode, tmp_path, monkeypatch):
    """Results match eager runs, without a warning or a file. From the fourth step on no kernel is
    launched eagerly, and graph breaks have known reasons."""
    counters = mt._dynamo.utils.counters["mindspore"]
    monkeypatch.chdir(tmp_path)
    want = FLOWS[flow](mt, npu, False)
    ms.set_context(mode=mode)
    counters.clear()
    replay.breaks.clear()
    _graph_flows.SEEN.clear()
    monkeypatch.setattr(_graph_flows, "COUNTERS", counters)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        have = FLOWS[flow](mt, npu, True)
    same(have, want)
    assert os.listdir(tmp_path) == []
    if flow.startswith("model") and mode == ms.PYNATIVE_MODE:
        assert not counters  # `ms.Model` compiles only in graph mode
        return
    # `Model.eval` starts counting again
    seen = _graph_flows.SEEN if flow.startswith("model") else [*_graph_flows.SEEN, counters["eager"]]
    assert counters["graphs"] and counters["graph_runs"] >= 4 * counters["graphs"] and seen[-1] == seen[4] > 0
    assert replay.breaks.keys() == BREAKS.get(flow, set())


def test_learning_rate_parameter_stays_on_the_host(npu, eager_mode):
    """Reading it would break the graph in every step."""
    ms.set_context(mode=ms.GRAPH_MODE)
    mt.set_default_device(npu)
    try:
        opt = mt.optim.SGD(mt.nn.Linear(2, 2).parameters(), lr=0.5)
    finally:
        mt.set_default_device("cpu")
    assert isinstance(opt.param_groups[0]["lr"], ms.Parameter) and opt.param_groups[0]["lr"].device == mt.device("cpu")


def test_mindspore_reads_and_writes_inside_a_jitted_step(npu, eager_mode):
    """MindSpore sees the result of deferred kernels, and later code sees MindSpore's writes."""
    p, m = mt.nn.Parameter(mt.ones(3, device=npu)), mt.nn.Linear(3, 3, device=npu)

    @ms.jit
    def step(x):
        with mt.no_grad():
            p.mul_(2)
            before = p.asnumpy().copy()
            p.add_(x)
            ms.ops.assign(p, ms.ops.add(p, 1))
            p.mul_(3)
            p.data = p.data + 1
        return before, ms.ops.exp(p * 0.01), m(p).sum(), p.clone()

    x, v = mt.ones(3, device=npu), np.ones(3, np.float32)
    for _ in range(5):
        before, e, y, after = step(x)
        w = (v * 2 + 2) * 3 + 1
        np.testing.assert_allclose(before, v * 2, rtol=1e-6)
        np.testing.assert_allclose(after.detach().cpu().numpy(), w, rtol=1e-6)
        np.testing.assert_allclose(e.asnumpy(), np.exp(w * 0.01), rtol=1e-5)
        np.testing.assert_allclose(float(y), float(m(after).sum()), rtol=1e-5)
        with mt.no_grad():
            p.copy_(mt.ones(3))
            v = np.ones(3, np.float32)


def test_second_order_gradients_inside_jit(npu, eager_mode):
    x = mt.arange(1.0, 4.0).to(npu)
    w = mt.nn.Parameter(mt.tensor([2.0, 3.0, 4.0]).to(npu))
    inner = ms.grad(lambda y: (y ** 3 * w).sum())
    outer = ms.jit(lambda x: ms.grad(lambda x: inner(x).sum())(x))
    for _ in range(4):
        np.testing.assert_allclose(outer(x).asnumpy(), [12, 36, 72], rtol=1e-6)


@pytest.mark.ascend
@pytest.mark.parametrize("names", [list(FLOWS)[:5], [*list(FLOWS)[5:], "sink", "data_sink"]], ids=" ".join)
def test_on_ascend(names, standin):
    r = standin.run(pathlib.Path(__file__).with_name("_ascend_graph.py"), *names, PYTHONWARNINGS="default")
    assert r.said("SAID") == " ".join(names)


@pytest.mark.usefixtures("forgotten_variants")
def test_compiled_steps_stay_out_of_mindspore_autograd(npu, eager_mode):
    """Kernels that a compiled step runs one by one are not recorded by MindSpore's autograd, which
    records from the moment it received a tensor that requires grad. It cannot record all of them.
    """
    found = []
    for recorded in (False, True):
        mt.manual_seed(1)
        net = mt.nn.Sequential(mt.nn.Linear(8, 8), mt.nn.LayerNorm(8), mt.nn.Linear(8, 4)).to(npu)
        x, state = mt.randn(6, 8).to(npu), {}

        def step():
            state["opt"].zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            state["opt"].step()
            return loss.detach()
        compiled = mt.compile(step, backend="mindspore")
        losses = []
        for i in range(8):
            if not i % 5:
                # new optimizer state: the run diverges from the trace
                state["opt"] = mt.optim.Adam(net.parameters(), lr=1e-2)
            if recorded:
                ms.ops.sin(mt.ones(3, requires_grad=True))
            losses.append(float(compiled()))
        found.append(losses)
    same(found[1], found[0])
