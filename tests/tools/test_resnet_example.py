"""examples/resnet: the same script under PyTorch and under mindtorch gives the same losses,
gradients, weights and accuracy."""
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "resnet"


def call(folder, *command):
    p = subprocess.run([sys.executable, *command], cwd=folder, text=True, capture_output=True, timeout=170,
                       env={**__import__("os").environ, "PYTHONPATH": str(ROOT.parent.parent)})
    assert p.returncode == 0, p.stderr[-3000:]
    return p.stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
def test_training_and_evaluation(arch, tmp_path):
    size = ["--arch", arch, "--width", "8", "--image-size", "32", "--batch-size", "16", "--synthetic", "96", "--classes", "10", "--double"]
    train = [str(ROOT / "train.py"), *size, "--epochs", "1", "--lr", "0.05"]
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir(), b.mkdir()
    call(a, "-m", "mindtorch", "run", *train, "--record", "r.npz")
    call(b, *train, "--record", "r.npz")
    got, want = np.load(a / "r.npz"), np.load(b / "r.npz")
    assert sorted(got.files) == sorted(want.files)
    losses = [float(want[f"{i}/loss"]) for i in range(6)]
    assert np.ptp(losses) > 0.1
    lrs = [float(want[f"{i}/lr"]) for i in range(6)]
    assert lrs[0] == pytest.approx(0.05) and lrs[-1] < 0.01
    grads = weights = 0
    for k in want.files:
        # Uses float64, because norms over small batches amplify a difference in the last digit
        # thirtyfold per step.
        tol = 1e-9 if int(k.split("/")[0]) == 0 else 1e-5
        np.testing.assert_allclose(got[k], want[k], rtol=tol, atol=tol * np.abs(want[k]).max() + 1e-14, err_msg=k)
        grads += "/grad/" in k
        weights += "/weight/" in k
    assert grads >= 2 * 60 and weights >= 2 * 100
    # each library evaluates what it trained, and mindtorch also what PyTorch trained
    for folder in (a, b):
        evaluate = [str(ROOT / "eval.py"), str(folder / "resnet.pth"), *size]
        mine = re.search(r"top-1 ([\d.]+)%  top-5 ([\d.]+)%", call(a, "-m", "mindtorch", "run", *evaluate)).groups()
        if folder == b:
            assert mine == re.search(r"top-1 ([\d.]+)%  top-5 ([\d.]+)%", call(b, *evaluate)).groups()


def test_no_weight_decay_on_norms_and_biases(tmp_path):
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from mindtorch.tools import mstorch_enable
import torch
from model import build
from train import parameter_groups, warm_up_cosine
for arch, count in (("resnet18", 11689512), ("resnet50", 25557032)):
    net = build(arch, 1000)
    assert sum(p.numel() for p in net.parameters()) == count
    decayed, rest = parameter_groups(net, 1e-4)
    names = {{id(p): n for n, p in net.named_parameters()}}
    assert all(names[id(p)].endswith("weight") and p.ndim > 1 for p in decayed["params"]) and rest["weight_decay"] == 0
    assert all("bn" in names[id(p)] or "downsample.1" in names[id(p)] or names[id(p)].endswith("bias") for p in rest["params"])
    assert len(decayed["params"]) + len(rest["params"]) == len(names)
"""
    (tmp_path / "check.py").write_text(code)
    call(tmp_path, "check.py")


@pytest.mark.slow
def test_image_folder(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rs = np.random.RandomState(0)
    for part in ("train", "val"):
        for i, c in enumerate(("cat", "dog")):
            (tmp_path / part / c).mkdir(parents=True)
            for j in range(4):
                a = (rs.rand(40, 50, 3) * 100 + 100 * i).astype(np.uint8)
                image.fromarray(a).save(tmp_path / part / c / f"{j}.png")
    options = ["--arch", "resnet18", "--width", "4", "--image-size", "32", "--batch-size", "4", "--data", str(tmp_path)]
    out = call(tmp_path, "-m", "mindtorch", "run", str(ROOT / "train.py"), *options, "--epochs", "1")
    assert "step 2/2" in out
    assert "top-1" in call(tmp_path, "-m", "mindtorch", "run", str(ROOT / "eval.py"), "resnet.pth", *options)
