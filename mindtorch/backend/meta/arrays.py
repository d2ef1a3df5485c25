"""Arrays without memory: ordinary ndarrays on address space that is reserved once and never touched."""
from __future__ import annotations

import mmap
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from mindtorch.backend.interface import Array, Sizes, Strides

_NORESERVE = 0x4000          # (Python's mmap module has no name for it before 3.13)
_region: Array | None = None               # the mapping, as an array of bytes
_low = _high = 0             # its addresses
#: (first address, behind the last) of all there have been
spans: list[tuple[int, int]] = []
# None is ever given back: at its addresses the system would put arrays that do have memory, and they would count as blank.
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
            size >>= 1       # a limit on address space (ulimit -v)
            if size < nbytes or size < 1 << 20:
                raise RuntimeError(f"device meta: cannot reserve {nbytes} bytes of address space for a tensor's shape") from None
    _region = np.frombuffer(m, np.uint8)
    _low = _region.__array_interface__["data"][0]
    _high = _low + size
    _regions.append(_region)
    spans.append((_low, _high))


def blank(shape: Sequence[int], dtype: DTypeLike, like: Array | None = None) -> Array:
    """An array of the given shape and dtype that has no memory; `like`: an array whose order of dimensions it follows."""
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


def is_blank(a: Array) -> bool:
    """Whether an array lies on the address space of meta tensors (empty arrays do not)."""
    at = a.__array_interface__["data"][0]
    return any(low <= at < high for low, high in spans)


def on_strides(shape: Sizes, dtype: DTypeLike, strides: Strides) -> Array:
    """An array without memory of the given dense strides (in elements)."""
    flat = blank(shape, dtype)
    return np.ndarray(shape, dtype, flat, 0, [s * flat.itemsize for s in strides]) if flat.size else flat
