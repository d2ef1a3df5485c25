"""nn.init: the same values as PyTorch from the same seed, and the same errors."""
import pytest
import torch as real
from _both_sides import same
from hypothesis import given
from hypothesis import strategies as st

import mindtorch.torch as mine


def test_public_names():
    assert sorted(mine.nn.init.__all__) == sorted(real.nn.init.__all__)
    assert all(callable(getattr(mine.nn.init, n)) for n in mine.nn.init.__all__)


@pytest.mark.parametrize("nonlinearity", ["linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
                                          "conv_transpose3d",
                                          "sigmoid", "tanh", "relu", "leaky_relu", "selu", "softmax"])
def test_gain(nonlinearity):
    same(lambda T: T.nn.init.calculate_gain(nonlinearity))


@pytest.mark.parametrize("param", [0.2, 2, 0, "a", True, None])
def test_gain_of_leaky_relu(param):
    same(lambda T: T.nn.init.calculate_gain("leaky_relu", param))


FILLERS = {
    "uniform_": [{}, {"a": -2.0, "b": 3.0}, {"a": 2.0, "b": 1.0}],
    "normal_": [{}, {"mean": 4.0, "std": 0.1}, {"std": -1.0}],
    "trunc_normal_": [{}, {"mean": 1.0, "std": 2.0, "a": -1.0, "b": 1.5}, {"std": 0.02}, {"a": 0.0, "b": 0.1},
                      {"a": 3.0, "b": 4.0}, {"mean": 1.0, "std": 3.0, "a": -2.0, "b": -1.0}],
    "constant_": [{"val": 3.5}],
    "ones_": [{}],
    "zeros_": [{}],
    "eye_": [{}],
    "dirac_": [{}, {"groups": 2}],
    "xavier_uniform_": [{}, {"gain": 2.0}],
    "xavier_normal_": [{}, {"gain": 0.5}],
    "kaiming_uniform_": [{}, {"a": 5 ** 0.5}, {"mode": "fan_out", "nonlinearity": "relu"}, {"mode": "fan"},
                         {"nonlinearity": "foo"}],
    "kaiming_normal_": [{}, {"mode": "fan_out", "nonlinearity": "tanh"}],
    "orthogonal_": [{}, {"gain": 2.0}],
    "sparse_": [{"sparsity": 0.3}, {"sparsity": 0.3, "std": 1.0}],
}
SHAPES = [(3,), (5, 3), (3, 5), (20, 31), (4, 2, 3), (4, 6, 3, 3), (2, 3, 2, 2, 2), (0, 3), (3, 0)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name, kwargs", [(n, k) for n, ks in FILLERS.items() for k in ks])
def test_values_from_the_seed(name, kwargs, shape):
    def program(T):
        T.manual_seed(5)
        t = T.empty(shape)
        result = getattr(T.nn.init, name)(t, **kwargs)
        return t, result is t, T.rand(3)  # the generator has advanced equally
    same(program, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["uniform_", "normal_", "trunc_normal_", "kaiming_uniform_", "orthogonal_"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_dtypes(name, dtype):
    if name == "orthogonal_" and dtype != "float64":
        pytest.skip("torch has no qr in half precision")

    def program(T):
        T.manual_seed(2)
        return getattr(T.nn.init, name)(T.empty(4, 5, dtype=getattr(T, dtype)))
    same(program, rtol=1e-6 if dtype == "float64" else 1e-2, atol=1e-6 if dtype == "float64" else 1e-2)


@pytest.mark.parametrize("name", ["uniform", "normal", "constant", "eye", "dirac", "xavier_uniform", "xavier_normal",
                                  "kaiming_uniform", "kaiming_normal", "orthogonal", "sparse"])
def test_deprecated_names(name):
    def program(T):
        T.manual_seed(1)
        t = T.empty((2, 2, 2) if name == "dirac" else (3, 2))
        args = {"constant": (2.0,), "sparse": (0.5,)}.get(name, ())
        return getattr(T.nn.init, name)(t, *args)
    same(program, rtol=1e-5, atol=1e-6)


def test_generator_argument():
    def program(T):
        g = T.Generator()
        g.manual_seed(9)
        out = [T.nn.init.normal_(T.empty(3, 3), generator=g), T.nn.init.xavier_uniform_(T.empty(3, 3), generator=g)]
        T.manual_seed(4)
        return out, T.rand(2)
    same(program, rtol=1e-5, atol=1e-6)


def test_no_gradient_is_recorded():
    def program(T):
        p = T.nn.Parameter(T.empty(3, 3))
        for f in ("uniform_", "xavier_normal_", "eye_", "trunc_normal_"):
            getattr(T.nn.init, f)(p)
        return p.requires_grad, p.grad_fn is None, p.is_leaf
    same(program)


@pytest.mark.parametrize("bad", ["int64", "not a tensor"])
def test_refusals(bad):
    for T in (real, mine):
        with pytest.raises((NotImplementedError, AttributeError, RuntimeError)):
            T.nn.init.uniform_(3 if bad == "not a tensor" else T.empty(2, dtype=T.int64))


def test_fans():
    same(lambda T: T.nn.init._calculate_fan_in_and_fan_out(T.empty(2, 3, 4, 5)))
    same(lambda T: T.nn.init._calculate_correct_fan(T.empty(2, 3), "FAN_IN"))


@given(rows=st.integers(1, 12), cols=st.integers(1, 12), seed=st.integers(0, 1000))
def test_orthogonal_is_orthogonal(rows, cols, seed):
    mine.manual_seed(seed)
    w = mine.nn.init.orthogonal_(mine.empty(rows, cols), gain=3)
    square = w @ w.t() if rows < cols else w.t() @ w
    assert (square - 9 * mine.eye(min(rows, cols))).abs().max() < 1e-4


@given(a=st.floats(-3, 2), width=st.floats(0.1, 4), mean=st.floats(-2, 2), std=st.floats(0.2, 3),
       seed=st.integers(0, 100))
def test_trunc_normal_stays_inside_and_equals_torch(a, width, mean, std, seed):
    def program(T):
        T.manual_seed(seed)
        t = T.nn.init.trunc_normal_(T.empty(40), mean, std, a, a + width)
        return t, bool((t >= a).all() and (t <= a + width).all())
    same(program, rtol=1e-5, atol=1e-5)
