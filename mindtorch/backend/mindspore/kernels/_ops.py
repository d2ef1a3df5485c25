"""Elementwise operations on handles and Python numbers, for whichever target: what kernels of several steps are made of.

On MindSpore's CPU target the quickest primitive that is right: Add 16 us, Mul 32, Greater 17 where Less takes 31, NotEqual 18, Select 17.
"""
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from mindtorch.backend.mindspore.kernels._call import (ASCEND, FLOATING, HALF, STATE, G, P, all_of, broadcast, cast, copied, dtype_of, from_contiguous, full,
                                                       host_span, mint, ms, Number, number, op, shape_of)
from mindtorch.backend.mindspore.private import bfloat16_np, from_array
from mindtorch.backend.mindspore.recording import plain as known

#: Python's, and those that a graph gets as arguments
NUMBERS = (int, float, bool, complex, Number)


#: elements from which on operands are brought to one shape before (CPU target)
_LARGE = 2048


def spread(v, x):
    """A number beside a tensor, for reading only.

    (In graphs one of no dimensions is as quick or quicker: 16x32x32x32, us: Maximum 347 and 214, Mul 110 and 83, the others alike.)
    """
    if not ASCEND and STATE.on is None and v.__class__ is not Number:
        shape = shape_of(x)
        if math.prod(shape) >= _LARGE:
            return all_of(v, x) if v.__class__ is not complex and v in (0, 1) and math.copysign(1, v) > 0 else full(shape, v, dtype_of(x))
    return number(v, dtype_of(x))


def alike(*xs: Any) -> Any:
    """Tensors that broadcast, for a primitive of the CPU target: that walks through them at 10 to 15 ns an element where their shapes differ, 0.6 where not.

    512x512 and a row: 3900 us, with the row spread before 230; and a number: 600, 250.
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
    """Both as tensors: a number in the dtype of the other."""
    if a.__class__ in NUMBERS:
        return spread(a, b), b
    if b.__class__ in NUMBERS:
        return a, spread(b, a)
    return (a, b) if ASCEND else alike(a, b)


def _of_two(prim):
    def f(a, b):
        if a.__class__ in NUMBERS:
            a = spread(a, b)
        elif b.__class__ in NUMBERS:
            b = spread(b, a)
        elif not ASCEND and shape_of(a) != shape_of(b):
            a, b = alike(a, b)
        return prim(a, b)
    return f


def _by_bool(f, on_bools):
    return lambda a, b: (on_bools if dtype_of(a if a.__class__ not in NUMBERS else b) is ms.bool_ else f)(a, b)


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
        """max(x, v) with a number v; nan stays."""
        return mint.clamp(x, v, None)

    def at_most(x: Any, v: Any) -> Any:
        """min(x, v) with a number v; nan stays."""
        return mint.clamp(x, None, v)

    def where(mask: Any, a: Any, b: Any) -> Any:
        """a where the mask is set, else b; they broadcast."""
        return mint.where(mask, *two(a, b))
else:
    and_, or_, xor = _of_two(P.LogicalAnd()), _of_two(P.LogicalOr()), _of_two(P.LogicalXor())
    add, mul = _by_bool(_of_two(P.Add()), or_), _by_bool(_of_two(P.Mul()), and_)

    def _by_size(small, large):
        return lambda a, b: (small if math.prod(shape_of(a)) < _LARGE else large)(a, b)

    # (Sub and RealDiv make whatever comes after them wait 27 us; SubExt, 28 us, and Div, 33, do not, but take two to three times as long on many elements.)
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
        """a / b of floating dtypes.  (RealDiv takes a divisor -0.0 for 0.0; `quotient` is for divisors that are not nought: 24 us against 106.)"""
        if b.__class__ in NUMBERS:
            # (By a single 0, RealDiv makes -inf of nan.)
            return quotient(a, b) if b else mul(a, math.copysign(math.inf, known(b).real))
        if dtype_of(b) not in FLOATING:
            return quotient(a, b)
        return where(ne(b, 0), quotient(a, b), mul(a, reciprocal(b)))

    def maximum(a: Any, b: Any) -> Any:
        """The greater; nan beside nan.  (Maximum gives b where a is nan.)"""
        a, b = alike(a, b)
        r = _max(a, b)
        return _select(_ne(a, a), a, r) if dtype_of(a) in FLOATING else r

    def minimum(a: Any, b: Any) -> Any:
        """The lesser; nan beside nan."""
        if dtype_of(a) is ms.bool_:
            return and_(a, b)
        a, b = alike(a, b)
        r = _min(a, b)
        return _select(_ne(a, a), a, r) if dtype_of(a) in FLOATING else r

    def at_least(x: Any, v: Any) -> Any:
        """max(x, v) with a number v; nan stays."""
        return _max(spread(v, x), x)

    def at_most(x: Any, v: Any) -> Any:
        """min(x, v) with a number v; nan stays."""
        return _min(spread(v, x), x)

    def where(mask: Any, a: Any, b: Any) -> Any:
        """a where the mask is set, else b; they broadcast."""
        if a.__class__ in NUMBERS:
            a = number(a, dtype_of(b))
        elif b.__class__ in NUMBERS:
            b = number(b, dtype_of(a))
        return _select(*alike(mask, a, b))

    def doubled(prim: Any) -> Any:
        """A function of one operand computed in float64: in float32 MindSpore's kernel is too far off."""
        def f(x):
            d = dtype_of(x)
            return cast(prim(cast(x, ms.float64)), d) if d in FLOATING and d is not ms.float64 else prim(x)
        return f

    # (Of float32, Exp is 5e-6 off, 2e-5 at the ends, Sigmoid 2e-6; Log is 4e-4 off near 1.  A flow of splines makes 3e-4 of that.)
    exp, log, sigmoid = doubled(P.Exp()), doubled(P.Log()), doubled(P.Sigmoid())

    def _expm1(x):
        """2 sinh(x / 2) exp(x / 2), and exp(x) - 1 where those overflow."""
        h = mul(x, 0.5)
        return where(gt(x, -1), mul(mul(_sinh(at_least(h, -0.5)), exp(h)), 2), sub(exp(x), 1))

    def _log1p(x):
        """2 atanh(x / (x + 2)), and log(x + 1) where the sum loses nothing."""
        return where(gt(abs_(x), 0.5), log(add(x, 1)), log1p_small(x))

    def log1p_small(x: Any) -> Any:
        """log(1 + x) for float64 up to 1."""
        return mul(_atanh(quotient(x, add(x, 2))), 2)

    # (Tanh of float32 is 1e-4 off near 5; Expm1 and Log1p are exp(x) - 1 and log(1 + x): without digits near 0.)
    _sinh, _atanh = P.Sinh(), P.Atanh()
    tanh, expm1, log1p = doubled(P.Tanh()), doubled(_expm1), doubled(_log1p)


def masked(x: Any, mask: Any) -> Any:
    """x where the mask is set, else 0."""
    return where(mask, x, 0)


# ------------------------------------------------------------------ 16 bits on MindSpore's CPU target
def _as_bits(x):
    """The same memory as whole numbers."""
    if isinstance(x, NUMBERS) or x is None or dtype_of(x) is not ms.bfloat16:
        return x
    return from_array(host_span(x).view(np.int16)) if STATE.on is None else cast(x, ms.float32)


def by_bits(fn: Any) -> Any:
    """A kernel that only moves values: MindSpore's CPU target has hardly one for bfloat16, so it gets those as int16."""
    if ASCEND:
        return fn

    @functools.wraps(fn)
    def run(*args, **kw):
        if not any([x is not None and x.__class__ not in NUMBERS and dtype_of(x) is ms.bfloat16 for x in args]):
            return fn(*args, **kw)
        r = fn(*[_as_bits(x) for x in args], **kw)
        return from_contiguous(host_span(r).view(bfloat16_np)) if STATE.on is None else cast(r, ms.bfloat16)
    return run


def wide(x: Any) -> Any:
    """What a `raw` primitive's kernel computes with: float16 and bfloat16 as float32, on the CPU target."""
    return x if ASCEND or x is None or x.__class__ in NUMBERS or dtype_of(x) not in HALF else cast(x, ms.float32)


def in_double(fn: Any) -> Any:
    """A kernel that computes in float64 on the CPU target, because steps of it are too far off in float32."""
    if ASCEND:
        return fn

    @functools.wraps(fn)
    def run(*args, **kw):
        d = dtype_of(args[0])
        if d is not ms.float32:
            return fn(*args, **kw)
        return cast(fn(*[x if x is None or x.__class__ in NUMBERS else cast(x, ms.float64) for x in args], **kw), d)
    return run


def complex_size(a):
    """|a| of complex numbers, for every kernel that needs it: gradients look for elements of a size that another kernel has found."""
    # (ComplexAbs overflows at the square of a part.)
    return op(P.Hypot)(op(P.Real)(a), op(P.Imag)(a))
