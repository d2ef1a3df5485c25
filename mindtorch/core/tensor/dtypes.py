"""torch.dtype objects, usable wherever MindSpore expects one of its own dtypes.

They have PyTorch's names and printing. Each object is also an instance of MindSpore's type class,
so MindSpore's APIs accept it directly and ``torch.float32 == mindspore.float32`` holds.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from mindtorch.backend.interface import NpDtype
from mindtorch.backend.mindspore.private import bfloat16_np, ms_typing
from mindtorch.core.dispatch.error_messages import type_name

#: How torch.compile treats the functions of this module (`mindtorch/torch/_dynamo/_capture.py`).
CAPTURE = "safe"

__all__ = ["dtype", "of_np", "get_default_dtype", "set_default_dtype", "bfloat16_np"]


class dtype:
    """Element type of a tensor.

    See https://pytorch.org/docs/stable/tensor_attributes.html#torch.dtype.
    """

    name: str
    np: np.dtype
    itemsize: int
    is_floating_point: bool
    is_complex: bool
    is_signed: bool

    def __repr__(self) -> str:
        return "torch." + self.name

    __str__ = __repr__

    def to_real(self) -> dtype:
        """Returns the real dtype of the same precision."""
        return {"complex64": float32, "complex128": float64, "complex32": float16}.get(self.name, self)

    def to_complex(self) -> dtype:
        """Returns the complex dtype of the same precision."""
        real = {"float16": "complex32", "float32": "complex64", "float64": "complex128", "bfloat16": "complex64"}
        if self.is_complex:
            return self
        if self in _NO_RANGE:
            raise RuntimeError(f"Unknown Complex ScalarType for {self.name}")
        return _BY_NAME[real.get(self.name, "complex64")]

    def __deepcopy__(self, memo):
        return self

    def __copy__(self):
        return self


def _lookup(name):
    return _BY_NAME[name]


def _make(name: str, base: Any, bits: int, np_type: DTypeLike) -> dtype:
    def __init__(self):
        base.__init__(self, bits) if bits else base.__init__(self)

    def __reduce__(self):
        return _lookup, (name,)

    # One class per dtype: its properties are class attributes, because MindSpore's class has
    # read-only properties of these names.
    cls = type("dtype", (dtype, base), {
        "__init__": __init__, "__reduce__": __reduce__, "__hash__": base.__hash__, "__eq__": _equal(base),
        "__ne__": _not_equal(base), "__module__": "torch", "__repr__": dtype.__repr__, "__str__": dtype.__repr__,
        "name": name, "np": None if np_type is None else np.dtype(np_type), "native": base(bits) if bits else base(),
        "itemsize": max(bits // 8, 1), "is_floating_point": name.startswith(("float", "bfloat")),
        "is_complex": name.startswith("complex"), "is_signed": not name.startswith(("uint", "bool"))})
    t = cls()
    _BY_NAME[name] = t
    if t.np is not None:
        _BY_NP[t.np] = t
    return t


def _equal(base):
    def __eq__(self, other):
        if self is other:
            return True
        if isinstance(other, dtype) or not isinstance(other, ms_typing.Type):
            return False
        return base.__eq__(self, other)
    return __eq__


def _not_equal(base):
    equal = _equal(base)

    def __ne__(self, other):
        return not equal(self, other)
    return __ne__


_BY_NAME: dict[str, dtype] = {}
_BY_NP: dict[NpDtype, dtype] = {}
_T = ms_typing
float16 = half = _make("float16", _T.Float, 16, np.float16)
float32 = _make("float32", _T.Float, 32, np.float32)
float64 = double = _make("float64", _T.Float, 64, np.float64)
bfloat16 = _make("bfloat16", _T.BFloat, 16, bfloat16_np)
int8 = _make("int8", _T.Int, 8, np.int8)
int16 = short = _make("int16", _T.Int, 16, np.int16)
int32 = _make("int32", _T.Int, 32, np.int32)
int64 = long = _make("int64", _T.Int, 64, np.int64)
uint8 = _make("uint8", _T.UInt, 8, np.uint8)
uint16 = _make("uint16", _T.UInt, 16, np.uint16)
uint32 = _make("uint32", _T.UInt, 32, np.uint32)
uint64 = _make("uint64", _T.UInt, 64, np.uint64)
bool_ = _make("bool", _T.Bool, 0, np.bool_)
complex64 = cfloat = _make("complex64", _T.Complex, 64, np.complex64)
complex128 = cdouble = _make("complex128", _T.Complex, 128, np.complex128)

#: PyTorch's names -> dtype; what the facade exports.
NAMES = {"float16": float16, "half": half, "float32": float32, "float": float32, "float64": float64, "double": double,
         "bfloat16": bfloat16, "int8": int8, "int16": int16, "short": short, "int32": int32, "int": int32,
         "int64": int64, "long": long, "uint8": uint8, "uint16": uint16, "uint32": uint32, "uint64": uint64,
         "bool": bool_, "complex64": complex64, "cfloat": cfloat, "complex128": complex128, "cdouble": cdouble}


class _UnsupportedDtype(dtype):
    """A PyTorch dtype without kernels: it prints, compares and has properties only."""

    def __init__(self, name, itemsize, floating, is_complex, signed):
        self.name, self.itemsize = name, itemsize
        self.is_floating_point, self.is_complex, self.is_signed = floating, is_complex, signed

    @property
    def np(self):
        raise NotImplementedError(f"dtype torch.{self.name} is not supported on device cpu: MindSpore has no kernels for it")

    native = np

    def __reduce__(self):
        return _lookup, (self.name,)


for _n, _i, _f, _c, _s in [("complex32", 4, False, True, True), ("float8_e4m3fn", 1, True, False, True),
                           ("float8_e5m2", 1, True, False, True), ("float8_e4m3fnuz", 1, True, False, True),
                           ("float8_e5m2fnuz", 1, True, False, True), ("float8_e8m0fnu", 1, True, False, True),
                           ("float4_e2m1fn_x2", 1, True, False, True),
                           ("qint8", 1, False, False, True), ("quint8", 1, False, False, False),
                           ("qint32", 4, False, False, True), ("quint4x2", 1, False, False, False),
                           ("quint2x4", 1, False, False, False),
                           *[(f"uint{i}", 1, False, False, False) for i in range(1, 8)],
                           *[(f"int{i}", 1, False, False, True) for i in range(1, 8)],
                           ("bits8", 1, False, False, False), ("bits16", 2, False, False, False), ("bits1x8", 1, False, False, False),
                           ("bits2x4", 1, False, False, False), ("bits4x2", 1, False, False, False)]:
    NAMES[_n] = _BY_NAME[_n] = _UnsupportedDtype(_n, _i, _f, _c, _s)
NAMES["chalf"] = NAMES["complex32"]
NAMES["bit"] = NAMES["uint1"]
#: Dtypes without a range of values: torch.iinfo and torch.finfo raise for them.
_NO_RANGE = frozenset([NAMES[_n] for _n in (*[f"{_k}{_i}" for _k in ("uint", "int") for _i in range(1, 8)],
                                            "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2")])


def of_np(np_dtype: DTypeLike) -> dtype:
    """Returns the torch.dtype of a NumPy dtype; TypeError if PyTorch has none (strings)."""
    try:
        return _BY_NP[np_dtype]         # type: ignore[index]
    except KeyError:
        d = np.dtype(np_dtype)
        if d in _BY_NP:
            return _BY_NP[d]
        if d.newbyteorder("=") in _BY_NP:
            raise ValueError("given numpy array has byte order different from the native byte order. Conversion between "
                             "byte orders is currently not supported.") from None
        raise TypeError(
            f"can't convert np.ndarray of type {d}. The only supported types are: float64, float32, float16, "
            "complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool.") from None


def as_np(d: Any) -> NpDtype:
    """Returns the NumPy dtype of a torch.dtype, MindSpore dtype or Python scalar class."""
    try:
        return d.np
    except AttributeError:
        pass
    if d is float:
        return np.dtype(np.float64)
    if d is int:
        return np.dtype(np.int64)
    if d is bool:
        return np.dtype(np.bool_)
    if d is complex:
        return np.dtype(np.complex128)
    if isinstance(d, ms_typing.Type):
        for t in _BY_NP.values():
            if t == d:
                return t.np
    raise TypeError(f"dtype must be torch.dtype, not {type_name(d)}")


_default = float32


def get_default_dtype() -> dtype:
    """Returns the floating-point dtype of new tensors without an explicit one.

    See https://pytorch.org/docs/stable/generated/torch.get_default_dtype.html.
    """
    return _default


def set_default_dtype(d: dtype) -> None:
    """Sets the default floating-point dtype.

    TypeError unless `d` is a supported floating-point torch.dtype.
    """
    global _default
    if not isinstance(d, dtype) or not d.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    as_np(d)  # raises for dtypes without kernels
    _default = d


def default_np() -> NpDtype:
    return _default.np


def default_complex_np() -> NpDtype:
    return np.dtype(np.complex128) if _default is float64 else np.dtype(np.complex64)


#: Element types as used below the facade: objects with `kind` ("b", "i", "u", "f", "c"; "V" is
#: bfloat16), `itemsize` and `name`, one per dtype. They are NumPy dtypes, since NumPy arrays carry
#: them; code above core does not depend on that.
F16, F32, F64, BF16 = float16.np, float32.np, float64.np, bfloat16.np
C64, C128 = complex64.np, complex128.np
I8, I16, I32, I64, BOOL = int8.np, int16.np, int32.np, int64.np, bool_.np
U8, U16, U32, U64 = uint8.np, uint16.np, uint32.np, uint64.np
LOW = (F16, BF16)
#: Classes of NumPy scalars.
NUMBER_TYPES = (np.number, np.bool_)


# ------------------------------------------------------------------ finfo / iinfo
#
# Maximum, eps and smallest normal value of formats without kernels: libraries read them at import.
_FLOAT8 = {"float8_e4m3fn": (448.0, 0.125, 2.0 ** -6), "float8_e4m3fnuz": (240.0, 0.125, 2.0 ** -7),
           "float8_e5m2": (57344.0, 0.25, 2.0 ** -14), "float8_e5m2fnuz": (57344.0, 0.125, 2.0 ** -15),
           "float8_e8m0fnu": (2.0 ** 127, 1.0, 2.0 ** -127)}


class finfo:
    """Numerical properties of a floating-point dtype.

    See https://pytorch.org/docs/stable/type_info.html#torch.finfo.
    """

    def __init__(self, type=None):
        d = type if type is not None else _default
        if not isinstance(d, dtype) or not (d.is_floating_point or d.is_complex):
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{d}'")
        d = d.to_real()
        self.dtype = d.name
        if d is bfloat16:
            self.bits, self.eps, self.resolution = 16, 2.0 ** -7, 0.01
            self.max, self.tiny = (2.0 - 2.0 ** -7) * 2.0 ** 127, 2.0 ** -126
        elif d.name in _FLOAT8:
            self.bits, self.resolution = 8, 1.0
            self.max, self.eps, self.tiny = _FLOAT8[d.name]
        else:
            i = np.finfo(d.np)
            self.bits, self.eps, self.resolution = int(i.bits), float(i.eps), float(i.resolution)
            self.max, self.tiny = float(i.max), float(i.tiny)
        self.min, self.smallest_normal = -self.max if d.name != "float8_e8m0fnu" else self.tiny, self.tiny

    def __repr__(self):
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
                f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})")

    def __eq__(self, other):
        return isinstance(other, finfo) and other.dtype == self.dtype

    def __hash__(self):
        return hash(self.dtype)


class iinfo:
    """Numerical properties of an integer dtype.

    See https://pytorch.org/docs/stable/type_info.html#torch.iinfo.
    """

    def __init__(self, type):
        if not isinstance(type, dtype) or type.is_floating_point or type.is_complex or type is bool_ or type in _NO_RANGE:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        i = np.iinfo(type.np)
        self.bits, self.min, self.max, self.dtype = int(i.bits), int(i.min), int(i.max), type.name

    def __repr__(self):
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"

    def __eq__(self, other):
        return isinstance(other, iinfo) and other.dtype == self.dtype

    def __hash__(self):
        return hash(self.dtype)


class CppNames(NamedTuple):
    """The names that PyTorch's error messages use for a dtype."""

    #: at::ScalarType: "Long"
    scalar: str
    #: the C++ type as PyTorch registers it: "long long"
    type: str
    #: the C++ type as the compiler prints it: "long int"
    spelled: str
    #: the legacy tensor type: "torch.LongTensor"
    tensor: str


#: NumPy's name of a dtype -> its names in C++
CPP_NAMES = {
    "float32": CppNames("Float", "float", "float", "torch.FloatTensor"),
    "float64": CppNames("Double", "double", "double", "torch.DoubleTensor"),
    "int64": CppNames("Long", "long long", "long int", "torch.LongTensor"),
    "int32": CppNames("Int", "int", "int", "torch.IntTensor"),
    "int16": CppNames("Short", "short", "short int", "torch.ShortTensor"),
    "int8": CppNames("Char", "signed char", "signed char", "torch.CharTensor"),
    "uint8": CppNames("Byte", "unsigned char", "unsigned char", "torch.ByteTensor"),
    "bool": CppNames("Bool", "bool", "bool", "CPUBoolType"),
    "complex64": CppNames("ComplexFloat", "c10::complex<float>", "c10::complex<float>", "torch.ComplexFloatTensor"),
    "complex128": CppNames("ComplexDouble", "c10::complex<double>", "c10::complex<double>", "torch.ComplexDoubleTensor"),
    "float16": CppNames("Half", "c10::Half", "c10::Half", "torch.HalfTensor"),
    "bfloat16": CppNames("BFloat16", "c10::BFloat16", "c10::BFloat16", "torch.BFloat16Tensor"),
    "uint16": CppNames("UInt16", "uint16", "uint16", "UInt16"),
    "uint32": CppNames("UInt32", "uint32", "uint32", "UInt32"),
    "uint64": CppNames("UInt64", "uint64", "uint64", "UInt64"),
}


def cpp_names(d: NpDtype) -> CppNames:
    """Returns the names of a NumPy dtype in C++; NumPy's name for a dtype that PyTorch has not."""
    return CPP_NAMES.get(d.name) or CppNames(d.name, d.name, d.name, d.name)
