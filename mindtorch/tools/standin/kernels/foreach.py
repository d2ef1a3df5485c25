"""Foreach kernels: one launch updates a list of tensors. torch_npu's optimizers launch them."""
import operator

from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import kernel

UNARY = ("Abs", "Acos", "Asin", "Atan", "Cos", "Cosh", "Erf", "Erfc", "Exp", "Expm1", "Log", "Log10", "Log1p", "Log2", "Neg", "Reciprocal", "Sigmoid", "Sign",
         "Sin", "Sinh", "Sqrt", "Tan", "Tanh")
#: kernels of two operands; the second is a list, one scalar, or a scalar for each tensor
BINARY = {"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": operator.truediv, "Pow": operator.pow,
          "Maximum": lambda x, y: torch.maximum(x, torch.as_tensor(y, dtype=x.dtype)),
          "Minimum": lambda x, y: torch.minimum(x, torch.as_tensor(y, dtype=x.dtype))}
#: x + s * f(y, z)
TERNARY = {"Addcmul": operator.mul, "Addcdiv": operator.truediv}


def _number(scalar):
    """Returns the value of the tensor of one element that the first versions of kernels take."""
    return scalar.reshape(-1)[0].item()


def _unary(name):
    function = getattr(torch, name.lower())
    kernel(f"Foreach{name}", "x:tensors, out:tensors!")(lambda x, out: [function(t) for t in x])


def _binary(name, function):
    kernel(f"Foreach{name}ScalarV2", "x:tensors, scalar:scalar, out:tensors!")(lambda x, scalar, out: [function(t, scalar) for t in x])
    kernel(f"Foreach{name}Scalar", "x:tensors, scalar, out:tensors!")(lambda x, scalar, out: [function(t, _number(scalar)) for t in x])
    kernel(f"Foreach{name}ScalarList", "x:tensors, scalars:scalars, out:tensors!")(lambda x, scalars, out: [function(t, s) for t, s in zip(x, scalars)])
    if name in ("Add", "Sub"):
        kernel(f"Foreach{name}ListV2", "x:tensors, y:tensors, alpha:scalar, out:tensors!")(
            lambda x, y, alpha, out: [function(t, alpha * u) for t, u in zip(x, y)])
        kernel(f"Foreach{name}List", "x:tensors, y:tensors, alpha, out:tensors!")(
            lambda x, y, alpha, out: [function(t, _number(alpha) * u) for t, u in zip(x, y)])
    else:
        kernel(f"Foreach{name}List", "x:tensors, y:tensors, out:tensors!")(lambda x, y, out: [function(t, u) for t, u in zip(x, y)])


def _ternary(name, function):
    def all_of(x, y, z, scalars):
        return [t + s * function(u, v) for t, u, v, s in zip(x, y, z, scalars)]
    kernel(f"Foreach{name}ScalarV2", "x:tensors, y:tensors, z:tensors, scalar:scalar, out:tensors!")(
        lambda x, y, z, scalar, out: all_of(x, y, z, [scalar] * len(x)))
    kernel(f"Foreach{name}Scalar", "x:tensors, y:tensors, z:tensors, scalar, out:tensors!")(
        lambda x, y, z, scalar, out: all_of(x, y, z, [_number(scalar)] * len(x)))
    kernel(f"Foreach{name}ScalarList", "x:tensors, y:tensors, z:tensors, scalars:scalars, out:tensors!")(
        lambda x, y, z, scalars, out: all_of(x, y, z, scalars))
    kernel(f"Foreach{name}List", "x:tensors, y:tensors, z:tensors, scalars, out:tensors!")(
        lambda x, y, z, scalars, out: all_of(x, y, z, scalars.tolist()))
    kernel(f"Inplace{name}", "x!, y, z, value:scalar")(lambda x, y, z, value: x + value * function(y, z))


for _name in UNARY:
    _unary(_name)
for _name, _function in BINARY.items():
    _binary(_name, _function)
for _name, _function in TERNARY.items():
    _ternary(_name, _function)

kernel("ForeachLerpScalar", "x:tensors, y:tensors, weight:scalar, out:tensors!")(lambda x, y, weight, out: [torch.lerp(t, u, weight) for t, u in zip(x, y)])
kernel("ForeachLerpList", "x:tensors, y:tensors, weights:tensors, out:tensors!")(
    lambda x, y, weights, out: [torch.lerp(t, u, w) for t, u, w in zip(x, y, weights)])
kernel("ForeachPowScalarAndTensor", "scalar:scalar, x:tensors, out:tensors!")(lambda scalar, x, out: [torch.pow(scalar, t) for t in x])
kernel("ForeachNorm", "x:tensors, p:scalar, out:tensors!")(lambda x, p, out: [torch.linalg.vector_norm(t, p) for t in x])
kernel("ForeachZeroInplace", "x:tensors!")(lambda x: [torch.zeros_like(t) for t in x])
kernel("ForeachCopy", "x:tensors, out:tensors!")(lambda x, out: list(x))


def _unscale(grads, found, inverse_scale):
    finite = all(bool(torch.isfinite(g).all()) for g in grads)
    return [g * inverse_scale.reshape(()) for g in grads], found if finite else torch.ones_like(found)


def _update_scale(scale, tracker, found, growth, backoff, interval):
    if bool(found.reshape(-1)[0] > 0):
        return scale * backoff, torch.zeros_like(tracker)
    grown = tracker + 1
    if int(grown.reshape(-1)[0]) < interval:
        return scale, grown
    return (scale * growth if bool(torch.isfinite(scale * growth).all()) else scale), torch.zeros_like(tracker)


# GradScaler's.
kernel("ForeachNonFiniteCheckAndUnscale", "grads:tensors!, found!, inverse_scale")(_unscale)
kernel("AmpUpdateScale", "scale, tracker, found, growth:double, backoff:double, interval:int32, new_scale!, new_tracker!")(
    lambda scale, tracker, found, growth, backoff, interval, *out: _update_scale(scale, tracker, found, growth, backoff, interval))
