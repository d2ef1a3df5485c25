"""The examples on MindSpore's Ascend plugin over the stand-in for CANN: the cpu device's losses."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

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
