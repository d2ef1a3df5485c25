"""What a device is to the floors above: memory behind handles, and a table of kernels (backend/kernels.py).

A folder of kernels (backend/<name>/) makes one `Device`.  Nobody above looks into a handle.
"""
from __future__ import annotations

from typing import NoReturn

import numpy as np

from mindtorch.backend.interface import Array, Handle, Sizes, Strides, Stype


class Device:
    """Memory that only its own kernels touch.  Strides and offsets are counted in elements."""

    type: str            # its name: torch.device(type)

    def upload(self, array: Array) -> Handle:
        """A handle on a copy of a host array."""
        raise NotImplementedError(f"device {self.type}: upload")

    def download(self, handle: Handle) -> Array:
        """The values as a host array; waits for whoever computes them."""
        raise NotImplementedError(f"device {self.type}: download")

    def geometry(self, handle: Handle) -> tuple[Sizes, Stype, Strides]:
        """(sizes, element type, strides)."""
        raise NotImplementedError(f"device {self.type}: geometry")

    def view(self, handle: Handle, sizes: Sizes, strides: Strides, offset: int) -> Handle:
        """A handle on part of the same memory; the offset is counted from the first element of `handle`."""
        raise NotImplementedError(f"device {self.type}: view")

    def write(self, handle: Handle, value: Handle) -> None:
        """Stores the values of a handle of the same sizes and element type."""
        raise NotImplementedError(f"device {self.type}: write")


class Opaque(np.ndarray):
    """The shape, element type and strides of memory that is elsewhere.  Whoever reads or writes values through it is told so."""

    __slots__ = ()

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError("values of a tensor that is not in host memory were asked for as an array: core/values.py fetches them")

    __array_ufunc__ = __array_function__ = __getitem__ = __setitem__ = __iter__ = __reduce__ = __reduce_ex__ = _refuse
    __float__ = __int__ = __bool__ = __complex__ = __index__ = __contains__ = __deepcopy__ = __copy__ = _refuse


for _name in """astype copy tolist tobytes item fill all any sum min max mean prod nonzero argsort argmax argmin sort take repeat choose dump dumps
 put byteswap clip compress conj conjugate cumprod cumsum dot round searchsorted std var trace tofile ravel flatten reshape transpose
 swapaxes squeeze view diagonal""".split():
    setattr(Opaque, _name, Opaque._refuse)
