"""Conversion of Python numbers to elements of a dtype, with PyTorch's overflow errors."""
from __future__ import annotations

from typing import Any

import numpy as np

from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.interface import Array, Number, Stype
from mindtorch.core import dispatch
from mindtorch.core.dtypes import F32, NUMBER_TYPES, bfloat16_np
from mindtorch.core.foreign import type_name
from mindtorch.core.tensor import Const, Tensor, taken
from mindtorch.core.values import values

_CTYPES = {"float32": "float", "float64": "double", "float16": "at::Half", "bfloat16": "at::BFloat16", "int64": "int64_t", "int32": "int",
           "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t", "complex64": "c10::complex<float>",
           "complex128": "c10::complex<double>", "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t"}
_MAX = {"float32": float(np.finfo(np.float32).max), "float16": 65504.0, "bfloat16": (2.0 - 2.0 ** -7) * 2.0 ** 127,
        "complex64": float(np.finfo(np.float32).max)}
#: types accepted as a number
NUMBER = (bool, int, float, complex, *NUMBER_TYPES)


def number_as(value: Any, dtype: Stype) -> Array:
    """Converts a number to a 0-dim array of a NumPy dtype.

    Raises RuntimeError if it does not fit, TypeError if it is not a number.
    """
    if value.__class__ is float and dtype.kind == "f" and (-3e38 < value < 3e38 and dtype.itemsize > 2 or value != value):
        return np.array(value, dtype)
    value = fitting(value, dtype)
    return np.array(value, dtype) if dtype != bfloat16_np else np.array(value, np.float32).astype(dtype)


def fitting(value: Any, dtype: Stype) -> Number:
    """Converts a number to a Python number that can fill an array of this dtype.

    It is not yet rounded to the dtype. Raises the errors of `number_as`.
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


def plain_number(value: Any, dtype: Stype) -> Number:
    """Rounds a number to a dtype and returns a Python number; errors as in `number_as`."""
    return _python(number_as(value, dtype))


def exact(value: Any, dtype: Stype) -> Const:
    """Returns a number as a `Const` of exactly this dtype; errors as in `number_as`.

    A plain `Const` next to float16 tensors is float32.
    """
    c = Const.__new__(Const)
    c._a = number_as(value, dtype)
    return c


@quiet
def rounded(c: Const, dtype: Stype) -> Const:
    """Rounds a `Const` to a half-precision dtype."""
    r = Const(0, F32)
    r._a = c._a.astype(F32).astype(dtype) if dtype.kind == "V" else c._a.astype(dtype)
    return r


def number_of(name: str, value: Any, arg: str = "value") -> Any:
    """Converts a number or a one-element tensor to a Python number; TypeError for anything else."""
    if taken(value):
        if value._numel != 1:
            raise RuntimeError(f"a Tensor with {value._numel} elements cannot be converted to Scalar")
        return _python(values(value).reshape(()))
    if isinstance(value, NUMBER):
        return value
    raise TypeError(f"{name}(): argument '{arg}' must be Number, not {type_name(value)}")


_CALLED = {"bool": "bool", "int": "int", "size": "int", "index": "int", "number": "Number", "float": "float"}


def read(name: str, arg: str, kind: str, x: Any) -> Any:
    """Converts a tensor passed for a number parameter of this kind (core/records.py) to its value.

    Returns other arguments unchanged. TypeError if the tensor cannot be converted.
    """
    if not taken(x):
        return x
    whole = x._stype.kind in "iu"
    if kind in ("size", "index") and x._numel == 1 and (whole or x._stype.kind == "b"):
        if not whole and kind == "size":
            raise RuntimeError(f"{name}(): argument '{arg}' must be int, not a bool Tensor")
        return int(Tensor.item(x))
    if kind == "bool" or x._sizes or x._rg or kind in ("int", "size", "index") and not whole:
        name = name.removeprefix("Tensor.").removeprefix("nn.functional.").replace(".", "_")
        raise TypeError(f"{name}(): argument '{arg}' must be {_CALLED[kind]}, not Tensor")
    value = Tensor.item(x)
    if kind == "float" and value.__class__ is complex:
        if value.imag:
            raise RuntimeError("value cannot be converted to type double without overflow")
        return value.real
    return value


dispatch.read_number = read
