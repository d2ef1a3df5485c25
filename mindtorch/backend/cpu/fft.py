"""Fourier transforms by scipy (pocketfft; single precision for single-precision inputs).

scipy uses the same names as PyTorch for the three normalization modes.
"""
import functools

import numpy as np

from mindtorch.backend.cpu import kernel, large, threads
from mindtorch.backend.cpu.basic import cast_array

_SINGLE = (np.float32, np.complex64)
_lib = None


def _scipy():
    global _lib
    if _lib is None:
        import scipy.fft
        _lib = scipy.fft
    return _lib


def _complex_of(dtype):
    return np.dtype(np.complex64 if dtype in _SINGLE else np.complex128)


@functools.cache
def _bare():
    """Returns (c2c, r2c) of the extension module behind scipy's functions, or None if it behaves
    differently.

    The Python code of scipy's functions takes 10 us per call (16x16: 2.7 vs 12.8 us).
    """
    try:
        from scipy.fft._pocketfft.pypocketfft import c2c, r2c
        a, lib = np.arange(6, dtype=np.float32).reshape(2, 3), _scipy()
        alike = ((c2c(a, (0, 1), True, 1, None, 1), lib.fft2(a, norm="ortho")), (c2c(a, (1,), False, 2, None, 2), lib.ifft(a)),
                 (r2c(a, (0, 1), True, 0, None, 1), lib.rfft2(a)))
        return (c2c, r2c) if all([x.dtype == y.dtype and x.shape == y.shape and (x == y).all() for x, y in alike]) else None
    except (ImportError, TypeError, ValueError):
        return None


#: (forward, norm) -> pocketfft's normalization: 0 none, 1 divide by the square root of the number
#: of points, 2 divide by that number
_DIVIDED = {(True, "forward"): 2, (False, "backward"): 2, (True, "ortho"): 1, (False, "ortho"): 1}


def _direct(which, a, axes, forward, norm):
    """Computes the transform through `_bare`, on several threads if it is large. Returns None if
    `_bare` does not support it."""
    found = _bare()
    if found is None or a.dtype.char not in "fdFD" or not a.flags.aligned:
        return None
    return found[which](a, axes, forward, _DIVIDED.get((forward, norm), 0), None, threads.count() if a.size >= large.LEAST else 1)


@kernel("fft_c2c fft_r2c_full")
def _full(a, *, axes, forward, norm):
    if not axes or not a.size:
        return a.astype(_complex_of(a.dtype))
    if (r := _direct(0, a, axes, forward, norm)) is not None:
        return r
    f = _scipy().fftn if forward else _scipy().ifftn
    return f(a, axes=axes, norm=norm)


@kernel("fft_r2c")
def _half(a, *, axes, norm):
    if not a.size:
        shape = list(a.shape)
        shape[axes[-1]] = shape[axes[-1]] // 2 + 1
        return np.zeros(shape, _complex_of(a.dtype))
    if (r := _direct(1, a, axes, True, norm)) is not None:
        return r
    return _scipy().rfftn(a, axes=axes, norm=norm)


@kernel("fft_c2r")
def _real(a, *, axes, n, norm):
    s = [a.shape[d] for d in axes]
    s[-1] = n
    if not a.size:
        shape = list(a.shape)
        shape[axes[-1]] = n
        return np.zeros(shape, np.float32 if a.dtype in _SINGLE else np.float64)
    return _scipy().irfftn(a, s=s, axes=axes, norm=norm)


@kernel("fft_half_weights")
def _half_weights(x, *, n, axis, value):
    """Returns `value` for the frequencies that also represent their mirror image, 1 for the first
    and a middle one."""
    m = n // 2 + 1
    w = np.full(m, value, np.float32 if x.dtype in _SINGLE else np.float64)
    w[0] = 1
    if n % 2 == 0:
        w[-1] = 1
    return w.reshape([m if d == axis else 1 for d in range(x.ndim)])


@kernel("transposed_copy")
def _turned(a):
    return a.swapaxes(-1, -2).copy()


@kernel("fft_frequencies")
def _frequencies(n, d, half, np_dtype, device):
    k = np.arange(n // 2 + 1) if half else np.concatenate([np.arange((n + 1) // 2), np.arange(-(n // 2), 0)])
    with np.errstate(all="ignore"):
        return cast_array(k * np.divide(1.0, n * d), np_dtype)


@kernel("least_magnitude")
def _least_magnitude(a):
    return np.abs(a).min()
