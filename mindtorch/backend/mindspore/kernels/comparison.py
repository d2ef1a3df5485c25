"""Comparison, logical and bitwise ops, and ops with masks."""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import (ASCEND, COMPLEX, STATE, FLOATING, UnsupportedByKernel, P, broadcast, cast, copied, dtype_of, full,
                                                       kernel, mint, ms,
                                                       op, reshape, shape_of)
from mindtorch.backend.mindspore.kernels._index_utils import write

for _name, _fn in (("eq", o.eq), ("ne", o.ne), ("lt", o.lt), ("le", o.le), ("gt", o.gt), ("ge", o.ge), ("logical_and", o.and_), ("logical_or", o.or_),
                   ("logical_xor", o.xor)):
    kernel(_name, (lambda f: lambda a, b: f(a, b))(_fn), scalars=True)
kernel("logical_not", lambda a: o.not_(a))


# ------------------------------------------------------------------ closeness
_ORDERED = "float32 float64 int8 int16 int32 int64 uint8" + (" float16 bfloat16" if ASCEND else "")


@kernel("isclose", only=_ORDERED)
def isclose(a, b, *, rtol, atol, equal_nan):
    close = o.eq(a, b)
    floating = dtype_of(a) in FLOATING
    if floating and equal_nan:
        close = o.or_(close, o.and_(o.isnan(a), o.isnan(b)))
    if rtol == 0 and atol == 0:
        return close
    if not floating:
        a, b = cast(a, ms.float64), cast(b, ms.float64)
    diff = o.abs_(o.sub(a, b))
    allowed = o.add(o.mul(o.abs_(b), rtol), atol)
    return o.or_(close, o.and_(o.lt(diff, math.inf), o.le(diff, allowed)))


@kernel("allclose", only=_ORDERED)
def _allclose(a, b, *, rtol, atol, equal_nan):
    close = isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    return op(P.ReduceAll)(close, tuple(range(len(shape_of(close))))) if shape_of(close) else close


# ------------------------------------------------------------------ bitwise ops
def _bits(name, prim, on_ascend, on_bools):
    @kernel(name, scalars=True, only="bool int8 int16 int32 int64 uint8")
    def f(a, b):
        a, b = o.two(a, b)
        if dtype_of(a) is ms.bool_:
            return on_bools(a, b)
        return getattr(mint, on_ascend)(a, b) if ASCEND else op(prim)(a, b)


_bits("bitwise_and", P.BitwiseAnd, "bitwise_and", o.and_)
_bits("bitwise_or", P.BitwiseOr, "bitwise_or", o.or_)
_bits("bitwise_xor", P.BitwiseXor, "bitwise_xor", o.xor)


@kernel("bitwise_not", only="bool int8 int16 int32 int64 uint8")
def _not(a):
    if dtype_of(a) is ms.bool_:
        return o.not_(a)
    return mint.bitwise_not(a) if ASCEND else op(P.Invert)(a)


_BITS = {ms.int8: 8, ms.uint8: 8, ms.int16: 16, ms.int32: 32, ms.int64: 64}


def _fits(a, b):
    """True where a shift is non-negative and less than the bit width."""
    return o.and_(o.ge(b, 0), o.lt(b, _BITS[dtype_of(a)]))


@kernel("bitwise_left_shift", scalars=True, only="int8 int16 int32 int64 uint8", target="CPU")
def _shift_left(a, b):
    a, b = o.two(a, b)
    fits = _fits(a, b)
    return o.where(fits, op(P.LeftShift)(a, o.where(fits, b, 0)), 0)


@kernel("bitwise_right_shift", scalars=True, only="int8 int16 int32 int64 uint8", target="CPU")
def _shift_right(a, b):
    a, b = o.two(a, b)
    # An out-of-range or negative shift leaves copies of the sign bit, and 0 for an unsigned dtype.
    fits = _fits(a, b)
    r = op(P.RightShift)(a, o.where(fits, b, _BITS[dtype_of(a)] - 1))
    return o.where(fits, r, 0) if dtype_of(a) is ms.uint8 else r


kernel("gcd", lambda a, b: op(P.Gcd)(*o.two(a, b)), scalars=True, only="int32 int64", target="CPU")
# An overflowing result is made positive again, as in PyTorch.
kernel("lcm", lambda a, b: op(P.Abs)(op(P.Lcm)(*o.two(a, b))), scalars=True, only="int32 int64", target="CPU")


# ------------------------------------------------------------------ selection by masks, any dtype
kernel("where", o.by_bits(lambda condition, a, b: o.where(condition, a, b)), target="CPU")
kernel("where", lambda mask, a, b: mint.where(mask, a, b), target="Ascend")
kernel("mask_grad masked_pick", o.by_bits(lambda g, mask: o.masked(g, mask)))
kernel("masked_zero", o.by_bits(lambda a, mask: o.where(mask, 0, a)))


kernel("masked_fill", lambda a, value, mask: mint.where(mask, value, a), target="Ascend")


@kernel("masked_fill", target="CPU")
@o.by_bits
def _masked_fill(a, value, mask):
    return o.where(mask, value, a)


@kernel("fill_where")
def _fill_where(x, value, mask):
    """Writes a value where the mask is True, in place."""
    if ASCEND:
        x.masked_fill_(mask, value)
    else:
        write(x, _masked_fill(x, value, mask))


@kernel("masked_count", target="CPU")
def _masked_count(mask, *, shape, axes, keepdim):
    if 0 in shape:
        raise UnsupportedByKernel
    return op(P.ReduceSum, keepdim)(cast(broadcast(mask, shape), ms.int64), tuple(range(len(shape))) if axes is None else axes) if shape \
        else cast(mask, ms.int64)


# ------------------------------------------------------------------ masked select and scatter
kernel("masked_select", o.by_bits(lambda a, mask: mint.masked_select(a, mask) if ASCEND else op(P.MaskedSelect)(a, mask)), dynamic_shape=True)


def _scattered(r, mask, src):
    return op(P.MaskedScatter)(r, copied(broadcast(mask, shape_of(r))) if shape_of(mask) != shape_of(r) else mask, src)


@kernel("masked_select_backward", target="CPU", empty=True)
@o.by_bits
def _masked_select_backward(g, mask, *, size):
    if dtype_of(g) in COMPLEX:
        raise UnsupportedByKernel
    r = full(np.broadcast_shapes(size, shape_of(mask)), 0, dtype_of(g))
    return _scattered(r, mask, g) if 0 not in shape_of(g) and shape_of(r) else o.masked(g.view(()), mask) if 0 not in shape_of(g) else r


@kernel("masked_scatter", target="CPU")
@o.by_bits
def _masked_scatter(a, src, mask):
    shape = np.broadcast_shapes(shape_of(a), shape_of(mask))
    if dtype_of(a) in COMPLEX or not shape or math.prod(shape_of(src)) < math.prod(shape):
        raise UnsupportedByKernel  # whether src has enough elements depends on the values of the mask
    return _scattered(copied(broadcast(a, shape)), mask, src)


def _source_in_place(mask, g, size):
    """Computes `masked_source` inside a graph, where the number of selected elements is unknown. A
    selected element goes to its rank in the selection, and every other one to an extra element that
    is cut off."""
    n, d = math.prod(size), dtype_of(g)
    mask, g = reshape(mask, (-1,)), reshape(g, (-1,))
    at = op(P.Sub)(op(P.CumSum)(cast(mask, ms.int64), 0), full(shape_of(mask), 1, ms.int64))
    at = op(P.Select)(mask, at, full(shape_of(mask), n, ms.int64))
    r = op(P.TensorScatterAdd)(full((n + 1,), 0, d), reshape(at, (-1, 1)), g)
    return reshape(op(P.Slice)(r, (0,), (n,)), size)


@kernel("masked_source", target="CPU")
@o.by_bits
def _masked_source(g, mask, *, size):
    """Returns the elements that the mask selects, followed by zeros."""
    if STATE.on is not None:
        return _source_in_place(copied(broadcast(mask, shape_of(g))), g, size)
    selected = op(P.MaskedSelect)(g, mask)
    n, k = math.prod(size), shape_of(selected)[0]
    if k == n:
        return selected.view(tuple(size))
    left = full((n - k,), 0, dtype_of(g))
    return (op(P.Concat, 0)((selected, left)) if k else left).view(tuple(size))
