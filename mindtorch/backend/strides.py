"""Strides and memory formats, in elements, as shared by kernels, layout rules and ops. Strides are
plain tuples throughout."""
from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from mindtorch.backend.interface import Array, Sizes, Strides
from mindtorch.backend.mindspore.private import STRIDED

ndarray = np.ndarray


# ------------------------------------------------------------------ strides
def contiguous_strides(shape: Sequence[int]) -> Strides:
    """Returns the strides of C order, in elements."""
    out, n = [], 1
    for s in reversed(shape):
        out.append(n)
        n *= s or 1
    return tuple(reversed(out))


LAST = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}
BY_RANK = {4: "channels_last", 5: "channels_last_3d"}


def ordered_strides(shape: Sequence[int], order: Sequence[int]) -> Strides:
    """Returns the strides of a dense layout, in elements; `order`: the dimensions from the
    outermost to the innermost."""
    out, n = [0] * len(shape), 1
    for d in reversed(order):
        out[d] = n
        n *= shape[d] or 1
    return tuple(out)


@functools.lru_cache(4096)
def format_strides(shape: Sizes, fmt: str) -> Strides:
    """Returns the strides of a memory format ("contiguous", "channels_last", "channels_last_3d"),
    in elements."""
    return contiguous_strides(shape) if fmt == "contiguous" else ordered_strides(shape, LAST[fmt])


def strides_of(a: Array) -> Strides:
    """Returns strides in elements, as PyTorch reports them.

    In C order NumPy leaves the strides of size-1 dimensions undefined. They are replaced by those
    of C order, unless the array was laid out explicitly: a shape like (N, 1, H, W) is in two
    formats at once, and only its strides tell which one is meant.
    """
    k = a.itemsize
    if a.flags.c_contiguous:
        # (Independent of the flags of `STRIDED`: a tensor's strides never change.)
        return _strides_in_elements(a.shape, a.strides, k) if a.size else contiguous_strides(a.shape)
    return tuple([s // k for s in a.strides])


@functools.lru_cache(8192)
def _strides_in_elements(shape: Sizes, strides: Strides, k: int) -> Strides:
    """Returns the strides of a C-contiguous array in elements: its own (given in bytes) if they are
    those of a dense layout, else those of C order."""
    given = tuple([s // k for s in strides])
    order = sorted(range(len(shape)), key=lambda d: (-given[d], -shape[d]))
    return given if ordered_strides(shape, order) == given else contiguous_strides(shape)


@functools.lru_cache(4096)
def suggested_format(shape: Sizes, strides: Strides) -> str:
    """Returns the memory format that the strides (in elements) of a 4- or 5-dim tensor suggest."""
    n = len(shape)
    if strides[1] == 0:
        return "contiguous"
    least = 0
    for d in (1, *range(n - 1, 1, -1), 0):
        if shape[d] == 0 or strides[d] < least or d == 0 and least == strides[1]:
            return "contiguous"
        least = strides[d] * (shape[d] if shape[d] > 1 else 1)
    return BY_RANK[n]


def suggested(a: Array) -> str:
    """Returns the memory format that an array's strides suggest, like PyTorch's
    suggest_memory_format."""
    return suggested_format(a.shape, strides_of(a)) if a.ndim in (4, 5) else "contiguous"


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """True if the elements are dense and do not overlap."""
    want = 1
    for s, n in sorted((s, n) for s, n in zip(strides, shape) if n != 1):
        if not n:
            return True
        if s != want:
            return False
        want *= n
    return True


def is_ordered(shape: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    """True if the elements are dense in the given order of dimensions (outermost first), ignoring
    the strides of size-1 dimensions."""
    want = 1
    for d in reversed(order):
        if shape[d] != 1:
            if strides[d] != want:
                return 0 in shape
            want *= shape[d]
    return True


def memory_order(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[int]:
    """Returns the dimensions, innermost first, in the order in which PyTorch's loops lay out a
    result, given the operands' strides.

    This is an insertion sort by the first operand whose strides order two dimensions; a stride of 0
    is ignored.
    """
    perm = list(range(len(shape)))[::-1]
    for i in range(1, len(perm)):
        one = i
        for zero in range(i - 1, -1, -1):
            swap = _should_swap(perm[zero], perm[one], shape, strides)
            if swap > 0:
                perm[zero], perm[one] = perm[one], perm[zero]
                one = zero
            elif swap < 0:
                break
    return perm


def _should_swap(d0, d1, shape, strides):
    for st in strides:
        s0, s1 = st[d0], st[d1]
        if s0 == 0 or s1 == 0:
            continue
        if s0 != s1:
            return -1 if s0 < s1 else 1
        if shape[d0] > shape[d1]:
            return 1
    return 0


@functools.lru_cache(8192)
def pointwise_strides(shape: Sizes, operands: tuple[tuple[Sizes, Strides], ...]) -> Strides:
    """Returns the strides of an elementwise result in elements; `operands`: (shape, strides in
    elements) of each."""
    if all(s == shape for s, _ in operands):
        if all(is_ordered(shape, st, range(len(shape))) for _, st in operands):
            return contiguous_strides(shape)
        if len(shape) == 4 and all(is_ordered(shape, st, LAST["channels_last"]) for _, st in operands):
            return format_strides(shape, "channels_last")
        first = operands[0][1]
        if all(st == first for _, st in operands) and is_dense(shape, first):
            return first
    n, seen = len(shape), []
    for s, st in operands:
        lead = n - len(s)
        seen.append((0,) * lead + tuple([0 if have == 1 and shape[lead + i] != 1 else step for i, (have, step) in enumerate(zip(s, st))]))
    return ordered_strides(shape, memory_order(shape, seen)[::-1])


@functools.lru_cache(4096)
def like_strides(shape: Sizes, strides: Strides) -> Strides:
    """Returns the strides of PyTorch's empty_like in elements: unchanged if dense, else dense in
    the same order."""
    return strides if is_dense(shape, strides) else ordered_strides(shape, memory_order(shape, (strides,))[::-1])


def drawing_order(shape: Sequence[int], strides: Strides) -> list[int]:
    """Returns the dimensions, outermost first, in the order in which PyTorch fills the tensors of
    `*_like` ops with random numbers."""
    s = like_strides(tuple(shape), tuple(strides))
    return sorted(range(len(shape)), key=lambda d: -s[d])


def broadcasts_to(shape: Sequence[int], to: Sequence[int]) -> bool:
    """True if a shape broadcasts to another one without changing it."""
    if len(shape) > len(to):
        return False
    for m, n in zip(reversed(shape), reversed(to)):
        if m != n and m != 1:
            return False
    return True


def check_rank(shape: Sequence[int], fmt: str) -> None:
    """Raises RuntimeError if a tensor of this shape cannot have the memory format."""
    if fmt in LAST and len(shape) != len(LAST[fmt]):
        raise RuntimeError(f"required rank {len(LAST[fmt])} tensor to use {fmt} format")


# ------------------------------------------------------------------ sizes
def infer_size(shape: Sizes, numel: int) -> Sizes:
    """Returns the shape with its -1 filled in; RuntimeError if it cannot hold `numel` elements."""
    unknown, known = None, 1
    for i, n in enumerate(shape):
        if n == -1:
            if unknown is not None:
                raise RuntimeError("only one dimension can be inferred")
            unknown = i
        elif n < 0:
            raise RuntimeError(f"invalid shape dimension {n} at index {i} of shape {list(shape)}")
        else:
            known *= n
    if unknown is None:
        if known == numel:
            return shape
    elif known and numel % known == 0:
        return (*shape[:unknown], numel // known, *shape[unknown + 1:])
    elif not known and not numel:
        raise RuntimeError(f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified "
                           "dimension size "
                           "-1 can be any value and is ambiguous")
    raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")


def check_extent(size: Sequence[int]) -> None:
    """Raises RuntimeError for sizes that no storage can have, whatever the dtype; NumPy would raise
    a ValueError."""
    n = 1
    for s in size:
        n *= s or 1
    if n >= 1 << 59:
        if 0 in size:
            raise RuntimeError("Stride calculation overflowed")
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(size)}")


@functools.lru_cache(8192)
def can_view(shape: Sizes, strides: Strides, size: Sizes) -> bool:
    """True if a tensor with these strides (in elements) has a view of shape `size`: no new
    dimension spans non-adjacent memory."""
    old = [(n, s) for n, s in zip(shape, strides) if n != 1]
    new = [n for n in size if n != 1]
    if 0 in shape or math.prod(shape) != math.prod(size):
        return True  # (if the number of elements differs, the view itself raises the error)
    i = j = 0
    while i < len(old):
        m = old[i][0]
        n = new[j]
        while m != n:
            if n < m:
                j += 1
                n *= new[j]
            else:
                i += 1
                m *= old[i][0]
                if old[i - 1][1] != old[i][0] * old[i][1]:
                    return False
        i, j = i + 1, j + 1
    return True


# ------------------------------------------------------------------ arrays with given strides
def empty(shape: Sizes, dtype: DTypeLike, strides: Strides) -> Array:
    """Returns an uninitialized array that owns its memory, with the given dense strides (in
    elements)."""
    if strides == contiguous_strides(shape) or 0 in shape:
        return np.empty(shape, dtype)
    k = np.dtype(dtype).itemsize
    r: Array = ndarray(shape, dtype, strides=[s * k for s in strides])
    STRIDED.on = True
    if r.flags.c_contiguous:
        STRIDED.unusual_strides = True
    return r


def noted(a: Array) -> Array:
    """Returns the array `a`, whose strides were chosen explicitly. Sets `STRIDED` if it is both
    C-contiguous and channels-last."""
    if a.ndim in (4, 5) and a.flags.c_contiguous and a.size and not STRIDED.unusual_strides:
        k = a.itemsize
        if a.strides == tuple([s * k for s in format_strides(a.shape, BY_RANK[a.ndim])]) != tuple([s * k for s in contiguous_strides(a.shape)]):
            STRIDED.on = STRIDED.unusual_strides = True
    return a
