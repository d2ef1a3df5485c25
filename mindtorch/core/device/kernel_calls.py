"""Calls of a device's kernels, and the cache of operand kinds that they have accepted."""
from __future__ import annotations

from typing import Any

from mindtorch.backend.device import UnsupportedByKernel
from mindtorch.backend.mindspore.private import grad_flag, pause, resume
from mindtorch.core.autograd.grad_mode import INFERENCE, mode
from mindtorch.core.device import device as _device
from mindtorch.core.device.cpu_fallback import fall_back_to_host, on_host, raise_kernel_error
from mindtorch.core.device.device_errors import async_errors, describe_call, device_lock, mixed_devices, reraise
from mindtorch.core.device.device_state import KERNEL_CACHE, kernel_spec
from mindtorch.core.device.device_views import view
from mindtorch.core.device.transfers import SCALAR_TYPES, to_host, transferred_operand, wrap_results
from mindtorch.core.dispatch import primitives
from mindtorch.core.tensor.dtypes import F32, LOW
from mindtorch.core.tensor.tensor import empty_tensor


@device_lock
def run(prim: primitives.Primitive, args: tuple[Any, ...], kw: dict[str, Any], dev: _device.device) -> Any:
    """Computes one primitive on a device."""
    if not kw and not prim.variadic:
        t = cached_call(prim, args, dev)
        if t is not None:
            return t
    return uncached_call(prim, args, kw, dev)


def uncached_call(prim, args, kw, dev):
    ins = tuple(args[0]) if prim.variadic else args
    if prim.view or prim.shares:
        return view(prim, ins, kw, dev)
    way = KERNEL_CACHE[dev.type].get(prim.name) or kernel_spec(prim.name, dev, prim.raw)
    if way is None:
        return fall_back_to_host(prim, ins, kw, dev)
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
            h = transferred_operand(x, dev, device, way)
            if h.__class__ in SCALAR_TYPES:
                if np_dtype.itemsize == 2 and upcast_half and np_dtype in LOW and low is None:
                    low = np_dtype
                handles.append(h)
                continue
        elif x._device is not dev and x._device != dev:
            raise mixed_devices(x._device, dev)
        if not a.size and not way.empty:
            return fall_back_to_host(prim, ins, kw, dev, notify=False)
        if np_dtype.itemsize == 2 and upcast_half and np_dtype in LOW:
            low = np_dtype
            h, np_dtype = device.cast(h, F32), F32
        elif prim.elementwise and device.upcasts_half and not a.flags.c_contiguous and x._handle is not None:
            # kernels of this target are 60 times slower on strided operands than a copy
            h = device.cast(h, np_dtype)
        if only is not None and np_dtype not in only:
            return fall_back_to_host(prim, ins, kw, dev)
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
    except UnsupportedByKernel as e:
        if e.rejection is not None:
            raise_kernel_error(e.rejection, lambda: prim.compute([None if x is None else to_host(x) for x in ins], on_host(kw)))
        r = None
    except RuntimeError as e:
        reraise(e, dev, describe_call(prim, ins))
    finally:
        if paused:
            resume()
    if r is None:
        return fall_back_to_host(prim, ins, kw, dev)
    if r.__class__ is tuple:
        return wrap_results(prim, r, ins, kw, dev, device)
    t = empty_tensor()  # like `tensor`
    t._array, t._handle, t._device, t._enqueue_epoch = device.meta_array(r), r, dev, async_errors.now
    if not kw and low is None and not prim.variadic:
        _cache_signature(way, ins, handles, t._array.kind)
    if INFERENCE.ever and mode.inference:
        t._inference = True
    return primitives.record(prim, t, ins, kw) if wanting and mode.on and prim.grads else t


def cached_call(prim, args, dev):
    """Fast path: runs a kernel that has accepted operands of these kinds before.

    Neither the operands nor the geometry of the result are checked again. Returns None if these
    kinds are not known.
    """
    way = KERNEL_CACHE[dev.type].get(prim.name)
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
    except UnsupportedByKernel:  # the slow path raises it again and handles it
        return None
    # an asynchronous error, perhaps of an earlier op; it is raised only once
    except RuntimeError as e:
        reraise(e, dev, describe_call(prim, args))
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


def _downcast_result(r, low, device):
    if r.__class__ is tuple:
        return tuple([None if h is None else _downcast_result(h, low, device) for h in r])
    return device.cast(r, low) if device.geometry(r)[1] == F32 else r
