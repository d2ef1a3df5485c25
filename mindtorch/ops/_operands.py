"""What the elementwise families share: bringing operands to one dtype, gradients of masks."""
import numpy as np

from mindtorch.backend.cpu.host import quiet
from mindtorch.core import dtypes
from mindtorch.core.dtypes import F32
from mindtorch.core.promote import category, result_dtype, to
from mindtorch.core.tensor import Const, Tensor
from mindtorch.ops._checks import not_tensor
from mindtorch.ops._numbers import number_as
from mindtorch.ops.basic import cast

_NUMBER = (bool, int, float, complex, np.number, np.bool_)


# ------------------------------------------------------------------ operands
def float_pair(a, b):
    """Two operands in their common dtype, integers in the default floating dtype."""
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
    if hasattr(x, "_a"):
        return cast(x, d)
    c = Const(0, F32)
    c._a = number_as(x, d)
    return c


def rounded(c, d):
    """A constant rounded to a dtype of half precision."""
    r = Const(0, F32)
    r._a = cast_number(c._a, d)
    return r


@quiet
def cast_number(a, d):
    """0-dim array in another dtype; bfloat16 takes the detour through float32 that NumPy's extension type needs."""
    return a.astype(F32).astype(d) if d.kind == "V" else a.astype(d)


def tensors(name, *args):
    """TypeError unless all are tensors; names and positions as torch's signatures (input, other)."""
    for i, x in enumerate(args):
        if not isinstance(x, Tensor):
            raise not_tensor(name, ("input", "other")[i], i + 1, x)


def plain(x):
    """Array of an operand for work on the host: bfloat16, which NumPy cannot compare with numbers, as float32."""
    a = x._a
    return a.astype(F32) if a.dtype.kind == "V" else a


def no_derivative(name):
    """The rule of an op that torch does not differentiate either."""
    def rule(c, g):
        raise RuntimeError(f"derivative for aten::{name} is not implemented")
    return rule


def scalar_dtype(x):
    """dtype of a number that stands beside `x` in a kernel: half precision is computed in float32."""
    d = x._stype
    return F32 if d in dtypes.LOW else d


def number(value, like):
    """A number as an operand beside the tensor `like`."""
    return Const(value, scalar_dtype(like))
