"""Elementwise kernels of two or more operands: arithmetic, comparisons, logic, bitwise ops, clamps,
selection, copies."""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import kernel


def _binary(function, tensors="", scalars="", inplace=""):
    """Registers kernels whose second operand is a tensor or a scalar, and their in-place forms
    where MindSpore launches them."""
    for names, other in ((tensors, "other"), (scalars, "other:scalar")):
        if names:
            kernel(names, f"self, {other}, out!")(lambda self, other, out: function(self, other))
        for name in set(names.split()) & set(inplace.split()):
            kernel("Inplace" + name, f"self!, {other}")(lambda self, other: function(self, other))


# Sum, difference, product, quotients. (alpha is nearly always 1; an integer sum must not be
# computed with a float alpha.)

def _scaled(value, alpha):
    return value if alpha == 1 else value * alpha


def _add(self, other, alpha):
    return self + other if alpha == 1 else torch.add(self, other, alpha=alpha)


def _sub(self, other, alpha):
    return self - other if alpha == 1 else torch.sub(self, other, alpha=alpha)


for _name, _function in ("Add", _add), ("Sub", _sub):
    for _form, _other in ("", "other"), ("s", "other:scalar"):
        kernel(_name + _form, f"self, {_other}, alpha:scalar, out!")(lambda self, other, alpha, out, *, f=_function: f(self, other, alpha))
        kernel(f"Inplace{_name}{_form}", f"self!, {_other}, alpha:scalar")(_function)

kernel("Rsubs", "self, other:scalar, alpha:scalar, out!")(lambda self, other, alpha, out: other - _scaled(self, alpha))

_binary(torch.mul, "Mul", "Muls", "Mul Muls")
_binary(torch.div, "Div", "Divs", "Div Divs")  # (the quotient of integers is a float)
_binary(torch.floor_divide, "FloorDivide", "FloorDivides", "FloorDivide FloorDivides")

_MODES = {0: None, 1: "trunc", 2: "floor"}
for _form, _other in ("", "other"), ("s", "other:scalar"):
    kernel("DivMod" + _form, f"self, {_other}, mode:int32, out!")(lambda self, other, mode, out: torch.div(self, other, rounding_mode=_MODES[mode]))
    kernel("InplaceDivMod" + _form, f"self!, {_other}, mode:int32")(lambda self, other, mode: torch.div(self, other, rounding_mode=_MODES[mode]))

_binary(torch.remainder, "RemainderTensorTensor", "RemainderTensorScalar", "RemainderTensorTensor RemainderTensorScalar")
_binary(torch.fmod, "FmodTensor", "FmodScalar")
kernel("RemainderScalarTensor", "self:scalar, other, out!")(lambda self, other, out: torch.remainder(self, other))

# Powers, logarithms, angles, number theory.

_binary(torch.pow, "PowTensorTensor", "PowTensorScalar")
kernel("PowScalarTensor", "self:scalar, exponent, out!")(lambda self, exponent, out: torch.pow(self, exponent))
_binary(torch.xlogy, "XLogYTensor", "XLogYScalarOther")
kernel("XLogYScalarSelf", "self:scalar, other, out!")(lambda self, other, out: torch.xlogy(self, other))
_binary(torch.logaddexp, "LogAddExp")
_binary(torch.logaddexp2, "LogAddExp2")
_binary(torch.atan2, "Atan2")
_binary(torch.gcd, "Gcd")
_binary(torch.maximum, "Maximum")
_binary(torch.minimum, "Minimum")
kernel("Polar", "abs, angle, out!")(lambda abs, angle, out: torch.polar(abs, angle))

# Comparisons, logic, bits.

_binary(torch.eq, "EqTensor", "EqScalar")
_binary(torch.ne, "NeTensor", "NeScalar")
_binary(torch.ge, "GeTensor", "GeScalar")
_binary(torch.lt, "LtTensor", "LtScalar")
_binary(torch.gt, "GtTensor", "GtScalar")
_binary(torch.le, "LeTensor", "LeScalar")
_binary(torch.logical_and, "LogicalAnd")
_binary(torch.logical_or, "LogicalOr")
_binary(torch.logical_xor, "LogicalXor")
_binary(torch.bitwise_and, "BitwiseAndTensor", "BitwiseAndScalar")
_binary(torch.bitwise_or, "BitwiseOrTensor", "BitwiseOrScalar")
_binary(torch.bitwise_xor, "BitwiseXorTensor", "BitwiseXorScalar")
_binary(torch.bitwise_left_shift, "LeftShift", "LeftShifts")
_binary(torch.bitwise_right_shift, "RightShift", "RightShifts")
_binary(torch.equal, "Equal")
kernel("IsClose", "self, other, rtol:double, atol:double, equal_nan:bool, out!")(
    lambda self, other, rtol, atol, equal_nan, out: torch.isclose(self, other, rtol, atol, equal_nan))

# Three operands, clamps, selection.

kernel("Lerp", "self, end, weight, out!")(lambda self, end, weight, out: torch.lerp(self, end, weight))
kernel("InplaceLerps", "self!, end, weight:scalar")(lambda self, end, weight: torch.lerp(self, end, weight))
kernel("InplaceLerp", "self!, end, weight")(lambda self, end, weight: torch.lerp(self, end, weight))
kernel("Lerps", "self, end, weight:scalar, out!")(lambda self, end, weight, out: torch.lerp(self, end, weight))
kernel("Addcmul", "self, tensor1, tensor2, value:scalar, out!")(lambda self, a, b, value, out: torch.addcmul(self, a, b, value=value))
kernel("Addcdiv", "self, tensor1, tensor2, value:scalar, out!")(lambda self, a, b, value, out: torch.addcdiv(self, a, b, value=value))
kernel("Clamp", "self, min:scalar, max:scalar, out!")(lambda self, min, max, out: torch.clamp(self, min, max))
kernel("InplaceClampMinTensor", "self!, min")(lambda self, min: torch.maximum(self, min))
kernel("ClampMin", "self, min:scalar, out!")(lambda self, min, out: torch.clamp(self, min))
kernel("ClampTensor", "self, min, max, out!")(lambda self, min, max, out: torch.clamp(self, min, max))
kernel("SWhere", "condition, self, other, out!")(lambda condition, self, other, out: torch.where(condition, self, other))

# Copies: the value is cast to the output's dtype; the source may alias the output's memory.

kernel("Cast", "self, dtype:int32, out!")(lambda self, dtype, out: self)
kernel("InplaceCopy", "self!, src")(lambda self, src: torch.broadcast_to(src.clone(), self.shape))
