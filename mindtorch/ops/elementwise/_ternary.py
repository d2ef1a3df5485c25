"""Elementwise ops on three operands: clamp, lerp, addcmul, addcdiv."""
from mindtorch.core.tensor import dtypes
from mindtorch.core.tensor.dtypes import F32, LOW, NUMBER_TYPES
from mindtorch.core.tensor.stride_rules import but_last
from mindtorch.core.tensor.scalars import cast_scalar, scalar_array, plain_number, read
from mindtorch.core.dispatch.type_promotion import category, promote_types, result_dtype
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Scalar
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, ScalarOperand, is_tensor
from mindtorch.ops._checks import check_tensor, not_implemented
from mindtorch.ops._operands import promote, scalar
from mindtorch.ops.basic import cast, conj, mask_grad, mul_, neg_, sub_
from mindtorch.ops.elementwise.binary import div_


# ------------------------------------------------------------------ clamp
within_ = primitive("within_numbers", "a, *, low, high", raw=True)
clamp_numbers = primitive("clamp_numbers", "a, *, low, high", lambda ctx, grad: mask_grad(grad, within_(ctx.a, low=ctx.low, high=ctx.high)),
                          node="ClampBackward1", aten="clamp.default")
_to_self, _to_low, _to_high = [primitive("clamp_tensors_to_" + n, "a, low=None, high=None") for n in ("self", "low", "high")]
clamp_tensors = primitive("clamp_tensors", "a, low=None, high=None",
                          lambda ctx, grad: mask_grad(grad, _to_self(ctx.a, ctx.low, ctx.high)),
                          lambda ctx, grad: mask_grad(grad, _to_low(ctx.a, ctx.low, ctx.high)),
                          lambda ctx, grad: mask_grad(grad, _to_high(ctx.a, ctx.low, ctx.high)), node="ClampBackward0")


def clamp_any(name, input, low, high):
    """Implements clamp, clamp_min and clamp_max."""
    check_tensor(name, input)
    if low is None and high is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    tensors = [low is not None and is_tensor(low), high is not None and is_tensor(high)]
    if any(tensors) and not (tensors[0] or low is None) or any(tensors) and not (tensors[1] or high is None):
        # next to a scalar limit, a 0-dim tensor counts as a scalar, too
        low, high = read(name, "min", "number", low), read(name, "max", "number", high)
    elif any(tensors):
        a, b, c = promote(input, low, high)
        if a._np_dtype.kind == "c":
            raise NotImplementedError(f"{name} is not supported for complex types")
        if a._np_dtype.kind == "b" and b is not None and c is not None:
            raise not_implemented(name, a)
        return clamp_tensors(a, b, c)
    d = input._np_dtype
    if d.kind == "c" or low.__class__ is complex or high.__class__ is complex:
        raise NotImplementedError(f"{name} is not supported for complex types")
    if d.kind in "biu":
        d = result_dtype(input, *[x for x in (low, high) if x is not None])
        if d is not input._np_dtype:
            input = cast(input, d)
    low, high = [None if x is None else plain_number(x, d) for x in (low, high)]
    if low != low or high != high:
        # A NaN limit makes every element NaN.
        low = high = float("nan")
    return clamp_numbers(input, low=low, high=high)


def _is_float32_scalar(x):
    return (x.__class__ is float or x.__class__ is int) and -3e38 < x < 3e38


@register_op(inplace=True, out=True, aliases="clip", tags="pointwise")
def clamp(input, min=None, max=None):
    """Limits elements to [min, max] (scalars or tensors); one limit can be omitted."""
    if (_is_float32_scalar(min) or min is None and max is not None) and (max is None or _is_float32_scalar(max)):
        try:
            if input._np_dtype is F32:
                return clamp_numbers(input, low=min, high=max)
        except AttributeError:
            pass
    return clamp_any("clamp", input, min, max)


@register_op(inplace=True, out=True, tags="pointwise")
def clamp_min(input, min):
    """Limits elements to at least `min`."""
    return clamp_any("clamp_min", input, min, None)


@register_op(inplace=True, out=True, tags="pointwise")
def clamp_max(input, max):
    """Limits elements to at most `max`."""
    return clamp_any("clamp_max", input, None, max)


# ------------------------------------------------------------------ lerp, addcmul, addcdiv
lerp_ = primitive("lerp", "a, b, w", lambda ctx, grad: mul_(grad, sub_(scalar(1, ctx.w), conj(ctx.w))), lambda ctx, grad: mul_(grad, conj(ctx.w)),
                  lambda ctx, grad: mul_(grad, conj(sub_(ctx.b, ctx.a))), node="LerpBackward1")
lerp_number = primitive("lerp_number", "a, b, *, weight", lambda ctx, grad: mul_(grad, scalar(1 - ctx.weight.conjugate(), grad)),
                        lambda ctx, grad: mul_(grad, scalar(ctx.weight.conjugate(), grad)), node="LerpBackward0")


@register_op(inplace=True, out=True, tags="pointwise")
def lerp(input, end, weight):
    """input + weight * (end - input). The tensors are floating or complex and of one dtype; weight
    is a scalar or such a tensor."""
    if _is_float32_scalar(weight):
        try:
            if input._np_dtype is F32 is end._np_dtype:
                return lerp_number(input, end, weight=weight)
        except AttributeError:
            pass
    check_tensor("lerp", input)
    check_tensor("lerp", end, "end", 2)
    d = input._np_dtype
    if is_tensor(weight) and not weight._sizes and weight._np_dtype != d and category(weight._np_dtype) <= category(d):
        weight = cast(weight, d)
    for n, x in (("end", end), ("weight", weight)):
        if (x.__class__ is Tensor or is_tensor(x)) and x._np_dtype != d:
            raise RuntimeError(f"expected dtype {dtypes.of_np(d).name} for `{n}` but got dtype "
                               f"{dtypes.of_np(x._np_dtype).name}")
    if d.kind not in "fcV":
        raise not_implemented("lerp", input)
    if weight.__class__ is Tensor or is_tensor(weight):
        return lerp_(input, end, weight)
    scalar_array(weight, F32 if d in LOW else d)
    return lerp_number(input, end, weight=weight.item() if isinstance(weight, NUMBER_TYPES) else weight)


def _scalar_factor(name, value, a):
    """Returns the factor `value` in the dtype of `a`, which is the result's. Raises RuntimeError
    for a fractional factor of integers."""
    d = a._np_dtype
    if d.kind == "b":
        raise not_implemented(name, a)
    # kernels compute half precision in float32
    return cast_scalar(read(name, "value", "number", value), F32 if d in LOW else d)


addcmul_ = primitive("addcmul", "a, b, d, v", lambda ctx, grad: grad, lambda ctx, grad: mul_(grad, conj(mul_(ctx.d, ctx.v))),
                     lambda ctx, grad: mul_(grad, conj(mul_(ctx.b, ctx.v))), None, layout=but_last)
addcdiv_ = primitive("addcdiv", "a, b, d, v", lambda ctx, grad: grad, lambda ctx, grad: mul_(grad, conj(div_(ctx.v, ctx.d))),
                     lambda ctx, grad: neg_(mul_(grad, conj(div_(mul_(ctx.b, ctx.v), mul_(ctx.d, ctx.d))))), None, layout=but_last)


_ONE = ScalarOperand(1, F32)


def _takes_fast_path(a, b, c, value):
    """True for the fast path: three float32 tensors and an ordinary scalar."""
    try:
        return a._np_dtype is F32 is b._np_dtype is c._np_dtype and _is_float32_scalar(value)
    except AttributeError:
        return False


@register_op(inplace=True, out=True, tags="pointwise")
def addcmul(input, tensor1, tensor2, *, value: Scalar = 1):
    """input + value * tensor1 * tensor2."""
    if _takes_fast_path(input, tensor1, tensor2, value):
        return addcmul_(input, tensor1, tensor2, _ONE if value == 1 else ScalarOperand(value, F32))
    a, b, c = _promote_three("addcmul", input, tensor1, tensor2)
    return addcmul_(a, b, c, _scalar_factor("addcmul", value, a))


@register_op(inplace=True, out=True, tags="pointwise")
def addcdiv(input, tensor1, tensor2, *, value: Scalar = 1):
    """input + value * tensor1 / tensor2; RuntimeError if both tensors are of integer type."""
    if _takes_fast_path(input, tensor1, tensor2, value):
        return addcdiv_(input, tensor1, tensor2, _ONE if value == 1 else ScalarOperand(value, F32))
    a, b, c = _promote_three("addcdiv", input, tensor1, tensor2)
    if category(promote_types(tensor1._np_dtype, tensor2._np_dtype)) < 2:
        raise RuntimeError("Integer division with addcdiv is no longer supported: use input + value * "
                           "torch.trunc(tensor1 / "
                           "tensor2) cast to input's dtype, or input + value * tensor1 / tensor2.")
    return addcdiv_(a, b, c, _scalar_factor("addcdiv", value, a))


def _promote_three(name, *args):
    for i, (n, x) in enumerate(zip(("input", "tensor1", "tensor2"), args)):
        check_tensor(name, x, n, i + 1)
    return promote(*args)
