"""Elementwise ops on three operands: clamp, lerp, addcmul, addcdiv."""
from mindtorch.core import dtypes
from mindtorch.core.dtypes import F32, LOW, NUMBER_TYPES
from mindtorch.core.layout import but_last
from mindtorch.core.numbers import exact, number_as, plain_number, read
from mindtorch.core.promote import category, promote_types, result_dtype
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor, Const, taken
from mindtorch.ops._checks import need_tensor, unsupported
from mindtorch.ops._operands import common, number
from mindtorch.ops.basic import cast, conj, keep, mul_, neg_, sub_
from mindtorch.ops.elementwise.binary import div_


# ------------------------------------------------------------------ clamp
within_ = primitive("within_numbers", "a, *, low, high", raw=True)
clamp_numbers = primitive("clamp_numbers", "a, *, low, high", lambda c, g: keep(g, within_(c.a, low=c.low, high=c.high)), node="ClampBackward1")
_to_self, _to_low, _to_high = [primitive("clamp_tensors_to_" + n, "a, low=None, high=None") for n in ("self", "low", "high")]
clamp_tensors = primitive("clamp_tensors", "a, low=None, high=None",
                          lambda c, g: keep(g, _to_self(c.a, c.low, c.high)),
                          lambda c, g: keep(g, _to_low(c.a, c.low, c.high)),
                          lambda c, g: keep(g, _to_high(c.a, c.low, c.high)), node="ClampBackward0")


def clamp_any(name, input, low, high):
    """Implements clamp, clamp_min and clamp_max."""
    need_tensor(name, input)
    if low is None and high is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    tensors = [low is not None and taken(low), high is not None and taken(high)]
    if any(tensors) and not (tensors[0] or low is None) or any(tensors) and not (tensors[1] or high is None):
        # next to a scalar limit, a 0-dim tensor counts as a scalar, too
        low, high = read(name, "min", "number", low), read(name, "max", "number", high)
    elif any(tensors):
        a, b, c = common(input, low, high)
        if a._stype.kind == "c":
            raise NotImplementedError(f"{name} is not supported for complex types")
        if a._stype.kind == "b" and b is not None and c is not None:
            raise unsupported(name, a)
        return clamp_tensors(a, b, c)
    d = input._stype
    if d.kind == "c" or low.__class__ is complex or high.__class__ is complex:
        raise NotImplementedError(f"{name} is not supported for complex types")
    if d.kind in "biu":
        d = result_dtype(input, *[x for x in (low, high) if x is not None])
        if d is not input._stype:
            input = cast(input, d)
    low, high = [None if x is None else plain_number(x, d) for x in (low, high)]
    if low != low or high != high:
        # A NaN limit makes every element NaN.
        low = high = float("nan")
    return clamp_numbers(input, low=low, high=high)


def _plain(x):
    return (x.__class__ is float or x.__class__ is int) and -3e38 < x < 3e38


@op(inplace=True, out=True, aliases="clip", placement="elementwise")
def clamp(input, min=None, max=None):
    """Limits elements to [min, max] (scalars or tensors); one limit can be omitted."""
    if (_plain(min) or min is None and max is not None) and (max is None or _plain(max)):
        try:
            if input._stype is F32:
                return clamp_numbers(input, low=min, high=max)
        except AttributeError:
            pass
    return clamp_any("clamp", input, min, max)


@op(inplace=True, out=True, placement="elementwise")
def clamp_min(input, min):
    """Limits elements to at least `min`."""
    return clamp_any("clamp_min", input, min, None)


@op(inplace=True, out=True, placement="elementwise")
def clamp_max(input, max):
    """Limits elements to at most `max`."""
    return clamp_any("clamp_max", input, None, max)


# ------------------------------------------------------------------ lerp, addcmul, addcdiv
lerp_ = primitive("lerp", "a, b, w", lambda c, g: mul_(g, sub_(number(1, c.w), conj(c.w))), lambda c, g: mul_(g, conj(c.w)),
                  lambda c, g: mul_(g, conj(sub_(c.b, c.a))), node="LerpBackward1")
lerp_number = primitive("lerp_number", "a, b, *, weight", lambda c, g: mul_(g, number(1 - c.weight.conjugate(), g)),
                        lambda c, g: mul_(g, number(c.weight.conjugate(), g)), node="LerpBackward0")


@op(inplace=True, out=True, placement="elementwise")
def lerp(input, end, weight):
    """input + weight * (end - input). The tensors are floating or complex and of one dtype; weight
    is a scalar or such a tensor."""
    if _plain(weight):
        try:
            if input._stype is F32 is end._stype:
                return lerp_number(input, end, weight=weight)
        except AttributeError:
            pass
    need_tensor("lerp", input)
    need_tensor("lerp", end, "end", 2)
    d = input._stype
    if taken(weight) and not weight._sizes and weight._stype != d and category(weight._stype) <= category(d):
        weight = cast(weight, d)
    for n, x in (("end", end), ("weight", weight)):
        if (x.__class__ is Tensor or taken(x)) and x._stype != d:
            raise RuntimeError(f"expected dtype {dtypes.of_np(d).name} for `{n}` but got dtype "
                               f"{dtypes.of_np(x._stype).name}")
    if d.kind not in "fcV":
        raise unsupported("lerp", input)
    if weight.__class__ is Tensor or taken(weight):
        return lerp_(input, end, weight)
    number_as(weight, F32 if d in LOW else d)
    return lerp_number(input, end, weight=weight.item() if isinstance(weight, NUMBER_TYPES) else weight)


def _value(name, value, a):
    """Returns the factor `value` in the dtype of `a`, which is the result's. Raises RuntimeError
    for a fractional factor of integers."""
    d = a._stype
    if d.kind == "b":
        raise unsupported(name, a)
    # kernels compute half precision in float32
    return exact(read(name, "value", "number", value), F32 if d in LOW else d)


addcmul_ = primitive("addcmul", "a, b, d, v", lambda c, g: g, lambda c, g: mul_(g, conj(mul_(c.d, c.v))),
                     lambda c, g: mul_(g, conj(mul_(c.b, c.v))), None, layout=but_last)
addcdiv_ = primitive("addcdiv", "a, b, d, v", lambda c, g: g, lambda c, g: mul_(g, conj(div_(c.v, c.d))),
                     lambda c, g: neg_(mul_(g, conj(div_(mul_(c.b, c.v), mul_(c.d, c.d))))), None, layout=but_last)


_ONE = Const(1, F32)


def _everyday(a, b, c, value):
    """True for the fast path: three float32 tensors and an ordinary scalar."""
    try:
        return a._stype is F32 is b._stype is c._stype and _plain(value)
    except AttributeError:
        return False


@op(inplace=True, out=True, placement="elementwise")
def addcmul(input, tensor1, tensor2, *, value=1):
    """input + value * tensor1 * tensor2."""
    if _everyday(input, tensor1, tensor2, value):
        return addcmul_(input, tensor1, tensor2, _ONE if value == 1 else Const(value, F32))
    a, b, c = _three("addcmul", input, tensor1, tensor2)
    return addcmul_(a, b, c, _value("addcmul", value, a))


@op(inplace=True, out=True, placement="elementwise")
def addcdiv(input, tensor1, tensor2, *, value=1):
    """input + value * tensor1 / tensor2; RuntimeError if both tensors are of integer type."""
    if _everyday(input, tensor1, tensor2, value):
        return addcdiv_(input, tensor1, tensor2, _ONE if value == 1 else Const(value, F32))
    a, b, c = _three("addcdiv", input, tensor1, tensor2)
    if category(promote_types(tensor1._stype, tensor2._stype)) < 2:
        raise RuntimeError("Integer division with addcdiv is no longer supported: use input + value * "
                           "torch.trunc(tensor1 / "
                           "tensor2) cast to input's dtype, or input + value * tensor1 / tensor2.")
    return addcdiv_(a, b, c, _value("addcdiv", value, a))


def _three(name, *args):
    for i, (n, x) in enumerate(zip(("input", "tensor1", "tensor2"), args)):
        need_tensor(name, x, n, i + 1)
    return common(*args)
