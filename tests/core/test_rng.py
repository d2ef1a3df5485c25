"""mindtorch.backend.cpu.random against real PyTorch's CPU generator: the same numbers, and the same
stream position afterwards."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mindtorch.backend.cpu import random

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int64", "int32", "int16", "int8", "uint8")
SIZES = (0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 100, 623, 624, 625, 1000, 40000)

seeds = st.one_of(st.integers(0, 100), st.integers(-(2**63), 2**64 - 1))
sizes = st.one_of(st.sampled_from(SIZES), st.integers(0, 2000))
exactly = settings(derandomize=True, deadline=None, max_examples=150)
few = settings(derandomize=True, deadline=None, max_examples=40)

# Without AVX2 kernels PyTorch computes normals with another logarithm and cosine.
VECTOR = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def _stream_is_torchs_own():
    g = torch.Generator()
    torch.zeros(10).bernoulli_(0.5, generator=g)
    torch.zeros(10).exponential_(generator=g)
    return int(g.get_state()[16:24].numpy().view(np.uint64)[0]) == 40


# On Intel processors PyTorch uses MKL's generator for these two.
own_stream = pytest.mark.skipif(not _stream_is_torchs_own(), reason="this torch draws bernoulli_, exponential_ by MKL")


def pair(seed):
    return random.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)


def np_of(t):
    return (t.float() if t.dtype == torch.bfloat16 else t).numpy()


def td(name):
    return getattr(torch, name)


def check_state(ours, real):
    a, b = ours.get_state(), real.get_state().numpy()
    # the cached normal may come from NumPy's vector code: equal except for the last bits
    np.testing.assert_allclose(a[5024:5032].view(np.float64), b[5024:5032].view(np.float64), rtol=1e-14)
    a[5024:5032] = b[5024:5032] = 0
    np.testing.assert_array_equal(a, b)


def check(ours, theirs, scale=0.0):
    """Checks bitwise equality; float64 within a few ulps, of `scale` where terms of that size
    cancel."""
    theirs = np_of(theirs)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype and ours.flags.c_contiguous
    if ours.dtype in (np.float64, np.complex128):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14, atol=1e-14 * scale)
    else:
        np.testing.assert_array_equal(ours, theirs)


def check_normal(ours, theirs, scale=0.0):
    if VECTOR or ours.size < 16:
        check(ours, theirs, scale)
    else:
        np.testing.assert_allclose(ours, np_of(theirs), rtol=1e-5, atol=1e-5 * (1 + scale))


# ------------------------------------------------------------------ the generator


def test_new_generator_has_torch_default_state():
    ours, real = random.Generator(), torch.Generator()
    assert ours.initial_seed() == real.initial_seed() and ours.device == "cpu"
    check_state(ours, real)


@exactly
@given(seeds)
def test_seeding(seed):
    ours, real = pair(seed)
    assert ours.initial_seed() == real.initial_seed()
    check_state(ours, real)
    check(random.uniform(5, generator=ours), torch.rand(5, generator=real))
    ours.manual_seed(seed)
    real.manual_seed(seed)
    check(random.uniform(5, generator=ours), torch.rand(5, generator=real))


@pytest.mark.parametrize("bad", [1.5, "a", None, True, 2**64, -(2**63) - 1])
def test_invalid_seeds_raise(bad):
    with pytest.raises((RuntimeError, ValueError)) as real:
        torch.Generator().manual_seed(bad)
    with pytest.raises(real.type, match=str(real.value)):
        random.Generator().manual_seed(bad)


def test_seed_is_fresh():
    g = random.Generator()
    first, second = g.seed(), g.seed()
    assert first != second and g.initial_seed() == second
    np.testing.assert_array_equal(
        random.uniform(9, generator=g), random.uniform(9, generator=random.Generator().manual_seed(second))
    )
    assert random.default_generator.initial_seed() != random.Generator().initial_seed()


@exactly
@given(seeds, st.lists(st.integers(0, 700), max_size=4), st.integers(1, 17))
def test_states_are_exchanged_with_torch(seed, draws, then):
    ours, real = pair(seed)
    for n in draws:
        random.uniform(n, generator=ours)
        torch.rand(n, generator=real)
    random.normal(then, generator=ours)
    torch.randn(then, generator=real)

    from_real = random.Generator()
    from_real.set_state(real.get_state().numpy())
    to_real = torch.Generator()
    to_real.set_state(torch.from_numpy(ours.get_state()))
    check_state(from_real, to_real)
    check(random.normal(3, "float64", generator=from_real), torch.randn(3, dtype=torch.float64, generator=to_real))
    check(random.uniform(700, generator=from_real), torch.rand(700, generator=to_real))
    check_state(from_real, to_real)


def test_invalid_states_raise():
    g = random.Generator()
    for bad in (np.zeros(10, np.uint8), np.zeros(5056, np.uint8), np.zeros(5056, np.float32)):
        with pytest.raises((RuntimeError, TypeError)) as real:
            torch.Generator().set_state(torch.from_numpy(bad))
        with pytest.raises(real.type, match=str(real.value)):
            g.set_state(bad)
    check_state(g, torch.Generator())


@pytest.mark.parametrize("clone", [random.Generator.clone_state, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
@pytest.mark.parametrize("draws", [0, 3, 624, 1000])
def test_clones_continue_the_same_stream(clone, draws):
    g = random.Generator().manual_seed(4)
    random.uniform(draws, generator=g)
    random.normal(3, generator=g)
    other = clone(g)
    assert type(other) is random.Generator and other.initial_seed() == 4
    want = random.normal(900, "float64", generator=g)
    np.testing.assert_array_equal(random.normal(900, "float64", generator=other), want)
    assert not np.array_equal(random.normal(900, "float64", generator=other), want)


def test_default_generator_is_used_when_none_is_given(monkeypatch):
    monkeypatch.setattr(random, "default_generator", random.Generator().manual_seed(3))
    check(random.uniform(4), torch.rand(4, generator=torch.Generator().manual_seed(3)))


def test_results_are_independent_of_the_generators_buffer():
    g = random.Generator().manual_seed(1)
    state = g.get_state()
    for draw in (lambda: random.uniform(50, generator=g), lambda: random.randint(0, 9, 50, generator=g)):
        draw()[...] = 0
    g.set_state(state)
    check(random.uniform(1000, generator=g), torch.rand(1000, generator=torch.Generator().manual_seed(1)))


# ------------------------------------------------------------------ uniform and normal


@exactly
@given(seeds, sizes, st.sampled_from(FLOATS + ("complex64", "complex128")))
def test_rand_and_randn(seed, n, dtype):
    ours, real = pair(seed)
    check(random.uniform((n,), dtype, generator=ours), torch.rand(n, dtype=td(dtype), generator=real))
    check_normal(random.normal((n,), dtype, generator=ours), torch.randn(n, dtype=td(dtype), generator=real), 1)
    check(random.uniform(3, dtype, generator=ours), torch.rand(3, dtype=td(dtype), generator=real))
    check_state(ours, real)


@exactly
@given(seeds, st.sampled_from(FLOATS), st.floats(-1000, 1000), st.floats(0, 1000), st.sampled_from((7, 1000)))
def test_uniform_between_bounds(seed, dtype, low, width, n):
    ours, real = pair(seed)
    check(
        random.uniform(n, dtype, low, low + width, ours),
        torch.zeros(n, dtype=td(dtype)).uniform_(low, low + width, generator=real),
    )
    check_state(ours, real)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "low, high", [(1000, 1000.01), (1e-30, 1.0), (-1e-9, 1e9), (1, 1 + 2**-51), (5, 5), (-1e30, 1e30)]
)
def test_uniform_near_rounding_limits(dtype, low, high):
    ours, real = pair(11)
    tensor = torch.zeros(20000, dtype=td(dtype))
    try:
        tensor.uniform_(low, high, generator=real)
    except RuntimeError as e:
        with pytest.raises(RuntimeError) as error:
            random.uniform(20000, dtype, low, high, ours)
        assert str(error.value) == str(e)
    else:
        check(random.uniform(20000, dtype, low, high, ours), tensor)


@exactly
@given(
    seeds,
    st.sampled_from(FLOATS),
    st.floats(-100, 100),
    st.floats(0, 100),
    st.sampled_from((1, 2, 7, 15, 16, 35, 1000)),
)
def test_normal_with_mean_and_std(seed, dtype, mean, std, n):
    ours, real = pair(seed)
    for _ in range(2):
        theirs = torch.zeros(n, dtype=td(dtype)).normal_(mean, std, generator=real)
        check_normal(random.normal(n, dtype, mean, std, ours), theirs, abs(mean) + std)
    check_state(ours, real)


def test_many_normals_are_bitwise_equal():
    ours, real = pair(5)
    check_normal(random.normal(1_000_003, generator=ours), torch.randn(1_000_003, generator=real))
    check_state(ours, real)


LAYOUTS = {
    "transposed": lambda z: z(6, 5).t(),
    "sliced": lambda z: z(6, 10)[:, ::2],
    "permuted": lambda z: z(3, 4, 5).permute(2, 0, 1),
    "size one": lambda z: z(1, 4, 1, 5).permute(3, 2, 1, 0),
    "channels last": lambda z: z(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed slice": lambda z: z(9, 8)[::2, 1:7:2].t(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strided_tensors_are_filled_in_memory_order(layout):
    real = torch.Generator().manual_seed(3)
    ours = random.Generator().manual_seed(3)
    tensor = LAYOUTS[layout](torch.zeros)
    for fill, draw in (
        (lambda: tensor.uniform_(generator=real), lambda s: random.uniform(s, generator=ours)),
        (
            lambda: tensor.normal_(1, 2, generator=real),
            lambda s: random.normal(s, "float32", 1, 2, ours, contiguous=False),
        ),
        (lambda: tensor.random_(0, 99, generator=real), lambda s: random.randint(0, 99, s, "float32", ours)),
        (lambda: tensor.log_normal_(generator=real), lambda s: random.log_normal(s, generator=ours)),
    ):
        fill()
        mine = LAYOUTS[layout](torch.zeros).numpy()
        view = random.in_memory_order(mine)
        view[...] = draw(view.shape)
        np.testing.assert_array_equal(mine, tensor.numpy())
    check_state(ours, real)


@few
@given(seeds, st.sampled_from(FLOATS), st.booleans(), st.booleans())
def test_normal_with_tensor_parameters(seed, dtype, mean_is_tensor, std_is_tensor):
    if not (mean_is_tensor or std_is_tensor):
        mean_is_tensor = True
    ours, real = pair(seed)
    mean = torch.linspace(-2, 2, 20).to(td(dtype)).reshape(20, 1) if mean_is_tensor else 1.5
    std = torch.linspace(0, 2, 3).to(td(dtype)) if std_is_tensor else 0.3
    theirs = torch.normal(mean, std, generator=real)
    mine = [np_of(x) if isinstance(x, torch.Tensor) else x for x in (mean, std)]
    check_normal(random.normal_like(*mine, ours, dtype), theirs, 5)
    check_state(ours, real)


# ------------------------------------------------------------------ integers

bounds = st.one_of(
    st.integers(-200, 200), st.integers(-70000, 70000), st.integers(-(2**34), 2**34), st.integers(-(2**63), 2**63 - 1)
)


@settings(derandomize=True, deadline=None, max_examples=250)
@given(seeds, st.sampled_from(FLOATS + INTS + ("bool",)), bounds, st.one_of(bounds, st.none()), st.integers(0, 2))
@pytest.mark.filterwarnings("ignore")
def test_random_between_bounds(seed, dtype, low, high, fold):
    if fold and dtype in ("uint8", "int8", "bool"):  # most values would not fit these dtypes
        low, high = low % 100, high and high % 120
    ours, real = pair(seed)
    tensor = torch.zeros(40, dtype=td(dtype))
    try:
        tensor.random_(low, high, generator=real)
    except (RuntimeError, NotImplementedError) as e:
        with pytest.raises(type(e)) as error:
            random.randint(low, high, 40, dtype, ours)
        assert str(error.value) == str(e)
    else:
        check(random.randint(low, high, 40, dtype, ours), tensor)
    check_state(ours, real)


@exactly
@given(seeds, st.sampled_from((2, 10, 256, 1000, 2**28 - 1, 2**28, 2**32, 2**40)), sizes)
def test_randint(seed, high, n):
    ours, real = pair(seed)
    check(random.randint(0, high, (n, 1), generator=ours), torch.randint(high, (n, 1), generator=real))
    check_state(ours, real)


@exactly
@given(seeds, st.sampled_from(FLOATS + INTS + ("bool",)), sizes)
def test_random_without_bounds(seed, dtype, n):
    ours, real = pair(seed)
    check(random.random(n, dtype, ours), torch.zeros(n, dtype=td(dtype)).random_(generator=real))
    check_state(ours, real)


@few
@given(seeds, st.sampled_from((0, 1, 2, 3, 10, 624, 1000, 60000)))
def test_randperm(seed, n):
    ours, real = pair(seed)
    check(random.randperm(n, generator=ours), torch.randperm(n, generator=real))
    check_state(ours, real)


@pytest.mark.parametrize("dtype", FLOATS + INTS + ("bool", "uint16"))
@pytest.mark.parametrize("n", [0, 100, 300, 3000, -1])
def test_randperm_of_other_dtypes(dtype, n):
    ours, real = pair(n)
    try:
        theirs = torch.randperm(n, dtype=td(dtype), generator=real)
    except (RuntimeError, NotImplementedError) as e:
        with pytest.raises(type(e)) as error:
            random.randperm(n, dtype, ours)
        assert str(error.value) == str(e)
    else:
        check(random.randperm(n, dtype, ours), theirs)


# ------------------------------------------------------------------ masks


@own_stream
@exactly
@given(seeds, sizes, st.one_of(st.sampled_from((0, 1, 0.5, 0.9, 1 - 0.1, 2.0**-53, 1e-9)), st.floats(0, 1)))
def test_bernoulli_mask(seed, n, p):
    ours, real = pair(seed)
    check(random.bernoulli_mask((n,), p, ours), torch.zeros(n, dtype=torch.bool).bernoulli_(p, generator=real))
    check_state(ours, real)


@own_stream
def test_dropout_mask():
    ours = random.Generator().manual_seed(8)
    torch.manual_seed(8)
    kept = torch.nn.functional.dropout(torch.ones(40, 50), 0.3) != 0
    np.testing.assert_array_equal(random.bernoulli_mask((40, 50), 1 - 0.3, ours), kept.numpy())


def test_bernoulli_mask_decided_by_low_words():
    # p equals a sample or its neighbor, so that the upper words of the comparison are equal
    g = random.Generator().manual_seed(0)
    u = g._doubles(20000)
    for p in (u[17], np.nextafter(u[17], 1), u[5], u[5] * (1 - 2**-53)):
        np.testing.assert_array_equal(random.bernoulli_mask(20000, p, g.manual_seed(0)), u < p)


@exactly
@given(seeds, st.sampled_from(FLOATS), sizes)
def test_bernoulli_of_tensor(seed, dtype, n):
    p = torch.linspace(0, 1, n).to(td(dtype))
    ours, real = pair(seed)
    check(random.bernoulli(np_of(p), ours).astype(np_of(p).dtype), torch.bernoulli(p, generator=real))
    check_state(ours, real)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_rrelu_noise(dtype):
    x = torch.linspace(-1, 1, 81).to(td(dtype))
    ours, real = pair(2)
    noise = torch.zeros_like(x)
    torch.ops.aten.rrelu_with_noise(x, noise, 0.1, 0.3, True, real)
    check(random.rrelu_noise(np_of(x), 0.1, 0.3, ours, dtype), noise)
    check_state(ours, real)


# ------------------------------------------------------------------ distributions


@own_stream
@exactly
@given(seeds, sizes, st.sampled_from(FLOATS), st.floats(0.01, 100))
def test_exponential(seed, n, dtype, rate):
    ours, real = pair(seed)
    check(random.exponential((n,), dtype, rate, ours), torch.zeros(n, dtype=td(dtype)).exponential_(rate, generator=real))
    check_state(ours, real)


@exactly
@given(seeds, sizes, st.sampled_from(FLOATS), st.floats(-2, 2), st.floats(0.01, 2))
def test_log_normal_and_cauchy(seed, n, dtype, mean, std):
    ours, real = pair(seed)
    z = torch.zeros(n, dtype=td(dtype))
    check(random.log_normal((n,), dtype, mean, std, ours), z.log_normal_(mean, std, generator=real))
    check(random.cauchy((n,), dtype, mean, std, ours), z.cauchy_(mean, std, generator=real), abs(mean) + std)
    check_state(ours, real)


@exactly
@given(seeds, sizes, st.sampled_from(FLOATS + INTS), st.floats(0.001, 0.999))
def test_geometric(seed, n, dtype, p):
    ours, real = pair(seed)
    check(random.geometric((n,), dtype, p, ours), torch.zeros(n, dtype=td(dtype)).geometric_(p, generator=real))
    check_state(ours, real)


@exactly
@given(
    seeds, st.sampled_from(FLOATS), st.lists(st.one_of(st.just(0.0), st.floats(0, 12), st.floats(9, 5000)), max_size=30)
)
def test_poisson(seed, dtype, rates):
    ours, real = pair(seed)
    rates = torch.tensor(rates).to(td(dtype))
    check(random.poisson(np_of(rates), ours, dtype), torch.poisson(rates, generator=real))
    check_state(ours, real)


@exactly
@given(seeds, st.sampled_from(("float32", "float64")), st.lists(st.floats(1e-5, 3) | st.floats(1, 1e6), max_size=30))
def test_gamma_and_dirichlet(seed, dtype, alpha):
    ours, real = pair(seed)
    alpha = torch.tensor(alpha, dtype=td(dtype))
    check(random.standard_gamma(alpha.numpy(), ours), torch._standard_gamma(alpha, generator=real))
    if len(alpha):
        alpha = alpha.repeat(3, 1)
        check(random.standard_dirichlet(alpha.numpy(), ours), torch._sample_dirichlet(alpha, generator=real))
    check_state(ours, real)


@exactly
@given(
    seeds,
    st.sampled_from(("float32", "float64")),
    st.lists(st.tuples(st.sampled_from((0, 1, 7, 20, 21, 100, 1000, 10**6)), st.floats(0, 1)), max_size=20),
)
def test_binomial(seed, dtype, rows):
    ours, real = pair(seed)
    count, prob = (torch.tensor([row[i] for row in rows], dtype=td(dtype)) for i in (0, 1))
    check(random.binomial(count.numpy(), prob.numpy(), ours), torch.binomial(count, prob, generator=real))
    check_state(ours, real)


@own_stream
@exactly
@given(
    seeds,
    st.sampled_from(FLOATS),
    st.sampled_from(((1,), (5,), (100,), (3, 7), (2, 1000))),
    st.booleans(),
    st.integers(1, 7),
)
def test_multinomial(seed, dtype, shape, replacement, k):
    weights = torch.rand(shape, generator=torch.Generator().manual_seed(1)).add(0.01).to(td(dtype))
    k = k if replacement else min(k, shape[-1])
    ours, real = pair(seed)
    mine = random.multinomial(np_of(weights), k, replacement, ours, dtype)
    theirs = torch.multinomial(weights, k, replacement, generator=real)
    if not replacement and dtype in ("float16", "bfloat16"):  # equal elements may be in any order
        race = weights / torch.empty_like(weights).exponential_(generator=torch.Generator().manual_seed(seed))
        mine, theirs = (torch.gather(race, -1, i) for i in (torch.from_numpy(mine), theirs))
        mine = np_of(mine)
    check(mine, theirs)
    check_state(ours, real)


# ------------------------------------------------------------------ mixed calls

CALLS = {
    "rand": (lambda n, g: random.uniform(n, generator=g), lambda n, g: torch.rand(n, generator=g)),
    "rand64": (
        lambda n, g: random.uniform(n, "float64", generator=g),
        lambda n, g: torch.rand(n, dtype=torch.float64, generator=g),
    ),
    "randn": (lambda n, g: random.normal(n, generator=g), lambda n, g: torch.randn(n, generator=g)),
    "randn64": (
        lambda n, g: random.normal(n, "float64", generator=g),
        lambda n, g: torch.randn(n, dtype=torch.float64, generator=g),
    ),
    "randn16": (
        lambda n, g: random.normal(n, "float16", generator=g),
        lambda n, g: torch.randn(n, dtype=torch.float16, generator=g),
    ),
    "randint": (
        lambda n, g: random.randint(3, 1000, n, generator=g),
        lambda n, g: torch.randint(3, 1000, (n,), generator=g),
    ),
    "wide": (lambda n, g: random.randint(0, 2**40, n, generator=g), lambda n, g: torch.randint(2**40, (n,), generator=g)),
    "randperm": (lambda n, g: random.randperm(n, generator=g), lambda n, g: torch.randperm(n, generator=g)),
    "mask": (
        lambda n, g: random.bernoulli_mask(n, 0.3, g),
        lambda n, g: torch.zeros(n, dtype=torch.bool).bernoulli_(0.3, generator=g),
    ),
    "gamma": (
        lambda n, g: random.standard_gamma(np.full(n, 0.7), g),
        lambda n, g: torch._standard_gamma(torch.full((n,), 0.7, dtype=torch.float64), generator=g),
    ),
    "poisson": (
        lambda n, g: random.poisson(np.full(n, 3.0), g),
        lambda n, g: torch.poisson(torch.full((n,), 3.0, dtype=torch.float64), generator=g),
    ),
    "log_normal": (lambda n, g: random.log_normal(n, generator=g), lambda n, g: torch.zeros(n).log_normal_(generator=g)),
}


@own_stream
@exactly
@given(seeds, st.lists(st.tuples(st.sampled_from(sorted(CALLS)), st.sampled_from(SIZES[:-1])), max_size=12))
def test_mixed_calls_match_torch(seed, calls):
    ours, real = pair(seed)
    for name, n in calls:
        mine, theirs = CALLS[name]
        check_normal(mine(n, ours), theirs(n, real), 1)
    check_state(ours, real)


# ------------------------------------------------------------------ errors

REFUSED = [
    (lambda: random.normal(3, "float32", 0, -1), lambda: torch.zeros(3).normal_(0, -1)),
    (lambda: random.normal(3, "int64"), lambda: torch.zeros(3, dtype=torch.int64).normal_()),
    (lambda: random.uniform(3, "int64"), lambda: torch.zeros(3, dtype=torch.int64).uniform_()),
    (lambda: random.uniform(3, "float32", 3, 1), lambda: torch.zeros(3).uniform_(3, 1)),
    (lambda: random.uniform(3, "float32", 0, 1e300), lambda: torch.zeros(3).uniform_(0, 1e300)),
    (lambda: random.uniform(3, "float16", math.nan, 1), lambda: torch.zeros(3).half().uniform_(math.nan, 1)),
    (lambda: random.uniform(3, "float32", -3e38, 3e38), lambda: torch.zeros(3).uniform_(-3e38, 3e38)),
    (lambda: random.bernoulli_mask(3, 1.5), lambda: torch.zeros(3).bernoulli_(1.5)),
    (lambda: random.bernoulli(np.array([1, 1])), lambda: torch.bernoulli(torch.tensor([1, 1]))),
    (lambda: random.exponential(3, "float32", 0), lambda: torch.zeros(3).exponential_(0)),
    (lambda: random.exponential(3, "int8"), lambda: torch.zeros(3).char().exponential_()),
    (lambda: random.geometric(3, "float32", 1), lambda: torch.zeros(3).geometric_(1)),
    (lambda: random.geometric(3, "bool"), lambda: torch.zeros(3).bool().geometric_(0.5)),
    (lambda: random.log_normal(3, "float32", 0, 0), lambda: torch.zeros(3).log_normal_(0, 0)),
    (lambda: random.log_normal(3, "int32"), lambda: torch.zeros(3).int().log_normal_()),
    (lambda: random.cauchy(3, "float32", 0, 0), lambda: torch.zeros(3).cauchy_(0, 0)),
    (lambda: random.cauchy(3, "int64"), lambda: torch.zeros(3).long().cauchy_()),
    (lambda: random.random(3, "uint16"), lambda: torch.zeros(3, dtype=torch.uint16).random_()),
    (lambda: random.poisson(np.array([-1.0])), lambda: torch.poisson(torch.tensor([-1.0]))),
    (lambda: random.poisson(np.array([1])), lambda: torch.poisson(torch.tensor([1]))),
    (lambda: random.standard_gamma(np.ones(2, "f2")), lambda: torch._standard_gamma(torch.ones(2).half())),
    (lambda: random.normal_like(0.0, np.array([-1.0])), lambda: torch.normal(0.0, torch.tensor([-1.0]))),
    (lambda: random.multinomial(np.ones(3), 0), lambda: torch.multinomial(torch.ones(3), 0)),
    (lambda: random.multinomial(np.ones(3), 4), lambda: torch.multinomial(torch.ones(3), 4)),
    (lambda: random.multinomial(-np.ones(3), 1), lambda: torch.multinomial(-torch.ones(3), 1)),
    (lambda: random.multinomial(np.zeros(3), 1), lambda: torch.multinomial(torch.zeros(3), 1)),
    (lambda: random.multinomial(np.ones((2, 2, 2)), 1), lambda: torch.multinomial(torch.ones(2, 2, 2), 1)),
    (lambda: random.multinomial(np.ones(3, int), 1), lambda: torch.multinomial(torch.ones(3).long(), 1)),
    (lambda: random.randint(0, 2**63, 3), lambda: torch.randint(0, 2**63, (3,))),
    (lambda: random.randint(5, 5, 3), lambda: torch.randint(5, 5, (3,))),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusals(case):
    mine, theirs = REFUSED[case]
    with pytest.raises((RuntimeError, ValueError, NotImplementedError)) as real:
        theirs()
    with pytest.raises(real.type) as error:
        mine()
    assert str(error.value) == str(real.value)


def test_randint_warns_if_floats_skip_integers():
    with pytest.warns(UserWarning, match=r"to - 1 is out of bounds \[-\(2\^24\), 2\^24\]"):
        random.randint(0, 2**26, 3, "float32")
