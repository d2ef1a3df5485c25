"""Memory of arrays: their storage, views of it with any strides, copies in a memory format."""
from __future__ import annotations

import numpy as np

from mindtorch.backend.cpu.copies import copy_c, store
from mindtorch.backend.cpu.host import address
from mindtorch.backend.device import GeometryArray, address_range
from mindtorch.backend.interface import Array, Sizes, Strides, NpDtype
from mindtorch.backend.mindspore.private import STRIDED
from mindtorch.backend.strides import check_rank, empty, format_strides, like_strides, strides_of

_ndarray = np.ndarray


def root(a: Array) -> Array:
    """Returns the array that owns the memory of `a` (its storage)."""
    if a.__class__ is GeometryArray:
        return address_range(a)
    while a.base.__class__ is _ndarray:
        a = a.base
    return a if a.base.__class__ is not GeometryArray else address_range(a.base)


def flat_bytes(r: Array) -> Array:
    """Returns a storage's memory as a one-dimensional array of bytes that shares it."""
    if r.__class__ is GeometryArray:
        r = _ndarray.view(r, _ndarray)
    if not r.flags.c_contiguous:
        r = r.transpose(sorted(range(r.ndim), key=lambda i: -r.strides[i]))
        if not r.flags.c_contiguous:
            raise NotImplementedError("as_strided: this tensor's memory comes from a non-contiguous external array and "
                                      "has no storage on device cpu; clone() it first")
    return r.reshape(-1).view(np.uint8)


def offset_of(a: Array) -> int:
    """Returns the offset of `a`'s first element from the start of its storage, in bytes."""
    return address(a) - address(flat_bytes(root(a))) if a.size else 0


def on_storage(a: Array, shape: Sizes, strides: Strides, offset: int, dtype: NpDtype | None = None) -> Array:
    """Returns an array of any shape, strides and offset (in bytes) on the storage of `a`."""
    dtype = dtype or a.dtype
    r = flat_bytes(root(a))
    return np.empty(shape, dtype) if 0 in shape or not r.size else _ndarray(shape, dtype, r, offset, strides)


def strided(a: Array, shape: Sizes, strides: Strides, offset: int = 0) -> Array:
    """Returns a view of the memory of `a`.

    Strides are in bytes; the offset is in bytes from `a`'s first element.
    `np.lib.stride_tricks.as_strided` takes 2 us and hides the owner of the memory. This function
    takes 0.2 us if `a` is contiguous and contains the entire view.
    """
    if a.flags.c_contiguous and a.size:
        try:
            return _ndarray(shape, a.dtype, a, offset, strides)
        except (ValueError, TypeError):
            pass  # extends beyond `a` itself: use the entire storage
    return on_storage(a, shape, strides, offset_of(a) + offset)


def empty_as(a: Array, shape: Sizes | None = None, dtype: NpDtype | None = None, fmt: str = "preserve") -> Array:
    """Returns an uninitialized array in the memory order of `a` (torch's empty_like), in C order,
    or channels-last."""
    if shape is None:
        shape = a.shape
    if dtype is None:
        dtype = a.dtype
    if fmt == "preserve":
        if a.flags.c_contiguous and not STRIDED.unusual_strides:
            return np.empty(shape, dtype)
        return empty(shape, dtype, like_strides(shape, strides_of(a)))
    if fmt == "contiguous":
        return np.empty(shape, dtype)
    check_rank(shape, fmt)
    return empty(shape, dtype, format_strides(tuple(shape), fmt))


def copy_as(a: Array, fmt: str = "preserve") -> Array:
    """Returns a copy of an array in a memory format."""
    if fmt == "contiguous" or fmt == "preserve" and a.flags.c_contiguous and not STRIDED.unusual_strides:
        return copy_c(a)
    r = empty_as(a, fmt=fmt)
    store(r, a)
    return r


# ------------------------------------------------------------------ elements that share memory
def add_into(region: Array, value: Array) -> None:
    """Replaces zeros in `region` by `value`. Elements that share memory get the sum of their
    values."""
    if overlaps_itself(region):
        add_overlapping(region, value)
    else:
        region[...] = value


def add_overlapping(region: Array, value: Array) -> None:
    """Adds `value` to `region`, whose elements may share memory; shared memory gets the sum of all
    its values."""
    shape, size = region.shape, region.itemsize
    index = np.zeros(shape, np.int64)
    for ax, (n, s) in enumerate(zip(shape, region.strides)):
        index += (np.arange(n, dtype=np.int64) * (s // size)).reshape([n if i == ax else 1 for i in range(len(shape))])
    length = int(index.max()) + 1 if index.size else 0
    work = np.float32 if region.dtype.kind == "V" else region.dtype
    acc = np.zeros(length, work)
    np.add.at(acc, index.reshape(-1), value.astype(work).reshape(-1))
    region[...] = (region.astype(work) + acc[index]).astype(region.dtype)


def overlaps_itself(a: Array) -> bool:
    """True if two elements of the array share memory, or may do so."""
    if a.flags.c_contiguous or a.size <= 1:
        return False
    reach = 0
    for s, n in sorted((abs(s), n) for n, s in zip(a.shape, a.strides) if n > 1):
        if s <= reach:
            return True
        reach += s * (n - 1)
    return False


def dense(a: Array) -> bool:
    """True if the array fills a range of memory without gaps or overlaps, in any order of
    dimensions."""
    if a.flags.c_contiguous or a.flags.f_contiguous:
        return True
    expect = a.itemsize
    for s, n in sorted((s, n) for n, s in zip(a.shape, a.strides) if n != 1):
        if s != expect:
            return False
        expect *= n
    return True
