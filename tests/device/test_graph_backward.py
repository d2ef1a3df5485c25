"""Backward passes outside of compiled calls: those through a compiled forward are compiled, all
others run unchanged."""
import gc

import numpy as np
import pytest

import mindtorch.torch as torch
from mindtorch.core.compile import replay

pytestmark = pytest.mark.usefixtures("npu")
F = torch.nn.functional


def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).to("npu")


def train(model, forward, other=None, steps=6):
    optimizer, losses, eager = torch.optim.SGD(model.parameters(), lr=0.1), [], []
    for i in range(steps):
        x, y = torch.full((4, 6), 0.1 * i + 0.1).to("npu"), torch.tensor([0, 1, 2, 1]).to("npu")
        optimizer.zero_grad()
        F.cross_entropy(forward(x), y).backward()
        if other is not None:
            before = replay.counters.copy()
            F.mse_loss(other(x), torch.ones(4, 3).to("npu")).backward()
            eager.append(replay.counters == before)
        optimizer.step()
        losses.append(F.cross_entropy(model(x), y).item())
    return losses, eager


def test_backward_of_a_compiled_module_is_compiled():
    """Losses match the eager run, and each step runs two graphs: forward and backward."""
    m = network(0)
    expected, _ = train(m, m)
    m = network(0)
    before = replay.counters.copy()
    losses, _ = train(m, torch.compile(m))
    assert losses == pytest.approx(expected, rel=1e-6)
    assert replay.counters["graph_runs"] - before["graph_runs"] >= 2 * 3


def test_other_backward_passes_run_eagerly():
    m = network(0)
    _, eager = train(m, torch.compile(m), network(1))
    assert all(eager)


def test_deleted_compiled_functions_are_freed():
    """MindSpore caches compiled graphs, and the weights in them, until they are released
    explicitly."""
    from mindspore.graph import api
    before = len(api.ms_compile_cache)
    for i in range(4):
        w = torch.ones(3, 3).to("npu")
        f = torch.compile(lambda x, w=w, k=i: torch.tanh(x @ w) + float(k), backend="mindspore")
        for _ in range(3):
            f(torch.ones(2, 3).to("npu"))
        del f, w
        gc.collect()  # a compiled callable and its trace reference each other
    assert len(api.ms_compile_cache) <= before + 2


def test_outside_backward_finds_saved_kernel_tensors(npu):
    """MindSpore's LSTM attaches tensors to a result. A backward pass outside of the compiled call
    finds them."""
    cell = torch.nn.LSTMCell(5, 4).to(npu)
    compiled = torch.compile(cell, backend="mindspore")
    for _ in range(5):
        x, grads = torch.randn(3, 5, device=npu), []
        for f in (compiled, cell):
            cell.zero_grad()
            h, c = f(x)
            (h * 2 + c * c).sum().backward()
            grads.append([p.grad.cpu().numpy() for p in cell.parameters()])
        for a, b in zip(*grads, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
