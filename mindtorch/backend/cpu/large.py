"""Processing of large arrays in pieces that fit into the cache and that threads share.

A kernel of several NumPy passes over 4 MB reads the data from memory in each pass. Pieces of 256 KB
stay in the cache, which is 1.3 to 2 times as fast on one thread. (Smaller pieces need more calls,
between which threads wait for each other.) The pieces do not depend on the number of threads, and
sums over pieces are added up in order: results do not depend on the number of threads.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType

import numpy as np

from mindtorch.backend.cpu import threads
from mindtorch.backend.interface import Kernel

#: Elements from which passes of several ufuncs run in pieces (smaller arrays fit into the cache
#: anyway), and elements per piece.
LEAST = 1 << 16
PIECE = 1 << 16
#: Elements from which a call of the C code pays off (5 to 15 us, mostly for its scalar arguments).
FEW = 4096
#: Elements from which one call of C (1 us) pays off in place of several NumPy calls: softmax of
#: 16x16 takes 1.2 us in C, 5.7 us in NumPy (PyTorch 1.3 us).
SOME = 2


@functools.cache
def scan_gather() -> ModuleType:
    """Returns `backend/c_kernels/scan_gather.py` (C for ops along an axis), imported at the first
    use."""
    from mindtorch.backend.c_kernels import scan_gather as found
    return found


@functools.cache
def reduce() -> ModuleType:
    """Returns `backend/c_kernels/reduce.py` (C for rows and columns), imported at the first use."""
    from mindtorch.backend.c_kernels import reduce as found
    return found


@functools.cache
def random() -> ModuleType:
    """Returns `backend/c_kernels/random.py` (C for random numbers), imported at the first use."""
    from mindtorch.backend.c_kernels import random as found
    return found


@functools.cache
def copy_pad_grid() -> ModuleType:
    """Returns `backend/c_kernels/copy_pad_grid.py` (C for picking along several axes, and copies),
    imported at the first use."""
    from mindtorch.backend.c_kernels import copy_pad_grid as found
    return found


@functools.cache
def pooling() -> ModuleType:
    """Returns `backend/c_kernels/pooling.py` (C for pooling), imported at the first use."""
    from mindtorch.backend.c_kernels import pooling as found
    return found


def each(count: int, part: Callable[[int], object], size: int) -> None:
    """Calls part(k) for every k below `count`, on several threads if `size` elements are enough
    work."""
    def run(start, stop):
        for k in range(start, stop):
            part(k)
    if size >= threads.LARGE:
        threads.share(count, run)
    else:
        run(0, count)


def each_rows(n: int, width: int, part: Callable[[int, int], object]) -> int:
    """Calls part(start, stop) for pieces of n rows of `width` elements. Returns the number of
    pieces."""
    step = rows_at_once(width)
    count = -(-n // step)
    each(count, lambda k: part(k * step, min(n, (k + 1) * step)), n * width)
    return count


def rows_at_once(width: int) -> int:
    """Returns the number of rows per piece of `each_rows`."""
    return max(1, 2 * PIECE // max(1, width))


def elementwise(kernel: Kernel) -> Kernel:
    """Wraps a kernel of one or more arrays to run in pieces.

    This applies if the arrays are large, contiguous, and of one shape and dtype. The result has to
    be one array of that shape and dtype.
    """
    @functools.wraps(kernel)
    def in_blocks(x, *more, **kw):
        if x.size < LEAST:
            return kernel(x, *more, **kw)
        if not x.flags.c_contiguous:
            return kernel(x, *more, **kw)
        for a in more:
            if a.__class__ is not np.ndarray or a.shape != x.shape or a.dtype != x.dtype or not a.flags.c_contiguous:
                return kernel(x, *more, **kw)
        r = np.empty(x.shape, x.dtype)
        to = r.reshape(-1)
        flat = [a.reshape(-1) for a in (x, *more)]

        def part(k):
            cut = slice(k * PIECE, (k + 1) * PIECE)
            to[cut] = kernel(*[a[cut] for a in flat], **kw)
        each(-(-x.size // PIECE), part, x.size)
        return r
    in_blocks.pointwise = True       # type: ignore[attr-defined]
    return in_blocks
