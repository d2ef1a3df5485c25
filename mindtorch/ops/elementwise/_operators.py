"""Operators of Tensor. Each starts with fast paths: two tensors of one common dtype, float32 with a
scalar, int64 with an int."""
from mindtorch.backend.mindspore.private import MSTensor
from mindtorch.core.tensor.dtypes import F32, F64, I64
from mindtorch.core.dispatch.error_messages import is_pytorch_tensor, type_name
from mindtorch.core.tensor.scalars import NUMBER
from mindtorch.core.tensor.tensor import ScalarOperand, Tensor, adopt, is_tensor
from mindtorch.core.tensor.sync import array_operand
from mindtorch.ops.elementwise import _logic as w
from mindtorch.ops.elementwise import binary as p
from mindtorch.ops.elementwise import unary as u
from mindtorch.ops.basic import add_, mul_, sub_


def operand(x):
    """Returns `x` as the other operand of a tensor, or None if it is unsupported (the operator then
    returns NotImplemented)."""
    if x.__class__ is Tensor or isinstance(x, NUMBER) or (x.__class__ is Tensor or is_tensor(x)):
        return x
    t = array_operand(x)
    if t is not None:
        return t
    if isinstance(x, MSTensor):
        return adopt(x)
    if is_pytorch_tensor(x):
        # PyTorch's tensor has returned NotImplemented already, or would. Python's message would
        # name two types that are both called Tensor.
        raise TypeError(f"unsupported operand of a mindtorch.torch.Tensor: {type_name(x)}")
    return None


def _operator(fn, prim=None, reflected=False, direct=(F64, I64), integer=False):
    """Builds `self op other` (reflected: `other op self`) from an op.

    For operands of float32 or of a dtype in `direct`, the operator calls the primitive directly;
    with `whole`, also for int64 and an int.
    """
    if reflected:
        def slow(self, other):
            x = operand(other)
            return NotImplemented if x is None else fn(x, self)
    else:
        def slow(self, other):
            x = operand(other)
            return NotImplemented if x is None else fn(self, x)
    if prim is None:
        return slow

    if reflected:
        def operator(self, other):
            c = other.__class__
            if (c is float or c is int) and self._np_dtype is F32:
                return prim(ScalarOperand(other, F32), self)
            return slow(self, other)
    else:
        def operator(self, other):
            c = other.__class__
            if c is float or c is int:
                d = self._np_dtype
                if d is F32 or integer and d is I64 and c is int:
                    return prim(self, ScalarOperand(other, d))
                return fn(self, other)
            try:
                d = self._np_dtype
                if d is other._np_dtype and (d is F32 or d in direct):
                    return prim(self, other)
            except AttributeError:
                pass
            return slow(self, other)
    return operator


def _power(self, exponent):
    c = exponent.__class__
    if (c is int or c is float) and self._np_dtype is F32:
        return p.pow_number(self, p=exponent)
    x = operand(exponent)
    return NotImplemented if x is None else p.pow_op(self, x)


def _rsub(self, other):
    c = other.__class__
    if (c is float or c is int) and self._np_dtype is F32:
        return p.rsub_(self, ScalarOperand(other, F32))
    x = operand(other)
    return NotImplemented if x is None else p.rsub(self, x)


def _into(self, other):
    """Computes other / self as PyTorch does: the product with the reciprocal."""
    c = other.__class__
    if (c is float or c is int) and self._np_dtype is F32:
        return mul_(u.reciprocal_(self), ScalarOperand(other, F32))
    x = operand(other)
    return NotImplemented if x is None else p.mul(u.reciprocal(self), x)


def _invert(self):
    if self._np_dtype.kind not in "biu":
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return w.bitwise_not(self)


OPERATORS = {
    "__add__": _operator(p.add, add_, integer=True), "__radd__": _operator(p.add, add_, integer=True),
    "__sub__": _operator(p.sub, sub_, integer=True), "__rsub__": _rsub,
    "__mul__": _operator(p.mul, mul_, integer=True), "__rmul__": _operator(p.mul, mul_, integer=True),
    "__truediv__": _operator(p.true_divide, p.div_, direct=(F64,)), "__rtruediv__": _into,
    "__div__": _operator(p.true_divide, p.div_, direct=(F64,)), "__rdiv__": _into,
    "__floordiv__": _operator(p.floor_divide), "__rfloordiv__": _operator(p.floor_divide, None, True),
    "__mod__": _operator(p.remainder), "__rmod__": _operator(p.remainder, None, True),
    "__pow__": _power, "__rpow__": _operator(p.pow_op, None, True),
    "__and__": _operator(w.bitwise_and), "__rand__": _operator(w.bitwise_and),
    "__or__": _operator(w.bitwise_or), "__ror__": _operator(w.bitwise_or),
    "__xor__": _operator(w.bitwise_xor), "__rxor__": _operator(w.bitwise_xor),
    "__lshift__": _operator(w.bitwise_left_shift), "__rlshift__": _operator(w.bitwise_left_shift, None, True),
    "__rshift__": _operator(w.bitwise_right_shift), "__rrshift__": _operator(w.bitwise_right_shift, None, True),
    "__eq__": _operator(w.eq, w.eq_), "__ne__": _operator(w.ne, w.ne_),
    "__lt__": _operator(w.lt, w.lt_), "__le__": _operator(w.le, w.le_),
    "__gt__": _operator(w.gt, w.gt_), "__ge__": _operator(w.ge, w.ge_),
    "__neg__": u.neg, "__pos__": u.positive, "__abs__": u.abs_op, "__invert__": _invert,
}
for _name, _fn in OPERATORS.items():
    if _fn.__name__ in ("operator", "slow"):
        _fn.__name__ = _fn.__qualname__ = _name
    setattr(Tensor, _name, _fn)


def _in_place(name, method):
    """Builds `self op= other` from the in-place method. Like the other operators, it returns
    NotImplemented for unsupported operands."""
    def operator(self, other):
        try:
            return method(self, other)
        except TypeError:
            if operand(other) is None:
                return NotImplemented
            raise
    operator.__name__ = operator.__qualname__ = name
    return operator


for _name, _method in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div"), ("div", "div"),
                       ("mod", "remainder"),
                       ("floordiv", "floor_divide"), ("pow", "pow"), ("and", "bitwise_and"), ("or", "bitwise_or"),
                       ("xor", "bitwise_xor"), ("lshift", "bitwise_left_shift"), ("rshift", "bitwise_right_shift")):
    setattr(Tensor, f"__i{_name}__", _in_place(f"__i{_name}__", getattr(Tensor, _method + "_")))
