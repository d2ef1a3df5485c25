"""Tensors on devices other than the host: the layer of the dispatcher that picks their kernels, and how they come and go.

Such a tensor has its device's handle (`_h`); its `_a` is `Opaque`: it tells shape, element type and strides, and no values.  Views are worked out on
arrays without memory by the host's own view kernels, and made by the device's one `view`.
"""
from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.device import Device, Opaque
from mindtorch.backend.interface import Array, Handle
from mindtorch.backend.kernels import TABLES
from mindtorch.backend.meta.arrays import blank, on_strides
from mindtorch.backend.strides import contiguous_strides, strides_of
from mindtorch.core import device as _device, dispatch, tape
from mindtorch.core.tensor import Const, Held, Tensor, on_device, wrap

#: type -> Device
DEVICES: dict[str, Device] = {}


class _Fallback(threading.local):
    """What happens where a device has no kernel: "warn" (once for each primitive), "error", or "silent"."""

    policy = "warn"


fallback = _Fallback()
#: (device type, primitive) -> how often it was computed on the host for want of a kernel
FALLBACKS: dict[tuple[str, str], int] = {}


def register(device: Device) -> None:
    """Makes a `backend.device.Device` known: torch.device(device.type) exists from now on."""
    if device.type in DEVICES:
        raise ValueError(f"device {device.type} is registered already")
    DEVICES[device.type] = device
    TABLES.setdefault(device.type, {})
    _device.add_type(device.type)
    dispatch.want("primitives", "device")


def unregister(device: Device) -> None:
    """Takes `register` back; tensors on the device can no longer be used."""
    del DEVICES[device.type]
    _device.registered.discard(device.type)
    dispatch.drop("primitives", "device")


# ------------------------------------------------------------------ tensors
def tensor(dev: _device.device, handle: Handle) -> Tensor:
    """A Tensor on a handle of the device `dev` (a torch.device)."""
    sizes, stype, strides = DEVICES[dev.type].geometry(handle)
    return on_device(dev, handle, on_strides(sizes, stype, strides) if tuple(strides) != contiguous_strides(sizes) else blank(sizes, stype))


def _geometry(t):
    """An array without memory of a tensor's shape and strides, for view kernels."""
    return np.ndarray.view(t._a, np.ndarray)


def to_host(t: Tensor) -> Array:
    """The values of a device's tensor as a host array; a synchronisation."""
    return DEVICES[t._dev.type].download(t._h)


def from_host(array: Array, dev: _device.device) -> Tensor:
    """A tensor on the device `dev` with a host array's values."""
    return tensor(dev, DEVICES[dev.type].upload(np.ascontiguousarray(array).reshape(array.shape)))


# ------------------------------------------------------------------ the layer
@dispatch.layer("primitives", "device")
def _on_device(prim, args, kw, below):
    if prim.name == "to_device":
        return _moved(prim, args, kw, below)
    dev = _device_of(args)
    if dev is None:
        target = kw.get("device")
        if target is None or target.type not in DEVICES:
            return below(prim, args, kw)
        return _created(prim, args, kw, target, below)
    return run(prim, args, kw, dev)


def _moved(prim, args, kw, below):
    x, dev = args[0], kw["target"]
    if x._h is None and dev.type not in DEVICES:
        return below(prim, args, kw)
    a = values(x)
    return tape.link(prim, from_host(a, dev) if dev.type in DEVICES else wrap(np.array(a)), args, kw)


def values(t: Tensor | Const | Held) -> Array:
    """The values of a tensor as a host array, to be read only (core/values.py)."""
    return t._a if t._h is None else to_host(t)         # type: ignore[arg-type]


def _device_of(args):
    for x in args:
        if x.__class__ is list or x.__class__ is tuple:
            dev = _device_of(x)
            if dev is not None:
                return dev
        elif x is not None and getattr(x, "_h", None) is not None:
            return x._dev
    return None


def run(prim: tape.Primitive, args: tuple[Any, ...], kw: dict[str, Any], dev: _device.device) -> Any:
    """One primitive on a device."""
    device = DEVICES[dev.type]
    ins = tuple(args[0]) if prim.variadic else args
    if prim.view:
        return _view(prim, ins, kw, dev, device)
    fn = TABLES[dev.type].get(prim.name)
    handles = [_handle(x, dev, device) for x in ins]
    if fn is None:
        r = _fallen_back(prim, ins, handles, kw, dev, device)
    else:
        r = fn(*handles, **kw)
    if r.__class__ is not tuple:
        return tape.link(prim, tensor(dev, r), ins, kw)
    outs = tuple([None if h is None else Held(*_held(h, device), dev) if i in prim.held else tensor(dev, h) for i, h in enumerate(r)])
    return tape.link(prim, outs, ins, kw)


def _held(h: Handle, device: Device) -> tuple[Array, Handle]:
    sizes, stype, strides = device.geometry(h)
    return np.ndarray.view(on_strides(sizes, stype, strides), Opaque), h


def _handle(x, dev, device):
    if x is None:
        return None
    if x.__class__ is Const:
        return device.upload(x._a)
    if x.__class__ is Held:
        return x._h if x._h is not None else device.upload(x._a)
    if x._h is not None:
        if x._dev != dev:
            raise _mixed(x._dev, dev)
        return x._h
    if x.ndim or x._dev.type == "meta":
        raise _mixed(dev, x._dev)
    return device.upload(x._a)          # (a 0-dim tensor of the host's counts as a number)


def _mixed(one, other):
    return RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {one} and {other}!")


def _view(prim, ins, kw, dev, device):
    base = _geometry(ins[0])
    r = prim.fwd(base, *[None if x is None else x._a for x in ins[1:]], **kw)
    if r.__class__ is not tuple:
        return tape.link(prim, _part(ins[0], base, r, dev, device), ins, kw)
    return tape.link(prim, tuple([_part(ins[0], base, x, dev, device) for x in r]), ins, kw)


def _part(t, base, view, dev, device):
    at = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // view.itemsize if view.size else 0
    return on_device(dev, device.view(t._h, view.shape, strides_of(view), at), view)


def _created(prim, args, kw, dev, below):
    """A primitive without operands: the device's own kernel, or the host's numbers sent there."""
    fn = TABLES[dev.type].get(prim.name)
    if fn is not None:
        return tape.link(prim, tensor(dev, fn(**kw)), (), kw)
    made = below(prim, args, {**kw, "device": _device.cpu})
    return from_host(made._a, dev)


def _goes_to_host(name, ins, dev):
    """Counts, tells of or refuses what a device has no kernel for, as the policy says."""
    stypes = [x._stype.name for x in ins if x is not None and x.__class__ is not Held]
    what = f"primitive '{name}' of {', '.join(stypes) or 'no operand'} has no kernel on device {dev.type}"
    if fallback.policy == "error":
        raise NotImplementedError(what)
    key = dev.type, name
    FALLBACKS[key] = FALLBACKS.get(key, 0) + 1
    if fallback.policy == "warn" and FALLBACKS[key] == 1:
        warnings.warn(f"{what}: it is computed on the host, with copies there and back", stacklevel=6)


def _fallen_back(prim, ins, handles, kw, dev, device):
    _goes_to_host(prim.name, ins, dev)
    arrays = [None if h is None else device.download(h) for h in handles]
    r = prim.compute(arrays, kw)
    if r.__class__ is tuple:
        return tuple([None if x is None else device.upload(np.asarray(x)) for x in r])
    return device.upload(np.asarray(r))


# ------------------------------------------------------------------ writes (core/alias.py)
def write(x: Tensor, r: Tensor | Const) -> None:
    """Stores the values of `r`, which broadcasts to x and may be of another dtype or a number of the host's, into x's memory."""
    device = DEVICES[x._dev.type]
    if r._h is None:
        r = from_host(np.broadcast_to(r._a, x._sizes) if r._a.shape != x._sizes else r._a, x._dev)
    if r._stype != x._stype:
        r = cast(r, x._stype)
    if r._sizes != x._sizes:
        r = _ops["expand"](r, x._sizes)
    device.write(x._h, r._h)


def write_by(x: Tensor, name: str, kernel: Callable[..., object], *operands: Any, **constants: object) -> None:
    """Has a host's kernel write into x's values, on the host: kernel(array, *arrays of the operands, **constants)."""
    _goes_to_host(name, (x, *operands), x._dev)
    a = values(x).copy()
    kernel(a, *[values(o) for o in operands], **constants)
    write(x, wrap(a))


def cast(x: Any, stype: Any) -> Tensor:
    """A tensor in another element type."""
    return _ops["cast"](x, stype)


_ops: dict[str, Callable[..., Tensor]] = {}           # cast, expand: set by the ops floor
