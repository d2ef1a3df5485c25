"""Unmodified PyTorch libraries under the import hook: the installed ones run their small programs.
"""
import importlib.util
import json
import pathlib
import re

import pytest

from library_checks import CHECKS, figures, report

#: These run by default if they are installed; the others are slow tests.
QUICK = ("einops", "safetensors", "torchdiffeq", "lion-pytorch")
#: These also run on the npu device if installed: the fastest ones, one with an explicit device, and
#: one with ops that fall back to the host.
ON_NPU = ("einops", "safetensors", "lion-pytorch", "torchinfo", "skorch", "torchdiffeq")
#: Libraries that are known not to run (docs/libraries.md), with the reason.
REFUSED: dict[str, str] = {}
#: Libraries whose figures are not compared with PyTorch's, with the reason.
NOT_COMPARED: dict[str, str] = {}
#: Libraries that CI does not install, with the reason.
NOT_PINNED = {"fastai": "needs a web framework (fasthtml)", "flair": "needs clients of cloud services (boto3) and word lists"}
PINS = (pathlib.Path(__file__).resolve().parents[1] / "requirements-libraries.txt")


def _missing(name):
    return report.installed(name) is None or bool(report._missing(CHECKS[name][1]))


def _normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def _pinned():
    return {_normal(line.split("==")[0]) for line in PINS.read_text().splitlines() if "==" in line}


@pytest.fixture
def judge(request):
    """Runs a library's check. Missing libraries are skipped; where libraries are required, an
    installed one must not be skipped."""

    def skip(name, why):
        if request.config.getoption("--require-libraries") and report.installed(name) and name not in NOT_PINNED:
            pytest.fail(f"{name} is installed, but was not checked: {why}")
        pytest.skip(f"{name}: {why}")

    def run(name, device="cpu"):
        if report.installed(name) is None:
            skip(name, NOT_PINNED.get(name, "not installed"))
        o = report.check(name, device)
        if o.state == "absent":
            skip(name, o.what)
        if name in REFUSED:
            assert o.state == "fails" and REFUSED[name] in o.what
        else:
            assert o.state == "runs", o.what
        return o

    return run


def test_required_libraries_are_installed(request):
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
def test_slow_library(judge, name):
    judge(name)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ON_NPU)
def test_library_on_npu(judge, name, monkeypatch):
    monkeypatch.setenv("MINDTORCH_NPU", "cpu")
    o = judge(name, "npu")
    assert o.device == "npu" and (name == "torchdiffeq") == ("nextafter" in o.on_host)


def test_report(capsys, tmp_path, monkeypatch):
    def works():
        """nothing much"""

    def fails():
        """nothing"""
    monkeypatch.setitem(CHECKS, "numpy", (works, ()))
    monkeypatch.setitem(CHECKS, "no-such-library", (fails, ()))
    monkeypatch.setitem(CHECKS, "pytest", (works, ("no-such-library",)))
    monkeypatch.setattr(report, "_PROGRAM", "assert {name!r} == 'numpy'")
    assert report.report(["numpy"], str(tmp_path / "t.md")) == 0
    assert re.search(r"^\| numpy \| \S+ \| yes \|  \| nothing much \|$", (tmp_path / "t.md").read_text(), re.M)
    out = capsys.readouterr().out
    assert out.startswith("runs    numpy") and "1 run, 0 fail, 0 absent" in out
    assert report.check("no-such-library").state == "absent" and report.check("pytest").what == "needs no-such-library"
    monkeypatch.setattr(report, "_PROGRAM", "raise ValueError('broken')")
    assert report.report(["numpy"]) == 1 and "broken" in capsys.readouterr().out
    assert report.report(["unheard-of"]) == 2


def _tell(kernels, host):
    return f"print('ASKED ' + {json.dumps({'kernels': kernels, 'host': host})!r})"


@pytest.mark.parametrize("program, state, cell", [
    (_tell(["mul"], []), "runs", "yes"), (_tell(["mul"], ["nextafter"]), "runs", "yes; on the host: nextafter"), (_tell([], []), "apart", "runs nothing on the device"),
    ("pass", "fails", "no: the process ended before its check did"), ("raise ValueError('a | b')", "fails", "no: ValueError: a | b"),
    ("import no_such", "absent", "absent")])
def test_outcomes_on_npu(monkeypatch, program, state, cell):
    monkeypatch.setitem(CHECKS, "numpy", (_tell, ()))
    monkeypatch.setattr(report, "_PROGRAM", program.replace("{", "{{").replace("}", "}}") + "; assert {device!r} == 'npu'")
    o = report.check("numpy", "npu")
    assert (o.state, o.cell(), o.device) == (state, cell, "npu")


def _check_with(monkeypatch, program, theirs):
    """Runs numpy's check with this program, and with these figures as PyTorch's."""
    def works():
        """nothing much"""
    monkeypatch.setitem(CHECKS, "numpy", (works, ()))
    monkeypatch.setattr(figures, "expected", lambda name, release: theirs)
    monkeypatch.setattr(report, "_PROGRAM", program.replace("{", "{{").replace("}", "}}"))
    o = report.check("numpy")
    return o.state, o.cell()


@pytest.mark.parametrize("mine, theirs, said", [
    ([["f", {"a": [1.0, 2], "b": 0.5}]], [["f", {"a": [1.0001, 2], "b": 0.5}]], "yes, 3 figures as torch's"),
    ([["f", {"a": [1.0, 2], "b": 0.5}]], [["f", {"a": [1.1, 2], "b": 0.6}]], "no: f.a is [1.0, 2], torch has [1.1, 2] (and 1 more)"),
    ([["f", {"a": [1.0]}]], [["f", {"a": [1.0, 1.0]}]], "no: f.a is [1.0], torch has [1.0, 1.0]"),
    ([["f", {"a": "unread"}]], [["f", {"a": 1.0}]], "no: f.a is unread, torch has 1.0"),
    ([["f", {"a": float("nan")}]], [["f", {"a": 1.0}]], "no: f.a is nan, torch has 1.0"),
    ([["f", {"a": 1.0}], ["g", {"b": 1}]], [["f", {"a": 1.0}]], "no: other calls or variables: ['g', ['b']], torch has None"),
    ([["f", {"a": 1.0}]], "torch's own runs differ", "yes, not compared: torch's own runs differ"), ([["f", {"a": 1.0}]], "", "yes"),
    (None, [["f", {"a": 1.0}]], "no: the process ended before its check did")])
def test_figures_are_compared(monkeypatch, mine, theirs, said):
    state, cell = _check_with(monkeypatch, "pass" if mine is None else f"print('FIGURES ' + {json.dumps(mine)!r})", theirs)
    assert cell == said and state == ("fails" if said.startswith("no") else "runs")


def test_torchs_figures_have_the_versions_pinned_in_ci():
    pins = {_normal(line.split("==")[0]): line.split("==")[1] for line in PINS.read_text().splitlines() if "==" in line}
    rows = figures._read()["libraries"]
    assert not [n for n, row in rows.items() if n not in NOT_PINNED and pins[_normal(n)] != row["version"].replace("-", ".post")]
    assert {n for n in CHECKS if n not in rows or "calls" not in rows[n]} == set(NOT_PINNED) | set(NOT_COMPARED)


def test_table_of_two_devices(tmp_path, monkeypatch):
    """The table has both columns; earlier results of the same version are retained, those of other
    versions are not."""
    found = {"cpu": "runs", "npu": "fails"}

    def works():
        """nothing much"""
    for name in ("numpy", "pytest"):
        monkeypatch.setitem(CHECKS, name, (works, ()))
    monkeypatch.setattr(report, "check", lambda name, device: report.Outcome(name, "1", found[device], "a | b\nc", 1, device))
    monkeypatch.setattr(report, "_place", lambda device: "MindSpore's CPU target of a test" if device == "npu" else device)
    page = tmp_path / "t.md"
    rows = lambda: [line for line in page.read_text().splitlines() if line.startswith(("| numpy", "| pytest"))]        # noqa: E731
    assert report.report(["numpy"], str(page), ["npu"]) == 1
    assert rows() == ["| numpy | 1 |  | no: a &#124; b c | nothing much |"]
    assert report.report(["pytest", "numpy"], str(page), ["cpu"]) == 0
    both = ["| numpy | 1 | yes | no: a &#124; b c | nothing much |", "| pytest | 1 | yes |  | nothing much |"]
    assert rows() == both and page.read_text().count("| ---") == 5 and "MindSpore's CPU target of a test." in page.read_text()
    found["npu"] = "apart"
    assert report.report(["numpy"], str(page), ["npu"]) == 0
    assert rows() == [both[0].replace("no: a &#124; b c", "runs nothing on the device"), both[1]]
    monkeypatch.setattr(report.mindtorch, "__version__", "another")
    assert report.report(["pytest"], str(page), ["cpu"]) == 0 and rows() == [both[1]]


def test_without_an_npu(capsys, monkeypatch):
    monkeypatch.setattr(report, "_place", lambda device: None if device == "npu" else device)
    assert report.report(["einops"], None, ["npu"]) == 2 and "MINDTORCH_NPU=cpu" in capsys.readouterr().out


def test_the_page_has_both_columns():
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "libraries.md").read_text()
    rows = report._rows(page)
    assert set(rows) >= {n for n in CHECKS if n not in NOT_PINNED}
    assert not [n for n, row in rows.items() if not row[2] or not row[3]], "not taken"
    pins = dict(line.split("==") for line in PINS.read_text().splitlines() if "==" in line)
    normal = {_normal(n): v for n, v in pins.items()}
    release = {n: row[1].replace("-", ".post") for n, row in rows.items()}          # (1.2-3 is pip's 1.2.post3)
    assert not [n for n, r in release.items() if n not in NOT_PINNED and normal[_normal(n)] != r], "taken with another version than CI's"


def test_no_library_is_named_in_mindtorch():
    # (A change that makes a library run must be valid for PyTorch in general, not specific to that
    # library.)
    root = pathlib.Path(importlib.util.find_spec("mindtorch").origin).parent / "torch"
    names = ("transformers", "lightning", "timm", "torchmetrics", "accelerate", "diffusers", "peft", "gpytorch", "monai", "kornia")
    for file in root.rglob("*.py"):
        text = file.read_text()
        for n in names:
            assert f"import {n}" not in text and f'"{n}"' not in text and f"'{n}'" not in text, f"{file} names {n}"
