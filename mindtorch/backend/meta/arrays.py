"""Meta arrays: ordinary ndarrays on address space that is reserved once and never accessed."""
from __future__ import annotations

import mmap
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from mindtorch.backend.interface import Array, Sizes, Strides

_NORESERVE = 0x4000  # (named by Python's mmap module only from 3.13 on)
_region: Array | None = None               # the mapping, as an array of bytes
_low = _high = 0  # its address range
#: (first address, one past the last) of all reserved regions
spans: list[tuple[int, int]] = []
# Regions are never released: the system could place real arrays at their addresses, which would
# then count as meta arrays.
_regions: list[Array] = []


def _reserve(nbytes):
    global _region, _low, _high
    size = 1 << 40
    while size < nbytes:
        size <<= 2
    while True:
        try:
            m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE, prot=mmap.PROT_READ)
            break
        except OSError:
            size >>= 1  # limited address space (ulimit -v)
            if size < nbytes or size < 1 << 20:
                raise RuntimeError(f"device meta: cannot reserve {nbytes} bytes of address space for a tensor's shape") from None
    _region = np.frombuffer(m, np.uint8)
    _low = _region.__array_interface__["data"][0]
    _high = _low + size
    _regions.append(_region)
    spans.append((_low, _high))


def meta_array(shape: Sequence[int], dtype: DTypeLike, like: Array | None = None) -> Array:
    """Returns a meta array of the given shape and dtype; `like`: an array whose dimension order it
    follows."""
    dtype = np.dtype(dtype)
    n = dtype.itemsize
    for s in shape:
        n *= s
    if _region is None or n > _high - _low:
        _reserve(n)
    assert _region is not None
    flat = np.frombuffer(_region.data, np.uint8, n) if n else np.empty(0, np.uint8)
    flat = flat.view(dtype)
    if like is not None and like.shape == tuple(shape) and not like.flags.c_contiguous:
        order = sorted(range(like.ndim), key=lambda i: (-abs(like.strides[i]), i))
        a = flat.reshape([shape[i] for i in order])
        return a.transpose([order.index(i) for i in range(like.ndim)])
    return flat.reshape(shape)


def is_meta_array(a: Array) -> bool:
    """True if an array is in the address space of meta tensors (empty arrays are not)."""
    at = a.__array_interface__["data"][0]
    return any(low <= at < high for low, high in spans)


def on_strides(shape: Sizes, dtype: DTypeLike, strides: Strides) -> Array:
    """Returns a meta array with the given dense strides (in elements)."""
    flat = meta_array(shape, dtype)
    return np.ndarray(shape, dtype, flat, 0, [s * flat.itemsize for s in strides]) if flat.size else flat
