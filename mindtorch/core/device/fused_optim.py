"""Optimizer steps: connects torch/optim's tensor ops with device kernels that update all parameters
of a group at once.

backend/optimizer_formulas.py defines what a step computes. A device can register a kernel of the step's name
("adam_step", ...) in its table, together with "optimizer_layout":

    optimizer_layout(memory)                 what the kernel needs to know about the parameters'
                                             memory; None if it does not support these parameters
    adam_step(layout, columns, consts)       one step
    adam_step_half(None, columns, consts)    half precision with fused=True (optional)

`columns` are lists of memory: the parameters first, then the states of the update, the gradients
last. `consts` holds (options, numbers) for each row, the same object for rows with equal values.
The kernel modifies all columns except the last. On `cpu` memory is an array, elsewhere a handle.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from mindtorch.backend.device import UnsupportedByKernel
from mindtorch.backend.kernels import TABLES
from mindtorch.backend.mindspore.private import unrecorded
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor.conj_neg_bits import LIVE, ConjNegBits
from mindtorch.core.device.device_dispatch import device_lock, async_errors, reraise, device_to_host
from mindtorch.core.tensor.dtypes import F32, LOW
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.storage_impl import COW, unshare
from mindtorch.core.tensor.tensor import Tensor, bump_version, wrap_array

#: kernel, result of "optimizer_layout", True if the kernel accepts arrays
Plan: TypeAlias = tuple[Callable[..., None], Any, bool]
#: options and numbers of one row
Const: TypeAlias = tuple[tuple[Any, ...], tuple[Any, ...]]


def plan(name: str, params: Sequence[Tensor], differentiable: bool = False, fused: bool = False) -> Plan | None:
    """Selects the kernel that runs the step `name` for all of `params` at once.

    Returns None where tensor ops have to do it: if gradients are recorded, the parameters are on
    several devices, or the device's kernel does not support them.

    fused: compute half precision in float32, like PyTorch's fused kernels.
    """
    if differentiable or mode.on:
        return None
    dev = params[0]._device
    table = TABLES.get(dev.type, {})
    if name not in table:
        return None
    for p in params:
        if p._device is not dev and p._device != dev:
            return None
    if LIVE and any([p._handle.__class__ is ConjNegBits for p in params]):
        return None
    host = dev.type == "cpu"
    if COW.on:
        unshare(params)
    found = table["optimizer_layout"]([p._array for p in params] if host else [p._handle for p in params])
    if found is not None:
        return table[name], found, host
    if fused and host and f"{name}_half" in table and all([p._np_dtype in LOW or p._np_dtype is F32 for p in params]):
        return table[f"{name}_half"], None, host
    return None


def fused_step(plan: Plan, changed: Sequence[Sequence[Tensor]], grads: Sequence[Tensor], consts: Sequence[Const]) -> None:
    """Runs the step. `changed` are lists of tensors: the parameters first, then their states."""
    kernel, found, host = plan
    if LIVE:
        grads = [hooks.bits_resolved(g) if g._handle.__class__ is ConjNegBits else g for g in grads]
    if host:
        if COW.on:
            for column in changed:
                unshare(column)
        columns = [[t._array for t in column] for column in changed]
        columns.append([g._array for g in grads])
    else:
        if async_errors.windows:
            async_errors.check([t for column in (*changed, grads) for t in column])
        columns = [[_handle(t) for t in column] for column in (*changed, grads)]
    if host:
        kernel(found, columns, consts)
    else:
        _on_device(kernel, found, columns, consts, changed[0][0]._device)
    for column in changed:
        for t in column:
            v = t._version_counter
            if v is None:
                bump_version(t)
            else:
                v.v += 1  # inlined `bump_version`: saves a call per tensor


def unscale(grads: Sequence[Tensor], found: Tensor, inverse: Tensor) -> bool:
    """Multiplies gradients by `inverse` in place and sets `found` to 1 if an element is inf or nan, by
    one kernel ("unscale") of their device; both are float32 tensors of one element there.

    Returns False, without any change, if the device has no such kernel or it does not support them.
    """
    kernel = TABLES.get(found._device.type, {}).get("unscale")
    if kernel is None or any([g._handle is None or g._device != found._device for g in grads]) or LIVE and any(
            [g._handle.__class__ is ConjNegBits for g in grads]):
        return False
    try:
        with unrecorded():
            kernel([g._handle for g in grads], found._handle, inverse._handle)
    except UnsupportedByKernel:
        return False
    for g in (*grads, found):
        bump_version(g)
    return True


@device_lock
def _on_device(kernel, found, columns, consts, dev):
    try:
        with unrecorded():
            kernel(found, columns, consts)
    except RuntimeError as e:
        n = len(columns[0])
        reraise(e, dev, f"an optimizer step of {n} parameter{'s, some of which may already be updated' if n > 1 else ''}")


def _handle(t: Tensor) -> Any:
    if t._handle is None:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found a parameter's gradient or state on {t._device}!")
    return t._handle


# ------------------------------------------------------------------ optimizer state
def step_counts(state_steps: Sequence[Tensor]) -> list[float]:
    """Adds 1 to every step tensor on the host and returns the new values as floats.

    Tensor ops in place would cost 2 us each.
    """
    out = []
    for t in state_steps:
        # moved to a device by the user; the optimizer creates them on the host
        if t._handle is not None:
            value = device_to_host(t).item() + 1
            t.fill_(value)
            out.append(value)
            continue
        a = t._array
        a.fill(a.item() + 1)
        out.append(a.item())
        v = t._version_counter
        if v is None:
            bump_version(t)
        else:
            v.v += 1
    return out


def set_number(t: Tensor, value: float) -> None:
    """Sets the single element of `t` to `value`."""
    if t._handle is not None:
        t.fill_(value)
        return
    t._array.fill(value)
    bump_version(t)


def scale_number(t: Tensor, by: float) -> float:
    """Multiplies the single element of `t` in its own precision; returns the new value."""
    if t._handle is not None:
        a = device_to_host(t)
        value = (a.reshape(())[()] * a.dtype.type(by)).item()
        t.fill_(value)
        return value
    a = t._array
    a.fill(a[()] * a.dtype.type(by))
    bump_version(t)
    return a.item()


def empty_buffer_like(p: Tensor) -> Tensor:
    """Returns an uninitialized, dense buffer in the dimension order of p's memory."""
    return p.new_empty(p._sizes) if p._handle is not None else wrap_array(np.empty_like(p._array))
