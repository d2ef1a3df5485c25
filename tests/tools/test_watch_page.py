"""The page of `watch`: the losses and gradients of the run by step, for mindtorch and PyTorch;
arbitrary names."""
import re

import numpy as np
import pytest
import torch as real
from test_svg import read, sound, ticks

import mindtorch.torch as mine
from mindtorch.tools import watch

SIDES = pytest.mark.parametrize("T", [mine, real], ids=["mindtorch", "torch"])


def trained(T, n=12, said=None, **options):
    """Returns (the watch, losses, norms) of a small run whose last two steps have a NaN loss."""
    T.manual_seed(3)
    model = T.nn.Sequential(T.nn.Linear(4, 8), T.nn.Tanh(), T.nn.Linear(8, 1))
    opt = T.optim.SGD(model.parameters(), lr=0.05)
    x, losses, norms = T.from_numpy(np.random.RandomState(0).randn(6, 4).astype("float32")), [], []
    with watch(model, opt, on_finding=None, **options) as w:
        for i in range(n):
            loss = (model(x) - 1).square().mean() * (float("nan") if i >= n - 2 else 1.0)
            opt.zero_grad()
            (loss * 8 if said else loss).backward()
            if said:
                said(w, loss)
            losses.append(loss.item())
            norms.append(sum(float((p.grad.double() ** 2).sum()) for p in model.parameters()) ** 0.5)
            opt.step()
    return w, losses, norms


@SIDES
def test_history_matches_the_run(T):
    backward = T.Tensor.backward
    w, losses, norms = trained(T)
    assert T.Tensor.backward is backward
    assert [h[0] for h in w.history] == list(range(12))
    np.testing.assert_allclose([h[1] for h in w.history], losses, rtol=1e-6)
    np.testing.assert_allclose([h[2] for h in w.history], norms, rtol=1e-5)
    for *_, norm, least, largest in w.history[:10]:
        assert 0 < least <= largest <= norm <= 2 * largest


def test_both_libraries_have_the_same_curves():
    a, b = (np.array(trained(T)[0].history, float) for T in (mine, real))
    np.testing.assert_allclose(a, b, rtol=1e-4)


@SIDES
def test_loss_can_be_passed_explicitly(T):
    w, losses, _ = trained(T, said=lambda w, loss: w.loss(loss))
    np.testing.assert_allclose([h[1] for h in w.history], losses, rtol=1e-6)
    w, losses, _ = trained(T, said=lambda w, loss: w.loss(loss.item()), every=5)
    assert [h[0] for h in w.history] == [0, 5, 10]
    np.testing.assert_allclose([h[1] for h in w.history], losses[::5], rtol=1e-6)


@SIDES
def test_several_watches_end_in_any_order(T):
    backward = T.Tensor.backward
    models = [T.nn.Linear(2, 1), T.nn.Linear(2, 1)]
    first, second = (watch(m, on_finding=None) for m in models)
    first.start()
    second.start()
    for k, (m, w) in enumerate(zip(models, (first, second))):
        (m(T.ones(1, 2)).sum() * 0 + k).backward()
        w.step_end()
    first.stop()
    assert T.Tensor.backward is not backward
    second.stop()
    assert T.Tensor.backward is backward and [w.history[0][1] for w in (first, second)] == [0.0, 1.0]


@SIDES
def test_gradients_beyond_the_range_of_their_squares(T):
    p = T.nn.Parameter(T.zeros(2))
    model = T.nn.ParameterList([p])
    with watch(model, on_finding=None) as w:
        for g in ([3e30, 4e30], [3e-30, 4e-30], [0.0, 0.0], [float("inf"), 1.0]):
            p.grad = T.tensor(g)
            w.step_end()
    norms = [h[2] for h in w.history]
    np.testing.assert_allclose(norms, [5e30, 5e-30, 0.0, np.inf], rtol=1e-5)
    assert all(np.isnan(h[1]) for h in w.history)  # no loss was passed


def test_the_page(tmp_path):
    w, losses, norms = trained(mine)
    w.findings.insert(0, {"kind": "overflow", "name": "<script>alert(1)</script>&\x00", "step": 4, "text": "step 4: <b>&\ud800"})
    w.save(tmp_path / "watch.html")
    text = (tmp_path / "watch.html").read_text("utf-8")
    assert "<script" not in text and "<b>" not in text and "http" not in text and "&lt;script&gt;" in text
    loss, gradients = (sound(svg) for svg in re.findall("<svg.*?</svg>", text, re.S))
    for drawn, name, want, log in ((loss, "loss", losses, False), (gradients, "all parameters", norms, True)):
        values, steps = ticks(drawn, "end"), ticks(drawn, "middle")
        dots = [e for e in drawn.iter("circle") if e.find("title").text.startswith(name)]
        assert len(dots) == 10
        for dot, value, i in zip(dots, want, range(10)):
            assert read(float(dot.get("cx")), steps, False) == pytest.approx(i, abs=0.02)
            assert read(float(dot.get("cy")), values, log) == pytest.approx(value, rel=0.03)
        # NaN values: crosses
        assert len([e for e in drawn.iter("path") if e.find("title").text.startswith(name)]) == 2
    marks = [e for e in loss.iter("line") if "different" in e.get("stroke", "")]
    assert [round(read(float(e.get("x1")), ticks(loss, "middle"), False)) for e in marks][:2] == [4, 10]


def test_page_without_data_and_with_a_long_history(tmp_path, monkeypatch):
    from mindtorch.tools import _training_monitor
    model = mine.nn.Linear(1, 1)
    w = watch(model)
    w.save(tmp_path / "none.html")
    assert "Nothing was found." in (tmp_path / "none.html").read_text("utf-8")
    monkeypatch.setattr(_training_monitor, "MOST_STEPS", 20)
    with watch(model, on_finding=None, patience=10**6) as w:
        for _ in range(200):
            model.weight.grad = mine.ones(1, 1)
            w.step_end()
    steps = [h[0] for h in w.history]
    assert len(steps) <= 20 and steps == sorted(set(steps)) and steps[-1] == 199 and steps[0] == 0
