"""examples/ddp: the losses agree on one, two and four processes, and after a restart with another
number of processes."""
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.dist, pytest.mark.timeout(240)]


def epochs(world, *args):
    p = subprocess.run([sys.executable, "-m", "mindtorch.torch.distributed.run", "--standalone", "--nproc_per_node", str(world),
                        str(ROOT / "examples" / "ddp" / "train.py"), *map(str, args)], cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert p.returncode == 0, p.stderr[-3000:]
    return p.stdout, {int(e): (float(x), float(a)) for e, x, a in re.findall(r"epoch (\d+): loss ([\d.]+), test accuracy ([\d.]+)%", p.stdout)}


def test_restarts_continue_one_loss_curve(tmp_path):
    _, whole = epochs(1, "--epochs", 4)
    assert list(whole) == [1, 2, 3, 4] and whole[4][0] < 0.1 < whole[1][0] and whole[4][1] > 95
    _, first = epochs(2, "--epochs", 2, "--checkpoint", tmp_path)
    said, second = epochs(4, "--epochs", 4, "--checkpoint", tmp_path)
    assert "resuming after epoch 2" in said and list(second) == [3, 4]
    for e, (loss, right) in {**first, **second}.items():
        assert loss == pytest.approx(whole[e][0], abs=2e-3)
        assert right == pytest.approx(whole[e][1], abs=0.5)


def test_accumulation():
    assert epochs(2, "--epochs", 2, "--accumulate", 2, "--batch-size", 32)[1][2][0] < 0.5


def test_script_says_nothing_of_mindspore_in_code():
    code = (ROOT / "examples" / "ddp" / "train.py").read_text().split('"""', 2)[2]
    assert "mind" not in code.lower()
