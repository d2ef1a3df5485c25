"""accelerate, transformers and lightning use an npu device if there is one, run without it
otherwise, and reach the cpu's losses on it.

Without an Ascend, MindSpore's CPU target (MINDTORCH_NPU=cpu) or the CANN simulator takes its place.
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

from library_checks import report

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "_finding_npu.py"
LIBRARIES = [n for n in ("accelerate", "transformers", "lightning") if report.installed(n)]
pytestmark = pytest.mark.timeout(300)


def _read(stdout):
    return json.loads(next(line for line in stdout.splitlines() if line.startswith("FOUND "))[6:])


def _run(npu, *names):
    env = {k: v for k, v in os.environ.items() if k != "MINDTORCH_NPU"}
    env.update(PYTHONPATH=str(ROOT), HF_HUB_OFFLINE="1", **({"MINDTORCH_NPU": npu} if npu else {}))
    done = subprocess.run([sys.executable, "-m", "mindtorch", "run", str(PROGRAM), *names], env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return _read(done.stdout)


@pytest.fixture(scope="module")
def without():
    """Returns the results on this machine without an npu device."""
    return _run(None, *LIBRARIES)


def _probes(n):
    there = n > 0
    return {"found": True, "same": True, "npu": there, "count": n, "cuda": there, "cuda count": n, "accelerator": "npu" if there else None, "available": there,
            "accelerators": n, "generators": n}


def test_probes(without):
    """`import torch_npu` succeeds on every machine, so only the availability functions tell whether
    there is a device."""
    assert without["probes"] == _probes(0)
    assert _run("cpu")["probes"] == _probes(1)


def _compare(found, without):
    for name, probe, place in (("accelerate", [True, True], "npu"), ("transformers", [True, True], "npu"), ("lightning", ["CUDAAccelerator"], "cuda")):
        if name in LIBRARIES:
            # ("cuda" is the alias of the npu device that lightning supports.)
            assert found[name]["probe"] == probe and set(found[name]["device"]) == {place}
            assert found[name]["losses"] == pytest.approx(without[name]["losses"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(not LIBRARIES, reason="none of accelerate, transformers, lightning is installed")
def test_libraries_choose_and_train(without):
    for name, probe in (("accelerate", [False, False]), ("transformers", [False, False]), ("lightning", ["CPUAccelerator"])):
        if name in LIBRARIES:
            assert without[name]["probe"] == probe and set(without[name]["device"]) == {"cpu"}
            assert len(without[name]["losses"]) == 6
    _compare(_run("cpu", *LIBRARIES), without)


@pytest.mark.ascend
def test_on_ascend(without):
    """Runs on MindSpore's Ascend target over the CANN simulator, computed by PyTorch, or by
    mindtorch's cpu device if PyTorch is not installed."""
    import _standin

    from mindtorch.tools.standin import _build
    try:
        machine = _standin.Standin("torch" if importlib.util.find_spec("torch") else "cpu")
    except _build.CannotBuild as e:
        pytest.skip(str(e))
    try:
        found = _read(machine.run(PROGRAM, *LIBRARIES, timeout=250, HF_HUB_OFFLINE="1").stdout)
    finally:
        machine.close()
    assert found["probes"] == _probes(8)
    _compare(found, without)
