"""The code paths of machines without a C compiler, and of processors for which the oneDNN interface
is unavailable (aarch64, like most hosts of Ascend NPUs): values against real PyTorch."""
import _machines
import numpy as np
import pytest
import torch

from mindtorch.backend.cpu import onednn

CASES = {"as it is": {}, "without C": {"MINDTORCH_NATIVE": "0"}, "without oneDNN": {"MINDTORCH_ONEDNN": "0"},
         "without both": {"MINDTORCH_NATIVE": "0", "MINDTORCH_ONEDNN": "0", "MINDTORCH_PORTABLE": "1"}}


@pytest.fixture(scope="module")
def theirs():
    return _machines.figures(torch)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES)
def test_training_and_single_ops(process, theirs, case):
    done = process.run(_machines.__file__, "figures.npz", env=CASES[case], timeout=280)
    assert done.returncode == 0, done.stderr
    _machines.agree(dict(np.load(process.folder / "figures.npz")), theirs)


def test_a_difference_would_be_seen():
    sound = {"a": np.ones(500_000), "half": np.ones(3)}
    _machines.agree(sound, sound)
    for name, by in (("a", 1e-3), ("half", 0.2)):
        with pytest.raises(AssertionError):
            _machines.agree({**sound, name: sound[name] + by}, sound)


def test_environment_settings_take_effect(process):
    text = "from mindtorch.backend.cpu import onednn; from mindtorch.backend.c_kernels import build; print(onednn.available(), build.conv_norm_lstm() is not None)"
    assert process.ok(text, env=CASES["without both"]).split() == ["False", "False"]
    assert process.ok(text).split()[0] == str(onednn.available())
