"""PyTorch's library code while the npu is the default device: temporary tensors are on the device
of the operands, or on the host where PyTorch specifies it."""
import contextlib

import numpy as np
import pytest

import mindtorch.torch as mt
import mindtorch.torch.nn.utils.prune  # noqa: F401
from mindtorch.torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset, WeightedRandomSampler, random_split

rnn, D = mt.nn.utils.rnn, mt.distributions
LENGTHS = {"list": [3, 1], "numpy": np.array([3, 1]), "host": [3, 1], "npu": [3, 1]}


def lengths(kind):
    return mt.tensor(LENGTHS[kind], device="cpu" if kind == "host" else "npu") if kind in ("host", "npu") else LENGTHS[kind]


def x(dev, *sizes):
    return mt.arange(float(np.prod(sizes)), device=dev).reshape(sizes) / 7


@contextlib.contextmanager
def default(dev):
    before = mt.get_default_device()
    mt.set_default_device(dev)
    try:
        yield
    finally:
        mt.set_default_device(before)


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("enforce_sorted", (True, False))
@pytest.mark.parametrize("dev", ("cpu", "npu"))
def test_sequence_lengths_stay_on_the_host(npu, dev, enforce_sorted, kind):
    with default(npu):
        p = rnn.pack_padded_sequence(x(dev, 2, 3, 2), lengths(kind), batch_first=True, enforce_sorted=enforce_sorted)
        assert p.batch_sizes.device.type == "cpu" and p.batch_sizes.tolist() == [2, 1, 1] and p.data.device == mt.ones(1, device=dev).device
        back, n = rnn.pad_packed_sequence(p, batch_first=True)
        assert n.device.type == "cpu" and n.tolist() == [3, 1] and back.tolist() == (x("cpu", 2, 3, 2) * mt.tensor([[1., 1, 1], [1, 0, 0]], device="cpu")[..., None]).tolist()
        q = rnn.pack_sequence([x(dev, 3), x(dev, 1)], enforce_sorted=enforce_sorted)
        assert q.batch_sizes.device.type == "cpu" and [t.tolist() for t in rnn.unpack_sequence(q)] == [x("cpu", 3).tolist(), [0]]
        net = mt.nn.LSTM(2, 5, batch_first=True, device=dev)
        assert net(p)[0].data.shape == (4, 5)


def _initialised(f, dev):
    t = mt.empty(6, 4, device=dev)
    f(t)
    return t


def _pruned(dev):
    m = mt.nn.Linear(4, 6, device=dev)
    mt.nn.init.ones_(m.weight)
    mt.nn.utils.prune.random_structured(m, "weight", 0.5, dim=1)
    return m.weight


def _averaged(dev):
    m = mt.nn.Linear(2, 2, device=dev)
    mt.nn.init.ones_(m.weight)
    mean = mt.optim.swa_utils.AveragedModel(m, use_buffers=True, multi_avg_fn=mt.optim.swa_utils.get_swa_multi_avg_fn())
    for _ in range(3):
        m.weight.data.mul_(2)
        mean.update_parameters(m)
    p, q = [mt.nn.Parameter(x(dev, 3).to(mt.complex64)) for _ in range(2)]
    mt.optim.swa_utils.get_swa_multi_avg_fn()([p], [q * 2], 3)
    return mt.cat([mean.module.weight.reshape(-1), mt.view_as_real(p).reshape(-1)])


def _stepped(name, dev):
    p = mt.nn.Parameter(x(dev, 3, 2))
    opt = getattr(mt.optim, name)([p], lr=0.1, **({"max_iter": 2} if name == "LBFGS" else {}))

    def loss():
        opt.zero_grad()
        r = (p * p).sum()
        r.backward()
        return r
    for _ in range(3):
        opt.step(loss)
    return p


def _drawn(kind, dev, *parameters):
    d = kind(*[mt.tensor(v, device=dev) for v in parameters])
    return mt.stack([d.log_prob(d.mean), d.entropy()])


#: library functions of PyTorch that create tensors for operands on a device
LIBRARY = {
    "init.sparse_": lambda dev: _initialised(lambda t: mt.nn.init.sparse_(t, 0.5), dev), "init.orthogonal_": lambda dev: _initialised(mt.nn.init.orthogonal_, dev),
    "init.trunc_normal_": lambda dev: _initialised(mt.nn.init.trunc_normal_, dev), "init.kaiming_normal_": lambda dev: _initialised(mt.nn.init.kaiming_normal_, dev),
    "random_structured": _pruned, "swa": _averaged,
    "multinomial": lambda dev: D.Multinomial(3, probs=mt.tensor([.2, .8], device=dev)).entropy(),
    "GeneralizedPareto": lambda dev: D.GeneralizedPareto(*[mt.tensor([v], device=dev) for v in (0., 1., 0.2)]).log_prob(mt.tensor([0.5], device=dev)),
    "Normal": lambda dev: _drawn(D.Normal, dev, [0.], [2.]), "Gamma": lambda dev: _drawn(D.Gamma, dev, [1.5], [2.]), "Beta": lambda dev: _drawn(D.Beta, dev, [1.5], [2.]),
    "tril": lambda dev: D.utils.tril_matrix_to_vec(x(dev, 3, 3)), "vec": lambda dev: D.utils.vec_to_tril_matrix(x(dev, 6)),
    "Wishart": lambda dev: D.Wishart(mt.tensor(4., device=dev), scale_tril=mt.eye(3, device=dev)).rsample().isfinite().all(),
    "clip_grad_norm_": lambda dev: mt.nn.utils.clip_grad_norm_(_stepped("SGD", dev), 1.),
    "parametrizations": lambda dev: mt.nn.utils.parametrizations.weight_norm(_linear(dev)).weight,
    "jacobian": lambda dev: mt.autograd.functional.jacobian(lambda t: t * t, x(dev, 3)), "hessian": lambda dev: mt.func.hessian(lambda t: (t * t * t).sum())(x(dev, 3)),
    "jacfwd": lambda dev: mt.func.jacfwd(lambda t: t.sin())(x(dev, 3)), "vmap": lambda dev: mt.vmap(lambda t: t.sum() + t)(x(dev, 3, 2)),
    "checkpoint": lambda dev: mt.utils.checkpoint.checkpoint(lambda t: t * 2, x(dev, 3), use_reentrant=False),
    "make_tensor": lambda dev: mt.testing.make_tensor(3, 2, dtype=mt.float32, device=dev, exclude_zero=True),
    "make_tensor int": lambda dev: mt.testing.make_tensor(3, 2, dtype=mt.int64, device=dev), "make_tensor complex": lambda dev: mt.testing.make_tensor(3, dtype=mt.complex64, device=dev),
    **{name: lambda dev, name=name: _stepped(name, dev) for name in ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD",
                                                                     "LBFGS", "Adafactor", "Muon")}}


def _linear(dev):
    m = mt.nn.Linear(2, 2, device=dev)
    mt.nn.init.ones_(m.weight)
    return m


@pytest.fixture
def hosts_numbers():
    from mindtorch.core.device import rng
    before, rng.policy.host = rng.policy.host, True
    yield
    rng.policy.host = before


@pytest.mark.parametrize("dev", ("cpu", "npu"))
@pytest.mark.parametrize("name", LIBRARY)
def test_library_results_are_on_the_operands_device(npu, hosts_numbers, name, dev):
    def result(where):
        mt.manual_seed(3)
        return LIBRARY[name](where).detach()
    host = result("cpu")
    with default(npu):
        r = result(dev)
    assert r.device == mt.ones(1, device=dev).device and r.dtype == host.dtype
    np.testing.assert_allclose(r.cpu().numpy(), host.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [
    lambda: [mt.quasirandom.SobolEngine(3, scramble=True, seed=seed).draw(4).tolist() for seed in (5, None)],
    lambda: [int(i) for i in RandomSampler(range(7))], lambda: [int(i) for i in RandomSampler(range(7), replacement=True, num_samples=5)],
    lambda: [int(i) for i in WeightedRandomSampler([.1, .9, .5], 5)], lambda: [list(s) for s in random_split(range(7), [3, 4])],
    lambda: list(mt.utils.data.datapipes.iter.Shuffler(mt.utils.data.datapipes.iter.IterableWrapper(range(7)))),
    lambda: list(mt.utils.data.datapipes.map.Shuffler(mt.utils.data.datapipes.map.SequenceWrapper(range(7)))),
    lambda: [b[0].tolist() for b in DataLoader(TensorDataset(mt.arange(6., device="cpu")), 2, shuffle=True)],
    lambda: mt._shape_as_tensor(mt.ones(2, 3)).tolist()])
def test_library_random_numbers_come_from_the_host(npu, make):
    mt.manual_seed(3)
    host = make()
    mt.manual_seed(3)
    with default(npu):
        assert make() == host


def test_assert_close_compares_arrays_on_the_host(npu):
    with default(npu):
        mt.testing.assert_close(np.ones(2), np.ones(2))
        mt.testing.assert_allclose(mt.ones(2, device="cpu"), np.ones(2))
        assert mt._shape_as_tensor(mt.ones(2, 3)).device.type == "cpu"
        with pytest.raises(AssertionError, match="Mismatched elements"):
            mt.testing.assert_close(np.ones(2), np.zeros(2))


class Made(Dataset):
    """Samples built from new tensors without an explicit device."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        t = mt.full((2,), float(i)) + mt.randn(2) * 0
        return t, i, float(i), np.full(2, i), str(mt.get_default_device()), t.device.type


def test_loader_workers_default_to_the_cpu(npu):
    with default(npu):
        loader = DataLoader(Made(), 2, num_workers=1)
        batches = list(loader)
        assert mt.get_default_device() == npu
    for at, (made, whole, real, array, device, kind) in enumerate(batches):
        assert {t.device.type for t in (made, whole, real, array)} == {"cpu"} and set(device) == set(kind) == {"cpu"}
        assert whole.tolist() == [2 * at, 2 * at + 1] and made[:, 0].tolist() == whole.tolist()


def test_worker_init_fn_may_set_a_default_device(npu):
    with default(npu):
        loader = DataLoader(Made(), 4, num_workers=1, worker_init_fn=lambda i: mt.set_default_device("meta"), collate_fn=lambda rows: [r[5] for r in rows])
        assert list(loader) == [["meta"] * 4]
