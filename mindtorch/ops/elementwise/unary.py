"""Elementwise ops on one operand."""
import math

from mindtorch.core.tensor import dtypes
from mindtorch.core.tensor.conj_neg_bits import is_conj, is_neg
from mindtorch.core.dispatch.lazy_conj import neg_view
from mindtorch.core.tensor.dtypes import C64, C128, F64, I64, of_np
from mindtorch.core.tensor.stride_rules import like, with_number
from mindtorch.core.tensor.scalars import read
from mindtorch.core.dispatch.type_promotion import promote_int_to_float
from mindtorch.core.tensor.return_types import struct
from mindtorch.core.dispatch.op_registry import SameDtype, register_op
from mindtorch.core.dispatch.op_schema import Float, Int
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import ScalarOperand, Tensor
from mindtorch.ops._checks import check_tensor, tensor_type_error, not_implemented
from mindtorch.ops._operands import scalar
from mindtorch.ops.basic import _conj, add_, cast, clone, conj, eq_, mask_grad, mul_, lazy_conj, neg_, not_, sub_, zeros_like
from mindtorch.ops.elementwise.binary import _log, div_, exp2_, pow_number


# Gradient rule of piecewise constant functions.
_zero = lambda ctx, grad: zeros_like(grad)  # noqa: E731


# ------------------------------------------------------------------ functions with floating results
def _floating(name, prim, doc, aliases="", complex=True, inplace=True):
    """Declares an op that converts integer inputs to floating point."""
    def f(input):
        try:
            kind = input._np_dtype.kind
        except AttributeError:
            raise tensor_type_error(name, "input", 1, input) from None
        if kind == "f" or kind == "V":
            return prim(input)
        if kind == "c" and not complex:
            raise not_implemented(name, input)
        return prim(promote_int_to_float(input))

    f.__name__ = name
    f.__doc__ = doc
    return register_op(f, inplace=inplace, out=True, aliases=aliases, tags="pointwise")


exp_ = primitive("exp", "a", lambda ctx, grad: mul_(grad, conj(ctx.out)), aten="exp.default")
exp = _floating("exp", exp_, "e**input.")
exp2 = _floating("exp2", exp2_, "2**input.", "special.exp2")
expm1_ = primitive("expm1", "a", lambda ctx, grad: mul_(grad, conj(add_(ctx.out, scalar(1, ctx.out)))), aten="expm1.default")
expm1 = _floating("expm1", expm1_, "exp(input) - 1, accurate near zero.", "special.expm1")

log = _floating("log", _log, "Natural logarithm.")
log2_ = primitive("log2", "a", lambda ctx, grad: div_(grad, conj(mul_(ctx.a, scalar(math.log(2), ctx.a)))), aten="log2.default")
log2 = _floating("log2", log2_, "Logarithm to base 2.")
log10_ = primitive("log10", "a", lambda ctx, grad: div_(grad, conj(mul_(ctx.a, scalar(math.log(10), ctx.a)))), aten="log10.default")
log10 = _floating("log10", log10_, "Logarithm to base 10.")
log1p_ = primitive("log1p", "a", lambda ctx, grad: div_(grad, conj(add_(ctx.a, scalar(1, ctx.a)))), aten="log1p.default")
log1p = _floating("log1p", log1p_, "log(1 + input), accurate near zero.", "special.log1p")

sqrt_ = primitive("sqrt", "a", lambda ctx, grad: div_(grad, mul_(conj(ctx.out), scalar(2, ctx.out))), aten="sqrt.default")
sqrt = _floating("sqrt", sqrt_, "Square root.")


rsqrt_ = primitive("rsqrt", "a", lambda ctx, grad: mul_(grad, conj(mul_(pow_number(ctx.out, p=3), scalar(-0.5, ctx.out)))), aten="rsqrt.default")
rsqrt = _floating("rsqrt", rsqrt_, "1 / sqrt(input).")
reciprocal_ = primitive("reciprocal", "a", lambda ctx, grad: neg_(mul_(grad, conj(mul_(ctx.out, ctx.out)))), aten="reciprocal.default")
reciprocal = _floating("reciprocal", reciprocal_, "1 / input.")

sin_ = primitive("sin", "a", lambda ctx, grad: mul_(grad, conj(cos_(ctx.a))), aten="sin.default")
cos_ = primitive("cos", "a", lambda ctx, grad: neg_(mul_(grad, conj(sin_(ctx.a)))), aten="cos.default")
tan_ = primitive("tan", "a", lambda ctx, grad: mul_(grad, conj(add_(mul_(ctx.out, ctx.out), scalar(1, ctx.out)))), aten="tan.default")
sin = _floating("sin", sin_, "Sine.")
cos = _floating("cos", cos_, "Cosine.")
tan = _floating("tan", tan_, "Tangent.")


def _one_minus_square(a):
    return sub_(scalar(1, a), mul_(a, a))


def _square_plus(a, n):
    return add_(mul_(a, a), scalar(n, a))


def _acosh_backward(a):
    if a._np_dtype.kind != "c":
        return rsqrt_(_square_plus(a, -1))
    # A single square root of the product would be on the wrong branch.
    return conj(mul_(rsqrt_(add_(a, scalar(-1, a))), rsqrt_(add_(a, scalar(1, a)))))


asin_ = primitive("asin", "a", lambda ctx, grad: mul_(grad, conj(rsqrt_(_one_minus_square(ctx.a)))), aten="asin.default")
acos_ = primitive("acos", "a", lambda ctx, grad: neg_(mul_(grad, conj(rsqrt_(_one_minus_square(ctx.a))))), aten="acos.default")
atan_ = primitive("atan", "a", lambda ctx, grad: div_(grad, conj(_square_plus(ctx.a, 1))), aten="atan.default")
asin = _floating("asin", asin_, "Arc sine.", "arcsin")
acos = _floating("acos", acos_, "Arc cosine.", "arccos")
atan = _floating("atan", atan_, "Arc tangent.", "arctan")

sinh_ = primitive("sinh", "a", lambda ctx, grad: mul_(grad, conj(cosh_(ctx.a))), aten="sinh.default")
cosh_ = primitive("cosh", "a", lambda ctx, grad: mul_(grad, conj(sinh_(ctx.a))), aten="cosh.default")
tanh_grad = primitive("tanh_backward", "g, y",
                      lambda ctx, grad: tanh_grad(grad, conj(ctx.y)),
                      lambda ctx, grad: mul_(mul_(grad, conj(ctx.g)), mul_(conj(ctx.y), scalar(-2, ctx.y))), aten="tanh_backward.default")
tanh_ = primitive("tanh", "a", lambda ctx, grad: tanh_grad(grad, conj(ctx.out)), aten="tanh.default")
sinh = _floating("sinh", sinh_, "Hyperbolic sine.")
cosh = _floating("cosh", cosh_, "Hyperbolic cosine.")
tanh = _floating("tanh", tanh_, "Hyperbolic tangent.")
asinh_ = primitive("asinh", "a", lambda ctx, grad: mul_(grad, conj(rsqrt_(_square_plus(ctx.a, 1)))), aten="asinh.default")
acosh_ = primitive("acosh", "a", lambda ctx, grad: mul_(grad, _acosh_backward(ctx.a)), aten="acosh.default")
atanh_ = primitive("atanh", "a", lambda ctx, grad: div_(grad, conj(_one_minus_square(ctx.a))), aten="atanh.default")
asinh = _floating("asinh", asinh_, "Inverse hyperbolic sine.", "arcsinh")
acosh = _floating("acosh", acosh_, "Inverse hyperbolic cosine.", "arccosh")
atanh = _floating("atanh", atanh_, "Inverse hyperbolic tangent.", "arctanh")


sigmoid_grad = primitive("sigmoid_backward", "g, y", lambda ctx, grad: sigmoid_grad(grad, conj(ctx.y)),
                         lambda ctx, grad: mul_(mul_(grad, conj(ctx.g)), sub_(scalar(1, ctx.y), mul_(conj(ctx.y), scalar(2, ctx.y)))),
                         aten="sigmoid_backward.default")
sigmoid_ = primitive("sigmoid", "a", lambda ctx, grad: sigmoid_grad(grad, conj(ctx.out)), aten="sigmoid.default")
sigmoid = _floating("sigmoid", sigmoid_, "1 / (1 + exp(-input)).", "special.expit")

def _degrees(name, factor, node, doc):
    prim = primitive(name, "a", lambda ctx, grad: mul_(grad, scalar(factor, grad)), node=node, layout=with_number, aten=f"{name}.default")

    def f(input):
        check_tensor(name, input)
        if input._np_dtype.kind == "c":
            raise RuntimeError(f"{name} is not supported for complex tensors.")
        return prim(promote_int_to_float(input))
    f.__name__ = name
    f.__doc__ = doc
    return register_op(f, inplace=True, out=True)


deg2rad = _degrees("deg2rad", math.pi / 180, "Deg2RadBackward0", "Degrees to radians.")
rad2deg = _degrees("rad2deg", 180 / math.pi, "Rad2DegBackward0", "Radians to degrees.")


# ------------------------------------------------------------------ magnitude and sign
def _sgn_grad(g, a, out):
    if a._np_dtype.kind != "c":
        return zeros_like(g)
    size = abs_(a)
    along = real_part(mul_(g, conj(out)))
    zero = eq_(size, scalar(0, size))
    safe = add_(size, cast(zero, size._np_dtype))
    d = a._np_dtype
    return mask_grad(div_(sub_(g, mul_(out, cast(along, d))), cast(safe, d)), not_(zero))


abs_ = primitive("abs", "a", lambda ctx, grad: mul_(grad, sgn_(ctx.a)), aten="abs.default")
sgn_ = primitive("sgn", "a", lambda ctx, grad: _sgn_grad(grad, ctx.a, ctx.out), aten="sgn.default")
sign_ = primitive("sign", "a", _zero, aten="sign.default")
real_part = primitive("real_copy", "a", lambda ctx, grad: grad, raw=True, node="RealBackward0")


@register_op(name="abs", inplace=True, out=True, aliases="absolute", tags="pointwise")
def abs_op(input):
    """Absolute value; real for complex tensors."""
    try:
        if input._np_dtype.kind == "b":
            raise not_implemented("abs", input)
    except AttributeError:
        raise tensor_type_error("abs", "input", 1, input) from None
    return abs_(input)


_complex_abs_ = Tensor.abs_


def _abs_in_place(self):
    """In-place version of `Tensor.abs`; RuntimeError for complex tensors."""
    if self._np_dtype.kind == "c":
        raise RuntimeError("In-place abs is not supported for complex tensors.")
    return _complex_abs_(self)


_abs_in_place.__name__ = "abs_"  # `__torch_function__` handlers read this name
Tensor.abs_ = Tensor.absolute_ = _abs_in_place


@register_op(inplace=True, out="same", aliases="negative", tags="linear_pointwise")
def neg(input):
    """-input; raises RuntimeError for bool tensors."""
    check_tensor("neg", input)
    if input._np_dtype.kind == "b":
        raise RuntimeError("Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert "
                           "a mask, "
                           "use the `~` or `logical_not()` operator instead.")
    return neg_(input)


@register_op
def positive(input):
    """Returns the tensor itself; raises RuntimeError for bool tensors."""
    check_tensor("positive", input)
    if input._np_dtype.kind == "b":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


@register_op(inplace=True, out="same", tags="pointwise")
def sgn(input):
    """Sign; input / |input| for complex numbers."""
    check_tensor("sgn", input)
    return sgn_(input)


@register_op(inplace=True, out="same", tags="pointwise")
def sign(input):
    """-1, 0 or 1; 0 for nan."""
    check_tensor("sign", input)
    if input._np_dtype.kind == "c":
        raise NotImplementedError("Unlike NumPy, torch.sign is not intended to support complex numbers. Please use "
                                  "torch.sgn "
                                  "instead.")
    return sign_(input)


_signbit = primitive("signbit", "a", aten="signbit.default")


@register_op(out=SameDtype("{name} does not support non-boolean outputs."))
def signbit(input):
    """True where the sign bit is set (-0. included)."""
    check_tensor("signbit", input)
    if input._np_dtype.kind == "c":
        raise NotImplementedError("signbit is not implemented for complex tensors.")
    if input._np_dtype.kind == "b":
        return zeros_like(input)
    return _signbit(input)


square_ = primitive("square", "a", lambda ctx, grad: mul_(grad, mul_(conj(ctx.a), scalar(2, ctx.a))),
                    node="PowBackward0")


@register_op(inplace=True, out=True, tags="pointwise")
def square(input):
    """input * input; a bool tensor gives int64."""
    check_tensor("square", input)
    if input._np_dtype.kind == "b":
        return cast(input, I64)
    return square_(input)


# ------------------------------------------------------------------ rounding
def _rounding(name, doc, aliases=""):
    prim = primitive(name, "a", _zero, aten=f"{name}.default")

    def f(input):
        check_tensor(name, input)
        kind = input._np_dtype.kind
        if kind in "bc":
            raise not_implemented(name, input)
        return clone(input) if kind in "iu" else prim(input)
    f.__name__ = name
    f.__doc__ = doc
    return register_op(f, inplace=True, out="same", aliases=aliases, tags="pointwise")


floor = _rounding("floor", "Rounds down to an integer.")
ceil = _rounding("ceil", "Rounds up to an integer.")
trunc = _rounding("trunc", "Rounds towards zero to an integer.", "fix")


round_ = primitive("round", "a, *, decimals", _zero)


@register_op(name="round", inplace=True, out="same", aliases="special.round", tags="pointwise")
def round_op(input, *, decimals: Int = 0):
    """Rounds to `decimals` decimal places, halves to even."""
    check_tensor("round", input)
    if decimals.__class__ is not int:
        decimals = read("round", "decimals", "int", decimals)
    kind = input._np_dtype.kind
    if kind in "bc" or (kind in "iu" and decimals):
        raise not_implemented("round", input)
    return clone(input) if kind in "iu" else round_(input, decimals=decimals)


frac_ = primitive("frac", "a", lambda ctx, grad: grad, aten="frac.default")


@register_op(inplace=True, out="same", tags="pointwise")
def frac(input):
    """Fractional part, with the sign of the input; floating tensors only."""
    check_tensor("frac", input)
    if input._np_dtype.kind not in "fV":
        raise not_implemented("frac", input)
    return frac_(input)


# ------------------------------------------------------------------ classification
def _test(name, doc, out=False, complex=True, prim=None):
    prim = prim or primitive(name, "a", aten=f"{name}.default")

    def f(input):
        check_tensor(name, input)
        if input._np_dtype.kind == "c" and not complex:
            raise RuntimeError(f"{name} does not support complex inputs.")
        return prim(input)
    f.__name__ = name
    f.__doc__ = doc
    return register_op(f, out=out, tags="pointwise")


isfinite_ = primitive("isfinite", "a", aten="isfinite.default")
isnan = _test("isnan", "True where nan.")
isinf = _test("isinf", "True where infinite.")
isfinite = _test("isfinite", "True where neither nan nor infinite.", prim=isfinite_)
isreal = _test("isreal", "True where the imaginary part is 0.")
isposinf = _test("isposinf", "True where +inf.", out=SameDtype("{name} does not support non-boolean outputs."), complex=False)
isneginf = _test("isneginf", "True where -inf.", out=SameDtype("{name} does not support non-boolean outputs."), complex=False)


nan_to_num_ = primitive("nan_to_num", "a, *, nan, posinf, neginf", lambda ctx, grad: mul_(grad, cast(isfinite_(ctx.a), grad._np_dtype)), layout=like,
                        aten="nan_to_num.default")


@register_op(inplace=True, out="same", tags="pointwise")
def nan_to_num(input, nan: Float = None, posinf: Float = None, neginf: Float = None):
    """Replaces NaN and infinities (by default with 0, the dtype's largest and its smallest number).
    """
    check_tensor("nan_to_num", input)
    d = input._np_dtype
    if d.kind in "biu":
        return clone(input)
    f = dtypes.finfo(of_np(d))
    return nan_to_num_(input, nan=0.0 if nan is None else nan, posinf=f.max if posinf is None else posinf,
                       neginf=f.min if neginf is None else neginf)


# ------------------------------------------------------------------ complex numbers
def _angle_grad(g, a):
    if a._np_dtype.kind != "c":
        return zeros_like(g)
    # d angle = Re(conj(i z) dz) / |z|^2
    size = real_part(mul_(a, conj(a)))
    zero = eq_(size, scalar(0, size))
    safe = add_(size, cast(zero, size._np_dtype))
    return mask_grad(mul_(cast(div_(g, safe), a._np_dtype), mul_(a, ScalarOperand(1j, a._np_dtype))), not_(zero))


angle_ = primitive("angle", "a", lambda ctx, grad: _angle_grad(grad, ctx.a), aten="angle.default")


@register_op(out=True)
def angle(input):
    """Argument of complex numbers; 0 or pi for real ones."""
    check_tensor("angle", input)
    return angle_(promote_int_to_float(input))


real_view = primitive("real_view", "a", lambda ctx, grad: grad, view=True, node="SelectBackward0")
imag_view = primitive("imag_view", "a", lambda ctx, grad: _times_i(grad), view=True, node="SelectBackward0")


def _times_i(g):
    d = C128 if g._np_dtype == F64 else C64
    return mul_(cast(g, d), ScalarOperand(1j, d))


@register_op(method=False, tags="view")
def real(input):
    """Returns a view of the real part; a real tensor is returned unchanged."""
    check_tensor("real", input)
    return real_view(input) if input._np_dtype.kind == "c" else input


@register_op(method=False, tags="view")
def imag(input):
    """Returns a view of the imaginary part; raises RuntimeError for real tensors."""
    check_tensor("imag", input)
    if input._np_dtype.kind != "c":
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return imag_view(input)


def _set_real(self, value):
    real(self).copy_(value)


def _set_imag(self, value):
    imag(self).copy_(value)


Tensor.real = property(real, _set_real, doc="View of the real part.")
Tensor.imag = property(imag, _set_imag, doc="View of the imaginary part.")


@register_op(name="conj", tags="view")
def conj_op(input):
    """Complex conjugate: a view with the conjugate bit (`is_conj`); a real tensor is returned
    unchanged."""
    check_tensor("conj", input)
    return lazy_conj(input)


@register_op(name="_conj", tags="view")
def conj_as_view(input):
    """Like `conj_op`, under PyTorch's name for the view."""
    check_tensor("_conj", input)
    return lazy_conj(input)


@register_op(inplace=True, out="same", tags="pointwise")
def conj_physical(input):
    """Complex conjugate as a newly allocated tensor; a real tensor is returned unchanged."""
    check_tensor("conj_physical", input)
    return _conj_physical(input) if input._np_dtype.kind == "c" else input


_conj_physical = primitive("conj_physical", "a", lambda ctx, grad: _conj(grad), aten="conj_physical.default")


@register_op
def resolve_conj(input):
    """Materializes a tensor with the conjugate bit; any other tensor is returned unchanged."""
    check_tensor("resolve_conj", input)
    return clone(input) if is_conj(input) else input


@register_op
def resolve_neg(input):
    """Materializes a tensor with the negative bit; any other tensor is returned unchanged."""
    check_tensor("resolve_neg", input)
    return clone(input) if is_neg(input) else input


@register_op(tags="view")
def _neg_view(input):
    """Returns the negated tensor as a view with the negative bit (`is_neg`)."""
    check_tensor("_neg_view", input)
    return neg_view(input)


# ------------------------------------------------------------------ mantissa and exponent
_Frexp = struct("frexp", "mantissa exponent")
frexp_ = primitive("frexp", "a", lambda ctx, grad: div_(grad[0], exp2_(cast(ctx.out1, ctx.dtypes[0]))),
                   nondiff=(1,), layout=like, aten="frexp.default")


@register_op(out="same")
def frexp(input):
    """mantissa and exponent with input = mantissa * 2**exponent; floating tensors only."""
    check_tensor("frexp", input)
    if input._np_dtype.kind not in "fV":
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    return _Frexp(*frexp_(input))
