"""Conversion of Python numbers to elements of a dtype, with PyTorch's overflow errors."""
from __future__ import annotations

from typing import Any

import numpy as np

from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.interface import Array, Number, NpDtype
from mindtorch.core.tensor.dtypes import F32, NUMBER_TYPES, bfloat16_np
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.tensor.tensor import ScalarOperand, Tensor, is_tensor
from mindtorch.core.tensor.sync import to_host

_CTYPES = {"float32": "float", "float64": "double", "float16": "at::Half", "bfloat16": "at::BFloat16", "int64": "int64_t", "int32": "int",
           "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t", "complex64": "c10::complex<float>",
           "complex128": "c10::complex<double>", "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t"}
_MAX = {"float32": float(np.finfo(np.float32).max), "float16": 65504.0, "bfloat16": (2.0 - 2.0 ** -7) * 2.0 ** 127,
        "complex64": float(np.finfo(np.float32).max)}
#: types accepted as a number
NUMBER = (bool, int, float, complex, *NUMBER_TYPES)


def scalar_array(value: Any, dtype: NpDtype) -> Array:
    """Converts a number to a 0-dim array of a NumPy dtype.

    Raises RuntimeError if it does not fit, TypeError if it is not a number.
    """
    if value.__class__ is float and dtype.kind == "f" and (-3e38 < value < 3e38 and dtype.itemsize > 2 or value != value):
        return np.array(value, dtype)
    value = checked_convert(value, dtype)
    return np.array(value, dtype) if dtype != bfloat16_np else np.array(value, np.float32).astype(dtype)


def checked_convert(value: Any, dtype: NpDtype) -> Number:
    """Converts a number to a Python number that can fill an array of this dtype.

    It is not yet rounded to the dtype. Raises the errors of `scalar_array`.
    """
    kind = dtype.kind
    if value.__class__ is float and kind == "f" and (-3e38 < value < 3e38 and dtype.itemsize > 2 or value != value):
        return value
    if not isinstance(value, NUMBER):
        raise TypeError(f"expected a number, got {type_name(value)}")
    if kind == "b":
        return bool(value)
    if isinstance(value, (complex, np.complexfloating)):
        if kind != "c":
            if value.imag:
                raise _overflow(dtype)
            value = float(value.real)
    elif isinstance(value, (bool, np.bool_)):
        value = int(value)
    elif isinstance(value, (int, np.integer)):
        value = int(value)
        if not -2 ** 63 <= value < 2 ** 64:
            raise OverflowError("int too big to convert")
    else:
        value = float(value)
    if kind in "iu":
        if value != value or value in (np.inf, -np.inf):
            raise _overflow(dtype)
        value = int(value)
        info = np.iinfo(dtype)
        # Unsigned types accept negatives down to -max and wrap them around, as in PyTorch.
        if value > int(info.max) or value < (-int(info.max) if kind == "u" else int(info.min)):
            raise _overflow(dtype)
        return value % 2 ** (8 * dtype.itemsize) if kind == "u" else value
    top = _MAX.get(dtype.name)
    if top is not None:
        for part in (value.real, value.imag) if isinstance(value, complex) else (value,):
            if abs(part) > top and abs(part) != np.inf:
                raise _overflow(dtype)
    return value


def _overflow(dtype):
    return RuntimeError(f"value cannot be converted to type {_CTYPES[dtype.name]} without overflow")


def _python(a):
    return (a.astype(F32) if a.dtype == bfloat16_np else a).item()


def plain_number(value: Any, dtype: NpDtype) -> Number:
    """Rounds a number to a dtype and returns a Python number; errors as in `scalar_array`."""
    return _python(scalar_array(value, dtype))


def cast_scalar(value: Any, dtype: NpDtype) -> ScalarOperand:
    """Returns a number as a `ScalarOperand` of exactly this dtype; errors as in `scalar_array`.

    A plain `ScalarOperand` next to float16 tensors is float32.
    """
    c = ScalarOperand.__new__(ScalarOperand)
    c._array = scalar_array(value, dtype)
    return c


@quiet
def rounded(c: ScalarOperand, dtype: NpDtype) -> ScalarOperand:
    """Rounds a `ScalarOperand` to a half-precision dtype."""
    r = ScalarOperand(0, F32)
    r._array = c._array.astype(F32).astype(dtype) if dtype.kind == "V" else c._array.astype(dtype)
    return r


def number_of(name: str, value: Any, arg: str = "value") -> Any:
    """Converts a number or a one-element tensor to a Python number; TypeError for anything else."""
    if is_tensor(value):
        if value._numel != 1:
            raise RuntimeError(f"a Tensor with {value._numel} elements cannot be converted to Scalar")
        return _python(to_host(value).reshape(()))
    if isinstance(value, NUMBER):
        return value
    raise TypeError(f"{name}(): argument '{arg}' must be Number, not {type_name(value)}")


_CALLED = {"bool": "bool", "int": "int", "size": "int", "index": "int", "number": "Number", "float": "float"}


def read(name: str, arg: str, kind: str, x: Any) -> Any:
    """Converts a tensor passed for a number parameter of this kind (core/dispatch/op_schema.py) to its value.

    Returns other arguments unchanged. TypeError if the tensor cannot be converted.
    """
    if not is_tensor(x):
        return x
    integral = x._np_dtype.kind in "iu"
    if kind in ("size", "index") and x._numel == 1 and (integral or x._np_dtype.kind == "b"):
        if not integral and kind == "size":
            raise RuntimeError(f"{name}(): argument '{arg}' must be int, not a bool Tensor")
        return int(Tensor.item(x))
    if kind == "bool" or x._sizes or x._requires_grad_ or kind in ("int", "size", "index") and not integral:
        name = name.removeprefix("Tensor.").removeprefix("nn.functional.").replace(".", "_")
        raise TypeError(f"{name}(): argument '{arg}' must be {_CALLED[kind]}, not Tensor")
    value = Tensor.item(x)
    if kind == "float" and value.__class__ is complex:
        if value.imag:
            raise RuntimeError("value cannot be converted to type double without overflow")
        return value.real
    return value
