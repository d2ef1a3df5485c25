"""Float arithmetic of PyTorch's CPU random kernels: emulated fused multiply-adds, and Box-Muller
normals in blocks of 16."""

import math

import numpy as np

from mindtorch.backend.cpu import large


def add_to_float32(x, y, width, out=None):
    """Returns x + y rounded once to float32: the last step of a fused multiply-add.

    `x` is a float64 array of exact products of two 24-bit significands, with magnitudes of at most
    `width`. `y` is a float32 scalar. `out` is an optional float32 array for the result.
    """
    s = x + y
    if y and width and not 2.0**-27 <= abs(y) / width <= 16.0:
        # The sum may not fit into float64. Round it to odd first, so that this rounding cannot
        # create a tie for the rounding to float32.
        back = s - x
        error = (x - (s - back)) + (y - back)
        bits = s.view(np.int64)
        even = (error != 0) & (bits & 1 == 0)
        bits += np.where(even, np.where((error > 0) == (s > 0), 1, -1), 0)
    if out is None:
        return s.astype(np.float32)
    out[...] = s
    return out


def multiply_add(x, y, z):
    """Returns x * y + z in float64, rounded once (`x` is an array, `y` and `z` are floats)."""
    if x.size >= large.FEW and x.flags.c_contiguous and x.dtype == np.float64 and (r := large.scan_gather().multiply_add(x, y, z)) is not None:
        return r
    p = x * y
    split = 134217729.0
    if abs(y) > 1e290 or not math.isfinite(z):
        return p + z  # splitting would overflow; PyTorch's last bit cannot be reproduced
    t = x * split
    xh = t - (t - x)
    xl = x - xh
    t = y * split
    yh = t - (t - y)
    yl = y - yh
    error = ((xh * yh - p) + xh * yl + xl * yh) + xl * yl
    s = p + z
    back = s - p
    return s + (((p - (s - back)) + (z - back)) + error)


_LOG: list = [7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
              2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1]  # fmt: skip
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def _single(x):
    return np.array(x, np.float32)


def _int32(x):
    return np.array(x, np.int32)


# Ufuncs are fastest with 0-dim arrays. The float64 ones hold float32 values, for the emulated fused
# operations.
_LOG = [_single(c).astype(np.float64) for c in _LOG]
_COS_SIN = [np.array([[c], [s]], np.float32).astype(np.float64) for c, s in zip(_COS, _SIN, strict=True)]
_LN2_LOW, _LN2_HIGH = _single(-2.12194440e-4), _single(0.693359375)
_PI4_LOW = _single(-3.77489497744594108e-8).astype(np.float64)
_PI4_MID, _PI4_HIGH = _single(-2.4187564849853515625e-4), _single(-0.78515625)
_HALF, _MINUS_HALF, _ONE, _MINUS_TWO = _single(0.5), _single(-0.5), _single(1), _single(-2)
_TWO_PI, _OCTANTS, _ROOT_HALF = _single(2 * np.pi), _single(4 / np.pi), _single(0.707106781186547524)
_EXPONENT, _BIAS, _MANTISSA, _AS_HALF = _int32(23), _int32(126), _int32(0x7FFFFF), _int32(0x3F000000)
_I1, _EVEN, _TO_SIGN, _TO_SWAP, _ALL, _SIGN = (_int32(k) for k in (1, ~1, 29, 30, 31, -(2**31)))


def _polynomial(x, scratch, coefficients):
    """Evaluates a polynomial in float32 by Horner's scheme with fused multiply-adds.

    Each step is computed in float64, where the product is exact, and rounded to float32. `x` is the
    float32 argument. `scratch` is a float64 scratch array of the result's shape.
    """
    np.copyto(scratch, x)
    y = np.multiply(scratch, coefficients[0])
    out = np.empty(y.shape, np.float32)
    y += coefficients[1]
    for c in coefficients[2:]:
        np.copyto(out, y, "same_kind")
        np.copyto(y, out)
        y *= scratch
        y += c
    np.copyto(out, y, "same_kind")
    return out


def _fused(x, y, z, scratch):
    """Returns x * y + z, rounded once to float32. `scratch` is a float64 scratch array of the result's
    shape."""
    np.copyto(scratch, x)
    scratch *= y
    scratch += z
    return scratch.astype(np.float32)


def _log(x):
    """Returns the natural logarithm of positive float32 values.

    Evaluates Cephes' polynomial in the way vectorized code does.
    """
    bits = x.view(np.int32)
    exponent = bits >> _EXPONENT
    exponent -= _BIAS
    exponent = exponent.astype(np.float32)
    m = bits & _MANTISSA
    m |= _AS_HALF
    m = m.view(np.float32)  # in [0.5, 1)
    low = np.less(m, _ROOT_HALF).view(np.uint8).astype(np.float32)
    exponent -= low
    low *= m
    m += low
    m -= _ONE
    z = m * m
    scratch = np.empty(m.shape)
    y = _polynomial(m, scratch, _LOG)
    y *= m
    y = _fused(y, z, exponent * _LN2_LOW, scratch)
    z *= _HALF
    y -= z
    m += y
    exponent *= _LN2_HIGH  # exact
    m += exponent
    return m


def _cos_sin(x):
    """Returns cosine and sine of float32 angles in [0, 2 pi], stacked along a new first dim.

    Evaluates Cephes' polynomials in the way vectorized code does.
    """
    octant = (x * _OCTANTS).astype(np.int32)
    octant += _I1
    octant &= _EVEN
    k = octant.astype(np.float32)
    x = x + k * _PI4_HIGH  # these two products are exact
    x += k * _PI4_MID
    scratch = np.empty((2,) + x.shape)
    x = _fused(k, _PI4_LOW, x, scratch[0])
    z = x * x
    factor, summand = np.empty((2, 2) + x.shape, np.float32)
    factor[0], factor[1] = z, x
    np.multiply(z, _MINUS_HALF, out=summand[0])
    summand[1] = x
    both = _polynomial(z, scratch, _COS_SIN)
    both *= z
    both = _fused(both, factor, summand, scratch)
    both[0] += _ONE
    # In every other quadrant cosine and sine are swapped. Bit 2 of the octant, shifted to the sign
    # bit, becomes the sign.
    bits = both.view(np.int32)
    swap = octant << _TO_SWAP
    swap >>= _ALL
    swap &= bits[0] ^ bits[1]
    octant <<= _TO_SIGN
    swap_cos = octant + _int32(2 << 29)
    swap_cos &= _SIGN
    swap_cos ^= swap
    octant &= _SIGN
    octant ^= swap
    bits[0] ^= swap_cos
    bits[1] ^= octant
    return both


def radii(u):
    """Returns the Box-Muller radius for each float32 uniform sample."""
    r = _log(_ONE - u)
    r *= _MINUS_TWO
    return np.sqrt(r, out=r)


def directions(u):
    """Returns cosine and sine of the Box-Muller angle for each float32 uniform, as (2, n)."""
    return _cos_sin(u * _TWO_PI)


def scaled(x, mean, std):
    """Computes x * std + mean in place for standard normals `x`, rounded like PyTorch's kernel."""
    if mean != 0.0:
        x[...] = _fused(x, std, mean, np.empty(x.shape))
        return x
    if std != 1.0:
        x *= std
    x += np.float32(0)  # PyTorch's fused addition of a zero mean leaves no negative zeros.
    return x


_BLOCKS = 4096  # blocks of 16 that are processed together: few enough to stay in the cache


def block_normals(u, mean, std):
    """Turns float32 uniforms (a multiple of 16) into as many normals, in place.

    Each block of 16 has eight samples for radii and eight for angles.
    """
    blocks = u.reshape(-1, 16)

    def part(k):
        x = blocks[k * _BLOCKS : (k + 1) * _BLOCKS]
        shape = (len(x), 8)
        radius = radii(x[:, :8].reshape(-1)).reshape(shape)
        cos, sin = directions(x[:, 8:].reshape(-1))
        np.multiply(cos.reshape(shape), radius, out=x[:, :8])
        np.multiply(sin.reshape(shape), radius, out=x[:, 8:])
        scaled(x, mean, std)

    large.each(-(-len(blocks) // _BLOCKS), part, 4 * u.size)
    return u


def block_normals64(u, mean, std):
    blocks = u.reshape(-1, 16)
    radius = np.sqrt(-2.0 * np.log(1.0 - blocks[:, :8]))
    angle = 2.0 * np.pi * blocks[:, 8:]
    x = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)), axis=1).reshape(-1)
    return x * std if mean == 0.0 else multiply_add(x, std, mean)
