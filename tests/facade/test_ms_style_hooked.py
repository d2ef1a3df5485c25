"""mindspore.jit and MindSpore's training with `import torch` under the hook, where modules and
classes have torch names.

One program runs under the hook, and with `mindtorch.torch` without it.
"""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import warnings

import mindspore as ms
import numpy as np
IMPORT

warnings.simplefilter("ignore")
x = ms.Tensor(np.array([[-.5, .25], [1., 2.]], np.float32))
net = torch.nn.Linear(2, 2)
with torch.no_grad():
    net.weight.copy_(torch.tensor([[.5, -1.], [2., .25]]))
    net.bias.zero_()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
HALF = torch.float32
act, sine = torch.nn.ReLU(), torch.sin


def said(name, r):
    r = r if isinstance(r, (list, tuple)) else [r]
    print(name, [np.round(np.asarray(t.asnumpy() if isinstance(t, ms.Tensor) else t, dtype=np.float64), 5).tolist() for t in r], flush=True)


def of_a_module(a):
    return torch.sin(a)


def of_a_namespace(a):
    return torch.nn.functional.softmax(a, dim=1)


def of_an_alias(a):
    return F.relu(a) + nn.functional.gelu(a)


def of_a_function(a):
    return sine(a)


def of_a_module_object(a):
    return act(net(a))


def of_a_class(a):
    return torch.nn.Tanh()(a)


def of_a_dtype(a):
    return torch.zeros(2, 2, dtype=HALF) + torch.as_tensor(a)


def of_a_function_inside(a):
    return of_a_module(a) * 2


def of_a_context(a):
    with torch.no_grad():
        return torch.exp(torch.as_tensor(a))


def of_linear_algebra(a):
    return torch.linalg.norm(torch.as_tensor(a))


def native(a):
    return ms.ops.relu(a) * 2


functions = [of_a_module, of_a_namespace, of_an_alias, of_a_function, of_a_module_object, of_a_class, of_a_dtype, of_a_function_inside, of_a_context, of_linear_algebra, native]
for how in ("ast", "bytecode", "trace"):
    for f in functions:
        g = ms.jit(f, capture_mode=how)
        for given in (x, x * 2, torch.as_tensor(x)):
            said(f"{how} {f.__name__}", g(given))
    assert (not f._mindtorch_jit.met) is (f is native)


class Around(ms.nn.Cell):
    def __init__(self, inner=None):
        super().__init__()
        if inner is not None:
            self.inner = inner

    def construct(self, a):
        return torch.sin(a) + self.inner(a)


class Style(ms.nn.Cell):
    @ms.jit
    def construct(self, a):
        return torch.cos(a)


for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
    ms.set_context(mode=mode)
    said("cell", Around(net)(x))
    said("jitted method", Style()(x))
    said("gradient", ms.grad(ms.jit(lambda a: torch.sin(a).sum()))(x))
ms.set_context(mode=ms.PYNATIVE_MODE)

forward = ms.value_and_grad(lambda a, b: torch.nn.functional.mse_loss(net(a), torch.as_tensor(b)), None, optimizer.parameters)


@ms.jit
def step(a, b):
    loss, grads = forward(a, b)
    optimizer(grads)
    return loss


said("losses", [step(x, x) for _ in range(3)])
said("weights", list(net.parameters())[0].detach())
"""


def printed(*start):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"}
    p = subprocess.run([sys.executable, *start], env=env, capture_output=True, text=True, timeout=280)
    assert p.returncode == 0, f"{p.stdout[-1000:]}\n{p.stderr[-3000:]}"
    return p.stdout


def test_program_matches_with_and_without_the_hook(tmp_path):
    hooked, plain = tmp_path / "hooked.py", tmp_path / "plain.py"
    hooked.write_text(PROGRAM.replace("IMPORT", "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nassert torch.__name__ == 'torch'"))
    plain.write_text(PROGRAM.replace("IMPORT", "import mindtorch.torch as torch\nimport mindtorch.torch.nn as nn\nimport mindtorch.torch.nn.functional as F"))
    there = printed("-m", "mindtorch", "run", str(hooked))
    assert "ast of_a_module [[[-0.47943, 0.2474], [0.84147, 0.9093]]]" in there and there.count("\n") > 100
    assert there == printed(str(plain))


@pytest.mark.slow
def test_mindspore_style_tests_pass_under_the_hook():
    """Runs all of test_ms_style.py under the hook, except the tests of converted files, which
    PyTorch writes."""
    there = printed("-m", "mindtorch", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests/facade/test_ms_style.py"), "-k", "not convert_files")
    assert " passed" in there and "failed" not in there
