"""Copies of strided arrays."""
from __future__ import annotations


import numpy as np

from mindtorch.backend.cpu import onednn_pass
from mindtorch.backend.interface import Array

_TRANSPOSED = 1 << 16       # elements from which on copying by oneDNN is worth it


def channels_last(a: Array) -> bool:
    """True for an array (N, C, ...) whose channels lie innermost, in one piece of memory."""
    return a.ndim > 3 and not a.flags.c_contiguous and np.moveaxis(a, 1, -1).flags.c_contiguous


def empty_like_one(shape, dtype, *arrays):
    """Uninitialised (N, C, ...), the channels innermost if they are so in one of the arrays."""
    for a in arrays:
        if channels_last(a):
            n, c, *size = shape
            strides, step = [], c * np.dtype(dtype).itemsize
            for m in reversed(size):
                strides.append(step)
                step *= m
            return np.ndarray(shape, dtype, strides=(step, np.dtype(dtype).itemsize, *reversed(strides)))
    return np.empty(shape, dtype)


def copy_c(a: Array) -> Array:
    """Copy in C order.

    Large transposed arrays by oneDNN.  Otherwise transposed matrices go in stripes of 16 columns, so that what is read fits the
    cache: 512x256 65 us instead of 140, 1024x1024 0.8 ms instead of 3.3 (MindSpore's Transpose: 0.5 and 9).
    """
    if a.ndim < 2 or a.flags.c_contiguous:
        return a.copy()
    if a.size >= _TRANSPOSED and a.strides[-1] > a.itemsize:
        r = onednn_pass.copy_c(a)
        if r is not None:
            return r
    if a.strides[-2] >= a.strides[-1] or a.strides[-1] * a.shape[-1] < 1 << 17:
        return a.copy()
    r = np.empty(a.shape, a.dtype)
    for j in range(0, a.shape[-1], 16):
        r[..., j:j + 16] = a[..., j:j + 16]
    return r
