"""Dtype properties that the random kernels need, and rounding to each dtype."""

import math
from typing import NamedTuple

import numpy as np


class Kind(NamedTuple):
    name: str
    np: np.dtype  # dtype of the returned arrays
    label: str  # PyTorch's dtype name in "not implemented for"
    ctype: str  # PyTorch's dtype name in "out of bounds for"
    digits: int  # bits of a float's significand; 0 for other dtypes
    low: float  # smallest and largest value
    high: float


def _describe():
    rows = {}
    for name, label, ctype, digits in (
        ("float32", "Float", "float", 24),
        ("float64", "Double", "double", 53),
        ("float16", "Half", "c10::Half", 11),
    ):
        top = float(np.finfo(name).max)
        rows[name] = Kind(name, np.dtype(name), label, ctype, digits, -top, top)
    top = (2 - 2.0**-7) * 2.0**127
    rows["bfloat16"] = Kind("bfloat16", np.dtype(np.float32), "BFloat16", "c10::BFloat16", 8, -top, top)
    for name, label, ctype in (
        ("uint8", "Byte", "unsigned char"),
        ("int8", "Char", "signed char"),
        ("int16", "Short", "short int"),
        ("int32", "Int", "int"),
        ("int64", "Long", "long int"),
        ("uint16", "UInt16", "short unsigned int"),
        ("uint32", "UInt32", "unsigned int"),
        ("uint64", "UInt64", "long unsigned int"),
    ):
        info = np.iinfo(name)
        rows[name] = Kind(name, np.dtype(name), label, ctype, 0, info.min, info.max)
    rows["bool"] = Kind("bool", np.dtype(bool), "Bool", "bool", 0, 0, 1)
    rows["complex64"] = Kind("complex64", np.dtype("complex64"), "ComplexFloat", "c10::complex<float>", 0, 0, 0)
    rows["complex128"] = Kind("complex128", np.dtype("complex128"), "ComplexDouble", "c10::complex<double>", 0, 0, 0)
    return rows


KINDS = _describe()
# a complex tensor is sampled as its real and imaginary parts
PARTS = {"complex64": "float32", "complex128": "float64"}
UNSIGNED = ("uint16", "uint32", "uint64")


def kind_of(dtype):
    try:
        return KINDS[dtype]
    except KeyError:
        pass
    known = np.dtype(dtype)
    kind = KINDS.get(known.name)
    if kind is None:
        raise NotImplementedError(f"random numbers of dtype {known} are not supported on cpu")
    KINDS[dtype] = kind = kind._replace(np=known)
    return kind


def unsupported(kernel, kind):
    return NotImplementedError(f"\"{kernel}\" not implemented for '{kind.label}'")


def need_float(kernel, kind):
    if not kind.digits:
        raise unsupported(kernel, kind)


def numel(shape):
    return shape if isinstance(shape, int) else math.prod(shape)


def _round_bfloat16(x):
    """Rounds float32 values to the nearest bfloat16 (ties to even). The result stays float32."""
    bits = x.view(np.uint32)
    rounded = ((bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) & np.uint32(0xFFFF0000)).view(
        np.float32
    )
    return np.where(np.isnan(x), x, rounded)


def as_kind(x, kind, shape):
    """Converts float32 or float64 values to an array of `kind` and `shape`.

    Rounds like PyTorch: 16-bit dtypes are rounded via float32.
    """
    if kind.digits == 11:
        with np.errstate(over="ignore"):
            x = x.astype(np.float32, copy=False).astype(np.float16)
    elif kind.digits == 8:
        x = _round_bfloat16(x.astype(np.float32, copy=False))
    return x.astype(kind.np, copy=False).reshape(shape)


def from_int(x, kind, shape):
    """Converts int64 values to an array of `kind` and `shape`."""
    if kind.digits and kind.digits < 24:
        return as_kind(x.astype(np.float32), kind, shape)
    return x.astype(kind.np, copy=False).reshape(shape)


def upcast(x, kind):
    """Upcasts a 16-bit float array to float32, so that NumPy can compute with it."""
    return x.astype(np.float32) if kind.digits < 24 else x
