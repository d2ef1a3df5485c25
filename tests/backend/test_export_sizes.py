"""MindIR from recorded kernels: dynamic sizes, and side effects of recording."""
import os

import mindspore as ms
import numpy as np
import pytest

import mindtorch.torch as mt
import mindtorch.torch.nn.functional as F
from mindtorch.backend.errors import SpecializationError
from mindtorch.backend.mindspore.checkpoint import load_mindir, save_mindir
from mindtorch.core.device import device_dispatch
from mindtorch.torch._graph import capture, graph_cell

pytestmark = pytest.mark.usefixtures("eager_mode")
BATCH = {0: {0: "n"}, 1: {0: "n"}}
SHAPES = [([None, 3, 4], "float32"), ([None, 3], "float32")]


def draw(seed, *shape):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def loaded(fn, dynamic=BATCH, shapes=SHAPES):
    """Returns fn's MindIR, reloaded, and its cell."""
    cell = graph_cell(capture(fn, (mt.tensor(draw(1, 2, 3, 4)), mt.tensor(draw(2, 2, 3))), dynamic=dynamic))
    return load_mindir(save_mindir(cell, shapes)), cell


def agree(cell, fn, sizes):
    for n, m in sizes:
        x, y = mt.tensor(draw(3, n, m, 4)), mt.tensor(draw(4, n, m))
        got, want = cell(x, y), fn(x, y)
        for a, b in zip(got if isinstance(got, tuple) else [got], want if isinstance(want, tuple) else [want], strict=True):
            assert a.asnumpy().shape == tuple(b.shape) and a.asnumpy().dtype == b.numpy().dtype
            np.testing.assert_allclose(a.asnumpy(), b.numpy(), 1e-4, 1e-5)


def shapes(x, y):
    n, m = y.shape
    return (x.view(n, -1), x.transpose(1, 2).reshape(n * 4, m), x.flatten(0, 1), x[1:], x[-1], mt.cat([y, y]), mt.stack([x, x], 1), x.expand(2, *x.shape), x.roll(1, 0),
            x[:, 1:].repeat(2, 1, 1), y[:, None].expand(n, 5, m), x.flip(0), F.pad(y, (1, 1)), y.new_zeros(y.shape), mt.triu(y), x.sort(0)[0], y.t() @ y,
            mt.ones(3, n).triu() @ y, x + mt.arange(n)[:, None, None])


def counts(x, y):
    return (x.mean(0), x.sum(0), y.var(0, unbiased=False), x.std(), y.max(0)[0], x.cumsum(0), F.mse_loss(x, x * 2), F.cross_entropy(y, y.softmax(1)),
            F.cross_entropy(y, F.one_hot(y.argmax(1), 3).argmax(1)), F.batch_norm(x, None, None, training=True), F.relu(x - y[..., None]))


@pytest.mark.parametrize("fn", [shapes, counts])
def test_dynamic_batch_size(fn):
    cell, _ = loaded(fn)
    agree(cell, fn, [(2, 3), (5, 3), (9, 3)])


def test_two_dynamic_sizes():
    def fn(x, y):
        return (x.mean(-1) + y).softmax(1), x.view(x.shape[0], -1), x.relu() * 2, y[:, None].expand(y.shape[0], 5, y.shape[1])
    cell, _ = loaded(fn, {0: {0: "n", 1: "m"}, 1: {0: "n", 1: "m"}}, [([None, None, 4], "float32"), ([None, None], "float32")])
    agree(cell, fn, [(1, 1), (2, 3), (4, 7)])


def test_size_dependent_values_raise():
    x, y = mt.tensor(draw(1, 4, 3, 4)), mt.tensor(draw(2, 4, 3))
    for fn, why in [(lambda x, y: x[-2:], "the computation differs if n is 1"), (lambda x, y: y * mt.linspace(0, 1, x.shape[0])[:, None], "the values of a constant depend on size 0 of input 'x'")]:
        with pytest.raises(SpecializationError) as e:
            graph_cell(capture(fn, (x, y), dynamic=BATCH))
        assert why in str(e.value)


def test_uniform_constants_are_stored_as_scalars(tmp_path):
    net = mt.nn.Sequential(mt.nn.Conv2d(1, 4, 3, padding=1), mt.nn.ReLU(), mt.nn.Conv2d(4, 1, 3, padding=1), mt.nn.Hardtanh())
    x = mt.randn(1, 1, 64, 64)
    ms.export(net, x, file_name=str(tmp_path / "net"), file_format="MINDIR")
    assert os.path.getsize(tmp_path / "net.mindir") < 20000
    np.testing.assert_allclose(ms.nn.GraphCell(ms.load(str(tmp_path / "net.mindir")))(ms.Tensor(x.numpy())).asnumpy(), net(x).detach().numpy(), 1e-4, 1e-5)


def test_recording_has_no_side_effects():
    def about():
        with pytest.raises(RuntimeError) as e:
            mt.device("nonsense")
        return str(e.value), mt.accelerator.is_available(), dict(device_dispatch.DEVICES), device_dispatch.fallback.policy, dict(device_dispatch.FALLBACKS)
    before = about()
    x = mt.randn(2, 3)
    graph_cell(capture(lambda x: x.exp(), (x,)))
    with pytest.raises(NotImplementedError, match="'special.zeta'"):
        graph_cell(capture(lambda x: mt.special.zeta(x.abs() + 2, x.abs() + 1), (x,)))
    assert about() == before and x.exp().device.type == "cpu"
    with pytest.raises(RuntimeError, match="recording"):
        mt.zeros(1, device="recording")


def test_random_ops_raise():
    x = mt.randn(4, 3)
    with pytest.raises(RuntimeError, match="random numbers"):
        capture(lambda x: x + mt.rand_like(x), (x,))
    with pytest.raises(NotImplementedError, match="random numbers"):
        graph_cell(capture(lambda x: F.dropout(x, 0.5), (x,), check=False))
