"""Large arrays in pieces that fit the cache, the pieces shared between threads.

A kernel of several NumPy passes over four megabytes fetches them anew for each pass; over pieces of 256 KB it does not, which on
one thread is worth a factor of 1.3 to 2 (smaller ones cost more calls, and threads then wait for each other between them).  The
pieces are the same however many threads there are, and what is summed over them is added up in their order: results do not
depend on the number of threads.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType

import numpy as np

from mindtorch.backend.cpu import threads
from mindtorch.backend.interface import Kernel

#: Elements from which on a pass of several ufuncs goes in pieces (below, everything fits the cache anyway), and elements a piece.
LEAST = 1 << 16
PIECE = 1 << 16
#: Elements from which on a call of our C (5 to 15 us, most of it for its numbers) pays.
FEW = 4096
#: The same of one (1 us) in the place of several NumPy calls: softmax of 16x16 in C 1.2 us, in NumPy 5.7 (torch 1.3).
SOME = 2


@functools.cache
def along() -> ModuleType:
    """backend/native/along.py: C for ops along an axis, loaded for the first large one."""
    from mindtorch.backend.native import along as found
    return found


@functools.cache
def rows() -> ModuleType:
    """backend/native/rows.py: C for rows and columns, loaded for the first array of FEW elements that is reduced."""
    from mindtorch.backend.native import rows as found
    return found


@functools.cache
def draws() -> ModuleType:
    """backend/native/draws.py: C for random numbers, loaded for the first that are drawn."""
    from mindtorch.backend.native import draws as found
    return found


@functools.cache
def moves() -> ModuleType:
    """backend/native/moves.py: C for what is picked by several axes, loaded when it is needed first."""
    from mindtorch.backend.native import moves as found
    return found


@functools.cache
def pools() -> ModuleType:
    """backend/native/pools.py: C for pools, loaded for the first."""
    from mindtorch.backend.native import pools as found
    return found


def each(count: int, part: Callable[[int], object], size: int) -> None:
    """part(k) for every k below `count`, on several threads if the `size` elements are worth it."""
    def run(start, stop):
        for k in range(start, stop):
            part(k)
    if size >= threads.LARGE:
        threads.share(count, run)
    else:
        run(0, count)


def each_rows(n: int, width: int, part: Callable[[int, int], object]) -> int:
    """part(start, stop) for pieces of n rows of `width` elements; returns how many pieces there are."""
    step = rows_at_once(width)
    count = -(-n // step)
    each(count, lambda k: part(k * step, min(n, (k + 1) * step)), n * width)
    return count


def rows_at_once(width: int) -> int:
    """Rows a piece of each_rows."""
    return max(1, 2 * PIECE // max(1, width))


def elementwise(kernel: Kernel) -> Kernel:
    """The kernel of one or more arrays, done in pieces where they are large, contiguous and of one shape and dtype.

    The result has to be one array of that shape and dtype.
    """
    @functools.wraps(kernel)
    def in_pieces(x, *more, **kw):
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
    in_pieces.pointwise = True       # type: ignore[attr-defined]
    return in_pieces
