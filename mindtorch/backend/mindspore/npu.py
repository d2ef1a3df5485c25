"""The npu device: memory and copies on MindSpore's Ascend target, or on its CPU target instead
(MINDTORCH_NPU=cpu).

A handle is a plain `mindspore.Tensor`, not an instance of a mindtorch class. Kernels are in
`mindtorch/backend/mindspore/kernels`.
"""
from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.cpu.basic import cast_array
from mindtorch.backend.cpu.copies import copy_c
from mindtorch.backend.device import Device, OperandKind, GeometryArray, reserve_address_range, UnsupportedByKernel
from mindtorch.backend.interface import Array, Sizes, Strides, NpDtype
from mindtorch.backend.cpython import take_back
from mindtorch.backend.mindspore import errors, runtime
from mindtorch.backend.mindspore.signal_and_fork import HostProcess
from mindtorch.backend.mindspore.patches import put
from mindtorch.backend.mindspore.private import MSTensor, _TensorPy, bfloat16_np, executor, from_contiguous, is_ours, share, swap_impl
from mindtorch.backend.mindspore.recorder_api import STATE, Number, untraced, slot
from mindtorch.backend.mindspore.runtime import ms
from mindspore._c_expression import _wait_pipeline as wait_pipeline
from mindspore.ops.auto_generate import AsStrided, Cast, Empty, InplaceFillScalar, InplaceZero, ViewDtype

_ON_ASCEND = runtime.target() == "Ascend"

#: MindSpore dtype -> NumPy dtype
STYPES = {getattr(ms, n): np.dtype(n) for n in "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 complex64 complex128".split()}
STYPES[ms.bool_] = np.dtype(bool)
STYPES[ms.bfloat16] = bfloat16_np
DTYPES = {v: k for k, v in STYPES.items()}

# Accessors of the native class, without the Python functions around them: 0.35 us vs 0.75 us, right
# after a kernel 1 us vs 2.5 us.
shape_of, dtype_of = _TensorPy._shape.__get__, _TensorPy._dtype.__get__
stride_of, offset_of, is_contiguous = _TensorPy.stride, _TensorPy.storage_offset, _TensorPy.is_contiguous
_set, _as_strided, _cast, _copy_ = _TensorPy.set_, AsStrided(), Cast(), MSTensor.copy_
#: NumPy dtypes that aclnn's kernels of a fixed value (InplaceZero, InplaceOne) do not support,
#: though FillScalar does.
UNSIGNED = (np.dtype(np.uint32), np.dtype(np.uint64))
_zero, _fill, _retyped, _empty = InplaceZero(), InplaceFillScalar(), ViewDtype(), Empty()


_by_id = {id(k): v for k, v in STYPES.items()}


def stype_of(h: Any) -> NpDtype:
    """Returns the NumPy dtype. MindSpore's dtypes are singletons; hashing one takes 2 us, comparing
    two takes 4 us."""
    return _by_id[id(dtype_of(h))]


class _Span:
    """Host memory of a MindSpore tensor, exposed to NumPy."""

    __slots__ = ("__array_interface__", "owner")
    __array_interface__: dict[str, Any]
    owner: Any


def host_span(h: Any) -> Array:
    """Returns the memory of a tensor of MindSpore's CPU target as a NumPy array that shares it,
    with any strides. For kernels, which then cannot be part of a graph."""
    if STATE.on is not None:
        STATE.on.host_reads(h)
    if _ON_ASCEND:
        raise UnsupportedByKernel  # for kernels of the CPU target only, whose memory is host memory
    return memory_of(h)


def memory_of(h: Any) -> Array:
    """`host_span` for callers that are not kernels."""
    np_dtype = stype_of(h)
    k = np_dtype.itemsize
    span = _Span()
    span.owner = h
    span.__array_interface__ = {"data": (h._data_ptr(), False), "shape": shape_of(h), "strides": tuple([s * k for s in stride_of(h)]),
                                "typestr": np_dtype.str if np_dtype.kind != "V" else "<u2", "version": 3}
    a = np.asarray(span)
    return a if np_dtype.kind != "V" else a.view(np_dtype)


def _row(h):
    """Returns the storage of a tensor of MindSpore's CPU target as a byte array that keeps it
    alive."""
    span = _Span()
    span.owner = h
    span.__array_interface__ = {"data": (h._data_ptr() - offset_of(h) * stype_of(h).itemsize, False),
                                "shape": (h.untyped_storage().size(),), "typestr": "|u1", "version": 3}
    return np.asarray(span)


def _in_units(offset, have, np_dtype):
    at, rest = divmod(offset * have.itemsize, np_dtype.itemsize)
    if rest:
        raise RuntimeError(f"cannot view {have.name} memory as {np_dtype.name} at offset {offset}: the offset is not a multiple of the element size")
    return at


def _in_order(sizes, strides):
    """True if the strides are in C order. The strides of dimensions of size 1 do not matter."""
    n = 1
    for m, s in zip(sizes[::-1], strides[::-1]):
        if s != n and m != 1:
            return False
        n *= m
    return True


#: Arrays from which view handles are created before they are bound to their memory.
_ones = {d: np.zeros(1, d) for d in STYPES.values()}


def converted(h: Any, np_dtype: NpDtype) -> Any:
    """Returns a contiguous copy with another dtype, on MindSpore's CPU target.

    `copy_` into new memory converts between all dtypes by PyTorch's rules, except complex to bool
    (it reads the real part only). It takes 12 us, where the primitive Cast takes 350 to 1000 us. It
    rejects a source that is a part of its storage in C order. MindSpore's kernels traverse strided
    memory at 10 ns per element: 2500 us for a row expanded to 512x512, 6300 us for a transpose.
    NumPy takes 35 and 100 us.
    """
    if STATE.on is not None:
        recorder, STATE.on = STATE.on, None
        try:
            r = converted(h, np_dtype)
        finally:
            STATE.on = recorder
        recorder.cast(h, r)
        return r
    have, sizes = stype_of(h), shape_of(h)
    if not is_contiguous(h) and 0 not in sizes:
        h = from_contiguous(copy_c(memory_of(h)))
        if have == np_dtype:
            return h
    r = from_contiguous(np.empty(sizes, np_dtype))
    if 0 in sizes:
        return r
    if have == np_dtype:
        ctypes.memmove(r._data_ptr(), h._data_ptr(), h.nbytes)
    else:
        _copy_(r, h if h.untyped_storage().size() == h.nbytes else from_contiguous(memory_of(h)))
    return r


def plain(x: Any) -> Any:
    """Returns a tensor on the same memory for kernels of the CPU target that write in place. It is
    cached on x. Returns None if x is not in C order.

    MindSpore silently drops a write to anything that it considers a view (the results of `view`,
    Reshape and Split, even complete ones).
    """
    if not is_contiguous(x):
        return None
    at = x._data_ptr()
    cached = getattr(x, "_plain", None)
    if cached is None or cached[0] != at:
        # Built on the memory of another handle, so that the two do not keep each other alive.
        cached = x._plain = at, from_contiguous(memory_of(x.view(shape_of(x))))
    return cached[1]


_nothing = np.zeros(1, np.float32)


class Pending(MSTensor):
    """A handle without memory, which is filled when the graph that computes it has run."""


class Npu(Device):
    """MindSpore's device. `target` is "Ascend" or "CPU"."""

    type, names, indexed = "npu", ("cuda",), True
    pending_class, graphs = Pending, True
    maker: Any  # set by `mindtorch/backend/mindspore/graph/graph_compiler.py`, which imports this module

    def __init__(self, target: str) -> None:
        self.target = target
        self.upcasts_half = target == "CPU"
        self.strided = target == "Ascend"
        self._index = 0
        self._device_id = 0
        self.faults = errors.Faults(target)
        self.behind = not self.faults.blocking
        #: MindSpore streams created by the user.
        self.streams: weakref.WeakSet[Any] = weakref.WeakSet()
        self._process = HostProcess() if target == "Ascend" else None
        if target == "Ascend":
            self._device_id = ms.get_context("device_id")
            if errors.blocking():
                ms.runtime.launch_blocking()
        self._constants: dict[Any, Any] = {}
        # Geometry-only arrays prepared for the next results, and the size of the next batch, by
        # shape and dtype.
        self._stock: dict[Any, OperandKind] = {}
        self._batch: dict[Any, int] = {}

    # ---- device selection
    def count(self) -> int:
        # On the CPU target there is one device per process that a launcher started on this machine,
        # because scripts select their device by LOCAL_RANK.
        return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", 1))) if self.target == "CPU" else ms.hal.device_count()

    def current(self) -> int:
        return self._index if self.target == "CPU" else ms.get_context("device_id")

    def select(self, index: int) -> None:
        if self.target == "CPU":
            self._index = index
        else:
            ms.set_device(self.target, index)
            self._device_id = index  # set_device raises once MindSpore has run anything

    # ---- memory
    def upload(self, array: Array) -> Any:
        h = from_contiguous(np.array(array, order="C"))
        if self.target == "CPU":
            return h
        h = ms.mint.empty_like(h, device="Ascend").copy_(h)
        if self._process is not None and self._process.fresh:
            self._process.fresh = False
            wait_pipeline()  # MindSpore's threads have started when this returns
        self._keep_ctrl_c()
        return h

    def _keep_ctrl_c(self):
        if self._process is not None:
            self._process.keep_ctrl_c()

    def constant(self, array: Array) -> Any:
        key = array.dtype, array.tobytes()
        h = self._constants.get(key)
        if h is None:
            if len(self._constants) > 4096:
                self._constants.clear()
            h = self._constants[key] = self.upload(array)
        return h

    def download(self, handle: Any) -> Array:
        if self.target == "CPU":
            return np.array(memory_of(handle)) if 0 not in shape_of(handle) else np.empty(shape_of(handle), stype_of(handle))
        if dtype_of(handle) is ms.bfloat16:
            a = handle.astype(ms.float32).asnumpy().astype(bfloat16_np)
        else:
            a = np.array(handle.asnumpy())
        self._keep_ctrl_c()
        return a

    # ---- errors
    def translate_error(self, error: RuntimeError, doing: str = "", size: int | None = None) -> RuntimeError | None:
        e = self.faults.translate(error, f"{self.type}:{self._index if self.target == 'CPU' else self._device_id}", doing, size)
        if self.faults.lost is not None and not self.lost:
            self._lose()
        return e

    def _lose(self):
        self.lost, error_of, what = True, self.faults.gone, f"{self.type}:{self._device_id}"
        for name in ("upload", "constant", "download", "write", "fill", "cast", "flush", "synchronize"):
            def refuse(*args, name=name, **kwargs):
                raise error_of(what)
            setattr(self, name, refuse)

    def lost_error(self) -> RuntimeError:
        """Returns the error of a lost device."""
        return self.faults.gone(f"{self.type}:{self._device_id}")

    def flush(self) -> None:
        if self.behind:
            wait_pipeline()
            self._keep_ctrl_c()

    def synchronize(self) -> None:
        if self.target == "CPU":
            executor.sync()
        else:
            errors.wait(tuple(self.streams))
            self._keep_ctrl_c()

    def address(self, handle: Any) -> int:
        return handle._data_ptr()

    def geometry(self, handle: Any) -> tuple[Sizes, NpDtype, Strides | None]:        # type: ignore[override]
        return shape_of(handle), stype_of(handle), None if is_contiguous(handle) else tuple(stride_of(handle))

    def meta_array(self, handle: Any) -> GeometryArray:
        # Created in batches, because Python code right after a kernel runs several times slower:
        # 0.5 us per array vs 4 us one by one.
        kind = self._stock.get((shape_of(handle), id(dtype_of(handle))))
        if kind is not None and kind.stock and is_contiguous(handle):
            return kind.stock.pop()
        return self._restock(handle)

    def new_meta_array(self, sizes: Sizes, np_dtype: NpDtype, strides: Strides | None) -> GeometryArray:
        """Returns a geometry-only array of this geometry."""
        if strides is None:
            kind = self._stock.get((sizes, id(DTYPES[np_dtype])))
            if kind is not None and kind.stock:
                return kind.stock.pop()
        return self._new_meta_arrays(sizes, np_dtype, strides)

    def _restock(self, handle):
        self._keep_ctrl_c()
        return self._new_meta_arrays(*self.geometry(handle))

    def _new_meta_arrays(self, sizes, np_dtype, strides):
        if strides is not None:
            return reserve_address_range(sizes, np_dtype, strides)
        key = sizes, id(DTYPES[np_dtype])
        if len(self._stock) > 4096:
            self._stock.clear()
            self._batch.clear()
        n = self._batch.get(key, 0)
        self._batch[key] = min(2 * n + 1, 63)
        kind = self._stock.get(key)
        if kind is None:
            kind = self._stock[key] = OperandKind()
        new = [reserve_address_range(sizes, np_dtype) for _ in range(n + 1)]
        if 0 not in sizes:
            for a in new:
                a.kind = kind
        kind.stock.extend(new[1:])
        return new[0]

    def view(self, handle: Any, sizes: Sizes, strides: Strides, offset: int, np_dtype: NpDtype) -> Any:
        have = stype_of(handle)
        if self.target != "CPU":
            at = offset_of(handle)
            if have is not np_dtype and have != np_dtype:
                at = _in_units(at, have, np_dtype)
                n = handle.untyped_storage().nbytes() // max(have.itemsize, np_dtype.itemsize) * max(have.itemsize, np_dtype.itemsize)
                if n == have.itemsize:
                    # ViewDtype of a view of a 0-d tensor crashes the process, so a 1-d tensor is
                    # put on the same storage.
                    row = _empty((1,), DTYPES[have], "Ascend")
                    _set(row, handle, 0, (1,), (1,))
                    handle = row
                handle = _retyped(_as_strided(handle, (n // have.itemsize,), (1,), 0), DTYPES[np_dtype])
            r = _as_strided(handle, sizes, strides, offset + at)
            r.viewed = True  # MindSpore's optimizers lose their writes to a view
            return r
        # A view's handle caches (the root handle of the storage, the storage as a byte array once
        # created, the byte offset of the view).
        root, row, at = getattr(handle, "_view_location", None) or (handle, None, offset_of(handle) * have.itemsize)
        at += offset * np_dtype.itemsize
        if 0 in sizes:
            t = from_contiguous(np.empty(sizes, np_dtype))
        elif _in_order(sizes, strides):
            # An ordinary tensor, so that MindSpore kernels that mistake a part for its storage
            # (InplaceCopy) do not see the storage.
            if row is None:
                row = _row(root)
            t = from_contiguous(np.ndarray(sizes, np_dtype, row, at))
        else:
            rest = at % np_dtype.itemsize
            # `set_` accepts only a tensor in C order
            if rest or not is_contiguous(root) or stype_of(root) != np_dtype:
                if row is None:
                    row = _row(root)
                source = from_contiguous(row[rest:rest + (row.size - rest) // np_dtype.itemsize * np_dtype.itemsize].view(np_dtype))
            else:
                source = root
            t = from_contiguous(_ones[np_dtype])
            _set(t, source, at // np_dtype.itemsize, sizes, strides)
        t._view_location = root, row, at
        root._rooted = True
        return t

    def write(self, handle: Any, value: Any) -> None:
        if STATE.on is not None:
            STATE.on.write(handle, value)
        if self.target != "CPU":
            untraced(handle.copy_, value)
            return
        sizes = shape_of(handle)
        if 0 in sizes:
            return
        have, given = stype_of(handle), stype_of(value)
        if have is given and is_contiguous(handle) and is_contiguous(value) and sizes == shape_of(value):
            ctypes.memmove(handle._data_ptr(), value._data_ptr(), handle.nbytes)
            return
        a = memory_of(value)
        np.copyto(memory_of(handle), a if have is given else cast_array(a, have))

    def fill_number(self, handle: Any, number: Any, *, np_dtype: NpDtype, other: bytes | None) -> None:
        """`fill` with a Python scalar, which may be an argument of a graph. `other` holds the bytes
        of a value that Python cannot represent."""
        if STATE.on is not None and number.__class__ is Number:
            STATE.on.write(handle, slot(number, np_dtype))
            recorder, STATE.on = STATE.on, None
            try:
                self.fill(handle, np.array(number.value, np_dtype))
            finally:
                STATE.on = recorder
        else:
            self.fill(handle, np.array(number, np_dtype) if other is None else np.frombuffer(other, np_dtype).reshape(()))

    def fill(self, handle: Any, number: Array) -> None:
        if STATE.on is not None:
            STATE.on.fill(handle, number)
        if self.target != "CPU":
            if number.dtype.kind == "c":
                self.write(handle, self.constant(number))
            elif number.tobytes() == bytes(number.nbytes) and number.dtype not in UNSIGNED:
                untraced(_zero, handle)
            else:  # as a scalar: a value that differs every time would be copied from the host
                untraced(_fill, handle, number.item() if number.dtype.kind != "V" else float(number.astype(np.float32)))
        elif 0 not in shape_of(handle):
            memory_of(handle)[...] = number

    # ---- graphs (`mindtorch/core/compile/replay.py`)
    def pending(self) -> Any:
        """Returns a handle that receives its memory later (`assign_memory`)."""
        t = from_contiguous(_nothing)
        t.__class__ = Pending
        return t

    def assign_memory(self, p: Any, h: Any, unaliased: bool) -> None:
        """Turns a pending handle into `h`. If `unaliased`, nothing else refers to `h`."""
        # A view keeps the root handle of its storage and finds the memory through it, so that
        # handle cannot be swapped.
        (swap_impl if unaliased and "_rooted" not in h.__dict__ else share)(p, h)
        p.__class__ = MSTensor
        attrs = p.__dict__
        attrs.clear()
        attrs.update(h.__dict__)

    def storage(self, handle: Any) -> tuple[int, int]:
        """Returns (address of the handle's storage, offset of the handle in it), in bytes."""
        # To MindSpore, a view in C order is a separate tensor.
        location = getattr(handle, "_view_location", None)
        at = offset_of(handle) * stype_of(handle).itemsize if location is None else location[2]
        return handle._data_ptr() - at, at

    def recorder(self, level: str) -> Any:
        """Returns a recorder that builds a graph of the kernels that run."""
        return self.maker(self, level)

    def from_mindspore(self, tensor: Any) -> Any:
        return MSTensor(tensor)  # another object of the same native tensor

    def writable(self, handle: Any) -> Any:
        tensor = plain(handle) if self.target == "CPU" else None
        return handle if tensor is None else tensor

    def cast(self, handle: Any, np_dtype: NpDtype) -> Any:
        return converted(handle, np_dtype) if self.target == "CPU" else _cast(handle, DTYPES[np_dtype])


class Shadow(Npu):
    """MindSpore's CPU target on the memory of host arrays, for graphs of host tensors. Not a device
    that users can select."""

    type, names, indexed, shadows = "mindspore", (), False, True        # type: ignore[assignment]

    def over(self, array: Array) -> Any:
        """Returns a handle to a host array's own memory, or to a copy if the array is empty,
        read-only or has unsupported strides."""
        if not array.size or not array.flags.writeable:
            return self.upload(array) if array.flags.c_contiguous else self._copied(array)
        if array.flags.c_contiguous:
            return from_contiguous(array)
        k = array.itemsize
        strides = [s if n > 1 else k for n, s in zip(array.shape, array.strides)]
        if any([s < 0 or s % k for s in strides]):
            return self._copied(array)
        span = 1 + sum([(n - 1) * s // k for n, s in zip(array.shape, strides)])
        row = np.lib.stride_tricks.as_strided(array, (span,), (k,))
        return self.view(from_contiguous(row), array.shape, tuple([s // k for s in strides]), 0, array.dtype)

    def _copied(self, array):
        return self.upload(np.ascontiguousarray(array).reshape(array.shape))


_CONSTRUCTOR = "mindspore.common.tensor:Tensor.__init__"


def see_values_in(real: Callable[[Any], None] | None) -> None:
    """Makes `mindspore.Tensor(t)` see the memory of a device tensor, which real(t) binds to it.
    None removes the patch."""
    if real is None:
        return take_back(_CONSTRUCTOR)
    plain = MSTensor.__init__

    @functools.wraps(plain)
    def init(self, *args, **kwargs):
        for x in (*args, *kwargs.values()):
            if isinstance(x, MSTensor) and is_ours(x) and x._handle is not None:
                real(x)
        plain(self, *args, **kwargs)
    put(_CONSTRUCTOR, init)


def find() -> Npu | None:
    """Returns the npu of this process, or None. It uses the Ascend target, or the CPU target if
    MINDTORCH_NPU=cpu."""
    wanted = os.environ.get("MINDTORCH_NPU", "")
    if wanted not in ("", "cpu"):
        raise ValueError(f"invalid MINDTORCH_NPU={wanted!r}: set it to 'cpu' (the npu device on MindSpore's CPU target) or unset it")
    target = runtime.target()
    if wanted and target != "CPU":
        raise ValueError(f"MINDTORCH_NPU=cpu, but MindSpore's target is {target}: call mindspore.set_device('CPU') before importing mindtorch")
    if target == "Ascend" and not wanted or target == "CPU" and wanted:
        return Npu(target)
    return None
