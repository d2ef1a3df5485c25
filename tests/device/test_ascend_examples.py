"""The examples on MindSpore's Ascend plugin over the stand-in for CANN: the cpu device's losses."""
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import _flows

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.ascend

#: runs the example, and prints each step's loss as it computed it
DIGITS = """
import runpy, sys
import torch
forward = torch.nn.CrossEntropyLoss.forward
def told(self, *args):
    loss = forward(self, *args)
    print("STEP %.7f" % loss.item())
    return loss
torch.nn.CrossEntropyLoss.forward = told
sys.argv[1:] = ["--epochs", "1", "--no-progress", "--batch-size", "64", "--device", sys.argv[1]]
runpy.run_path(sys.argv[0] if False else "examples/digits.py", run_name="__main__")
"""


def test_digits(standin, tmp_path):
    pytest.importorskip("sklearn")
    script = tmp_path / "told.py"
    script.write_text(DIGITS.replace("sys.argv[0] if False else ", ""))
    r = standin.run(script, "npu", MINDTORCH_NPU_RANDOM="host")
    p = subprocess.run([sys.executable, "-m", "mindtorch", "run", script, "cpu"], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
                       capture_output=True, timeout=110)
    assert p.returncode == 0, p.stderr
    have, want = ([float(x) for x in re.findall(r"^STEP (\S+)", text, re.M)] for text in (r.stdout, p.stdout))
    assert len(want) == 22 and have == pytest.approx(want, rel=1e-4, abs=1e-4)
    assert "no kernel on device" not in r.stderr and not r.found.aclop


FLOW_NAMES = {"flow1_value_and_grad": "", "flow2_learning_rate": "", "flow3_mixed_precision": "", "flow4_model_api": "", "flow6_trainer": "",
              "flow8_export": "", "flow9_graph_mode": "", "flow5_config": "--device_target Ascend --lr 0.1 --optimizer.momentum=0.8"}


def test_flows(standin, tmp_path):
    """Each loss, gradient and weight as in real torch."""
    pytest.importorskip("jsonargparse")
    r = standin.run(ROOT / "tests" / "device" / "_ascend_flows.py", tmp_path, *[f"{name}={args}" for name, args in FLOW_NAMES.items()],
                    MINDTORCH_NPU_RANDOM="host")
    printed = dict(text.split("\n", 1) for text in r.stdout.split("== ")[1:])
    for name in FLOW_NAMES:
        with np.load(tmp_path / f"{name}.npz") as z:
            settings = {"lr": 0.1, "momentum": 0.8} if name == "flow5_config" else {}
            getattr(_flows, name)(dict(z), printed[name], r.stderr, **settings)
    assert "device Ascend, rank 0 of 1" in printed["flow5_config"]
    assert not r.found.fallbacks
