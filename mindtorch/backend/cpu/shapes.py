"""Kernels that copy into another shape or order: repeat, roll, flip, triangles, diagonals."""
import functools
import itertools

import numpy as np

from mindtorch.backend.cpu import kernel, large
from mindtorch.backend.cpu.basic import cast_array
from mindtorch.backend.cpu.joining import joined
from mindtorch.backend.cpu.memory import copy_as, empty_as
from mindtorch.backend.cpu.pointwise import masked


# ------------------------------------------------------------------ repeating
@kernel("repeat")
def _repeat(a, *, repeats):
    lead = len(repeats) - a.ndim
    shape = (1,) * lead + a.shape
    pairs = [n for pair in zip(repeats, shape) for n in pair]
    src = a.reshape([n for s in shape for n in (1, s)])
    out = np.empty(pairs, a.dtype)
    out[...] = src
    return out.reshape([r * s for r, s in zip(repeats, shape)])


@kernel("repeat_interleave")
def _repeat_each(a, *, n, dim):
    return np.repeat(a, n, dim)


@kernel("repeat_indices")
def _repeat_indices(counts, *, np_dtype):
    """Returns 0, 1, 2, ..., each repeated as often as `counts` specifies."""
    if counts.size and counts.min() < 0:
        raise RuntimeError("repeats can not be negative")
    return np.repeat(np.arange(counts.size, dtype=np_dtype), counts.reshape(-1))


@kernel("combination_indices")
def _combinations(like, *, n, r, with_replacement):
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    return np.array(list(choose(range(n), r)), np.int64).reshape(-1, r)


# ------------------------------------------------------------------ roll and flip
@kernel("roll")
def _roll(a, *, shifts, dims):
    if not a.size:
        return a.copy()
    a = np.ascontiguousarray(a)
    if len(dims) == 1:  # two pieces concatenated: a 16x16 matrix takes 1.8 us, by np.roll 5.4 us
        dim = dims[0]
        k = -shifts[0] % a.shape[dim]
        lead = (_ALL,) * dim
        return joined((a[lead + (slice(k, None),)], a[lead + (slice(k),)]), dim)
    return np.roll(a, shifts, dims)


#: Minimum elements for a C call to be faster than NumPy's loop backward.
_TURNED = 1024
#: Maximum entries of an offset table. Each takes eight bytes and tables are cached: that of 1e8
#: elements takes 1.5 GB and 14 s, NumPy's loop 0.1 s.
_PLACES = 1 << 14


@functools.lru_cache(256)
def _turned(shape, dims):
    """Returns the concatenated per-axis offsets of the elements of a C-contiguous array, reversed
    along `dims`."""
    tables, step = [], 1
    for d in range(len(shape) - 1, -1, -1):
        offsets = np.arange(shape[d]) * step
        tables.append(offsets[::-1] if d in dims else offsets)
        step *= shape[d]
    return np.concatenate(tables[::-1])


@kernel("flip")
def _flip(a, *, dims):
    # NumPy moves backward element by element: 256x256 float32 take 48 us, with tables 9 us (PyTorch
    # 10 us).
    if a.size >= _TURNED and dims and sum(a.shape) <= _PLACES and a.flags.c_contiguous:
        r = large.copy_pad_grid().spread(a, a.shape, _turned(a.shape, dims))
        if r is not None:
            return r
    r = empty_as(a)
    r[...] = a[tuple([_BACKWARDS if d in dims else _ALL for d in range(a.ndim)])]
    return r


_ALL, _BACKWARDS = slice(None), slice(None, None, -1)


# ------------------------------------------------------------------ copies
@kernel("clone_format")
def _clone(a, *, fmt):
    return copy_as(a, fmt)


@kernel("to_copy_format")
def _to_copy(a, *, dtype, fmt):
    return copy_as(a if dtype is None or a.dtype == dtype else cast_array(a, dtype), fmt)


# ------------------------------------------------------------------ triangles and diagonals
def _triangle(shape, diagonal, lower):
    mask = np.tri(shape[-2], shape[-1], diagonal if lower else diagonal - 1, np.bool_)
    return mask if lower else ~mask


_cached_triangle = functools.lru_cache(64)(lambda rows, columns, diagonal, lower: _triangle((rows, columns), diagonal, lower))


def _small_triangle(a, diagonal, lower):
    """Returns the triangle of a small array by a cached mask; None for a larger array.

    16x16 takes 1.5 us, vs 3.4 us by the C call.
    """
    return masked(a, _cached_triangle(*a.shape[-2:], diagonal, lower)) if a.size <= _FEW else None


_FEW = 1024


def _triangle_kernel(name, lower):
    @kernel(name)
    def triangle(a, *, diagonal):
        a = np.ascontiguousarray(a)
        if (r := _small_triangle(a, diagonal, lower)) is not None:
            return r
        r = large.copy_pad_grid().triangle(a, diagonal, lower)
        if r is not None:
            return r
        return np.where(_triangle(a.shape, diagonal, lower), a, np.zeros((), a.dtype))


_triangle_kernel("tril", True)
_triangle_kernel("triu", False)


@kernel("tri_indices")
def _tri_indices(row, col, offset, lower, np_dtype, device):
    return np.stack(np.nonzero(_triangle((row, col), offset, lower))).astype(np_dtype)


@kernel("diag_embed")
def _diag_embed(a, *, offset, dim1, dim2):
    n = a.shape[-1] + abs(offset)
    shape = list(a.shape[:-1])
    for d in sorted((dim1 % (a.ndim + 1), dim2 % (a.ndim + 1))):
        shape.insert(d, n)
    out = np.zeros(shape, a.dtype)
    d = out.diagonal(offset, dim1, dim2)
    d.flags.writeable = True
    if a.size:
        d[...] = a
    return out
