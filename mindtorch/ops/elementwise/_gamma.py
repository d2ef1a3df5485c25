"""Error function, gamma and Bessel functions, logit and sinc."""
import math

from mindtorch.core.tensor.dtypes import BF16, F16, F32, F64, finfo, of_np
from mindtorch.core.dispatch.type_promotion import promote_int_to_float
from mindtorch.core.dispatch.op_registry import inplace_method, register_op
from mindtorch.core.dispatch.op_schema import Float, Int
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor
from mindtorch.ops._checks import check_tensor, not_implemented
from mindtorch.ops._operands import promote_to_float_pair, derivative_not_implemented, scalar
from mindtorch.ops.basic import add_, conj, mask_grad, mul_, neg_, sub_
from mindtorch.ops.elementwise._ternary import within_
from mindtorch.ops.elementwise.binary import _log, div_
from mindtorch.ops.elementwise.unary import _floating, exp_


# ------------------------------------------------------------------ error function, gamma, Bessel
_ERF = 2 / math.sqrt(math.pi)


def _exp_minus_square(a):
    """exp(-a**2)"""
    return exp_(neg_(mul_(a, a)))


erf_ = primitive("erf", "a", lambda ctx, grad: mul_(grad, mul_(_exp_minus_square(ctx.a), scalar(_ERF, ctx.a))), aten="erf.default")
erfc_ = primitive("erfc", "a", lambda ctx, grad: mul_(grad, mul_(_exp_minus_square(ctx.a), scalar(-_ERF, ctx.a))), aten="erfc.default")
erfinv_ = primitive("erfinv", "a", lambda ctx, grad: mul_(grad, mul_(exp_(mul_(ctx.out, ctx.out)), scalar(1 / _ERF, ctx.out))), aten="erfinv.default")
erf = _floating("erf", erf_, "Error function.", "special.erf", complex=False)
erfc = _floating("erfc", erfc_, "1 - erf(input), accurate in the tail.", "special.erfc", complex=False)
erfinv = _floating("erfinv", erfinv_, "Inverse of the error function.", "special.erfinv", complex=False)


lgamma_ = primitive("lgamma", "a", lambda ctx, grad: mul_(grad, digamma_(ctx.a)), aten="lgamma.default")
digamma_ = primitive("digamma", "a", lambda ctx, grad: mul_(grad, polygamma_(ctx.a, n=1)), aten="digamma.default")
polygamma_ = primitive("polygamma", "a, *, n", lambda ctx, grad: mul_(grad, polygamma_(ctx.a, n=ctx.n + 1)))
lgamma = _floating("lgamma", lgamma_, "Logarithm of the absolute value of the gamma function.", "special.gammaln",
                   complex=False)
digamma = _floating("digamma", digamma_, "Derivative of lgamma.", "special.digamma special.psi", complex=False)


def _check_order(n):
    if n.__class__ is not int:
        raise TypeError(f"polygamma(): argument 'n' (position 1) must be int, not {type(n).__name__}")
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")


@register_op(method=False, out=True, aliases="special.polygamma")
def polygamma(n: Int, input):
    """n-th derivative of digamma."""
    _check_order(n)
    check_tensor("polygamma", input, "input", 2)
    if input._np_dtype.kind == "c":
        raise not_implemented("polygamma", input)
    return polygamma_(promote_int_to_float(input), n=n)


def _polygamma_method(self, n: Int):
    """n-th derivative of digamma."""
    return polygamma(n, self)


Tensor.polygamma = _polygamma_method


@inplace_method("polygamma")
def _polygamma_in_place(self, n):
    return polygamma(n, self)


def _mvdigamma(a, p):
    r = None
    for j in range(p):
        # For j = 0, the addition turns -0.0, at which digamma has the opposite sign, into 0.0.
        t = digamma_(add_(a, scalar(-j / 2, a)))
        r = t if r is None else add_(r, t)
    return r


mvlgamma_ = primitive("mvlgamma", "a, *, p", lambda ctx, grad: mul_(grad, _mvdigamma(ctx.a, ctx.p)))


@register_op(inplace=True, out=True, aliases="special.multigammaln", aten="mvlgamma.default")
def mvlgamma(input, p: Int):
    """Multivariate log-gamma function of dimension p; raises RuntimeError if p < 1."""
    check_tensor("mvlgamma", input)
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    if input._np_dtype.kind == "c":
        raise not_implemented("mvlgamma", input)
    return mvlgamma_(promote_int_to_float(input), p=p)


i0_ = primitive("i0", "a", lambda ctx, grad: mul_(grad, i1_(ctx.a)), aten="i0.default")
i1_ = primitive("i1", "a", lambda ctx, grad: mul_(grad, bessel_backward(i0_(ctx.a), ctx.out, ctx.a)), node="SpecialI1Backward0")
_away = primitive("away_from_zero", "a, *, eps")
_over_away = primitive("over_away_from_zero", "a, b, *, eps", lambda ctx, grad: _over_away(grad, ctx.b, eps=ctx.eps),
                       lambda ctx, grad: mask_grad(neg_(mul_(grad, _over_twice(ctx.a, ctx.b, ctx.eps))), _away(ctx.b, eps=ctx.eps)), node="DivBackward0")
_bessel_backward = primitive("bessel_backward", "s, y, a, *, eps", lambda ctx, grad: mask_grad(grad, _away(ctx.a, eps=ctx.eps)),
                             lambda ctx, grad: neg_(_over_away(mask_grad(grad, _away(ctx.a, eps=ctx.eps)), ctx.a, eps=ctx.eps)),
                             lambda ctx, grad: mask_grad(mul_(grad, _over_twice(ctx.y, ctx.a, ctx.eps)), _away(ctx.a, eps=ctx.eps)), raw=True,
                             node="SubBackward0")
_EPS = {d: finfo(of_np(F32 if d == BF16 else d)).eps for d in (F16, BF16, F32, F64)}


def _over_twice(a, b, eps):
    return _over_away(_over_away(a, b, eps=eps), b, eps=eps)


def bessel_backward(s, y, a):
    """Returns s - y / a, the derivative of a Bessel function of order 1. Returns its limit 1/2
    where a is within eps of 0 or, as in PyTorch, NaN."""
    return _bessel_backward(s, y, a, eps=_EPS[a._np_dtype])


i0 = _floating("i0", i0_, "Modified Bessel function of the first kind, order 0.", "special.i0", complex=False)


logit_grad = primitive("logit_backward", "g, a, *, eps", lambda ctx, grad: logit_grad(grad, ctx.a, eps=ctx.eps),
                       lambda ctx, grad: mul_(mul_(grad, ctx.g), _logit_second(ctx.a, ctx.eps)))


def _logit_second(a, eps):
    """Derivative of 1 / (a (1 - a))."""
    one = scalar(1, a)
    inner = mul_(a, sub_(one, a))
    d = div_(sub_(mul_(a, scalar(2, a)), one), mul_(inner, inner))
    return d if eps is None else mask_grad(d, within_(a, low=eps, high=1 - eps))


logit_ = primitive("logit", "a, *, eps", lambda ctx, grad: logit_grad(grad, ctx.a, eps=ctx.eps), aten="logit.default")


@register_op(inplace=True, out=True, aliases="special.logit")
def logit(input, eps: Float = None):
    """log(x / (1 - x)), with x = input limited to [eps, 1 - eps]."""
    check_tensor("logit", input)
    if input._np_dtype.kind == "c":
        raise not_implemented("logit", input)
    return logit_(promote_int_to_float(input), eps=eps)


_sinc_curvature = primitive("sinc_second", "a")
_sinc_derivative = primitive("sinc_backward", "a", lambda ctx, grad: mul_(grad, conj(_sinc_curvature(ctx.a))))
#: mask for the gradient of sinc: False where the square of the argument is 0
_sinc_is_differentiable = primitive("sinc_is_differentiable", "a", raw=True)
sinc_ = primitive("sinc", "a", lambda ctx, grad: mask_grad(mul_(grad, conj(_sinc_derivative(ctx.a))), _sinc_is_differentiable(ctx.a)), aten="sinc.default")
sinc = _floating("sinc", sinc_, "sin(pi input) / (pi input), 1 at zero.", "special.sinc")


# ------------------------------------------------------------------ incomplete gamma functions
def _gamma_density(a, x):
    """Derivative of igamma with respect to its second argument: x^(a-1) e^-x / gamma(a)."""
    return exp_(sub_(sub_(mul_(sub_(a, scalar(1, a)), _log(x)), x), lgamma_(a)))


igamma_ = primitive("igamma", "a, x", derivative_not_implemented("igamma: input"), lambda ctx, grad: mul_(grad, _gamma_density(ctx.a, ctx.x)),
                    aten="igamma.default")
igammac_ = primitive("igammac", "a, x", derivative_not_implemented("igammac: input"),
                     lambda ctx, grad: neg_(mul_(grad, _gamma_density(ctx.a, ctx.x))), aten="igammac.default")


def _gamma_pair(name, input, other):
    check_tensor(name, input)
    check_tensor(name, other, "other", 2)
    a, x = promote_to_float_pair(input, other)
    if a._np_dtype.kind == "c":
        raise not_implemented(name, a, x)
    return a, x


@register_op(inplace=True, out=True, aliases="special.gammainc")
def igamma(input, other):
    """Regularised lower incomplete gamma function; differentiable in `other`."""
    return igamma_(*_gamma_pair("igamma", input, other))


@register_op(inplace=True, out=True, aliases="special.gammaincc")
def igammac(input, other):
    """Regularised upper incomplete gamma function; differentiable in `other`."""
    return igammac_(*_gamma_pair("igammac", input, other))
