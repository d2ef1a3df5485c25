"""Elementwise functions of one operand."""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import (mint, ASCEND, COMPLEX, FLOATING, G, UnsupportedByKernel, P, broadcast, cast, copied, dtype_of, full,
                                                       kernel, ms, op, shape_of)
from mindtorch.backend.mindspore.kernels.ascend import ALL_FLOATS, COMPLEXES, CUBE, tensor_of

FLOATS = "float32 float64" if not ASCEND else "float32 float64 float16 bfloat16"
SMOOTH = FLOATS + " complex64 complex128"


# ------------------------------------------------------------------ one MindSpore call each
def _own(fn):
    """Returns a separate function object, because kernels carry attributes."""
    return lambda a: fn(a)


for _name, _prim, _only in (
        ("neg", o.neg, None), ("exp", o.exp, SMOOTH), ("log", o.log, SMOOTH), ("sqrt", o.sqrt, SMOOTH), ("rsqrt", o.rsqrt, SMOOTH),
        ("reciprocal", o.reciprocal, SMOOTH), ("square", o.square, None), ("sin", o.sin, SMOOTH), ("cos", o.cos, SMOOTH), ("tanh", o.tanh, SMOOTH),
        ("sigmoid", o.sigmoid, SMOOTH), ("expm1", o.expm1, FLOATS), ("log1p", o.log1p, FLOATS), ("floor", o.floor, FLOATS), ("trunc", o.trunc, FLOATS),
        ("isnan", o.isnan, None)):
    kernel(_name, _own(_prim), only=_only)
for _name, _prim, _only in (("tan", P.Tan, SMOOTH), ("asin", P.Asin, SMOOTH), ("acos", P.ACos, SMOOTH), ("atan", P.Atan, SMOOTH), ("sinh", P.Sinh, SMOOTH),
                            ("cosh", P.Cosh, SMOOTH), ("asinh", P.Asinh, SMOOTH), ("acosh", P.Acosh, SMOOTH), ("atanh", P.Atanh, SMOOTH),
                            ("ceil", P.Ceil, FLOATS)):
    kernel(_name, _own(getattr(mint, _name) if ASCEND else _prim()), only=_only)

# On Ascend, without a conversion of the operand.
for _name, _prim in {"exp": G.Exp, "sqrt": G.Sqrt, "rsqrt": G.Rsqrt, "tanh": G.Tanh, "sigmoid": G.Sigmoid, "sin": G.Sin, "cos": G.Cos, "erf": G.Erf,
                     "log": G.Log}.items():
    kernel(_name, (lambda p: lambda a: op(p)(a))(_prim), target="Ascend", only=CUBE if _name == "tanh" else ALL_FLOATS)
for _name, _prim in {"neg": G.Neg, "abs": G.Abs}.items():
    kernel(_name, (lambda p: lambda a: op(p)(a))(_prim), target="Ascend", only=ALL_FLOATS + " int64 int32" + (COMPLEXES if _name == "neg" else ""))
kernel("reciprocal", lambda a: op(G.Div)(tensor_of(1, a), a) if dtype_of(a) in COMPLEX else op(G.Reciprocal)(a), target="Ascend", only=ALL_FLOATS + COMPLEXES)


@kernel("abs")
def _abs(a):
    d = dtype_of(a)
    if d is ms.bool_:
        raise UnsupportedByKernel
    if d in COMPLEX and not ASCEND:
        return o.complex_size(a)
    return o.abs_(a)


def _logarithm(name, base):
    @kernel(name, only=FLOATS)
    @o.in_double
    def log(a):
        return getattr(mint, name)(a) if ASCEND else o.div(o.log(a), math.log(base))


_logarithm("log2", 2)
_logarithm("log10", 10)


kernel("exp2", lambda a: mint.exp2(a) if ASCEND else o.pow_(2.0, a), only=FLOATS)
kernel("deg2rad", lambda a: o.mul(a, math.pi / 180), only=FLOATS)
kernel("rad2deg", lambda a: o.mul(a, 180 / math.pi), only=FLOATS)


# ------------------------------------------------------------------ sign and rounding
@kernel("sgn sign")
def _sign(a):
    d = dtype_of(a)
    if d is ms.bool_:
        return copied(a)
    if d in (ms.int8, ms.int16, ms.uint8):
        return o.sub(cast(o.gt(a, 0), d), cast(o.lt(a, 0), d))
    if d in COMPLEX and ASCEND:
        raise UnsupportedByKernel
    return o.sign(a)


@kernel("signbit")
def _signbit(a):
    # The sign of a zero is the sign of its reciprocal.
    negative = o.lt(a, 0)
    return o.or_(negative, o.lt(o.reciprocal(a), 0)) if dtype_of(a) in FLOATING else negative


@kernel("round", only=FLOATS)
def _round(a, *, decimals):
    if decimals == 0:
        return o.rint(a)
    scale = 10.0 ** abs(decimals)
    return o.div(o.rint(o.mul(a, scale)), scale) if decimals > 0 else o.mul(o.rint(o.div(a, scale)), scale)


kernel("frac", lambda a: o.sub(a, o.trunc(a)), only=FLOATS)
kernel("frac", lambda a: op(G.Frac)(a), target="Ascend", only="float32 float16 bfloat16")


# ------------------------------------------------------------------ classification
def _never(a, answer=False):
    return full(shape_of(a), answer, ms.bool_)


@kernel("isinf")
def _isinf(a):
    d = dtype_of(a)
    if d in COMPLEX:
        raise UnsupportedByKernel
    if d not in FLOATING:
        return _never(a)
    return mint.isinf(a) if ASCEND else op(P.IsInf)(a)


@kernel("isfinite")
def _isfinite(a):
    d = dtype_of(a)
    if d in COMPLEX:
        raise UnsupportedByKernel
    if d not in FLOATING:
        return _never(a, True)
    return mint.isfinite(a) if ASCEND else op(P.IsFinite)(a)


kernel("isreal", lambda a: o.eq(op(P.Imag)(a), 0) if dtype_of(a) in COMPLEX else _never(a, True))
kernel("isposinf", lambda a: o.eq(a, math.inf) if dtype_of(a) in FLOATING else _never(a))
kernel("isneginf", lambda a: o.eq(a, -math.inf) if dtype_of(a) in FLOATING else _never(a))


@kernel("nan_to_num", only=FLOATS)
def _nan_to_num(a, *, nan, posinf, neginf):
    r = o.where(o.eq(a, math.inf), posinf, a)
    r = o.where(o.eq(a, -math.inf), neginf, r)
    return o.where(o.isnan(a), nan, r)


# ------------------------------------------------------------------ complex numbers
@kernel("angle")
def _angle(a):
    d = dtype_of(a)
    if d in COMPLEX:
        return op(P.Angle)(a)
    if d not in FLOATING:
        raise UnsupportedByKernel
    return o.where(o.lt(a, 0), math.pi, o.where(o.isnan(a), a, 0))


kernel("real_copy", lambda a: op(P.Real)(a) if dtype_of(a) in COMPLEX else copied(a))
kernel("conj conj_physical", lambda a: op(P.Conj)(a) if dtype_of(a) in COMPLEX else copied(a))


@kernel("complex", only="float32 float64")
def _complex(re, im):
    shape = np.broadcast_shapes(shape_of(re), shape_of(im))
    return op(P.Complex)(broadcast(re, shape), broadcast(im, shape))


kernel("polar", lambda abs, angle: _complex(o.mul(abs, o.cos(angle)), o.mul(abs, o.sin(angle))), only="float32 float64")
