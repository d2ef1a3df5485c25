"""`python -m mindtorch scan`: which names of torch a script uses, and whether they are there."""
import ast
import json
import textwrap

import pytest

from mindtorch.tools._names import Reader
from mindtorch.tools._scan import Facts, scan


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


def test_a_fallback_is_no_fault_and_a_near_name_is_told(facts, tmp_path):
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
