"""Dropout, with masks drawn on the device (`mindtorch/backend/mindspore/kernels/random.py`)."""
import dataclasses

import numpy as np

from mindtorch.backend.cpu.random import bernoulli_mask
from mindtorch.backend.kernels import flags_of, set_flags
from mindtorch.backend.mindspore.kernels import ASCEND
from mindtorch.backend.strides import contiguous_strides, drawing_order
from mindtorch.backend.mindspore.kernels._call import FLOATING, G, HALF, UnsupportedByKernel, P, cast, dtype_of, is_contiguous, kernel, ms, number, op, shape_of
from mindtorch.backend.mindspore.kernels.attention import weighed, weights_of
from mindtorch.backend.mindspore.kernels.random import drawn, keep_mask, rng_state
from mindtorch.backend.mindspore.recorder_api import new_buffer


# float16 and bfloat16 operands arrive unconverted (`half=True`). Their float32 copy would be in C
# order, but the host draws masks in the memory order of the operand.
def _upcast_dtype(x):
    """Returns the dtype in which x is computed."""
    return ms.float32 if dtype_of(x) in HALF and not ASCEND else dtype_of(x)


def _mask(x, keep, feature, generator):
    """Returns a mask of 1 and 0 in the dtype in which x is computed. It has the shape of x, or with
    `feature` of its first two dimensions."""
    shape = shape_of(x)
    if dtype_of(x) not in FLOATING or generator.on_host and not (feature or is_contiguous(x)):
        raise UnsupportedByKernel  # the host draws in memory order
    if feature:
        shape = shape[:2] + (1,) * (len(shape) - 2)
    return keep_mask(shape, keep, generator, _upcast_dtype(x))


def scaled(x, mask, scale):
    """Returns x * mask * scale. The mask holds 1 and 0, or bools."""
    d = _upcast_dtype(x)
    y = op(P.Mul)(cast(x, d), cast(mask, d))
    return cast(y if scale == 1 else op(P.Mul)(y, number(scale, d)), dtype_of(x))


@kernel("masked_scale", half=True, varying="scale")
def _masked_scale(x, mask, *, scale):
    if dtype_of(x) not in FLOATING:
        raise UnsupportedByKernel
    return scaled(x, mask, scale)


@kernel("dropout", half=True, varying="keep scale")
def _dropout(x, *, keep, scale, feature, generator):
    mask = _mask(x, keep, feature, generator)
    return scaled(x, mask, scale), cast(mask, dtype_of(x))


@kernel("alpha_dropout", half=True)
def _alpha_dropout(x, *, keep, a, slope, offset, feature, generator):
    mask = _mask(x, keep, feature, generator)
    return _alpha(x, mask, a=a, slope=slope, offset=offset), cast(mask, dtype_of(x))


def _alpha(x, mask, *, a, slope, offset):
    """Computes x * mask * a + (mask - 1) * slope + offset."""
    d = _upcast_dtype(x)
    mask = cast(mask, d)
    shift = op(P.Add)(op(P.Mul)(mask, number(slope, d)), number(offset - slope, d))
    return cast(op(P.Add)(op(P.Mul)(cast(x, d), op(P.Mul)(mask, number(a, d))), shift), dtype_of(x))


@kernel("native_dropout", half=True, varying="keep scale")
def _native_dropout(x, *, keep, scale, generator):
    return _native(x, _mask(x, keep, False, generator), scale=scale)


def _native(x, mask, *, scale):
    mask = cast(mask, _upcast_dtype(x))
    return scaled(x, mask, scale), op(P.NotEqual)(mask, number(0.0, dtype_of(mask)))


# ------------------------------------------------------------------ masks drawn on the host
class _Masked:
    """A dropout kernel in two parts: the host draws the mask, which does not depend on the values,
    and `kernel` applies it."""

    def __init__(self, kernel, constants, gives_mask=True):
        self.kernel, self.constants, self.gives_mask = kernel, constants.split(), gives_mask

    def draw(self, device, geometries, *, keep, generator, feature=False, **constants):
        """Returns a handle to the mask for operands of these geometries, or None if the kernel does
        not support them. The host draws in memory order."""
        sizes, np_dtype, strides = geometries[0]
        if np_dtype.kind not in "fV" or 0 in sizes:
            return None
        if feature or strides is None:
            return device.upload(bernoulli_mask(sizes[:2] + (1,) * (len(sizes) - 2) if feature else tuple(sizes), keep, generator.for_host()).astype(np_dtype))
        order = drawing_order(sizes, strides)
        row = device.upload(bernoulli_mask(tuple([sizes[i] for i in order]), keep, generator.for_host()).astype(np_dtype))
        dense = contiguous_strides(shape_of(row))
        return device.view(row, tuple(sizes), tuple([dense[order.index(i)] for i in range(len(sizes))]), 0, np_dtype)

    def results(self, r, mask):
        """Returns the results of the kernel, followed by the mask."""
        return (*(r if r.__class__ is tuple else (r,)), mask) if self.gives_mask else r


class _InAttention(_Masked):
    """Mask of the attention weights. There is none if all weights are kept."""

    def draw(self, device, geometries, *, keep, generator, **constants):
        sizes, np_dtype = weights_of(*[g[0] for g in geometries[:2]], *[g[0] for g in geometries[3:]]), geometries[0][1]
        if keep == 1 or 0 in sizes:
            return None
        mask = bernoulli_mask(sizes, keep, generator.for_host()) if keep else np.zeros(sizes, bool)
        return device.upload(mask.astype(np_dtype if np_dtype.itemsize > 2 else np.float32))


MASKED = {"dropout": _Masked(scaled, "scale"), "alpha_dropout": _Masked(_alpha, "a slope offset"), "native_dropout": _Masked(_native, "scale", False)}
if not ASCEND:
    MASKED["scaled_dot_product_attention"] = _InAttention(weighed, "causal scale keep")
for _m in MASKED.values():
    set_flags(_m.kernel, dataclasses.replace(flags_of(_m.kernel), varying=frozenset(["scale", "keep"])))


# ------------------------------------------------------------------ masks of bits (Ascend)
def _by_bits(x, *, p, generator):
    seed, offset = new_buffer(rng_state, drawn(generator), 0)
    bits = op(G.DropoutGenMaskExt)(shape_of(x), p, seed, offset, dtype_of(x))
    return op(G.DropoutDoMaskExt)(x, bits, p), bits


kernel("dropout_by_bits", _by_bits, target="Ascend", only="float32 float16 bfloat16", varying="p")
kernel("dropout_do_mask", lambda x, bits, *, p: op(G.DropoutDoMaskExt)(x, bits, p), target="Ascend", only="float32 float16 bfloat16 uint8", varying="p")
