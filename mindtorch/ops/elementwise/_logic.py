"""Comparison, logical and bitwise ops, and where."""
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import BOOL, F32, U8
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.tensor.scalars import NUMBER, rounded
from mindtorch.core.dispatch.type_promotion import promote_pair, result_dtype
from mindtorch.core.dispatch.op_registry import OPS, register_op
from mindtorch.core.dispatch.op_schema import Bool, Float
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import ScalarOperand, Tensor, is_tensor
from mindtorch.core.tensor.sync import predicate_kernel, to_host
from mindtorch.ops._checks import check_tensor, tensor_type_error, not_implemented
from mindtorch.ops._operands import cast_exact, tensors
from mindtorch.ops.basic import and_, eq_, ge_, gt_, mask_grad, le_, lt_, ne_, not_, or_


# ------------------------------------------------------------------ comparison
def _compare(prim, aliases, ordered):
    name = prim.prim.name

    def compare(input, other):
        a, b = cmp_pair(input, other)
        if ordered and a._np_dtype.kind == "c":
            raise not_implemented(name, a, b)
        return prim(a, b)

    compare.__name__ = name
    compare.__doc__ = f"Elementwise input {_SIGN[name]} other, as a bool tensor; `other` can be a scalar."
    return register_op(compare, inplace=True, out=True, aliases=aliases, tags="pointwise")


def cmp_pair(a, b):
    """Like `promote_pair`, but rounds a scalar to the precision of the tensor, as PyTorch's comparisons do.
    """
    if not (a.__class__ is Tensor or is_tensor(a)):
        raise tensor_type_error("comparison", "input", 1, a)
    a, b = promote_pair(a, b)
    if b.__class__ is ScalarOperand and a._np_dtype.itemsize == 2 and a._np_dtype.kind in "fV":
        b = rounded(b, a._np_dtype)
    return a, b


_SIGN = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
eq, ne = _compare(eq_, "", False), _compare(ne_, "not_equal", False)
lt, le, gt, ge = _compare(lt_, "less", True), _compare(le_, "less_equal", True), _compare(gt_, "greater", True), _compare(ge_, "greater_equal", True)


@register_op(tags="data_dependent_output")
def equal(input, other):
    """True if both tensors have the same shape and elements."""
    tensors("equal", input, other)
    return input._sizes == other._sizes and _same(input, other)


_same = predicate_kernel("equal")
_isclose = primitive("isclose", "a, b, *, rtol, atol, equal_nan")
_allclose = primitive("allclose", "a, b, *, rtol, atol, equal_nan")


def _closeness(prim, input, other, rtol, atol, equal_nan):
    tensors("isclose", input, other)
    if input._np_dtype != other._np_dtype:
        raise RuntimeError(f"{scalar_type_name(input._np_dtype)} did not match {scalar_type_name(other._np_dtype)}")
    for n, v in (("rtol", rtol), ("atol", atol)):
        if not v >= 0:
            raise RuntimeError(f"{n} must be greater than or equal to zero, but got {v}")
    return prim(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


@register_op
def isclose(input, other, rtol: Float = 1e-5, atol: Float = 1e-8, equal_nan: Bool = False):
    """Elementwise |input - other| <= atol + rtol * |other|; both tensors of one dtype."""
    return _closeness(_isclose, input, other, rtol, atol, equal_nan)


@register_op(tags="data_dependent_output")
def allclose(input, other, rtol: Float = 1e-5, atol: Float = 1e-8, equal_nan: Bool = False):
    """True if all elements are close (see isclose)."""
    return bool(to_host(_closeness(_allclose, input, other, rtol, atol, equal_nan)))


# ------------------------------------------------------------------ logic and bits
def _logical(prim):
    name = prim.prim.name

    def logical(input, other):
        tensors(name, input, other)
        return prim(input, other)

    logical.__name__ = name
    logical.__doc__ = f"Elementwise {name[8:].upper()} of the truth values, as a bool tensor."
    return register_op(logical, inplace=True, out=True, tags="pointwise")


logical_and = _logical(and_)
logical_or = _logical(or_)
logical_xor = _logical(primitive("logical_xor", "a, b", aten="logical_xor.default"))


@register_op(inplace=True, out=True, tags="pointwise")
def logical_not(input):
    """Elementwise NOT of the truth values, as a bool tensor."""
    check_tensor("logical_not", input)
    return not_(input)


def _integers(name, input, other):
    if not (input.__class__ is Tensor or is_tensor(input)) and not (other.__class__ is Tensor or is_tensor(other)):
        raise TypeError(f"{name}() received an invalid combination of arguments - got "
                        f"({type_name(input)}, {type_name(other)}): one of them must be a Tensor")
    a, b = promote_pair(input, other)
    if a._np_dtype.kind not in "biu":
        raise not_implemented(name, a, b)
    return a, b


def _bitwise(name):
    prim = primitive(name, "a, b", aten=f"{name}.Tensor {name}.Scalar")

    def bitwise(input, other):
        return prim(*_integers(name, input, other))

    bitwise.__name__ = name
    bitwise.__doc__ = f"Bitwise {name[8:].upper()} of integers or bools; either operand can be a scalar."
    return register_op(bitwise, inplace=True, out=True, tags="pointwise")


bitwise_and = _bitwise("bitwise_and")
bitwise_or = _bitwise("bitwise_or")
bitwise_xor = _bitwise("bitwise_xor")
_bitwise_not = primitive("bitwise_not", "a", aten="bitwise_not.default")


@register_op(inplace=True, out="same", tags="pointwise")
def bitwise_not(input):
    """Bitwise NOT of integers, logical NOT of bools."""
    check_tensor("bitwise_not", input)
    if input._np_dtype.kind not in "biu":
        raise not_implemented("bitwise_not", input)
    return _bitwise_not(input)


def _shift(name, word):
    prim = primitive(name, "a, b", aten=f"{name}.Tensor {name}.Tensor_Scalar")

    def shift(input, other):
        a, b = _integers(name, input, other)
        if a._np_dtype.kind == "b":
            raise not_implemented(name, a, b)
        return prim(a, b)

    shift.__name__ = name
    shift.__doc__ = f"Shifts the bits of integers to the {word}; either operand can be a scalar."
    return register_op(shift, inplace=True, out=True, tags="pointwise")


bitwise_left_shift = _shift("bitwise_left_shift", "left")
bitwise_right_shift = _shift("bitwise_right_shift", "right")


def _divisors(name):
    prim = primitive(name, "a, b", aten=f"{name}.default")

    def divisor(input, other):
        tensors(name, input, other)
        a, b = promote_pair(input, other)
        if a._np_dtype.kind not in "iu":
            raise not_implemented(name, a, b)
        return prim(a, b)

    divisor.__name__ = name
    what = "greatest common divisor" if name == "gcd" else "least common multiple"
    divisor.__doc__ = f"Elementwise {what} of integers."
    return register_op(divisor, inplace=True, out=True, tags="pointwise")


gcd = _divisors("gcd")
lcm = _divisors("lcm")


# ------------------------------------------------------------------ where
where_ = primitive("where", "condition, a, b", None, lambda ctx, grad: mask_grad(grad, ctx.condition), lambda ctx, grad: mask_grad(grad, not_(ctx.condition)),
                   raw=True)


@register_op(out=True, method=False, tags="pointwise dynamic_output_shape", condition="if alone")
def where(condition, input=None, other=None):
    """Selects input where condition is True, else other. With the condition alone, returns the
    indices of its True elements."""
    try:
        # Fast path: two tensors of one dtype, or a float32 tensor and a scalar that it can
        # represent.
        d = input._np_dtype
        if condition._np_dtype is BOOL:
            if (other.__class__ is float or other.__class__ is int) and d is F32 and -3e38 < other < 3e38:
                return where_(condition, input, ScalarOperand(other, d))
            if other._np_dtype is d:
                return where_(condition, input, other)
    except AttributeError:
        pass
    check_tensor("where", condition, "condition", 1)
    if input is None and other is None:
        return OPS["nonzero"].fn(condition, as_tuple=True)
    d = condition._np_dtype
    if d.kind != "b":
        if d != U8:
            raise RuntimeError("where expected condition to be a boolean tensor, but got a tensor with dtype "
                               f"{scalar_type_name(d)}")
        import warnings
        warnings.warn("where received a uint8 condition tensor. This behavior is deprecated and will be removed in a "
                      "future "
                      "version of PyTorch. Use a boolean condition instead.", stacklevel=2)
        condition = ne_(condition, ScalarOperand(0, U8))
    for n, (arg, x) in enumerate((("input", input), ("other", other))):
        if not isinstance(x, (Tensor, *NUMBER)):
            raise tensor_type_error("where", arg, n + 2, x)
    d = result_dtype(input, other)
    return where_(condition, cast_exact(input, d), cast_exact(other, d))


def _where_method(self, condition, other):
    """Selects self where condition is True, else other."""
    return where(condition, self, other)


Tensor.where = _where_method
