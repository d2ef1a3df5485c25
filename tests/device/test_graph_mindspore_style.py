"""MindSpore's ways in graph mode and under ms.jit, over the npu: compiled, and the numbers of the same code run eagerly."""
import pathlib
import sys
import warnings

import mindspore as ms
import numpy as np
import pytest

import mindtorch.torch as mt

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from _graph_flows import FLOWS  # noqa: E402

ALL = pytest.mark.parametrize("flow", FLOWS)


def same(have, want, tolerance=1e-6):
    assert len(have) == len(want)
    for a, b in zip(have, want):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@ALL
@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE], ids=["jit", "graph"])
def test_equal_to_eager(npu, eager_mode, flow, mode, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    want = FLOWS[flow](mt, npu, False)
    ms.set_context(mode=mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        have = FLOWS[flow](mt, npu, True)
    same(have, want)


@pytest.mark.ascend
@pytest.mark.parametrize("names", [list(FLOWS)[:5], [*list(FLOWS)[5:], "sink", "data_sink"]], ids=" ".join)
def test_on_ascend(names, standin):
    r = standin.run(pathlib.Path(__file__).with_name("_ascend_graph.py"), *names, PYTHONWARNINGS="default")
    assert r.said("SAID") == " ".join(names)
