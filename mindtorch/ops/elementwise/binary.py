"""Elementwise arithmetic on two operands.

Comparison and logic are in `_logic.py`, clamp and lerp in `_blend.py`, the operators of Tensor in `_operators.py`.
"""
import numpy as np

from mindtorch.backend.cpu.pointwise import binary, divided, elementwise, masked
from mindtorch.backend.cpu.host import quiet
from mindtorch.core import dtypes
from mindtorch.core.alias import title
from mindtorch.core.dtypes import F32, F64
from mindtorch.core.foreign import type_name
from mindtorch.core.promote import number_dtype, pair, promote_types, result_dtype, to
from mindtorch.core.sparse import SparseUse, dispatch
from mindtorch.core.table import fresh, inplace_method, op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Const, Tensor
from mindtorch.ops._numbers import number_of
from mindtorch.ops._checks import need_tensor, unsupported
from mindtorch.ops._operands import cast_number, float_pair, no_derivative, number, plain, tensors
from mindtorch.ops.basic import add_, conj, keep, mul_, neg_, sub_, zeros_like

_NUMBER = (bool, int, float, complex, np.number, np.bool_)


# ------------------------------------------------------------------ arithmetic
def _alpha(name, alpha, d):
    """alpha as an operand; RuntimeError where its kind does not suit the result's dtype."""
    if isinstance(alpha, Tensor):
        alpha = number_of("add", alpha, "alpha")
    kind = number_dtype(alpha).kind
    if kind == "b" and d.kind != "b":
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if kind in "fc" and d.kind in "biu":
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if kind == "c" and d.kind != "c":
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    return Const(alpha, F32 if d in dtypes.LOW else d)


@elementwise
def _add_scaled(a, b, *, alpha):
    t = b * alpha
    return np.add(a, t, out=t) if t.shape == a.shape and t.dtype == a.dtype else a + t


def _scaled(g, alpha):
    return mul_(g, number(np.conj(alpha), g))


#: a + alpha * b, alpha a 0-dim array.
add_scaled = primitive("add", _add_scaled, lambda c, g: g, lambda c, g: _scaled(g, c.alpha))
sub_scaled = primitive("sub", _add_scaled, lambda c, g: g, lambda c, g: _scaled(g, c.alpha))


@op(inplace=True, out=True)
def add(input, other, *, alpha=1):
    """input + alpha * other, with broadcasting and type promotion."""
    try:
        a, b = pair(input, other)
    except SparseUse:
        return dispatch["add"](input, other, alpha=alpha)
    if alpha.__class__ is not int or alpha != 1:
        d = (b if a.__class__ is Const else a)._stype
        return add_scaled(a, b, alpha=_alpha("add", alpha, d)._a)
    return add_(a, b)


_BOOL_SUB = ("Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
             "use the "
             "`~` or `logical_not()` operator instead.")


def _no_bool_sub(x, y):
    kinds = [v._stype.kind if hasattr(v, "_a") else ("b" if v is True or v is False else "") for v in (x, y)]
    if kinds == ["b", "b"]:
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                           "`logical_xor()` operator instead.")
    if "b" in kinds:
        raise RuntimeError(_BOOL_SUB)


@op(inplace=True, out=True, aliases="subtract")
def sub(input, other, *, alpha=1):
    """input - alpha * other; bool tensors are refused (RuntimeError)."""
    try:
        _no_bool_sub(input, other)
    except SparseUse:
        return dispatch["sub"](input, other, alpha=alpha)
    a, b = pair(input, other)
    if alpha.__class__ is not int or alpha != 1:
        d = (b if a.__class__ is Const else a)._stype
        return sub_scaled(a, b, alpha=np.negative(_alpha("sub", alpha, d)._a))
    return sub_(a, b)


#: rsub_(a, b) = b - a
rsub_ = primitive("rsub", elementwise(lambda a, b: np.subtract(b, a)), lambda c, g: neg_(g), lambda c, g: g,
                  inputs="a b", node="RsubBackward1")


@op
def rsub(input, other, *, alpha=1):
    """other - alpha * input."""
    need_tensor("rsub", input)
    _no_bool_sub(input, other)
    a, b = pair(input, other)
    if alpha.__class__ is not int or alpha != 1:
        a = mul_(a, _alpha("rsub", alpha, a._stype))
    return rsub_(a, b)


@op(inplace=True, out=True, aliases="multiply")
def mul(input, other):
    """Elementwise product, with broadcasting and type promotion."""
    try:
        a, b = pair(input, other)
    except SparseUse:
        return dispatch["mul"](input, other)
    return mul_(a, b)


div_ = primitive("div", binary(np.true_divide), lambda c, g: div_(g, conj(c.b)),
                 # Not from the quotient: as in torch, that may be written to before backward.
                 lambda c, g: neg_(mul_(g, conj(div_(div_(c.a, c.b), c.b)))), inputs="a b")


def _nonzero(a, b):
    if b.dtype.kind in "iu" and not b.all() and a.size:
        raise RuntimeError("ZeroDivisionError")


@elementwise
def _div_floor(a, b):
    _nonzero(a, b)
    return divided(np.floor_divide, a, b)


@elementwise
def _div_trunc(a, b):
    _nonzero(a, b)
    if a.dtype.kind in "iu":
        return np.floor_divide(a - np.fmod(a, b), b)
    return np.trunc(np.true_divide(a, b))


div_floor = primitive("div", _div_floor, lambda c, g: zeros_like(g), lambda c, g: zeros_like(g), node="DivBackward2")
div_trunc = primitive("div", _div_trunc, lambda c, g: zeros_like(g), lambda c, g: zeros_like(g), node="DivBackward2")
_floor_divide = primitive("floor_divide", _div_floor, no_derivative("floor_divide"), no_derivative("floor_divide"))


def _rounded(name, prim, input, other):
    a, b = pair(input, other)
    kind = a._stype.kind
    if kind in "bc":
        raise unsupported(name, a._stype)
    return prim(a, b)


@op(inplace=True, out=True, aliases="divide")
def div(input, other, *, rounding_mode=None):
    """Quotient: true division (integers give floats), or rounded towards zero ("trunc") or down ("floor")."""
    if rounding_mode is None:
        try:
            if input._stype is other._stype is F32:
                return div_(input, other)
        except AttributeError:
            pass
        except SparseUse:
            return dispatch["div"](input, other)
        return div_(*float_pair(input, other))
    if rounding_mode == "trunc":
        return _rounded("div", div_trunc, input, other)
    if rounding_mode == "floor":
        return _rounded("div", div_floor, input, other)
    raise RuntimeError("div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
                       f"'{rounding_mode}'")


@op(inplace=True, out=True)
def true_divide(input, other):
    """True division; integers give floats."""
    return div_(*float_pair(input, other))


@op(inplace=True, out=True)
def floor_divide(input, other):
    """Quotient rounded down; RuntimeError ("ZeroDivisionError") for an integer divisor of zero."""
    return _rounded("floor_divide", _floor_divide, input, other)


@elementwise
def _remainder(a, b):
    _nonzero(a, b)
    return divided(np.remainder, a, b)


@elementwise
def _fmod(a, b):
    _nonzero(a, b)
    return np.fmod(a, b)


remainder_ = primitive("remainder", _remainder, lambda c, g: g, lambda c, g: neg_(mul_(g, div_floor(c.a, c.b))),
                       node="RemainderBackward1")
fmod_ = primitive("fmod", _fmod, lambda c, g: g, lambda c, g: neg_(mul_(g, div_trunc(c.a, c.b))), node="FmodBackward1")
_remainder_number = primitive("remainder", _remainder, lambda c, g: g, None)
_fmod_number = primitive("fmod", _fmod, lambda c, g: g, None)


@op(inplace=True, out=True)
def remainder(input, other):
    """Python's modulus: the result has the sign of the divisor."""
    return _rounded("remainder", remainder_ if isinstance(other, Tensor) else _remainder_number, input, other)


@op(inplace=True, out=True)
def fmod(input, other):
    """C's modulus: the result has the sign of the dividend."""
    need_tensor("fmod", input)
    return _rounded("fmod", fmod_ if isinstance(other, Tensor) else _fmod_number, input, other)


# ------------------------------------------------------------------ powers
@elementwise
def _pow(a, b):
    if b.dtype.kind in "i" and (b < 0).any():
        # torch: 1/x**n rounded towards zero, so only 1 and -1 leave anything.
        odd = (b & 1).astype(bool)
        r = np.power(a, np.maximum(b, 0))
        return np.where(b < 0, np.where(a == 1, 1, np.where(a == -1, np.where(odd, -1, 1), 0)), r).astype(a.dtype)
    return np.power(a, b)


pow_ = primitive(
    "pow", _pow,
    lambda c, g: keep(mul_(g, conj(mul_(c.b, pow_(c.a, sub_(c.b, number(1, c.b)))))), fresh(plain(c.b) != 0)),
    lambda c, g: mul_(g, conj(_by_exponent(c.a, c.b, c.out))), inputs="a b", node="PowBackward1")
# A number to the power of a tensor.
_pow_base = primitive("pow", _pow, None, lambda c, g: mul_(g, conj(_by_exponent(c.a, c.b, c.out))), inputs="a b", node="PowBackward2")


def _by_exponent(a, b, out):
    """Slope by the exponent: out * log(a), 0 where a is 0 and the exponent not negative."""
    return keep(mul_(out, _log(a)), fresh(~((plain(a) == 0) & (plain(b).real >= 0))))



@elementwise
def _log_kernel(a):
    return np.log(a)


_log = primitive("log", _log_kernel, lambda c, g: div_(g, conj(c.a)), inputs="a")


@elementwise
def _pow_number(a, *, p):
    # The everyday exponents, without the general (20 times slower) power.
    if a.dtype.kind in "fc":
        if p == 2:
            return np.square(a)
        if p == 1:
            return a.copy()
        if p == 3:
            r = a * a
            r *= a
            return r
        if a.dtype.kind == "f":
            if p == 0.5:
                return np.sqrt(a)
            if p == -1:
                return np.reciprocal(a)
            if p == -0.5:
                return np.reciprocal(np.sqrt(a))
            if p == -2:
                return np.reciprocal(np.square(a))
    return np.power(a, np.array(p, a.dtype))


def _pow_number_grad(g, a, p):
    if p == 0:
        return zeros_like(g)
    if p == 1:
        return g
    if p == 2:
        return mul_(g, mul_(conj(a), number(2, a)))
    return mul_(g, conj(mul_(pow_number(a, p=p - 1), number(p, a))))


pow_number = primitive("pow", _pow_number, lambda c, g: _pow_number_grad(g, c.a, c.p))


@op(name="pow", inplace=True, out=True)
def pow_op(input, exponent):
    """input ** exponent, either of them a number or a tensor."""
    if isinstance(input, Tensor):
        if exponent.__class__ in (int, float) and input._stype.kind in "fV":
            return pow_number(input, p=exponent)
        if not isinstance(exponent, Tensor):
            a, b = pair(input, exponent)
            d = a._stype
            if d.kind in "iu" and exponent < 0:
                raise RuntimeError("Integers to negative integer powers are not allowed.")
            if d.kind == "c":
                return pow_number(a, p=exponent)
            if d.kind == "b":
                return fresh(a._a | (not exponent))
            return pow_(a, b)
        a, b = pair(input, exponent)
        if a._stype.kind == "b":
            raise unsupported("pow", a._stype)
        return pow_(a, b)
    if not isinstance(exponent, Tensor):
        raise TypeError("pow() received an invalid combination of arguments - got "
                        f"({type_name(input)}, {type_name(exponent)}): one of them must be a Tensor")
    a, b = pair(input, exponent)
    if b._stype.kind == "b":
        raise unsupported("pow", b._stype)
    return _pow_base(a, b)


@op(out=True)
def float_power(input, exponent):
    """input ** exponent in double precision."""
    if not isinstance(input, Tensor) and not isinstance(exponent, Tensor):
        raise TypeError("float_power(): one of the arguments must be a Tensor")
    d = promote_types(result_dtype(input, exponent), F64)
    if not isinstance(exponent, Tensor):
        return pow_number(to(input, d), p=exponent)
    return (pow_ if isinstance(input, Tensor) else _pow_base)(to(input, d), to(exponent, d))


@inplace_method("float_power")
def _float_power_in_place(self, exponent):
    d = promote_types(result_dtype(self, exponent), F64)
    if d is not self._stype:
        raise RuntimeError(f"the base given to float_power_ has dtype {title(self._stype)} but the operation's result requires dtype {title(d)}")
    return float_power(self, exponent)


# ------------------------------------------------------------------ maximum and minimum
def _extremum(name, ufunc, loses, node):
    """The larger (smaller) of two; where both are equal each gets half of the gradient, beside nan each the whole."""
    @elementwise
    def share(g, a, b):
        r = masked(np.asarray(g), ~loses(a, b))
        tie = a == b
        if tie.any():
            np.multiply(r, np.array(0.5, r.dtype), out=r, where=tie)
        return r

    share_ = primitive(name + "_backward", share, lambda c, g: share_(g, c.a, c.b), None, None, inputs="g a b")
    return primitive(name, binary(ufunc), lambda c, g: share_(g, c.a, c.b), lambda c, g: share_(g, c.b, c.a), inputs="a b", node=node)


maximum_ = _extremum("maximum", np.maximum, np.less, "MaximumBackward0")
minimum_ = _extremum("minimum", np.minimum, np.greater, "MinimumBackward0")


def _fextremum(name, ufunc, wins):
    def kernel(a, b):
        # The first of two zeros: NumPy takes the second.
        return pick(b, a)

    pick = binary(ufunc)
    return primitive(
        name, kernel,
        lambda c, g: keep(g, fresh(wins(c.a._a, c.b._a) | _isnan(c.b._a))),
        lambda c, g: keep(g, fresh(~(wins(c.a._a, c.b._a) | _isnan(c.b._a)))), inputs="a b")


def _isnan(a):
    return a != a


fmax_ = _fextremum("fmax", np.fmax, np.greater_equal)
fmin_ = _fextremum("fmin", np.fmin, np.less_equal)


def _ordered(name, input, other):
    tensors(name, input, other)
    a, b = pair(input, other)
    if a._stype.kind == "c":
        raise RuntimeError(f"{name} not implemented for complex tensors.")
    return a, b


@op(out=True)
def maximum(input, other):
    """Elementwise maximum of two tensors; nan wins."""
    return maximum_(*_ordered("maximum", input, other))


@op(out=True)
def minimum(input, other):
    """Elementwise minimum of two tensors; nan wins."""
    return minimum_(*_ordered("minimum", input, other))


@op(out=True)
def fmax(input, other):
    """Elementwise maximum of two tensors; a number wins over nan."""
    return fmax_(*_ordered("fmax", input, other))


@op(out=True)
def fmin(input, other):
    """Elementwise minimum of two tensors; a number wins over nan."""
    return fmin_(*_ordered("fmin", input, other))


# ------------------------------------------------------------------ functions of two variables
def _inverse_square(a, b):
    """1 / (a^2 + b^2), 0 at the origin (and where the squares vanish)."""
    s = add_(mul_(a, a), mul_(b, b))
    r = div_(Const(1, s._stype if s._stype.kind != "V" else F32), s)
    return r if plain(s).all() else keep(r, fresh(plain(s) != 0))


atan2_ = primitive("atan2", binary(np.arctan2), lambda c, g: mul_(mul_(g, c.b), _inverse_square(c.a, c.b)),
                   lambda c, g: mul_(mul_(g, neg_(c.a)), _inverse_square(c.a, c.b)), inputs="a b")


@op(inplace=True, out=True, aliases="arctan2")
def atan2(input, other):
    """Angle of the point (other, input), in radians."""
    tensors("atan2", input, other)
    return atan2_(*_real_floats("atan2", input, other))


def _real_floats(name, input, other):
    a, b = float_pair(input, other)
    if a._stype.kind == "c":
        raise unsupported(name, a._stype)
    return a, b


def _floats_only(name, input, other):
    """Operands that must be floating already (no integers, no complex numbers)."""
    tensors(name, input, other)
    a, b = pair(input, other)
    if a._stype.kind not in "fV":
        raise unsupported(name, a._stype)
    return a, b


hypot_ = primitive("hypot", binary(np.hypot), lambda c, g: div_(mul_(g, c.a), c.out), lambda c, g: div_(mul_(g, c.b), c.out), inputs="a b")


@op(inplace=True, out=True)
def hypot(input, other):
    """sqrt(input**2 + other**2) without overflow."""
    return hypot_(*_floats_only("hypot", input, other))


@elementwise
def _logaddexp(a, b):
    if a.dtype.kind != "c":
        return np.logaddexp(a, b)
    # The operand with the larger real part stands outside the logarithm.
    big = a.real >= b.real
    m, n = np.where(big, a, b), np.where(big, b, a)
    r = m + np.log1p(np.exp(n - m))
    return np.where((a == b) & np.isinf(a.real), np.where(a.real < 0, a, r), r)


@elementwise
def _expit(a):
    """1 / (1 + exp(-a))"""
    return np.reciprocal(np.exp(-a) + 1)


_share_of = primitive("sigmoid", _expit, lambda c, g: mul_(g, conj(mul_(c.out, sub_(number(1, c.out), c.out)))),
                      inputs="a")
_LN2 = float(np.log(2.0))
logaddexp_ = primitive("logaddexp", _logaddexp, lambda c, g: mul_(g, conj(_share_of(sub_(c.a, c.b)))),
                       lambda c, g: mul_(g, conj(_share_of(sub_(c.b, c.a)))), inputs="a b")
logaddexp2_ = primitive("logaddexp2", binary(np.logaddexp2),
                        lambda c, g: mul_(g, _share_of(mul_(sub_(c.a, c.b), number(_LN2, c.a)))),
                        lambda c, g: mul_(g, _share_of(mul_(sub_(c.b, c.a), number(_LN2, c.b)))), inputs="a b")


@op(out=True)
def logaddexp(input, other):
    """log(exp(input) + exp(other)) without overflow."""
    tensors("logaddexp", input, other)
    a, b = pair(input, other)
    if a._stype.kind in "biu":
        raise unsupported("logaddexp", a._stype)
    return logaddexp_(a, b)


@op(out=True)
def logaddexp2(input, other):
    """log2(2**input + 2**other) without overflow."""
    return logaddexp2_(*_floats_only("logaddexp2", input, other))


copysign_ = primitive("copysign", binary(np.copysign), lambda c, g: mul_(g, _flip(c.a, c.out)), lambda c, g: zeros_like(g), inputs="a b")


@quiet
def _flip(a, r):
    """1 where the sign stayed, -1 where it changed, 0 at zero, nan for what is not finite."""
    x = plain(a)
    return fresh(cast_number(np.where(x == 0, x.dtype.type(0), plain(r) / x), a._stype))


@op(inplace=True, out=True)
def copysign(input, other):
    """Magnitude of input with the sign of other (a tensor or a number)."""
    need_tensor("copysign", input)
    return copysign_(*_real_floats("copysign", input, other))


@elementwise
def _next(a, b):
    if a.dtype.kind != "V":
        return np.nextafter(a, b)
    x, y = a.astype(F32), b.astype(F32)
    bits = np.broadcast_to(a.view(np.int16), np.broadcast_shapes(x.shape, y.shape))
    # Neighbours of the same sign are neighbours as integers; zero steps to the smallest number of either sign.
    r = np.where(x == 0, np.where(y > 0, 1, -0x7fff), np.where((x > 0) == (y > x), bits + 1, bits - 1)).astype(np.int16)
    r = np.where(x == y, b.view(np.int16), np.where((x != x) | (y != y), 0x7fc0, r)).astype(np.int16)
    return r.view(a.dtype)


_nextafter = primitive("nextafter", _next, lambda c, g: keep(g, fresh(plain(c.a) != plain(c.b))),
                       lambda c, g: zeros_like(g), raw=True)


@op(inplace=True, out=True)
def nextafter(input, other):
    """The next representable number after input in the direction of other."""
    return _nextafter(*_floats_only("nextafter", input, other))


ldexp_ = primitive("ldexp", elementwise(lambda a, b: a * np.exp2(b)),
                   lambda c, g: mul_(g, conj(exp2_(c.b))), lambda c, g: mul_(g, conj(mul_(c.out, number(_LN2, c.out)))),
                   inputs="a b")
exp2_ = primitive("exp2", elementwise(lambda a: np.exp2(a) if a.dtype.kind != "c" else np.exp(a * _LN2)),
                  lambda c, g: mul_(g, conj(mul_(c.out, number(_LN2, c.out)))), inputs="a")


@op(inplace=True, out=True)
def ldexp(input, other):
    """input * 2**other."""
    tensors("ldexp", input, other)
    a, b = float_pair(input, other)
    if a._stype.kind == "c":
        return ldexp_complex(a, b)
    return ldexp_(a, b)


def ldexp_complex(a, b):
    return mul_(a, exp2_(b))


@elementwise
def _heaviside(a, b):
    return np.where(a == 0, b, (a > 0).astype(a.dtype))


_heaviside_ = primitive("heaviside", _heaviside, no_derivative("heaviside"), no_derivative("heaviside"), raw=True)


@op(inplace=True, out=True)
def heaviside(input, values):
    """0 below zero, 1 above, `values` at zero; both tensors of one dtype."""
    need_tensor("heaviside", input)
    need_tensor("heaviside", values, "values", 2)
    if input._stype != values._stype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    if input._stype.kind == "c":
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    return _heaviside_(input, values)


@elementwise
def _xlogy(a, b):
    r = a * np.log(b)
    return np.where((a == 0) & (b == b), np.zeros((), r.dtype), r)


xlogy_ = primitive("xlogy", _xlogy,
                   lambda c, g: keep(xlogy_(g, c.b), fresh(~((plain(c.a) == 0) & (plain(c.b) <= 0)))),
                   lambda c, g: div_(mul_(g, c.a), c.b), inputs="a b")


@op(inplace=True, out=True, aliases="special.xlogy")
def xlogy(input, other):
    """input * log(other), 0 where input is 0; either may be a number."""
    if not isinstance(input, Tensor):
        need_tensor("xlogy", other, "other", 2)
    return xlogy_(*_real_floats("xlogy", input, other))
