"""Elementwise arithmetic on two operands.

Comparison and logic are in `mindtorch/ops/elementwise/_logic.py`, clamp and lerp in
`mindtorch/ops/elementwise/_ternary.py`, the operators of Tensor in
`mindtorch/ops/elementwise/_operators.py`.
"""
import math

from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import BOOL, F32, F64, LOW, NUMBER_TYPES
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.tensor.scalars import scalar_array, read
from mindtorch.core.dispatch.type_promotion import promote_factors, number_dtype, promote_pair, promote_types, result_dtype, to
from mindtorch.core.tensor.sparse import SparseUse, dispatch
from mindtorch.core.dispatch.op_registry import inplace_method, register_op
from mindtorch.core.dispatch.op_schema import Scalar
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, ScalarOperand, is_tensor
from mindtorch.ops._checks import check_tensor, not_implemented
from mindtorch.ops._operands import promote_to_float_pair, no_derivative, scalar, quotient, tensors
from mindtorch.ops.basic import add_, conj, mask_grad, mul_, ne_, neg_, not_, or_, sub_, zeros_like

_LN2 = math.log(2)


# ------------------------------------------------------------------ arithmetic
def _alpha(alpha, d):
    """Returns alpha as a Python scalar; raises RuntimeError if its kind does not suit the result's
    dtype."""
    if alpha.__class__ is Tensor or is_tensor(alpha):
        alpha = read("add", "alpha", "number", alpha)
    kind = number_dtype(alpha).kind
    if kind == "b" and d.kind != "b":
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if kind in "fc" and d.kind in "biu":
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if kind == "c" and d.kind != "c":
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    if d in LOW:
        scalar_array(alpha, d)  # raises RuntimeError if it is too large
    return alpha.item() if isinstance(alpha, NUMBER_TYPES) else alpha


def _of(a, b):
    """Returns the common dtype of two operands, one of which can be a scalar."""
    return (b if a.__class__ is ScalarOperand else a)._np_dtype


def _scaled(g, alpha):
    if alpha in (1, -1):
        return g if alpha == 1 else neg_(g)
    return mul_(g, scalar(alpha.conjugate(), g))


add_scaled = primitive("add_scaled", "a, b, *, alpha", lambda ctx, grad: grad, lambda ctx, grad: _scaled(grad, ctx.alpha), node="AddBackward0")
sub_scaled = primitive("sub_scaled", "a, b, *, alpha", lambda ctx, grad: grad, lambda ctx, grad: _scaled(grad, -ctx.alpha), node="SubBackward0")


@register_op(inplace=True, out=True, tags="pointwise")
def add(input, other, *, alpha=1):
    """input + alpha * other, with broadcasting and type promotion."""
    try:
        a, b = promote_pair(input, other)
    except SparseUse:
        return dispatch["add"](input, other, alpha=alpha)
    if alpha.__class__ is not int or alpha != 1:
        return add_scaled(a, b, alpha=_alpha(alpha, _of(a, b)))
    if a._np_dtype.kind == "c" and a._handle is None:
        # PyTorch multiplies by alpha as a complex number, which gives NaN next to infinities.
        return add_scaled(a, b, alpha=1)
    return add_(a, b)


_BOOL_SUB = ("Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
             "use the "
             "`~` or `logical_not()` operator instead.")


def _no_bool_sub(x, y):
    try:
        d = x._np_dtype
        if d is y._np_dtype and d.kind != "b":
            return
    except AttributeError:
        pass
    kinds = [v._np_dtype.kind if hasattr(v, "_np_dtype") else ("b" if v is True or v is False else "") for v in (x, y)]
    if kinds == ["b", "b"]:
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                           "`logical_xor()` operator instead.")
    if "b" in kinds:
        raise RuntimeError(_BOOL_SUB)


@register_op(inplace=True, out=True, aliases="subtract", tags="pointwise")
def sub(input, other, *, alpha=1):
    """input - alpha * other; raises RuntimeError for bool tensors."""
    try:
        _no_bool_sub(input, other)
    except SparseUse:
        return dispatch["sub"](input, other, alpha=alpha)
    a, b = promote_pair(input, other)
    if alpha.__class__ is not int or alpha != 1:
        return sub_scaled(a, b, alpha=_alpha(alpha, _of(a, b)))
    if a._np_dtype.kind == "c" and a._handle is None:
        return sub_scaled(a, b, alpha=1)
    return sub_(a, b)


#: rsub_(a, b) = b - a
rsub_ = primitive("rsub", "a, b", lambda ctx, grad: neg_(grad), lambda ctx, grad: grad, node="RsubBackward1", aten="rsub.Tensor rsub.Scalar")


@register_op
def rsub(input, other, *, alpha: Scalar = 1):
    """other - alpha * input."""
    check_tensor("rsub", input)
    _no_bool_sub(input, other)
    a, b = promote_pair(input, other)
    if alpha.__class__ is not int or alpha != 1:
        alpha = _alpha(alpha, a._np_dtype)
        if a._np_dtype in LOW:
            return sub_scaled(b, a, alpha=alpha)  # does not round the product
        a = mul_(a, scalar(alpha, a))
    return rsub_(a, b)


@register_op(inplace=True, out=True, aliases="multiply", tags="pointwise")
def mul(input, other):
    """Elementwise product, with broadcasting and type promotion."""
    try:
        a, b = promote_factors(input, other)
    except SparseUse:
        return dispatch["mul"](input, other)
    return mul_(a, b)


div_ = primitive("div", "a, b", lambda ctx, grad: div_(grad, conj(ctx.b)),
                 # Not computed from the quotient: as in PyTorch, that can be modified in place
                 # before backward.
                 lambda ctx, grad: neg_(mul_(grad, conj(div_(div_(ctx.a, ctx.b), ctx.b)))), aten="div.Tensor")
div_floor = primitive("div_floor", "a, b", lambda ctx, grad: zeros_like(grad), lambda ctx, grad: zeros_like(grad), node="DivBackward2")
div_trunc = primitive("div_trunc", "a, b", lambda ctx, grad: zeros_like(grad), lambda ctx, grad: zeros_like(grad), node="DivBackward2")
_floor_divide = primitive("floor_divide", "a, b", no_derivative("floor_divide"), no_derivative("floor_divide"), aten="floor_divide.default")


def _rounded(name, prim, input, other, operands=promote_factors):
    a, b = operands(input, other)
    kind = a._np_dtype.kind
    if kind in "bc":
        raise not_implemented(name, a, b)
    return prim(a, b)


@register_op(inplace=True, out=True, aliases="divide", tags="pointwise")
def div(input, other, *, rounding_mode=None):
    """Divides: true division (integers give floats), or rounded towards zero ("trunc") or down
    ("floor")."""
    if rounding_mode is None:
        try:
            if input._np_dtype is other._np_dtype is F32:
                return div_(input, other)
        except AttributeError:
            pass
        except SparseUse:
            return dispatch["div"](input, other)
        return div_(*quotient(input, other))
    if rounding_mode == "trunc":
        return _rounded("div", div_trunc, input, other)
    if rounding_mode == "floor":
        return _rounded("div", div_floor, input, other)
    raise RuntimeError("div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
                       f"'{rounding_mode}'")


@register_op(inplace=True, out=True, tags="pointwise")
def true_divide(input, other):
    """True division; integers give floats."""
    return div_(*quotient(input, other))


@register_op(inplace=True, out=True, tags="pointwise")
def floor_divide(input, other):
    """Quotient rounded down; RuntimeError ("ZeroDivisionError") for an integer divisor of zero."""
    return _rounded("floor_divide", _floor_divide, input, other)


remainder_ = primitive("remainder", "a, b", lambda ctx, grad: grad, lambda ctx, grad: neg_(mul_(grad, div_floor(ctx.a, ctx.b))),
                       node="RemainderBackward1", aten="remainder.Tensor remainder.Scalar")
fmod_ = primitive("fmod", "a, b", lambda ctx, grad: grad, lambda ctx, grad: neg_(mul_(grad, div_trunc(ctx.a, ctx.b))), node="FmodBackward1",
                  aten="fmod.Tensor fmod.Scalar")
_remainder_number = primitive("remainder_number", "a, b", lambda ctx, grad: grad, None, node="RemainderBackward0", aten="remainder.Scalar")
_fmod_number = primitive("fmod_number", "a, b", lambda ctx, grad: grad, None, node="FmodBackward0", aten="fmod.Scalar")


@register_op(inplace=True, out=True, tags="pointwise")
def remainder(input, other):
    """Python's modulus: the result has the sign of the divisor."""
    if not (input.__class__ is Tensor or is_tensor(input)) and not (other.__class__ is Tensor or is_tensor(other)):
        check_tensor("remainder", input)
    return _rounded("remainder", remainder_ if (other.__class__ is Tensor or is_tensor(other)) else _remainder_number, input, other, promote_pair)


@register_op(inplace=True, out=True, tags="pointwise")
def fmod(input, other):
    """C's modulus: the result has the sign of the dividend."""
    check_tensor("fmod", input)
    return _rounded("fmod", fmod_ if (other.__class__ is Tensor or is_tensor(other)) else _fmod_number, input, other, promote_pair)


# ------------------------------------------------------------------ powers
pow_ = primitive(
    "pow", "a, b",
    lambda ctx, grad: mask_grad(mul_(grad, conj(mul_(ctx.b, pow_(ctx.a, sub_(ctx.b, scalar(1, ctx.b)))))), ne_(ctx.b, scalar(0, ctx.b))),
    lambda ctx, grad: mul_(grad, conj(_by_exponent(ctx.a, ctx.b, ctx.out))), node="PowBackward1")
# scalar ** tensor
_pow_base = primitive("pow_base", "a, b", None, lambda ctx, grad: mul_(grad, conj(_by_exponent(ctx.a, ctx.b, ctx.out))), node="PowBackward2")
_exponent_matters = primitive("pow_exponent_matters", "a, b")


def _by_exponent(a, b, out):
    """Derivative with respect to the exponent: out * log(a), 0 where a is 0 and the exponent is not
    negative."""
    return mask_grad(mul_(out, _log(a)), _exponent_matters(a, b))


_log = primitive("log", "a", lambda ctx, grad: div_(grad, conj(ctx.a)), aten="log.default")


def _pow_number_grad(g, a, p):
    if p == 0:
        return zeros_like(g)
    if p == 1:
        return g
    if p == 2:
        return mul_(g, mul_(conj(a), scalar(2, a)))
    return mul_(g, conj(mul_(pow_number(a, p=p - 1), scalar(p, a))))


pow_number = primitive("pow_number", "a, *, p", lambda ctx, grad: _pow_number_grad(grad, ctx.a, ctx.p), node="PowBackward0", aten="pow.Tensor_Scalar")


@register_op(name="pow", inplace=True, out=True, tags="pointwise")
def pow_op(input, exponent):
    """input ** exponent; either can be a scalar."""
    if input.__class__ is Tensor or is_tensor(input):
        if exponent.__class__ in (int, float) and input._np_dtype.kind in "fV":
            if input._np_dtype in LOW:
                scalar_array(exponent, input._np_dtype)  # raises RuntimeError if it is too large
            return pow_number(input, p=exponent)
        if not (exponent.__class__ is Tensor or is_tensor(exponent)):
            a, b = promote_pair(input, exponent)
            d = a._np_dtype
            if d.kind in "iu" and exponent < 0:
                raise RuntimeError("Integers to negative integer powers are not allowed.")
            if d.kind == "c":
                return pow_number(a, p=exponent)
            if d.kind == "b":
                return or_(a, ScalarOperand(not exponent, BOOL))
            return pow_(a, b)
        a, b = promote_pair(input, exponent)
        if a._np_dtype.kind == "b":
            raise not_implemented("pow", a, b)
        return pow_(a, b)
    if not (exponent.__class__ is Tensor or is_tensor(exponent)):
        raise TypeError("pow() received an invalid combination of arguments - got "
                        f"({type_name(input)}, {type_name(exponent)}): one of them must be a Tensor")
    a, b = promote_pair(input, exponent)
    if b._np_dtype.kind == "b":
        raise not_implemented("pow", b, a)
    return _pow_base(a, b)


@register_op(out="same")
def float_power(input, exponent):
    """input ** exponent in double precision."""
    if not (input.__class__ is Tensor or is_tensor(input)) and not (exponent.__class__ is Tensor or is_tensor(exponent)):
        raise TypeError("float_power(): one of the arguments must be a Tensor")
    d = promote_types(result_dtype(input, exponent), F64)
    if not (exponent.__class__ is Tensor or is_tensor(exponent)):
        return pow_number(to(input, d), p=exponent)
    return (pow_ if (input.__class__ is Tensor or is_tensor(input)) else _pow_base)(to(input, d), to(exponent, d))


@inplace_method("float_power")
def _float_power_in_place(self, exponent):
    d = promote_types(result_dtype(self, exponent), F64)
    if d is not self._np_dtype:
        raise RuntimeError(f"the base given to float_power_ has dtype {scalar_type_name(self._np_dtype)} but the operation's result requires dtype "
                           f"{scalar_type_name(d)}")
    return float_power(self, exponent)


# ------------------------------------------------------------------ maximum and minimum
def _extremum(name, node):
    """Declares the maximum (minimum) of two. Equal elements get half of the gradient each; next to
    NaN, both get all of it."""
    share = primitive(name + "_backward", "g, a, b", lambda ctx, grad: share(grad, ctx.a, ctx.b), None, None)
    return primitive(name, "a, b", lambda ctx, grad: share(grad, ctx.a, ctx.b), lambda ctx, grad: share(grad, ctx.b, ctx.a), node=node,
                     aten=f"{name}.default")


maximum_ = _extremum("maximum", "MaximumBackward0")
minimum_ = _extremum("minimum", "MinimumBackward0")


def _number_wins(name):
    """Declares the maximum (minimum) of two where a number wins over NaN."""
    took_first = primitive(name + "_took_first", "a, b")
    return primitive(name, "a, b", lambda ctx, grad: mask_grad(grad, took_first(ctx.a, ctx.b)),
                     lambda ctx, grad: mask_grad(grad, not_(took_first(ctx.a, ctx.b))), aten=f"{name}.default")


fmax_, fmin_ = _number_wins("fmax"), _number_wins("fmin")


def _ordered(name, input, other):
    try:
        if input._np_dtype is F32 is other._np_dtype:  # fast path
            return input, other
    except AttributeError:
        pass
    tensors(name, input, other)
    a, b = promote_pair(input, other)
    if a._np_dtype.kind == "c":
        raise RuntimeError(f"{name} not implemented for complex tensors.")
    return a, b


@register_op(out=True, tags="pointwise")
def maximum(input, other):
    """Elementwise maximum of two tensors; nan wins."""
    return maximum_(*_ordered("maximum", input, other))


@register_op(out=True, tags="pointwise")
def minimum(input, other):
    """Elementwise minimum of two tensors; nan wins."""
    return minimum_(*_ordered("minimum", input, other))


@register_op(out=True, tags="pointwise")
def fmax(input, other):
    """Elementwise maximum of two tensors; a number wins over nan."""
    return fmax_(*_ordered("fmax", input, other))


@register_op(out=True, tags="pointwise")
def fmin(input, other):
    """Elementwise minimum of two tensors; a number wins over nan."""
    return fmin_(*_ordered("fmin", input, other))


# ------------------------------------------------------------------ functions of two variables
#: 1 / a, 0 where a is 0
_reciprocal_or_zero = primitive("reciprocal_or_zero", "a", lambda ctx, grad: neg_(mul_(grad, div_(ctx.out, ctx.a))), node="DivBackward0")


def _inverse_square(a, b):
    """1 / (a^2 + b^2), 0 at the origin (and where the squares vanish)."""
    return _reciprocal_or_zero(add_(mul_(a, a), mul_(b, b)))


atan2_ = primitive("atan2", "a, b", lambda ctx, grad: mul_(mul_(grad, ctx.b), _inverse_square(ctx.a, ctx.b)),
                   lambda ctx, grad: mul_(mul_(grad, neg_(ctx.a)), _inverse_square(ctx.a, ctx.b)), aten="atan2.default")


@register_op(inplace=True, out=True, aliases="arctan2", tags="pointwise")
def atan2(input, other):
    """Angle of the point (other, input), in radians."""
    tensors("atan2", input, other)
    return atan2_(*_real_floats("atan2", input, other))


def _real_floats(name, input, other):
    a, b = promote_to_float_pair(input, other)
    if a._np_dtype.kind == "c":
        raise not_implemented(name, a, b)
    return a, b


def _floats_only(name, input, other):
    """Returns operands that must be floating point already (no integers, no complex numbers)."""
    tensors(name, input, other)
    a, b = promote_pair(input, other)
    if a._np_dtype.kind not in "fV":
        raise not_implemented(name, a, b)
    return a, b


hypot_ = primitive("hypot", "a, b", lambda ctx, grad: div_(mul_(grad, ctx.a), ctx.out), lambda ctx, grad: div_(mul_(grad, ctx.b), ctx.out),
                   aten="hypot.default")


@register_op(inplace=True, out=True, tags="pointwise")
def hypot(input, other):
    """sqrt(input**2 + other**2) without overflow."""
    return hypot_(*_floats_only("hypot", input, other))


_share_of = primitive("logaddexp_share", "a", lambda ctx, grad: mul_(grad, conj(mul_(ctx.out, sub_(scalar(1, ctx.out), ctx.out)))), node="SigmoidBackward0")
logaddexp_ = primitive("logaddexp", "a, b", lambda ctx, grad: mul_(grad, conj(_share_of(sub_(ctx.a, ctx.b)))),
                       lambda ctx, grad: mul_(grad, conj(_share_of(sub_(ctx.b, ctx.a)))), aten="logaddexp.default")
logaddexp2_ = primitive("logaddexp2", "a, b", lambda ctx, grad: mul_(grad, _share_of(mul_(sub_(ctx.a, ctx.b), scalar(_LN2, ctx.a)))),
                        lambda ctx, grad: mul_(grad, _share_of(mul_(sub_(ctx.b, ctx.a), scalar(_LN2, ctx.b)))), aten="logaddexp2.default")


@register_op(out=True, tags="pointwise")
def logaddexp(input, other):
    """log(exp(input) + exp(other)) without overflow."""
    tensors("logaddexp", input, other)
    a, b = promote_pair(input, other)
    if a._np_dtype.kind in "biu":
        raise not_implemented("logaddexp", a, b)
    return logaddexp_(a, b)


@register_op(out=True)
def logaddexp2(input, other):
    """log2(2**input + 2**other) without overflow."""
    return logaddexp2_(*_floats_only("logaddexp2", input, other))


#: 1 where the sign stayed, -1 where it changed, 0 at zero, NaN for non-finite values
_flip = primitive("copysign_flip", "a, r")
copysign_ = primitive("copysign", "a, b", lambda ctx, grad: mul_(grad, _flip(ctx.a, ctx.out)), lambda ctx, grad: zeros_like(grad),
                      aten="copysign.Tensor copysign.Scalar")


@register_op(inplace=True, out=True, tags="pointwise")
def copysign(input, other):
    """Magnitude of input with the sign of other (a tensor or a scalar)."""
    check_tensor("copysign", input)
    return copysign_(*_real_floats("copysign", input, other))


_nextafter = primitive("nextafter", "a, b", lambda ctx, grad: mask_grad(grad, ne_(ctx.a, ctx.b)), lambda ctx, grad: zeros_like(grad), raw=True,
                       aten="nextafter.default")


@register_op(inplace=True, out=True, tags="pointwise")
def nextafter(input, other):
    """The next representable number after input in the direction of other."""
    return _nextafter(*_floats_only("nextafter", input, other))


ldexp_ = primitive("ldexp", "a, b", lambda ctx, grad: mul_(grad, conj(exp2_(ctx.b))), lambda ctx, grad: mul_(grad, conj(mul_(ctx.out, scalar(_LN2, ctx.out)))))
exp2_ = primitive("exp2", "a", lambda ctx, grad: mul_(grad, conj(mul_(ctx.out, scalar(_LN2, ctx.out)))), aten="exp2.default")


@register_op(inplace=True, out=True, tags="pointwise")
def ldexp(input, other):
    """input * 2**other."""
    tensors("ldexp", input, other)
    a, b = quotient(input, other)
    if a._np_dtype.kind == "c":
        return ldexp_complex(a, b)
    return ldexp_(a, b)


def ldexp_complex(a, b):
    return mul_(a, exp2_(b))


_heaviside = primitive("heaviside", "a, b", no_derivative("heaviside"), no_derivative("heaviside"), raw=True, aten="heaviside.default")


@register_op(inplace=True, out="same", tags="pointwise")
def heaviside(input, values):
    """0 below zero, 1 above, `values` at zero; both tensors of one dtype."""
    check_tensor("heaviside", input)
    check_tensor("heaviside", values, "values", 2)
    if input._np_dtype != values._np_dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    if input._np_dtype.kind == "c":
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    return _heaviside(input, values)


_xlogy_is_differentiable = primitive("xlogy_is_differentiable", "a, b")
xlogy_ = primitive("xlogy", "a, b", lambda ctx, grad: mask_grad(xlogy_(grad, ctx.b), _xlogy_is_differentiable(ctx.a, ctx.b)), lambda ctx, grad: div_(mul_(grad,
        ctx.a), ctx.b), aten="xlogy.Tensor xlogy.Scalar_Other")


@register_op(inplace=True, out=True, aliases="special.xlogy", tags="pointwise")
def xlogy(input, other):
    """input * log(other), 0 where input is 0; either can be a scalar."""
    if not (input.__class__ is Tensor or is_tensor(input)):
        check_tensor("xlogy", other, "other", 2)
    return xlogy_(*_real_floats("xlogy", input, other))
