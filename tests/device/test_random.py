"""Random numbers on the npu device: generators, reproducibility from a seed, and distributions."""
import copy
import pickle

import numpy as np
import pytest
import torch as real
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

import mindtorch.torch as mt
from mindtorch.core.device import device_dispatch, rng

F = mt.nn.functional


@pytest.fixture
def host_numbers():
    rng.policy.host = True
    yield
    rng.policy.host = False


DRAWS = {
    "rand": lambda d: mt.rand(50, 7, device=d), "randn": lambda d: mt.randn(101, device=d), "rand64": lambda d: mt.rand(33, device=d, dtype=mt.float64),
    "randint": lambda d: mt.randint(5, 90, (40,), device=d), "randperm": lambda d: mt.randperm(37, device=d), "bf16": lambda d: mt.randn(64, device=d, dtype=mt.bfloat16),
    "like": lambda d: mt.rand_like(mt.ones(4, 5, device=d).t()), "dropout": lambda d: F.dropout(mt.ones(300, device=d), 0.3),
    "uniform_": lambda d: mt.empty(30, device=d).uniform_(-2, 5), "normal_": lambda d: mt.empty(6, 5, device=d).t().normal_(1, 2),
    "bernoulli_": lambda d: mt.empty(90, device=d).bernoulli_(0.4), "exponential_": lambda d: mt.empty(90, device=d).exponential_(2.0),
    "cauchy_": lambda d: mt.empty(9, device=d).cauchy_(), "geometric_": lambda d: mt.empty(50, device=d).geometric_(0.3),
    "log_normal_": lambda d: mt.empty(9, device=d).log_normal_(), "normal": lambda d: mt.normal(mt.ones(8, device=d), 2.0),
    "native_dropout": lambda d: mt.native_dropout(mt.ones(100, device=d), 0.5, True)[1], "alpha_dropout": lambda d: F.alpha_dropout(mt.ones(70, device=d), 0.2, True),
    "feature": lambda d: F.dropout2d(mt.ones(4, 30, 2, 2, device=d), 0.5), "random_": lambda d: mt.empty(9, device=d).random_(3, 9),
    "poisson": lambda d: mt.poisson(mt.full((20,), 4.0, device=d)), "multinomial": lambda d: mt.multinomial(mt.ones(3, 20, device=d), 5, True),
    "categories": lambda d: mt.multinomial(mt.ones(7, 20, device=d), 1), "no replacement": lambda d: mt.multinomial(mt.ones(20, device=d), 9),
    "normal std": lambda d: mt.normal(1.0, mt.full((8,), 0.5, device=d)), "bernoulli": lambda d: mt.bernoulli(mt.full((50,), 0.5, device=d)),
}
ON_HOST = {"poisson"}


@pytest.mark.parametrize("name", DRAWS)
def test_seed_determines_the_random_numbers(npu, name):
    draw = DRAWS[name]
    before = sum(device_dispatch.FALLBACKS.values())
    mt.manual_seed(11)
    a, b = draw(npu), draw(npu)
    mt.rand(1000, device=npu), mt.randn(77, device=npu)
    mt.manual_seed(11)
    a2, b2 = draw(npu), draw(npu)
    assert a.device == npu and not a.equal(b)
    assert a.equal(a2) and b.equal(b2)
    state = mt.cuda.get_rng_state(npu)
    c = draw(npu)
    mt.cuda.set_rng_state(state, npu)
    assert draw(npu).equal(c)
    mt.manual_seed(12)
    assert not draw(npu).equal(a)
    if name not in ON_HOST:
        assert sum(device_dispatch.FALLBACKS.values()) == before


@pytest.mark.parametrize("name", ["rand", "randn", "dropout", "uniform_", "normal_", "bernoulli_", "randint", "randperm", "poisson", "like", "alpha_dropout", "feature"])
def test_host_random_numbers_on_request(npu, host_numbers, name):
    before = dict(device_dispatch.FALLBACKS)
    mt.manual_seed(3)
    a, x = DRAWS[name](npu), mt.rand(3)
    mt.manual_seed(3)
    b, y = DRAWS[name]("cpu"), mt.rand(3)
    assert a.device == npu and a.cpu().equal(b) and x.equal(y)
    assert device_dispatch.FALLBACKS == before


MASKS = {
    "dropout": lambda T, x: T.nn.functional.dropout(x, 0.3), "dropout in place": lambda T, x: T.nn.functional.dropout(x.clone(), 0.3, inplace=True),
    "alpha_dropout": lambda T, x: T.nn.functional.alpha_dropout(x, 0.3, True), "native_dropout": lambda T, x: T.native_dropout(x, 0.3, True)[0],
    "feature_alpha_dropout": lambda T, x: T.nn.functional.feature_alpha_dropout(x, 0.3, True), "dropout1d": lambda T, x: T.nn.functional.dropout1d(x, 0.3),
    "twice": lambda T, x: T.nn.functional.dropout(T.nn.functional.dropout(x, 0.3), 0.3), "bernoulli": lambda T, x: T.bernoulli(x.detach(), 0.3) * x,
    "bernoulli_": lambda T, x: x.detach().clone().bernoulli_(0.3) * x, "rand_like": lambda T, x: T.rand_like(x) * x,
    "attention": lambda T, x: T.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.3),
}
ROUNDED = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 2e-2, "float16": 3e-3}


def masked(T, name, x, dtype, order, device="cpu", compiled=lambda f: f):
    """Returns the results and gradients of three calls that each draw a mask, and the next CPU
    random number."""
    T.manual_seed(4)
    call, found = compiled(MASKS[name]), []
    for _ in range(3):
        leaf = T.from_numpy(x).to(device, getattr(T, dtype)).requires_grad_()
        y = call(T, leaf.permute(order))
        grad, = T.autograd.grad(y.double().square().sum(), leaf)
        found += [v.detach().cpu().double().numpy() for v in (y, grad)]
    return [*found, T.rand(()).double().numpy()]


def assert_masks_of_the_host(name, dtype, shape, order, **how):
    x = np.random.RandomState(0).randn(*shape).astype(np.float32)
    for want, have in zip(masked(real, name, x, dtype, order), masked(mt, name, x, dtype, order, **how)):
        np.testing.assert_allclose(have, want, rtol=0, atol=ROUNDED[dtype] * max(1, abs(want).max()))


@pytest.mark.parametrize("dtype", ROUNDED)
@settings(max_examples=settings().max_examples // 6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.tuples(*[st.integers(2, 5)] * 3), st.permutations(range(3)))
def test_host_masks_follow_the_operands_memory_order(npu, host_numbers, dtype, shape, order):
    """Whatever dtype the kernel computes in, the mask depends on the memory order of the operand.
    """
    for name in MASKS:
        assert_masks_of_the_host(name, dtype, shape, order, device="npu")


@pytest.mark.parametrize("dtype", ROUNDED)
@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "native_dropout", "feature_alpha_dropout"])
def test_host_masks_follow_memory_order_in_graphs(npu, host_numbers, forgotten_variants, name, dtype):
    assert_masks_of_the_host(name, dtype, (6, 5, 4), (1, 2, 0), device="npu", compiled=mt.compile)
    if dtype != "float64":
        assert_masks_of_the_host(name, dtype, (6, 5, 4), (1, 2, 0), compiled=lambda f: mt.compile(f, backend="mindspore"))


def uniform_p(u):
    return stats.kstest(u, "uniform").pvalue


def test_distributions(npu):
    mt.manual_seed(1)
    u = np.concatenate([mt.rand(2000, device=npu).cpu().numpy() for _ in range(30)])
    assert u.min() >= 0 and u.max() < 1 and uniform_p(u) > 1e-3
    assert uniform_p(mt.rand(20000, device=npu, dtype=mt.float64).cpu().numpy()) > 1e-3
    assert uniform_p(mt.rand(300000, device=npu).cpu().numpy()) > 1e-3
    z = np.concatenate([mt.randn(1001, device=npu).cpu().numpy() for _ in range(40)])
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert abs(z.mean()) < 0.02 and abs(z.std() - 1) < 0.02
    e = mt.empty(20000, device=npu).exponential_(3.0).cpu().numpy()
    assert stats.kstest(e * 3, "expon").pvalue > 1e-3
    c = mt.empty(20000, device=npu).cauchy_(1, 2).cpu().numpy()
    assert stats.kstest((c - 1) / 2, "cauchy").pvalue > 1e-3
    g = mt.empty(20000, device=npu).geometric_(0.25).cpu().numpy()
    assert g.min() == 1 and abs(g.mean() - 4) < 0.15
    k = np.bincount(mt.randint(0, 10, (20000,), device=npu).cpu().numpy(), minlength=10)
    assert len(k) == 10 and stats.chisquare(k).pvalue > 1e-3
    assert sorted(mt.randperm(100, device=npu).tolist()) == list(range(100))
    for p in (0.0, 0.1, 0.5, 0.9, 1.0):
        b = mt.empty(20000, device=npu).bernoulli_(p).cpu().numpy()
        assert set(np.unique(b)) <= {0.0, 1.0} and abs(b.mean() - p) < 0.015
    v = mt.empty(20000, device=npu).uniform_(-3, 5).cpu().numpy()
    assert v.min() >= -3 and v.max() < 5 and uniform_p((v + 3) / 8) > 1e-3
    h = mt.rand(20000, device=npu, dtype=mt.bfloat16).float().cpu().numpy()
    assert h.max() < 1 and abs(h.mean() - 0.5) < 0.02


def test_successive_draws_are_independent(npu):
    mt.manual_seed(5)
    a = np.stack([mt.rand(4096, device=npu).cpu().numpy() for _ in range(60)]) - 0.5
    c = np.corrcoef(a)
    np.fill_diagonal(c, 0)
    assert abs(c).max() < 5.5 / 64
    for lag in (1, 2, 7):
        x, y = a[:, :-lag].ravel(), a[:, lag:].ravel()
        assert abs(np.corrcoef(x, y)[0, 1]) < 5 / np.sqrt(x.size)
    # one draw is not a shifted copy of another
    f = np.fft.rfft(a)
    for i in range(0, 60, 7):
        both = np.fft.irfft(f[i] * f[i + 1].conj() if i + 1 < 60 else f[i] * f[0].conj())
        assert abs(both).max() / (4096 / 12) < 0.11
    columns = a[:, :200].T
    assert abs(columns.mean(1)).max() < 0.18


def test_dropout_masks_and_gradients(npu):
    mt.manual_seed(2)
    x = mt.ones(100, 50, device=npu, requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    assert y.detach().equal(x.grad) and abs(y.mean().item() - 1) < 0.05
    np.testing.assert_allclose(np.unique(y.detach().cpu().numpy()), [0, 1 / 0.75], rtol=1e-6)
    for dtype in (mt.float64, mt.float16, mt.bfloat16):
        z = F.dropout(x.detach().to(dtype), 0.5)
        assert z.dtype == dtype and set(np.unique(z.cpu().float().numpy())) == {0, 2}
    planes = F.dropout2d(mt.ones(8, 20, 3, 3, device=npu), 0.5).cpu().numpy()
    assert (planes == planes[:, :, :1, :1]).all() and 0.3 < (planes > 0).mean() < 0.7


def test_generators(npu):
    g = mt.Generator(device=npu)
    assert isinstance(g, mt.Generator) and g.device == npu
    a = mt.rand(5, device=npu, generator=g.manual_seed(9))
    state = g.get_state()
    assert state.device.type == "cpu" and state.dtype == mt.uint8 and g.initial_seed() == 9
    b = mt.rand(5, device=npu, generator=g)
    g.set_state(state)
    assert mt.rand(5, device=npu, generator=g).equal(b)
    other = pickle.loads(pickle.dumps(g))
    assert mt.rand(5, device=npu, generator=other).equal(mt.rand(5, device=npu, generator=copy.deepcopy(g)))
    g.manual_seed(9)
    assert mt.empty(5, device=npu).uniform_(generator=g).equal(a)
    for wrong in (lambda: mt.rand(3, generator=g), lambda: mt.rand(3, device=npu, generator=mt.Generator()), lambda: mt.ones(3).normal_(generator=g),
                  lambda: mt.ones(3, device=npu).bernoulli_(generator=mt.Generator()), lambda: mt.randperm(3, device=npu, generator=mt.Generator())):
        with pytest.raises(RuntimeError, match="device type for generator but found"):
            wrong()
    with pytest.raises(RuntimeError):
        g.set_state(mt.Generator().get_state())


def test_seeds_and_states(npu):
    mt.cuda.manual_seed_all(4)
    assert mt.cuda.initial_seed() == 4
    a = mt.rand(3, device=npu)
    mt.npu.manual_seed(4)
    assert mt.rand(3, device=npu).equal(a)
    with mt.random.fork_rng():
        b, c = mt.rand(3, device=npu), mt.rand(3)
    assert mt.rand(3, device=npu).equal(b) and mt.rand(3).equal(c)
    states = mt.cuda.get_rng_state_all()
    b = mt.rand(3, device=npu)
    mt.cuda.set_rng_state_all(states)
    assert mt.rand(3, device=npu).equal(b)
    mt.cuda.seed()
    assert mt.cuda.initial_seed() != 4
    assert mt.npu.random.get_rng_state_all is mt.cuda.random.get_rng_state_all


def test_manual_seed_all_seeds_every_device(npu, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert mt.npu.device_count() == 2
    mt.npu.manual_seed_all(7)
    a = mt.rand(3, device=npu)
    states = mt.npu.get_rng_state_all()
    assert len(states) == 2
    b = mt.rand(3, device=npu)
    mt.npu.manual_seed_all(7)
    assert mt.rand(3, device=npu).equal(a)
    mt.npu.set_rng_state_all(states)
    assert mt.rand(3, device=npu).equal(b) and mt.npu.get_rng_state_all()[1].equal(states[1])
    with pytest.raises(RuntimeError, match="npu:1"):
        mt.Generator("npu:1")


def test_samplers_accept_a_device_generator(npu):
    D = mt.utils.data
    makers = [lambda g: D.RandomSampler(range(9), generator=g), lambda g: D.RandomSampler(range(9), True, 40, generator=g), lambda g: D.SubsetRandomSampler(range(9), g),
              lambda g: D.WeightedRandomSampler([0.2, 0.5, 0.3], 20, generator=g), lambda g: D.random_split(range(9), [4, 5], g)[0],
              lambda g: D.DataLoader(mt.arange(9), shuffle=True, generator=g)]
    for make in makers:
        g = mt.Generator(npu).manual_seed(3)
        first, second = [list(map(int, make(g))) for _ in range(2)]
        assert first != second and list(map(int, make(g.manual_seed(3)))) == first


def test_svd_lowrank_on_the_device(npu):
    x = mt.randn(6, 2) @ mt.randn(2, 5)
    u, s, v = mt.svd_lowrank(x.to(npu), q=3)
    assert u.device == v.device == x.to(npu).device
    np.testing.assert_allclose((u * s @ v.mT).cpu().numpy(), x.numpy(), atol=1e-4)


def test_checkpoint_draws_the_same_masks(npu):
    from mindtorch.torch.utils.checkpoint import checkpoint
    x = mt.ones(200, device=npu, requires_grad=True)
    for reentrant in (True, False):
        x.grad = None
        y = checkpoint(lambda x: F.dropout(x, 0.5), x, use_reentrant=reentrant)
        y.sum().backward()
        assert y.detach().equal(x.grad)


@pytest.mark.parametrize("dtype", ROUNDED)
def test_sampling_with_tensor_parameters(npu, dtype):
    mt.manual_seed(8)
    w = mt.tensor([[0.0, 1.0, 3.0, 0.0], [5.0, 0.0, 0.0, 5.0]], dtype=getattr(mt, dtype))
    for args in ((4000, True), ):
        r = mt.multinomial(w.to(npu), *args).cpu().numpy()
        assert r.shape == (2, 4000) and set(r[0]) == {1, 2} and set(r[1]) == {0, 3}
        assert abs((r[0] == 2).mean() - 0.75) < 0.04 and abs((r[1] == 0).mean() - 0.5) < 0.04
    one = np.array([mt.multinomial(w.to(npu), 1).cpu().numpy()[:, 0] for _ in range(300)])
    assert set(one[:, 0]) == {1, 2} and abs((one[:, 0] == 2).mean() - 0.75) < 0.12
    two = mt.multinomial(w.to(npu), 2).cpu().numpy()
    assert set(two[0]) == {1, 2} and set(two[1]) == {0, 3}
    p = mt.tensor([0.0, 1.0, 0.3], dtype=w.dtype).repeat(5000, 1)
    b = mt.bernoulli(p.to(npu)).cpu().float().numpy()
    assert (b[:, 0] == 0).all() and (b[:, 1] == 1).all() and abs(b[:, 2].mean() - 0.3) < 0.03
    n = mt.normal(mt.tensor([1.0, 2.0], device=npu, dtype=w.dtype), mt.tensor([0.0, 3.0], device=npu, dtype=w.dtype).expand(9000, 2)).cpu().float().numpy()
    assert (n[:, 0] == 1).all() and abs(n[:, 1].mean() - 2) < 0.15 and abs(n[:, 1].std() - 3) < 0.15
    for wrong in (lambda: mt.multinomial(-w.to(npu), 1), lambda: mt.multinomial(mt.zeros(3, device=npu, dtype=w.dtype), 1), lambda: mt.multinomial(w.to(npu), 9),
                  lambda: mt.bernoulli(2 + p.to(npu)), lambda: mt.normal(0.0, -mt.ones(3, device=npu, dtype=w.dtype)), lambda: mt.multinomial(w.to(npu) / 0, 1)):
        with pytest.raises(RuntimeError):
            wrong()
