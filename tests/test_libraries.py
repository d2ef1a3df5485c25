"""Libraries for torch, unmodified, under the import hook: those that are installed run their small programs."""
import importlib.util

import pytest

from mindtorch.tools import _libraries
from mindtorch.tools._library_checks import CHECKS

#: these run by default where they are installed; the others are slow tests
QUICK = ("einops", "safetensors", "torchdiffeq", "lion-pytorch")
#: what is known not to run (docs/libraries.md), and why
REFUSED = {"tensordict": "No module named 'torch._functorch'"}


def _missing(name):
    return _libraries.installed(name) is None or bool(_libraries._missing(CHECKS[name][1]))


def _judge(name):
    if _missing(name):
        pytest.skip(f"{name} is not installed")
    o = _libraries.check(name)
    if o.state == "absent":
        pytest.skip(o.what)
    if name in REFUSED:
        assert o.state == "fails" and REFUSED[name] in o.what
    else:
        assert o.state == "runs", o.what


@pytest.mark.parametrize("name", QUICK)
def test_library(name):
    _judge(name)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [n for n in CHECKS if n not in QUICK])
def test_library_at_length(name):
    _judge(name)


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
    import pathlib
    root = pathlib.Path(importlib.util.find_spec("mindtorch").origin).parent / "torch"
    names = ("transformers", "lightning", "timm", "torchmetrics", "accelerate", "diffusers", "peft", "gpytorch", "monai", "kornia")
    for file in root.rglob("*.py"):
        text = file.read_text()
        for n in names:
            assert f"import {n}" not in text and f'"{n}"' not in text and f"'{n}'" not in text, f"{file} names {n}"
