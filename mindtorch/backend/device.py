"""What a device is to the floors above: memory behind handles, and a table of kernels (backend/kernels.py).

A folder of kernels (backend/<name>/) makes one `Device`.  Nobody above looks into a handle.
"""
from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from mindtorch.backend.cpu.host import address
from mindtorch.backend.interface import Array, Handle, Kernel, Sizes, Strides, Stype


class Lacking(Exception):
    """Raised by a kernel, before it has done anything, for what it cannot do: a dtype, a shape, a choice of constants. The host does it then."""


class Way:
    """A kernel of a device, and what it takes; made of the function's attributes of the same names.

    numbers  Python numbers in the place of constants (default: a tensor of no dimensions)
    half     float16 and bfloat16 on a device that computes those in float32 (`widens`)
    empty    operands of no elements (default: the host answers, for many kernels cannot)
    only     element types, of which all operands have to be; None: any
    alike    the same for two operands of the same sizes and element type, a whole or floating one, in C order; None: nothing special
    """

    __slots__ = ("fn", "numbers", "empty", "only", "device", "widen", "alike", "known")

    def __init__(self, fn: Kernel, device: Device, raw: bool = False) -> None:
        self.fn, self.device = fn, device
        self.widen = device.widens and not raw and not getattr(fn, "half", False)
        self.numbers: bool = getattr(fn, "numbers", False)
        self.empty: bool = getattr(fn, "empty", False)
        self.only: frozenset[Stype] | None = getattr(fn, "only", None)
        self.alike: Kernel | None = getattr(fn, "alike", None)
        #: kinds of operands that it has taken as they are, without constants -> the kind of its result, and what to call
        self.known: dict[Any, tuple[Kind, Kernel]] = {}


class Kind:
    """What arrays without memory of the same sizes and element type, in C order, have in common: the stock that a device has made of them."""

    __slots__ = ("stock",)

    def __init__(self) -> None:
        self.stock: list[Opaque] = []


class Device:
    """Memory that only its own kernels touch.  Strides and offsets are counted in elements."""

    type: str                       # its name: torch.device(type)
    names: tuple[str, ...] = ()     # what else it may be called
    widens = False                  # whether kernels get float16 and bfloat16 as float32, and their results are rounded back
    indexed = False                 # whether there may be several: torch.device(type, 1)
    lost = False                    # whether it answers nothing any more
    behind = False                  # whether a kernel's errors may be raised by a later one
    graphs = False                  # whether what it computes can be put off and run as a graph (core/lazy.py): pending, become, storage, face_of, recorder
    shadows = False                 # whether its tensors stand for the host's while a graph of those is computed (core/shadow.py)
    of_host = False                 # whether its kernels are the host's, on the host's memory, and what they do is written down (core/joint.py)
    #: kernels that draw a mask and use it -> how to do the two one after the other (core/lazy.py)
    masked: dict[str, Any] = {}
    strided = False                 # whether kernels take operands of any strides as they are, so that a copy to C order is a waste

    def count(self) -> int:
        """How many there are."""
        return 1

    def current(self) -> int:
        """Index of the one in use."""
        return 0

    def select(self, index: int) -> None:
        """Puts another one in use."""
        raise NotImplementedError(f"device {self.type}: select")

    def taken(self, tensor: Any) -> Handle:
        """A handle on the memory of a tensor that MindSpore made."""
        raise NotImplementedError(f"device {self.type}: a tensor of MindSpore's")

    def writable(self, handle: Handle) -> Handle:
        """A handle on the same memory that MindSpore's own optimizers write to."""
        return handle

    def cast(self, handle: Handle, stype: Stype) -> Handle:
        """The values in another element type."""
        raise NotImplementedError(f"device {self.type}: cast")

    def constant(self, array: Array) -> Handle:
        """A handle on a number of no dimensions, which nobody writes to."""
        return self.upload(array)

    def upload(self, array: Array) -> Handle:
        """A handle on a copy of a host array."""
        raise NotImplementedError(f"device {self.type}: upload")

    def download(self, handle: Handle) -> Array:
        """The values as a host array; waits for whoever computes them."""
        raise NotImplementedError(f"device {self.type}: download")

    def lacking(self, what: str) -> None:
        """Called before the host computes what the device has no kernel for."""

    def lacks(self, error: Exception) -> bool:
        """Whether a TypeError or ValueError out of a kernel says that the target has no kernel for such operands, as `Lacking` does; else the call is wrong."""
        return self.of_host         # (`lacking` ends the recording, and the host's kernels run as they are)

    def told(self, error: RuntimeError, doing: str = "", size: int | None = None) -> RuntimeError | None:
        """A kernel's or a copy's error in torch's words, to be raised from it; None: as it is. doing: what was asked for; size: bytes that it needs."""
        return None

    def settle(self) -> None:
        """Returns when all that was asked for has been handed to the device; raises what went wrong with that: memory, refused kernels."""

    def wait(self) -> None:
        """Returns when all is done that was asked for; raises what went wrong."""

    def address(self, handle: Handle) -> int:
        """Where the first element is in the device's memory: a number to tell memory from memory, not to be read at by the host."""
        raise NotImplementedError(f"device {self.type}: address")

    def geometry(self, handle: Handle) -> tuple[Sizes, Stype, Strides]:
        """(sizes, element type, strides)."""
        raise NotImplementedError(f"device {self.type}: geometry")

    def face(self, handle: Handle) -> Opaque:
        """The array without memory of a handle that a kernel made."""
        return placed(*self.geometry(handle))

    def view(self, handle: Handle, sizes: Sizes, strides: Strides, offset: int, stype: Stype) -> Handle:
        """A handle on part of the same memory; the offset is counted from the first element of `handle`, all in elements of the type `stype`."""
        raise NotImplementedError(f"device {self.type}: view")

    def write(self, handle: Handle, value: Handle) -> None:
        """Stores the values of a handle whose sizes broadcast to the other's, cast by torch's rules.  They may share memory."""
        raise NotImplementedError(f"device {self.type}: write")

    def fill(self, handle: Handle, number: Array) -> None:
        """Stores one number of the host's (an array of no dimensions, of the handle's element type) in every place."""
        self.write(handle, self.constant(number))


    # ---- graphs
    pending_class: Any = None

    def pending(self) -> Handle:
        """A handle that gets its memory later; of `pending_class`, which no other handle is of."""
        raise NotImplementedError(f"device {self.type}: pending")

    def become(self, pending: Handle, handle: Handle, alone: bool) -> None:
        """Makes a pending handle what another one is, which nobody else has if `alone`."""
        raise NotImplementedError(f"device {self.type}: become")

    def storage(self, handle: Handle) -> tuple[int, int]:
        """Where a handle's storage begins (as `address`), and where in it the handle does, in bytes."""
        raise NotImplementedError(f"device {self.type}: storage")

    def face_of(self, sizes: Sizes, stype: Stype, strides: Strides | None) -> Opaque:
        """The array without memory of a geometry; strides None: C order."""
        return placed(sizes, stype, strides)

    def fill_number(self, handle: Handle, number: Any, *, stype: Stype, other: bytes | None) -> None:
        """`fill` with a Python number of the handle's element type, or with the number of these bytes where Python has none like it."""
        self.fill(handle, np.array(number, stype) if other is None else np.frombuffer(other, stype).reshape(()))

    def recorder(self, level: str) -> Any:
        """What makes a graph of kernels that run (backend/mindspore/graph/maker.py)."""
        raise NotImplementedError(f"device {self.type}: graphs")


class Opaque(np.ndarray):
    """The shape, element type and strides of memory that is elsewhere.  Whoever reads or writes values through it is told so."""

    #: the array of all of the memory that this one is a view of; None for that one itself
    home: Opaque | None = None
    #: whether a write to the memory is refused
    frozen = False
    #: of an array that a device has made in stock and that has elements
    kind: Kind | None = None

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError("values of a tensor that is not in host memory were asked for as an array: core/values.py fetches them")

    def __repr__(self) -> str:
        return f"Opaque(shape={self.shape}, dtype={self.dtype}, strides={self.strides})"

    __str__ = __repr__
    __array_ufunc__ = __array_function__ = __getitem__ = __setitem__ = __iter__ = __reduce__ = __reduce_ex__ = _refuse
    __float__ = __int__ = __bool__ = __complex__ = __index__ = __contains__ = __deepcopy__ = __copy__ = _refuse


for _name in """astype copy tolist tobytes item fill all any sum min max mean prod nonzero argsort argmax argmin sort take repeat choose dump dumps
 put byteswap clip compress conj conjugate cumprod cumsum dot round searchsorted std var trace tofile ravel flatten reshape transpose
 swapaxes squeeze view diagonal""".split():
    setattr(Opaque, _name, Opaque._refuse)


class Veiled(Opaque):
    """The same of host memory that holds other values than the tensor's: its conjugated or negated ones (core/bits.py).  A view of the memory's own array."""

    def __array_function__(self, func: Any, types: object, args: Any, kwargs: Any) -> Any:          # type: ignore[override]
        if func is not np.may_share_memory:
            self._refuse()
        asked: Any = func
        return asked(*[np.ndarray.view(a, np.ndarray) if a.__class__ is Veiled else a for a in args], **kwargs)


# ------------------------------------------------------------------ addresses
# Each tensor has a stretch of address space of its own that nobody can read or write (PROT_NONE): views lie where they do in the device's memory, so that
# NumPy's view kernels and tests for overlap hold, and code in C that reads values behind everybody's back dies at once instead of computing with zeros.
_NORESERVE = 0x4000
class _Region(mmap.mmap):
    """Address space, and where it starts."""

    start: int


_region: Any = None
_size = _next = 0
_array: Any = np.ndarray.__new__


def _reserve(nbytes: int) -> None:
    global _region, _size, _next
    size = 1 << 44
    while True:
        try:
            m = _Region(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE, prot=0)
            break
        except OSError:
            size >>= 1          # a limit on address space (ulimit -v)
            if size < nbytes or size < 1 << 24:
                raise RuntimeError(f"cannot reserve {nbytes} bytes of address space for the shape of a device's tensor") from None
    m.start = np.frombuffer(m, np.uint8).__array_interface__["data"][0]
    _region, _size, _next = m, size, 0


def placed(sizes: Sequence[int], stype: Stype, strides: Strides | None = None) -> Opaque:
    """An array of the given geometry (strides in elements, not negative; default: C order) on a stretch of address space of its own."""
    global _next
    if strides is None and _region is not None:
        try:
            a = _array(Opaque, sizes, stype, _region, _next)
        except (TypeError, ValueError):         # the region is at its end
            pass
        else:
            _next += a.nbytes + 127 & -64
            return a
    k = stype.itemsize
    if strides is None:
        n = k * math.prod(sizes)
    else:
        n = k * (1 + sum([(m - 1) * s for m, s in zip(sizes, strides)])) if 0 not in sizes else 0
    at = _next
    if at + n > _size:
        # (From the start again: what overlaps by address alone does not count, see core/alias.py.)
        at = 0
        if n > _size:
            _reserve(n)
    _next = at + n + 127 & -64
    if strides is None:
        return _array(Opaque, sizes, stype, _region, at)
    return _array(Opaque, sizes, stype, _region, at, [s * k for s in strides])


def view_of(a: Opaque, view: Array) -> Opaque:
    """A view that was worked out on `a` (as a plain array on the same addresses) as an array without memory."""
    home = a.home
    if home is None:
        v = view.view(Opaque)
        v.home = a
        if 0 in v.shape:
            v.flags.writeable = False       # (memory of its own, which some view kernels give to what has no elements)
    else:
        # (Straight on the addresses: views of views of views would be a chain without an end.)
        region: Any = home
        while region.__class__ is not _Region:
            region = region.base
        v = np.ndarray.__new__(Opaque, view.shape, view.dtype, region, address(view) - region.start if 0 not in view.shape else 0,
                               view.strides if 0 not in view.shape else None)
        v.home = home
    if a.frozen:
        v.frozen = True
    return v


def home_of(a: Array) -> Opaque:
    """The array of all of the memory that a device's array `a` lies in: the same object for all that share it."""
    return a if a.home is None else a.home          # type: ignore[attr-defined, return-value]


def is_root(a: Array) -> bool:
    """Whether an array of a device's tensor is all of its stretch, and not a view of another's."""
    return a.home is None       # type: ignore[attr-defined]


def stretch(a: Opaque) -> Array:
    """All of the addresses that `a` lies in, as a row of bytes."""
    home = home_of(a)
    k = home.itemsize
    n = k + sum([(m - 1) * s for m, s in zip(home.shape, home.strides)]) if home.size else 0
    region: Any = home
    while region.__class__ is not _Region:
        region = region.base
    return np.ndarray(n, np.uint8, region, address(home) - region.start if n else 0)
