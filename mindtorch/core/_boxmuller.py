"""Float arithmetic of torch's random kernels: fused multiply-adds, and normals made in blocks of sixteen."""

import numpy as np


def add_to_float32(x, y, width):
    """x + y rounded once to float32: the end of a fused multiply-add.

    x is a float64 array of exact products of 24 bits by 24, none beyond `width`, and y a float32 number.
    """
    s = x + y
    if y and width and not 2.0**-27 <= abs(y) / width <= 16.0:
        # The sum may not fit float64, and its rounding there must not make a tie for the second: round to odd first.
        back = s - x
        error = (x - (s - back)) + (y - back)
        bits = s.view(np.int64)
        even = (error != 0) & (bits & 1 == 0)
        bits += np.where(even, np.where((error > 0) == (s > 0), 1, -1), 0)
    return s.astype(np.float32)


def multiply_add(x, y, z):
    """x * y + z in float64, rounded once (x an array, y and z floats)."""
    p = x * y
    split = 134217729.0
    if abs(y) > 1e290:
        return p + z  # splitting would overflow; torch's last bit is out of reach
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


_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
        2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_LOG, _SIN, _COS = (tuple(float(np.float32(c)) for c in table) for table in (_LOG, _SIN, _COS))
_LN2_LOW = np.float32(-2.12194440e-4)
_LN2_HIGH = np.float32(0.693359375)
_PI4_LOW = float(np.float32(-3.77489497744594108e-8))
_PI4_MID = np.float32(-2.4187564849853515625e-4)
_PI4_HIGH = np.float32(-0.78515625)
_HALF, _ONE, _MINUS_TWO = np.float32(0.5), np.float32(1), np.float32(-2)
_TWO_PI = np.float32(2 * np.pi)


class _Fused:
    """Fused multiply-adds in float32 over arrays of one length, worked out in float64 (where the product is exact)."""

    def __init__(self, n):
        self.x = np.empty(n)
        self.y = np.empty(n)
        self.out = np.empty(n, np.float32)

    def polynomial(self, x, coefficients):
        """Horner's scheme at float32 `x`; the result is overwritten by the next call."""
        y, out = self.y, self.out
        self.x[...] = x
        y[...] = coefficients[0]
        for c in coefficients[1:]:
            y *= self.x
            y += c
            out[...] = y
            y[...] = out
        return out

    def add(self, x, y, z):
        """x * y + z for float32 arrays (y may be a float)."""
        self.x[...] = x
        self.x *= y
        self.x += z
        return self.x.astype(np.float32)


def _log(x, fused):
    """Natural logarithm of positive float32, by Cephes' polynomial as vector code evaluates it."""
    bits = x.view(np.int32)
    exponent = ((bits >> 23) - 126).astype(np.float32)
    m = ((bits & 0x7FFFFF) | 0x3F000000).view(np.float32)  # in [0.5, 1)
    low = (m < np.float32(0.707106781186547524)).view(np.uint8).astype(np.float32)
    exponent -= low
    low *= m
    m += low
    m -= _ONE
    z = m * m
    y = fused.polynomial(m, _LOG)
    y *= m
    y = fused.add(y, z, exponent * _LN2_LOW)
    z *= _HALF
    y -= z
    m += y
    exponent *= _LN2_HIGH  # exact
    m += exponent
    return m


def _cos_sin(x, fused):
    """Cosine and sine of float32 in [0, 2 pi], by Cephes' polynomials as vector code evaluates them."""
    octant = (x * np.float32(4 / np.pi)).astype(np.int32)
    octant += 1
    octant &= ~1
    k = octant.astype(np.float32)
    x = x + k * _PI4_HIGH  # these two products are exact
    x += k * _PI4_MID
    x = fused.add(k, _PI4_LOW, x)
    z = x * x
    c = fused.polynomial(z, _COS)
    c *= z
    half = z * _HALF
    c = fused.add(c, z, -half)
    c += _ONE
    s = fused.polynomial(z, _SIN)
    s *= z
    s = fused.add(s, x, x)
    swap = (octant & 2) != 0
    cos, sin = np.where(swap, s, c), np.where(swap, c, s)
    octant <<= 29  # bit 2 becomes the sign bit
    sign = np.int32(-(2**31))
    cos.view(np.int32)[...] ^= (octant + np.int32(2 << 29)) & sign
    octant &= sign
    sin.view(np.int32)[...] ^= octant
    return cos, sin


_BLOCKS = 2048  # of 16, worked on together: few enough to stay in the cache


def block_normals(u, mean, std):
    """float32 uniforms (a multiple of 16) -> as many normals, in place: of each 16, eight radii and eight angles."""
    blocks = u.reshape(-1, 16)
    fused = None
    for start in range(0, len(blocks), _BLOCKS):
        part = blocks[start : start + _BLOCKS]
        n = 8 * len(part)
        if fused is None or fused.out.size != n:
            fused = _Fused(n)
        radius = _log((_ONE - part[:, :8]).reshape(-1), fused)
        radius *= _MINUS_TWO
        np.sqrt(radius, out=radius)
        cos, sin = _cos_sin((part[:, 8:] * _TWO_PI).reshape(-1), fused)
        cos *= radius
        sin *= radius
        if mean == 0.0:
            if std != 1.0:
                cos *= std
                sin *= std
        else:
            cos = fused.add(cos, std, mean)
            sin = fused.add(sin, std, mean)
        part[:, :8] = cos.reshape(-1, 8)
        part[:, 8:] = sin.reshape(-1, 8)
    return u


def block_normals64(u, mean, std):
    blocks = u.reshape(-1, 16)
    radius = np.sqrt(-2.0 * np.log(1.0 - blocks[:, :8]))
    angle = 2.0 * np.pi * blocks[:, 8:]
    x = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)), axis=1).reshape(-1)
    return x * std if mean == 0.0 else multiply_add(x, std, mean)
