"""Dropout: masks drawn on the device (random.py), and their use."""
from mindtorch.backend.mindspore.kernels._call import FLOATING, Lacking, P, cast, dtype_of, is_contiguous, kernel, number, op, shape_of
from mindtorch.backend.mindspore.kernels.random import kept


def _mask(x, keep, feature, generator):
    """1 and 0 in x's dtype (the CPU target: float32), of x's shape; feature: of its first two dimensions'."""
    shape = shape_of(x)
    if dtype_of(x) not in FLOATING or generator.on_host and not (feature or is_contiguous(x)):
        raise Lacking                   # (the host draws in the order of memory)
    if feature:
        shape = shape[:2] + (1,) * (len(shape) - 2)
    return kept(shape, keep, generator, dtype_of(x))


def scaled(x, mask, scale):
    """x where the mask (numbers 1 and 0, or bools) is set, times a number."""
    y = op(P.Mul)(x, mask if dtype_of(mask) is dtype_of(x) else cast(mask, dtype_of(x)))
    return y if scale == 1 else op(P.Mul)(y, number(scale, dtype_of(x)))


@kernel("masked_scale", varying="scale")
def _masked_scale(x, mask, *, scale):
    if dtype_of(x) not in FLOATING:
        raise Lacking
    return scaled(x, mask, scale)


@kernel("dropout", varying="keep scale")
def _dropout(x, *, keep, scale, feature, generator):
    mask = _mask(x, keep, feature, generator)
    return scaled(x, mask, scale), mask


@kernel("alpha_dropout")
def _alpha_dropout(x, *, keep, a, slope, offset, feature, generator):
    """x * mask * a + (mask - 1) * slope + offset."""
    mask, d = _mask(x, keep, feature, generator), dtype_of(x)
    shift = op(P.Add)(op(P.Mul)(mask, number(slope, d)), number(offset - slope, d))
    return op(P.Add)(op(P.Mul)(x, op(P.Mul)(mask, number(a, d))), shift), mask


@kernel("native_dropout", varying="keep scale")
def _native_dropout(x, *, keep, scale, generator):
    mask = _mask(x, keep, False, generator)
    return scaled(x, mask, scale), op(P.NotEqual)(mask, number(0.0, dtype_of(mask)))
