"""Elementwise kernels of one operand."""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import kernel


def _unary(names, inplace=""):
    """Registers kernels with the capitalized names of torch's functions, and their in-place forms
    where MindSpore launches them."""
    for name in names.split():
        function = getattr(torch, name.lower())
        kernel(name, "self, out!")(lambda self, out, *, f=function: f(self))
        if name in inplace.split():
            kernel("Inplace" + name, "self!")(lambda self, *, f=function: f(self))


_unary("Abs Ceil Floor Frac Neg Reciprocal Sign Trunc", inplace="Floor")
_unary("Exp Exp2 Expm1 Log Log10 Log1p Log2 Rsqrt Sqrt", inplace="Exp Log")
_unary("Acos Acosh Asin Asinh Atan Atanh Cos Cosh Sin Sinc Sinh Tan Tanh", inplace="Tanh")
_unary("Erf Erfc Erfinv Sigmoid", inplace="Erfinv Sigmoid")
_unary("IsFinite IsInf IsNegInf")
kernel("LogicalNot", "self, out!")(lambda self, out: torch.logical_not(self))
kernel("BitwiseNot", "self, out!")(lambda self, out: torch.bitwise_not(self))


kernel("Round", "self, out!")(lambda self, out: torch.round(self) if self.is_floating_point() else self.clone())


@kernel("RoundDecimals", "self, decimals:int, out!")
def _round(self, decimals, out):
    return torch.round(self, decimals=decimals) if self.is_floating_point() else self.clone()


@kernel("NanToNum", "self, nan:float, posinf:float, neginf:float, out!")
def _nan_to_num(self, nan, posinf, neginf, out):
    return torch.nan_to_num(self, nan, posinf, neginf)
