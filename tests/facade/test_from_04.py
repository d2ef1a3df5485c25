"""Compatibility with scripts for mindtorch 0.4: its names, and MindSpore-style training loops.
Clipping is compared with PyTorch."""
import subprocess
import sys
import textwrap

import mindspore as ms
import numpy as np
import pytest
import torch as real

import mindtorch.torch as torch
from mindtorch.tools._api_scan import Facts, scan


def test_importing_conversions_keeps_torch_tensor_callable():
    before = torch.tensor
    from mindtorch.torch.tensor import Tensor, cast_to_adapter_tensor, cast_to_ms_tensor
    import mindtorch.torch.tensor  # noqa: F401
    assert torch.tensor is before and Tensor is torch.Tensor and torch.tensor([1, 2]).tolist() == [1, 2]
    assert torch.cast_to_adapter_tensor is cast_to_adapter_tensor and torch.cast_to_ms_tensor is cast_to_ms_tensor
    x = torch.ones(2)
    native = cast_to_ms_tensor({"a": [x, (x, 3)]})
    assert type(native["a"][0]) is ms.Tensor and type(native["a"][1][0]) is ms.Tensor and native["a"][1][1] == 3
    back = cast_to_adapter_tensor(native)["a"][0]
    assert isinstance(back, torch.Tensor)
    back.add_(1)
    assert x.tolist() == [2, 2]


@pytest.mark.parametrize("lines", [
    "from mindtorch.tools import mstorch_enable\nimport torch\nf = torch.tensor\nfrom mindtorch.torch.tensor import cast_to_ms_tensor\nfrom torch.tensor import cast_to_adapter_tensor\nassert torch.tensor is f",
    "from mindtorch.torch.tensor import cast_to_ms_tensor\nfrom mindtorch.tools import mstorch_enable\nimport torch, pickle\nassert pickle.loads(pickle.dumps(torch.tensor)) is torch.tensor"])
def test_conversions_under_the_hook(lines):
    code = lines + "\nassert torch.tensor([1.]).tolist() == [1.0] and torch.tensor.__name__ == 'tensor'\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", [2.0, 1.0, float("inf")])
@pytest.mark.parametrize("native", [False, True])
def test_clipping_of_given_gradients(kind, native):
    rs = np.random.RandomState(0)
    arrays = [rs.randn(3, 2).astype(np.float32) * 3, rs.randn(4).astype(np.float32)]
    ps = [real.nn.Parameter(real.zeros(a.shape)) for a in arrays]
    for p, a in zip(ps, arrays):
        p.grad = real.tensor(a)
    want = real.nn.utils.clip_grad_norm_(ps, 1.5, kind)
    make = ms.Tensor if native else torch.tensor
    grads = (make(arrays[0].copy()), None, make(arrays[1].copy()))
    mine = [torch.nn.Parameter(torch.zeros(*a.shape)) for a in arrays]
    got = torch.nn.utils.clip_grad_norm_(mine, 1.5, kind, grads=grads)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)
    for g, p, q in zip((grads[0], grads[2]), ps, mine):
        np.testing.assert_allclose(np.asarray(g), p.grad.numpy(), rtol=1e-5)
        assert q.grad is None
    assert torch.nn.utils.clip_grad_norm_(grads=grads[:1], max_norm=0.5) > 0
    torch.nn.utils.clip_grad_value_(grads=[grads[2]], clip_value=0.1)
    np.testing.assert_allclose(np.asarray(grads[2]), np.clip(ps[1].grad.numpy(), -0.1, 0.1), rtol=1e-5)
    for T in (real, torch):
        for call in (lambda: T.nn.utils.clip_grad_norm_(ps if T is real else mine), lambda: T.nn.utils.clip_grad_norm_(max_norm=1.0), lambda: T.nn.utils.clip_grad_value_(clip_value=1.0)):
            with pytest.raises(TypeError):
                call()
    with pytest.raises(TypeError):
        torch.nn.utils.clip_grad_norm_(grads=[1.0], max_norm=1.0)


def test_training_loop_of_04_matches_torch():
    weights = np.random.RandomState(1).randn(2, 3).astype(np.float32)
    x, y = np.random.RandomState(2).randn(8, 3).astype(np.float32), np.random.RandomState(3).randn(8, 2).astype(np.float32)
    losses = []
    net = real.nn.Linear(3, 2)
    with real.no_grad():
        net.weight.copy_(real.tensor(weights))
        net.bias.zero_()
    opt = real.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        opt.zero_grad()
        loss = real.nn.functional.mse_loss(net(real.tensor(x)), real.tensor(y))
        loss.backward()
        real.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        losses.append(loss.item())

    from mindtorch.torch.tensor import cast_to_adapter_tensor
    net = torch.nn.Linear(3, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor(weights))
        net.bias.zero_()
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    def forward(data, label):
        logits = cast_to_adapter_tensor(net(data))
        return scaler.scale(torch.nn.functional.mse_loss(logits, label))
    grad_fn = ms.value_and_grad(forward, None, opt.parameters)
    for want in losses:
        loss, grads = grad_fn(torch.tensor(x), torch.tensor(y))
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5, grads=grads)
        scaler.step(opt, grads)
        scaler.update()
        np.testing.assert_allclose(float(loss), want, rtol=1e-5)
        assert float(opt.param_groups[0]["lr"]) == 0.1


def test_mixed_precision_under_its_old_name():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    x = torch.randn(5, 4)
    want = net.eval()(x)
    half = torch.amp.auto_mixed_precision(net, "O2")
    got = half(x)
    assert isinstance(got, torch.Tensor) and got.dtype is torch.float32 and not torch.equal(got, want)
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), atol=2e-2)
    with pytest.raises(ValueError):
        torch.amp.auto_mixed_precision(net, "O7")


def test_context_conditions_of_04():
    from mindtorch.utils import (get_backend, graph_mode_condition, is_under_ascend_context, is_under_cpu_context, is_under_gpu_context, pynative_mode_condition,
                                 unsupported_attr)
    assert get_backend() == ms.get_context("device_target")
    assert [is_under_cpu_context(), is_under_ascend_context(), is_under_gpu_context()].count(True) == 1
    mode = ms.get_context("mode")
    try:
        for m in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
            ms.set_context(mode=m)
            assert graph_mode_condition() is (m == ms.GRAPH_MODE) and pynative_mode_condition() is (m == ms.PYNATIVE_MODE)
    finally:
        ms.set_context(mode=mode)
    assert unsupported_attr(3) is None


def test_scan_reports_lines_to_change(tmp_path):
    path = tmp_path / "old.py"
    path.write_text(textwrap.dedent("""\
        import mindtorch.torch as torch
        from mindtorch.torch.tensor import cast_to_adapter_tensor
        from mindtorch.utils import get_backend
        from mindtorch.torch.logging import warning
        from mindtorch.module_hooker import torch_enable
        import mindtorch.torchvision
        from mindtorch.tools import debug_layer_info
        torch.nn.utils.clip_grad_norm_([], 1.0, grads=[])
        torch.amp.auto_mixed_precision(None, "O2")
        torch.cast_to_ms_tensor(1)
        """))
    bad = [(f.line, f.instead) for f in scan([str(path)], Facts())[0] if f.verdict != "supported"]
    assert [line for line, _ in bad] == [4, 5, 6] and all(instead for _, instead in bad)


def test_scan_finds_conversions_without_importing_them(tmp_path):
    path = tmp_path / "old.py"
    path.write_text("from mindtorch.torch.tensor import cast_to_ms_tensor, cast_to_nowhere\n")
    got = subprocess.run([sys.executable, "-m", "mindtorch", "scan", str(path)], capture_output=True, text=True)
    assert got.returncode == 1 and "cast_to_ms_tensor: supported" in got.stdout and "cast_to_nowhere: UNSUPPORTED" in got.stdout
