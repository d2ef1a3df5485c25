"""A toy device proves the boundary between ops and devices: a device whose memory only its own
kernels can read trains a network.

The toy's memory consists of NumPy arrays behind handles that reject all other access. A primitive
without a toy kernel is an error.
"""
import pytest

import mindtorch.torch as mt
from _toy import Toy
from mindtorch.backend.kernels import TABLES
from mindtorch.core.device import device_dispatch

F = mt.nn.functional


@pytest.fixture(scope="module", autouse=True)
def toy():
    device = Toy()
    device_dispatch.register(device)
    device_dispatch.fallback.policy = "error"
    yield device
    device_dispatch.fallback.policy = "warn"
    device_dispatch.unregister(device)


def test_host_cannot_read_device_memory():
    x = mt.ones(2, 3).to("toy")
    assert x.device.type == "toy" and x.shape == (2, 3) and x.t().stride() == (1, 3)
    with pytest.raises(RuntimeError, match="through its meta array"):
        x._array + 1
    with pytest.raises(TypeError, match="can't convert toy device type tensor to numpy"):
        x.numpy()
    assert x.cpu().tolist() == [[1.0] * 3] * 2


def losses(device, make):
    mt.manual_seed(0)
    net = mt.nn.Sequential(mt.nn.Linear(8, 16), mt.nn.ReLU(), mt.nn.Linear(16, 4))
    x, y = mt.randn(32, 8), mt.randint(0, 4, (32,))
    net, x, y = net.to(device), x.to(device), y.to(device)
    opt = make(net.parameters())
    out = []
    for _ in range(5):
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        out.append(loss.item())
    assert next(net.parameters()).device.type == device and next(net.parameters()).grad.device.type == device
    return out


@pytest.mark.parametrize("make", [lambda p: mt.optim.SGD(p, 0.1, momentum=0.9), lambda p: mt.optim.Adam(p, 0.01)], ids=["SGD", "Adam"])
def test_network_trains_to_the_cpu_losses(make):
    want = losses("cpu", make)
    before = Toy.copies
    got = losses("toy", make)
    assert got == pytest.approx(want, rel=1e-6)
    assert Toy.copies - before == 5  # one per loss that is read


def test_device_may_provide_a_fused_optimizer_step():
    asked = []

    def step(layout, columns, consts):
        asked.append(layout)
        for p, g, ((maximize, *_), (lr, *_)) in zip(*columns, consts):
            p._open()[...] -= lr * g._open()
    want = losses("cpu", lambda p: mt.optim.SGD(p, 0.1))
    table = TABLES["toy"]
    table.update(optimizer_layout=len, sgd_step=step)
    try:
        assert losses("toy", lambda p: mt.optim.SGD(p, 0.1)) == pytest.approx(want, rel=1e-6)
    finally:
        del table["optimizer_layout"], table["sgd_step"]
    assert asked == [4] * 5


def test_views_and_writes():
    x = mt.arange(6.0).view(2, 3).to("toy")
    v = x[1]
    v.add_(mt.ones(3).to("toy"))
    assert x.cpu().tolist() == [[0, 1, 2], [4, 5, 6]]
    x[:, 0] = 7
    assert v.cpu().tolist() == [7, 5, 6]


def test_missing_kernel_error_names_the_primitive():
    with pytest.raises(NotImplementedError, match="primitive 'erf' of float32 has no kernel on device toy"):
        mt.erf(mt.ones(2).to("toy"))


def test_mixed_devices_raise():
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        mt.ones(2).to("toy") + mt.ones(2)
    assert (mt.ones(2).to("toy") + mt.tensor(2.0)).cpu().tolist() == [3, 3]


@pytest.fixture
def by_way_of_the_host():
    device_dispatch.fallback.policy = "silent"
    yield
    device_dispatch.fallback.policy = "error"


def _gradcheck(T, x):
    x = x.double().detach().requires_grad_()
    return T.tensor([T.autograd.gradcheck(lambda x: (x * x.sin()).sum(0), (x,)), T.autograd.gradgradcheck(lambda x: (x ** 3).sum(), (x,))])


def _added_up(T, x):
    x = x.detach().requires_grad_()
    (x * x + x * 2 + x).sum().backward()
    (x * 3).sum().backward()
    return x.grad


def _out(T, x):
    small = x[0].clone()
    with pytest.warns(UserWarning, match="was resized"):
        return T.add(x, 2, out=small)


@pytest.mark.parametrize("run", [
    _gradcheck, _added_up, _out,
    lambda T, x: T.func.jacrev(lambda x: x * x)(x[0]),
    lambda T, x: T.func.hessian(lambda x: (x ** 3).sum())(x[0]),
    lambda T, x: T.func.jvp(lambda x: x.sin() * x, (x,), (T.ones_like(x),))[1],
    lambda T, x: T.vmap(T.func.grad(lambda r: (r ** 2).sum()))(x),
    lambda T, x: T.autograd.functional.vhp(lambda x: (x ** 3).sum(), x, x)[1],
], ids=["gradcheck", "added_up", "out", "jacrev", "hessian", "jvp", "vmap", "vhp"])
def test_functions_built_on_backward_work_on_a_device(run, by_way_of_the_host):
    x = mt.arange(6.0).reshape(3, 2) / 7
    there = run(mt, x.to("toy"))
    assert there.cpu().tolist() == run(mt, x).tolist()


def test_host_memory_access_raises_on_a_device():
    x = mt.ones(3).to("toy")
    for use, error, words in ((lambda: x.data_ptr(), NotImplementedError, "device toy: address"), (lambda: x.__dlpack__(), BufferError, "on device toy"),
                              (lambda: x.apply_(abs), NotImplementedError, "on device toy is not the host's"),
                              (lambda: x.untyped_storage().share_memory_(), NotImplementedError, "on device toy")):
        with pytest.raises(error, match=words):
            use()
    assert x.untyped_storage().nbytes() == 12 and x.storage().tolist() == [1, 1, 1]


def test_writes_by_mask_and_index():
    """The CPU kernel writes where the device has no kernel, and a warning says so. Under the policy
    "error" the missing primitive raises an error that names it."""
    def written(device):
        x = mt.arange(6.0).view(2, 3).to(device)
        x[mt.tensor([[True, False, True], [False, False, True]]).to(device)] = -1.0
        x.masked_fill_(mt.tensor([True, False, False]).to(device), 9.0)
        x[mt.tensor([1, 0]).to(device), mt.tensor([1, 1]).to(device)] = mt.tensor([5.0, 6.0]).to(device)
        return x.cpu().tolist(), x._version
    with pytest.raises(NotImplementedError, match="primitive '.*' of .* has no kernel on device toy"):
        written("toy")
    device_dispatch.fallback.policy = "silent"
    try:
        assert written("toy") == written("cpu")
    finally:
        device_dispatch.fallback.policy = "error"
