"""Elementwise ops on two or three operands: arithmetic, comparison, logic, bits, where, clamp, lerp.

The operators of Tensor are in `_operators.py`.
"""
import numpy as np

from mindtorch.backend.cpu_pointwise import SILENT, binary, elementwise
from mindtorch.core import dtypes
from mindtorch.core.promote import category, number_dtype, pair, promote_types, result_dtype, to
from mindtorch.core.table import fresh, op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Const, Tensor, wrap
from mindtorch.ops._checks import need_tensor, not_tensor, unsupported
from mindtorch.ops.basic import add_, cast, conj, mul_, neg_, sub_

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_NUMBER = (bool, int, float, complex, np.number, np.bool_)


# ------------------------------------------------------------------ operands
def float_pair(a, b):
    """Two operands in their common dtype, integers in the default floating dtype."""
    d = result_dtype(a, b)
    if category(d) < 2:
        d = dtypes.default_np()
    return to(a, d), to(b, d)


def common(*operands):
    """Tensors (None stays None) brought to their common dtype."""
    d = result_dtype(*[x for x in operands if x is not None])
    return [None if x is None else to(x, d) for x in operands]


def exact(x, d):
    """Operand in exactly this dtype, also a number (which `to` leaves in float32 beside a float16 tensor)."""
    if x.__class__ is Const or not hasattr(x, "_a"):
        a = x._a if x.__class__ is Const else np.array(x, number_dtype(x))
        c = Const(0, _F32)
        c._a = cast_number(a, d)
        return c
    return cast(x, d)


def cast_number(a, d):
    """0-dim array in another dtype; bfloat16 takes the detour through float32 that NumPy's extension type needs."""
    return a.astype(_F32).astype(d) if d.kind == "V" else a.astype(d)


def tensors(name, *args):
    """TypeError unless all are tensors; names and positions as torch's signatures (input, other)."""
    for i, x in enumerate(args):
        if not isinstance(x, Tensor):
            raise not_tensor(name, ("input", "other")[i], i + 1, x)


def zeros_like(g):
    """The gradient of something piecewise constant."""
    return wrap(np.zeros(g._a.shape, g._a.dtype))


def _masked(g, mask):
    r = np.zeros(np.broadcast_shapes(g.shape, mask.shape), g.dtype)
    np.copyto(r, g, where=mask)
    return r


#: keep(g, mask): g where mask, else 0 (also where g is nan or inf); the mask is a bool tensor.
keep = primitive("masked_fill", _masked, lambda c, g: keep(g, c.mask), None, raw=True)


# ------------------------------------------------------------------ arithmetic
def _alpha(name, alpha, d):
    """alpha as an operand; RuntimeError where its kind does not suit the result's dtype."""
    kind = number_dtype(alpha).kind
    if kind == "b" and d.kind != "b":
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if kind in "fc" and d.kind in "biu":
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if kind == "c" and d.kind != "c":
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    return Const(alpha, _F32 if d in dtypes.LOW else d)


@op(inplace=np.add, out=True)
def add(input, other, *, alpha=1):
    """input + alpha * other, with broadcasting and type promotion."""
    a, b = pair(input, other)
    if alpha.__class__ is not int or alpha != 1:
        b = mul_(b, _alpha("add", alpha, a._a.dtype if a.__class__ is Tensor else b._a.dtype))
    return add_(a, b)


_BOOL_SUB = ("Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the "
             "`~` or `logical_not()` operator instead.")


def _no_bool_sub(x, y):
    kinds = [v._a.dtype.kind if hasattr(v, "_a") else ("b" if v is True or v is False else "") for v in (x, y)]
    if kinds == ["b", "b"]:
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                           "`logical_xor()` operator instead.")
    if "b" in kinds:
        raise RuntimeError(_BOOL_SUB)


@op(inplace=np.subtract, out=True, aliases="subtract")
def sub(input, other, *, alpha=1):
    """input - alpha * other; bool tensors are refused (RuntimeError)."""
    _no_bool_sub(input, other)
    a, b = pair(input, other)
    if alpha.__class__ is not int or alpha != 1:
        b = mul_(b, _alpha("sub", alpha, a._a.dtype if a.__class__ is Tensor else b._a.dtype))
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
        a = mul_(a, _alpha("rsub", alpha, a._a.dtype))
    return rsub_(a, b)


@op(inplace=np.multiply, out=True, aliases="multiply")
def mul(input, other):
    """Elementwise product, with broadcasting and type promotion."""
    a, b = pair(input, other)
    return mul_(a, b)


div_ = primitive("div", binary(np.true_divide), lambda c, g: div_(g, conj(c.b)),
                 lambda c, g: neg_(mul_(g, conj(div_(c.out, c.b)))), inputs="a b")


def div_no_int(a, b):
    """Quotient of two operands of one floating dtype."""
    return div_(a, b)


def _nonzero(b):
    if b.dtype.kind in "iu" and not b.all():
        raise RuntimeError("ZeroDivisionError")


@elementwise
def _div_floor(a, b):
    _nonzero(b)
    return np.floor_divide(a, b)


@elementwise
def _div_trunc(a, b):
    _nonzero(b)
    if a.dtype.kind in "iu":
        return np.floor_divide(a - np.fmod(a, b), b)
    return np.trunc(np.true_divide(a, b))


div_floor = primitive("div", _div_floor, lambda c, g: zeros_like(g), lambda c, g: zeros_like(g), node="DivBackward2")
div_trunc = primitive("div", _div_trunc, lambda c, g: zeros_like(g), lambda c, g: zeros_like(g), node="DivBackward2")
_div_floor_nograd = primitive("floor_divide", _div_floor)


def _rounded(name, prim, input, other):
    a, b = pair(input, other)
    kind = a._a.dtype.kind
    if kind in "bc":
        raise unsupported(name, a._a.dtype)
    return prim(a, b)


@op(inplace=np.true_divide, out=True, aliases="divide")
def div(input, other, *, rounding_mode=None):
    """Quotient: true division (integers give floats), or rounded towards zero ("trunc") or down ("floor")."""
    if rounding_mode is None:
        try:
            if input._a.dtype is other._a.dtype is _F32:
                return div_(input, other)
        except AttributeError:
            pass
        return div_(*float_pair(input, other))
    if rounding_mode == "trunc":
        return _rounded("div", div_trunc, input, other)
    if rounding_mode == "floor":
        return _rounded("div", div_floor, input, other)
    raise RuntimeError("div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
                       f"'{rounding_mode}'")


@op(inplace=np.true_divide, out=True)
def true_divide(input, other):
    """True division; integers give floats."""
    return div_(*float_pair(input, other))


@op(inplace=True, out=True)
def floor_divide(input, other):
    """Quotient rounded down; RuntimeError ("ZeroDivisionError") for an integer divisor of zero."""
    return _rounded("floor_divide", _div_floor_nograd, input, other)


@elementwise
def _remainder(a, b):
    _nonzero(b)
    return np.remainder(a, b)


@elementwise
def _fmod(a, b):
    _nonzero(b)
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
    lambda c, g: keep(mul_(g, conj(mul_(c.b, pow_(c.a, sub_(c.b, Const(1, _one(c.b))))))), fresh(c.b._a != 0)),
    lambda c, g: keep(mul_(g, conj(mul_(c.out, _log(c.a)))), fresh(~((c.a._a == 0) & (c.b._a.real >= 0)))),
    inputs="a b", node="PowBackward1")
# A number to the power of a tensor.
_pow_base = primitive(
    "pow", _pow, None,
    lambda c, g: zeros_like(g) if c.a._a == 0 and False else keep(
        mul_(g, conj(mul_(c.out, _log(c.a)))), fresh(~((c.a._a == 0) & (c.b._a.real >= 0)))),
    inputs="a b", node="PowBackward2")


def _one(x):
    d = x._a.dtype
    return _F32 if d in dtypes.LOW else d


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
            return a * a * a
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
        return mul_(g, mul_(conj(a), Const(2, _one(a))))
    return mul_(g, conj(mul_(pow_number(a, p=p - 1), Const(p, _one(a)))))


pow_number = primitive("pow", _pow_number, lambda c, g: _pow_number_grad(g, c.a, c.p))


@op(name="pow", inplace=True, out=True)
def pow_op(input, exponent):
    """input ** exponent, either of them a number or a tensor."""
    if isinstance(input, Tensor):
        if exponent.__class__ in (int, float) and input._a.dtype.kind in "fV":
            return pow_number(input, p=exponent)
        if not isinstance(exponent, Tensor):
            a, b = pair(input, exponent)
            d = a._a.dtype
            if d.kind in "iu" and exponent < 0:
                raise RuntimeError("Integers to negative integer powers are not allowed.")
            if d.kind == "c":
                return pow_number(a, p=exponent)
            if d.kind == "b":
                raise unsupported("pow", d)
            return pow_(a, b)
        a, b = pair(input, exponent)
        if a._a.dtype.kind == "b":
            raise unsupported("pow", a._a.dtype)
        return pow_(a, b)
    if not isinstance(exponent, Tensor):
        raise TypeError("pow() received an invalid combination of arguments - got "
                        f"({type(input).__name__}, {type(exponent).__name__}): one of them must be a Tensor")
    a, b = pair(input, exponent)
    if b._a.dtype.kind == "b":
        raise unsupported("pow", b._a.dtype)
    return _pow_base(a, b)


@op(inplace=True, out=True)
def float_power(input, exponent):
    """input ** exponent in double precision."""
    if not isinstance(input, Tensor) and not isinstance(exponent, Tensor):
        raise TypeError("float_power(): one of the arguments must be a Tensor")
    d = promote_types(result_dtype(input, exponent), _F64)
    return pow_op(to(input, d) if isinstance(input, Tensor) else input,
                  to(exponent, d) if isinstance(exponent, Tensor) else exponent) \
        if d.kind != "c" or (isinstance(input, Tensor) and isinstance(exponent, Tensor)) else \
        pow_(to(input, d), to(exponent, d))


# ------------------------------------------------------------------ maximum and minimum
def _extremum(name, ufunc, beats, node):
    """The larger (smaller) of two; where both are equal each gets half of the gradient."""
    prim = primitive(
        name, binary(ufunc),
        lambda c, g: mul_(g, share(c.a, c.b, beats)),
        lambda c, g: mul_(g, share(c.b, c.a, beats)), inputs="a b", node=node)
    return prim


def share(a, b, beats):
    """1 where a wins, 1/2 at ties, else 0, as a tensor of the operands' dtype."""
    x, y = a._a, b._a
    r = beats(x, y).astype(_F32) + 0.5 * (x == y)
    return fresh(cast_number(np.asarray(r), x.dtype if a.__class__ is not Const else y.dtype))


maximum_ = _extremum("maximum", np.maximum, np.greater, "MaximumBackward0")
minimum_ = _extremum("minimum", np.minimum, np.less, "MinimumBackward0")


def _fextremum(name, ufunc, wins):
    return primitive(
        name, binary(ufunc),
        lambda c, g: keep(g, fresh(wins(c.a._a, c.b._a) | _isnan(c.b._a))),
        lambda c, g: keep(g, fresh(~(wins(c.a._a, c.b._a) | _isnan(c.b._a)))), inputs="a b")


def _isnan(a):
    return a != a


fmax_ = _fextremum("fmax", np.fmax, np.greater_equal)
fmin_ = _fextremum("fmin", np.fmin, np.less_equal)


def _ordered(name, input, other):
    tensors(name, input, other)
    a, b = pair(input, other)
    if a._a.dtype.kind == "c":
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


# ------------------------------------------------------------------ comparison
def _compare(name, ufunc, aliases, ordered):
    prim = primitive(name, binary(ufunc), inputs="a b")

    def compare(input, other):
        a, b = cmp_pair(input, other)
        if ordered and a._a.dtype.kind == "c":
            raise unsupported(name, a._a.dtype)
        return prim(a, b)

    compare.__name__ = name
    compare.__doc__ = f"Elementwise input {_SIGN[name]} other, as a bool tensor; `other` may be a number."
    return prim, op(compare, inplace=True, out=True, aliases=aliases)


def cmp_pair(a, b):
    """As `pair`, but a number is rounded to the tensor's own precision, as torch compares."""
    if not isinstance(a, Tensor):
        raise not_tensor("comparison", "input", 1, a)
    a, b = pair(a, b)
    if b.__class__ is Const and a._a.itemsize == 2 and a._a.dtype.kind in "fV":
        b = exact(b, a._a.dtype)
    return a, b


_SIGN = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
eq_, eq = _compare("eq", np.equal, "", False)
ne_, ne = _compare("ne", np.not_equal, "not_equal", False)
lt_, lt = _compare("lt", np.less, "less", True)
le_, le = _compare("le", np.less_equal, "less_equal", True)
gt_, gt = _compare("gt", np.greater, "greater", True)
ge_, ge = _compare("ge", np.greater_equal, "greater_equal", True)


@op
def equal(input, other):
    """True if both tensors have the same shape and elements."""
    tensors("equal", input, other)
    x, y = input._a, other._a
    return x.shape == y.shape and bool((x == y).all())


@elementwise
def _isclose(a, b, *, rtol, atol, equal_nan):
    close = a == b
    if a.dtype.kind in "fc" and equal_nan:
        close |= (a != a) & (b != b)
    if rtol == 0 and atol == 0:
        return close
    if a.dtype.kind in "biu":
        a, b = a.astype(_F64), b.astype(_F64)
    diff = np.abs(a - b)
    return close | (np.isfinite(diff) & (diff <= np.abs(b) * rtol + atol))


_isclose_ = primitive("isclose", _isclose)


@op
def isclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Elementwise |input - other| <= atol + rtol * |other|; both tensors of one dtype."""
    tensors("isclose", input, other)
    if input._a.dtype != other._a.dtype:
        from mindtorch.core.alias import _title
        raise RuntimeError(f"{_title(input._a.dtype)} did not match {_title(other._a.dtype)}")
    for n, v in (("rtol", rtol), ("atol", atol)):
        if not v >= 0:
            raise RuntimeError(f"{n} must be greater than or equal to zero, but got {v}")
    return _isclose_(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


@op
def allclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    """True if all elements are close (see isclose)."""
    return bool(isclose(input, other, rtol, atol, equal_nan)._a.all())


# ------------------------------------------------------------------ logic and bits
def _logical(name, ufunc):
    prim = primitive(name, binary(ufunc), inputs="a b")

    def logical(input, other):
        tensors(name, input, other)
        return prim(input, other)

    logical.__name__ = name
    logical.__doc__ = f"Elementwise {name[8:].upper()} of the truth values, as a bool tensor."
    return op(logical, inplace=True, out=True)


logical_and = _logical("logical_and", np.logical_and)
logical_or = _logical("logical_or", np.logical_or)
logical_xor = _logical("logical_xor", np.logical_xor)
_logical_not = primitive("logical_not", np.logical_not, inputs="a")


@op(inplace=True, out=True)
def logical_not(input):
    """Elementwise NOT of the truth values, as a bool tensor."""
    need_tensor("logical_not", input)
    return _logical_not(input)


def _integers(name, input, other):
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise TypeError(f"{name}() received an invalid combination of arguments - got "
                        f"({type(input).__name__}, {type(other).__name__}): one of them must be a Tensor")
    a, b = pair(input, other)
    if a._a.dtype.kind not in "biu":
        raise unsupported(name, a._a.dtype)
    return a, b


def _bitwise(name, ufunc):
    prim = primitive(name, binary(ufunc), inputs="a b")

    def bitwise(input, other):
        return prim(*_integers(name, input, other))

    bitwise.__name__ = name
    bitwise.__doc__ = f"Bitwise {name[8:].upper()} of integers or bools; either operand may be a number."
    return op(bitwise, inplace=True, out=True)


bitwise_and = _bitwise("bitwise_and", np.bitwise_and)
bitwise_or = _bitwise("bitwise_or", np.bitwise_or)
bitwise_xor = _bitwise("bitwise_xor", np.bitwise_xor)
_bitwise_not = primitive("bitwise_not", np.invert, inputs="a")


@op(inplace=True, out=True)
def bitwise_not(input):
    """Bitwise NOT of integers, logical NOT of bools."""
    need_tensor("bitwise_not", input)
    if input._a.dtype.kind not in "biu":
        raise unsupported("bitwise_not", input._a.dtype)
    return _bitwise_not(input)


@elementwise
def _shift_left(a, b):
    bits = a.itemsize * 8
    ok = (b >= 0) & (b < bits)
    return np.where(ok, np.left_shift(a, np.where(ok, b, 0)), 0).astype(a.dtype)


@elementwise
def _shift_right(a, b):
    # Shifting by too much (or by a negative number) leaves the sign bit everywhere.
    bits = a.itemsize * 8
    return np.right_shift(a, np.where((b >= 0) & (b < bits), b, bits - 1).astype(a.dtype))


def _shift(name, kernel, word):
    prim = primitive(name, kernel)

    def shift(input, other):
        a, b = _integers(name, input, other)
        if a._a.dtype.kind == "b":
            raise unsupported(name, a._a.dtype)
        return prim(a, b)

    shift.__name__ = name
    shift.__doc__ = f"Bits of integers shifted to the {word}; either operand may be a number."
    return op(shift, inplace=True, out=True)


bitwise_left_shift = _shift("bitwise_left_shift", _shift_left, "left")
bitwise_right_shift = _shift("bitwise_right_shift", _shift_right, "right")


def _divisors(name, ufunc):
    prim = primitive(name, binary(ufunc), inputs="a b")

    def divisor(input, other):
        tensors(name, input, other)
        a, b = pair(input, other)
        if a._a.dtype.kind not in "iu":
            raise unsupported(name, a._a.dtype)
        return prim(a, b)

    divisor.__name__ = name
    divisor.__doc__ = f"Elementwise {'greatest common divisor' if name == 'gcd' else 'least common multiple'} of integers."
    return op(divisor, inplace=True, out=True)


gcd = _divisors("gcd", np.gcd)
lcm = _divisors("lcm", np.lcm)


# ------------------------------------------------------------------ functions of two variables
@elementwise
def _atan2_grad(g, a, b):
    return g * (b / (a * a + b * b))


_atan2_part = primitive("atan2_backward", _atan2_grad, None, None, None)
atan2_ = primitive("atan2", binary(np.arctan2),
                   lambda c, g: mul_(g, div_(c.b, add_(mul_(c.a, c.a), mul_(c.b, c.b)))),
                   lambda c, g: mul_(g, div_(neg_(c.a), add_(mul_(c.a, c.a), mul_(c.b, c.b)))), inputs="a b")


@op(inplace=True, out=True, aliases="arctan2")
def atan2(input, other):
    """Angle of the point (other, input), in radians."""
    tensors("atan2", input, other)
    return atan2_(*_real_floats("atan2", input, other))


def _real_floats(name, input, other):
    a, b = float_pair(input, other)
    if a._a.dtype.kind == "c":
        raise unsupported(name, a._a.dtype)
    return a, b


def _floats_only(name, input, other):
    """Operands that must be floating already (no integers, no complex numbers)."""
    tensors(name, input, other)
    a, b = pair(input, other)
    if a._a.dtype.kind not in "fV":
        raise unsupported(name, a._a.dtype)
    return a, b


hypot_ = primitive("hypot", binary(np.hypot), lambda c, g: mul_(g, div_(c.a, c.out)), lambda c, g: mul_(g, div_(c.b, c.out)),
                   inputs="a b")


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


_share_of = primitive("sigmoid", _expit, lambda c, g: mul_(g, conj(mul_(c.out, sub_(Const(1, _one(c.out)), c.out)))), inputs="a")
_LN2 = float(np.log(2.0))
logaddexp_ = primitive("logaddexp", _logaddexp, lambda c, g: mul_(g, conj(_share_of(sub_(c.a, c.b)))),
                       lambda c, g: mul_(g, conj(_share_of(sub_(c.b, c.a)))), inputs="a b")
logaddexp2_ = primitive("logaddexp2", binary(np.logaddexp2),
                        lambda c, g: mul_(g, _share_of(mul_(sub_(c.a, c.b), Const(_LN2, _one(c.a))))),
                        lambda c, g: mul_(g, _share_of(mul_(sub_(c.b, c.a), Const(_LN2, _one(c.b))))), inputs="a b")


@op(out=True)
def logaddexp(input, other):
    """log(exp(input) + exp(other)) without overflow."""
    tensors("logaddexp", input, other)
    a, b = pair(input, other)
    if a._a.dtype.kind in "biu":
        raise unsupported("logaddexp", a._a.dtype)
    return logaddexp_(a, b)


@op(out=True)
def logaddexp2(input, other):
    """log2(2**input + 2**other) without overflow."""
    return logaddexp2_(*_floats_only("logaddexp2", input, other))


copysign_ = primitive("copysign", binary(np.copysign),
                      lambda c, g: mul_(g, fresh(np.asarray(_flip(c.a._a, c.out._a)))), lambda c, g: zeros_like(g), inputs="a b")


def _flip(a, r):
    """1 where the sign stayed, -1 where it changed, 0 at zero."""
    d = a.dtype
    a, r = a.astype(_F32), r.astype(_F32)
    return cast_number(np.sign(a) * np.sign(r), d)


@op(inplace=True, out=True)
def copysign(input, other):
    """Magnitude of input with the sign of other (a tensor or a number)."""
    need_tensor("copysign", input)
    return copysign_(*_real_floats("copysign", input, other))


_nextafter = primitive("nextafter", binary(np.nextafter), inputs="a b", raw=True)


@op(inplace=True, out=True)
def nextafter(input, other):
    """The next representable number after input in the direction of other."""
    a, b = _floats_only("nextafter", input, other)
    if a._a.dtype.kind == "V":
        raise unsupported("nextafter", a._a.dtype)
    return _nextafter(a, b)


ldexp_ = primitive("ldexp", elementwise(lambda a, b: a * np.exp2(b)),
                   lambda c, g: mul_(g, conj(exp2_(c.b))), lambda c, g: mul_(g, conj(mul_(c.out, Const(_LN2, _one(c.out))))),
                   inputs="a b")
exp2_ = primitive("exp2", elementwise(lambda a: np.exp2(a) if a.dtype.kind != "c" else np.exp(a * _LN2)),
                  lambda c, g: mul_(g, conj(mul_(c.out, Const(_LN2, _one(c.out))))), inputs="a")


@op(inplace=True, out=True)
def ldexp(input, other):
    """input * 2**other."""
    tensors("ldexp", input, other)
    a, b = float_pair(input, other)
    if a._a.dtype.kind == "c":
        return ldexp_complex(a, b)
    return ldexp_(a, b)


def ldexp_complex(a, b):
    return mul_(a, exp2_(b))


@elementwise
def _heaviside(a, b):
    return np.where(a == 0, b, (a > 0).astype(a.dtype))


_heaviside_ = primitive("heaviside", _heaviside, raw=True)


@op(inplace=True, out=True)
def heaviside(input, values):
    """0 below zero, 1 above, `values` at zero; both tensors of one dtype."""
    need_tensor("heaviside", input)
    need_tensor("heaviside", values, "values", 2)
    if input._a.dtype != values._a.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    if input._a.dtype.kind == "c":
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    return _heaviside_(input, values)


@elementwise
def _xlogy(a, b):
    r = a * np.log(b)
    return np.where((a == 0) & (b == b), np.zeros((), r.dtype), r)


xlogy_ = primitive("xlogy", _xlogy,
                   lambda c, g: keep(mul_(g, _log(c.b)), fresh(~((c.a._a == 0) & (c.b._a <= 0)))),
                   lambda c, g: mul_(g, div_(c.a, c.b)), inputs="a b")


@op(inplace=True, out=True, aliases="special.xlogy")
def xlogy(input, other):
    """input * log(other), 0 where input is 0; either may be a number."""
    if not isinstance(input, Tensor):
        need_tensor("xlogy", other, "other", 2)
    return xlogy_(*_real_floats("xlogy", input, other))


# ------------------------------------------------------------------ where
def _where(condition, a, b):
    return np.where(condition, a, b)


where_ = primitive("where", elementwise(_where), None,
                   lambda c, g: keep(g, c.condition), lambda c, g: keep(g, fresh(~c.condition._a)),
                   inputs="condition a b", raw=True)


@op(out=True, method=False)
def where(condition, input=None, other=None):
    """input where condition, else other; with the condition alone the indices of its true elements."""
    need_tensor("where", condition, "condition", 1)
    if input is None and other is None:
        a = condition._a
        return tuple(wrap(i) for i in (np.nonzero(a) if a.ndim else (np.flatnonzero(a),)))
    d = condition._a.dtype
    if d.kind != "b":
        if d != np.uint8:
            from mindtorch.core.alias import _title
            raise RuntimeError("where expected condition to be a boolean tensor, but got a tensor with dtype "
                               f"{_title(d)}")
        import warnings
        warnings.warn("where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future "
                      "version of PyTorch. Use a boolean condition instead.", stacklevel=2)
        condition = fresh(condition._a != 0)
    for n, (arg, x) in enumerate((("input", input), ("other", other))):
        if not isinstance(x, (Tensor, *_NUMBER)):
            raise not_tensor("where", arg, n + 2, x)
    d = result_dtype(input, other)
    return where_(condition, exact(input, d), exact(other, d))


def _where_method(self, condition, other):
    """self where condition, else other."""
    return where(condition, self, other)


Tensor.where = _where_method


# ------------------------------------------------------------------ clamp
def _clamp_numbers(a, *, low, high):
    d = a.dtype
    if high is None:
        return np.maximum(a, np.array(low, d), extobj=SILENT)
    if low is None:
        return np.minimum(a, np.array(high, d), extobj=SILENT)
    return _clip(a, np.array(low, d), np.array(high, d), extobj=SILENT)


_clip = np.core.umath.clip


def _within(a, low, high):
    if low is None:
        return fresh(a <= high)
    if high is None:
        return fresh(a >= low)
    return fresh((a >= low) & (a <= high))


clamp_numbers = primitive("clamp", _clamp_numbers, lambda c, g: keep(g, _within(c.a._a, c.low, c.high)),
                          node="ClampBackward1")


@elementwise
def _clamp_tensors(a, low=None, high=None):
    if low is not None:
        a = np.maximum(a, low)
    return a if high is None else np.minimum(a, high)


def _pass_self(a, low, high):
    ok = True
    if low is not None:
        ok = a._a >= low._a
    if high is not None:
        ok = ok & (a._a <= high._a)
    return fresh(ok)


def _pass_low(a, low, high):
    ok = a._a < low._a
    return fresh(ok if high is None else ok & (low._a < high._a))


def _pass_high(a, low, high):
    ok = a._a > high._a
    return fresh(ok if low is None else ok | (low._a > high._a))


clamp_tensors = primitive("clamp", _clamp_tensors,
                          lambda c, g: keep(g, _pass_self(c.a, c.low, c.high)),
                          lambda c, g: keep(g, _pass_low(c.a, c.low, c.high)),
                          lambda c, g: keep(g, _pass_high(c.a, c.low, c.high)), node="ClampBackward0")


def _limit(x):
    """A Python number within clamp's reach."""
    return x.item() if isinstance(x, np.generic) else x


def clamp_any(name, input, low, high):
    """The meaning of clamp, clamp_min and clamp_max."""
    need_tensor(name, input)
    if low is None and high is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        for x in (low, high):
            if x is not None and not isinstance(x, Tensor):
                raise TypeError(f"{name}() received an invalid combination of arguments - got ({type(input).__name__}, "
                                f"{type(low).__name__}, {type(high).__name__}): both limits must be Tensors or both numbers")
        a, b, c = common(input, low, high)
        if a._a.dtype.kind == "c":
            raise NotImplementedError(f"{name} is not supported for complex types")
        return clamp_tensors(a, b, c)
    a = input._a
    if a.dtype.kind == "c" or low.__class__ is complex or high.__class__ is complex:
        raise NotImplementedError(f"{name} is not supported for complex types")
    if a.dtype.kind in "biu":
        d = result_dtype(input, *[x for x in (low, high) if x is not None])
        if d is not a.dtype:
            input = cast(input, d)
        if d.kind in "iu":
            # A limit outside the dtype's range wraps around, as torch's own conversion does.
            low, high = [None if x is None else int(Const(x, d)._a) for x in (low, high)]
    elif low.__class__ not in (int, float) or high.__class__ not in (int, float):
        for x in (low, high):
            if x is not None:
                number_dtype(x)
    if low != low or high != high:
        # A limit of nan makes every element nan.
        low = high = float("nan")
    return clamp_numbers(input, low=low, high=high)


@op(inplace=True, out=True, aliases="clip")
def clamp(input, min=None, max=None):
    """Elements limited to [min, max] (numbers or tensors); one limit may be left out."""
    return clamp_any("clamp", input, min, max)


@op(inplace=True, out=True)
def clamp_min(input, min):
    """Elements not below `min`."""
    return clamp_any("clamp_min", input, min, None)


@op(inplace=True, out=True)
def clamp_max(input, max):
    """Elements not above `max`."""
    return clamp_any("clamp_max", input, None, max)


# ------------------------------------------------------------------ lerp, addcmul, addcdiv
@elementwise
def _lerp(a, b, w):
    d = b - a
    # The formula that is exact at the nearer end.
    return np.where(np.abs(w) < 0.5, a + w * d, b - d * (1 - w))


@elementwise
def _lerp_number(a, b, *, weight):
    d = b - a
    w = np.array(weight, a.dtype)
    return a + w * d if abs(weight) < 0.5 else b - d * (1 - w)


lerp_ = primitive("lerp", _lerp, lambda c, g: mul_(g, sub_(Const(1, _one(c.w)), conj(c.w))), lambda c, g: mul_(g, conj(c.w)),
                  lambda c, g: mul_(g, conj(sub_(c.b, c.a))), node="LerpBackward1")
lerp_number = primitive("lerp", _lerp_number, lambda c, g: mul_(g, Const(1 - np.conj(c.weight), _one(g))),
                        lambda c, g: mul_(g, Const(np.conj(c.weight), _one(g))))


@op(inplace=True, out=True)
def lerp(input, end, weight):
    """input + weight * (end - input); floating or complex tensors of one dtype, weight a number or such a tensor."""
    from mindtorch.core.alias import _title
    need_tensor("lerp", input)
    need_tensor("lerp", end, "end", 2)
    d = input._a.dtype
    for n, x in (("end", end), ("weight", weight)):
        if isinstance(x, Tensor) and x._a.dtype != d:
            raise RuntimeError(f"expected dtype {dtypes.of_np(d).name} for `{n}` but got dtype "
                               f"{dtypes.of_np(x._a.dtype).name}")
    if d.kind not in "fcV":
        raise unsupported("lerp", d)
    if isinstance(weight, Tensor):
        return lerp_(input, end, weight)
    if number_dtype(weight).kind == "c" and d.kind != "c":
        raise RuntimeError(f"value cannot be converted to type {_title(d)} without overflow")
    return lerp_number(input, end, weight=weight)


def _value(name, value, d):
    """The factor `value` in the result's dtype; RuntimeError for a fractional one of integers."""
    if d.kind == "b":
        raise unsupported(name, d)
    if d.kind in "iu":
        return Const(int(value), d)
    return Const(value, _F32 if d in dtypes.LOW else d)


addcmul_ = primitive("addcmul", elementwise(lambda a, b, d, v: a + v * b * d), lambda c, g: g,
                     lambda c, g: mul_(g, conj(mul_(c.d, c.v))), lambda c, g: mul_(g, conj(mul_(c.b, c.v))), None,
                     inputs="a b d v")
addcdiv_ = primitive("addcdiv", elementwise(lambda a, b, d, v: a + v * (b / d)), lambda c, g: g,
                     lambda c, g: mul_(g, conj(div_(c.v, c.d))),
                     lambda c, g: neg_(mul_(g, conj(div_(mul_(div_(c.b, c.d), c.v), c.d)))), None, inputs="a b d v")


@op(inplace=True, out=True)
def addcmul(input, tensor1, tensor2, *, value=1):
    """input + value * tensor1 * tensor2."""
    a, b, c = _three("addcmul", input, tensor1, tensor2)
    return addcmul_(a, b, c, _value("addcmul", value, a._a.dtype))


@op(inplace=True, out=True)
def addcdiv(input, tensor1, tensor2, *, value=1):
    """input + value * tensor1 / tensor2; RuntimeError if both tensors are of integer type."""
    a, b, c = _three("addcdiv", input, tensor1, tensor2)
    if category(promote_types(tensor1._a.dtype, tensor2._a.dtype)) < 2:
        raise RuntimeError("Integer division with addcdiv is no longer supported: use input + value * torch.trunc(tensor1 / "
                           "tensor2) cast to input's dtype, or input + value * tensor1 / tensor2.")
    return addcdiv_(a, b, c, _value("addcdiv", value, a._a.dtype))


def _three(name, *args):
    for i, (n, x) in enumerate(zip(("input", "tensor1", "tensor2"), args)):
        need_tensor(name, x, n, i + 1)
    return common(*args)
