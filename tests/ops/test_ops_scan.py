"""Cumulative ops, differences and integration against PyTorch."""
import math
import warnings

import numpy as np
import pytest
from _expressions import compare
from _parity import In, check, few, mine, real, values
from hypothesis import given
from hypothesis import strategies as st

ALL = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64"]
LAYOUTS = ["plain", "plain", "transposed", "strided"]


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
@few
@given(st.data())
def test_cumulative(name, data):
    shape = data.draw(st.sampled_from([(), (4,), (2, 3), (2, 3, 2), (0,), (2, 0)]))
    d = data.draw(st.sampled_from(ALL))
    if name in ("cumprod", "cumsum", "logcumsumexp") and "float16" in d:
        d = "float32"  # PyTorch rounds to half precision after every step
    v = values(data.draw(st.integers(0, 10**6)), shape, d)
    if name in ("cummax", "cummin", "cumprod") and v.dtype.kind == "f":
        v = np.round(v)     # ties and zeros
    x = In(v, d, data.draw(st.sampled_from(LAYOUTS)), True)
    dim = data.draw(st.integers(-max(len(shape), 1), max(len(shape), 1) - 1))

    def f(T, a):
        r = getattr(T, name)(a, dim)
        return r if isinstance(r, T.Tensor) else tuple(r)
    check(f, x, rtol=1e-5, grad_rtol=1e-4)
    if name in ("cumsum", "cumprod"):
        to = data.draw(st.sampled_from(["float64", "float32", "int64"]))
        if d != "complex64":
            x.grad = x.grad and to.startswith("float")
            check(lambda T, a: getattr(a, name)(dim, dtype=getattr(T, to)), x, rtol=1e-5, grad_rtol=1e-4)

        x.grad = d.startswith(("float", "complex"))

        if d == "bool":
            return

        def in_place(T, a):
            c = a.clone()
            getattr(c, name + "_")(dim)
            return c
        check(in_place, x, rtol=1e-5, grad_rtol=1e-4)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
@pytest.mark.parametrize("a", [[[1.0, 2.0, 3.0]], [[0.5, 0.0, 2.0]], [[0.0, 0.0, 2.0]]])
def test_second_gradients(name, a):
    check(lambda T, x: getattr(T, name)(x, 1), In(a, "float64", grad=True), second=True)


def test_nan_and_infinities():
    a = In([1.0, math.nan, 2.0, math.inf, math.nan], "float64", grad=True)
    check(lambda T, x: tuple(T.cummax(x, 0)), a)
    check(lambda T, x: tuple(T.cummin(x, 0)), a)
    check(lambda T, x: T.logcumsumexp(x, 0), In([-math.inf, -math.inf, 1.0, 800.0, 2.0], "float64"))
    check(lambda T, x: T.logcumsumexp(x, 0), In([-1e3, 1e3, 2.0], "float64", grad=True))


@given(st.data())
def test_diff(data):
    d = data.draw(st.sampled_from(ALL))
    shape = data.draw(st.sampled_from([(4,), (2, 3), (2, 4, 2), (0, 2)]))
    s = data.draw(st.integers(0, 10**6))
    x = In(values(s, shape, d), d, data.draw(st.sampled_from(LAYOUTS)), True)
    dim, n = data.draw(st.integers(-len(shape), len(shape) - 1)), data.draw(st.integers(0, 5))
    check(lambda T, a: T.diff(a, n, dim), x, grad_rtol=1e-4)
    check(lambda T, a: a.diff(dim=dim, prepend=a, append=a), x, grad_rtol=1e-4)


@given(st.data())
def test_trapezoid(data):
    d = data.draw(st.sampled_from(["float32", "float64", "int64", "complex64"]))
    shape = data.draw(st.sampled_from([(4,), (2, 3), (2, 4, 2), (2, 1), (2, 0)]))
    s = data.draw(st.integers(0, 10**6))
    y = In(values(s, shape, d), d, grad=0 not in shape)
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    for name in ("trapezoid", "cumulative_trapezoid", "trapz"):
        check(lambda T, a: getattr(T, name)(a, dim=dim), y, rtol=1e-4, grad_rtol=1e-4)
        check(lambda T, a: getattr(T, name)(a, dx=0.5, dim=dim), y, rtol=1e-4, grad_rtol=1e-4)
        x = In(values(s + 1, (shape[dim],), "float32"), "float32", grad=y.grad)
        check(lambda T, a, b: getattr(T, name)(a, b, dim=dim), y, x, rtol=1e-4, grad_rtol=1e-4)
        full = In(values(s + 2, shape, "float64"), "float64", grad=y.grad)
        check(lambda T, a, b: getattr(T, name)(a, b, dim=dim), y, full, rtol=1e-4, grad_rtol=1e-4)


@pytest.mark.parametrize("edge", [1, 2])
def test_gradient(edge):
    x = In(values(0, (4, 5), "float64"), "float64", grad=True)
    for kw in ({}, {"spacing": 2.0}, {"dim": 1}, {"dim": (1, 0)}, {"spacing": (0.5, 2.0)}, {"dim": -1, "spacing": 3}):
        check(lambda T, a: T.gradient(a, edge_order=edge, **kw), x, second=True)
    check(lambda T, a: T.gradient(a, spacing=(T.tensor([0.0, 1, 4, 5]), T.tensor([1.0, 2, 4, 7, 8])), edge_order=edge), x, rtol=1e-6)
    check(lambda T, a: T.gradient(a, edge_order=edge), In(np.arange(6).reshape(2, 3) ** 2, "int64"))


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("x_dtype, at_dtype", [("float64", "float64"), ("complex128", "float64"), ("float64", "complex128"), ("float32", "complex64"),
                                               ("int64", "complex64")])
def test_gradient_at_coordinates_with_a_gradient(x_dtype, at_dtype, n):
    x = In(values(0, (n, 3), x_dtype), x_dtype, grad=x_dtype != "int64")
    at = In(np.cumsum(np.abs(values(1, (n,), at_dtype)) + 0.5).astype(at_dtype) + (np.arange(n) * 0.25j if at_dtype.startswith("c") else 0), at_dtype, grad=True)
    loose = {} if "64" in x_dtype and at_dtype.endswith(("t64", "128")) else {"grad_rtol": 1e-3}
    for edge in (1, 2)[:n - 1]:
        check(lambda T, a, b: T.gradient(a, spacing=[b], dim=0, edge_order=edge), x, at, rtol=1e-4, **loose)


ERRORS = [
    lambda T: T.ones(2, 3).cumsum(2), lambda T: T.ones(2, 3).cumprod(), lambda T: T.tensor([1]).logcumsumexp(0), lambda T: T.tensor(3.0).diff(),
    lambda T: T.ones(3).diff(n=-1), lambda T: T.gradient(T.ones(3), edge_order=3), lambda T: T.gradient(T.ones(1)), lambda T: T.tensor([1j]).cummax(0),
    lambda T: T.ones(3).diff(prepend=T.ones(1, 1)), lambda T: T.trapezoid(T.ones(3), T.ones(2)), lambda T: T.trapezoid(T.ones(3), T.ones(3), dx=1),
]


@pytest.mark.parametrize("n", range(len(ERRORS)))
def test_errors(n):
    with pytest.raises(Exception) as expected:
        ERRORS[n](real)
    with pytest.raises(type(expected.value)):
        ERRORS[n](mine)


def test_long_cumsums_are_accurate():
    a = np.full(200000, 0.1, np.float32)
    exact = np.cumsum(a.astype(np.float64))
    assert np.abs(mine.cumsum(mine.tensor(a), 0).numpy() - exact).max() / exact[-1] < 1e-7


@pytest.mark.parametrize("name", ["cumsum_", "cumprod_"])
def test_in_place_cumulative_ops_on_bool_raise(name):
    for lib in (real, mine):
        with pytest.raises(NotImplementedError):
            getattr(lib.tensor([True, False]), name)(0)


def test_gradient_dtypes_and_spacings():
    rows = ["torch.float32", "torch.float64", "torch.complex64", "torch.int32", "torch.uint8"]
    compare([f"torch.gradient(L([9, 4, 2, 100], dtype={d}), spacing={s}, edge_order={e})" for d in rows for e in (1, 2) for s in (
        "None", "2", "0.5", "1j", "(L([0, 1, 3, 4.5]),)", "(L([0, 1, 3, 4.5], dtype=torch.float64),)", "(L([0, 1, 3, 4]),)", "[L(2.)]", "[1., 2.]")])


@given(st.lists(st.sampled_from([0.0, 1.5, -2.0, np.inf, -np.inf, np.nan]), min_size=3, max_size=6))
def test_gradient_of_nonfinite_values(row):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for edge in (1, 2):
            a, b = [T.gradient(T.tensor(row), edge_order=edge)[0].numpy() for T in (real, mine)]
            np.testing.assert_allclose(b, a, rtol=1e-6)


_PART = st.sampled_from([0.0, 1.0, -2.0, 700.0, np.inf, -np.inf, np.nan])


@given(st.lists(st.tuples(_PART, st.sampled_from([0.0, 1.0, -2.0])), min_size=1, max_size=4))
def test_complex_log_sums_of_infinities(parts):
    def run(T):
        x = T.tensor([complex(*p) for p in parts])
        return [x.logcumsumexp(0).numpy(), T.logaddexp(x, x.flip(0)).numpy()]
    for a, b in zip(run(real), run(mine), strict=True):
        np.testing.assert_allclose(b.real, a.real, rtol=1e-4, atol=1e-5)
        # (full turns of an angle are rounding errors)
        np.testing.assert_allclose(np.exp(1j * b.imag), np.exp(1j * a.imag), rtol=1e-3, atol=1e-3)
