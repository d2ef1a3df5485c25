"""Kernels of the basic primitives: cast, copy, fill, sum to a shape, add, multiply, compare."""
import math

import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.copies import copy_c, duplicate, store, zeros
from mindtorch.backend.cpu.half import cast, downcast, upcast
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.pointwise import EXPRESSIONS, HALF, binary, by_bits, masked, plain, unary
from mindtorch.backend.cpu.sum import total
from mindtorch.backend.mindspore.private import bfloat16_np

_F16, _F32 = np.dtype(np.float16), np.dtype(np.float32)


@quiet
def cast_array(a, dtype):
    """Casts an array by PyTorch's rules: complex to real drops the imaginary part, nan to bool is
    True."""
    if a.dtype == dtype:
        return copy_c(a)
    if dtype == _F32 and a.dtype in (_F16, bfloat16_np):
        return upcast(a)
    if a.dtype.kind == "V":
        a = upcast(a)
    if a.dtype.kind == "c" and dtype.kind not in "cb":
        a = a.real
    if dtype == bfloat16_np:
        return downcast(a.astype(_F32, copy=False), dtype)
    if dtype == _F16 and a.dtype == _F32:
        return downcast(a, dtype)
    if a.dtype.kind == "f" and dtype.kind == "u" and dtype.itemsize < 8:
        # In C the conversion of negative floats to unsigned integers is undefined; PyTorch wraps
        # through the signed type.
        return a.astype(np.int64).astype(dtype)
    return cast(a, dtype)


@kernel("to_copy")
def _to_copy(a, *, dtype):
    return cast_array(a, dtype)


@kernel("to_device")
def _to_device(a, *, source, target):
    """Copies between two devices that both use host memory."""
    return a.copy()


@kernel("sum_to_size")
def _sum_to(a, *, size):
    lead = a.ndim - len(size)
    axes = tuple(range(lead)) + tuple(i + lead for i, n in enumerate(size) if n == 1 and a.shape[i + lead] != 1)
    r = total(a, axes, True) if axes else a.copy()
    return r.reshape(r.shape[lead:])


@kernel("broadcast")
def _broadcast(a, *, shape):
    return np.broadcast_to(a, shape).copy()


@kernel("clone")
def _clone(a):
    return duplicate(a)


@kernel("detach_copy")
def _detach_copy(a):
    return copy_c(a)


@kernel("new_full")
def _new_full(a, *, size, value, np_dtype):
    if not value:
        return zeros(size, np_dtype)
    return np.full(size, value, np_dtype) if np_dtype.kind != "V" else np.full(size, value, np.float32).astype(np_dtype)


@kernel("mean_elements sum_elements")
@quiet
def _total(a, *, mean):
    if not a.size:
        return np.asarray(np.nan if mean else 0, a.dtype)
    return np.asarray(a.mean(dtype=a.dtype) if mean else a.sum(dtype=a.dtype))


@kernel("expand_elements")
@quiet
def _expand_elements(g, *, shape, mean):
    return np.full(shape, g / max(math.prod(shape), 1) if mean else g, g.dtype)


@kernel("mask_grad")
def _keep(g, mask):
    return masked(g, mask)


_keep.pointwise = True
kernel("add", binary(np.add))
kernel("sub", binary(np.subtract))
kernel("mul", binary(np.multiply))
_neg = unary(np.negative)
kernel("neg", _neg)
HALF[_neg], EXPRESSIONS[_neg] = by_bits(np.bitwise_xor, -0x8000), ("neg", plain)
kernel("conj", unary(np.conj))
kernel("conj_view", np.conj)
kernel("neg_view", np.negative)
for _name, _ufunc in (("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal), ("gt", np.greater), ("ge", np.greater_equal),
                      ("logical_and", np.logical_and), ("logical_or", np.logical_or)):
    kernel(_name, binary(_ufunc))
kernel("logical_not", unary(np.logical_not))

# In-place kernels, used where no gradient is recorded (`core/dispatch/op_registry.py`).
kernel("add_", np.add)
kernel("sub_", np.subtract)
kernel("mul_", np.multiply)
kernel("div_ true_divide_", np.true_divide)


# ------------------------------------------------------------------ fill and copy
kernel("fill", lambda a, value: np.full(a.shape, value, a.dtype))
kernel("zero", lambda a: zeros(a.shape, a.dtype))


@kernel("copy")
def _copy(a, src):
    r = np.empty(a.shape, a.dtype)
    store(r, src if src.dtype == a.dtype else cast_array(src, a.dtype))
    return r
