"""MindSpore's ways in graph mode and under ms.jit, over the npu: compiled, and the numbers of the same code run eagerly."""
import os
import pathlib
import sys
import warnings

import mindspore as ms
import numpy as np
import pytest

import mindtorch.torch as mt
from mindtorch.core import lazy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import _graph_flows  # noqa: E402
from _graph_flows import FLOWS  # noqa: E402

ALL = pytest.mark.parametrize("flow", FLOWS)


def same(have, want, tolerance=1e-6):
    assert len(have) == len(want)
    for a, b in zip(have, want):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


#: flows in which MindSpore's own code takes part: what it does then is a graph of MindSpore's, or its op
BREAKS = {"native_optimizer": {"a MindSpore optimizer"}, "model": {"a MindSpore optimizer"}, "model_adam": {"a MindSpore optimizer"},
          "through_ops": {"MindSpore's Exp", "MindSpore's backward", "MindSpore's code uses a tensor"}}


@ALL
@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE], ids=["jit", "graph"])
def test_compiled_and_equal_to_eager(npu, eager_mode, flow, mode, tmp_path, monkeypatch):
    """The numbers of eager runs, without a warning or a file; from the fourth step on no kernel is launched by itself, and steps break off for named reasons."""
    counters = mt._dynamo.utils.counters["mindspore"]
    monkeypatch.chdir(tmp_path)
    want = FLOWS[flow](mt, npu, False)
    ms.set_context(mode=mode)
    counters.clear()
    lazy.breaks.clear()
    _graph_flows.SEEN.clear()
    monkeypatch.setattr(_graph_flows, "COUNTERS", counters)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        have = FLOWS[flow](mt, npu, True)
    same(have, want)
    assert os.listdir(tmp_path) == []
    if flow.startswith("model") and mode == ms.PYNATIVE_MODE:
        assert not counters             # (ms.Model compiles in graph mode alone)
        return
    seen = _graph_flows.SEEN if flow.startswith("model") else [*_graph_flows.SEEN, counters["eager"]]       # (Model.eval begins anew)
    assert counters["graphs"] and counters["graph_runs"] >= 4 * counters["graphs"] and seen[-1] == seen[4] > 0
    assert lazy.breaks.keys() == BREAKS.get(flow, set())


@pytest.mark.ascend
@pytest.mark.parametrize("names", [list(FLOWS)[:5], [*list(FLOWS)[5:], "sink", "data_sink"]], ids=" ".join)
def test_on_ascend(names, standin):
    r = standin.run(pathlib.Path(__file__).with_name("_ascend_graph.py"), *names, PYTHONWARNINGS="default")
    assert r.said("SAID") == " ".join(names)
