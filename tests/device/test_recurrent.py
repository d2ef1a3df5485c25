"""Recurrent layers on the npu device compared with the CPU: values and gradients, without host
fallbacks."""
import numpy as np
import pytest

import mindtorch.torch as mt
from mindtorch.core.device import device_dispatch


def R(*sizes, seed=0):
    return mt.from_numpy(np.random.default_rng(sum(sizes) + seed).standard_normal(sizes).astype(np.float32) * 0.5)


def ran(net, device, x, h, grads=True):
    net = net.to(device)
    x, h = x.to(device).requires_grad_(), h if h is None else h.to(device).requires_grad_()
    y, last = net(x, h)
    if not grads:
        return [y, last]
    (y * R(*y.shape, seed=1).to(device).to(y.dtype)).sum().add((last * R(*last.shape, seed=2).to(device).to(y.dtype)).sum()).backward()
    found = [y, last, x.grad, h.grad] + [p.grad for p in net.parameters()]
    net.zero_grad()
    return found


def same(npu, net, x, h, tol=2e-5):
    before = dict(device_dispatch.FALLBACKS)
    got = ran(net, npu, x, h)
    assert device_dispatch.FALLBACKS == before
    want = ran(net, "cpu", x, h)
    for g, w in zip(got, want, strict=True):
        assert g.device.type == "npu" and g.dtype == w.dtype and g.shape == w.shape
        g, w = g.detach().cpu().float().numpy(), w.detach().float().numpy()
        np.testing.assert_allclose(g, w, rtol=tol, atol=tol * max(1, np.abs(w).max()))


@pytest.mark.parametrize("steps, batch, inputs, hidden", [(5, 3, 4, 6), (1, 1, 1, 1), (3, 1, 2, 5), (2, 4, 3, 1)])
@pytest.mark.parametrize("kind, kw", [("GRU", {}), ("RNN", {}), ("RNN", {"nonlinearity": "relu"})])
def test_layers(npu, kind, kw, steps, batch, inputs, hidden):
    for more in ({"num_layers": 2, "bidirectional": True}, {"bias": False}, {"batch_first": True}):
        net = getattr(mt.nn, kind)(inputs, hidden, **kw, **more)
        count = 4 if "num_layers" in more else 1
        x = R(batch, steps, inputs) if "batch_first" in more else R(steps, batch, inputs)
        same(npu, net, x, R(count, batch, hidden))
    same(npu, getattr(mt.nn, kind)(inputs, hidden, **kw), R(steps, inputs), R(1, hidden))


@pytest.mark.parametrize("kind", ["GRU", "RNN"])
def test_other_dtypes(npu, kind):
    for dtype, tol in ((mt.float64, 1e-10), (mt.bfloat16, 0.05)):
        net = getattr(mt.nn, kind)(4, 3).to(dtype)
        same(npu, net, R(5, 2, 4).to(dtype), R(1, 2, 3).to(dtype), tol)


@pytest.mark.parametrize("kind", ["GRUCell", "RNNCell"])
def test_cells(npu, kind):
    net = getattr(mt.nn, kind)(4, 3)
    found = []
    for device in (npu, "cpu"):
        net = net.to(device)
        x, h = R(2, 4).to(device).requires_grad_(), R(2, 3).to(device).requires_grad_()
        for _ in range(3):
            h = net(x, h)
        found.append([h, *mt.autograd.grad(h.sum(), [x, *net.parameters()])])
    for g, w in zip(*found, strict=True):
        np.testing.assert_allclose(g.detach().cpu().numpy(), w.detach().numpy(), rtol=2e-5, atol=2e-5)


def test_second_gradients_and_sequences_of_several_lengths(npu):
    found = []
    net, x = mt.nn.GRU(3, 4), R(4, 2, 3)
    for device in (npu, "cpu"):
        net = net.to(device)
        a = x.to(device).requires_grad_()
        first, = mt.autograd.grad(net(a)[0].square().sum(), a, create_graph=True)
        second, = mt.autograd.grad(first.square().sum(), a)
        packed = mt.nn.utils.rnn.pack_padded_sequence(a, [4, 2])
        y, _ = mt.nn.utils.rnn.pad_packed_sequence(net(packed)[0])
        third, = mt.autograd.grad(y.sum(), a)
        found.append((second, y, third))
    for g, w in zip(*found, strict=True):
        np.testing.assert_allclose(g.detach().cpu().numpy(), w.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_inverse_of_the_error_function(npu):
    x = np.concatenate([np.linspace(-1, 1, 2001), [0.0, -0.0, 1e-30, 1 - 6e-8, -1 + 6e-8, 2, np.nan]]).astype(np.float32)
    before = dict(device_dispatch.FALLBACKS)
    got = mt.from_numpy(x).to(npu).erfinv()
    assert device_dispatch.FALLBACKS == before
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got.cpu().numpy(), mt.from_numpy(x).erfinv().numpy(), rtol=2e-6)
