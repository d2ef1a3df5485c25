"""torch.special against PyTorch."""
import math

import numpy as np
import pytest
from _parity import In, check, few, mine, real, values
from hypothesis import given
from hypothesis import strategies as st

# name -> (low, high) of arguments on which it is well-behaved, and whether it is differentiable
ONE = {"entr": (0.2, 3, True), "erfcx": (-1.5, 4, True), "i0e": (-4, 4, True), "i1": (-4, 4, True), "i1e": (-4, 4, True), "ndtr": (-4, 4, True),
       "ndtri": (0.05, 0.95, True), "log_ndtr": (-8, 4, True), "airy_ai": (-4, 4, False), "bessel_j0": (-9, 9, False), "bessel_j1": (-9, 9, False),
       "bessel_y0": (0.2, 9, False), "bessel_y1": (0.2, 9, False), "modified_bessel_i0": (-4, 4, False), "modified_bessel_i1": (-4, 4, False),
       "modified_bessel_k0": (0.2, 6, False), "modified_bessel_k1": (0.2, 6, False), "scaled_modified_bessel_k0": (0.2, 6, False),
       "scaled_modified_bessel_k1": (0.2, 6, False), "spherical_bessel_j0": (0.1, 9, False), "expit": (-4, 4, True), "exp2": (-2, 2, True),
       "expm1": (-2, 2, True), "log1p": (-0.5, 4, True), "erf": (-2, 2, True), "erfc": (-2, 2, True), "erfinv": (-0.9, 0.9, True),
       "digamma": (0.5, 4, True), "psi": (0.5, 4, True), "gammaln": (0.5, 4, True), "i0": (-4, 4, True), "sinc": (-2.9, 2.9, True),
       "logit": (0.1, 0.9, True), "round": (-3, 3, True)}


@pytest.mark.parametrize("name", ONE)
@few
@given(st.data())
def test_one_variable(name, data):
    low, high, grad = ONE[name]
    d = data.draw(st.sampled_from(["float32", "float64", "int64", "bool"]))
    if d in ("int64", "bool"):
        if name == "round":
            return
        low, high = math.ceil(max(low, 1) if low > 0 else low), max(1, math.floor(high))
    x = In(values(data.draw(st.integers(0, 10**6)), data.draw(st.sampled_from([(), (3,), (2, 2), (0,)])), d, low, high), d, grad=grad)
    check(lambda T, a: getattr(T.special, name)(a), x, rtol=1e-4, atol=1e-5, grad_rtol=1e-3)


@pytest.mark.parametrize("name", [n for n in ONE if ONE[n][2] and n not in ("digamma", "psi")])
def test_second_gradients(name):
    low, high, _ = ONE[name]
    check(lambda T, a: getattr(T.special, name)(a), In(values(0, (3,), "float64", low, high), "float64", grad=True), second=True, rtol=1e-6)


def test_special_values():
    inf, nan = math.inf, math.nan
    x = In([inf, -inf, nan, 0.0, -0.0, 1.0, 30.0], "float64")
    for name in ONE:
        if name not in ("digamma", "psi", "airy_ai"):
            check(lambda T, a: getattr(T.special, name)(a), x, rtol=1e-6)
    for name in ("i0e", "i1", "i1e", "entr", "ndtr", "log_ndtr", "erfcx"):
        check(lambda T, a: getattr(T.special, name)(a), In([0.0, 1.0, -1.0], "float64", grad=True), rtol=1e-6)


POLYNOMIALS = [f"{s}chebyshev_polynomial_{k}" for s in ("", "shifted_") for k in "tuvw"] + [
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name):
    x = In([0.3, -0.2, 1.0, -1.0, 1.5, -2.0, 0.0, 0.99], "float64")
    for n in (-1, 0, 1, 2, 3, 7, 12, 2.7):
        check(lambda T, a: getattr(T.special, name)(a, n), x, rtol=1e-6, atol=1e-7)
    check(lambda T, a, n: getattr(T.special, name)(a, n), In([[0.5], [-0.25]], "float32"), In(np.array([0, 1, 5]), "int64"), rtol=1e-4)
    check(lambda T, n: getattr(T.special, name)(0.5, n), In([0.0, 3.0], "float32"), rtol=1e-4)


@given(st.data())
def test_two_variables(data):
    d, e = (data.draw(st.sampled_from(["float32", "float64", "int64"])) for _ in range(2))
    s = data.draw(st.integers(0, 10**6))
    x, y = In(values(s, (2, 3), d), d, grad=d == e), In(values(s + 1, (3,), e, 0.2), e, grad=d == e)
    check(lambda T, a, b: T.special.xlog1py(a, b), x, y, rtol=1e-4, grad_rtol=1e-3)
    check(lambda T, b: (T.special.xlog1py(2.0, b), T.special.xlogy(2, b)), y, rtol=1e-4, grad_rtol=1e-3)
    big = In(np.abs(x.values) + 1.5 if d != "int64" else np.abs(x.values) + 2, d)
    check(lambda T, a, b: T.special.zeta(a, b), big, In(np.abs(y.values) + 1, e, grad=True), rtol=1e-4, grad_rtol=1e-3)


def test_zeta_has_no_gradient_for_its_first_argument():
    for T in (real, mine):
        x = T.tensor([2.0, 3.0], requires_grad=True)
        with pytest.raises((RuntimeError, NotImplementedError)):
            T.special.zeta(x, T.tensor([1.0, 1.0])).sum().backward()


def test_names():
    """Every public function of torch.special exists in mindtorch."""
    names = [n for n in dir(real.special) if not n.startswith("_") and callable(getattr(real.special, n)) and n[0].islower()]
    assert [n for n in names if not hasattr(mine.special, n)] == []


@pytest.mark.parametrize("f", [lambda T: T.special.bessel_j0(T.tensor([1j])), lambda T: T.special.airy_ai(T.ones(1).half()), lambda T: T.special.zeta(1, 2),
                               lambda T: T.special.i1(2.0), lambda T: T.special.entr(T.tensor([1j]))])
def test_errors(f):
    with pytest.raises(Exception) as expected:
        f(real)
    with pytest.raises(type(expected.value)):
        f(mine)
