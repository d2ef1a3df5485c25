"""Elementwise ops on three operands: clamp, lerp, addcmul, addcdiv."""
import numpy as np

from mindtorch.backend.cpu.pointwise import elementwise, limited
from mindtorch.core import dtypes
from mindtorch.core.dtypes import F32
from mindtorch.core.foreign import type_name
from mindtorch.core.promote import category, promote_types, result_dtype
from mindtorch.core.table import fresh, op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Const, Tensor
from mindtorch.ops._checks import need_tensor, unsupported
from mindtorch.ops._numbers import number_as
from mindtorch.ops._operands import common, number, plain
from mindtorch.ops.basic import cast, conj, keep, mul_, neg_, sub_
from mindtorch.ops.elementwise.binary import div_

_NUMBER = (bool, int, float, complex, np.number, np.bool_)


# ------------------------------------------------------------------ clamp
def _within(a, low, high):
    if a.dtype.kind == "V":
        a = a.astype(F32)
    if low is None:
        return fresh(a <= high)
    if high is None:
        return fresh(a >= low)
    return fresh((a >= low) & (a <= high))


clamp_numbers = primitive("clamp", lambda a, *, low, high: limited(a, low, high),
                          lambda c, g: keep(g, _within(c.a._a, c.low, c.high)),
                          node="ClampBackward1")


@elementwise
def _clamp_tensors(a, low=None, high=None):
    if low is not None:
        a = np.maximum(a, low)
    return a if high is None else np.minimum(a, high)


def _pass_self(a, low, high):
    ok = True
    if low is not None:
        ok = plain(a) >= plain(low)
    if high is not None:
        ok = ok & (plain(a) <= plain(high))
    return fresh(ok)


def _pass_low(a, low, high):
    ok = plain(a) < plain(low)
    return fresh(ok if high is None else ok & (plain(low) < plain(high)))


def _pass_high(a, low, high):
    ok = plain(a) > plain(high)
    return fresh(ok if low is None else ok | (plain(low) > plain(high)))


clamp_tensors = primitive("clamp", _clamp_tensors,
                          lambda c, g: keep(g, _pass_self(c.a, c.low, c.high)),
                          lambda c, g: keep(g, _pass_low(c.a, c.low, c.high)),
                          lambda c, g: keep(g, _pass_high(c.a, c.low, c.high)), node="ClampBackward0")


def clamp_any(name, input, low, high):
    """The meaning of clamp, clamp_min and clamp_max."""
    need_tensor(name, input)
    if low is None and high is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        for x in (low, high):
            if x is not None and not isinstance(x, Tensor):
                raise TypeError(f"{name}() received an invalid combination of arguments - got ({type_name(input)}, "
                                f"{type_name(low)}, {type_name(high)}): both limits must be Tensors or both "
                                f"numbers")
        a, b, c = common(input, low, high)
        if a._stype.kind == "c":
            raise NotImplementedError(f"{name} is not supported for complex types")
        if a._stype.kind == "b" and b is not None and c is not None:
            raise unsupported(name, a._stype)
        return clamp_tensors(a, b, c)
    a = input._a
    if a.dtype.kind == "c" or low.__class__ is complex or high.__class__ is complex:
        raise NotImplementedError(f"{name} is not supported for complex types")
    d = a.dtype
    if d.kind in "biu":
        d = result_dtype(input, *[x for x in (low, high) if x is not None])
        if d is not a.dtype:
            input = cast(input, d)
    low, high = [None if x is None else number_as(x, d).item() if d.kind != "V" else float(number_as(x, d).astype(F32))
                 for x in (low, high)]
    if low != low or high != high:
        # A limit of nan makes every element nan.
        low = high = float("nan")
    return clamp_numbers(input, low=low, high=high)


def _plain(x):
    return (x.__class__ is float or x.__class__ is int) and -3e38 < x < 3e38


@op(inplace=True, out=True, aliases="clip")
def clamp(input, min=None, max=None):
    """Elements limited to [min, max] (numbers or tensors); one limit may be left out."""
    if (_plain(min) or min is None and max is not None) and (max is None or _plain(max)):
        try:
            if input._stype is F32:
                return clamp_numbers(input, low=min, high=max)
        except AttributeError:
            pass
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
    near = abs(weight) < 0.5
    r = b - a
    r *= np.array(weight if near else weight - 1, a.dtype)
    return np.add(r, a if near else b, out=r) if r.shape == (a if near else b).shape else r + (a if near else b)


lerp_ = primitive("lerp", _lerp, lambda c, g: mul_(g, sub_(number(1, c.w), conj(c.w))), lambda c, g: mul_(g, conj(c.w)),
                  lambda c, g: mul_(g, conj(sub_(c.b, c.a))), node="LerpBackward1")
lerp_number = primitive("lerp", _lerp_number, lambda c, g: mul_(g, number(1 - np.conj(c.weight), g)),
                        lambda c, g: mul_(g, number(np.conj(c.weight), g)))


@op(inplace=True, out=True)
def lerp(input, end, weight):
    """input + weight * (end - input); floating or complex tensors of one dtype, weight a number or such a tensor."""
    need_tensor("lerp", input)
    need_tensor("lerp", end, "end", 2)
    d = input._stype
    for n, x in (("end", end), ("weight", weight)):
        if isinstance(x, Tensor) and x._stype != d:
            raise RuntimeError(f"expected dtype {dtypes.of_np(d).name} for `{n}` but got dtype "
                               f"{dtypes.of_np(x._stype).name}")
    if d.kind not in "fcV":
        raise unsupported("lerp", d)
    if isinstance(weight, Tensor):
        return lerp_(input, end, weight)
    number_as(weight, d)
    return lerp_number(input, end, weight=weight)


def _value(name, value, d):
    """The factor `value` in the result's dtype; RuntimeError for a fractional one of integers."""
    if d.kind == "b":
        raise unsupported(name, d)
    c = Const(0, F32)
    c._a = number_as(value, d)
    return c


def _plus_scaled(a, t, v):
    """a + v * t, in the memory of t where it has the room."""
    if v != 1:
        t *= v
    return np.add(a, t, out=t) if t.shape == a.shape else a + t


addcmul_ = primitive("addcmul", elementwise(lambda a, b, d, v: _plus_scaled(a, b * d, v)), lambda c, g: g,
                     lambda c, g: mul_(g, conj(mul_(c.d, c.v))), lambda c, g: mul_(g, conj(mul_(c.b, c.v))), None,
                     inputs="a b d v")
addcdiv_ = primitive("addcdiv", elementwise(lambda a, b, d, v: _plus_scaled(a, b / d, v)), lambda c, g: g,
                     lambda c, g: mul_(g, conj(div_(c.v, c.d))),
                     lambda c, g: neg_(mul_(g, conj(div_(mul_(div_(c.b, c.d), c.v), c.d)))), None, inputs="a b d v")


def _everyday(a, b, c, value):
    """Three float32 tensors and an ordinary number."""
    try:
        return a._stype is F32 is b._stype is c._stype and _plain(value)
    except AttributeError:
        return False


@op(inplace=True, out=True)
def addcmul(input, tensor1, tensor2, *, value=1):
    """input + value * tensor1 * tensor2."""
    if _everyday(input, tensor1, tensor2, value):
        return addcmul_(input, tensor1, tensor2, Const(value, F32))
    a, b, c = _three("addcmul", input, tensor1, tensor2)
    return addcmul_(a, b, c, _value("addcmul", value, a._stype))


@op(inplace=True, out=True)
def addcdiv(input, tensor1, tensor2, *, value=1):
    """input + value * tensor1 / tensor2; RuntimeError if both tensors are of integer type."""
    if _everyday(input, tensor1, tensor2, value):
        return addcdiv_(input, tensor1, tensor2, Const(value, F32))
    a, b, c = _three("addcdiv", input, tensor1, tensor2)
    if category(promote_types(tensor1._stype, tensor2._stype)) < 2:
        raise RuntimeError("Integer division with addcdiv is no longer supported: use input + value * "
                           "torch.trunc(tensor1 / "
                           "tensor2) cast to input's dtype, or input + value * tensor1 / tensor2.")
    return addcdiv_(a, b, c, _value("addcdiv", value, a._stype))


def _three(name, *args):
    for i, (n, x) in enumerate(zip(("input", "tensor1", "tensor2"), args)):
        need_tensor(name, x, n, i + 1)
    return common(*args)
