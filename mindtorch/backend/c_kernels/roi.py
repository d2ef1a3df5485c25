"""NumPy interface of roi.c: RoI bins, boxes, shifted taps of deformable convolutions. Not
available without a compiler (`ready` returns False).

CPU time on one core in ms, C / NumPy: roi_align of 1000 regions to 7x7 in (2, 256, 64, 64) 32 /
185, its gradient 36 / 195, roi_pool 1136 / 1722; nms of 2000 boxes 0.6 / 17; deform_conv2d (2, 64,
56, 56), 3x3, 10 / 107, its gradients 17 / 138.
"""
import ctypes
import functools

import numpy as np

from mindtorch.backend.cpu.host import address as at
from mindtorch.backend.c_kernels import build, thread_pool

_P, _L, _D, _I = ctypes.c_void_p, ctypes.c_long, ctypes.c_double, ctypes.c_int
_ARGUMENTS = {"mt_bins": [_P] * 6 + [_I], "mt_maxima": [_P] * 6, "mt_suppress": [_P, _L, _D, _P], "mt_moved": [_P] * 8}
_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


@functools.cache
def _lib():
    found, threads = build.roi(), thread_pool.lib()
    if found is None or threads is None:
        return None
    build.declare(found, {f"{n}_{t}": a for n, a in _ARGUMENTS.items() for t in _NAMES.values()}, ())
    found.mt_use(threads.mt_share)
    return found


def ready(dtype):
    """True if there are kernels for arrays of this dtype."""
    return dtype in _NAMES and thread_pool.ready() is not None and _lib() is not None


def _call(name, dtype, *args):
    getattr(_lib(), f"{name}_{_NAMES[dtype]}")(*[at(a) if a.__class__ is np.ndarray else a for a in args])


def _strides(a):
    """Returns the strides, in elements, of images, rows, columns and channels of a[N, C, H, W]."""
    n, c, h, w = (s // a.itemsize for s in a.strides)
    return n, h, w, c


def _by_pixel(n, c, h, w, dtype):
    """Returns a zeroed array [N, C, H, W] with adjacent channels (channels-last)."""
    return np.zeros((n, h, w, c), dtype).transpose(0, 3, 1, 2)


def _numbers(regions, channels, size, image, apart):
    return np.array([regions, channels, *size, *image.shape[2:], apart, *_strides(image)], np.int64)


#: Pixel reads per pixel of the images below which converting to channels-last does not pay off.
_FEW = 4


def bins(image, index, vertical, horizontal, size, apart):
    """Computes the weighted sums of bins, [K, channels, *size]. apart: distance in channels between
    the inputs of two bins, or 0."""
    k, count = len(index), size[0] * size[1]
    channels = apart or image.shape[1]
    n, c, h, w = image.shape
    if k * count * 9 > _FEW * n * h * w and _strides(image)[3] != 1:
        image = np.ascontiguousarray(image.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    r = np.empty((k, channels, *size), image.dtype)
    _call("mt_bins", image.dtype, _numbers(k, channels, size, image, apart), image, r, index, vertical, horizontal, 0)
    return r


def bins_backward(g, index, vertical, horizontal, shape, apart):
    """Returns the gradient of the image, of the given shape."""
    k, channels, *size = g.shape
    n, c, h, w = shape
    few = k * size[0] * size[1] * 9 <= _FEW * n * h * w
    r = np.zeros(shape, g.dtype) if few else _by_pixel(n, c, h, w, g.dtype)
    _call("mt_bins", g.dtype, _numbers(k, channels, size, r, apart), np.ascontiguousarray(g), r, index, vertical, horizontal, 1)
    return np.ascontiguousarray(r)


def maxima(image, index, vertical, horizontal):
    """Returns the index in its plane of the maximum of each bin, [K, C, rows, columns]; -1: empty
    bin. vertical, horizontal: [K, bins, 2], start and end (exclusive) of each bin."""
    k, rows, columns = len(index), vertical.shape[1], horizontal.shape[1]
    where = np.empty((k, image.shape[1], rows, columns), np.int32)
    numbers = np.array([k, image.shape[1], rows, columns, *image.shape[2:]], np.int64)
    _call("mt_maxima", image.dtype, numbers, np.ascontiguousarray(image), index, vertical, horizontal, where)
    return where


def suppress(boxes, threshold):
    """Returns a mask of the boxes[4, n], best first, that a better box overlaps by more than the
    threshold."""
    gone = np.zeros(boxes.shape[1], np.bool_)
    _call("mt_suppress", boxes.dtype, boxes, boxes.shape[1], threshold, gone)
    return gone


def _geometry(x, groups, geometry):
    n, c, h, w = x.shape
    return np.array([n, groups, c // groups, h, w, *geometry], np.int64)


def _pixels(x):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def moved(x, offset, mask, groups, geometry):
    """Returns the inputs of each tap of a deformable convolution, [N, oh, ow, taps, C]; geometry:
    kernel, out, stride, padding, dilation."""
    kh, kw, oh, ow = geometry[:4]
    r = np.empty((x.shape[0], oh, ow, kh * kw, x.shape[1]), x.dtype)
    _call("mt_moved", x.dtype, _geometry(x, groups, geometry), _pixels(x), offset, mask, r, None, None, None)
    return r


def moved_backward(g, x, offset, mask, groups, geometry):
    """Returns the gradients of x, offset and mask (None without one)."""
    gx = np.zeros((x.shape[0], *x.shape[2:], x.shape[1]), x.dtype)
    go, gm = np.empty_like(offset), None if mask is None else np.empty_like(mask)
    _call("mt_moved", x.dtype, _geometry(x, groups, geometry), _pixels(x), offset, mask, np.ascontiguousarray(g), gx, go, gm)
    return np.ascontiguousarray(gx.transpose(0, 3, 1, 2)), go, gm
