"""NumPy interface of pooling.c: unfold and fold, convolutions of small images, and pooling over one
to three axes with gradients, for float32 and float64. Without a compiler every function returns
None, as it does for other dtypes, and cpu/pooling.py and conv.py use NumPy.

CPU time on one core in us, C / NumPy, forward and backward of 3x3 windows with stride 2: max
pooling with indices of 1x4x8x8 5 / 83 and 3.4 / 40, of 4x16x32x32 130 / 390 and 37 / 130; average
pooling 4 / 47 and 4 / 51, 85 / 154 and 106 / 228.
"""
import ctypes
import functools

import numpy as np

from mindtorch.backend.cpu._numpy_private import header
from mindtorch.backend.c_kernels import build, thread_pool
from mindtorch.backend.c_kernels.fastcall import Numbers

_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_long
_WIDE = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}
_MAXIMA, _MAXIMA_BACK, _MEANS, _MEANS_BACK, _PIECES, _PIECES_BACK, _LARGEST = range(7)


@functools.cache
def _lib():
    found, threads = build.pooling(), thread_pool.lib()
    if found is None or threads is None:
        return None
    build.declare(found, {"mt_pool": [_P] * 4, "mt_columns": [_I, _I, _P, _P, _P],
                          "mt_convolve": [_I, _I, _I, _P, _L, _P, _P, _P, _P]}, ("mt_pool", "mt_columns", "mt_convolve"), direct=True)
    found.mt_use(threads.mt_share)
    return found


@functools.lru_cache(1024)
def _windows(size, kernel, stride, padding, dilation, out, include=False, divisor=0, what=0, wide=0, narrow=False):
    """Returns the window parameters in the layout of pooling.c. what, wide, narrow: mt_pool's
    operation and array types. (They are included here because every argument of a call costs 0.1
    us.)"""
    axes = [*[(1, 1, 1, 0, 1, 1)] * (3 - len(out)), *zip(size, kernel, stride, padding, dilation or (1,) * len(out), out, strict=True)]
    numbers = [n for axis in axes for n in axis]
    return Numbers(numbers + [include, divisor, what, wide, narrow, len(out)])


def _ready(x):
    """Returns (the function mt_pool, code of x's dtype); None if unavailable."""
    wide, lib = _WIDE.get(x.dtype), _lib()
    return None if wide is None or lib is None or thread_pool.ready() is None else (lib.mt_pool, wide)


def maxima(x, kernel, stride, padding, dilation, out, place_dtype):
    """Returns (the maximum of each window, its index in the window in `place_dtype` or None)."""
    if (found := _ready(x)) is None:
        return None
    call, wide = found
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    dims = len(out)
    shape = x.shape
    size, shape = shape[-dims:], shape[:-dims] + out
    y = np.empty(shape, x.dtype)
    if place_dtype is None:
        windows = _windows(size, kernel, stride, padding, dilation, out, False, 0, _MAXIMA, wide)
        return None if call(windows, header(x), header(y), None) else (y, None)
    places = np.empty(shape, place_dtype)
    windows = _windows(size, kernel, stride, padding, dilation, out, False, 0, _MAXIMA, wide, places.itemsize == 1)
    return None if call(windows, header(x), header(y), header(places)) else (y, places)


def maxima_back(g, places, size, kernel, stride, padding, dilation):
    """Scatters the gradients of the windows' maxima to their positions."""
    if places.itemsize not in (1, 4) or (found := _ready(g)) is None:
        return None
    call, wide = found
    g, places, dims = np.ascontiguousarray(g), np.ascontiguousarray(places), len(size)
    r = np.empty(g.shape[:-dims] + size, g.dtype)
    windows = _windows(size, kernel, stride, padding, dilation, g.shape[-dims:], False, 0, _MAXIMA_BACK, wide, places.itemsize == 1)
    return None if call(windows, header(r), header(g), header(places)) else r


def means(x, kernel, stride, padding, out, include, divisor):
    """Returns the sums of windows divided by their number of elements (include: counting the
    padding), or by `divisor`."""
    if (found := _ready(x)) is None:
        return None
    call, wide = found
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    dims = len(out)
    shape = x.shape
    y = np.empty(shape[:-dims] + out, x.dtype)
    windows = _windows(shape[-dims:], kernel, stride, padding, None, out, bool(include), divisor or 0, _MEANS, wide)
    return None if call(windows, header(x), header(y), None) else y


def means_back(g, size, kernel, stride, padding, include, divisor):
    """Distributes the gradient of each mean over its elements."""
    if (found := _ready(g)) is None:
        return None
    call, wide = found
    g, dims = np.ascontiguousarray(g), len(size)
    r = np.empty(g.shape[:-dims] + size, g.dtype)
    windows = _windows(size, kernel, stride, padding, None, g.shape[-dims:], bool(include), divisor or 0, _MEANS_BACK, wide)
    return None if call(windows, header(r), header(g), None) else r


def pieces(x, out, largest=False, places=False):
    """Returns (means of `out` nearly equal pieces along the last axes, or their maxima; None, or
    the maxima's indices in their plane). Pieces are not empty and may overlap by an element."""
    if (found := _ready(x)) is None:
        return None
    call, wide = found
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    one = (1,) * len(out)
    shape = x.shape
    y = np.empty(shape[:-len(out)] + out, x.dtype)
    at = np.empty(y.shape, np.int64) if places else None
    windows = _windows(shape[-len(out):], one, one, one, None, out, False, 0, _LARGEST if largest else _PIECES, wide)
    return None if call(windows, header(x), header(y), None if at is None else header(at)) else (y, at)


def pieces_back(g, size):
    """Distributes the gradient of each piece over its elements."""
    if (found := _ready(g)) is None:
        return None
    call, wide = found
    g, one = np.ascontiguousarray(g), (1,) * len(size)
    r = np.empty(g.shape[:-len(size)] + size, g.dtype)
    windows = _windows(size, one, one, one, None, g.shape[-len(size):], False, 0, _PIECES_BACK, wide)
    return None if call(windows, header(r), header(g), None) else r


def _columns(back, x, y, kernel, stride, padding, dilation, out):
    wide, lib = _WIDE.get(x.dtype), _lib()
    if wide is None or lib is None or y.dtype != x.dtype or thread_pool.ready() is None:
        return None
    numbers = _windows(x.shape[2:], kernel, stride, padding, dilation, out)
    return None if lib.mt_columns(back, wide, numbers, header(x), header(y)) else True


def columns(x, kernel, stride, padding, dilation, out):
    """Unfolds (N, C, H, W) to (N, C * prod(kernel), prod(out)), with windows as columns."""
    if x.dtype not in _WIDE:
        return None
    x = np.ascontiguousarray(x)
    r = np.empty((x.shape[0], x.shape[1] * kernel[0] * kernel[1], out[0] * out[1]), x.dtype)
    return r if _columns(False, x, r, kernel, stride, padding, dilation, out) else None


def columns_back(cols, size, kernel, stride, padding, dilation, out):
    """Sums such columns into (N, C, *size), one window offset after another."""
    if cols.dtype not in _WIDE:
        return None
    cols = np.ascontiguousarray(cols)
    r = np.empty((cols.shape[0], cols.shape[1] // (kernel[0] * kernel[1]), *size), cols.dtype)
    return r if _columns(True, r, cols, kernel, stride, padding, dilation, out) else None


# ------------------------------------------------------------------ convolutions
FORWARD, INPUT, WEIGHT = range(3)


def described(size, kernel, stride, padding, dilation, out):
    """Returns the `windows` argument of `convolve`; None if unsupported."""
    if min(padding) < 0 or not 1 <= len(out) <= 3:
        return None
    return _windows(tuple(size), tuple(kernel), tuple(stride), tuple(padding), tuple(dilation), tuple(out))


def convolve(what, windows, groups, x, w, b, y):
    """Computes y = the convolution of x with w, plus b; INPUT and WEIGHT: computes x or w as the
    gradient from y. Returns False if unsupported."""
    wide, lib = _WIDE.get(x.dtype), _lib()
    if wide is None or lib is None or thread_pool.ready() is None:
        return False
    if w.dtype is not x.dtype or y.dtype is not x.dtype or b is not None and b.dtype is not x.dtype:
        return False
    return not lib.mt_convolve(what, wide, x.ndim - 2, windows, groups, header(x), header(w), None if b is None else header(b), header(y))
