"""MindSpore's own layers, losses, functions and optimizers on the CANN simulator match MindSpore's
CPU target. Many of them use legacy (aclop) kernels."""
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.ascend
SCRIPT = pathlib.Path(__file__).parent / "_ascend_layers.py"


def test_layers_functions_and_optimizers(standin, tmp_path):
    r = standin.run(SCRIPT, tmp_path / "ascend.npz")
    env = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2]), "GLOG_v": "4"}
    p = subprocess.run([sys.executable, SCRIPT, tmp_path / "cpu.npz"], env=env, text=True, capture_output=True, timeout=110)
    assert p.returncode == 0, p.stderr[-3000:]
    with np.load(tmp_path / "ascend.npz") as have, np.load(tmp_path / "cpu.npz") as want:
        assert set(have) == set(want) and len(want) > 150
        for name in want:
            np.testing.assert_allclose(have[name], want[name], rtol=1e-4, atol=2e-5, err_msg=name)
    assert {"Conv2D", "BNTrainingUpdate", "DropOutDoMask", "AddN", "SGD"} < set(r.found.aclop)


def test_writes_are_seen_on_both_sides(standin):
    """MindSpore's kernels use separate memory: mindtorch CPU tensors are copied there and back."""
    assert standin.run(SCRIPT.with_name("_ascend_style.py")).said("SAID") == "all"
