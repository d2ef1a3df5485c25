"""Scalars and 0-dim tensors combined with float16 and bfloat16 tensors: bitwise equal to PyTorch,
which depends on the operand that is rounded first.

Products and quotients use the second operand unrounded; the other ops first round it to the
tensor's dtype.
"""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from _both_sides import mine, real

HALF = ("bfloat16", "float16")
#: name -> op on a tensor x and a scalar or 0-dim tensor y
OPS = {
    "x + y": lambda T, x, y: x + y, "y + x": lambda T, x, y: y + x, "x - y": lambda T, x, y: x - y, "y - x": lambda T, x, y: y - x,
    "x * y": lambda T, x, y: x * y, "y * x": lambda T, x, y: y * x, "x / y": lambda T, x, y: x / y, "y / x": lambda T, x, y: y / x,
    "x // y": lambda T, x, y: x // y, "x % y": lambda T, x, y: x % y, "y % x": lambda T, x, y: T.remainder(y, x),
    "x ** y": lambda T, x, y: x.abs() ** y, "y ** x": lambda T, x, y: abs(y) ** x,
    "div floor": lambda T, x, y: T.div(x, y, rounding_mode="floor"), "div trunc": lambda T, x, y: T.div(x, y, rounding_mode="trunc"),
    "fmod": lambda T, x, y: T.fmod(x, y), "xlogy": lambda T, x, y: T.xlogy(x, abs(y)), "ldexp": lambda T, x, y: T.ldexp(x, T.as_tensor(y)),
    "hypot": lambda T, x, y: T.hypot(x, T.as_tensor(y)), "copysign": lambda T, x, y: T.copysign(x, y), "rsub": lambda T, x, y: T.rsub(x, y, alpha=1.7),
    "x < y": lambda T, x, y: x < y, "x == y": lambda T, x, y: x == y, "where": lambda T, x, y: T.where(x > 0, x, y),
    "add scaled": lambda T, x, y: T.add(x, y, alpha=1.7), "sub scaled": lambda T, x, y: T.sub(x, y, alpha=1.7),
    "x *= y": lambda T, x, y: x.clone().mul_(y), "x /= y": lambda T, x, y: x.clone().div_(y), "x += y": lambda T, x, y: x.clone().add_(y),
    "lerp": lambda T, x, y: T.lerp(x, x * 1.5 + 1, y), "addcmul of y": lambda T, x, y: T.addcmul(x, x * 1.5, T.as_tensor(y), value=1.7),
    "addcdiv of y": lambda T, x, y: T.addcdiv(x, T.as_tensor(y), x.abs() + 3, value=1.7),
}
#: name -> op with a scalar factor (alpha or value)
FACTORS = {
    "add": lambda T, x, v: T.add(x, x * 1.5, alpha=v), "sub": lambda T, x, v: T.sub(x, x * 1.5, alpha=v), "rsub": lambda T, x, v: T.rsub(x, x * 1.5, alpha=v),
    "add_": lambda T, x, v: x.clone().add_(x * 1.5, alpha=v), "row": lambda T, x, v: T.add(T.stack([x, x + 1]), x * 1.5, alpha=v),
    "transposed": lambda T, x, v: T.add(T.stack([x, x + 1]).t(), T.stack([x, x * 1.5]).t(), alpha=v),
    "column": lambda T, x, v: T.add(T.stack([x, x + 1]), T.ones(2, 1, dtype=x.dtype) * 1.7, alpha=v),
    "addcmul": lambda T, x, v: T.addcmul(x, x * 1.5, x + 3, value=v), "addcdiv": lambda T, x, v: T.addcdiv(x, x * 1.5, x.abs() + 3, value=v),
    "lerp": lambda T, x, v: T.lerp(x, x * 1.5 + 1, v),
}
KINDS = {
    "number": lambda T, v, d: v, "float32": lambda T, v, d: T.tensor(v), "float64": lambda T, v, d: T.tensor(v, dtype=T.float64),
    "same": lambda T, v, d: T.tensor(v, dtype=getattr(T, d)), "other": lambda T, v, d: T.tensor(v, dtype=getattr(T, HALF[d == "bfloat16"])),
    "int": lambda T, v, d: round(v * 77), "int64": lambda T, v, d: T.tensor(round(v * 77)),
}


def tensor(T, values, dtype, strided):
    t = T.tensor(np.repeat(values, 2) if strided else values).to(getattr(T, dtype))
    return t[::2] if strided else t


def ends(fn, T):
    try:
        r = fn(T)
    except (RuntimeError, TypeError, NotImplementedError) as e:
        return type(e)
    return str(r.dtype).rpartition(".")[2], tuple(r.shape), np.array(r.detach().double().tolist())


def alike(fn):
    a, b = ends(fn, real), ends(fn, mine)
    if isinstance(a, type) or isinstance(b, type):
        assert a is b
        return
    assert a[:2] == b[:2]
    np.testing.assert_array_equal(b[2], a[2])
    number = ~np.isnan(a[2])
    np.testing.assert_array_equal(np.signbit(b[2])[number], np.signbit(a[2])[number])


sizes, numbers = st.sampled_from([1, 7, 31, 32, 33, 64, 95, 300]), st.sampled_from([3.3333, -1.2345, 0.7177, 2.7182818, 0.1, -0.5, 257.0, 3.0, -2.0, 1e-3])


@pytest.mark.host_only("0-dim tensors of devices are rounded by the device")
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(OPS)), st.sampled_from(HALF), st.sampled_from(sorted(KINDS)), sizes, numbers, st.booleans(), st.integers(0, 99))
def test_scalar_operand_is_bitwise_equal(name, dtype, kind, n, v, strided, seed):
    values = (np.random.default_rng(seed).standard_normal(n) * 4).astype(np.float32)
    alike(lambda T: OPS[name](T, tensor(T, values, dtype, strided), KINDS[kind](T, v, dtype)))


@pytest.mark.host_only("the elements that PyTorch computes one by one")
@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(FACTORS)), st.sampled_from(HALF), sizes, numbers, st.booleans(), st.integers(0, 99))
def test_scalar_factor_is_bitwise_equal(name, dtype, n, v, strided, seed):
    values = (np.random.default_rng(seed).standard_normal(n) * 4).astype(np.float32)
    alike(lambda T: FACTORS[name](T, tensor(T, values, dtype, strided), v))


@pytest.mark.host_only("exponents of devices are not rounded")
@pytest.mark.parametrize("exponent", [0.5, -0.5, 3, -2, -1, 2, 1, 0, 1.7])
@pytest.mark.parametrize("dtype", HALF)
def test_powers(dtype, exponent):
    """The shortcuts for common exponents agree with PyTorch, also for infinities and zeros of both
    signs."""
    values = [-np.inf, -0.0, 0.0, np.inf, -4.0, *(np.random.default_rng(3).standard_normal(59) ** 2)]
    alike(lambda T: T.tensor(values, dtype=getattr(T, dtype)) ** exponent)


@pytest.mark.parametrize("dtype", ["float32", "float64", *HALF])
@pytest.mark.host_only("zeros of MindSpore's kernels have no sign")
def test_zero_remainder_has_the_sign_of_the_dividend(dtype):
    """A zero remainder has the dividend's sign."""
    for n in (5, 64, 300, 5000):
        x = np.arange(-n, n)[:n] / 2.0
        for y in (np.float64(-1.5), np.where(np.arange(n) % 3, 2.0, -1.0)):
            alike(lambda T: T.remainder(T.tensor(x, dtype=getattr(T, dtype)), T.tensor(y, dtype=getattr(T, dtype))))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scalar_divided_by_a_tensor(dtype):
    """A scalar divided by a tensor is the product with the reciprocal."""
    values = np.random.default_rng(0).random(200) + 0.1

    def run(T):
        x = T.tensor(values, dtype=getattr(T, dtype), requires_grad=True)
        r = 3.3 / x
        assert type(r.grad_fn).__name__ == "MulBackward0"
        r.sum().backward()
        return T.stack([r, x.grad])
    alike(run)


@pytest.mark.parametrize("name", ["mul", "div", "add"])
@pytest.mark.parametrize("dtype", HALF)
def test_gradients(name, dtype):
    """A 0-dim float32 operand gets a float32 gradient, the sum of rounded products."""
    values = np.random.default_rng(1).standard_normal(64)

    def run(T):
        x = T.tensor(values, dtype=getattr(T, dtype), requires_grad=True)
        s = T.tensor(3.3333, requires_grad=True)
        getattr(T, name)(x, s).sum().backward()
        assert s.grad.dtype == T.float32
        return T.cat([x.grad.float(), s.grad.reshape(1)])
    if mine.get_default_device().type == "cpu":
        alike(run)
    else:
        np.testing.assert_allclose(ends(run, mine)[2], ends(run, real)[2], rtol=1e-2)


@pytest.mark.host_only("compiled for the host")
@pytest.mark.parametrize("dtype", HALF)
def test_compiled_half_ops_match_eager(dtype):
    """Each op is compiled on its own and matches eager mode."""
    values = np.random.default_rng(2).standard_normal(64)
    x, s = mine.tensor(values, dtype=getattr(mine, dtype)), mine.tensor(3.3333)
    for fn in (lambda x, s: x * s, lambda x, s: x / s, lambda x, s: 2.7 / x, lambda x, s: x + 3.3333, lambda x, s: x % 1.3, lambda x, s: x.abs() ** 1.7,
               lambda x, s: x + s, lambda x, s: x.add(x, alpha=0.1), lambda x, s: mine.addcmul(x, x, x, value=3.3333)):
        compiled = mine.compile(fn)
        for _ in range(3):
            np.testing.assert_array_equal(compiled(x, s).float().numpy(), fn(x, s).float().numpy())


@pytest.mark.parametrize("fn", [lambda T, x: x ** 1e6, lambda T, x: T.add(x, x, alpha=1e6), lambda T, x: T.addcmul(x, x, x, value=1e40), lambda T, x: x + 1e6,
                                lambda T, x: T.lerp(x, x, 1e40), lambda T, x: x * 1e40, lambda T, x: T.addcmul(x, x, x, value=1e6)])
def test_scalars_beyond_the_half_range(fn):
    alike(lambda T: fn(T, T.ones(3, dtype=T.float16)))
