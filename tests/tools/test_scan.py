"""`python -m mindtorch scan`: which PyTorch names a script uses, and whether mindtorch has them."""
import ast
import json
import os
import textwrap

import pytest

from mindtorch.tools._api_usage import Reader
from mindtorch.tools._api_scan import Facts, scan


@pytest.fixture(scope="module")
def facts():
    return Facts()


def used(facts, source):
    return {(u.name, u.line) for u in Reader(facts).read(ast.parse(textwrap.dedent(source)))}


def found(facts, tmp_path, source):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(source), "utf-8")
    return scan([str(path)], facts)[0]


def bad(facts, tmp_path, source):
    return [(f.name, f.line) for f in found(facts, tmp_path, source) if f.verdict == "unsupported"]


@pytest.mark.parametrize("source, names", [
    ("import torch\ntorch.zeros(3)", {("torch.zeros", 2)}),
    ("import torch as t\nt.nn.functional.relu", {("torch.nn.functional.relu", 2)}),
    ("import torch.nn.functional as F\nF.relu(x)", {("torch.nn.functional", 1), ("torch.nn.functional.relu", 2)}),
    ("from torch import nn as layers\nlayers.Linear", {("torch.nn", 1), ("torch.nn.Linear", 2)}),
    ("from torch.optim import SGD as S\nS([])", {("torch.optim.SGD", 1), ("torch.optim.SGD", 2)}),
    ("import mindtorch.torch as torch\ntorch.ones(1)", {("torch.ones", 2)}),
    ("import torch\nrelu = torch.relu\nrelu(1)", {("torch.relu", 2), ("torch.relu", 3)}),
    ("import torch\ndef f(torch):\n    return torch.foo", set()),
    ("import torch as t\ndef f():\n    t = 3\n    return t.foo", set()),
    ("import torch\ndef f():\n    return torch.foo", {("torch.foo", 3)}),
    ("def f():\n    return torch.foo\nimport torch", {("torch.foo", 2)}),
    ("import torch\nclass A:\n    torch = 1\n    def f(self):\n        return torch.foo", {("torch.foo", 5)}),
    ("import torch\n(torch\n .zeros)", {("torch.zeros", 3)}),
    ("import torch\ngetattr(torch, 'foo')", {("torch.foo", 2)}),
    ("from torch.nn import *\nLinear(2, 2)", {("torch.nn", 1), ("torch.nn.Linear", 2)}),
    ("x = torch.foo\nimport numpy as torch", set()),
    ("import torch\nx = torch.ones(2)\nx.foo()", {("torch.ones", 2), ("torch.Tensor.foo", 3)}),
    ("import torch\n(torch.ones(2) + 1).exp().foo", {("torch.ones", 2), ("torch.Tensor.exp", 2), ("torch.Tensor.foo", 2)}),
    ("import torch\ndef f(x: torch.Tensor):\n    return x.foo", {("torch.Tensor", 2), ("torch.Tensor.foo", 3)}),
    ("import torch\nv = torch.ones(2).sort()\nv.values", {("torch.ones", 2), ("torch.Tensor.sort", 2)}),
    ("import torch\nx = torch.ones(2)\nx = open('a')\nx.foo", {("torch.ones", 2)}),
    ("import os\nos.torch.foo\nself.torch.bar", set()),
])
def test_names(facts, source, names):
    assert used(facts, source) == names


def test_verdicts_come_from_the_real_namespace(facts, tmp_path):
    assert bad(facts, tmp_path, """
        import torch
        from torch import nn
        import torch.nothing_like_this as gone
        x = torch.ones(2)
        x.no_such_method()
        y = torch.linalg.made_up(x)
        nn.Linear(1, 1)
        nn.Liner(1, 1)
        gone.f()
        if torch.cuda.is_available():
            x = x.cuda()
    """) == [("torch.nothing_like_this", 4), ("torch.Tensor.no_such_method", 6), ("torch.linalg.made_up", 7),
             ("torch.nn.Liner", 9), ("torch.nothing_like_this.f", 10)]


def test_fallback_import_is_ok_and_similar_name_is_suggested(facts, tmp_path):
    rows = found(facts, tmp_path, """
        import torch
        try:
            from torch.nothing import thing
        except ImportError:
            thing = None
        torch.nn.Liner
        torch.relu(torch.ones(1), nonsense=True)
    """)
    by = {f.name: f for f in rows}
    assert by["torch.nothing.thing"].verdict == "partly" and "catches" in by["torch.nothing.thing"].reason
    assert by["torch.nn.Liner"].instead.endswith("torch.nn.Linear")
    assert by["torch.relu"].verdict == "partly" and "nonsense" in by["torch.relu"].reason


def test_command(process):
    process.file("code/good.py", "import torch\ntorch.ones(2)\nraise SystemExit(5)\n")
    process.file("code/bad.py", "import torch\n\ntorch.foo_bar()\n")
    process.file("broken.py", "import torch\nx = = 1\n")
    good = process.run("-m", "mindtorch", "scan", "code/good.py")
    assert good.returncode == 0 and "code/good.py:2: torch.ones: supported" in good.stdout, good.stderr
    both = process.run("-m", "mindtorch", "scan", "code", "--format", "sarif")
    assert both.returncode == 1
    (result,) = json.loads(both.stdout)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert result["level"] == "error" and "torch.foo_bar" in result["message"]["text"]
    assert place["artifactLocation"]["uri"] == "code/bad.py" and place["region"]["startLine"] == 3
    broken = process.run("-m", "mindtorch", "scan", "broken.py", "nowhere.py")
    assert broken.returncode == 2 and "Traceback" not in broken.stderr
    assert "broken.py" in broken.stderr and "nowhere.py: there is no such file" in broken.stderr


def test_sarif_output_conforms_to_the_standard(facts, tmp_path, monkeypatch):
    """Checks the properties that SARIF 2.1.0 requires, and that a reader of the report can resolve
    the locations."""
    import pathlib
    import re
    from urllib.parse import unquote, urlparse

    from mindtorch.tools._api_scan import sarif
    monkeypatch.chdir(tmp_path)
    source = "import torch\n\u00e4 = '\U0001f600'; torch.foo_bar()\nx = (torch.ones(2)\n     .no_such_method())\ntorch.nn.Liner\n"
    pathlib.Path("my scripts").mkdir()
    for path in (pathlib.Path("my scripts/\u00fcber.py"), tmp_path / "here.py"):
        path.write_text(source, "utf-8")
        report = json.loads(json.dumps(sarif(scan([str(path)], facts)[0])))
        assert set(report) == {"$schema", "version", "runs"} and report["version"] == "2.1.0"
        (run,) = report["runs"]
        rules = [r["id"] for r in run["tool"]["driver"]["rules"]]
        assert run["tool"]["driver"]["name"] and len(set(rules)) == len(rules) == 2
        assert [r["level"] for r in run["results"]] == ["error"] * 3
        lines, places = source.splitlines(), []
        for result in run["results"]:
            assert result["ruleId"] in rules and result["message"]["text"]
            place = result["locations"][0]["physicalLocation"]
            uri = place["artifactLocation"]["uri"]
            assert re.fullmatch(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+", uri)
            assert pathlib.Path(unquote(urlparse(uri).path)).samefile(path)
            row, column = place["region"]["startLine"], place["region"]["startColumn"]
            places.append(lines[row - 1].encode("utf-16-le")[2 * (column - 1):].decode("utf-16-le"))
        assert places == ["foo_bar()", "no_such_method())", "Liner"]


def test_json(facts, tmp_path, capsys):
    from mindtorch.__main__ import main
    path = tmp_path / "a.py"
    path.write_text("import torch\ntorch.ones(1)\ntorch.foo()\n")
    assert main(["scan", str(path), "--format", "json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [(r["name"], r["line"], r["verdict"]) for r in rows] == [("torch.ones", 2, "supported"), ("torch.foo", 3, "unsupported")]
    assert main(["scan", str(path), "--format", "json", "--problems", "--output", str(tmp_path / "out.json")]) == 1
    assert [r["name"] for r in json.loads((tmp_path / "out.json").read_text())] == ["torch.foo"]


# ------------------------------------------------------------------ folders and files of all kinds
def test_a_folder_with_a_pipe_and_a_broken_link(facts, tmp_path):
    (tmp_path / "a.py").write_text("import torch\ntorch.nope\n")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "link.py").symlink_to("nowhere.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "folder.py" / "b.py").write_text("import torch\ntorch.ones\n")
    uses, failed = scan([str(tmp_path)], facts)
    assert [(os.path.basename(f.file), f.name) for f in uses] == [("a.py", "torch.nope"), ("b.py", "torch.ones")]
    assert len(failed) == 2 and any("pipe.py: not a regular file" in m for m in failed) and any("link.py" in m for m in failed)


DEEP = {
    "a long sum": ("x = " + " + ".join(["torch.ones(1)"] * 2000), "torch.ones"),
    "a long chain": ("x = torch.ones(1)\ny = x" + ".exp()" * 300 + "\ntorch.nope", "torch.nope"),
    "many branches": ("if x == 0:\n  pass\n" + "".join(f"elif x == {i}:\n  pass\n" for i in range(1500)) + "else:\n  torch.nope", "torch.nope"),
    "signs": ("x = " + "-" * 100000 + "1", None), "brackets": ("x = " + "[" * 5000, None), "calls": ("x" + "()" * 30000, None),
    "lambdas": ("x = " + "lambda: " * 5000 + "1", None),
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting(facts, tmp_path, name):
    source, use = DEEP[name]
    (tmp_path / "deep.py").write_text("import torch\n" + source + "\n")
    (tmp_path / "other.py").write_text("import torch\ntorch.zeros\n")
    uses, failed = scan([str(tmp_path)], facts)
    assert "torch.zeros" in {f.name for f in uses}
    if use is None:
        assert len(failed) == 1 and "nested" in failed[0]
    else:
        assert failed == [] and use in {f.name for f in uses}


# ------------------------------------------------------------------ names that raise, imports that fail
@pytest.mark.parametrize("name", """torch.nested.nested_tensor torch.nested.as_nested_tensor torch.nested.narrow torch.quantize_per_tensor torch.cudnn_convolution
 torch.jit.CompilationUnit torch.sparse.spsolve torch._scaled_mm torch.nn.functional.scaled_mm torch.utils.data.datapipes.iter.Forker
 torch.jit.get_trace_graph""".split())
def test_names_that_only_raise_are_unsupported(facts, tmp_path, name):
    (use,) = found(facts, tmp_path, f"import torch\n{name}")
    assert use.verdict == "unsupported" and use.reason


def test_names_reported_unsupported_raise(facts):
    """No name reported as unsupported works, as far as a call without arguments can show."""
    from mindtorch.tools._api_scan import _refusals
    torch, wrong = facts.facade, []
    for holder in (torch, torch.nn.functional, torch.nested, torch.sparse, torch.jit, torch.linalg):
        for name, f in list(vars(holder).items()):
            if name[0] != "_" and callable(f) and not isinstance(f, type) and _refusals(f)[1]:
                try:
                    f()
                    wrong.append(name)
                except (NotImplementedError, TypeError):
                    pass
    assert wrong == []


@pytest.mark.parametrize("source, verdict", [
    ("import torch.nn.functional.relu", "unsupported"), ("import torch.Tensor", "unsupported"), ("from torch.Tensor import add", "unsupported"),
    ("import torch.compiler.disable as d", "unsupported"), ("from torch.nn.functional.relu import x", "unsupported"), ("from torch.nope import *", "unsupported"),
    ("import torch.package", "unsupported"), ("import torch.backends.cudnn as cudnn", "supported"), ("from torch.backends.cudnn import benchmark", "supported"),
    ("import torch.nn.functional as F", "supported"), ("from torch.cuda.amp.grad_scaler import GradScaler", "supported"),
    ("try:\n    import torch.Tensor\nexcept ImportError:\n    pass", "partly"),
    ("import surely_not_installed.part", "partly"), ("from surely_not_installed import x", "partly"), ("import torch_surely_not", "partly"),
])
def test_imports_that_fail(facts, tmp_path, source, verdict):
    (use,) = found(facts, tmp_path, source)
    assert use.verdict == verdict and bool(use.reason) == (verdict != "supported")


@pytest.mark.parametrize("source", [
    "import os, numpy, json.decoder", "from . import other", "import beside", "from beside.part import x", "from above import y",
    "try:\n    import surely_not\nexcept ImportError:\n    surely_not = None", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import surely_not",
])
def test_local_and_guarded_packages_are_not_reported(facts, tmp_path, source):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside").mkdir()
    (tmp_path / "above.py").write_text("")
    assert found(facts, tmp_path / "sub", source) == []
