"""Ops that a device has no kernel for, or whose kernel fails: the host computes them."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from mindtorch.backend.device import Device, UnsupportedByKernel
from mindtorch.backend.kernels import TABLES
from mindtorch.core.device import device as _device
from mindtorch.core.device.device_errors import mixed_devices
from mindtorch.core.device.device_state import DEVICES
from mindtorch.core.device.transfers import SCALAR_TYPES, classify_native, tensor, to_host, upload, wrap_results
from mindtorch.core.dispatch import primitives
from mindtorch.core.tensor.tensor import SavedArray, ScalarOperand, Tensor


class _Fallback:
    """Policy for primitives without a kernel: "warn" (once per primitive), "error" or "silent"."""

    policy = "warn"


fallback = _Fallback()
#: (device type, primitive) -> number of times that it was computed on the host for lack of a
#: kernel.
FALLBACKS: dict[tuple[str, str], int] = {}


def drawn_on_host(kw):
    """True if the random numbers come from the host by choice, not for lack of a kernel."""
    return getattr(kw.get("generator"), "on_host", False)


def on_host(kw):
    """Returns a primitive's constants with a host generator instead of a device generator."""
    draws = getattr(kw.get("generator"), "for_host", None)
    return kw if draws is None else {**kw, "generator": draws()}


def raise_kernel_error(error: Exception, by_host: Callable[[], object]) -> NoReturn:
    """Raises the error of a call on which a device kernel failed.

    MindSpore rejects operands with its own errors; the host kernel gives PyTorch's message. If the
    host kernel succeeds, the device kernel is at fault and its error is raised. The host result is
    not used: only `UnsupportedByKernel` without a rejection falls back to the host.
    """
    try:
        by_host()
    except Exception as e:
        raise e from error
    raise error from None


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


def fall_back_to_host(prim, ins, kw, dev, notify=True):
    device = DEVICES[dev.type]
    for x in ins:
        if (x is not None and x._handle is None and x.__class__ is not ScalarOperand and x.__class__ is not SavedArray
                and x._from_mindspore and x._device.type == "cpu"):
            x._device, x._handle, x._array = classify_native(x, dev)
        if x is not None and (x._device != dev if x._handle is not None else x.__class__ is not ScalarOperand and x.__class__ is not SavedArray and x.ndim
                              and not device.shadows):
            raise mixed_devices(dev, x._device)
    if notify and not drawn_on_host(kw):
        cpu_fallback(prim.name, ins, dev)
    r = prim.compute([None if x is None else to_host(x) for x in ins], on_host(kw))
    if r.__class__ is tuple:
        return wrap_results(prim, tuple([None if x is None else upload(device, x) for x in r]), ins, kw, dev, device)
    return primitives.link(prim, tensor(dev, upload(device, r)), ins, kw)


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
        return tuple([None if a is None else upload(device, a) for a in r])
    return upload(device, r)


def _call_cpu_kernel(make, handles, kw, device):
    return make(*[None if h is None else np.asarray(h) if h.__class__ in SCALAR_TYPES else device.download(h) for h in handles], **on_host(kw))


def raise_deferred_error(error: Exception, name: str, handles: Sequence[Any], kw: dict[str, Any], device: Device) -> NoReturn:
    """Like `raise_kernel_error`, for a deferred kernel."""
    make = TABLES["cpu"].get(name)
    if make is None:
        raise error
    raise_kernel_error(error, lambda: _call_cpu_kernel(make, handles, kw, device))
