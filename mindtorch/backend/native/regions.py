"""NumPy-facing side of _regions.c: bins of regions, boxes, moved taps of a convolution.  Nothing here without a compiler (`ready` gives None).

CPU time on one core, ms, C / NumPy: roi_align of 1000 regions to 7x7 in (2, 256, 64, 64) 32 / 185, its gradient 36 / 195, roi_pool 1136 / 1722;
nms of 2000 boxes 0.6 / 17; deform_conv2d (2, 64, 56, 56), 3x3, 10 / 107, its gradients 17 / 138.
"""
import ctypes
import functools

import numpy as np

from mindtorch.backend.cpu.host import address as at
from mindtorch.backend.native import build, pool

_P, _L, _D, _I = ctypes.c_void_p, ctypes.c_long, ctypes.c_double, ctypes.c_int
_ARGUMENTS = {"mt_bins": [_P] * 6 + [_I], "mt_maxima": [_P] * 6, "mt_suppress": [_P, _L, _D, _P], "mt_moved": [_P] * 8}
_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


@functools.cache
def _lib():
    found, threads = build.regions(), pool.lib()
    if found is None or threads is None:
        return None
    build.declare(found, {f"{n}_{t}": a for n, a in _ARGUMENTS.items() for t in _NAMES.values()}, ())
    found.mt_use(threads.mt_share)
    return found


def ready(dtype):
    """Whether there are kernels for arrays of this dtype."""
    return dtype in _NAMES and pool.ready() is not None and _lib() is not None


def _call(name, dtype, *args):
    getattr(_lib(), f"{name}_{_NAMES[dtype]}")(*[at(a) if a.__class__ is np.ndarray else a for a in args])


def _strides(a):
    """Elements from one image, row, column, channel of a[N, C, H, W] to the next."""
    n, c, h, w = (s // a.itemsize for s in a.strides)
    return n, h, w, c


def _by_pixel(n, c, h, w, dtype):
    """A zeroed array [N, C, H, W] with channels side by side."""
    return np.zeros((n, h, w, c), dtype).transpose(0, 3, 1, 2)


def _numbers(regions, channels, size, image, apart):
    return np.array([regions, channels, *size, *image.shape[2:], apart, *_strides(image)], np.int64)


#: Reads of pixels for each pixel of the images below which putting channels side by side does not pay.
_FEW = 4


def bins(image, index, vertical, horizontal, size, apart):
    """[K, channels, *size]: weighted sums of bins.  apart: channels of the image between those of two bins, or 0."""
    k, count = len(index), size[0] * size[1]
    channels = apart or image.shape[1]
    n, c, h, w = image.shape
    if k * count * 9 > _FEW * n * h * w and _strides(image)[3] != 1:
        image = np.ascontiguousarray(image.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    r = np.empty((k, channels, *size), image.dtype)
    _call("mt_bins", image.dtype, _numbers(k, channels, size, image, apart), image, r, index, vertical, horizontal, 0)
    return r


def bins_backward(g, index, vertical, horizontal, shape, apart):
    """Gradient of the image, of that shape."""
    k, channels, *size = g.shape
    n, c, h, w = shape
    few = k * size[0] * size[1] * 9 <= _FEW * n * h * w
    r = np.zeros(shape, g.dtype) if few else _by_pixel(n, c, h, w, g.dtype)
    _call("mt_bins", g.dtype, _numbers(k, channels, size, r, apart), np.ascontiguousarray(g), r, index, vertical, horizontal, 1)
    return np.ascontiguousarray(r)


def maxima(image, index, vertical, horizontal):
    """Places in their planes of the largest values of the bins vertical x horizontal ([K, bins, 2], from and behind): [K, C, rows, columns], -1: none."""
    k, rows, columns = len(index), vertical.shape[1], horizontal.shape[1]
    where = np.empty((k, image.shape[1], rows, columns), np.int32)
    numbers = np.array([k, image.shape[1], rows, columns, *image.shape[2:]], np.int64)
    _call("mt_maxima", image.dtype, numbers, np.ascontiguousarray(image), index, vertical, horizontal, where)
    return where


def suppress(boxes, threshold):
    """Which of boxes[4, n], best first, a better one covers by more than the threshold."""
    gone = np.zeros(boxes.shape[1], np.bool_)
    _call("mt_suppress", boxes.dtype, boxes, boxes.shape[1], threshold, gone)
    return gone


def _geometry(x, groups, geometry):
    n, c, h, w = x.shape
    return np.array([n, groups, c // groups, h, w, *geometry], np.int64)


def _pixels(x):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def moved(x, offset, mask, groups, geometry):
    """[N, oh, ow, taps, C]: what the taps of a convolution read; geometry: kernel, out, stride, padding, dilation."""
    kh, kw, oh, ow = geometry[:4]
    r = np.empty((x.shape[0], oh, ow, kh * kw, x.shape[1]), x.dtype)
    _call("mt_moved", x.dtype, _geometry(x, groups, geometry), _pixels(x), offset, mask, r, None, None, None)
    return r


def moved_backward(g, x, offset, mask, groups, geometry):
    """Gradients of x, offset and mask (None without one)."""
    gx = np.zeros((x.shape[0], *x.shape[2:], x.shape[1]), x.dtype)
    go, gm = np.empty_like(offset), None if mask is None else np.empty_like(mask)
    _call("mt_moved", x.dtype, _geometry(x, groups, geometry), _pixels(x), offset, mask, np.ascontiguousarray(g), gx, go, gm)
    return np.ascontiguousarray(gx.transpose(0, 3, 1, 2)), go, gm
