"""MindSpore-style flows: each example of examples/flows runs in its own process. Every loss,
gradient and updated weight of every step is compared with PyTorch running the same flow
(tests/_flows.py)."""
import os
import subprocess
import sys

import numpy as np
import pytest

import _flows
from _flows import FLOWS, ROOT


def run(name, folder, *args):
    """Returns the values that an example recorded, its output, and its warnings."""
    record = folder / "record.npz"
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    p = subprocess.run([sys.executable, str(FLOWS / f"{name}.py"), *args, f"--record={record}"], cwd=folder, env=env, text=True, capture_output=True,
                       timeout=110)
    assert p.returncode == 0, p.stderr[-3000:]
    with np.load(record) as z:
        return dict(z), p.stdout, p.stderr


SLOW = {"flow2_learning_rate", "flow3_mixed_precision", "flow4_model_api", "flow8_export", "flow9_graph_mode"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in (
    "flow1_value_and_grad", "flow2_learning_rate", "flow3_mixed_precision", "flow4_model_api", "flow6_trainer", "flow8_export", "flow9_graph_mode")])
def test_flow(name, tmp_path):
    getattr(_flows, name)(*run(name, tmp_path))


@pytest.mark.parametrize("args, settings", [
    pytest.param([], {}, marks=pytest.mark.slow, id="file"),
    pytest.param(["--lr", "0.1", "--context_mode", "graph", "--optimizer.momentum=0.8"], {"lr": 0.1, "momentum": 0.8, "mode": 0}, id="overrides")])
def test_flow_5_config(args, settings, tmp_path):
    pytest.importorskip("jsonargparse")
    _flows.flow5_config(*run("flow5_config", tmp_path, *args), **settings)
