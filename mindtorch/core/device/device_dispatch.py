"""Tensors on devices other than the host: kernel selection, and transfers from and to the host.

A tensor on such a device has its device's handle (`_handle`). Its `_array` is an `Opaque` array: shape,
dtype and strides without values. View geometry is computed by the host's view kernels on
geometry-only arrays; the view itself is created by the device's `view`.

This module has the dispatcher's layer. `kernel_calls.py` calls kernels, `cpu_fallback.py` computes on
the host what they do not support, `device_views.py` and `device_writes.py` have views and writes,
`transfers.py` copies, `device_errors.py` tracks asynchronous errors, and `device_state.py` has the
registrations.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.device import Device, UnsupportedByKernel
from mindtorch.backend.kernels import TABLES
from mindtorch.core.device import device as _device, device_state
from mindtorch.core.device.cpu_fallback import FALLBACKS, call_cpu_kernel, cpu_fallback, fallback, on_host, raise_deferred_error
from mindtorch.core.device.device_errors import async_errors, describe_call, device_lock, mixed_devices, raise_pending_errors, reraise, synchronize
from mindtorch.core.device.device_state import COPIES, DEVICES, KERNEL_CACHE, USED, WITHIN, called_primitives, has_kernel, kernel_spec, uses_cpu_kernels
from mindtorch.core.device.device_views import part, region, strided_view
from mindtorch.core.device.device_writes import in_place, write, write_by, write_to
from mindtorch.core.device.kernel_calls import cached_call, run, uncached_call
from mindtorch.core.device.transfers import classify_native, device_to_host, host_to_device, same_memory, tensor, to_host, wrap_results
from mindtorch.core.dispatch import dispatcher, primitives
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor.tensor import Tensor, wrap_array

#: the interface of this package's modules for the layers above
__all__ = ["COPIES", "DEVICES", "FALLBACKS", "KERNEL_CACHE", "USED", "WITHIN", "async_errors", "call_cpu_kernel", "called_primitives", "cast",
           "classify_native", "cpu_fallback", "created", "device_lock", "device_to_host", "fallback", "has_kernel", "host_to_device", "in_place",
           "kernel_spec", "mixed_devices", "part", "raise_deferred_error", "raise_pending_errors", "region", "register", "reraise", "run", "same_memory",
           "strided_view", "synchronize", "tensor", "to_host", "unregister", "uses_cpu_kernels", "write", "write_by", "write_to"]


def register(device: Device) -> None:
    """Registers a `backend.device.Device`.

    torch.device(device.type) exists from now on, under each of its names.
    """
    if device.type in DEVICES:
        raise ValueError(f"device {device.type} is registered already")
    table, ways = TABLES.setdefault(device.type, {}), KERNEL_CACHE.setdefault(device.type, {})
    for name in device.names:
        TABLES[name], KERNEL_CACHE[name] = table, ways
    _device.add_type(device, lambda: _import_device(device))


def unregister(device: Device) -> None:
    """Reverts `register`; tensors on the device can no longer be used."""
    _device.drop_type(device)
    for name in device.names:
        del TABLES[name], KERNEL_CACHE[name]
    del KERNEL_CACHE[device.type]
    if device.type in USED:
        USED.discard(device.type)
        dispatcher.disable_layer("primitives", "device")


def _import_device(device):
    # The layer is activated by the first use of a device: until then host primitives do not go
    # through it.
    USED.add(device.type)
    dispatcher.enable_layer("primitives", "device")


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
                with device_state.DEVICE_LOCK:
                    if not kw:
                        t = cached_call(prim, args, x._device)
                        if t is not None:
                            return t
                    try:
                        return uncached_call(prim, args, kw, x._device)
                    except RuntimeError as e:
                        reraise(e, x._device, describe_call(prim, args))
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


@device_lock
def created(prim: primitives.Primitive, args: tuple[Any, ...], kw: dict[str, Any], dev: _device.device, below: Callable[..., Any]) -> Any:
    """Computes a primitive without operands.

    Uses the device's kernel, or computes on the host and copies.
    """
    way = kernel_spec(prim.name, dev)
    if way is not None:
        try:
            r = way.fn(**kw)
        except UnsupportedByKernel as e:
            e.raise_rejection()
        except RuntimeError as e:
            reraise(e, dev, f"primitive '{prim.name}' of {kw}")
        else:
            return primitives.link(prim, tensor(dev, r), (), kw) if r.__class__ is not tuple else wrap_results(prim, r, (), kw, dev, DEVICES[dev.type])
    made = below(prim, args, {**on_host(kw), "device": _device.cpu})
    if made.__class__ is tuple:
        return tuple([None if t is None else host_to_device(t._array, dev) for t in made])
    return host_to_device(made._array, dev)


def cast(x: Any, np_dtype: Any) -> Tensor:
    """Casts a tensor to another dtype."""
    return hooks.cast(x, np_dtype)
