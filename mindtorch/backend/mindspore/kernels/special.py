"""Special functions that MindSpore computes to full precision."""
import math

from mindtorch.backend.cpu.pointwise import FAR, FAR_MIDDLE, NEAR
from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import ASCEND, P, kernel, mint

FLOATS = "float32 float64" if not ASCEND else "float32 float64 float16 bfloat16"


def _own(fn):
    """Returns a separate function object, because kernels carry attributes."""
    return lambda a: fn(a)


kernel("erf", _own(o.erf), only=FLOATS)
kernel("erfc", _own(o.erfc), only=FLOATS)

if not ASCEND:
    kernel("lgamma", _own(P.Lgamma()), only="float32 float64")
    # Computed in float64: in float32 they are up to 1e-5 off.
    for _name, _prim in (("i0", P.BesselI0), ("i1", P.BesselI1), ("i0e", P.BesselI0e), ("i1e", P.BesselI1e), ("modified_bessel_i0", P.BesselI0),
                         ("modified_bessel_i1", P.BesselI1), ("bessel_j0", P.BesselJ0), ("bessel_j1", P.BesselJ1)):
        kernel(_name, o.doubled(_prim()), only="float32 float64")

    def _right_of_zero(name, prim):
        @kernel(name, only="float32 float64")
        @o.in_double
        def f(a):
            return o.where(o.lt(a, 0), math.nan, prim()(a))  # MindSpore returns infinity there

    for _name, _prim in (("bessel_y0", P.BesselY0), ("bessel_y1", P.BesselY1), ("modified_bessel_k0", P.BesselK0), ("modified_bessel_k1", P.BesselK1),
                         ("scaled_modified_bessel_k0", P.BesselK0e), ("scaled_modified_bessel_k1", P.BesselK1e)):
        _right_of_zero(_name, _prim)


kernel("erfinv", lambda a: mint.erfinv(a), target="Ascend", only=FLOATS)


def _polynomial(t, coefficients):
    r = o.mul(t, coefficients[-1])
    for c in coefficients[-2:0:-1]:
        r = o.mul(o.add(r, c), t)
    return o.add(r, coefficients[0])


@kernel("erfinv", target="CPU", only="float32")
def _erfinv(a):
    """Uses the host kernel's polynomials, because MindSpore's Erfinv is up to 3e-2 off."""
    w = o.neg(o.log(o.mul(o.sub(1, a), o.add(a, 1))))
    near = _polynomial(o.sub(w, 2.5), NEAR)
    far = _polynomial(o.sub(o.sqrt(w), FAR_MIDDLE), FAR)
    far = o.where(o.eq(o.abs_(a), 1), math.inf, far)
    return o.mul(o.where(o.ge(w, 5), far, near), a)


@kernel("entr", only=FLOATS)
def _entr(a):
    r = o.where(o.eq(a, 0), 0, o.neg(o.mul(a, o.log(a))))
    return o.where(o.lt(a, 0), -math.inf, r)


@kernel("sinc", only=FLOATS)
def _sinc(a):
    x = o.mul(a, math.pi)
    return o.where(o.eq(a, 0), 1, o.quotient(o.sin(x), x))


@kernel("sinc_is_differentiable")
def _sinc_is_differentiable(a):
    x = o.upcast(a)
    return o.ne(o.mul(x, x), 0)


@kernel("sinc_backward", only="float32", target="CPU")
@o.in_double
def _sinc_backward(a):
    x = o.mul(a, math.pi)
    r = o.quotient(o.sub(o.mul(x, o.cos(x)), o.sin(x)), o.mul(x, a))
    # Near zero two nearly equal values are subtracted, so the Taylor series is used there.
    return o.where(o.lt(o.abs_(x), 1e-3), o.mul(x, -math.pi / 3), r)


@kernel("sinc_second", only="float32", target="CPU")
@o.in_double
def _sinc_double_backward(a):
    x = o.mul(a, math.pi)
    s, c = o.sin(x), o.cos(x)
    r = o.quotient(o.sub(o.mul(o.sub(s, o.mul(x, c)), 2), o.mul(o.square(x), s)), o.mul(x, o.square(a)))
    return o.where(o.lt(o.abs_(x), 1e-3), -math.pi ** 2 / 3, r)


kernel("ndtr", lambda a: o.div(o.erfc(o.mul(a, -math.sqrt(0.5))), 2), only=FLOATS)


@kernel("logit", only=FLOATS)
def _logit(a, *, eps):
    if eps is not None:
        a = o.at_most(o.at_least(a, eps), 1 - eps)
    return o.log(o.div(a, o.sub(1, a)))


@kernel("logit_backward", only=FLOATS)
def _logit_grad(g, a, *, eps):
    low, high, beyond = (0, 1, math.nan) if eps is None else (eps, 1 - eps, 0)
    return o.where(o.or_(o.lt(a, low), o.gt(a, high)), beyond, o.div(g, o.mul(a, o.sub(1, a))))


kernel("away_from_zero", lambda a, *, eps: o.gt(o.abs_(a), eps), only=FLOATS)
kernel("over_away_from_zero", lambda a, b, *, eps: o.div(a, o.where(o.gt(o.abs_(b), eps), b, 1)), only=FLOATS)
