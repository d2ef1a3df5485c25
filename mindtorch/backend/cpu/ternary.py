"""Kernels of elementwise ops on three operands: clamp, lerp, addcmul, addcdiv."""
import math

import numpy as np

from mindtorch.backend.cpu import kernel, large
from mindtorch.backend.cpu.half import upcast
from mindtorch.backend.cpu.pointwise import Loop, before, elementwise, limited, looped, plain

_F32 = np.dtype(np.float32)


# ------------------------------------------------------------------ clamp
def clamped(*, low, high):
    """Returns the parameters of the clamp loop for two bounds, each a Python scalar or None."""
    return plain(-math.inf if low is None else low, math.inf if high is None else high)


kernel("clamp_numbers", looped("clamp", clamped)(limited))


@kernel("within_numbers")
@elementwise
def _within(a, *, low, high):
    if a.dtype.kind == "V":
        a = a.astype(_F32)
    if low is None:
        return a <= high
    if high is None:
        return a >= low
    return (a >= low) & (a <= high)


@kernel("clamp_tensors")
@elementwise
def _clamp(a, low, high):
    if low is not None:
        a = np.maximum(a, low)
    return a if high is None else np.minimum(a, high)


# Masks that select where the gradient of clamp with tensor bounds goes.
@kernel("clamp_tensors_to_self")
@elementwise
def _to_self(a, low, high):
    if low is None:
        return a <= high
    return a >= low if high is None else (a >= low) & (a <= high)


@kernel("clamp_tensors_to_low")
@elementwise
def _to_low(a, low, high):
    return a < low if high is None else (a < low) & (low < high)


@kernel("clamp_tensors_to_high")
@elementwise
def _to_high(a, low, high):
    return a > high if low is None else (a > high) | (low > high)


# ------------------------------------------------------------------ lerp, addcmul, addcdiv
@kernel("lerp")
@looped("lerp")
@elementwise
@large.elementwise
def _lerp(a, b, w):
    d = b - a
    # Use the formula that is exact at the nearer end.
    return np.where(np.abs(w) < 0.5, a + w * d, b - d * (1 - w))


@kernel("lerp_number")
@looped("lerp_number", lambda weight: plain(weight))
@elementwise
def _lerp_number(a, b, *, weight):
    near = abs(weight) < 0.5
    r = b - a
    r *= np.array(weight if near else weight - 1, a.dtype)
    return np.add(r, a if near else b, out=r) if r.shape == (a if near else b).shape else r + (a if near else b)


def _plus_scaled(a, t, v):
    """Returns a + v * t, computed in the memory of `t` if it has the result's shape."""
    if v != 1:
        t *= v
    return np.add(a, t, out=t) if t.shape == a.shape else a + t


def _by_value(name):
    """Decorates a kernel with the C loop `name` over three operands; the loop's scalar comes from a
    0-dim array."""
    loop = Loop(name)

    def in_c(a, b, d, v):
        k = v.dtype.kind
        return None if v.ndim or k not in "fV" else loop(a, b, d, scalars=((upcast(v) if k == "V" else v).item(), 0.0, 0.0))
    return before(in_c)


@kernel("addcmul")
@_by_value("addcmul")
@elementwise
def _addcmul(a, b, d, v):
    return _plus_scaled(a, b * d, v)


@kernel("addcdiv")
@_by_value("addcdiv")
@elementwise
def _addcdiv(a, b, d, v):
    return _plus_scaled(a, b / d, v)
