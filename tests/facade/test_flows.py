"""MindSpore-style flows: each example of examples/flows runs in its own process, and every loss, gradient and updated weight of
every step is compared with real torch doing the same (here, in this process, from the same file common.py)."""
import importlib.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOWS = ROOT / "examples" / "flows"
TIGHT = 1e-4, 2e-5


def _common():
    spec = importlib.util.spec_from_file_location("flows_common", FLOWS / "common.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.torch is torch and hasattr(torch, "_C") and "mindspore" not in torch.__file__
    return module


common = _common()


def run(name, folder, *args):
    """Numbers that an example recorded, and what it printed."""
    record = folder / "record.npz"
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    p = subprocess.run([sys.executable, str(FLOWS / name), *args, f"--record={record}"], cwd=folder, env=env, text=True, capture_output=True,
                       timeout=110)
    assert p.returncode == 0, p.stderr[-3000:]
    with np.load(record) as z:
        return dict(z), p


def train(steps=5, seed=0, make=lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9), extra=None, before=None, amp=None, net=None,
          clip=None, batches=range(100)):
    """{name: number} as the examples record them, by real torch."""
    net = net or common.make_net(seed)
    optimizer = make(net.parameters())
    out = {}
    for i in range(steps):
        x, y = common.tensors(batches[i])
        if before:
            before(optimizer, i)
        with torch.autocast("cpu", amp or torch.bfloat16, enabled=amp is not None):
            logits = net(x)
            loss = torch.nn.functional.cross_entropy(logits, y)
            loss = loss if extra is None else loss + extra(logits)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        out[f"{i}/loss"] = loss.item()
        out.update({f"{i}/grad/{n}": p.grad.numpy().copy() for n, p in net.named_parameters()})
        out.update({f"{i}/weight/{n}": v.numpy().copy() for n, v in net.state_dict().items()})
    return out, net


def agree(got, want, prefix="", rtol=TIGHT[0], atol=TIGHT[1], grads=True):
    """Every number of `want` is in `got` and the same; the losses move, and all parameters."""
    for k, w in want.items():
        if "/grad/" in k and not grads:
            continue
        np.testing.assert_allclose(got[prefix + k], w, rtol=rtol, atol=atol, err_msg=prefix + k)
    steps = len([k for k in want if k.endswith("/loss")])
    assert steps >= 5 and np.ptp([want[f"{i}/loss"] for i in range(steps)]) > 1e-2
    for k in want:
        if k.startswith("0/weight/"):
            assert not np.array_equal(want[k], want[k.replace("0/", f"{steps - 1}/", 1)]), k


def test_flow_1_gradients_as_values(tmp_path):
    got, _ = run("flow1_value_and_grad.py", tmp_path)
    want, _ = train(make=lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, weight_decay=5e-4))
    agree(got, want)
    want, _ = train(seed=1, make=lambda ps: common.Lion(ps, lr=1e-3))
    for prefix in ("torch style ", "grads style "):
        # The sign of a gradient that is zero but for rounding (the bias before a BatchNorm) is chance.
        agree(got, {k: v for k, v in want.items() if "conv.bias" not in k and "running_mean" not in k}, prefix, atol=1e-4)


def test_flow_2_learning_rate(tmp_path):
    got, p = run("flow2_learning_rate.py", tmp_path)

    def linear(optimizer, i):
        optimizer.param_groups[0]["lr"] = 0.01 * (i + 1)

    def warm_up(optimizer, i):
        optimizer.param_groups[0]["lr"] = 64 ** -0.5 * min((i + 1) ** -0.5, (i + 1) * 3 ** -1.5)
    agree(got, train(before=linear)[0], "eager ")
    want, _ = train(make=lambda ps: torch.optim.Adam(ps, lr=0.01), before=warm_up)
    # Adam makes a whole step of a gradient that is zero but for rounding (the bias before a BatchNorm, which takes it away again).
    agree(got, {k: v for k, v in want.items() if "conv.bias" not in k and "running_mean" not in k}, "graph ", 1e-3, 2e-4)
    assert "lr is 0.01\n" in p.stdout


@pytest.mark.slow
def test_flow_3_mixed_precision(tmp_path):
    got, _ = run("flow3_mixed_precision.py", tmp_path)
    # In half precision a last digit is 4e-3 (bfloat16) or 5e-4 (float16); rounding differs where sums are ordered differently.
    for prefix, dtype, tol in (("bfloat16 ", torch.bfloat16, 3e-2), ("float16 ", torch.float16, 5e-3)):
        want, _ = train(amp=dtype, clip=1.0)
        agree(got, want, prefix, rtol=tol, atol=tol)
        assert got[prefix + "scale"] == 2.0 ** 12       # grown twice in five steps
    full, _ = train(clip=1.0)
    for level in ("O2", "O3"):
        agree(got, full, level + " ", rtol=2e-2, atol=2e-2)
        assert max(abs(got[f"{level} {i}/loss"] - full[f"{i}/loss"]) for i in range(5)) > 1e-6       # it is half precision


@pytest.mark.slow
def test_flow_4_model_api(tmp_path):
    got, p = run("flow4_model_api.py", tmp_path)
    want, net = train(make=lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, weight_decay=5e-4))
    agree(got, want, grads=False)
    assert "epoch: 1 step: 5, loss is" in p.stdout and "per step time" in p.stdout
    net.eval()
    x, y = (torch.cat(t) for t in zip(*(common.tensors(i) for i in range(5))))
    assert got["accuracy"] == pytest.approx((net(x).argmax(1) == y).float().mean().item())


@pytest.mark.parametrize("args, lr, momentum, mode", [
    pytest.param([], 0.05, 0.9, 1, marks=pytest.mark.slow, id="file"),
    pytest.param(["--lr", "0.1", "--context_mode", "graph", "--optimizer.momentum=0.8"], 0.1, 0.8, 0, id="overrides")])
def test_flow_5_config(args, lr, momentum, mode, tmp_path):
    pytest.importorskip("jsonargparse")
    got, _ = run("flow5_config.py", tmp_path, *args)
    assert (got["lr"], got["momentum"], got["mode"]) == (lr, momentum, mode)
    want, _ = train(seed=1, make=lambda ps: torch.optim.SGD(ps, lr=lr, momentum=momentum, weight_decay=5e-4))
    agree(got, want)


def test_flow_6_trainer(tmp_path):
    got, _ = run("flow6_trainer.py", tmp_path)
    penalty = lambda logits: 0.01 * (logits * logits).mean()  # noqa: E731
    want, net = train(10, extra=penalty, batches=[*range(5)] * 2)
    agree(got, want, rtol=1e-3, atol=1e-4)
    net.eval()
    x, y = (torch.cat(t) for t in zip(*(common.tensors(i) for i in range(5))))
    assert got["accuracy1"] == pytest.approx((net(x).argmax(1) == y).float().mean().item())


@pytest.mark.slow
def test_flow_8_export(tmp_path):
    got, _ = run("flow8_export.py", tmp_path)
    want, net = train()
    agree(got, want)
    net.eval()
    x, _ = common.tensors(9, size=3)
    with torch.no_grad():
        y = net(x).numpy()
    assert set(got) >= {"eager", "mindir", "jit"}
    for name in ("eager", "mindir", "jit", "onnx"):
        if name in got:
            np.testing.assert_allclose(got[name], y, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_flow_9_graph_mode(tmp_path):
    got, p = run("flow9_graph_mode.py", tmp_path)
    want, net = train()
    for prefix in ("pynative ", "graph "):
        agree(got, want, prefix)
    assert "runs eagerly instead of as a compiled graph" in p.stderr
    net.eval()
    with torch.no_grad():
        y = net(common.tensors(9)[0]).numpy()
    np.testing.assert_allclose(got["eager"], y, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(got["compiled"], y, rtol=1e-3, atol=1e-4)
