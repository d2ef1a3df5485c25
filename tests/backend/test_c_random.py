"""Random numbers: the C sampler of the Mersenne Twister and NumPy against real PyTorch, bitwise,
including the generator state afterwards."""
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mindtorch.torch as mt
from mindtorch.backend.cpu import random, threads
from mindtorch.backend.cpu.box_muller import block_normals
from mindtorch.backend.cpu._numpy_private import twister_state
from mindtorch.backend.c_kernels import random as c_random

SIDES = ["c", "numpy"] if c_random._load() else ["numpy"]
#: sizes around the ends of the twister's blocks, of blocks of sixteen normals and of the unit of
#: work of the C code
sizes = st.sampled_from([0, 1, 7, 15, 16, 17, 31, 47, 512, 623, 624, 625, 1023, 1025, 1248, 5000])
#: name -> function of (torch namespace, n, generator)
DRAWS = {
    "rand": lambda T, n, g: T.rand(n, generator=g), "double": lambda T, n, g: T.rand(n, generator=g, dtype=T.float64),
    "half": lambda T, n, g: T.rand(n, generator=g, dtype=T.float16), "randn": lambda T, n, g: T.randn(n, generator=g),
    "bfloat16": lambda T, n, g: T.randn(n, generator=g, dtype=T.bfloat16), "complex": lambda T, n, g: T.randn(n, generator=g, dtype=T.complex64),
    "normal": lambda T, n, g: T.empty(n).normal_(-1.5, 3, generator=g), "std": lambda T, n, g: T.empty(n, 2).normal_(0, 0.02, generator=g),
    "uniform": lambda T, n, g: T.empty(n).uniform_(-0.1, 0.7, generator=g), "strided": lambda T, n, g: T.zeros(n, 2)[:, 1].uniform_(2, 3, generator=g),
    "narrow": lambda T, n, g: T.empty(n).uniform_(1, 1 + 2 ** -22, generator=g),
    "randint": lambda T, n, g: T.randint(-5, 93, (n,), generator=g), "wide": lambda T, n, g: T.randint(0, 2 ** 28 - 1, (n,), generator=g),
    "single": lambda T, n, g: T.randint(7, 8, (n,), generator=g), "int8": lambda T, n, g: T.randint(-100, 100, (n,), generator=g, dtype=T.int8),
    "long": lambda T, n, g: T.randint(-2 ** 60, 2 ** 61, (n,), generator=g), "float": lambda T, n, g: T.randint(3, 99, (n,), generator=g, dtype=T.float32),
    "randperm": lambda T, n, g: T.randperm(n, generator=g), "int32": lambda T, n, g: T.randperm(n, generator=g, dtype=T.int32),
    "mask": lambda T, n, g: T.empty(n).bernoulli_(0.37, generator=g), "never": lambda T, n, g: T.empty(n).bernoulli_(0.0, generator=g),
    "always": lambda T, n, g: T.empty(n).bernoulli_(1.0, generator=g), "bernoulli": lambda T, n, g: T.bernoulli(T.full((n,), 0.25), generator=g),
}


@pytest.fixture(params=SIDES, autouse=True)
def side(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(c_random, "_functions", {})
    return request.param


def same(ours, real):
    a, b = [(t.float() if "bfloat16" in str(t.dtype) else t).numpy() for t in (ours, real)]
    assert (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2 ** 64 - 1), calls=st.lists(st.tuples(st.sampled_from(sorted(DRAWS)), sizes), min_size=1, max_size=8))
def test_random_streams_match_torch(seed, calls):
    ours, real = mt.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
    for name, n in calls:
        same(DRAWS[name](mt, n, ours), DRAWS[name](torch, n, real))
        same(ours.get_state(), real.get_state())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 99), first=sizes, n=sizes)
def test_generator_state_can_be_set_and_cloned(seed, first, n):
    """Checks that a generator continues from a PyTorch state, and a clone from where it was made.

    Words returned before stay unchanged.
    """
    real, ours = torch.Generator().manual_seed(seed), mt.Generator()
    torch.rand(first, generator=real)
    ours.set_state(mt.from_numpy(real.get_state().numpy()))
    other, words = ours.clone_state(), ours._words(5)
    kept = words.copy()
    want = torch.cat([torch.rand(n, generator=real) for _ in range(3)])
    same(mt.cat([mt.rand(n, generator=other) for _ in range(3)]), want)
    mt.rand(2000, generator=ours)
    assert (words == kept).all()


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("mean,std", [(0.0, 1.0), (2.0, 1.0), (0.0, 0.02), (-1.5, 3.0)])
def test_many_normals_on_threads(monkeypatch, count, mean, std):
    monkeypatch.setattr(threads._pool, "count", count)
    for n in (65536, 200000, 200005):
        real, ours = torch.Generator().manual_seed(n), mt.Generator().manual_seed(n)
        same(mt.empty(n).normal_(mean, std, generator=ours), torch.empty(n).normal_(mean, std, generator=real))


def test_python_threads_share_a_generator(side):
    """Checks that every number of the stream is drawn exactly once, whichever thread gets it."""
    if side == "numpy":
        pytest.skip("NumPy holds the interpreter's lock")
    g, n, got = mt.Generator().manual_seed(5), 64 * 5 * 100, []

    def work():
        mine = [c_random.uniforms(g, 64) for _ in range(100)]
        got.extend(mine)
    ts = [threading.Thread(target=work) for _ in range(5)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    want = torch.rand(n, generator=torch.Generator().manual_seed(5)).numpy().reshape(-1, 64)
    assert sorted(x.tobytes() for x in got) == sorted(x.tobytes() for x in want)


def test_numpy_draws_if_its_state_is_unknown(monkeypatch):
    """Checks that NumPy draws if its internal state is unknown."""
    monkeypatch.setattr("mindtorch.backend.cpu._numpy_private._twister_is_known", lambda: False)
    assert twister_state(np.random.MT19937(0)) == 0
    assert c_random._load() == {}
    monkeypatch.setattr(c_random, "_functions", None)
    g = mt.Generator().manual_seed(1)
    assert c_random.uniforms(g, 3) is None
    same(mt.from_numpy(random.uniform((700,), generator=g)), torch.rand(700, generator=torch.Generator().manual_seed(1)))


def test_normals_have_no_negative_zeros():
    """Checks that a zero radius yields positive zeros, as in PyTorch, whose fused addition of the
    mean makes them positive."""
    u = np.zeros(32, np.float32)
    u[8:16] = np.arange(8) / 8
    x = block_normals(u, 0.0, 1.0)
    assert not x.any() and not np.signbit(x).any()
