"""The device as code sees it while a session is open."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from mindtorch.backend.device import Device, GeometryArray
from mindtorch.backend.interface import Array, Handle, NpDtype, Sizes, Strides
from mindtorch.backend.kernels import TABLES
from mindtorch.core.compile import deferred_execution
from mindtorch.core.compile.deferred_kernels import current, defer_kernel
from mindtorch.core.device import device_dispatch

#: callbacks that run when the first session opens
at_first: list[Callable[[], None]] = []


class SessionDevice:
    """Device proxy while a session is open.

    Methods that touch memory go through the session; all others are the device's own.
    """

    def __init__(self, device: Device) -> None:
        self.real = device
        self.type, self.names, self.indexed, self.upcasts_half, self.strided = device.type, device.names, device.indexed, device.upcasts_half, device.strided

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["real"], name)

    def view(self, handle: Handle, sizes: Sizes, strides: Strides, offset: int, np_dtype: NpDtype) -> Handle:
        s = current.session
        return s.call("view", s.view, (handle,), {"sizes": sizes, "strides": strides, "offset": offset, "np_dtype": np_dtype})

    def write(self, handle: Handle, value: Handle) -> None:
        s = current.session
        s.call("write", s.write, (handle, value), {})

    def fill(self, handle: Handle, number: Array) -> None:
        s = current.session
        if threading.get_ident() == s.thread:
            s.call("fill", s.fill, (handle, number.item() if number.dtype.kind in "fiu" else 0),
                   {"np_dtype": number.dtype, "other": None if number.dtype.kind in "fiu" else number.tobytes()})
        else:
            s.flush("another thread uses the device")
            self.real.fill(handle, number)

    def cast(self, handle: Handle, np_dtype: NpDtype) -> Handle:
        s = current.session
        return s.call("cast", s.cast, (handle,), {"np_dtype": np_dtype})

    def download(self, handle: Handle) -> Array:
        if handle.__class__ is current.pending or current.session.cursor.log:
            current.session.flush("values are read")
        return self.real.download(handle)

    def geometry(self, handle: Handle) -> tuple[Sizes, NpDtype, Strides]:
        if handle.__class__ is current.pending:
            return handle.__dict__["_geometry"]
        return self.real.geometry(handle)

    def meta_array(self, handle: Handle) -> GeometryArray:
        if handle.__class__ is current.pending:
            return self.real.new_meta_array(*handle.__dict__["_geometry"])
        return self.real.meta_array(handle)

    def address(self, handle: Handle) -> int:
        if handle.__class__ is current.pending:
            current.session.flush("the address of a tensor is read")
        return self.real.address(handle)

    def on_missing_kernel(self, what: str) -> None:
        current.session.flush(what)

    def synchronize(self) -> None:
        current.session.flush("the device is synchronized")
        self.real.synchronize()

    def flush(self) -> None:
        return None

    def from_mindspore(self, tensor: Any) -> Handle:
        return self.real.from_mindspore(tensor)

    def writable(self, handle: Handle) -> Handle:
        current.session.flush("MindSpore writes to a tensor")
        return self.real.writable(handle)


class SessionBindings:
    """Replacements that a session installs for a device, its kernel table and its kernel cache."""

    def __init__(self, device: Device) -> None:
        deferred_execution.use(device)
        while at_first:
            at_first.pop()()
        self.device, self.table, self.ways = device, TABLES[device.type], device_dispatch.KERNEL_CACHE[device.type]
        self.lazy_table = {n: defer_kernel(n, fn) for n, fn in self.table.items()}
        self.lazy_ways: dict[str, Any] = {}
        self.lazy_device: Any = SessionDevice(device)
        self.names = [n for n, d in device_dispatch.DEVICES.items() if d is device]
        # Cache the bound methods: attribute access creates a new object each time.
        self.view, self.write, self.cast, self.fill = device.view, device.write, device.cast, device.fill_number

    def current(self, device: Device) -> bool:
        """True if the device's registration has not changed since."""
        return self.device is device and self.table is TABLES[device.type] and self.ways is device_dispatch.KERNEL_CACHE[device.type]

    def put(self, lazy: bool) -> None:
        """Installs the replacements, or restores the originals."""
        for n in self.names:
            device_dispatch.DEVICES[n] = self.lazy_device if lazy else self.device
            TABLES[n] = self.lazy_table if lazy else self.table
            device_dispatch.KERNEL_CACHE[n] = self.lazy_ways if lazy else self.ways


#: device type -> its replacements
bindings_of: dict[str, SessionBindings] = {}


@contextlib.contextmanager
def aside(session: Any) -> Iterator[None]:
    """Context manager that restores the real device inside the block."""
    bindings = bindings_of[session.device.type]
    if device_dispatch.DEVICES[bindings.names[0]] is not bindings.lazy_device:
        yield
        return
    bindings.put(False)
    try:
        yield
    finally:
        bindings.put(True)
