"""MindSpore's own functions on tensors and modules of the npu device: results match the same code
on the CPU device."""
import mindspore as ms
import numpy as np
import pytest

import mindtorch.torch as mt
from mindtorch.torch import nn

F = nn.functional


def net(device):
    mt.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).to(device)


def batch(device):
    rng = np.random.RandomState(0)
    return (mt.from_numpy(rng.randn(5, 6).astype(np.float32)).to(device), mt.from_numpy(rng.randint(0, 3, 5)).to(device))


def values(t):
    return t.detach().cpu().numpy() if isinstance(t, mt.Tensor) and hasattr(type(t), "_is_mindtorch_tensor") else t.asnumpy()


def same(a, b):
    np.testing.assert_allclose(values(a), values(b), rtol=2e-5, atol=2e-6)


def test_mindspore_ops_accept_and_return_npu_tensors(npu):
    x = mt.arange(12.0).reshape(3, 4).to(npu)
    for t in (x, x.t(), x[1:, ::2]):
        same(ms.ops.exp(t), t.exp())
        same(ms.mint.sum(t), t.sum())
        np.testing.assert_array_equal(t.asnumpy(), t.cpu().numpy())
    y = ms.ops.add(x, 1)
    assert mt.sum(y).device == npu and (y + x).device == npu
    same(mt.cat([y, x]), mt.cat([x + 1, x]))


def test_backward_through_a_mindspore_op(npu):
    got = []
    for device in ("cpu", npu):
        x, _ = batch(device)
        w = mt.ones(6, 2, device=device, requires_grad=True)
        v = (w * 0.5).clone()
        (ms.ops.exp(ms.ops.MatMul()(x, v)) * 2).sum().backward()
        got.append(w.grad)
    assert got[1].device == npu
    same(*got)


def test_functional_gradients(npu):
    got = []
    for device in ("cpu", npu):
        m, (x, y) = net(device), batch(device)
        f = ms.value_and_grad(lambda x, y: F.cross_entropy(m(x), y), 0, list(m.parameters()))
        loss, (gx, gs) = f(x, y)
        got.append([loss, gx, *gs, *m.buffers()])
    for a, b in zip(*got):
        same(a, b)


@pytest.mark.parametrize("make", [lambda p: ms.nn.SGD(p, 0.1), lambda p: ms.nn.Momentum(p, 0.1, 0.9), lambda p: ms.nn.Adam(p, 0.01), lambda p: ms.nn.AdamWeightDecay(p, 0.01)])
def test_optimizers(npu, make):
    got = []
    for device in ("cpu", npu):
        m, (x, y) = net(device), batch(device)
        f = ms.value_and_grad(lambda x, y: F.cross_entropy(m(x), y), None, list(m.parameters()))
        opt, losses = make(list(m.parameters())), []
        for _ in range(3):
            loss, gs = f(x, y)
            opt(gs)
            losses.append(float(loss))
        assert losses[2] < losses[0]
        before = m[0].weight._version
        opt(gs)
        assert m[0].weight._version > before
        got.append([mt.tensor(losses), *m.parameters()])
    for a, b in zip(*got):
        same(a, b)


def test_model_trains_and_predicts(npu):
    got = []
    for device in ("cpu", npu):
        m = net(device)
        rng = np.random.RandomState(1)
        rows = [(rng.randn(6).astype(np.float32), np.int32(i % 3)) for i in range(12)]
        data = ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(4)
        model = ms.Model(m, loss_fn=ms.nn.CrossEntropyLoss(), optimizer=ms.nn.Momentum(m.trainable_params(), 0.1, 0.9), metrics={"loss"})
        model.train(2, data, dataset_sink_mode=False)
        got.append([mt.tensor(model.eval(data, dataset_sink_mode=False)["loss"]), model.predict(ms.Tensor(rows[0][0][None])), *m.parameters()])
    for a, b in zip(*got):
        same(a, b)


def test_cells_around_and_inside_modules(npu):
    class Around(ms.nn.Cell):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.act = inner, ms.nn.Tanh()

        def construct(self, x):
            return self.act(self.inner(x))

    got = []
    for device in ("cpu", npu):
        m, (x, _) = nn.Sequential(net(device), ms.nn.Tanh(), nn.Linear(3, 2).to(device)), batch(device)
        for p in m.parameters():
            p.data.fill_(0.1)
        m(x).sum().backward()
        got.append([Around(m)(x), m[0][0].weight.grad])
    for a, b in zip(*got):
        same(a, b)


def test_writes_by_mindspore(npu):
    p = nn.Parameter(mt.ones(2, 3).to(npu))
    view = p.data[0]
    at = p._version
    ms.ops.assign(p, ms.Tensor(np.full((2, 3), 4, np.float32)))
    assert p._version > at and view.tolist() == [4, 4, 4]
    p.set_data(ms.Tensor(np.full((2, 3), 5, np.float32)))
    assert view.tolist() == [5, 5, 5] and p.tolist() == [[5, 5, 5]] * 2
    y = (p * p).sum()
    ms.ops.assign(p, ms.Tensor(np.zeros((2, 3), np.float32)))
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.backward()


def test_checkpoints(npu, tmp_path):
    m, other = net(npu), net(npu)
    for p in other.parameters():
        p.data.zero_()
    ms.save_checkpoint(m, str(tmp_path / "a.ckpt"))
    ms.load_param_into_net(other, ms.load_checkpoint(str(tmp_path / "a.ckpt")))
    for a, b in zip(m.parameters(), other.parameters()):
        same(a, b)
        assert b.device == npu
    x, _ = batch(npu)
    same(m.eval()(x), other.eval()(x))


def test_mindspore_optimizers_update_any_parameter(npu):
    for make in (lambda: mt.randn(2, 3, device=npu), lambda: mt.ones(6, device=npu).view(2, 3), lambda: mt.ones(3, 3, device=npu)[1:]):
        m = mt.nn.Linear(3, 2, device=npu)
        m.weight = mt.nn.Parameter(make())
        before = m.weight.detach().cpu().clone()
        ms.nn.Momentum([m.weight], 0.5, 0.9)((ms.Tensor(np.ones((2, 3), np.float32)),))
        np.testing.assert_allclose(m.weight.detach().cpu().numpy(), before.numpy() - 0.5, rtol=1e-6, atol=1e-6)
