"""The few primitives everything else stands on: cast, copy, sum to a shape, add, multiply."""
import numpy as np

from mindtorch.backend.cpu.pointwise import binary
from mindtorch.backend.cpu.reduce import total
from mindtorch.backend.cpu.half import narrow, widen
from mindtorch.backend.cpu.host import quiet
from mindtorch.core import autocast, engine, meta, promote
from mindtorch.core.dtypes import F16, F32, LOW, as_np, bfloat16_np
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor



@quiet
def cast_array(a, dtype):
    """Array in another dtype by torch's rules (complex to real drops the imaginary part, NaN to bool is True)."""
    if a.dtype == dtype:
        return a.copy()
    if dtype == F32 and a.dtype in LOW:
        return widen(a)
    if a.dtype.kind == "V":
        a = widen(a)
    if a.dtype.kind == "c" and dtype.kind not in "cb":
        a = a.real
    if dtype == bfloat16_np:
        return narrow(a.astype(F32, copy=False), dtype)
    if dtype == F16 and a.dtype == F32:
        return narrow(a, dtype)
    if a.dtype.kind == "f" and dtype.kind == "u" and dtype.itemsize < 8:
        # C leaves negative floats to unsigned undefined; torch wraps through the signed type.
        return a.astype(np.int64).astype(dtype)
    return a.astype(dtype)


_cast = primitive("to_copy", lambda a, *, dtype: cast_array(a, dtype),
                  lambda c, g: _cast_back(g, c.dtypes[0]), raw=True)


def _cast_back(g, dtype):
    return cast(g, dtype)


def cast(x, dtype):
    """Tensor in NumPy dtype `dtype`; `x` itself if it has it already."""
    if x._stype == dtype:
        return x
    return _cast(x, dtype=dtype)


def cast_grad(g, dtype):
    """A gradient in the dtype of what it belongs to."""
    return cast(g, dtype)


promote._cast = autocast._cast = cast


def to_dtype(x, d):
    """Tensor in torch.dtype `d` (None: as it is)."""
    return x if d is None else cast(x, as_np(d))


# ------------------------------------------------------------------ shape of gradients
def _sum_to(a, *, size):
    lead = a.ndim - len(size)
    axes = tuple(range(lead)) + tuple(i + lead for i, n in enumerate(size) if n == 1 and a.shape[i + lead] != 1)
    r = total(a, axes, True) if axes else a.copy()
    return r.reshape(r.shape[lead:])


sum_to = primitive("sum_to_size", _sum_to, lambda c, g: broadcast(g, shape=c.shapes[0]))
broadcast = primitive("expand", lambda a, *, shape: np.broadcast_to(a, shape).copy(), lambda c, g: sum_to(g, size=c.shapes[0]),
                      raw=True)

clone = primitive("clone", lambda a: a.copy(order="K"), lambda c, g: g, raw=True)

# ------------------------------------------------------------------ arithmetic that gradients are made of
add_ = primitive("add", binary(np.add), lambda c, g: g, lambda c, g: g, inputs="a b")
sub_ = primitive("sub", binary(np.subtract), lambda c, g: g, lambda c, g: neg_(g), inputs="a b")
neg_ = primitive("neg", np.negative, lambda c, g: neg_(g), inputs="a")
mul_ = primitive("mul", binary(np.multiply), lambda c, g: mul_(g, conj(c.b)), lambda c, g: mul_(g, conj(c.a)), inputs="a b")
_conj = primitive("conj", np.conj, lambda c, g: _conj(g), inputs="a")


def conj(x):
    """Complex conjugate; a real tensor is returned as it is."""
    return _conj(x) if x._stype.kind == "c" and isinstance(x, Tensor) else (x if x._stype.kind != "c" else _const_conj(x))


def refusing_conj(x):
    """The conjugate, which in torch is a view of a complex tensor: a write could not reach that, and so is refused."""
    r = conj(x)
    if r is not x:
        r._a.flags.writeable = False
    return r


def _const_conj(c):
    r = type(c)(0, F32)
    r._a = np.conj(c._a)
    return r


def is_low(x):
    return x._stype in LOW


engine._ops.update(sum_to=sum_to, cast_grad=cast_grad, add=add_, clone=clone, meta=lambda g: meta.on(g._a))
