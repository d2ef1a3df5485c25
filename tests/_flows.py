"""References for the example flows: real PyTorch computes every loss, gradient and updated weight
with the same common.py.

A check receives the values that an example recorded, its output and its warnings.
"""
import importlib.util
import pathlib

import numpy as np
import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
FLOWS = ROOT / "examples" / "flows"
TIGHT = 1e-4, 2e-5


def _common():
    spec = importlib.util.spec_from_file_location("flows_common", FLOWS / "common.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.torch is torch and hasattr(torch, "_C") and "mindspore" not in torch.__file__
    return module


common = _common()


def train(steps=5, seed=0, make=lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9), extra=None, before=None, amp=None, net=None,
          clip=None, batches=range(100)):
    """Returns {name: value} as the examples record them, computed by real PyTorch."""
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
    """Checks that `got` has every value of `want`, within tolerance.

    Also checks that the losses change, as do all parameters that have a gradient.
    """
    for k, w in want.items():
        if "/grad/" in k and not grads:
            continue
        np.testing.assert_allclose(got[prefix + k], w, rtol=rtol, atol=atol, err_msg=prefix + k)
    steps = len([k for k in want if k.endswith("/loss")])
    assert steps >= 5 and np.ptp([want[f"{i}/loss"] for i in range(steps)]) > 1e-2
    for k in want:
        # conv.bias precedes the batch norm: its gradient is only rounding and may be zero
        if k.startswith("0/weight/") and k != "0/weight/conv.bias":
            assert not np.array_equal(want[k], want[k.replace("0/", f"{steps - 1}/", 1)]), k


def flow1_value_and_grad(got, printed, warned):
    want, _ = train(make=lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, weight_decay=5e-4))
    agree(got, want)
    want, _ = train(seed=1, make=lambda ps: common.Lion(ps, lr=1e-3))
    for prefix in ("torch style ", "grads style "):
        # conv.bias precedes a BatchNorm: its gradient is zero except for rounding, so its sign is
        # arbitrary.
        agree(got, {k: v for k, v in want.items() if "conv.bias" not in k and "running_mean" not in k}, prefix, atol=1e-4)


def flow2_learning_rate(got, printed, warned):
    def linear(optimizer, i):
        optimizer.param_groups[0]["lr"] = 0.01 * (i + 1)

    def warm_up(optimizer, i):
        optimizer.param_groups[0]["lr"] = 64 ** -0.5 * min((i + 1) ** -0.5, (i + 1) * 3 ** -1.5)
    agree(got, train(before=linear)[0], "eager ")
    want, _ = train(make=lambda ps: torch.optim.Adam(ps, lr=0.01), before=warm_up)
    # Adam takes a full-size step for a gradient that is zero except for rounding (the bias before a
    # BatchNorm, which cancels it).
    agree(got, {k: v for k, v in want.items() if "conv.bias" not in k and "running_mean" not in k}, "graph ", 1e-3, 2e-4)
    assert "lr is 0.01\n" in printed


def flow3_mixed_precision(got, printed, warned):
    # One ulp is 4e-3 (bfloat16) or 5e-4 (float16) relative; rounding depends on the summation
    # order.
    for prefix, dtype, tol in (("bfloat16 ", torch.bfloat16, 3e-2), ("float16 ", torch.float16, 5e-3)):
        want, _ = train(amp=dtype, clip=1.0)
        agree(got, want, prefix, rtol=tol, atol=tol)
        assert got[prefix + "scale"] == 2.0 ** 12  # grown twice in five steps
    full, _ = train(clip=1.0)
    for level in ("O2", "O3"):
        agree(got, full, level + " ", rtol=2e-2, atol=2e-2)
        # proves that half precision was used
        assert max(abs(got[f"{level} {i}/loss"] - full[f"{i}/loss"]) for i in range(5)) > 1e-6


def flow4_model_api(got, printed, warned):
    want, net = train(make=lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, weight_decay=5e-4))
    agree(got, want, grads=False)
    assert "epoch: 1 step: 5, loss is" in printed and "per step time" in printed
    net.eval()
    x, y = (torch.cat(t) for t in zip(*(common.tensors(i) for i in range(5))))
    assert got["accuracy"] == pytest.approx((net(x).argmax(1) == y).float().mean().item())


def flow5_config(got, printed, warned, lr=0.05, momentum=0.9, mode=1):
    assert (got["lr"], got["momentum"], got["mode"]) == (lr, momentum, mode)
    want, _ = train(seed=1, make=lambda ps: torch.optim.SGD(ps, lr=lr, momentum=momentum, weight_decay=5e-4))
    agree(got, want)


def flow6_trainer(got, printed, warned):
    want, net = train(10, extra=lambda logits: 0.01 * (logits * logits).mean(), batches=[*range(5)] * 2)
    agree(got, want, rtol=1e-3, atol=1e-4)
    net.eval()
    x, y = (torch.cat(t) for t in zip(*(common.tensors(i) for i in range(5))))
    assert got["accuracy1"] == pytest.approx((net(x).argmax(1) == y).float().mean().item())


def flow8_export(got, printed, warned):
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


def flow9_graph_mode(got, printed, warned, compiled=False):
    want, net = train()
    for prefix in ("pynative ", "graph "):
        agree(got, want, prefix)
    # on the npu device the model is compiled
    assert ("runs eagerly instead of as a compiled graph" in warned) is not compiled
    net.eval()
    with torch.no_grad():
        y = net(common.tensors(9)[0]).numpy()
    np.testing.assert_allclose(got["eager"], y, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(got["compiled"], y, rtol=1e-3, atol=1e-4)
