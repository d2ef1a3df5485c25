"""The README example on the npu device: the losses match the CPU when the CPU's random numbers are
used."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def losses(folder, device):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MINDTORCH_NPU": "cpu", "MINDTORCH_NPU_RANDOM": "host"}
    p = subprocess.run([sys.executable, "-m", "mindtorch", "run", "--device", device, ROOT / "examples" / "digits.py", "--epochs", "1", "--no-progress",
                        "--batch-size", "128", "--device", device], cwd=folder, env=env, text=True, capture_output=True, timeout=110)
    assert p.returncode == 0, p.stderr[-3000:]
    assert "no kernel on device" not in p.stderr
    found = re.findall(r"loss (\S+)  test accuracy (\S+)%", p.stdout)
    return [float(x) for pair in found for x in pair]


@pytest.mark.slow
def test_digits_on_the_npu(tmp_path):
    pytest.importorskip("sklearn")
    want, have = losses(tmp_path, "cpu"), losses(tmp_path, "npu")
    assert len(want) == 2 and have[0] == pytest.approx(want[0], abs=2e-4) and have[1] == pytest.approx(want[1], abs=1)
