"""Unary functions against PyTorch."""
import contextlib
import functools
import math

import numpy as np
import pytest
from _parity import In, check, few, mine, real, values
from hypothesis import given
from hypothesis import strategies as st

ALL = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64", "complex128"]
LAYOUTS = ["plain", "plain", "transposed", "strided"]
SHAPES = [(), (3,), (2, 3), (0, 2), (2, 1, 3)]

# name -> range of arguments in which the function and its derivative are well-behaved
NAMES = {
    "abs": (-3, 3), "neg": (-3, 3), "exp": (-3, 3), "exp2": (-3, 3), "expm1": (-2, 2), "log": (0.3, 5), "log1p": (-0.5, 4),
    "log2": (0.3, 5), "log10": (0.3, 5), "sqrt": (0.3, 5), "rsqrt": (0.3, 5), "sin": (-4, 4), "cos": (-4, 4), "tan": (-1.2, 1.2),
    "asin": (-0.8, 0.8), "acos": (-0.8, 0.8), "atan": (-3, 3), "sinh": (-3, 3), "cosh": (-3, 3), "tanh": (-3, 3), "asinh": (-3, 3),
    "acosh": (1.2, 4), "atanh": (-0.8, 0.8), "sigmoid": (-4, 4), "erf": (-2, 2), "erfc": (-2, 2), "erfinv": (-0.9, 0.9),
    "floor": (-3, 3), "ceil": (-3, 3), "round": (-3, 3), "trunc": (-3, 3), "frac": (-3, 3), "sign": (-3, 3), "sgn": (-3, 3),
    "signbit": (-3, 3), "reciprocal": (0.4, 3), "square": (-3, 3), "isnan": (-1, 1), "isinf": (-1, 1), "isfinite": (-1, 1),
    "isposinf": (-1, 1), "isneginf": (-1, 1), "isreal": (-1, 1), "nan_to_num": (-3, 3), "deg2rad": (-180, 180), "rad2deg": (-3, 3),
    "angle": (-3, 3), "real": (-3, 3), "imag": (-3, 3), "conj": (-3, 3), "conj_physical": (-3, 3), "positive": (-3, 3),
    "lgamma": (0.4, 5), "digamma": (0.5, 5), "i0": (-3, 3), "logit": (0.1, 0.9), "sinc": (-2.9, 2.9), "logical_not": (-1, 1),
    "bitwise_not": (-3, 3), "resolve_conj": (-3, 3), "resolve_neg": (-3, 3), "absolute": (-3, 3), "negative": (-3, 3), "fix": (-3, 3),
    "arcsin": (-0.8, 0.8), "arctanh": (-0.8, 0.8),
}


@functools.cache
def taken(name):
    """Returns the dtypes that PyTorch accepts; most examples of a test use one of them."""
    found = []
    for d in ALL:
        with contextlib.suppress(RuntimeError, TypeError, NotImplementedError):
            getattr(real, name)(real.ones(1, dtype=getattr(real, d)))
            found.append(d)
    return found


@pytest.mark.parametrize("name", NAMES)
@few
@given(st.data())
def test_function_and_method(name, data):
    d = data.draw(st.sampled_from(taken(name) if data.draw(st.integers(0, 3)) else ALL))
    low, high = NAMES[name]
    if d.startswith(("int", "uint", "bool")):
        low, high = min(low, 0) if name not in ("reciprocal", "rsqrt", "lgamma", "digamma") else 1, max(high, 2)
    if d in ("float16", "bfloat16") and name in ("asin", "acos", "atanh", "erfinv", "logit", "arcsin", "arctanh"):
        low, high = low / 2 if low < 0 else 0.3, high / 2 if low < 0 else 0.7
    s = data.draw(st.integers(0, 10**6))
    # PyTorch rejects complex nan_to_num and computes sinc's gradient entirely in half precision.
    grad = (name, d) not in (("nan_to_num", "complex64"), ("nan_to_num", "complex128"), ("sinc", "float16"), ("sinc", "bfloat16"))
    x = In(values(s, data.draw(st.sampled_from(SHAPES)), d, low, high), d, data.draw(st.sampled_from(LAYOUTS)), grad)
    tolerance = 1e-4 if d.startswith("complex") or name in ("lgamma", "digamma", "erfinv", "logit", "tan") else None
    check(lambda T, a: getattr(T, name)(a), x, rtol=tolerance, grad_rtol=1e-4)
    if name not in ("real", "imag"):
        check(lambda T, a: getattr(a, name)(), x, rtol=tolerance, grad_rtol=1e-4)


IN_PLACE = [n for n in NAMES if hasattr(real.Tensor, n + "_")]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    low, high = NAMES[name]

    def f(T, a):
        c = a.clone()
        r = getattr(c, name + "_")()
        assert r is c
        return c
    for d in ("float32", "int64", "bool", "complex64", "float16"):
        grad = name != "logical_not"
        check(f, In(values(7, (2, 3), d, max(low, -3), min(high, 3)), d, grad=grad), rtol=1e-4, grad_rtol=1e-3)

    def leaf(T, a):
        return getattr(a, name + "_")()
    if name != "logical_not":
        check(leaf, In(values(7, (2, 3), "float32", low, high), grad=True))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("angle", "real", "imag", "conj", "resolve_conj", "resolve_neg",
                                                                "bitwise_not", "digamma")])
def test_second_gradients(name):
    low, high = NAMES[name]
    check(lambda T, a: getattr(T, name)(a), In(values(3, (2, 3), "float64", low, high), "float64", grad=True), second=True, rtol=1e-6)


def test_special_values():
    inf, nan = math.inf, math.nan
    x = In([inf, -inf, nan, 0.0, -0.0, 1.0, -1.0, 100.0, -100.0, 1e-30], "float32")
    for name in NAMES:
        if name not in ("digamma",):
            check(lambda T, a, n=name: getattr(T, n)(a), x, rtol=1e-4)
    check(lambda T, a: T.digamma(a), In([inf, nan, 0.0, -0.0, -1.0, -0.5], "float32"), rtol=1e-4)


def test_gradients_at_the_corners():
    zero = In([0.0, -0.0, 1.0, -1.0], "float64", grad=True)
    for name in ("abs", "sgn", "sign", "sinc", "sqrt", "i0", "relu", "square"):
        check(lambda T, a, n=name: getattr(T, n)(a), zero)
    check(lambda T, a: T.nan_to_num(a), In([math.nan, math.inf, 1.0], "float64", grad=True))
    check(lambda T, a: a.abs(), In([0j, 3 + 4j], "complex64", grad=True))
    check(lambda T, a: a.sgn(), In([0j, 3 + 4j], "complex64", grad=True))
    check(lambda T, a: a.angle(), In([1j, 3 + 4j, -1 - 1j], "complex64", grad=True))


@given(st.data())
def test_round_decimals(data):
    d = data.draw(st.sampled_from(["float32", "float64"]))
    n = data.draw(st.sampled_from([0, 1, 3, -1, -2]))
    x = In(values(data.draw(st.integers(0, 10**6)), (5,), d, -1000, 1000), d, grad=True)
    check(lambda T, a: T.round(a, decimals=n), x)


@pytest.mark.parametrize("kw", [{}, {"nan": 1.0}, {"posinf": 5.0, "neginf": -5.0}])
def test_nan_to_num(kw):
    a = [math.nan, math.inf, -math.inf, 1.5]
    for d in ("float32", "float64", "float16", "bfloat16"):
        check(lambda T, x: T.nan_to_num(x, **kw), In(a, d))
    check(lambda T, x: T.nan_to_num(x, **kw), In(np.array([complex(math.nan, math.inf), 1j]), "complex64"))
    check(lambda T, x: T.nan_to_num(x, **kw), In(np.array([1, 2]), "int64"))


@pytest.mark.parametrize("eps", [None, 0.1, 0.0])
def test_logit_eps(eps):
    check(lambda T, x: T.logit(x, eps), In([0.05, 0.3, 0.95, 0.5], "float64", grad=True), second=True)
    check(lambda T, x: T.special.logit(x, eps=eps), In([0.0, 1.0, 2.0, -1.0], "float32"))


@pytest.mark.parametrize("n", [0, 1, 2, 4])
def test_polygamma(n):
    check(lambda T, x: T.polygamma(n, x), In([0.7, 1.5, 4.0], "float64", grad=True), rtol=1e-6)
    check(lambda T, x: x.polygamma(n), In([-0.7, -2.5, 3.3], "float32"), rtol=1e-3, atol=1e-3)
    check(lambda T, x: T.polygamma(n, x), In(np.array([1, 2]), "int64"), rtol=1e-4)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_mvlgamma(p):
    check(lambda T, x: T.mvlgamma(x, p), In([2.7, 3.5, 4.0], "float64", grad=True), second=True)


def test_incomplete_gamma():
    a, x = In([0.5, 1.0, 3.0, 2.0], "float64"), In([0.3, 2.0, 5.0, 1.0], "float64", grad=True)
    check(lambda T, a, x: (T.igamma(a, x), T.igammac(a, x), T.special.gammainc(a, x)), a, x, rtol=1e-6)
    check(lambda T, a, x: T.igamma(a, x), In([1.0, -1.0, 1.0], "float32"), In([2.0, 2.0, -2.0], "float32"), rtol=1e-4)


def test_frexp():
    check(lambda T, x: tuple(T.frexp(x)), In([3.0, -0.1, 0.0, 1e20], "float32", grad=True))
    assert repr(mine.frexp(mine.tensor([3.0], device="cpu"))) == repr(real.frexp(real.tensor([3.0])))


# ------------------------------------------------------------------ complex numbers and views
def test_parts_are_views():
    for T in (real, mine):
        z = T.tensor([1 + 2j, 3 - 1j])
        z.real.mul_(2)
        z.imag[0] = 5
        T.view_as_real(z)[1, 1] = -7
        assert z.tolist() == [2 + 5j, 6 - 7j]
        z.real = T.tensor([0.0, 1.0])
        assert z.tolist() == [5j, 1 - 7j]
        w = T.view_as_complex(T.tensor([[1.0, 2.0], [3.0, 4.0]]))
        assert w.tolist() == [1 + 2j, 3 + 4j]


@pytest.mark.parametrize("f", [
    lambda T, z: z.real, lambda T, z: z.imag, lambda T, z: T.view_as_real(z), lambda T, z: z.conj(), lambda T, z: z.abs() ** 2,
    lambda T, z: T.view_as_complex(T.view_as_real(z) * 2), lambda T, z: T.complex(z.real, z.imag * 2),
    lambda T, z: T.polar(z.abs(), z.angle()), lambda T, z: z.real * z.imag])
def test_complex_gradients(f):
    check(f, In(np.array([1 + 2j, 3 - 1j, -0.5 + 0.2j]), "complex128", grad=True), second=True, rtol=1e-6)


def test_gradient_through_a_write_to_the_real_part():
    def f(T, z, x):
        w = z * 1
        w.real.copy_(x)
        w.imag.mul_(2)
        return w
    check(f, In(np.array([1 + 2j, 3 - 1j]), "complex64", grad=True), In([5.0, 6.0], "float32", grad=True))


@pytest.mark.parametrize("a", [In([1.0, -2.0, math.nan, math.inf], "float32"), In([[1j, 2.0]], "complex64"), In(np.array([1, 0]), "int64")])
def test_classification(a):
    check(lambda T, x: (T.isnan(x), T.isinf(x), T.isfinite(x), T.isreal(x), x.is_complex(), x.is_floating_point(), T.is_complex(x)), a)


ERRORS = [
    lambda T: T.exp(2.0), lambda T: T.abs(3), lambda T: T.exp(), lambda T: T.exp(T.ones(1), T.ones(1)),
    lambda T: T.tensor([1]).exp_(), lambda T: T.tensor([1]).sigmoid_(), lambda T: T.tensor([True]).abs(),
    lambda T: T.tensor([1j]).floor(), lambda T: T.tensor([1j]).sign(), lambda T: T.tensor([1j]).abs_(),
    lambda T: T.tensor([1.0]).imag, lambda T: T.round(T.tensor([15]), decimals=-1), lambda T: T.tensor([1j]).erf(),
    lambda T: T.polygamma(-1, T.ones(1)), lambda T: T.mvlgamma(T.ones(1), 0), lambda T: T.frac(T.tensor([1])),
    lambda T: T.isposinf(T.tensor([1j])), lambda T: T.deg2rad(T.tensor([1j])), lambda T: T.view_as_real(T.ones(2)),
    lambda T: T.view_as_complex(T.ones(2, 3)), lambda T: T.complex(T.ones(1), T.ones(1).double()), lambda T: +T.tensor([True]),
    lambda T: T.frexp(T.tensor([1])), lambda T: T.exp(T.tensor([1]), out=T.zeros(1, dtype=T.int64)),
    lambda T: T.ones(1, requires_grad=True).exp_(), lambda T: T.signbit(T.tensor([1j])), lambda T: T.bitwise_not(T.ones(1)),
]


@pytest.mark.parametrize("n", range(len(ERRORS)))
def test_errors(n):
    with pytest.raises(Exception) as expected:
        ERRORS[n](real)
    with pytest.raises(type(expected.value)):
        ERRORS[n](mine)


def test_modified_saved_result_raises_in_backward():
    for T in (real, mine):
        x = T.ones(2, requires_grad=True)
        y = x.exp()
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_accuracy_near_zero():
    tiny = In([1e-10, -1e-10, 1e-6, 1e-3], "float32")
    for name in ("expm1", "log1p", "sinh", "tanh", "asinh", "atanh", "erf", "sin", "erfinv"):
        check(lambda T, a, n=name: getattr(T, n)(a), tiny, rtol=1e-6)
