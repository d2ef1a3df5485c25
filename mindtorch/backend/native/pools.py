"""NumPy-facing side of _pools.c: unfold and fold, and pools over one to three axes with their gradients, of float32 and float64.  Nothing here
without a compiler: every function gives None then, as it does for other dtypes, and cpu/pooling.py and conv.py go on with NumPy.

CPU time on one core, us, C / NumPy, forward and backward of 3x3 windows two apart: maxima with places of 1x4x8x8 5 / 83 and 3.4 / 40, of 4x16x32x32
130 / 390 and 37 / 130; means 4 / 47 and 4 / 51, 85 / 154 and 106 / 228.
"""
import ctypes
import functools

import numpy as np

from mindtorch.backend.cpu._numpy_private import header
from mindtorch.backend.native import build, pool

_P, _I = ctypes.c_void_p, ctypes.c_int
_WIDE = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}
_MAXIMA, _MAXIMA_BACK, _MEANS, _MEANS_BACK = range(4)


@functools.cache
def _lib():
    found, threads = build.pools(), pool.lib()
    if found is None or threads is None:
        return None
    build.declare(found, {"mt_pool": [_I, _I, _I, _I, _P, _P, _P, _P], "mt_columns": [_I, _I, _P, _P, _P]}, ("mt_pool", "mt_columns"))
    found.mt_use(threads.mt_share)
    return found


@functools.lru_cache(1024)
def _windows(size, kernel, stride, padding, dilation, out, include, divisor):
    """The numbers of windows as _pools.c has them."""
    axes = [*[(1, 1, 1, 0, 1, 1)] * (3 - len(out)), *zip(size, kernel, stride, padding, dilation or (1,) * len(out), out, strict=True)]
    numbers = [n for axis in axes for n in axis]
    return (ctypes.c_long * 20)(*numbers, include, divisor)


def _run(what, x, y, places, windows):
    wide, lib = _WIDE.get(x.dtype), _lib()
    if wide is None or lib is None or y.dtype != x.dtype or pool.ready() is None:
        return None
    dims, numbers = windows
    narrow = places is not None and places.dtype.itemsize == 1
    return None if lib.mt_pool(what, wide, narrow, dims, numbers, header(x), header(y), None if places is None else header(places)) else True


def _described(size, kernel, stride, padding, dilation, out, include=False, divisor=0):
    return len(out), _windows(size, kernel, stride, padding, dilation, out, include, divisor)


def maxima(x, kernel, stride, padding, dilation, out, place_dtype):
    """(the largest of each window, its number in the window in that dtype or None)"""
    if x.dtype not in _WIDE:
        return None
    x = np.ascontiguousarray(x)
    dims = len(out)
    shape = x.shape[:-dims] + out
    y, places = np.empty(shape, x.dtype), None if place_dtype is None else np.empty(shape, place_dtype)
    return (y, places) if _run(_MAXIMA, x, y, places, _described(x.shape[-dims:], kernel, stride, padding, dilation, out)) else None


def maxima_back(g, places, size, kernel, stride, padding, dilation):
    """The gradients of the windows' maxima at their places."""
    if g.dtype not in _WIDE or places.dtype.itemsize not in (1, 4):
        return None
    g, places, dims = np.ascontiguousarray(g), np.ascontiguousarray(places), len(size)
    r = np.empty(g.shape[:-dims] + size, g.dtype)
    return r if _run(_MAXIMA_BACK, r, g, places, _described(size, kernel, stride, padding, dilation, g.shape[-dims:])) else None


def means(x, kernel, stride, padding, out, include, divisor):
    """Sums of windows over the number of their elements (include: those in the padding too), or over `divisor`."""
    if x.dtype not in _WIDE:
        return None
    x, dims = np.ascontiguousarray(x), len(out)
    y = np.empty(x.shape[:-dims] + out, x.dtype)
    return y if _run(_MEANS, x, y, None, _described(x.shape[-dims:], kernel, stride, padding, None, out, bool(include), divisor or 0)) else None


def means_back(g, size, kernel, stride, padding, include, divisor):
    """Each mean's gradient shared between its elements."""
    if g.dtype not in _WIDE:
        return None
    g, dims = np.ascontiguousarray(g), len(size)
    r = np.empty(g.shape[:-dims] + size, g.dtype)
    return r if _run(_MEANS_BACK, r, g, None, _described(size, kernel, stride, padding, None, g.shape[-dims:], bool(include), divisor or 0)) else None


def _columns(back, x, y, kernel, stride, padding, dilation, out):
    wide, lib = _WIDE.get(x.dtype), _lib()
    if wide is None or lib is None or y.dtype != x.dtype or pool.ready() is None:
        return None
    numbers = _windows(x.shape[2:], kernel, stride, padding, dilation, out, False, 0)
    return None if lib.mt_columns(back, wide, numbers, header(x), header(y)) else True


def columns(x, kernel, stride, padding, dilation, out):
    """(N, C, H, W) -> (N, C * prod(kernel), prod(out)): its windows as columns."""
    if x.dtype not in _WIDE:
        return None
    x = np.ascontiguousarray(x)
    r = np.empty((x.shape[0], x.shape[1] * kernel[0] * kernel[1], out[0] * out[1]), x.dtype)
    return r if _columns(False, x, r, kernel, stride, padding, dilation, out) else None


def columns_back(cols, size, kernel, stride, padding, dilation, out):
    """Such columns added up into (N, C, *size), one place of the windows after another."""
    if cols.dtype not in _WIDE:
        return None
    cols = np.ascontiguousarray(cols)
    r = np.empty((cols.shape[0], cols.shape[1] // (kernel[0] * kernel[1]), *size), cols.dtype)
    return r if _columns(True, r, cols, kernel, stride, padding, dilation, out) else None
