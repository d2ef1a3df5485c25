"""Bitwise equality with PyTorch: signed zeros, excessive shifts, integer quotients of half
precision, random numbers in memory order."""
import numpy as np
import pytest
import torch as real
from hypothesis import given, strategies as st

import mindtorch.torch as mine
from tests._parity import few

SIDES = (real, mine)
INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]


def tensor(T, values, dtype):
    return T.tensor(values, dtype=getattr(T, dtype))


def bits(x):
    """Returns values that distinguish -0.0 from 0.0; all NaNs are equal."""
    return [repr(v) for v in x.double().flatten().tolist()] if x.is_floating_point() else x.flatten().tolist()


# ------------------------------------------------------------------ integers
@few
@given(st.sampled_from(INTEGERS), st.data())
def test_shifts_and_common_multiples_of_integers(dtype, data):
    info = real.iinfo(getattr(real, dtype))
    numbers = st.integers(info.min, info.max) | st.sampled_from([info.min, info.max, 0, 1, info.max // 2 + 1])
    a = data.draw(st.lists(numbers, min_size=1, max_size=20))
    by = data.draw(st.integers(max(info.min, -3), min(info.max, 70)))
    b = data.draw(st.lists(numbers.filter(lambda n: n != info.min or info.min == 0), min_size=len(a), max_size=len(a)))
    for shift in (lambda x, T: x >> by, lambda x, T: x << by, lambda x, T: x >> tensor(T, b, dtype), lambda x, T: x << tensor(T, b, dtype)):
        want, got = [shift(tensor(T, a, dtype), T) for T in SIDES]
        assert (str(got.dtype), got.tolist()) == (str(want.dtype), want.tolist())
    # (gcd of the minimum int64 and -1 crashes PyTorch)
    c = [n if n != info.min or info.min == 0 else 1 for n in a]
    for name in ("gcd", "lcm"):
        want, got = [getattr(T, name)(tensor(T, c, dtype), tensor(T, b, dtype)) for T in SIDES]
        assert got.tolist() == want.tolist(), name


# ------------------------------------------------------------------ floats
CORNERS = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 7.5, 1e-30, 65504.0]


@pytest.mark.host_only("a device rounds quotients of half precision once",
                       cases=tuple(f"{n}-3000-{d}" for n in ("floor_divide", "trunc", "floor") for d in ("float16", "bfloat16")))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("size", [0, 3000])
@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide", "trunc", "floor"])
def test_division_with_a_remainder(name, size, dtype):
    """Covers all pairs of corner values, and random values with large quotients."""
    rng = np.random.RandomState(size)
    a = np.concatenate([np.repeat(CORNERS, len(CORNERS)), rng.randn(size) * 100])
    b = np.concatenate([np.tile(CORNERS, len(CORNERS)), rng.randn(size) * 10 ** rng.uniform(-3, 1, size)])

    def run(T):
        x, y = tensor(T, a, dtype), tensor(T, b, dtype)
        return bits(T.div(x, y, rounding_mode=name) if name in ("trunc", "floor") else getattr(T, name)(x, y))
    assert run(mine) == run(real)


# ------------------------------------------------------------------ memory order
SHAPES = {
    "a row": lambda T: T.ones(1, 8).expand(4, 8), "a column": lambda T: T.ones(4, 1).expand(4, 8), "one number": lambda T: T.ones(()).expand(4, 8),
    "the middle": lambda T: T.ones(2, 1, 3).expand(2, 4, 3), "transposed": lambda T: T.ones(8, 4).t(), "every other": lambda T: T.ones(8, 8)[:, ::2],
    "permuted": lambda T: T.ones(2, 3, 4).permute(2, 0, 1), "expanded, transposed": lambda T: T.ones(3, 1, 2).expand(3, 5, 2).transpose(0, 2),
    "channels last": lambda T: T.ones(2, 3, 4, 4).to(memory_format=T.channels_last),
}
DRAWS = {
    "dropout": lambda T, x: T.nn.functional.dropout(x, 0.5), "alpha dropout": lambda T, x: T.nn.functional.alpha_dropout(x, 0.5),
    "feature dropout": lambda T, x: T.feature_dropout(x, 0.5, True), "native dropout": lambda T, x: T.native_dropout(x, 0.5, True)[0],
    "bernoulli": lambda T, x: T.bernoulli(x * 0.5), "rand_like": lambda T, x: T.rand_like(x), "randn_like": lambda T, x: T.randn_like(x),
    "poisson": lambda T, x: T.poisson(x * 3), "rrelu": lambda T, x: T.nn.functional.rrelu(-x, training=True),
    "multinomial": lambda T, x: T.multinomial(x if x.dim() == 2 else x.flatten(1), 3),
}


@pytest.mark.host_only("draws in the order of the host's memory")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("draw", DRAWS)
def test_random_fills_follow_memory_order(draw, shape):
    def run(T):
        T.manual_seed(3)
        r = DRAWS[draw](T, SHAPES[shape](T))
        return r.stride(), r.tolist() if r.dtype == T.int64 else [round(v, 5) for v in r.flatten().tolist()]
    assert run(mine) == run(real)


@pytest.mark.host_only("strides that kernels choose")
@pytest.mark.parametrize("make", [lambda T: T.ones(4, 5), lambda T: T.ones(4, 5).t(), lambda T: T.ones(7), lambda T: T.ones(3, 1).expand(3, 2), lambda T: T.eye(3),
                                  lambda T: T.ones(2, 3, 4)[:, 1:]])
def test_strides_of_nonzero_indices(make):
    def run(T):
        x = make(T)
        return [x.nonzero().stride(), T.argwhere(x).stride(), x.nonzero().tolist(), [t.stride() for t in x.nonzero(as_tuple=True)],
                [t.stride() for t in T.where(x > 0)]]
    assert run(mine) == run(real)
