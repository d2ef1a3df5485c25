"""What the elementwise families share: bringing operands to one dtype, gradients of masks."""
from mindtorch.core import dtypes
from mindtorch.core.dtypes import F32
from mindtorch.core.numbers import exact as exact_number
from mindtorch.core.promote import category, factors, result_dtype, to
from mindtorch.core.tensor import Tensor, Const, taken
from mindtorch.ops._checks import not_tensor
from mindtorch.ops.basic import cast


# ------------------------------------------------------------------ operands
def quotient(a, b):
    """Two operands of a division, integers in the default floating dtype."""
    a, b = factors(a, b)
    return float_pair(a, b) if a._stype.kind in "biu" else (a, b)


def float_pair(a, b):
    """Two operands in their common dtype, integers in the default floating dtype."""
    try:
        d = a._stype
        if d is b._stype and d.kind in "fcV":
            return a, b
    except AttributeError:
        pass
    d = result_dtype(a, b)
    if category(d) < 2:
        d = dtypes.default_np()
    return to(a, d), to(b, d)


def common(*operands):
    """Tensors (None stays None) brought to their common dtype."""
    d = result_dtype(*[x for x in operands if x is not None])
    return [None if x is None else to(x, d) for x in operands]


def exact(x, d):
    """Operand in exactly this dtype, also a number (which `to` leaves in float32 beside a float16 tensor)."""
    return cast(x, d) if hasattr(x, "_stype") else exact_number(x, d)


def tensors(name, *args):
    """TypeError unless all are tensors; names and positions as torch's signatures (input, other)."""
    for x in args:
        if x.__class__ is not Tensor and not taken(x):
            i = [x is y for y in args].index(True)
            raise not_tensor(name, ("input", "other")[i], i + 1, x)


def no_derivative(name):
    """The rule of an op that torch does not differentiate either."""
    def rule(c, g):
        raise RuntimeError(f"derivative for aten::{name} is not implemented")
    return rule


def unwritten_derivative(name):
    """The rule of an op for which torch says itself that it has none: another error than that of ops it does not know to differentiate."""
    def rule(c, g):
        raise NotImplementedError(f"the derivative for '{name}' is not implemented.")
    return rule


def scalar_dtype(x):
    """dtype of a number that stands beside `x` in a kernel: half precision is computed in float32."""
    d = x._stype
    return F32 if d in dtypes.LOW else d


def number(value, like):
    """A number as an operand beside the tensor `like`."""
    return Const(value, scalar_dtype(like))
