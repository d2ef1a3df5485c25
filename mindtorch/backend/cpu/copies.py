"""Copies of strided arrays."""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.cpu import large, threads
from mindtorch.backend.interface import Array, Kernel, Sizes, NpDtype

_LARGE = 1 << 10  # elements from which a call of C pays off
_CROSSING = 1 << 13  # elements from which operands are brought into the same memory order
MANY = 1 << 17  # bytes from which `fill` uses C
#: Bytes from which threads share a copy (`_SHARED`) or zeros (`_SHARED_ZEROS`). Two threads, NumPy
#: vs C: a copy of 256 KB 6.6 vs 4.0 us, of 4 MB 89 vs 47 us; zeros of 512 KB 5.2 vs 3.9 us, of 4 MB
#: 43 vs 31 us. From `_LAZY` bytes on, zeros come from the operating system, which does not write
#: the pages before they are used.
_SHARED, _SHARED_ZEROS, _LAZY = 1 << 18, 1 << 19, 1 << 25


def channels_last(a: Array) -> bool:
    """True if an array (N, C, ...) has its channels innermost and is contiguous in that order."""
    return a.ndim > 3 and not a.flags.c_contiguous and np.moveaxis(a, 1, -1).flags.c_contiguous


def empty_like_one(shape, dtype, *arrays):
    """Returns an uninitialized (N, C, ...) array, channels-last if one of the arrays is."""
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
    """Assigns to[...] = a. Large arrays of one shape are copied in C, whatever the order of their
    axes."""
    if a.size < _LARGE or not a.ndim or a.shape != to.shape or a.nbytes < _SHARED and a.flags.c_contiguous and to.flags.c_contiguous or not to.flags.writeable \
            or a.__class__ is not np.ndarray or to.__class__ is not np.ndarray or np.may_share_memory(to, a) or not large.copy_pad_grid().copied(to, a):
        to[...] = a


def fill(to: Array, value: Array) -> None:
    """Assigns to[...] = value, a 0-dim array of the same dtype.

    256 KB of float32 take 5.7 us in C, 7.2 us in NumPy, 5.5 us in PyTorch; 64 KB take 3.8, 2.4 and
    2.7 us.
    """
    if to.nbytes < MANY or to.__class__ is not np.ndarray or not large.copy_pad_grid().filled(to, value):
        to[...] = value


def copy_c(a: Array, single_threaded: bool = False) -> Array:
    """Returns a copy in C order. With `single_threaded`, only the calling thread copies.

    Large arrays are copied in C, in tiles. Time on one thread, C / PyTorch / NumPy: a transposed
    matrix of 1024x1024 550 / 1700 / 5700 us, images 16x64x32x32 to channels-last 440 / 3600 / 3700
    us. Without C, transposed matrices are copied in stripes of 16 columns, so that the source fits
    into the cache.
    """
    if a.ndim < 2 or a.flags.c_contiguous:
        return a.copy() if single_threaded or a.nbytes < _SHARED else duplicate(a)
    if a.size >= _LARGE and a.__class__ is np.ndarray:
        r = np.empty(a.shape, a.dtype)
        if large.copy_pad_grid().copied(r, a, single_threaded):
            return r
    if a.strides[-2] >= a.strides[-1] or a.strides[-1] * a.shape[-1] < 1 << 17:
        return a.copy()
    r = np.empty(a.shape, a.dtype)
    for j in range(0, a.shape[-1], 16):
        r[..., j:j + 16] = a[..., j:j + 16]
    return r


def duplicate(a: Array) -> Array:
    """Returns a.copy(order="K"): the copy has the array's memory order."""
    if a.nbytes >= _SHARED and threads.count() > 1 and a.__class__ is np.ndarray:
        r = np.empty_like(a)
        if large.copy_pad_grid().copied(r, a):
            return r
    return a.copy(order="K")


def zeros(shape: Sizes, dtype: NpDtype) -> Array:
    """Returns np.zeros(shape, dtype). Threads share the filling of medium-sized arrays."""
    n = dtype.itemsize
    for s in shape:
        n *= s
    if _SHARED_ZEROS <= n < _LAZY and threads.count() > 1:
        r = np.empty(shape, dtype)
        fill(r, np.zeros((), dtype))
        return r
    return np.zeros(shape, dtype)


def crosses(a: Array) -> bool:
    """True if a large array is contiguous along another axis than its last one.

    A pass over such an array and one in C order is faster with a copy of it. Time on one thread,
    NumPy's addition of an array in C order and a transposed one / copy and addition / PyTorch:
    512x512 620 / 89 / 550 us, 16x32x32 11 / 6 / 9 us.
    """
    if a.size < _CROSSING or a.strides[-1] == a.itemsize or 0 in a.strides:
        return False
    return a.shape[-1] > 1 and any([s == a.itemsize and n > 1 for s, n in zip(a.strides, a.shape)])


def beside(a: Array, shares: int | None) -> Array:
    """Returns an array that `crosses` in C order, for an elementwise pass.

    `shares` is the number of elements from which threads share the pass (None: never). If one
    thread reads the copy, this thread makes it, up to the size of its cache (comparing 256x9x64
    takes 199 us from a copy in two threads' caches, 54 us from a copy in its own). If threads share
    the pass, all of them copy (adding: 43 vs 80 us).
    """
    return copy_c(a, a.nbytes <= 1 << 20 and (shares is None or a.size < shares))


class _Given(threading.local):
    """Thread-local array that the next `own` of it may return without a copy."""

    array: Array | None = None


given = _Given()


def writable_copy(a: Array) -> Array:
    """Returns a copy that may be modified in place.

    Returns the array itself if an in-place op has stored it in `given`: the result goes to its
    memory anyway.
    """
    if given.array is a:
        given.array = None
        return a
    return copy_c(a)


def owning(kernel: Kernel) -> Kernel:
    """Marks a kernel that gets its first operand through `own`."""
    kernel.owns = True          # type: ignore[attr-defined]
    return kernel


def into(a: Array, fn: Callable[..., Any], *args: Any, **constants: Any) -> Any:
    """Calls fn(*args, **constants) for a kernel that is marked by `owning`.

    The result is written to `a` anyway, so the kernel may modify `a` directly; it then returns `a`
    itself.
    """
    given.array = a
    try:
        return fn(*args, **constants)
    finally:
        given.array = None
