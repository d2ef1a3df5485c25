"""Random tensors against PyTorch, value by value: functions, in-place fills, generators, dropout.
"""
import pickle

import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine

SHAPES = [(3,), (2, 5), (), (0, 2), (40,), (3, 7, 2)]

# name -> function of (torch, shape, generator)
DRAWS = {
    "rand": lambda T, s, g: T.rand(s, generator=g), "rand_args": lambda T, s, g: T.rand(*s, generator=g) if s else T.rand((), generator=g),
    "randn": lambda T, s, g: T.randn(s, generator=g), "randn_double": lambda T, s, g: T.randn(s, dtype=T.float64, generator=g),
    "rand_half": lambda T, s, g: T.rand(s, dtype=T.float16, generator=g), "rand_bfloat16": lambda T, s, g: T.rand(s, dtype=T.bfloat16, generator=g),
    "randn_bfloat16": lambda T, s, g: T.randn(s, dtype=T.bfloat16, generator=g), "randn_complex": lambda T, s, g: T.randn(s, dtype=T.complex64, generator=g),
    "randint": lambda T, s, g: T.randint(10, s, generator=g), "randint_low": lambda T, s, g: T.randint(-3, 3, s, generator=g, dtype=T.int32),
    "randint_names": lambda T, s, g: T.randint(low=2, high=5, size=s, generator=g), "randint_float": lambda T, s, g: T.randint(7, s, generator=g, dtype=T.float32),
    "randperm": lambda T, s, g: T.randperm(int(np.prod(s)), generator=g), "normal": lambda T, s, g: T.normal(1.0, 2.0, s, generator=g),
    "normal_mean": lambda T, s, g: T.normal(T.ones(s), generator=g), "normal_std": lambda T, s, g: T.normal(0.5, T.full(s, 2.0), generator=g),
    "normal_both": lambda T, s, g: T.normal(T.ones(s), T.full(s, 2.0), generator=g),
    "bernoulli": lambda T, s, g: T.bernoulli(T.full(s, 0.3), generator=g), "bernoulli_p": lambda T, s, g: T.bernoulli(T.zeros(s), 0.6, generator=g),
    "poisson": lambda T, s, g: T.poisson(T.full(s, 3.0), generator=g), "binomial": lambda T, s, g: T.binomial(T.full(s, 9.0), T.full(s, 0.4), generator=g),
    "uniform_": lambda T, s, g: T.zeros(s).uniform_(-1, 3, generator=g), "uniform_from": lambda T, s, g: T.zeros(s).uniform_(to=2, generator=g),
    "normal_": lambda T, s, g: T.zeros(s).normal_(2, 0.5, generator=g), "random_": lambda T, s, g: T.zeros(s).random_(generator=g),
    "random_to": lambda T, s, g: T.zeros(s, dtype=T.int64).random_(9, generator=g), "random_from_to": lambda T, s, g: T.zeros(s).random_(-4, 9, generator=g),
    "bernoulli_": lambda T, s, g: T.zeros(s).bernoulli_(0.7, generator=g),
    "bernoulli_tensor": lambda T, s, g: T.zeros(s).bernoulli_(T.full(s, 0.7), generator=g), "exponential_": lambda T, s, g: T.zeros(s).exponential_(2, generator=g),
    "geometric_": lambda T, s, g: T.zeros(s).geometric_(0.3, generator=g), "cauchy_": lambda T, s, g: T.zeros(s).cauchy_(1, 2, generator=g),
    "log_normal_": lambda T, s, g: T.zeros(s).log_normal_(0, 0.5, generator=g),
}


def _same(a, b):
    assert str(a.dtype) == str(b.dtype) and tuple(a.shape) == tuple(b.shape)
    x, y = [(t.float() if str(t.dtype) == "torch.bfloat16" else t).detach().numpy() for t in (a, b)]
    np.testing.assert_allclose(y, x, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", DRAWS)
def test_numbers(name):
    for shape in SHAPES:
        for seed in (0, 12345):
            made = []
            for T in (real, mine):
                g = T.Generator(T.get_default_device()).manual_seed(seed)
                T.manual_seed(seed)
                first, second, whole = DRAWS[name](T, shape, g), DRAWS[name](T, shape, g), DRAWS[name](T, shape, None)
                # the generators stay in sync
                made.append((first, second, whole, T.rand(2, generator=g), T.rand(2)))
            for a, b in zip(*made):
                _same(a, b)


@pytest.mark.host_only("normal_ numbers elements by where they lie; a device's kernel makes a contiguous tensor and copies it", cases=("normal_",))
@pytest.mark.parametrize("name", ["uniform_", "normal_", "bernoulli_", "random_", "exponential_"])
def test_memory_order(name):
    for make in (lambda T: T.zeros(3, 5).t(), lambda T: T.zeros(4, 6)[:, ::2], lambda T: T.zeros(2, 3, 8).permute(1, 0, 2), lambda T: T.zeros(6, 6)[1:5, 2:]):
        made = []
        for T in (real, mine):
            T.manual_seed(7)
            made.append(getattr(make(T), name)())
        _same(*made)


@pytest.mark.parametrize("name", ["rand_like", "randn_like", "randint_like", "bernoulli"])
def test_like(name):
    for make in (lambda T: T.full((3, 5), 0.5), lambda T: T.full((3, 5), 0.5).t(), lambda T: T.full((4, 6), 0.5)[:, ::2]):
        for kwargs in ({}, {"dtype": "float64"}) if name != "bernoulli" else ({},):
            made = []
            for T in (real, mine):
                T.manual_seed(3)
                k = {n: getattr(T, v) for n, v in kwargs.items()}
                made.append(getattr(T, name)(make(T), *((2, 9) if name == "randint_like" else ()), **k))
            assert made[0].stride() == made[1].stride()
            _same(*made)


def test_multinomial():
    for weights in ([1.0, 0.0, 3.0], [[0.2, 0.8], [1.0, 0.0]], [0.1] * 10):
        for n, again in ((1, False), (2, True), (5, True)):
            made = []
            for T in (real, mine):
                T.manual_seed(11)
                made.append(T.multinomial(T.tensor(weights), n, again))
            _same(*made)
    for args in ((mine.tensor([1.0]), 2), (mine.tensor([-1.0, 2.0]), 1), (mine.tensor([1, 2]), 1), (mine.ones(1, 1, 1), 1), (mine.zeros(2), 1)):
        with pytest.raises(RuntimeError):
            mine.multinomial(*args)
        with pytest.raises(RuntimeError):
            real.multinomial(real.tensor(args[0].numpy()), args[1])


@pytest.mark.host_only("about the host's generator")
def test_generators():
    for T in (real, mine):
        g = T.Generator()
        assert g.manual_seed(5) is g and g.initial_seed() == 5 and g.device == T.device("cpu")
        a = T.rand(3, generator=g)
        state = g.get_state()
        b = T.rand(3, generator=g)
        assert g.set_state(state) is not None and T.equal(T.rand(3, generator=g), b) and not T.equal(a, b)
        assert T.manual_seed(9).initial_seed() == 9 == T.initial_seed() and isinstance(T.seed(), int)
        T.manual_seed(9)
        kept = T.get_rng_state()
        c = T.randn(5)
        T.set_rng_state(kept)
        assert T.equal(T.randn(5), c) and kept.dtype is T.uint8
        with pytest.raises(TypeError):
            T.rand(2, generator=3)
    other = pickle.loads(pickle.dumps(mine.Generator().manual_seed(3)))
    assert mine.equal(mine.rand(3, generator=other), mine.rand(3, generator=mine.Generator().manual_seed(3)))


@pytest.mark.host_only("about the host's generator")
def test_states_are_interchangeable():
    g, h = real.Generator().manual_seed(21), mine.Generator()
    real.randn(7, generator=g)
    h.set_state(mine.tensor(g.get_state().numpy()))
    _same(real.randn(9, generator=g), mine.randn(9, generator=h))
    assert np.array_equal(h.get_state().numpy(), g.get_state().numpy())


def test_gradients():
    for T in (real, mine):
        x = T.ones(3, requires_grad=True)
        y = x * 2
        y.uniform_()
        (y * 3).sum().backward()
        assert x.grad.tolist() == [0, 0, 0]
        with pytest.raises(RuntimeError, match="leaf"):
            x.normal_()
        with T.no_grad():
            x.normal_()
        assert x._version == 1
        p = T.full((3,), 0.5, requires_grad=True)
        for r in (T.bernoulli(p), T.poisson(p), T.normal(p, 1.0)):
            p.grad = None
            r.sum().backward()
            assert p.grad.tolist() == [0, 0, 0]


def test_errors():
    for T in (real, mine):
        for call, error in [(lambda: T.rand(-1), RuntimeError), (lambda: T.randn(2, dtype=T.int64), NotImplementedError), (lambda: T.randint(0, (2,)), RuntimeError),
                            (lambda: T.randint(5), TypeError), (lambda: T.randperm(-1), RuntimeError), (lambda: T.zeros(2).uniform_(2, 1), RuntimeError),
                            (lambda: T.zeros(2).bernoulli_(2), RuntimeError), (lambda: T.zeros(2).exponential_(-1), RuntimeError),
                            (lambda: T.zeros(2).geometric_(0), RuntimeError), (lambda: T.normal(0.0, -1.0, (2,)), RuntimeError), (lambda: T.rand_like([1]), TypeError),
                            (lambda: T.zeros(1).expand(3).uniform_(), RuntimeError), (lambda: T.bernoulli(T.tensor([2.0])), RuntimeError)]:
            with pytest.raises(error):
                call()


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_dropout(p):
    for shape in ((50,), (4, 6), ()):
        made = []
        for T in (real, mine):
            T.manual_seed(4)
            x = T.arange(float(np.prod(shape))).reshape(shape).requires_grad_()
            y = T.nn.functional.dropout(x, p)
            z, mask = T.native_dropout(x, p, True)
            (y * 2 + z).sum().backward()
            made.append((y, z, mask, x.grad))
        for a, b in zip(*made):
            _same(a, b)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["dropout", "native_dropout"])
def test_dropout_rounds_as_torch_does(name, dtype):
    """Bitwise: kept elements are multiplied by a scale rounded to the element dtype; the gradient
    of native_dropout uses the unrounded scale."""
    for p in (0.1, 0.3, 0.45, 0.7):
        made = []
        for T in (real, mine):
            T.manual_seed(4)
            x = T.linspace(-3, 5, 400).to(getattr(T, dtype)).requires_grad_()
            y = T.native_dropout(x, p, True)[0] if name == "native_dropout" else T.nn.functional.dropout(x, p)
            made.append((y, *T.autograd.grad(y, x, x.detach())))
        for a, b in zip(*made):
            assert b.tolist() == a.tolist()
