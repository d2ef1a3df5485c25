"""Unmodified language-model libraries on mindtorch: the results of PyTorch for the same small
programs (tests/_language_programs.py).

tests/libraries/language_models.json contains those results. `python tests/_language_programs.py
tests/libraries/language_models.json` generated it, in an environment with torch 2.13.0 on a CPU and the
libraries of tests/requirements-libraries.txt. The programs need no PyTorch, so they run where the
libraries are installed without it: CI's job for libraries.
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

from library_checks import report

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = json.loads((HERE / "language_models.json").read_text("utf-8"))
#: The script that runs the programs on mindtorch and writes the results as text.
RUN = """
import json, os, sys
from mindtorch.tools import mstorch_enable
sys.path.insert(0, sys.argv[1])
import torch
import _language_programs as programs
if sys.argv[2] == "npu":
    programs.DEVICE = "npu"
found, left = {}, json.loads(sys.argv[4])
for name in left:
    try:
        found[name] = programs.PROGRAMS[name]()
    except Exception as e:
        found[name] = f"{type(e).__name__}: {e}"
json.dump(found, open(sys.argv[3], "w"))
"""
#: Programs with sampling, or trained for several steps in half precision, get looser bounds.
LOOSE = {"trainer, bf16": 2e-3}
#: Programs that also run on the npu device: models moved by this process, and batches created in
#: it.
NPU = ["model llama", "model mixtral", "model gemma3", "model mamba", "beams", "static cache", "static cache, window", "assisted", "t5", "deberta-v2", "clip", "trainer",
       "trainer, bf16", "trainer, accumulated", "trainer, resumed", "trainer, checkpointing", "launched", "not installed", "lora", "dora", "sft", "dpo", "dpo, lora"]


def absent(request):
    """Returns the reason why the programs cannot run here; where libraries are required, a missing
    one fails."""
    there = {n: report.installed(n) for n in EXPECTED["versions"]}
    why = ", ".join(f"{n} {v or 'is not installed'}, the numbers are of {EXPECTED['versions'][n]}" for n, v in there.items() if v != EXPECTED["versions"][n])
    if not why and importlib.util.find_spec("datasets") is None:
        why = "datasets is not installed"
    if why and request.config.getoption("--require-libraries"):
        pytest.fail(why)
    return why


def run(request, tmp_path, device, names):
    why = absent(request)
    if why:
        pytest.skip(why)
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "MINDTORCH_NPU": "cpu" if device == "npu" else "", "MINDTORCH_NPU_RANDOM": "host" if device == "npu" else ""}
    p = subprocess.run([sys.executable, "-c", RUN, str(HERE.parent), device, str(tmp_path / "found.json"), json.dumps(names)], env=env, cwd=tmp_path, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=550)
    assert p.returncode == 0, p.stdout[-3000:]
    return json.loads((tmp_path / "found.json").read_text("utf-8"))


def differences(mine, theirs, bound, path=""):
    """Returns the differences of two results: floats beyond a bound, everything else if unequal."""
    if isinstance(theirs, list) and isinstance(mine, list) and len(mine) == len(theirs):
        return [d for i, (a, b) in enumerate(zip(mine, theirs)) for d in differences(a, b, bound, f"{path}[{i}]")]
    same = abs(mine - theirs) <= bound * max(1e-4, abs(theirs)) if isinstance(theirs, float) and isinstance(mine, (int, float)) else mine == theirs
    return [] if same else [f"{path}: {str(mine)[:200]}, torch has {str(theirs)[:200]}"]


def compare(found, bound):
    wrong = {n: differences(r, EXPECTED["programs"][n], LOOSE.get(n, bound)) for n, r in found.items()}
    assert not any(wrong.values()), "\n".join(f"{n}{d}" for n, ds in wrong.items() for d in ds[:3])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_programs_match_torchs_results(request, tmp_path):
    found = run(request, tmp_path, "cpu", list(EXPECTED["programs"]))
    compare(found, 5e-4)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_programs_on_the_npu_device(request, tmp_path):
    compare(run(request, tmp_path, "npu", NPU), 5e-3)


def test_differences_are_detected():
    assert differences([1.0, [3, "a"]], [1.00001, [3, "a"]], 1e-4) == [] and len(differences([1.1, [3, "b"]], [1.0, [4, "a"]], 1e-4)) == 3
    assert differences([1.0], [1.0, 2.0], 1e-4) and differences("ValueError: no", [1.0], 1e-4) and differences([float("nan")], [1.0], 1e-4)
