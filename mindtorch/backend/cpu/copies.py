"""Copies of strided arrays."""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.cpu import large, threads
from mindtorch.backend.interface import Array, Kernel, Sizes, Stype

_LARGE = 1 << 10            # elements from which on a call of C is worth it
_CROSSING = 1 << 13         # elements from which on operands are brought into one order
MANY = 1 << 17              # bytes from which on it is to fill memory
#: Bytes from which on threads share a copy or zeros (two of them, us of NumPy and of C: a copy of 256 KB 6.6 and 4.0, 4 MB 89 and 47; zeros of 512 KB 5.2 and
#: 3.9, of 4 MB 43 and 31), and those from which on the system gives zeros that nobody writes before they are used.
_SHARED, _SHARED_ZEROS, _LAZY = 1 << 18, 1 << 19, 1 << 25


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


def store(to: Array, a: Array) -> None:
    """to[...] = a. Large arrays of one shape by C, whatever the order of their axes."""
    if a.size < _LARGE or not a.ndim or a.shape != to.shape or a.nbytes < _SHARED and a.flags.c_contiguous and to.flags.c_contiguous or not to.flags.writeable \
            or a.__class__ is not np.ndarray or to.__class__ is not np.ndarray or np.may_share_memory(to, a) or not large.moves().copied(to, a):
        to[...] = a


def fill(to: Array, value: Array) -> None:
    """to[...] = value, an array of no dimensions and of its dtype. (256 KB of float32 in C 5.7 us, by NumPy 7.2, PyTorch 5.5; 64 KB 3.8, 2.4, 2.7.)"""
    if to.nbytes < MANY or to.__class__ is not np.ndarray or not large.moves().filled(to, value):
        to[...] = value


def copy_c(a: Array, alone: bool = False) -> Array:
    """Copy in C order; alone: on the calling thread.

    Large arrays by C, in tiles: us of C / PyTorch / NumPy on one thread, a matrix of 256 transposed 18 / 47 / 88, of 1024 550 / 1700 / 5700, images 16x64x32x32
    to channels last 440 / 3600 / 3700. Without it transposed matrices go in stripes of 16 columns, so that what is read fits the cache.
    """
    if a.ndim < 2 or a.flags.c_contiguous:
        return a.copy() if alone or a.nbytes < _SHARED else duplicate(a)
    if a.size >= _LARGE and a.__class__ is np.ndarray:
        r = np.empty(a.shape, a.dtype)
        if large.moves().copied(r, a, alone):
            return r
    if a.strides[-2] >= a.strides[-1] or a.strides[-1] * a.shape[-1] < 1 << 17:
        return a.copy()
    r = np.empty(a.shape, a.dtype)
    for j in range(0, a.shape[-1], 16):
        r[..., j:j + 16] = a[..., j:j + 16]
    return r


def duplicate(a: Array) -> Array:
    """a.copy(order="K"): in the array's own order of memory."""
    if a.nbytes >= _SHARED and threads.count() > 1 and a.__class__ is np.ndarray:
        r = np.empty_like(a)
        if large.moves().copied(r, a):
            return r
    return a.copy(order="K")


def zeros(shape: Sizes, dtype: Stype) -> Array:
    """np.zeros(shape, dtype)."""
    n = dtype.itemsize
    for s in shape:
        n *= s
    if _SHARED_ZEROS <= n < _LAZY and threads.count() > 1:
        r = np.empty(shape, dtype)
        fill(r, np.zeros((), dtype))
        return r
    return np.zeros(shape, dtype)


def crosses(a: Array) -> bool:
    """Whether a large array lies in memory along another axis than its last: beside one in C order a pass takes less time with a copy of it.

    us of NumPy's addition of an array in C order and a transposed one, of the copy and the addition, of PyTorch's on one thread: 512x512 620 / 89 / 550,
    8x128x256 200 / 80 / 170, 16x32x32 11 / 6 / 9.
    """
    if a.size < _CROSSING or a.strides[-1] == a.itemsize or 0 in a.strides:
        return False
    return a.shape[-1] > 1 and any([s == a.itemsize and n > 1 for s, n in zip(a.strides, a.shape)])


def beside(a: Array, shares: int | None) -> Array:
    """Such an array in C order, for a pass that threads share from so many elements on (None: never).

    What one thread will read is copied by it, up to what its cache holds (256x9x64 compared: from a copy in two threads' caches 199 us, from one in its
    own 54); what they share, by all (added: 43 and 80 us)."""
    return copy_c(a, a.nbytes <= 1 << 20 and (shares is None or a.size < shares))


class _Given(threading.local):
    """An array of this thread that the next `own` of it may take as it is."""

    array: Array | None = None


given = _Given()


def own(a: Array) -> Array:
    """A copy to be written to; or the array itself where an in-place op has `given` it, whose memory the result goes to anyway."""
    if given.array is a:
        given.array = None
        return a
    return copy_c(a)


def owning(kernel: Kernel) -> Kernel:
    """Marks a kernel that takes its first operand by `own`."""
    kernel.owns = True          # type: ignore[attr-defined]
    return kernel


def into(a: Array, fn: Callable[..., Any], *args: Any, **constants: Any) -> Any:
    """fn(*args, **constants), in which such a kernel takes `a`, to which the result is written anyway: `a` itself, where that could be."""
    given.array = a
    try:
        return fn(*args, **constants)
    finally:
        given.array = None
