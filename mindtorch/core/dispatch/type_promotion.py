"""Type promotion by PyTorch's rules
(https://pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc).

There are three priorities: tensors with dimensions, 0-dim tensors, Python numbers. A lower priority
matters only if its category (bool < integer < floating < complex) is higher.
"""
from __future__ import annotations

import functools
from typing import Any, TypeAlias

import numpy as np

from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.interface import Number, NpDtype
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import dtypes
from mindtorch.core.device.device import registered
from mindtorch.core.tensor.dtypes import bfloat16_np
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.tensor.tensor import ScalarOperand, Tensor

_F16, _F32, _F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
_C64, _C128 = np.dtype(np.complex64), np.dtype(np.complex128)
_I64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)
_CATEGORY = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}
#: what an op accepts where PyTorch accepts a tensor or a number
Operand: TypeAlias = Tensor | ScalarOperand | Number

_table: dict[tuple[NpDtype, NpDtype], NpDtype] = {}


def category(d: NpDtype) -> int:
    """Returns the category of a dtype: 0 bool, 1 integer, 2 floating, 3 complex."""
    return _CATEGORY[d.kind]


def promote_types(a: NpDtype, b: NpDtype) -> NpDtype:
    """Returns the smallest dtype that both NumPy dtypes promote to, by PyTorch's table."""
    if a == b:
        return a
    key = (a, b)
    r = _table.get(key)
    if r is None:
        r = _table[key] = _promote(a, b)
    return r


def _promote(a: NpDtype, b: NpDtype) -> NpDtype:
    ca, cb = category(a), category(b)
    if ca < cb:
        a, b, ca, cb = b, a, cb, ca
    if ca == 3:
        if cb == 3 or b == _F64:
            return _C128 if _C128 in (a, b) or b == _F64 else _C64
        return a
    if ca == 2:
        if cb < 2:
            return a
        if {a, b} == {_F16, bfloat16_np}:
            return _F32
        return a if a.itemsize > b.itemsize else b
    if cb == 0:
        return a
    if a.kind == b.kind:
        return a if a.itemsize > b.itemsize else b
    u, i = (a, b) if a.kind == "u" else (b, a)
    if u.itemsize > 1:
        raise RuntimeError(f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
                           f"{_name(a)} and {_name(b)}")
    return i if i.itemsize > 1 else np.dtype(np.int16)


def _name(d):
    return {"uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64", "int64": "Long", "int32": "Int", "int16": "Short",
            "int8": "Char", "uint8": "Byte"}.get(d.name, d.name)


def number_dtype(x: object) -> NpDtype:
    """Returns the dtype that a Python number has by itself."""
    if x is True or x is False:
        return _BOOL
    if isinstance(x, (int, np.integer)):
        return _I64
    if isinstance(x, (float, np.floating)):
        return dtypes.default_np()
    if isinstance(x, (complex, np.complexfloating)):
        return dtypes.default_complex_np()
    if isinstance(x, np.bool_):
        return _BOOL
    raise TypeError(f"expected a Tensor or a number, got {type_name(x)}")


def result_dtype(*operands: Operand) -> NpDtype:
    """Returns the NumPy dtype of the result of an operation on tensors and numbers."""
    dim = zero = num = None
    for x in operands:
        try:
            a = x._array        # type: ignore[union-attr]
        except AttributeError:
            d = number_dtype(x)
            num = d if num is None else promote_types(num, d)
            continue
        d = a.dtype
        if x.__class__ is ScalarOperand:
            num = d if num is None else promote_types(num, d)
        elif a.ndim:
            dim = d if dim is None else promote_types(dim, d)
        else:
            zero = d if zero is None else promote_types(zero, d)
    r = _merge(_merge(dim, zero), num)
    return r


def _merge(high: NpDtype | None, low: NpDtype | None) -> Any:
    if high is None:
        return low
    if low is None or category(high) >= category(low):
        return high
    if low.kind == "c" and high.kind in "fV":
        # A complex number promotes a float tensor to the complex dtype of the tensor's own
        # precision.
        return _C128 if high == _F64 else _C64
    return low


def promote_pair(a: Any, b: Any) -> tuple[Tensor | ScalarOperand, Tensor | ScalarOperand]:
    """Converts two operands to their common dtype.

    At least one is a tensor; the other may be a number.
    """
    try:
        da, db = a._array.dtype, b._array.dtype
        if da is db:
            return a, b
    except AttributeError:
        if b.__class__ in _NUMBER_CATEGORY and hasattr(a, "_array"):
            d = a._array.dtype
            # Fast path for x * 2 or x + 0.5: the number takes the tensor's dtype.
            if _CATEGORY[d.kind] >= _NUMBER_CATEGORY[b.__class__]:
                return a, ScalarOperand(_in_half(b, d), _F32) if d.itemsize == 2 and d.kind in "fV" else ScalarOperand(b, d)
        elif a.__class__ in _NUMBER_CATEGORY and hasattr(b, "_array"):
            d = b._array.dtype
            if _CATEGORY[d.kind] >= _NUMBER_CATEGORY[a.__class__]:
                return ScalarOperand(_in_half(a, d), _F32) if d.itemsize == 2 and d.kind in "fV" else ScalarOperand(a, d), b
        elif not hasattr(a, "_array") and not hasattr(b, "_array"):
            for x in (a, b):
                number_dtype(x)
    d = result_dtype(a, b)
    return to(a, d), to(b, d)


_NUMBER_CATEGORY = {bool: 0, int: 1, float: 2, complex: 3}


def _in_half(x: Any, d: NpDtype) -> float:
    """Rounds a number to a half-precision dtype.

    The result stays in float32, in which kernels receive a number next to half precision.
    """
    return _rounded(x, d) if x else x  # the cache does not distinguish 0.0 from -0.0


@functools.lru_cache(1 << 10)
@quiet
def _rounded(x, d):
    return ScalarOperand(x, _F32)._array.astype(d).astype(_F32).item()


def to(x: Any, d: NpDtype) -> Tensor | ScalarOperand:
    """Converts an operand to a Tensor or Const of NumPy dtype `d`.

    For half precision a number is rounded to `d` and stored in float32.
    """
    try:
        if x._array.dtype == d:
            return x
    except AttributeError:
        number_dtype(x)
        return ScalarOperand(_in_half(x, d), _F32) if d in dtypes.LOW else ScalarOperand(x, d)
    if x.__class__ is ScalarOperand:
        return ScalarOperand(_in_half(x._array.item(), d), _F32) if d in dtypes.LOW else ScalarOperand(x._array, d)
    return hooks.cast(x, d)


def promote_factors(a: Any, b: Any) -> tuple[Tensor | ScalarOperand, Tensor | ScalarOperand]:
    """Like `promote_pair`, for products and quotients.

    Next to a half-precision tensor, a second operand that is a number or has no dimensions becomes
    float32. Kernels compute half precision in float32, and in these ops PyTorch's kernels use such
    an operand unrounded; in all other ops it is rounded first.
    """
    try:
        da, db = a._array.dtype, b._array.dtype
        if da is db:
            return a, b
        if da.itemsize == 2 and da.kind in "fV" and not b._array.ndim and a._array.ndim and db.kind != "c" and (
                a._handle is None or b._handle is None or registered[a._device.type].upcasts_half):
            return a, to(b, _F32)
    except AttributeError:
        if b.__class__ in _NUMBER_CATEGORY and hasattr(a, "_array"):
            d = a._array.dtype
            if _CATEGORY[d.kind] >= _NUMBER_CATEGORY[b.__class__]:
                return a, ScalarOperand(b, _F32 if d.itemsize == 2 and d.kind in "fV" else d)
    return promote_pair(a, b)


def promote_int_to_float(x: Tensor) -> Tensor:
    """Converts integer and bool tensors to the default floating dtype, as exp, sin and mean do."""
    if x._array.dtype.kind in "fcV":
        return x
    return hooks.cast(x, dtypes.default_np())
