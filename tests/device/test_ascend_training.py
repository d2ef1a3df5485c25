"""Training on the stand-in: the benchmark models and mindtorch's optimizers."""
import json
import pathlib
import sys

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.ascend
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "benchmarks")]

import _ascend_optimizers  # noqa: E402
import models  # noqa: E402


@pytest.mark.parametrize("names", [["mlp", "lenet", "small_cnn", "small_resnet", "gan"], ["resnet18", "gpt2", "bert", "lstm"]], ids=" ".join)
def test_benchmark_models(names, standin):
    """Losses of five steps as on the cpu device, no op of the old way, nothing on the host."""
    r = standin.run(HERE / "_ascend_models.py", *names)
    found = [json.loads(line[6:]) for line in r.stdout.splitlines() if line.startswith("MODEL ")]
    assert [name for name, *_ in found] == names
    for name, have, want in found:
        # (The adversarial pair magnifies a last bit a thousand times in four steps: real torch computes the device's kernels here, and is the one to compare with.)
        if name == "gan":
            step = models.MODELS[name](torch).step(torch, False)
            np.testing.assert_allclose(have, want, atol=5e-3)
            want = [step() for _ in range(5)]
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4, err_msg=name)
    assert not r.found.aclop and not r.found.fallbacks


def test_optimizers(standin, tmp_path):
    """Parameters after three steps as in real torch."""
    r = standin.run(HERE / "_ascend_optimizers.py", tmp_path / "npu.npz")
    with np.load(tmp_path / "npu.npz") as have:
        for title, (name, settings) in _ascend_optimizers.STEPS.items():
            for k, want in enumerate(_ascend_optimizers.stepped(torch, name, settings, "cpu")):
                np.testing.assert_allclose(have[f"{title}/{k}"], want, rtol=1e-5, atol=1e-5, err_msg=title)
    # (Which elements of a gradient are not zero, and their places, are found on the host.)
    assert not r.found.aclop and set(r.found.fallbacks) <= {"coo_nonzero", "coo_keys"}
