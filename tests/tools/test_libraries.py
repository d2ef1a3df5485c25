"""Libraries for torch, unmodified, under the import hook: those that are installed run their small programs."""
import importlib.util
import pathlib
import re

import pytest

from mindtorch.tools import _libraries
from mindtorch.tools._library_checks import CHECKS

#: these run by default where they are installed; the others are slow tests
QUICK = ("einops", "safetensors", "torchdiffeq", "lion-pytorch")
#: what is known not to run (docs/libraries.md), and why
REFUSED: dict[str, str] = {}
#: what CI does not install, and why
NOT_PINNED = {"fastai": "needs a web framework (fasthtml)", "flair": "needs clients of cloud services (boto3) and word lists"}
PINS = (pathlib.Path(__file__).resolve().parents[1] / "requirements-libraries.txt")


def _missing(name):
    return _libraries.installed(name) is None or bool(_libraries._missing(CHECKS[name][1]))


def _normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def _pinned():
    return {_normal(line.split("==")[0]) for line in PINS.read_text().splitlines() if "==" in line}


@pytest.fixture
def judge(request):
    """Runs a library's check. What is not there is skipped; where libraries are required, one that is there is not."""

    def skip(name, why):
        if request.config.getoption("--require-libraries") and _libraries.installed(name) and name not in NOT_PINNED:
            pytest.fail(f"{name} is installed, but was not checked: {why}")
        pytest.skip(f"{name}: {why}")

    def run(name):
        if _libraries.installed(name) is None:
            skip(name, NOT_PINNED.get(name, "not installed"))
        o = _libraries.check(name)
        if o.state == "absent":
            skip(name, o.what)
        if name in REFUSED:
            assert o.state == "fails" and REFUSED[name] in o.what
        else:
            assert o.state == "runs", o.what

    return run


def test_required_libraries_are_there(request):
    least = request.config.getoption("--require-libraries")
    there = [n for n in CHECKS if n not in NOT_PINNED and not _missing(n)]
    absent = sorted(set(CHECKS) - set(there) - set(NOT_PINNED))
    assert len(there) >= least, f"only {len(there)} of the {least} libraries that have to be there are; not {', '.join(absent)}"


def test_every_checked_library_is_pinned():
    assert {n for n in CHECKS if _normal(n) not in _pinned()} == set(NOT_PINNED)
    assert not {"torch", "numpy", "mindspore"} & _pinned()


@pytest.mark.parametrize("name", QUICK)
def test_library(judge, name):
    judge(name)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [n for n in CHECKS if n not in QUICK])
def test_library_at_length(judge, name):
    judge(name)


def test_report(capsys, tmp_path, monkeypatch):
    def works():
        """nothing much"""

    def fails():
        """nothing"""
    monkeypatch.setitem(CHECKS, "numpy", (works, ()))
    monkeypatch.setitem(CHECKS, "no-such-library", (fails, ()))
    monkeypatch.setitem(CHECKS, "pytest", (works, ("no-such-library",)))
    monkeypatch.setattr(_libraries, "_PROGRAM", "assert {name!r} == 'numpy'")
    assert _libraries.report(["numpy"], str(tmp_path / "t.md")) == 0
    assert "| numpy |" in (tmp_path / "t.md").read_text()
    out = capsys.readouterr().out
    assert out.startswith("runs    numpy") and "1 run, 0 fail, 0 lack something" in out
    assert _libraries.check("no-such-library").state == "absent" and _libraries.check("pytest").what == "needs no-such-library"
    monkeypatch.setattr(_libraries, "_PROGRAM", "raise ValueError('broken')")
    assert _libraries.report(["numpy"]) == 1 and "broken" in capsys.readouterr().out
    assert _libraries.report(["unheard-of"]) == 2


def test_no_library_is_named_in_the_facade():
    # (What makes a library run has to be true of torch, not of that library.)
    root = pathlib.Path(importlib.util.find_spec("mindtorch").origin).parent / "torch"
    names = ("transformers", "lightning", "timm", "torchmetrics", "accelerate", "diffusers", "peft", "gpytorch", "monai", "kornia")
    for file in root.rglob("*.py"):
        text = file.read_text()
        for n in names:
            assert f"import {n}" not in text and f'"{n}"' not in text and f"'{n}'" not in text, f"{file} names {n}"
