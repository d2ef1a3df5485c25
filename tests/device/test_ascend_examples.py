"""The examples on MindSpore's Ascend plugin with the CANN simulator. Losses match the CPU device.
"""
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

#: runs the example and prints the loss of each step as computed
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
    """Every loss, gradient and weight matches PyTorch."""
    pytest.importorskip("jsonargparse")
    r = standin.run(ROOT / "tests" / "device" / "_ascend_flows.py", tmp_path, *[f"{name}={args}" for name, args in FLOW_NAMES.items()],
                    MINDTORCH_NPU_RANDOM="host")
    printed = dict(text.split("\n", 1) for text in r.stdout.split("== ")[1:])
    for name in FLOW_NAMES:
        with np.load(tmp_path / f"{name}.npz") as z:
            settings = {"lr": 0.1, "momentum": 0.8} if name == "flow5_config" else {"compiled": True} if name == "flow9_graph_mode" else {}
            getattr(_flows, name)(dict(z), printed[name], r.stderr, **settings)
    assert "device Ascend, rank 0 of 1" in printed["flow5_config"]
    assert not r.found.fallbacks


@pytest.mark.parametrize("arch, steps", [("resnet18", 5), ("resnet50", 2)])
def test_resnet_migration(arch, steps, standin, tmp_path):
    """Losses, gradients, weights and statistics match PyTorch, and so does the accuracy of the
    saved model."""
    script, here, there = ROOT / "examples" / "resnet" / "train.py", tmp_path / "npu.npz", tmp_path / "torch.npz"
    # Only the first steps of ResNet-50 are comparable: its fifty norms over small batches magnify a
    # last-digit difference a hundredfold per step. The same happens between PyTorch and the CPU
    # device, so tests/tools/test_resnet_example.py compares those in float64.
    size = f"--arch {arch} --image-size 32 --batch-size 16 --synthetic 80 --width 8 --lr 0.02 --epochs 1".split()
    r = standin.run(script, *size, "--device", "npu", "--save", tmp_path / "npu.pth", "--record", here, MINDTORCH_NPU_RANDOM="host")
    assert not r.found.aclop and not r.found.fallbacks
    plain(script, *size, "--save", tmp_path / "torch.pth", "--record", there)
    with np.load(here) as have, np.load(there) as want:
        assert set(have) == set(want) and len([k for k in want if k.startswith("4/grad/")]) > 60
        for k in [k for k in want if int(k.split("/")[0]) < steps]:
            np.testing.assert_allclose(have[k], want[k], rtol=1e-4, atol=1e-4 * max(1e-3, np.abs(want[k]).max()), err_msg=k)
    if arch == "resnet18":
        size = size[:-4]
        e = standin.run(script.with_name("eval.py"), tmp_path / "torch.pth", *size, "--device", "npu")
        assert e.stdout.splitlines()[-1] == plain(script.with_name("eval.py"), tmp_path / "torch.pth", *size).splitlines()[-1]
        assert not e.found.aclop and not e.found.fallbacks


def plain(*argv):
    """Runs a script under PyTorch and returns its output."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    p = subprocess.run([sys.executable, *argv], cwd=ROOT, env=env, text=True, capture_output=True, timeout=110)
    assert p.returncode == 0, p.stderr[-3000:]
    return p.stdout


def test_layer_by_layer(standin):
    """Layer-by-layer diff of examples/resnet18.py between PyTorch and the device."""
    r = standin.run("-m", "mindtorch", "diff", "examples/resnet18.py:build_model", "--sides", "torch,npu", hook=False)
    assert "AGREE: 76 calls agree" in r.stdout and "gradients: 62 of 62 agree" in r.stdout and "buffers: 60 of 60 agree" in r.stdout
    assert r.found.launches["aclnnConvolutionBackward"] >= 20 and not r.found.aclop and not r.found.fallbacks
    r = standin.run("-m", "mindtorch", "diff", "examples/resnet18.py:build_model", "--sides", "cpu,npu", "--fault", "wrong_eps", hook=False, status=1)
    assert "DIFFERENT: layer2.0.bn2 (BatchNorm2d) is the first layer" in r.stdout


def test_ddp_of_one_rank(standin):
    """The epoch loss matches the one in examples/ddp/README.md."""
    pytest.importorskip("sklearn")
    r = standin.run("-m", "mindtorch.torch.distributed.run", "--standalone", "--nproc_per_node", "1", ROOT / "examples" / "ddp" / "train.py",
                    "--backend", "hccl", "--epochs", "1", hook=False)
    assert "epoch 1: loss 1.01905, test accuracy 92.89%" in r.stdout
    assert r.found.launches["aclnnConvolutionBackward"] == 2 * 21 and not r.found.aclop and not r.found.fallbacks
