"""Dropout kernels, with the same random masks as PyTorch."""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.random import bernoulli_mask
from mindtorch.backend.strides import drawing_order, strides_of


def _mask(a, keep, feature, generator):
    """Returns a bool mask of a's shape, each element True with probability `keep`.

    With `feature`, only the first two dims have their own elements. The samples follow the memory
    order of `a`.
    """
    if feature:
        return bernoulli_mask(a.shape[:2] + (1,) * (a.ndim - 2), keep, generator)
    if a.flags.c_contiguous:
        return bernoulli_mask(a.shape, keep, generator)
    order = drawing_order(a.shape, strides_of(a))
    m = bernoulli_mask(tuple(a.shape[i] for i in order), keep, generator)
    return m.transpose(np.argsort(order))


@kernel("masked_scale")
@quiet
def masked_scale(x, mask, *, scale):
    r = np.multiply(x, mask)
    r *= x.dtype.type(scale)
    return r if r.__class__ is np.ndarray else np.asarray(r, x.dtype)


@kernel("dropout")
@quiet
def _dropout(x, *, keep, scale, feature, generator):
    mask = _mask(x, keep, feature, generator)
    r = np.multiply(x, mask)
    r *= x.dtype.type(scale)
    return r if r.__class__ is np.ndarray else np.asarray(r, x.dtype), mask


@kernel("alpha_dropout")
@quiet
def _alpha_dropout(x, *, keep, a, slope, offset, feature, generator):
    mask = _mask(x, keep, feature, generator)
    shift = (mask.astype(np.float64) - 1) * slope + offset
    return np.asarray(x * (mask * x.dtype.type(a)) + shift.astype(x.dtype)), mask


@kernel("native_dropout")
def _native_dropout(x, *, keep, scale, generator):
    mask = _mask(x, keep, False, generator)
    return masked_scale(x, mask, scale=scale), mask


# ------------------------------------------------------------------ masks of bits, for devices that have them
def _factors(bits, shape, p):
    n = int(np.prod(shape))
    return np.unpackbits(bits, bitorder="little")[:n].reshape(shape) * np.float32(1 / (1 - p))


@kernel("dropout_do_mask")
@quiet
def dropout_do_mask(x, bits, *, p):
    return (x * _factors(bits, x.shape, p)).astype(x.dtype, copy=False)


@kernel("dropout_by_bits")
def dropout_by_bits(x, *, p, generator):
    bits = np.packbits(bernoulli_mask(x.shape, 1 - p, generator).reshape(-1), bitorder="little")
    bits = np.pad(bits, (0, -bits.size % 16))
    return dropout_do_mask(x, bits, p=p), bits
