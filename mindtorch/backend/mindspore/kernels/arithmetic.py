"""Arithmetic of two operands."""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import (mint, ASCEND, COMPLEX, FLOATING, STYPES, stype_of, UnsupportedByKernel, P, cast, copied, dtype_of, full,
                                                       kernel,
                                                       ms, number, op,
                                                       shape_of)
from mindtorch.backend.mindspore.npu import memory_of
from mindtorch.backend.mindspore.recorder_api import STATE, Number, runtime_assert

REAL = "float32 float64 int8 int16 int32 int64 uint8"
INTS = "int8 int16 int32 int64 uint8"
FLOATS = "float32 float64" if not ASCEND else "float32 float64 float16 bfloat16"
ANY_REAL = REAL + " float16 bfloat16"


def _dtype(a, b):
    return dtype_of(b if a.__class__ in o.SCALAR_TYPES else a)


# ------------------------------------------------------------------ sums, products, quotients
kernel("add", o.add, scalars=True, alike=None if ASCEND else op(P.Add))


@kernel("mul", scalars=True, alike=None if ASCEND else op(P.Mul))
def _mul(a, b):
    if a.__class__ not in o.SCALAR_TYPES and b.__class__ not in o.SCALAR_TYPES:
        one, other = stype_of(a), stype_of(b)
        # Gradient rules of abs and similar ops multiply real by complex numbers.
        if one is not other and (one.kind == "c") != (other.kind == "c"):
            a, b = (cast(a, dtype_of(b)), b) if other.kind == "c" else (a, cast(b, dtype_of(a)))
    return o.mul(a, b)


kernel("sub", o.sub, scalars=True)


@kernel("div", scalars=True)
def _div(a, b):
    if STYPES[_dtype(a, b)].kind == "c" and not ASCEND:
        raise UnsupportedByKernel  # RealDiv returns 0 for a complex number divided by zero
    return o.div(a, b)


kernel("rsub", lambda a, b: o.sub(b, a), scalars=True)


@kernel("add_scaled", scalars=True)
def _add_scaled(a, b, *, alpha):
    if ASCEND and a.__class__ not in o.SCALAR_TYPES and b.__class__ not in o.SCALAR_TYPES:
        return mint.add(a, b, alpha=alpha)
    return o.add(a, _times(b, alpha))


@kernel("sub_scaled", scalars=True)
def _sub_scaled(a, b, *, alpha):
    if ASCEND and a.__class__ not in o.SCALAR_TYPES and b.__class__ not in o.SCALAR_TYPES:
        return mint.sub(a, b, alpha=alpha)
    return o.sub(a, _times(b, alpha))


def _times(b, alpha):
    return b * alpha if b.__class__ in o.SCALAR_TYPES else o.mul(b, alpha)


# ------------------------------------------------------------------ quotients and remainders
def _nonzero(a, b):
    # An integer division by zero is an error that depends on values. A scalar divisor is checked
    # here, a tensor's values on the host.
    if b.__class__ not in o.SCALAR_TYPES and dtype_of(b) not in FLOATING:
        if STATE.on is None or ASCEND:
            raise UnsupportedByKernel
        runtime_assert(b, _check_nonzero)
    elif b.__class__ in o.SCALAR_TYPES and not b and _dtype(a, b) not in FLOATING:
        raise UnsupportedByKernel


def _check_nonzero(h):
    if not memory_of(h).all():
        raise UnsupportedByKernel



def _fmod(a, b):
    if ASCEND:
        return mint.fmod(a, b)
    a, b = o.two(a, b)
    return op(P.Mod if dtype_of(a) not in FLOATING else P.TruncateMod)(a, b)


@kernel("fmod fmod_number", scalars=True, only=REAL if not ASCEND else ANY_REAL)
def _fmod_kernel(a, b):
    _nonzero(a, b)
    return _fmod(a, b)


@kernel("remainder remainder_number", scalars=True, only=REAL if not ASCEND else ANY_REAL)
def _remainder(a, b):
    _nonzero(a, b)
    if ASCEND:
        return mint.remainder(a, b)
    a, b = o.two(a, b)
    if dtype_of(a) not in FLOATING:
        return op(P.FloorMod)(a, b)
    # FloorMod of floats computes a - floor(a / b) * b, which is many roundings off.
    r = op(P.TruncateMod)(a, b)
    return o.where(o.and_(o.ne(r, 0), o.xor(o.lt(r, 0), o.lt(b, 0))), o.add(r, b), r)


@kernel("div_floor floor_divide", scalars=True, only=REAL if not ASCEND else ANY_REAL)
def _floor_divide(a, b):
    _nonzero(a, b)
    if ASCEND:
        return mint.floor_divide(a, b)
    a, b = o.two(a, b)
    if dtype_of(a) not in FLOATING:
        return op(P.FloorDiv)(a, b)
    # Computed from the exact remainder: floor(a / b) is one too large where the quotient was
    # rounded up to an integer.
    r, q = op(P.TruncateMod)(a, b), o.div(a, b)
    integral = o.div(o.sub(a, r), b)
    integral = o.where(o.and_(o.ne(r, 0), o.xor(o.lt(r, 0), o.lt(b, 0))), o.sub(integral, 1), integral)
    down = o.floor(integral)
    down = o.where(o.gt(o.sub(integral, down), 0.5), o.add(down, 1), down)
    # A zero quotient has the sign of a / b; for a zero divisor PyTorch returns a / b.
    return o.where(o.eq(b, 0), q, o.where(o.eq(integral, 0), o.mul(q, 0), down))


@kernel("div_trunc", scalars=True, only=REAL if not ASCEND else ANY_REAL)
def _div_trunc(a, b):
    _nonzero(a, b)
    if ASCEND:
        return mint.div(a, b, rounding_mode="trunc")
    a, b = o.two(a, b)
    return o.trunc(o.div(a, b)) if dtype_of(a) in FLOATING else op(P.TruncateDiv)(a, b)


kernel("reciprocal_or_zero", lambda a: o.where(o.eq(a, 0), 0, o.reciprocal(a)))


# ------------------------------------------------------------------ powers
@kernel("pow pow_base", scalars=True)
def _pow(a, b):
    # The CPU target computes integer powers in float64: correct up to 2 ** 53, and garbage beyond.
    if not ASCEND and _dtype(a, b) not in FLOATING + COMPLEX:
        if STATE.on is None:
            raise UnsupportedByKernel
        r = o.pow_(a, b)
        runtime_assert(r, _look_for_large)
        return r
    return o.pow_(a, b)


def _look_for_large(h):
    if np.abs(memory_of(h).astype(np.float64)).max() >= 2 ** 53:
        raise UnsupportedByKernel


@kernel("pow_exponent_matters", scalars=True, only=FLOATS)
def _exponent_matters(a, b):
    a, b = o.two(a, b)
    return o.not_(o.and_(o.eq(a, 0), o.ge(b, 0)))


@kernel("pow_number", varying="p")
def _pow_number(a, *, p):
    d = dtype_of(a)
    if p == 1:
        return copied(a)
    if p == 2:
        return o.square(a)
    if d in FLOATING:
        if p == 3:
            return o.mul(o.square(a), a)
        if p == 0.5:
            return o.sqrt(a)
        if p == -1:
            return o.reciprocal(a)
        if p == -0.5:
            return o.rsqrt(a)
        if p == -2:
            return o.reciprocal(o.square(a))
        return o.pow_(a, p if p.__class__ is Number else float(p))
    if d in COMPLEX:
        return o.pow_(a, p)
    if p == 3:
        return o.mul(o.mul(a, a), a)
    if p == 4:
        return o.square(o.square(a))
    raise UnsupportedByKernel


@kernel("ldexp", scalars=True, only=FLOATS)
def _ldexp(a, b):
    a, b = o.two(a, b)
    return o.mul(a, o.pow_(2.0, b))


# ------------------------------------------------------------------ maximum and minimum
@kernel("maximum", scalars=True)
def _maximum(a, b):
    if not ASCEND and b.__class__ in o.SCALAR_TYPES and b == b:
        return o.at_least(a, b)
    if not ASCEND and a.__class__ in o.SCALAR_TYPES and a == a:
        return o.at_least(b, a)
    return o.maximum(*o.two(a, b))


@kernel("minimum", scalars=True)
def _minimum(a, b):
    bools = _dtype(a, b) == ms.bool_
    if not ASCEND and not bools and b.__class__ in o.SCALAR_TYPES and b == b:
        return o.at_most(a, b)
    if not ASCEND and not bools and a.__class__ in o.SCALAR_TYPES and a == a:
        return o.at_most(b, a)
    return o.minimum(*o.two(a, b))


def _share(name, loses):
    @kernel(name, scalars=True, only=FLOATS)
    def share(g, a, b):
        a, b = o.two(a, b)
        return o.where(loses(a, b), 0, o.where(o.eq(a, b), o.mul(g, 0.5), g))


_share("maximum_backward", o.lt)
_share("minimum_backward", o.gt)


def _number_wins(name, pick, wins):
    @kernel(name, scalars=True, only=REAL if not ASCEND else ANY_REAL)
    def extremum(a, b):
        a, b = o.two(a, b)
        if dtype_of(a) not in FLOATING:
            return pick(a, b)
        return o.where(o.or_(wins(a, b), o.isnan(b)), a, b)

    @kernel(name + "_took_first", scalars=True)
    def took_first(a, b):
        a, b = o.two(a, b)
        return o.or_(wins(a, b), o.isnan(b)) if dtype_of(a) in FLOATING else wins(a, b)


_number_wins("fmax", o.maximum, o.ge)
_number_wins("fmin", o.minimum, o.le)


# ------------------------------------------------------------------ functions of two variables
kernel("atan2", lambda a, b: (mint.atan2 if ASCEND else op(P.Atan2))(*o.two(a, b)), scalars=True, only=FLOATS)


@kernel("hypot", scalars=True, only="float32 float64")
def _hypot(a, b):
    a, b = o.two(a, b)
    return op(P.Hypot)(a, b) if not ASCEND else o.sqrt(o.add(o.square(a), o.square(b)))


def _log_of_sum(name, exp, log1p):
    @kernel(name, scalars=True, only=FLOATS)
    def logaddexp(a, b):
        """Returns the maximum plus the contribution of the minimum; two equal infinities give that
        infinity."""
        a, b = o.two(a, b)
        m = o.maximum(a, b)
        return o.where(o.eq(a, b), o.add(a, math.log(2) if name == "logaddexp" else 1), o.add(m, log1p(exp(o.neg(o.abs_(o.sub(a, b)))))))


_log_of_sum("logaddexp", o.exp, o.log1p)
_log_of_sum("logaddexp2", lambda x: o.exp(o.mul(x, math.log(2))), lambda x: o.mul(o.log1p(x), 1 / math.log(2)))


kernel("logaddexp_share", lambda a: o.sigmoid(a), only=FLOATS)
kernel("copysign_flip", lambda a, r: o.where(o.eq(a, 0), 0, o.div(r, a)), only=FLOATS)


@kernel("copysign", scalars=True, only="float32 float64")
def _copysign(a, b):
    a, b = o.two(a, b)
    # A zero's sign is that of its reciprocal; the sign of nan is lost.
    size = o.abs_(a)
    return o.where(o.or_(o.lt(b, 0), o.lt(o.reciprocal(b), 0)), o.neg(size), size)


@kernel("heaviside", scalars=True, only=ANY_REAL)
def _heaviside(a, b):
    a, b = o.two(a, b)
    return o.where(o.eq(a, 0), b, cast(o.gt(a, 0), dtype_of(a)))


def _times_log(name, backward, log, end):
    """Registers a log(b), which is 0 where a is 0, and a mask where it has a derivative in b.

    `end`: the lower end of the logarithm's domain.
    """
    @kernel(name, scalars=True, only=FLOATS)
    def product(a, b):
        a, b = o.two(a, b)
        return o.where(o.and_(o.eq(a, 0), o.eq(b, b)), 0, o.mul(a, log(b)))

    @kernel(backward, scalars=True, only=FLOATS)
    def derivative(a, b):
        a, b = o.two(a, b)
        return o.not_(o.and_(o.eq(a, 0), o.le(b, end)))


_times_log("xlogy", "xlogy_is_differentiable", o.log, 0)
_times_log("special_xlog1py", "xlog1py_is_differentiable", o.log1p, -1)


# ------------------------------------------------------------------ lerp, addcmul, addcdiv
@kernel("lerp")
def _lerp(a, b, w):
    if ASCEND:
        return mint.lerp(a, b, w)
    d = o.sub(b, a)
    return o.where(o.lt(o.abs_(w), 0.5), o.add(a, o.mul(w, d)), o.sub(b, o.mul(d, o.sub(1, w)))) if dtype_of(a) in FLOATING else _no()


def _no():
    raise UnsupportedByKernel


@kernel("lerp_number", varying="weight")
def _lerp_number(a, b, *, weight):
    if ASCEND:
        return mint.lerp(a, b, weight)
    near = abs(weight) < 0.5
    return o.add(a if near else b, o.mul(o.sub(b, a), weight if near else weight - 1))


def _plus(a, t, v):
    return o.add(a, t if v.__class__ in o.SCALAR_TYPES and v == 1 else o.mul(t, v))


@kernel("addcmul", scalars=True)
def _addcmul(a, b, d, v):
    if ASCEND and v.__class__ in o.SCALAR_TYPES:
        return mint.addcmul(a, b, d, value=v)
    return _plus(a, o.mul(b, d), v)


@kernel("addcdiv", scalars=True, only="float32 float64 float16 bfloat16 complex64 complex128")
def _addcdiv(a, b, d, v):
    if ASCEND and v.__class__ in o.SCALAR_TYPES:
        return mint.addcdiv(a, b, d, value=v)
    return _plus(a, o.div(b, d), v)


# ------------------------------------------------------------------ clamp
@kernel("clamp_numbers hardtanh", only=REAL if not ASCEND else ANY_REAL, varying="low high")
def clamp(a=None, *, low, high):
    if low is not None and low != low or high is not None and high != high:
        return full(shape_of(a), math.nan, dtype_of(a))
    if ASCEND:
        return mint.clamp(a, low, high)
    if low is not None:
        a = o.at_least(a, low)
    return a if high is None else o.at_most(a, high)


class _BOOL:
    min, max = 0, 1


@kernel("within_numbers", varying="low high")
def _within(a, *, low, high):
    a = o.upcast(a)
    d = dtype_of(a)
    if d not in FLOATING:
        # Handles limits between integers, and limits outside of the dtype's range.
        info = np.iinfo(STYPES[d]) if d is not ms.bool_ else _BOOL
        low = None if low is None or low <= info.min else math.ceil(min(low, info.max + 1))
        high = None if high is None or high >= info.max else math.floor(max(high, info.min - 1))
        if low is not None and low > info.max or high is not None and high < info.min:
            return full(shape_of(a), False, ms.bool_)
        if low is None and high is None:
            return full(shape_of(a), True, ms.bool_)
    if low is None:
        return o.le(a, high)
    return o.ge(a, low) if high is None else o.and_(o.ge(a, low), o.le(a, high))


@kernel("clamp_tensors", scalars=True, only=REAL if not ASCEND else ANY_REAL)
def _clamp_tensors(a, low, high):
    if low is not None:
        a = o.maximum(*o.two(a, low))
    return a if high is None else o.minimum(*o.two(a, high))


kernel("clamp_tensors_to_self", lambda a, low, high: _within(a, low=low, high=high), scalars=True)


@kernel("clamp_tensors_to_low", scalars=True)
def _to_low(a, low, high):
    under = o.lt(a, low)
    return under if high is None else o.and_(under, o.lt(*o.two(low, high)) if low.__class__ not in o.SCALAR_TYPES or high.__class__ not in o.SCALAR_TYPES
                                             else number(low < high, ms.bool_))


@kernel("clamp_tensors_to_high", scalars=True)
def _to_high(a, low, high):
    over = o.gt(a, high)
    return over if low is None else o.or_(over, o.gt(*o.two(low, high)) if low.__class__ not in o.SCALAR_TYPES or high.__class__ not in o.SCALAR_TYPES
                                          else number(low > high, ms.bool_))
