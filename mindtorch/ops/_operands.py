"""Helpers of the elementwise families: type promotion of operands, rules of ops without a
derivative, scalar operands."""
from mindtorch.core.tensor import dtypes
from mindtorch.core.tensor.dtypes import F32
from mindtorch.core.tensor.scalars import cast_scalar as exact_number
from mindtorch.core.dispatch.type_promotion import category, promote_factors, result_dtype, to
from mindtorch.core.tensor.tensor import Tensor, ScalarOperand, is_tensor
from mindtorch.ops._checks import tensor_type_error
from mindtorch.ops.basic import cast


# ------------------------------------------------------------------ operands
def quotient(a, b):
    """Returns both operands of a division in their common dtype; integers become the default
    floating dtype."""
    a, b = promote_factors(a, b)
    return promote_to_float_pair(a, b) if a._np_dtype.kind in "biu" else (a, b)


def promote_to_float_pair(a, b):
    """Returns both operands in their common dtype; integers become the default floating dtype."""
    try:
        d = a._np_dtype
        if d is b._np_dtype and d.kind in "fcV":
            return a, b
    except AttributeError:
        pass
    d = result_dtype(a, b)
    if category(d) < 2:
        d = dtypes.default_np()
    return to(a, d), to(b, d)


def promote(*operands):
    """Casts tensors to their common dtype (None stays None)."""
    d = result_dtype(*[x for x in operands if x is not None])
    return [None if x is None else to(x, d) for x in operands]


def cast_exact(x, d):
    """Casts an operand to exactly this dtype, also a scalar (which `to` leaves in float32 next to a
    float16 tensor)."""
    return cast(x, d) if hasattr(x, "_np_dtype") else exact_number(x, d)


def tensors(name, *args):
    """Raises TypeError unless all are tensors. Names and positions are those of PyTorch's
    signatures (input, other)."""
    for x in args:
        if x.__class__ is not Tensor and not is_tensor(x):
            i = [x is y for y in args].index(True)
            raise tensor_type_error(name, ("input", "other")[i], i + 1, x)


def no_derivative(name):
    """Returns the gradient rule of an op that PyTorch does not differentiate either."""
    def rule(ctx, grad):
        raise RuntimeError(f"derivative for aten::{name} is not implemented")
    return rule


def derivative_not_implemented(name):
    """Returns the gradient rule of an op whose derivative PyTorch declares as not implemented. It
    raises NotImplementedError, other ops without a derivative RuntimeError."""
    def rule(ctx, grad):
        raise NotImplementedError(f"the derivative for '{name}' is not implemented.")
    return rule


def scalar_dtype(x):
    """Returns the dtype of a scalar next to `x` in a kernel: float32 if `x` has half precision,
    which kernels compute in float32."""
    d = x._np_dtype
    return F32 if d in dtypes.LOW else d


def scalar(value, like):
    """Wraps a scalar as an operand next to the tensor `like`."""
    return ScalarOperand(value, scalar_dtype(like))
