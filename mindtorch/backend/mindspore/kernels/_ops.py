"""Elementwise operations on handles and Python scalars, for either target: building blocks of
kernels with several steps.

On MindSpore's CPU target they use the fastest primitive that is correct: Add 16 us, Mul 32, Greater
17 vs Less 31, NotEqual 18, Select 17.
"""
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from mindtorch.backend.mindspore.kernels._call import (ASCEND, FLOATING, HALF, STATE, G, P, all_of, broadcast, cast, copied, dtype_of, from_contiguous, full,
                                                       host_span, mint, ms, Number, number, op, shape_of)
from mindtorch.backend.mindspore.private import bfloat16_np, from_array
from mindtorch.backend.mindspore.recorder_api import plain as known

#: Python scalars, and those that a graph gets as arguments
SCALAR_TYPES = (int, float, bool, complex, Number)


#: number of elements from which operands are expanded to one shape first (CPU target)
_LARGE = 2048


def scalar_like(v, x):
    """Returns a scalar as a read-only operand for x.

    (In graphs a 0-d tensor is as fast or faster. 16x32x32x32, full shape vs 0-d: Maximum 347 us vs
    214 us, Mul 110 us vs 83 us, the others equal.)
    """
    if not ASCEND and STATE.on is None and v.__class__ is not Number:
        shape = shape_of(x)
        if math.prod(shape) >= _LARGE:
            return all_of(v, x) if v.__class__ is not complex and v in (0, 1) and math.copysign(1, v) > 0 else full(shape, v, dtype_of(x))
    return number(v, dtype_of(x))


def alike(*xs: Any) -> Any:
    """Expands tensors to their common shape for a primitive of the CPU target.

    A primitive takes 10 to 15 ns per element if the shapes differ, and 0.6 ns if not. 512x512 and a
    row: 3900 us, with the row expanded first 230 us; 512x512 and a scalar: 600 us vs 250 us.
    """
    shapes = [shape_of(x) for x in xs]
    first = shapes[0]
    for s in shapes:
        if s != first:
            break
    else:
        return xs
    if max([math.prod(s) for s in shapes]) < _LARGE:
        return xs
    shape = np.broadcast_shapes(*shapes)
    return [x if s == shape else copied(broadcast(x, shape)) for x, s in zip(xs, shapes)]


def two(a: Any, b: Any) -> Any:
    """Returns both operands as tensors; a scalar gets the dtype of the other operand."""
    if a.__class__ in SCALAR_TYPES:
        return scalar_like(a, b), b
    if b.__class__ in SCALAR_TYPES:
        return a, scalar_like(b, a)
    return (a, b) if ASCEND else alike(a, b)


def _of_two(prim):
    def f(a, b):
        if a.__class__ in SCALAR_TYPES:
            a = scalar_like(a, b)
        elif b.__class__ in SCALAR_TYPES:
            b = scalar_like(b, a)
        elif not ASCEND and shape_of(a) != shape_of(b):
            a, b = alike(a, b)
        return prim(a, b)
    return f


def _by_bool(f, on_bools):
    return lambda a, b: (on_bools if dtype_of(a if a.__class__ not in SCALAR_TYPES else b) is ms.bool_ else f)(a, b)


if ASCEND:
    and_, or_, xor = _of_two(mint.logical_and), _of_two(mint.logical_or), _of_two(mint.logical_xor)
    add, mul = _by_bool(mint.add, or_), _by_bool(mint.mul, and_)
    sub, div, quotient = mint.sub, mint.div, mint.div
    maximum, minimum = _of_two(mint.maximum), _of_two(mint.minimum)
    eq, ne, lt, le, gt, ge = [_of_two(f) for f in (mint.eq, mint.ne, mint.lt, mint.le, mint.gt, mint.ge)]
    not_, isnan = mint.logical_not, lambda x: mint.ne(x, x)
    neg, abs_, exp, expm1, log, log1p, sqrt, rsqrt = mint.neg, mint.abs, mint.exp, mint.expm1, mint.log, mint.log1p, mint.sqrt, mint.rsqrt
    reciprocal, square, tanh, sigmoid, erf, erfc = mint.reciprocal, mint.square, mint.tanh, mint.sigmoid, mint.erf, mint.erfc
    sin, cos, floor, trunc, sign, pow_ = mint.sin, mint.cos, mint.floor, mint.trunc, mint.sign, mint.pow
    rint = mint.round

    def at_least(x: Any, v: Any) -> Any:
        """Returns max(x, v) for a scalar v; nan stays."""
        return mint.clamp(x, v, None)

    def at_most(x: Any, v: Any) -> Any:
        """Returns min(x, v) for a scalar v; nan stays."""
        return mint.clamp(x, None, v)

    def where(mask: Any, a: Any, b: Any) -> Any:
        """Returns a where the mask is set, else b; the operands broadcast."""
        return mint.where(mask, *two(a, b))
else:
    and_, or_, xor = _of_two(P.LogicalAnd()), _of_two(P.LogicalOr()), _of_two(P.LogicalXor())
    add, mul = _by_bool(_of_two(P.Add()), or_), _by_bool(_of_two(P.Mul()), and_)

    def _by_size(small, large):
        return lambda a, b: (small if math.prod(shape_of(a)) < _LARGE else large)(a, b)

    # Sub and RealDiv delay the next launch by 27 us. SubExt (28 us) and Div (33 us) do not, but
    # take two to three times as long on large tensors.
    _sub_ext = op(G.SubExt)
    sub = _of_two(_by_size(lambda a, b: _sub_ext(a, b, 1), P.Sub()))
    quotient = _of_two(_by_size(P.Div(), P.RealDiv()))
    _max, _min = P.Maximum(), P.Minimum()
    eq, ne, gt, ge, le = [_of_two(p()) for p in (P.Equal, P.NotEqual, P.Greater, P.GreaterEqual, P.LessEqual)]
    _ne, _select = P.NotEqual(), P.Select()
    not_, neg, abs_, sqrt, rsqrt = P.LogicalNot(), P.Neg(), P.Abs(), P.Sqrt(), P.Rsqrt()
    reciprocal, square, erf, erfc = P.Reciprocal(), P.Square(), P.Erf(), P.Erfc()
    sin, cos, floor, trunc, sign, rint = P.Sin(), P.Cos(), P.Floor(), P.Trunc(), P.Sign(), P.Round()
    pow_ = _of_two(P.Pow())

    def lt(a: Any, b: Any) -> Any:
        return gt(b, a)

    def isnan(x: Any) -> Any:
        return _ne(x, x)

    def div(a: Any, b: Any) -> Any:
        """Returns a / b of floating dtypes.

        (RealDiv treats a divisor -0.0 as 0.0. `quotient` is for nonzero divisors: 24 us vs 106 us.)
        """
        if b.__class__ in SCALAR_TYPES:
            # With a scalar divisor of 0, RealDiv turns nan into -inf.
            return quotient(a, b) if b else mul(a, math.copysign(math.inf, known(b).real))
        if dtype_of(b) not in FLOATING:
            return quotient(a, b)
        return where(ne(b, 0), quotient(a, b), mul(a, reciprocal(b)))

    def maximum(a: Any, b: Any) -> Any:
        """Returns the maximum; nan if an operand is nan. (Maximum returns b where a is nan.)"""
        a, b = alike(a, b)
        r = _max(a, b)
        return _select(_ne(a, a), a, r) if dtype_of(a) in FLOATING else r

    def minimum(a: Any, b: Any) -> Any:
        """Returns the minimum; nan if an operand is nan."""
        if dtype_of(a) is ms.bool_:
            return and_(a, b)
        a, b = alike(a, b)
        r = _min(a, b)
        return _select(_ne(a, a), a, r) if dtype_of(a) in FLOATING else r

    def at_least(x: Any, v: Any) -> Any:
        """Returns max(x, v) for a scalar v; nan stays."""
        return _max(scalar_like(v, x), x)

    def at_most(x: Any, v: Any) -> Any:
        """Returns min(x, v) for a scalar v; nan stays."""
        return _min(scalar_like(v, x), x)

    def where(mask: Any, a: Any, b: Any) -> Any:
        """Returns a where the mask is set, else b; the operands broadcast."""
        if a.__class__ in SCALAR_TYPES:
            a = number(a, dtype_of(b))
        elif b.__class__ in SCALAR_TYPES:
            b = number(b, dtype_of(a))
        return _select(*alike(mask, a, b))

    def doubled(prim: Any) -> Any:
        """Returns a function of one operand that computes in float64: MindSpore's float32 kernel is
        too inaccurate."""
        def f(x):
            d = dtype_of(x)
            return cast(prim(cast(x, ms.float64)), d) if d in FLOATING and d is not ms.float64 else prim(x)
        return f

    # Errors in float32: Exp 5e-6 (2e-5 at the ends), Sigmoid 2e-6, Log 4e-4 near 1. In a spline
    # flow they grow to 3e-4.
    exp, log, sigmoid = doubled(P.Exp()), doubled(P.Log()), doubled(P.Sigmoid())

    def _expm1(x):
        """Computes exp(x) - 1 as 2 sinh(x / 2) exp(x / 2), and directly where those overflow."""
        h = mul(x, 0.5)
        return where(gt(x, -1), mul(mul(_sinh(at_least(h, -0.5)), exp(h)), 2), sub(exp(x), 1))

    def _log1p(x):
        """Computes log(1 + x) as 2 atanh(x / (x + 2)), and directly where the sum loses no digits.
        """
        return where(gt(abs_(x), 0.5), log(add(x, 1)), log1p_small(x))

    def log1p_small(x: Any) -> Any:
        """Returns log(1 + x) for float64 up to 1."""
        return mul(_atanh(quotient(x, add(x, 2))), 2)

    # Tanh of float32 has an error of 1e-4 near 5. Expm1 and Log1p compute exp(x) - 1 and log(1 +
    # x), which have no correct digits near 0.
    _sinh, _atanh = P.Sinh(), P.Atanh()
    tanh, expm1, log1p = doubled(P.Tanh()), doubled(_expm1), doubled(_log1p)


def masked(x: Any, mask: Any) -> Any:
    """Returns x where the mask is set, else 0."""
    return where(mask, x, 0)


# ------------------------------------------------------------------ 16 bits on MindSpore's CPU target
def _as_bits(x):
    """Returns bfloat16 memory as int16 (in a graph: the values as float32); anything else
    unchanged."""
    if isinstance(x, SCALAR_TYPES) or x is None or dtype_of(x) is not ms.bfloat16:
        return x
    return from_array(host_span(x).view(np.int16)) if STATE.on is None else cast(x, ms.float32)


def by_bits(fn: Any) -> Any:
    """Wraps a kernel that only moves values. MindSpore's CPU target has hardly any for bfloat16, so
    bfloat16 is passed as int16."""
    if ASCEND:
        return fn

    @functools.wraps(fn)
    def run(*args, **kw):
        if not any([x is not None and x.__class__ not in SCALAR_TYPES and dtype_of(x) is ms.bfloat16 for x in args]):
            return fn(*args, **kw)
        r = fn(*[_as_bits(x) for x in args], **kw)
        return from_contiguous(host_span(r).view(bfloat16_np)) if STATE.on is None else cast(r, ms.bfloat16)
    return run


def upcast(x: Any) -> Any:
    """Returns x in the dtype that a `raw` primitive's kernel computes with: on the CPU target
    float32 for float16 and bfloat16."""
    return x if ASCEND or x is None or x.__class__ in SCALAR_TYPES or dtype_of(x) not in HALF else cast(x, ms.float32)


def in_double(fn: Any) -> Any:
    """Wraps a kernel that computes in float64 on the CPU target, because some of its steps are too
    inaccurate in float32."""
    if ASCEND:
        return fn

    @functools.wraps(fn)
    def run(*args, **kw):
        d = dtype_of(args[0])
        if d is not ms.float32:
            return fn(*args, **kw)
        return cast(fn(*[x if x is None or x.__class__ in SCALAR_TYPES else cast(x, ms.float64) for x in args], **kw), d)
    return run


def complex_size(a):
    """Returns |a| of complex numbers.

    All kernels use this function: gradients compare magnitudes with those that another kernel has
    computed.
    """
    # ComplexAbs overflows when it squares a part.
    return op(P.Hypot)(op(P.Real)(a), op(P.Imag)(a))
