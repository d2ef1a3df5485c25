"""Ascend: sinc's gradient and the log-gamma family, composed of aclnn kernels."""
import math

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import cast, dtype_of, ms, UnsupportedByKernel
from mindtorch.backend.mindspore.kernels.ascend import ascend, CUBE


# ------------------------------------------------------------------ functions computed in float64
#
# float32 loses too many digits.
def _in_double(name):
    def enter(fn):
        @ascend(name, only=CUBE)
        def run(a):
            return cast(fn(cast(a, ms.float64)), dtype_of(a))
        return run
    return enter


@_in_double("sinc_backward")
def _sinc_backward(a):
    x = o.mul(a, math.pi)
    r = o.div(o.sub(o.mul(x, o.cos(x)), o.sin(x)), o.mul(x, a))
    # Near zero two nearly equal values are subtracted, so the Taylor series is used there.
    return o.where(o.lt(o.abs_(x), 1e-3), o.mul(x, -math.pi / 3), r)


#: Coefficients of Lanczos' approximation with g = 7: 15 digits for arguments above 0.5.
_LANCZOS = (0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
            -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7)
#: B(2 k) / (2 k), where B are Bernoulli numbers
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _fraction(a):
    """Returns the signed distance to the nearest integer, which determines |sin(pi * a)|."""
    return o.sub(a, o.rint(a))


@_in_double("lgamma")
def _lgamma_of(a):
    """log|gamma(a)|: Lanczos' approximation for a >= 0.5, the reflection formula below. About fifty
    launches."""
    left = o.lt(a, 0.5)
    x = o.sub(o.where(left, o.sub(1.0, a), a), 1.0)
    s = None
    for i, c in enumerate(_LANCZOS[1:], 1):
        part = o.mul(o.reciprocal(o.add(x, float(i))), c)
        s = part if s is None else o.add(s, part)
    s = o.add(s, _LANCZOS[0])
    t = o.add(x, 7.5)
    r = o.add(o.sub(o.mul(o.add(x, 0.5), o.log(t)), t), o.add(o.log(s), 0.5 * math.log(2 * math.pi)))
    f = _fraction(a)
    mirrored = o.sub(o.log(o.div(math.pi, o.sin(o.mul(o.abs_(f), math.pi)))), r)
    return o.where(o.eq(o.abs_(a), math.inf), math.inf, o.where(left, mirrored, r))


@_in_double("digamma")
def _digamma_of(a):
    """digamma(a): six recurrence steps to the right, the asymptotic series there, and the
    reflection formula for a < 0.5. About fifty launches."""
    left = o.lt(a, 0.5)
    x = o.where(left, o.sub(1.0, a), a)
    steps = o.reciprocal(x)
    for k in range(1, 6):
        steps = o.add(steps, o.reciprocal(o.add(x, float(k))))
    z = o.add(x, 6.0)
    v = o.reciprocal(o.mul(z, z))
    s = o.mul(v, _DIGAMMA[-1])
    for c in _DIGAMMA[-2::-1]:
        s = o.mul(o.add(s, c), v)
    r = o.sub(o.sub(o.log(z), o.mul(o.reciprocal(z), 0.5)), o.add(s, steps))
    f = _fraction(a)
    angle = o.mul(f, math.pi)
    mirrored = o.sub(r, o.div(o.mul(o.cos(angle), math.pi), o.sin(angle)))
    mirrored = o.where(o.eq(f, 0.0), math.nan, mirrored)
    return o.where(o.eq(a, 0.0), o.reciprocal(o.neg(a)), o.where(left, mirrored, r))


@ascend("polygamma", only="float32")
def _polygamma(a, *, n):
    """Supports n = 0 and n = 1. Higher orders use the host kernel, whose number of terms depends on
    the values."""
    if n == 0:
        return _digamma_of(a)
    if n != 1:
        raise UnsupportedByKernel
    # float32, like the host kernel: the values at the poles are large finite numbers.
    low = o.lt(a, 0.5)
    s = o.sin(o.mul(a, math.pi))
    x = o.where(low, o.sub(1.0, a), a)
    r = o.where(low, o.mul(o.reciprocal(o.mul(s, s)), -math.pi ** 2), 0.0)
    for _ in range(6):
        r = o.add(r, o.reciprocal(o.mul(x, x)))
        x = o.add(x, 1.0)
    q = o.reciprocal(o.mul(x, x))
    tail = o.sub(1 / 6, o.mul(q, o.sub(1 / 30, o.mul(q, 1 / 42))))
    r = o.add(r, o.div(o.add(o.add(o.mul(o.reciprocal(x), 0.5), 1.0), o.mul(q, tail)), x))
    return o.where(low, o.neg(r), r)


@ascend("mvlgamma", only="float32")
def _mvlgamma(a, *, p):
    r = _lgamma_of(a)
    for j in range(1, p):
        r = o.add(r, _lgamma_of(o.sub(a, j / 2)))
    return o.add(r, p * (p - 1) / 4 * math.log(math.pi))
