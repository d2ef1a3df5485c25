"""A compiled call that is differentiated twice is re-executed in its original context: autocast and
the creation defaults.

The context in which the backward pass is called has no effect on the call.
"""
import contextlib
import subprocess
import sys

import numpy as np
import pytest
import torch as real
from torch.nn.attention import SDPBackend, sdpa_kernel

import mindtorch.torch as mine
from _both_sides import agree, plain

pytestmark = pytest.mark.usefixtures("forgotten_variants")
CALLS = 3


def cell(kind, gates):
    def f(T, x, h, *weights):
        r = getattr(T, kind)(x, (h, h * 0.5) if kind == "lstm_cell" else h, *weights)
        return T.cat([t.float() for t in r]) if isinstance(r, tuple) else r
    return f, [(2, 3), (2, 4), (gates * 4, 3), (gates * 4, 4), (gates * 4,), (gates * 4,)]


CASES = {
    "linear": (lambda T, x, w, b: T.nn.functional.linear(x, w, b), [(3, 4), (5, 4), (5,)]),
    "conv2d": (lambda T, x, w, b: T.nn.functional.conv2d(x, w, b, padding=1), [(2, 3, 5, 5), (4, 3, 3, 3), (4,)]),
    "conv_transpose1d": (lambda T, x, w, b: T.nn.functional.conv_transpose1d(x, w, b), [(2, 3, 4), (3, 4, 3), (4,)]),
    "matmul": (lambda T, x, w: x @ w, [(2, 3, 4), (4, 5)]),
    "baddbmm": (lambda T, c, x, w: T.baddbmm(c, x, w, alpha=0.5), [(2, 3, 5), (2, 3, 4), (2, 4, 5)]),
    "einsum": (lambda T, x, w: T.einsum("bij,bjk->bik", x, w), [(2, 3, 4), (2, 4, 5)]),
    "attention": (lambda T, q, k, v: T.nn.functional.scaled_dot_product_attention(q, k, v), [(2, 2, 4, 3)] * 3),
    "layer_norm": (lambda T, x, w, v, b: T.nn.functional.layer_norm(x @ w, (4,), v, b), [(3, 5), (5, 4), (4,), (4,)]),
    "lstm_cell": cell("lstm_cell", 4), "gru_cell": cell("gru_cell", 3), "rnn_tanh_cell": cell("rnn_tanh_cell", 1),
}


def twice(T, f, shapes, low, *, compiling=None, first=None, around=contextlib.nullcontext):
    """Returns results, gradients and second-order gradients of calls under autocast.

    first: the dtype of the first operand; around: context in which the backward passes are called
    """
    r = np.random.RandomState(1)
    xs = [T.from_numpy((r.randn(*s) * 0.5).astype("float32")) for s in shapes]
    xs = [(x.to(getattr(T, first)) if first and not i else x).requires_grad_() for i, x in enumerate(xs)]
    call, out = (compiling or (lambda g: g))(lambda *xs: f(T, *xs) * 1.5 + 0.25), []
    for _ in range(CALLS):
        with T.autocast("cpu", dtype=getattr(T, low)):
            y = call(*xs)
        with around():
            loss = (y.float() * T.linspace(0.5, 1.5, y.numel()).view(y.shape)).sum()
            gs = T.autograd.grad(loss, xs, create_graph=True)
            hs = T.autograd.grad(sum(g.float().square().sum() for g in gs), xs, allow_unused=True)
        out.append(plain([y, *gs, *[None if h is None else h for h in hs]]))
    return out


@pytest.mark.parametrize("low", ["bfloat16", "float16"])
@pytest.mark.parametrize("first", ["float32", "low"])
@pytest.mark.parametrize("name", CASES)
def test_double_backward_uses_the_calls_autocast(name, first, low, programs):
    f, shapes = CASES[name]
    first = low if first == "low" else None
    have = twice(mine, f, shapes, low, compiling=mine.compile, first=first)
    assert programs and programs[0].joint is not None, programs[0].reason
    agree(twice(mine, f, shapes, low, first=first), have)  # bitwise equal
    with sdpa_kernel(SDPBackend.MATH):  # PyTorch's other kernels have no double backward
        want = twice(real, f, shapes, low, first=first)
    near = {"bfloat16": 3e-2, "float16": 4e-3}[low]
    for a, b in zip(want[-1][1:], have[-1][1:], strict=True):
        agree(a, b, near, near * (1 if a is None else float(np.abs(a[1]).max())))


@pytest.mark.parametrize("name", ["linear", "gru_cell"])
def test_autocast_around_backward_is_ignored(name, programs):
    """An autocast region of another dtype around the backward pass does not affect the call."""
    f, shapes = CASES[name]

    def around():
        return mine.autocast("cpu", dtype=mine.float16)
    have = twice(mine, f, shapes, "bfloat16", compiling=mine.compile, around=around)
    assert programs[0].joint is not None
    agree(twice(mine, f, shapes, "bfloat16", around=around), have)


def test_reexecuted_first_backward_pass(programs):
    """Other results than expected receive gradients: the call is re-executed without create_graph.
    """
    def f(x, w):
        y = x @ w
        return y * 2, y.exp()
    out = []
    for call in (f, mine.compile(f)):
        for k in range(5):
            x, w = (mine.linspace(-1, 1, 12).view(s).requires_grad_() for s in ((3, 4), (4, 3)))
            with mine.autocast("cpu", dtype=mine.bfloat16):
                ys = call(x, w)
            ys[k % 2].sum().backward()
            out.append(plain([*ys, x.grad, w.grad]))
    assert programs[0].made
    for a, b in zip(out[:5], out[5:]):
        agree(a, b)


def test_the_default_dtype(programs):
    """A tensor created inside has the dtype that was the default during the call."""
    def run(T, compiling):
        def f(x):
            return x.double() * (T.ones(3) * 1e-30 * 1e-30) * 1e60 + x.sin()  # 0 in float32
        call, out = compiling(f), []
        for _ in range(CALLS):
            x = T.tensor([0.5, 1.0, -2.0], dtype=T.float32, requires_grad=True)
            T.set_default_dtype(T.float64)
            try:
                y = call(x)
            finally:
                T.set_default_dtype(T.float32)
            g, = T.autograd.grad(y.square().sum(), x, create_graph=True)
            out.append(plain([y, g, T.autograd.grad(g.square().sum(), x)[0], T.ones(1)]))
        return out
    have = run(mine, mine.compile)
    assert programs[0].joint is not None
    for a, b in zip(run(real, lambda f: f), have, strict=True):
        agree(a, b, 1e-6)


DEVICE = """
import mindtorch.torch as torch
f = lambda x: x * (torch.ones(3) + x).exp()
call, outs = torch.compile(f), []
for compiled in (False, True):
    for _ in range(3):
        x = torch.tensor([0.5, 1.0, -2.0], requires_grad=True)
        y = (call if compiled else f)(x)
    assert y.grad_fn.name() == ("CompiledFunctionBackward" if compiled else "MulBackward0")
    outs.append((x, y))
with torch.device("meta"):
    gs = [torch.autograd.grad(y.sum(), x, create_graph=True)[0] for x, y in outs]
    assert torch.ones(1).device.type == "meta"
hs = [torch.autograd.grad(g.sum(), x)[0] for g, (x, _) in zip(gs, outs)]
assert torch.equal(*gs) and torch.equal(*hs)
"""


def test_the_default_device():
    """A tensor created inside has the device that was the default during the call. Runs in a
    separate process: once there are tensors on other devices, calls run op by op."""
    r = subprocess.run([sys.executable, "-c", DEVICE], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr[-2000:]


def test_error_in_reexecution_restores_autocast(programs, monkeypatch):
    x, w = (mine.linspace(-1, 1, 12).view(s).requires_grad_() for s in ((3, 4), (4, 3)))
    call = mine.compile(lambda x, w: (x @ w).exp() * 2)
    for _ in range(CALLS):
        with mine.autocast("cpu", dtype=mine.bfloat16):
            y = call(x, w)

    def fails(*given):
        assert mine.is_autocast_enabled("cpu") and mine.get_autocast_dtype("cpu") is mine.bfloat16
        raise KeyError("made over")
    monkeypatch.setattr(programs[0].joint, "run_plainly", fails)
    with pytest.raises(KeyError, match="made over"):
        mine.autograd.grad(y.sum(), x, create_graph=True)
    assert not mine.is_autocast_enabled("cpu")
