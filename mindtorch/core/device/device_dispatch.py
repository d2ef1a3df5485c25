"""Tensors on devices other than the host: kernel selection, and transfers from and to the host.

A tensor on such a device has its device's handle (`_handle`). Its `_array` is an `Opaque` array: shape,
dtype and strides without values. View geometry is computed by the host's view kernels on
geometry-only arrays; the view itself is created by the device's `view`.
"""
from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from mindtorch.backend.cpython import module_lock
from mindtorch.backend.cpu.host import address
from mindtorch.backend.cpu.memory import on_storage
from mindtorch.backend.cpu.as_strided import pick
from mindtorch.backend.cpu.basic import cast_array
from mindtorch.backend.device import Device, UnsupportedByKernel, KernelSpec, reserve_address_range, storage_array, view_of
from mindtorch.backend.errors import AcceleratorError
from mindtorch.backend.interface import Array, Handle, Sizes, Strides, NpDtype
from mindtorch.backend.kernels import TABLES
from mindtorch.backend.mindspore.private import grad_flag, pause, resume
from mindtorch.backend.strides import strides_of
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import tensor_wrappers
from mindtorch.core.device import device as _device
from mindtorch.core.dispatch import dispatcher, primitives
from mindtorch.core.tensor.conj_neg_bits import ConjNegBits
from mindtorch.core.tensor.dtypes import F32, LOW
from mindtorch.core.autograd.grad_mode import INFERENCE, mode
from mindtorch.core.tensor.storage_impl import living
from mindtorch.core.tensor.tensor import ScalarOperand, SavedArray, Tensor, empty_tensor, bump_version, on_device, wrap_array

#: Device type -> Device.
DEVICES: dict[str, Device] = _device.registered
#: Device type -> {primitive: its kernel and the operands that this supports}.
_KERNEL_CACHE: dict[str, dict[str, KernelSpec | None]] = {}


class _Fallback:
    """Policy for primitives without a kernel: "warn" (once per primitive), "error" or "silent"."""

    policy = "warn"


fallback = _Fallback()
#: (device type, primitive) -> number of times that it was computed on the host for lack of a
#: kernel.
FALLBACKS: dict[tuple[str, str], int] = {}


class _Copies:
    """Number of tensors copied to a device, and from one."""

    __slots__ = ("up", "down")

    def __init__(self):
        self.up = self.down = 0


COPIES = _Copies()
#: Held while a device computes or copies: concurrent MindSpore calls from several threads crash the
#: process.
DEVICE_LOCK = module_lock(globals(), "DEVICE_LOCK", threading.RLock)


def device_lock(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: serializes a function with all other device work.

    Device errors are raised with PyTorch's messages.
    """
    @functools.wraps(f)
    def one_at_a_time(*args, **kwargs):
        with DEVICE_LOCK:
            try:
                return f(*args, **kwargs)
            except RuntimeError as e:
                reraise(e)
    return one_at_a_time


class AsyncErrorTracker:
    """Tracks asynchronous results that a device may never have computed.

    Devices compute asynchronously. An error is therefore raised by a later op, when tensors whose
    memory was never filled have already been returned; their values would look like any others. So
    each kernel result records the window between two synchronizations in which it was enqueued.
    Results of a window that ended in an error are rejected as operands and when they are read.
    Memory modified in place keeps its old values; the error message says that they may be wrong.
    """

    __slots__ = ("now", "windows")
    #: window of memory that could not be allocated
    NEVER = -1

    def __init__(self):
        self.now, self.windows = 1, set()

    def sure(self):
        """Marks everything enqueued until now as computed."""
        self.now += 1

    def cast(self, device):
        """Marks the results of the current window as unreliable."""
        self.windows |= {self.now, self.NEVER}
        self.now += 1
        for t in living():  # tensors that came from the host or were created without operands
            if (Tensor in type(t).__mro__ and t._handle is not None and t._array.size and DEVICES.get(t._device.type) is device
                    and not device.address(t._handle)):
                t._enqueue_epoch = self.NEVER

    def about(self, t):
        """True if the tensor's values are unreliable."""
        return t._enqueue_epoch in self.windows

    def check(self, ins):
        """Raises AcceleratorError if an operand is unreliable."""
        for x in ins:
            if x is not None and getattr(x, "_enqueue_epoch", 0) in self.windows:
                raise AcceleratorError(f"NPU error: a tensor {x._np_dtype.name}{list(x._sizes)} on device {x._device} has unreliable values: an op enqueued in "
                                       "the same interval between two synchronizations failed (its error was raised). Compute the tensor again; with "
                                       "ASCEND_LAUNCH_BLOCKING=1 only the result of the failed op is lost")


async_errors = AsyncErrorTracker()


def explained(error: RuntimeError, dev: _device.device | None = None, doing: str = "") -> RuntimeError | None:
    """Returns a device error with PyTorch's message, or None for any other error.

    Once a device is found lost, all further calls to its kernels raise.
    """
    for device in {d.type: d for d in DEVICES.values()}.values() if dev is None else (DEVICES[dev.type],):
        was = device.lost
        translated = device.translate_error(error, doing)
        if device.lost and not was:
            _lose(device)
        if translated is not None:
            if device.behind and not device.lost:
                async_errors.cast(device)
            return translated
    return None


def _lose(device):
    def refuse(*args, **kwargs):
        raise device.lost_error()
    table = TABLES[device.type]
    table.update(dict.fromkeys(table, refuse))
    _KERNEL_CACHE[device.type].clear()


@device_lock
def synchronize(dev: _device.device) -> None:
    """Blocks until a device has finished all its work; raises its errors."""
    DEVICES[dev.type].synchronize()
    async_errors.sure()


def raise_pending_errors(dev: _device.device) -> None:
    """Raises pending memory and kernel errors before memory is modified that cannot be restored.

    Does not wait for the device. Without this check an optimizer would update parameters with
    gradients that were never computed, and the error would be raised afterwards.
    """
    device = DEVICES.get(dev.type)
    if device is not None and (device.behind or device.lost):
        _raise_pending_errors(device)


@device_lock
def _raise_pending_errors(device):
    device.flush()
    async_errors.sure()


def _describe_call(prim, ins):
    return f"primitive '{prim.name}' of {', '.join([f'{x._np_dtype.name}{list(x._sizes)}' for x in ins if x is not None])}"


class _Within(threading.local):
    """True while this thread computes a graph of host tensors on a recording device.

    New tensors are then created on that device (`mindtorch/core/compile/host_graph_bridge.py`,
    `mindtorch/core/compile/compiled_graph.py`).
    """

    on = False
    there = _device.shadow


WITHIN = _Within()
#: Types of the devices that have been used in this process.
USED: set[str] = set()


def register(device: Device) -> None:
    """Registers a `backend.device.Device`.

    torch.device(device.type) exists from now on, under each of its names.
    """
    if device.type in DEVICES:
        raise ValueError(f"device {device.type} is registered already")
    table, ways = TABLES.setdefault(device.type, {}), _KERNEL_CACHE.setdefault(device.type, {})
    for name in device.names:
        TABLES[name], _KERNEL_CACHE[name] = table, ways
    _device.add_type(device, lambda: _import_device(device))


def unregister(device: Device) -> None:
    """Reverts `register`; tensors on the device can no longer be used."""
    _device.drop_type(device)
    for name in device.names:
        del TABLES[name], _KERNEL_CACHE[name]
    del _KERNEL_CACHE[device.type]
    if device.type in USED:
        USED.discard(device.type)
        dispatcher.disable_layer("primitives", "device")


def _import_device(device):
    # The layer is activated by the first use of a device: until then host primitives do not go
    # through it.
    USED.add(device.type)
    dispatcher.enable_layer("primitives", "device")


# ------------------------------------------------------------------ tensors
def tensor(dev: _device.device, handle: Handle) -> Tensor:
    """Returns a Tensor on a handle of the device `dev` (a torch.device)."""
    return on_device(dev, handle, DEVICES[dev.type].meta_array(handle))


def _geometry(t):
    """Returns a geometry-only array with a tensor's shape and strides, for view kernels."""
    return np.ndarray.view(t._array, np.ndarray)


@device_lock
def device_to_host(t: Tensor | SavedArray) -> Array:
    """Returns the values of a device tensor as a host array; synchronizes."""
    if tensor_wrappers.is_wrapped(t):
        return hooks.wrapper_values(t) if tensor_wrappers.is_wrapper_subclass(t) else hooks.batched_values(t)
    if t._handle.__class__ is ConjNegBits:
        return hooks.bits_values(t)
    COPIES.down += 1
    if async_errors.windows:
        async_errors.check((t,))
    a = DEVICES[t._device.type].download(t._handle)             # type: ignore[union-attr]
    async_errors.now += 1  # like `async_errors.sure`: the download has waited for everything before it
    return a


@device_lock
def host_to_device(array: Array, dev: _device.device) -> Tensor:
    """Returns a tensor on the device `dev` with the values of a host array.

    Strides are preserved if they are dense.
    """
    return tensor(dev, _up(DEVICES[dev.type], array))


@device_lock
def same_memory(t: Tensor) -> Handle:
    """Returns another handle on the memory that `t` covers."""
    k = t._array.itemsize
    return DEVICES[t._device.type].view(t._handle, t._array.shape, tuple([s // k for s in t._array.strides]), 0, t._array.dtype)


def classify_native(t: Any, dev: _device.device | None) -> tuple[_device.device, Handle, Array] | None:
    """Returns (device, handle, geometry) of a MindSpore tensor on a device; None on the host.

    `dev` is the device that it is to go to, if known. MindSpore's tensors have no device. They have
    the device of the facade's tensors that they were computed from; otherwise they count as created
    on the default device.
    """
    home = getattr(t, "_home", None) or dev or _device.get_default()
    if home.type not in DEVICES:
        return None
    h = DEVICES[home.type].from_mindspore(t)
    sizes, np_dtype, strides = DEVICES[home.type].geometry(h)
    return home, h, reserve_address_range(sizes, np_dtype, strides)


def to_host(t: Tensor | ScalarOperand | SavedArray) -> Array:
    """Returns the values of a tensor as a read-only host array (`mindtorch/core/tensor/sync.py`)."""
    return t._array if t._handle is None else device_to_host(t)


# ------------------------------------------------------------------ the layer
def _on_device(prim, args, kw, below):
    for x in args[0] if prim.variadic else args:
        if getattr(x, "_handle", None) is not None:
            if prim.name == "to_device":
                break
            return run(prim, args, kw, x._device)
    if prim.name == "to_device":
        return _moved(prim, args, kw, below)
    target = kw.get("device")
    if target is None or target.type not in DEVICES:
        if target is None or not WITHIN.on or target.type != "cpu":
            return below(prim, args, kw)
        target = WITHIN.there
        if "generator" in kw and not DEVICES[target.type].of_host:  # random numbers of the host
            return host_to_device(below(prim, args, kw)._array, target)
        kw = {**kw, "device": target}
    return created(prim, args, kw, target, below)


def _bound(below):
    # A MindSpore call leaves the processor's caches cold: every Python function on this path costs
    # 1 us instead of 0.1 us.
    def layer(prim, args, kw):
        if args and not prim.variadic:
            x = args[0]
            if x.__class__ is Tensor and x._handle is not None and prim.name != "to_device":
                with DEVICE_LOCK:
                    if not kw:
                        t = _cached_call(prim, args, x._device)
                        if t is not None:
                            return t
                    try:
                        return _uncached_call(prim, args, kw, x._device)
                    except RuntimeError as e:
                        reraise(e, x._device, _describe_call(prim, args))
        return _on_device(prim, args, kw, below)
    return layer


_on_device.bound = _bound           # type: ignore[attr-defined]
dispatcher.register_layer("primitives", "device")(_on_device)


@device_lock
def _moved(prim, args, kw, below):
    x, dev = args[0], kw["target"]
    if WITHIN.on and dev.type == "cpu":
        return x
    if x._handle is None and dev.type not in DEVICES:
        return below(prim, args, kw)
    if dev.type in DEVICES and DEVICES[dev.type].of_host:
        DEVICES[dev.type].on_missing_kernel("a tensor that is not an input of the call is moved to another device")
    a = to_host(x)
    return primitives.link(prim, host_to_device(a, dev) if dev.type in DEVICES else wrap_array(np.array(a) if x._handle is None else a), args, kw)


def _kernel_spec(name, dev, raw=False):
    ways = _KERNEL_CACHE[dev.type]
    try:
        return ways[name]
    except KeyError:
        fn = TABLES[dev.type].get(name)
        way = ways[name] = None if fn is None else KernelSpec(fn, DEVICES[dev.type], raw)
        return way


def uses_cpu_kernels(t: Tensor) -> bool:
    """True if host kernels compute the ops of a tensor.

    The tensor is on the host, or on the recording device of `mindtorch/core/compile/compiled_graph.py`.
    """
    return t._handle is None or t._device is _device.recorded


def has_kernel(dev: _device.device, name: str) -> bool:
    """True if a device other than the host has its own kernel of this name."""
    return dev.type in DEVICES and name in TABLES[dev.type] and not DEVICES[dev.type].of_host


def called_primitives(kind: str) -> set[str]:
    """Returns the primitives for which a device's kernels have been used in this process.

    Views and copies to the device do not count.
    """
    return {name for name, way in _KERNEL_CACHE.get(kind, {}).items() if way is not None}


@device_lock
def run(prim: primitives.Primitive, args: tuple[Any, ...], kw: dict[str, Any], dev: _device.device) -> Any:
    """Computes one primitive on a device."""
    if not kw and not prim.variadic:
        t = _cached_call(prim, args, dev)
        if t is not None:
            return t
    return _uncached_call(prim, args, kw, dev)


def _uncached_call(prim, args, kw, dev):
    ins = tuple(args[0]) if prim.variadic else args
    if prim.view or prim.shares:
        return _view(prim, ins, kw, dev)
    way = _KERNEL_CACHE[dev.type].get(prim.name) or _kernel_spec(prim.name, dev, prim.raw)
    if way is None:
        return _fall_back_to_host(prim, ins, kw, dev)
    device, upcast_half, only = way.device, way.upcast, way.only
    handles: list[Any] = []
    low, wanting = None, False
    for x in ins:
        if x is None:
            handles.append(None)
            continue
        h, a = x._handle, x._array
        np_dtype = a.dtype
        if x._requires_grad_:
            wanting = True
        if h is None:
            h = _transferred_operand(x, dev, device, way)
            if h.__class__ in _SCALAR_TYPES:
                if np_dtype.itemsize == 2 and upcast_half and np_dtype in LOW and low is None:
                    low = np_dtype
                handles.append(h)
                continue
        elif x._device is not dev and x._device != dev:
            raise _mixed(x._device, dev)
        if not a.size and not way.empty:
            return _fall_back_to_host(prim, ins, kw, dev, notify=False)
        if np_dtype.itemsize == 2 and upcast_half and np_dtype in LOW:
            low = np_dtype
            h, np_dtype = device.cast(h, F32), F32
        elif prim.elementwise and device.upcasts_half and not a.flags.c_contiguous and x._handle is not None:
            # kernels of this target are 60 times slower on strided operands than a copy
            h = device.cast(h, np_dtype)
        if only is not None and np_dtype not in only:
            return _fall_back_to_host(prim, ins, kw, dev)
        handles.append(h)
    if async_errors.windows:
        async_errors.check(ins)
    # If MindSpore's autograd records on behalf of MindSpore code, it gets the primitive as a whole
    # from `link`.
    paused = grad_flag() and pause()
    try:
        r = way.fn(*handles, **kw)
        if low is not None:
            r = _downcast_result(r, low, device)
    except UnsupportedByKernel:
        r = None
    except (ValueError, TypeError) as e:
        if not device.is_unsupported(e):
            raise_kernel_error(e, lambda: prim.compute([None if x is None else to_host(x) for x in ins], _on_host(kw)))
        r = None
    except RuntimeError as e:
        reraise(e, dev, _describe_call(prim, ins))
    finally:
        if paused:
            resume()
    if r is None:
        return _fall_back_to_host(prim, ins, kw, dev)
    if r.__class__ is tuple:
        return _several(prim, r, ins, kw, dev, device)
    t = empty_tensor()  # like `tensor`
    t._array, t._handle, t._device, t._enqueue_epoch = device.meta_array(r), r, dev, async_errors.now
    if not kw and low is None and not prim.variadic:
        _cache_signature(way, ins, handles, t._array.kind)
    if INFERENCE.ever and mode.inference:
        t._inference = True
    return primitives.record(prim, t, ins, kw) if wanting and mode.on and prim.grads else t


def _cached_call(prim, args, dev):
    """Fast path: runs a kernel that has accepted operands of these kinds before.

    Neither the operands nor the geometry of the result are checked again. Returns None if these
    kinds are not known.
    """
    way = _KERNEL_CACHE[dev.type].get(prim.name)
    if way is None or not way.known:
        return None
    n = len(args)
    if n == 1:
        x = args[0]
        h = x._handle
        if h is None:
            return None
        found = way.known.get(x._array.kind)
        wanting, handles = x._requires_grad_, (h,)
    elif n == 2:
        x, y = args
        if x is None or y is None:
            return None
        h, k = x._handle, y._handle
        if h is None or k is None or x._device is not dev and x._device != dev or y._device is not dev and y._device != dev:
            return None
        found = way.known.get((x._array.kind, y._array.kind))
        wanting, handles = x._requires_grad_ or y._requires_grad_, (h, k)
    else:
        kinds, handles, wanting = [], [], False
        for x in args:
            if x is None:
                kinds.append(None)
                handles.append(None)
                continue
            h = x._handle
            if h is None or x._device is not dev and x._device != dev:
                return None
            kinds.append(x._array.kind)
            handles.append(h)
            wanting = wanting or x._requires_grad_
        found = way.known.get(tuple(kinds))
    if found is None or grad_flag():
        return None
    kind, fn = found
    if not kind.stock:
        return None
    if async_errors.windows:
        async_errors.check(args)
    try:
        r = fn(*handles)
    except (UnsupportedByKernel, ValueError, TypeError):  # the slow path raises the error again and handles it
        return None
    # an asynchronous error, perhaps of an earlier op; it is raised only once
    except RuntimeError as e:
        reraise(e, dev, _describe_call(prim, args))
    t = empty_tensor()
    t._array = kind.stock.pop() if prim.elementwise and kind.stock else way.device.meta_array(r)
    t._handle, t._device, t._enqueue_epoch = r, dev, async_errors.now
    if INFERENCE.ever and mode.inference:
        t._inference = True
    return primitives.record(prim, t, args, {}) if wanting and mode.on and prim.grads else t


def _cache_signature(way, ins, handles, kind):
    """Records the kinds of operands that a kernel has accepted without conversion."""
    if kind is None:
        return
    key = []
    for x, h in zip(ins, handles):
        if x is None:
            key.append(None)
        elif h is not x._handle or x._array.kind is None:
            return
        else:
            key.append(x._array.kind)
    if len(way.known) > 256:
        way.known.clear()
    alike = way.alike is not None and len(key) == 2 and key[0] is key[1] and ins[0]._np_dtype.kind in "fiu"
    way.known[tuple(key) if len(key) != 1 else key[0]] = kind, way.alike if alike else way.fn


_SCALAR_TYPES = frozenset((int, float, bool, complex))


def _downcast_result(r, low, device):
    if r.__class__ is tuple:
        return tuple([None if h is None else _downcast_result(h, low, device) for h in r])
    return device.cast(r, low) if device.geometry(r)[1] == F32 else r


def _several(prim, r, ins, kw, dev, device):
    outs = tuple([None if h is None else SavedArray(device.meta_array(h), h, dev) if i in prim.residuals else tensor(dev, h) for i, h in enumerate(r)])
    for t in outs:
        if t.__class__ is Tensor:
            t._enqueue_epoch = async_errors.now
    return primitives.link(prim, outs, ins, kw)


def _transferred_operand(x, dev, device, way):
    """Returns the handle or Python scalar for an operand that has no handle on the device."""
    c = x.__class__
    if c is ScalarOperand:
        return _number(x._array) if way.scalars else device.constant(x._array)
    if device.of_host:
        device.on_missing_kernel(f"a {x._np_dtype.name} host tensor that is not an input of the call is an operand")
    if c is not SavedArray and x._from_mindspore and x._device.type == "cpu":
        # MindSpore's own tensors have no device: they move to the device of the other operands.
        x._device, x._handle, x._array = classify_native(x, dev)
        return x._handle
    if c is not SavedArray and (x.ndim or x._device.type == "meta") and (not device.shadows or x._requires_grad_ or x._device.type != "cpu"):
        raise _mixed(dev, x._device)
    if way.scalars and not x.ndim:  # a 0-dim host tensor counts as a scalar
        return _number(x._array)
    COPIES.up += 1
    return device.upload(x._array)


def _number(a):
    v = a.item()
    return v if v.__class__ in _SCALAR_TYPES else float(v)  # bfloat16 has its own scalar class


def reraise(e: RuntimeError, dev: _device.device | None = None, doing: str = "") -> NoReturn:
    """Raises a caught error, with PyTorch's message if it is a device error."""
    translated = explained(e, dev, doing)
    if translated is None:
        raise e
    try:
        raise translated from e
    finally:
        # breaks the reference cycle through this frame, which would keep the operands alive
        translated = None


def _mixed(one, other):
    return RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {one} and {other}!")


def _view(prim, ins, kw, dev):
    x, device = ins[0], DEVICES[dev.type]
    start = address(x._array)
    try:
        r = prim.fwd(_geometry(x), *[None if x is None else x._array for x in ins[1:]], **kw)
    except Exception as e:
        raise _without_arrays(e) from None
    if r.__class__ is not tuple:
        return primitives.link(prim, _part(x, start, r, dev, device), ins, kw)
    return primitives.link(prim, tuple([_part(x, start, v, dev, device) for v in r]), ins, kw)


def _without_arrays(e):
    """Strips the traceback from an error of a view kernel.

    Its frames hold an array on unreadable memory; printing their locals would crash the process.
    """
    e.__context__ = None
    return e.with_traceback(None)


def _part(t, start, view, dev, device):
    # `start` is the address of the first element of `t`.
    part = on_device(dev, _part_handle(t, start, view, device), view_of(t._array, view))
    part._enqueue_epoch = t._enqueue_epoch
    return part


def _part_handle(t, start, view, device):
    if async_errors.windows:
        async_errors.check((t,))
    k = view.itemsize
    sizes = view.shape
    handle, offset = t._handle, 0 if 0 in sizes else address(view) - start
    if offset % k:
        # `t` starts inside an element of the part, which is larger (a complex number, at its
        # imaginary part): count from the start of the storage.
        home = address(storage_array(t._array))
        handle, offset = device.view(handle, (1,), (1,), (home - start) // t._array.itemsize, t._np_dtype), address(view) - home
    return device.view(handle, sizes, tuple([s // k for s in view.strides]), offset // k, view.dtype)


@device_lock
def strided_view(t: Tensor, sizes: Sizes, strides: Strides, offset: int) -> Tensor:
    """Returns a tensor of the dtype of `t` anywhere in its storage, without history.

    Strides and offset are in bytes; the offset counts from the start of the storage.
    """
    if tensor_wrappers.is_batched(t):
        raise NotImplementedError("torch.vmap: the storage of a batched tensor cannot be used directly (set_, resize_, .data of another shape)")
    return _part(t, address(t._array), on_storage(t._array, sizes, strides, offset), t._device, DEVICES[t._device.type])


@device_lock
def region(t: Tensor, key: Any) -> tuple[Array, Handle]:
    """Returns the geometry-only array and the handle of the region that a basic index selects."""
    try:
        part = pick(_geometry(t), key=key)
    except Exception as e:
        raise _without_arrays(e) from None
    return part, _part_handle(t, address(t._array), part, DEVICES[t._device.type])


@device_lock
def created(prim: primitives.Primitive, args: tuple[Any, ...], kw: dict[str, Any], dev: _device.device, below: Callable[..., Any]) -> Any:
    """Computes a primitive without operands.

    Uses the device's kernel, or computes on the host and copies.
    """
    way = _kernel_spec(prim.name, dev)
    if way is not None:
        try:
            r = way.fn(**kw)
        except UnsupportedByKernel:
            pass
        except TypeError as e:
            if not way.device.is_unsupported(e):
                raise
        except RuntimeError as e:
            reraise(e, dev, f"primitive '{prim.name}' of {kw}")
        else:
            return primitives.link(prim, tensor(dev, r), (), kw) if r.__class__ is not tuple else _several(prim, r, (), kw, dev, DEVICES[dev.type])
    made = below(prim, args, {**_on_host(kw), "device": _device.cpu})
    if made.__class__ is tuple:
        return tuple([None if t is None else host_to_device(t._array, dev) for t in made])
    return host_to_device(made._array, dev)


def _drawn_on_host(kw):
    """True if the random numbers come from the host by choice, not for lack of a kernel."""
    return getattr(kw.get("generator"), "on_host", False)


def _on_host(kw):
    """Returns a primitive's constants with a host generator instead of a device generator."""
    draws = getattr(kw.get("generator"), "for_host", None)
    return kw if draws is None else {**kw, "generator": draws()}


def raise_kernel_error(error: Exception, by_host: Callable[[], object]) -> NoReturn:
    """Raises the error of a call on which a device kernel failed.

    MindSpore rejects operands with its own errors; the host kernel gives PyTorch's message. If the
    host kernel succeeds, the device kernel is at fault and its error is raised. The host result is
    not used: only `UnsupportedByKernel`, or a target that reports no kernel for these dtypes, falls back to the
    host.
    """
    try:
        by_host()
    except Exception as e:
        raise e from error
    raise error


def cpu_fallback(name: str, ins: Sequence[Tensor | ScalarOperand | SavedArray | None], dev: _device.device) -> None:
    """Counts a host fallback, and warns or raises according to the policy."""
    np_dtypes = [x._np_dtype.name for x in ins if x is not None and x.__class__ is not SavedArray]
    device = DEVICES[dev.type]
    what = f"primitive '{name}' of {', '.join(np_dtypes) or 'no operand'} has no kernel on device {device.type}"
    if fallback.policy == "error":
        raise NotImplementedError(what)
    key = device.type, name
    FALLBACKS[key] = FALLBACKS.get(key, 0) + 1
    if device.shadows or device.of_host:
        device.on_missing_kernel(what)
    elif fallback.policy == "warn" and FALLBACKS[key] == 1:
        warnings.warn(f"{what}: it is computed on the host, with copies there and back", stacklevel=6)


def _fall_back_to_host(prim, ins, kw, dev, notify=True):
    device = DEVICES[dev.type]
    for x in ins:
        if (x is not None and x._handle is None and x.__class__ is not ScalarOperand and x.__class__ is not SavedArray
                and x._from_mindspore and x._device.type == "cpu"):
            x._device, x._handle, x._array = classify_native(x, dev)
        if x is not None and (x._device != dev if x._handle is not None else x.__class__ is not ScalarOperand and x.__class__ is not SavedArray and x.ndim
                              and not device.shadows):
            raise _mixed(dev, x._device)
    if notify and not _drawn_on_host(kw):
        cpu_fallback(prim.name, ins, dev)
    r = prim.compute([None if x is None else to_host(x) for x in ins], _on_host(kw))
    if r.__class__ is tuple:
        return _several(prim, tuple([None if x is None else _up(device, x) for x in r]), ins, kw, dev, device)
    return primitives.link(prim, tensor(dev, _up(device, r)), ins, kw)


def call_cpu_kernel(name: str, handles: Sequence[Any], kw: dict[str, Any], device: Device) -> Any:
    """Runs the host kernel of this name on handles (and scalars).

    Used for a deferred kernel that turns out not to support its operands.
    """
    make = TABLES["cpu"].get(name)
    if make is None:
        raise UnsupportedByKernel
    FALLBACKS[device.type, name] = FALLBACKS.get((device.type, name), 0) + 1
    r = _call_cpu_kernel(make, handles, kw, device)
    if r.__class__ is tuple:
        return tuple([None if a is None else _up(device, a) for a in r])
    return _up(device, r)


def _call_cpu_kernel(make, handles, kw, device):
    return make(*[None if h is None else np.asarray(h) if h.__class__ in _SCALAR_TYPES else device.download(h) for h in handles], **_on_host(kw))


def raise_deferred_error(error: Exception, name: str, handles: Sequence[Any], kw: dict[str, Any], device: Device) -> NoReturn:
    """Like `raise_kernel_error`, for a deferred kernel."""
    make = TABLES["cpu"].get(name)
    if make is None:
        raise error
    raise_kernel_error(error, lambda: _call_cpu_kernel(make, handles, kw, device))


def _up(device, a):
    a = np.asarray(a)
    COPIES.up += 1
    if a.flags.c_contiguous:
        return device.upload(a)
    # A result in another memory format keeps that format.
    order = sorted(range(a.ndim), key=lambda i: -a.strides[i])
    flat = a.transpose(order)
    if not flat.flags.c_contiguous:
        return device.upload(np.ascontiguousarray(a))
    return device.view(device.upload(flat), a.shape, strides_of(a), 0, a.dtype)


# ------------------------------------------------------------------ writes (core/tensor/inplace.py)
def write(x: Tensor, r: Tensor | ScalarOperand) -> None:
    """Stores `r` in the memory of x.

    `r` broadcasts to x and may have another dtype or be a host scalar.
    """
    if tensor_wrappers.is_wrapped(x):
        return hooks.wrapper_write(x, r) if tensor_wrappers.is_wrapper_subclass(x) else hooks.batched_write(x, r)
    if x._handle.__class__ is ConjNegBits:
        return hooks.bits_write(x, r)
    if r._handle.__class__ is ConjNegBits:
        r = hooks.bits_resolved(r)
    if async_errors.windows:
        async_errors.check((r,))
        if x._enqueue_epoch > 0 and x._base is None:
            x._enqueue_epoch = 0
    write_to(x._handle, x._np_dtype, r, x._device)


@device_lock
def write_to(handle: Handle, np_dtype: NpDtype, r: Tensor | ScalarOperand, dev: _device.device) -> None:
    """Like `write`, for a handle of `dev` with the given dtype."""
    device, h = DEVICES[dev.type], r._handle
    if h is None:
        a = r._array
        if r.__class__ is ScalarOperand or not a.ndim and r._device.type != "meta":        # type: ignore[union-attr]
            if device.of_host and r.__class__ is not ScalarOperand:
                device.on_missing_kernel(f"the values of a {r._np_dtype.name} host tensor that is not an input of the call are written")
            device.fill(handle, a if a.dtype is np_dtype else cast_array(a, np_dtype))
            return
        h = _sent(r, device)
    elif r._device is not dev and r._device != dev:       # type: ignore[union-attr]
        raise _mixed(dev, r._device)                   # type: ignore[union-attr]
    device.write(handle, h)


def _sent(r, device):
    if device.of_host:
        device.on_missing_kernel(f"the values of a {r._np_dtype.name} host tensor that is not an input of the call are written")
    if r._device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    COPIES.up += 1
    return device.upload(np.ascontiguousarray(r._array).reshape(r._array.shape))


@device_lock
def in_place(x: Tensor, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Runs the device's in-place kernel `name` ("add_") on the memory of x.

    Returns False without computing if there is no kernel or it does not support the operands. The
    kernel is called as kernel(x, *args, **kwargs). `args` are tensors of x's dtype that share no
    memory with x and broadcast to it, or scalars that its dtype can represent.
    """
    if x._handle.__class__ is ConjNegBits or tensor_wrappers.is_wrapped(x) or DEVICES[x._device.type].of_host:
        return False  # kernels of these names in the host's table return a new array
    way = _kernel_spec(name, x._device)
    if way is None or not x._array.size or kwargs and not kwargs.keys() <= (way.fn.__kwdefaults__ or {}).keys():
        return False
    np_dtype, handles = x._np_dtype, []
    fractions = np_dtype.kind in "fV"
    if not fractions and np_dtype.kind != "i" or way.only is not None and np_dtype not in way.only:
        return False
    for o in args:
        c = o.__class__
        if c is float and fractions or c is int and -1 << 24 <= o <= 1 << 24:
            handles.append(o)
        elif getattr(o, "_handle", None) is not None and o._np_dtype == np_dtype and (o._device is x._device or o._device == x._device) and (
                storage_array(o._array) is not storage_array(x._array)) and _broadcasts_to(o._sizes, x._sizes):
            handles.append(o._handle)
        else:
            return False
    for o in kwargs.values():
        if o is not None and not (o.__class__ is float and fractions or o.__class__ is int):
            return False
    try:
        way.fn(x._handle, *handles, **kwargs)
    except UnsupportedByKernel:
        return False
    bump_version(x)
    return True


def _broadcasts_to(have, to):
    """True if a shape broadcasts to another one without changing it."""
    return len(have) <= len(to) and all([a == b or a == 1 for a, b in zip(reversed(have), reversed(to))])


@device_lock
def write_by(x: Tensor, name: str, kernel: Callable[..., object], *operands: Any, **constants: object) -> None:
    """Runs the device's kernel `name`, or else the host `kernel`, with x as its output.

    The call is kernel(x, *operands, **constants).
    """
    if tensor_wrappers.is_batched(x):
        return hooks.batched_write_by(x, name, kernel, operands, constants)
    dev = x._device
    way = _kernel_spec(name, dev)
    if way is not None:
        device = DEVICES[dev.type]
        try:
            way.fn(x._handle, *[None if o is None else o._handle if o._handle is not None else _transferred_operand(o, dev, device, way) for o in operands],
                   **constants)
            return
        except UnsupportedByKernel:
            pass
    if not _drawn_on_host(constants):
        cpu_fallback(name, (x, *operands), dev)
    a = to_host(x).copy("K")  # random numbers are drawn in memory order
    kernel(a, *[to_host(o) for o in operands], **_on_host(constants))
    write(x, wrap_array(a))


def cast(x: Any, np_dtype: Any) -> Tensor:
    """Casts a tensor to another dtype."""
    return hooks.cast(x, np_dtype)
