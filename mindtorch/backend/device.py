"""The device interface: memory behind handles, and a table of kernels (backend/kernels.py).

Each kernel package (backend/<name>/) provides one `Device`. The layers above never inspect a
handle.
"""
from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from mindtorch.backend.cpu.host import address
from mindtorch.backend.interface import Array, Handle, Kernel, Sizes, Strides, NpDtype
from mindtorch.backend.kernels import flags_of


class UnsupportedByKernel(Exception):
    """Raised by a kernel, before any side effect, for a dtype, shape or combination of constants
    that it does not support. The host then computes the op."""

    #: see `RejectedOperands`
    rejection: Exception | None = None

    def raise_rejection(self) -> None:
        """Raises the rejection, if there is one."""
        if self.rejection is not None:
            raise self.rejection from None


class RejectedOperands(UnsupportedByKernel):
    """Raised in place of an error with which the target rejects operands, for a reason other than
    the lack of a kernel.

    Either the call is wrong, and the host's kernel raises PyTorch's error message, or the device's
    kernel is, and `rejection` is raised.
    """

    def __init__(self, rejection: Exception) -> None:
        super().__init__(*rejection.args)
        self.rejection = rejection


class KernelSpec:
    """A kernel of a device, its `KernelFlags`, and the operand kinds that it has accepted."""

    __slots__ = ("fn", "scalars", "empty", "only", "device", "upcast", "alike", "known")

    def __init__(self, fn: Kernel, device: Device, raw: bool = False) -> None:
        self.fn, self.device = fn, device
        flags = flags_of(fn)
        self.upcast = device.upcasts_half and not raw and not flags.half
        self.scalars, self.empty, self.only, self.alike = flags.scalars, flags.empty, flags.only, flags.alike
        #: operand kinds that the kernel has accepted unchanged, without constants -> (kind of the
        #: result, function to call)
        self.known: dict[Any, tuple[OperandKind, Kernel]] = {}


class OperandKind:
    """Shared by meta arrays of equal sizes and element type in C order. Holds the stock of such
    arrays that a device has prepared."""

    __slots__ = ("stock",)

    def __init__(self) -> None:
        self.stock: list[GeometryArray] = []


class Device:
    """Memory that only the device's own kernels access. Strides and offsets are in elements."""

    type: str  # its name: torch.device(type)
    names: tuple[str, ...] = ()  # its aliases
    # True: kernels receive float16 and bfloat16 as float32, and their results are rounded back
    upcasts_half = False
    indexed = False  # True: there may be several: torch.device(type, 1)
    lost = False  # True: the device no longer responds
    behind = False  # True: execution is asynchronous: an error may be raised by a later kernel
    # True: kernels can be deferred and run as a graph (core/compile/replay.py); needs pending,
    # assign_memory, storage, new_meta_array, recorder
    graphs = False
    # True: its tensors stand in for host tensors while a graph over those is built
    # (core/compile/host_graph_bridge.py)
    shadows = False
    # True: its kernels are the host's, on host memory, and are recorded
    # (core/compile/compiled_graph.py)
    of_host = False
    #: kernels that draw a random mask and apply it -> how to split them into the two steps
    #: (core/compile/replay.py)
    masked: dict[str, Any] = {}
    # True: kernels accept operands of any strides, so copying to C order is unnecessary
    strided = False

    def count(self) -> int:
        """Returns the number of devices of this type."""
        return 1

    def current(self) -> int:
        """Returns the index of the current device."""
        return 0

    def select(self, index: int) -> None:
        """Makes another device the current one."""
        raise NotImplementedError(f"device {self.type}: select")

    def from_mindspore(self, tensor: Any) -> Handle:
        """Returns a handle on the memory of a tensor created by MindSpore."""
        raise NotImplementedError(f"device {self.type}: a tensor of MindSpore's")

    def writable(self, handle: Handle) -> Handle:
        """Returns a handle on the same memory that MindSpore's own optimizers can write to."""
        return handle

    def cast(self, handle: Handle, np_dtype: NpDtype) -> Handle:
        """Returns the values converted to another element type."""
        raise NotImplementedError(f"device {self.type}: cast")

    def constant(self, array: Array) -> Handle:
        """Returns a handle on a 0-dim value that is never written to."""
        return self.upload(array)

    def upload(self, array: Array) -> Handle:
        """Returns a handle on a copy of a host array."""
        raise NotImplementedError(f"device {self.type}: upload")

    def download(self, handle: Handle) -> Array:
        """Returns the values as a host array; synchronizes with the computation."""
        raise NotImplementedError(f"device {self.type}: download")

    def on_missing_kernel(self, what: str) -> None:
        """Called before the host computes an op for which the device has no kernel."""

    def translate_error(self, error: RuntimeError, doing: str = "", size: int | None = None) -> RuntimeError | None:
        """Translates an error of a kernel or copy to PyTorch's error message, to be raised from it;
        None: leave it unchanged. doing: the requested operation; size: bytes that it needs."""
        return None

    def flush(self) -> None:
        """Blocks until all submitted work has been launched on the device; raises launch errors
        (memory, rejected kernels)."""

    def synchronize(self) -> None:
        """Blocks until all submitted work has finished; raises its errors."""

    def address(self, handle: Handle) -> int:
        """Returns the address of the first element in the device's memory. It identifies memory;
        the host must not read it."""
        raise NotImplementedError(f"device {self.type}: address")

    def geometry(self, handle: Handle) -> tuple[Sizes, NpDtype, Strides]:
        """Returns (sizes, element type, strides)."""
        raise NotImplementedError(f"device {self.type}: geometry")

    def meta_array(self, handle: Handle) -> GeometryArray:
        """Returns a meta array for a handle that a kernel created."""
        return reserve_address_range(*self.geometry(handle))

    def view(self, handle: Handle, sizes: Sizes, strides: Strides, offset: int, np_dtype: NpDtype) -> Handle:
        """Returns a handle on part of the same memory. The offset counts from the first element of
        `handle`, in elements of `np_dtype`, like the strides."""
        raise NotImplementedError(f"device {self.type}: view")

    def write(self, handle: Handle, value: Handle) -> None:
        """Stores the values of a handle, broadcast to the sizes of the other and cast by PyTorch's
        rules. The two may share memory."""
        raise NotImplementedError(f"device {self.type}: write")

    def fill(self, handle: Handle, number: Array) -> None:
        """Stores one host value (a 0-dim array of the handle's element type) in every element."""
        self.write(handle, self.constant(number))


    # ---- graphs
    pending_class: Any = None

    def pending(self) -> Handle:
        """Returns a handle whose memory is assigned later. Its class is `pending_class`, which no
        other handle has."""
        raise NotImplementedError(f"device {self.type}: pending")

    def assign_memory(self, pending: Handle, handle: Handle, unaliased: bool) -> None:
        """Gives a pending handle the memory of another handle; `unaliased`: nothing else refers to
        that one."""
        raise NotImplementedError(f"device {self.type}: become")

    def storage(self, handle: Handle) -> tuple[int, int]:
        """Returns the address of a handle's storage (as `address`) and the handle's byte offset in
        it."""
        raise NotImplementedError(f"device {self.type}: storage")

    def new_meta_array(self, sizes: Sizes, np_dtype: NpDtype, strides: Strides | None) -> GeometryArray:
        """Returns a meta array of the given geometry; strides None: C order."""
        return reserve_address_range(sizes, np_dtype, strides)

    def fill_number(self, handle: Handle, number: Any, *, np_dtype: NpDtype, other: bytes | None) -> None:
        """Like `fill`, with a Python number of the handle's element type, or with the value given
        by the bytes `other` if Python has no equal number."""
        self.fill(handle, np.array(number, np_dtype) if other is None else np.frombuffer(other, np_dtype).reshape(()))

    def recorder(self, level: str) -> Any:
        """Returns the graph compiler for running kernels (backend/mindspore/graph/graph_compiler.py)."""
        raise NotImplementedError(f"device {self.type}: graphs")


class GeometryArray(np.ndarray):
    """Meta array: shape, element type and strides of memory that is elsewhere. Reading or writing
    values through it raises an error."""

    #: meta array of the storage that this one is a view of; None for the storage's own array
    home: GeometryArray | None = None
    #: True: writing to the memory is rejected
    frozen = False
    #: set for prepared (stock) arrays of a device that have elements
    kind: OperandKind | None = None

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError("internal error: a device tensor's values were accessed through its meta array; use core/tensor/sync.py")

    def __repr__(self) -> str:
        return f"Opaque(shape={self.shape}, dtype={self.dtype}, strides={self.strides})"

    __str__ = __repr__
    __array_ufunc__ = __array_function__ = __getitem__ = __setitem__ = __iter__ = __reduce__ = __reduce_ex__ = _refuse
    __float__ = __int__ = __bool__ = __complex__ = __index__ = __contains__ = __deepcopy__ = __copy__ = _refuse


for _name in """astype copy tolist tobytes item fill all any sum min max mean prod nonzero argsort argmax argmin sort take repeat choose dump dumps
 put byteswap clip compress conj conjugate cumprod cumsum dot round searchsorted std var trace tofile ravel flatten reshape transpose
 swapaxes squeeze view diagonal""".split():
    setattr(GeometryArray, _name, GeometryArray._refuse)


class UnmaterializedArray(GeometryArray):
    """Meta array of host memory whose values are not the tensor's, but their conjugates or
    negatives (core/tensor/conj_neg_bits.py). It is a view of the memory's own array."""

    def __array_function__(self, func: Any, types: object, args: Any, kwargs: Any) -> Any:          # type: ignore[override]
        if func is not np.may_share_memory:
            self._refuse()
        wrapped: Any = func
        return wrapped(*[np.ndarray.view(a, np.ndarray) if a.__class__ is UnmaterializedArray else a for a in args], **kwargs)


# ------------------------------------------------------------------ addresses
#
# Each tensor gets an unreadable, unwritable address range (PROT_NONE). Views have the same offsets
# in it as in the device's memory, so NumPy's view kernels and overlap tests work, and C code that
# reads the values by mistake crashes at once instead of computing with zeros.
_NORESERVE = 0x4000
class _Region(mmap.mmap):
    """Reserved address space and its start address."""

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
            size >>= 1  # limited address space (ulimit -v)
            if size < nbytes or size < 1 << 24:
                raise RuntimeError(f"cannot reserve {nbytes} bytes of address space for the shape of a device's tensor") from None
    m.start = np.frombuffer(m, np.uint8).__array_interface__["data"][0]
    _region, _size, _next = m, size, 0


def reserve_address_range(sizes: Sequence[int], np_dtype: NpDtype, strides: Strides | None = None) -> GeometryArray:
    """Returns a meta array of the given geometry (strides in elements, non-negative; default: C
    order) on its own address range."""
    global _next
    if strides is None and _region is not None:
        try:
            a = _array(GeometryArray, sizes, np_dtype, _region, _next)
        except (TypeError, ValueError):  # the end of the region is reached
            pass
        else:
            _next += a.nbytes + 127 & -64
            return a
    k = np_dtype.itemsize
    if strides is None:
        n = k * math.prod(sizes)
    else:
        n = k * (1 + sum([(m - 1) * s for m, s in zip(sizes, strides)])) if 0 not in sizes else 0
    at = _next
    if at + n > _size:
        # (Start over at the beginning: overlap by address alone does not count, see
        # core/tensor/inplace.py.)
        at = 0
        if n > _size:
            _reserve(n)
    _next = at + n + 127 & -64
    if strides is None:
        return _array(GeometryArray, sizes, np_dtype, _region, at)
    return _array(GeometryArray, sizes, np_dtype, _region, at, [s * k for s in strides])


def view_of(a: GeometryArray, view: Array) -> GeometryArray:
    """Converts a view computed on `a` (as a plain array on the same addresses) to a meta array."""
    home = a.home
    if home is None:
        v = view.view(GeometryArray)
        v.home = a
        if 0 in v.shape:
            # (some view kernels return newly allocated memory for empty arrays)
            v.flags.writeable = False
    else:
        # (Base it directly on the region: otherwise views of views would form an unbounded chain.)
        region: Any = home
        while region.__class__ is not _Region:
            region = region.base
        v = np.ndarray.__new__(GeometryArray, view.shape, view.dtype, region, address(view) - region.start if 0 not in view.shape else 0,
                               view.strides if 0 not in view.shape else None)
        v.home = home
    if a.frozen:
        v.frozen = True
    return v


def storage_array(a: Array) -> GeometryArray:
    """Returns the meta array of the storage that contains a device's array `a`: one object for all
    arrays that share the storage."""
    return a if a.home is None else a.home          # type: ignore[attr-defined, return-value]


def is_storage_root(a: Array) -> bool:
    """True if the array of a device's tensor is its whole storage and not a view."""
    return a.home is None       # type: ignore[attr-defined]


def address_range(a: GeometryArray) -> Array:
    """Returns the address range of the storage that contains `a`, as a one-dimensional array of
    bytes."""
    home = storage_array(a)
    k = home.itemsize
    n = k + sum([(m - 1) * s for m, s in zip(home.shape, home.strides)]) if home.size else 0
    region: Any = home
    while region.__class__ is not _Region:
        region = region.base
    return np.ndarray(n, np.uint8, region, address(home) - region.start if n else 0)
