"""Error function, gamma and Bessel functions, logit and sinc."""
import math

import numpy as np

from mindtorch.backend.cpu import heavy as cpu
from mindtorch.backend.cpu.pointwise import elementwise, scipy_special
from mindtorch.backend.cpu.pointwise import erfinv as erfinv_kernel
from mindtorch.core.promote import as_float
from mindtorch.core.table import fresh, inplace_method, op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor
from mindtorch.ops._checks import need_tensor, unsupported
from mindtorch.ops._operands import float_pair, no_derivative, number, plain
from mindtorch.ops.basic import add_, cast, conj, keep, mul_, neg_, sub_
from mindtorch.ops.elementwise.binary import _log, div_
from mindtorch.ops.elementwise.unary import _floating, exp_


# ------------------------------------------------------------------ error function, gamma, Bessel
_ERF = 2 / math.sqrt(math.pi)


def _scipy(name):
    """Kernel of a ufunc of scipy.special."""
    @elementwise
    def kernel(a):
        return scipy_special(name)(a)
    return kernel


def _gauss(a):
    """exp(-a**2)"""
    return exp_(neg_(mul_(a, a)))


erf_ = primitive("erf", cpu.erf, lambda c, g: mul_(g, mul_(_gauss(c.a), number(_ERF, c.a))), inputs="a")
erfc_ = primitive("erfc", _scipy("erfc"), lambda c, g: mul_(g, mul_(_gauss(c.a), number(-_ERF, c.a))), inputs="a")
erfinv_ = primitive("erfinv", erfinv_kernel,
                    lambda c, g: mul_(g, mul_(exp_(mul_(c.out, c.out)), number(1 / _ERF, c.out))),
                    inputs="a")
erf = _floating("erf", erf_, "Error function.", "special.erf", complex=False)
erfc = _floating("erfc", erfc_, "1 - erf(input), exact in the tail.", "special.erfc", complex=False)
erfinv = _floating("erfinv", erfinv_, "Inverse of the error function.", "special.erfinv", complex=False)


@elementwise
def _digamma(a):
    r = scipy_special("psi")(a)
    # torch: -inf at 0, +inf at -0, nan at the other poles.
    return np.where(a == 0, np.copysign(np.array(np.inf, a.dtype), -a), r)


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
    """Left of 1/2 by reflection, which makes the poles large numbers, as in torch; beyond by recurrence and asymptotic series."""
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


@elementwise
def _lgamma(a):
    r = np.where(a == -np.inf, a.dtype.type(np.inf), scipy_special("gammaln")(a))
    small = (np.abs(a) < np.finfo(a.dtype).tiny) & (a != 0)
    return np.where(small, -np.log(np.abs(a)), r) if small.any() else r       # scipy overflows there


lgamma_ = primitive("lgamma", _lgamma, lambda c, g: mul_(g, digamma_(c.a)), inputs="a")
digamma_ = primitive("digamma", _digamma, lambda c, g: mul_(g, polygamma_(c.a, n=1)), inputs="a")
polygamma_ = primitive("polygamma", _polygamma, lambda c, g: mul_(g, polygamma_(c.a, n=c.n + 1)))
lgamma = _floating("lgamma", lgamma_, "Logarithm of the absolute value of the gamma function.", "special.gammaln",
                   complex=False)
digamma = _floating("digamma", digamma_, "Derivative of lgamma.", "special.digamma special.psi", complex=False)


def _check_order(n):
    if n.__class__ is not int:
        raise TypeError(f"polygamma(): argument 'n' (position 1) must be int, not {type(n).__name__}")
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")


@op(method=False, out=True, aliases="special.polygamma")
def polygamma(n, input):
    """n-th derivative of digamma."""
    _check_order(n)
    need_tensor("polygamma", input, "input", 2)
    if input._stype.kind == "c":
        raise unsupported("polygamma", input._stype)
    return polygamma_(as_float(input), n=n)


def _polygamma_method(self, n):
    """n-th derivative of digamma."""
    return polygamma(n, self)


Tensor.polygamma = _polygamma_method


@inplace_method("polygamma")
def _polygamma_in_place(self, n):
    return polygamma(n, self)


@elementwise
def _mvlgamma(a, *, p):
    return sum(_lgamma(a - a.dtype.type(j / 2)) for j in range(p)) + a.dtype.type(p * (p - 1) / 4 * math.log(math.pi))


def _mvdigamma(a, p):
    r = None
    for j in range(p):
        # Adding nought makes -0, where the slope has the other sign, 0.
        t = digamma_(add_(a, number(-j / 2, a)))
        r = t if r is None else add_(r, t)
    return r


mvlgamma_ = primitive("mvlgamma", _mvlgamma, lambda c, g: mul_(g, _mvdigamma(c.a, c.p)))


@op(inplace=True, out=True, aliases="special.multigammaln")
def mvlgamma(input, p):
    """Multivariate log-gamma function of dimension p; RuntimeError for integers of p < 1."""
    need_tensor("mvlgamma", input)
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    if input._stype.kind == "c":
        raise unsupported("mvlgamma", input._stype)
    return mvlgamma_(as_float(input), p=p)


i0_ = primitive("i0", _scipy("i0"), lambda c, g: mul_(g, i1_(c.a)), inputs="a")
i1_ = primitive("i1", _scipy("i1"), lambda c, g: mul_(g, half_at_zero(c.a, lambda x: sub_(i0_(c.a), div_(c.out, x)))),
                inputs="a", node="SpecialI1Backward0")


def half_at_zero(a, slope):
    """slope(a) of a Bessel function of order 1, which divides by a; its limit 1/2 at zero (and, as in torch, at nan)."""
    x = plain(a)
    away = np.abs(x) > np.finfo(x.dtype).eps
    if away.all():
        return slope(a)
    near = cast(fresh(~away), a._stype)
    return add_(keep(slope(add_(keep(a, fresh(away)), near)), fresh(away)), mul_(near, number(0.5, a)))


i0 = _floating("i0", i0_, "Modified Bessel function of the first kind, order 0.", "special.i0", complex=False)


@elementwise
def _logit(a, *, eps):
    x = a if eps is None else np.clip(a, a.dtype.type(eps), a.dtype.type(1 - eps))
    return np.log(x / (1 - x))


@elementwise
def _logit_grad(g, a, *, eps):
    d = g / (a * (1 - a))
    if eps is None:
        return np.where((a < 0) | (a > 1), a.dtype.type(np.nan), d)
    return np.where((a < eps) | (a > 1 - eps), a.dtype.type(0), d)


logit_grad = primitive("logit_backward", _logit_grad, lambda c, g: logit_grad(g, c.a, eps=c.eps),
                       lambda c, g: mul_(mul_(g, c.g), _logit_second(c.a, c.eps)))


def _logit_second(a, eps):
    """Derivative of 1 / (a (1 - a))."""
    one = number(1, a)
    inner = mul_(a, sub_(one, a))
    d = div_(sub_(mul_(a, number(2, a)), one), mul_(inner, inner))
    return d if eps is None else keep(d, fresh((plain(a) >= eps) & (plain(a) <= 1 - eps)))


logit_ = primitive("logit", _logit, lambda c, g: logit_grad(g, c.a, eps=c.eps))


@op(inplace=True, out=True, aliases="special.logit")
def logit(input, eps=None):
    """log(x / (1 - x)) with x = input limited to [eps, 1 - eps]."""
    need_tensor("logit", input)
    if input._stype.kind == "c":
        raise unsupported("logit", input._stype)
    return logit_(as_float(input), eps=eps)


@elementwise
def _sinc(a):
    x = a * np.array(np.pi, a.dtype)
    return np.where(a == 0, np.ones((), a.dtype), np.sin(x) / x)


@elementwise
def _sinc_slope(a):
    x = a * np.array(np.pi, a.dtype)
    return np.where(x * a == 0, np.zeros((), a.dtype), (x * np.cos(x) - np.sin(x)) / (x * a))


@elementwise
def _sinc_curve(a):
    x = a * np.array(np.pi, a.dtype)
    near = np.array(-np.pi ** 2 / 3, a.dtype)
    return np.where(a == 0, near, (2 * np.sin(x) - 2 * x * np.cos(x) - x * x * np.sin(x)) / (x * a * a))


def _far(a):
    """Where sinc's slope is not nought: the square of the argument neither."""
    x = plain(a)
    return fresh(x * x != 0)


_sinc_curvature = primitive("sinc_second", _sinc_curve)
_sinc_derivative = primitive("sinc_backward", _sinc_slope, lambda c, g: mul_(g, conj(_sinc_curvature(c.a))))
sinc_ = primitive("sinc", _sinc, lambda c, g: keep(mul_(g, conj(_sinc_derivative(c.a))), _far(c.a)))
sinc = _floating("sinc", sinc_, "sin(pi input) / (pi input), 1 at zero.", "special.sinc")


# ------------------------------------------------------------------ incomplete gamma functions
@elementwise
def _igamma(a, x):
    return _incomplete("gammainc", a, x)


@elementwise
def _igammac(a, x):
    return _incomplete("gammaincc", a, x)


def _incomplete(name, a, x):
    # Beside a 0-dim operand scipy would pick its float64 loop.
    a, x = np.broadcast_arrays(a, x)
    r = np.where((a < 0) | (x < 0), a.dtype.type(np.nan), scipy_special(name)(a, x))
    # Where the one operand settles it torch does not look at the other.
    none = np.isnan(a) & (x == 0) | np.isposinf(a) & np.isnan(x)
    full = np.isnan(a) & np.isposinf(x)
    low = name == "gammainc"
    return np.where(none, a.dtype.type(not low), np.where(full, a.dtype.type(low), r))


def _gamma_density(a, x):
    """Derivative of igamma by its second argument: x^(a-1) e^-x / gamma(a)."""
    return exp_(sub_(sub_(mul_(sub_(a, number(1, a)), _log(x)), x), lgamma_(a)))


igamma_ = primitive("igamma", _igamma, no_derivative("igamma"), lambda c, g: mul_(g, _gamma_density(c.a, c.x)))
igammac_ = primitive("igammac", _igammac, no_derivative("igammac"),
                     lambda c, g: neg_(mul_(g, _gamma_density(c.a, c.x))))


def _gamma_pair(name, input, other):
    need_tensor(name, input)
    need_tensor(name, other, "other", 2)
    a, x = float_pair(input, other)
    if a._stype.kind == "c":
        raise unsupported(name, a._stype)
    return a, x


@op(inplace=True, out=True, aliases="special.gammainc")
def igamma(input, other):
    """Regularised lower incomplete gamma function; differentiable in `other`."""
    return igamma_(*_gamma_pair("igamma", input, other))


@op(inplace=True, out=True, aliases="special.gammaincc")
def igammac(input, other):
    """Regularised upper incomplete gamma function; differentiable in `other`."""
    return igammac_(*_gamma_pair("igammac", input, other))
