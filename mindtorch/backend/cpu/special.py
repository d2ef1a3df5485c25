"""Kernels of special functions: error, gamma and Bessel functions, orthogonal polynomials."""
import math

import numpy as np

from mindtorch.backend.cpu import kernel, large
from mindtorch.backend.cpu.half import downcast, upcast
from mindtorch.backend.cpu.host import F32, quiet, vector
from mindtorch.backend.cpu.pointwise import elementwise, erfinv, looped, scipy_special, select

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


# ------------------------------------------------------------------ error function
#
# erf(x) = tanh(x p(x^2)), with p fitted to an error of 1.7e-7 (relative 2.5e-7) over all float32
# values. 131072 elements take 130; scipy.special.erf 1470, MindSpore's Erf 606, PyTorch 67.
_ERF = [1.1283792741847753, 0.10276905650201111, -0.0001918316368721847, -0.0006197845373959508, 8.763742678908294e-05,
        -5.66850547918735e-06, 1.4185437486975784e-07]
_ERF32 = [np.float32(c) for c in _ERF]
_CDF32 = [np.float32(c / 2 ** k / math.sqrt(2)) for k, c in enumerate(_ERF)]


def _tanh_odd(x, coef):
    t = x * x
    q = t * coef[6]
    for c in coef[5:0:-1]:
        q += c
        q *= t
    q += coef[0]
    q *= x
    return np.tanh(q, out=q)


@quiet
@large.elementwise
@vector
def erf(x):
    """Computes the error function to the last digits of the dtype (float32 or float64)."""
    if x.dtype == F32:
        return _tanh_odd(x, _ERF32)
    from scipy.special import erf as exact
    return exact(x)


@quiet
@vector
def normal_cdf(x):
    """Returns the probability that a standard normal sample is below x."""
    if x.dtype == F32:
        r = _tanh_odd(x, _CDF32)
        r += np.float32(1)
        r *= np.float32(0.5)
        return r
    from scipy.special import ndtr
    return ndtr(x)


kernel("erf", looped("erf")(erf))
kernel("erfinv", erfinv)


# ------------------------------------------------------------------ gamma, Bessel
def _scipy(name):
    """Returns the kernel of a ufunc of scipy.special."""
    @elementwise
    def run(a):
        return scipy_special(name)(a)
    return run


for _name, _ufunc in (("erfc", "erfc"), ("i0", "i0"), ("i1", "i1"), ("i0e", "i0e"), ("i1e", "i1e"), ("erfcx", "erfcx"), ("ndtr", "ndtr"),
                      ("ndtri", "ndtri"), ("log_ndtr", "log_ndtr"), ("bessel_j0", "j0"), ("bessel_j1", "j1"), ("bessel_y0", "y0"), ("bessel_y1", "y1"),
                      ("modified_bessel_i0", "i0"), ("modified_bessel_i1", "i1"), ("modified_bessel_k0", "k0"), ("modified_bessel_k1", "k1"),
                      ("scaled_modified_bessel_k0", "k0e"), ("scaled_modified_bessel_k1", "k1e")):
    kernel(_name, _scipy(_ufunc))


@kernel("airy_ai")
@elementwise
def _airy_ai(a):
    return np.where((a > 200) & (a < np.inf), a.dtype.type(0), scipy_special("airy")(a)[0])


@kernel("spherical_bessel_j0")
@elementwise
def _spherical_bessel_j0(a):
    return np.where(a == 0, a.dtype.type(1), np.where(np.isinf(a), a.dtype.type(0), np.sin(a) / a))


# Derivatives of first-order Bessel functions divide by the argument; within `eps` of zero they take
# their limit.
@kernel("away_from_zero")
@elementwise
def _away(a, *, eps):
    return np.abs(a) > eps


@kernel("over_away_from_zero")
@elementwise
def _over_away(a, b, *, eps):
    return a / select(np.abs(b) > eps, b, np.ones((), b.dtype))


@kernel("bessel_backward")
@elementwise
def _bessel_backward(s, y, a, *, eps):
    d = a.dtype
    if d.kind == "V":
        s, y, a = upcast(s), upcast(y), upcast(a)
        r = downcast(s - upcast(downcast(y / a, d)), d)
    else:
        r = s - y / a
    away = np.abs(a) > eps
    return r if away.all() else np.where(away, r, np.array(0.5, _F32).astype(d))


@kernel("digamma")
@elementwise
def _digamma(a):
    r = scipy_special("psi")(a)
    # PyTorch: -inf at 0, +inf at -0, NaN at the other poles.
    return np.where(a == 0, np.copysign(np.array(np.inf, a.dtype), -a), r)


@kernel("polygamma")
@elementwise
def _polygamma(a, *, n):
    if n == 0:
        return _digamma(a)
    if n == 1:
        return _trigamma(a)
    x = a.astype(np.float64)
    r = np.where(x == np.inf, np.nan, scipy_special("zeta")(float(n + 1), x))
    return (r * (math.factorial(n) * (1 if n % 2 else -1))).astype(a.dtype)


def _trigamma(a):
    """Computes the trigamma function.

    Left of 1/2 by reflection, which makes the poles large numbers, as in PyTorch; elsewhere by
    recurrence and an asymptotic series.
    """
    low = a < 0.5
    s = np.sin(a * a.dtype.type(np.pi))
    x = np.where(low, 1 - a, a)
    r = np.where(low, -(a.dtype.type(np.pi ** 2) / (s * s)), a.dtype.type(0))
    for _ in range(6):
        r = r + 1 / (x * x)
        x = x + 1
    q = 1 / (x * x)
    r = r + (1 + 1 / (2 * x) + q * (1 / 6 - q * (1 / 30 - q * (1 / 42)))) / x
    return np.where(low, -r, r).astype(a.dtype)


@kernel("lgamma")
@elementwise
def _lgamma(a):
    r = np.where(a == -np.inf, a.dtype.type(np.inf), scipy_special("gammaln")(a))
    small = (np.abs(a) < np.finfo(a.dtype).tiny) & (a != 0)
    return np.where(small, -np.log(np.abs(a)), r) if small.any() else r       # scipy overflows there


@kernel("mvlgamma")
@elementwise
def _mvlgamma(a, *, p):
    return sum(_lgamma(a - a.dtype.type(j / 2)) for j in range(p)) + a.dtype.type(p * (p - 1) / 4 * math.log(math.pi))


@kernel("entr")
@elementwise
def _entr(a):
    r = -a * np.log(a)
    return np.where(a > 0, r, np.where(a == 0, a, np.where(a < 0, a.dtype.type(-np.inf), a)))


# ------------------------------------------------------------------ logit, sinc
@kernel("logit")
@elementwise
def _logit(a, *, eps):
    x = a if eps is None else np.clip(a, a.dtype.type(eps), a.dtype.type(1 - eps))
    return np.log(x / (1 - x))


@kernel("logit_backward")
@elementwise
def _logit_grad(g, a, *, eps):
    d = g / (a * (1 - a))
    if eps is None:
        return np.where((a < 0) | (a > 1), a.dtype.type(np.nan), d)
    return np.where((a < eps) | (a > 1 - eps), a.dtype.type(0), d)


@kernel("sinc")
@elementwise
def _sinc(a):
    x = a * np.array(np.pi, a.dtype)
    return np.where(a == 0, np.ones((), a.dtype), np.sin(x) / x)


@kernel("sinc_backward")
@elementwise
def _sinc_backward(a):
    x = a * np.array(np.pi, a.dtype)
    return np.where(x * a == 0, np.zeros((), a.dtype), (x * np.cos(x) - np.sin(x)) / (x * a))


@kernel("sinc_second")
@elementwise
def _sinc_double_backward(a):
    x = a * np.array(np.pi, a.dtype)
    near = np.array(-np.pi ** 2 / 3, a.dtype)
    return np.where(a == 0, near, (2 * np.sin(x) - 2 * x * np.cos(x) - x * x * np.sin(x)) / (x * a * a))


@kernel("sinc_is_differentiable")
@elementwise
def _sinc_is_differentiable(a):
    x = a.astype(_F32) if a.dtype.kind == "V" else a
    return x * x != 0


# ------------------------------------------------------------------ functions of two variables
@kernel("igamma")
@elementwise
def _igamma(a, x):
    return _incomplete("gammainc", a, x)


@kernel("igammac")
@elementwise
def _igammac(a, x):
    return _incomplete("gammaincc", a, x)


def _incomplete(name, a, x):
    # Next to a 0-d operand scipy would choose its float64 loop.
    a, x = np.broadcast_arrays(a, x)
    r = np.where((a < 0) | (x < 0), a.dtype.type(np.nan), scipy_special(name)(a, x))
    # If one operand decides the result, PyTorch ignores the other.
    none = np.isnan(a) & (x == 0) | np.isposinf(a) & np.isnan(x)
    full = np.isnan(a) & np.isposinf(x)
    low = name == "gammainc"
    return np.where(none, a.dtype.type(not low), np.where(full, a.dtype.type(low), r))


@kernel("special_xlog1py")
@elementwise
def _xlog1py(a, b):
    return np.where((a == 0) & (b == b), np.zeros((), np.result_type(a, b)), a * np.log1p(b))


@kernel("xlog1py_is_differentiable")
@elementwise
def _xlog1py_is_differentiable(a, b):
    return ~((a == 0) & (b <= -1))


@kernel("special_zeta")
@elementwise
def _zeta(x, q):
    d = x.dtype
    x, q = np.broadcast_arrays(x.astype(_F64), q.astype(_F64))
    # PyTorch's sum reaches infinity and is then multiplied by zero.
    return np.where((q == np.inf) & (x > 1), np.nan, scipy_special("zeta")(x, q)).astype(d)


# ------------------------------------------------------------------ orthogonal polynomials
def _polynomial(name, evaluate, limit=None):
    """Registers the kernel of P_n(x) with integer order n (fractions are truncated); 0 for negative
    orders."""
    @kernel(name)
    @elementwise
    def run(x, n):
        d = x.dtype
        x, n = np.broadcast_arrays(x.astype(_F64), n)
        order = n.astype(np.int64)
        r = evaluate(x, np.maximum(order, 0))
        r = np.where(order < 0, 0.0, np.where((x != x) & (order > 0), x, r))
        if limit is not None:
            # Above this order PyTorch returns NaN.
            r = np.where(order > (limit[0] if d != _F64 else limit[1]), np.nan, r)
        return r.astype(d)


def _recurrence(first, step):
    """Returns an evaluator of polynomials p[k+1] = step(k, x, p[k], p[k-1]), p[0] = 1 and p[1] =
    first(x)."""
    def evaluate(x, n):
        before, now = np.ones_like(x), first(x)
        r = np.where(n == 0, before, now)
        for k in range(1, int(n.max(initial=0))):
            before, now = now, step(k, x, now, before)
            r = np.where(n == k + 1, now, r)
        return r
    return evaluate


def _chebyshev(first):
    return _recurrence(first, lambda k, x, p, q: 2 * x * p - q)


def _shifted(polynomial):
    return lambda x, n: polynomial(2 * x - 1, n)


for _kind, _first in (("t", lambda x: x), ("u", lambda x: 2 * x), ("v", lambda x: 2 * x - 1), ("w", lambda x: 2 * x + 1)):
    _polynomial(f"chebyshev_polynomial_{_kind}", _chebyshev(_first))
    _polynomial(f"shifted_chebyshev_polynomial_{_kind}", _shifted(_chebyshev(_first)))
_polynomial("hermite_polynomial_h", _recurrence(lambda x: 2 * x, lambda k, x, p, q: 2 * x * p - 2 * k * q), (128, 512))
_polynomial("hermite_polynomial_he", _recurrence(lambda x: x, lambda k, x, p, q: x * p - k * q), (128, 512))
_polynomial("laguerre_polynomial_l", _recurrence(lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)))
_polynomial("legendre_polynomial_p", _recurrence(lambda x: x, lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)))
