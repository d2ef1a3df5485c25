"""Host-graph bridge: exposes host tensors as MindSpore CPU tensors on the same memory while a graph
of them is computed (torch.compile(backend="mindspore")).

The bridge device is internal: no name refers to it, and its tensors never leave the graph. Inputs
(`over`) are not copied: parameters, buffers and inputs are read and modified in place, and share
their version counters with the host tensors. Outputs (`back`) are not copied either. Each direction
is one autograd node, so gradients take the same route: they are copied into the graph, because host
code may still modify them, and leave it without a copy.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mindtorch.backend import kernels
from mindtorch.backend.device import Device
from mindtorch.backend.interface import Array
from mindtorch.backend.kernels import TABLES
from mindtorch.backend.mindspore import npu, runtime
from mindtorch.core import device as _device, devices, dispatch, lazy, nodes, tape
from mindtorch.core.grad_mode import mode
from mindtorch.core.tensor import Tensor, on_device, version, wrap

SHADOW = _device.shadow


def start() -> Device:
    """Returns the device, creating it on first use.

    From then on, primitives on host tensors also go through the dispatcher layer that checks the
    operands' device.
    """
    found = _device.registered.get(SHADOW.type)
    if found is not None:
        return found
    if runtime.target() != "CPU":
        raise NotImplementedError("torch.compile(backend='mindspore') of cpu tensors requires MindSpore's CPU target, but this process "
                                  f"uses {runtime.target()}: move the model and its data to the npu device")
    from mindtorch.backend.mindspore import kernels as own
    from mindtorch.backend.mindspore.graph.maker import Maker
    from mindtorch.backend.mindspore.kernels.dropout import MASKED
    kernels.load(own)
    own.settle(SHADOW.type)
    device = npu.Shadow("CPU")
    device.maker, device.masked = Maker, MASKED
    devices._WAYS[SHADOW.type] = {}
    _device.registered[SHADOW.type] = device
    dispatch.want("primitives", "device")
    return device


def stop() -> None:
    """Reverts `start`."""
    if _device.registered.pop(SHADOW.type, None) is not None:
        del TABLES[SHADOW.type], devices._WAYS[SHADOW.type]
        dispatch.drop("primitives", "device")


def takes(t: Any) -> str | None:
    """Returns why a tensor cannot be bridged, or None if it can."""
    if t._h is not None:
        return f"a tensor is on {t._dev}"
    if t._dev.type != "cpu" or t.__class__.__mro__[0].__name__ not in ("Tensor", "Parameter") or t._a.__class__ is not np.ndarray:
        return f"a tensor is a {type(t).__name__} on {t._dev}"
    if t._a.dtype not in npu.DTYPES:
        return f"a tensor has dtype {t.dtype}, which MindSpore does not support"
    return None


class _Over(tape.Node):
    """Node for host tensors -> bridge tensors."""

    __slots__ = ()

    def _apply(self, gs):
        return back(gs, True)


class _Back(tape.Node):
    """Node for bridge tensors -> host tensors."""

    __slots__ = ()

    def _apply(self, gs):
        return _up(gs)


def _linked(cls, ins, outs):
    node = tape.new_node(cls)
    edges: list[Any] = []
    meta: list[Any] = []
    for i, (x, t) in enumerate(zip(ins, outs)):
        if t is None or x is None or not x._rg:
            edges.append(None)
            meta.append(None)
            continue
        edges.append(nodes.edge_to(x))
        meta.append((t._a.shape, t._a.dtype))
        t._gnode, t._oi, t._rg = node, i, True
    node.prim, node.edges, node.meta = None, edges, tuple(meta)


def _wanting(ts):
    return mode.on and any([t is not None and t._rg for t in ts])


class Places:
    """Handles on the memory of the tensors passed to a graph at each call.

    A handle is cached where `kept` is set, and reused while the array is the same object.
    """

    def __init__(self, kept: Sequence[bool]) -> None:
        self.kept = kept
        self.arrays: list[Any] = [None] * len(kept)
        self.handles: list[Any] = [None] * len(kept)

    def over(self, ts: Sequence[Tensor]) -> list[Tensor]:
        """Returns the bridge tensors of `ts`."""
        device: Any = _device.registered[SHADOW.type]
        arrays, handles, outs = self.arrays, self.handles, []
        with devices.ALONE:
            for i, t in enumerate(ts):
                a = t._a
                if self.kept[i]:
                    if arrays[i] is not a:
                        arrays[i], handles[i] = a, device.over(a)
                    h = handles[i]
                else:
                    h = device.over(a)
                s = on_device(SHADOW, h, device.face(h))
                s._ver = version(t)
                outs.append(s)
        if _wanting(ts):
            _linked(_Over, ts, outs)
        return outs


def array_of(t: Tensor) -> Array:
    """Returns the memory of a bridge tensor as a host array."""
    return npu.memory_of(t._h) if t._a.size else np.empty(t._a.shape, t._a.dtype)


def back(ts: Sequence[Any], gradients: bool = False, orders: Sequence[tuple[int, ...] | None] | None = None) -> list[Any]:
    """Returns bridge tensors as host tensors on the same memory; None stays None.

    orders: required dimension order in memory, outermost first (None: any). A tensor in another
    order is copied.
    """
    s = lazy.current.session
    if s is not None and s.device.shadows:
        s.finish("")  # starts a new trace segment; not a graph break
    outs: list[Any] = []
    with devices.ALONE:
        for i, t in enumerate(ts):
            if t is None or t._h is None:
                outs.append(t)
                continue
            a = array_of(t)
            order = None if orders is None else orders[i]
            if order is not None and not (same := a.transpose(order)).flags.c_contiguous:
                outs.append(wrap(np.ascontiguousarray(same).transpose(np.argsort(order))))
                continue
            r = wrap(a)
            if not gradients:
                r._ver = version(t)
            outs.append(r)
    if _wanting(ts):
        _linked(_Back, ts, outs)
    return outs


def _up(gs):
    outs = []
    with devices.ALONE:
        for g in gs:
            outs.append(None if g is None else g if g._h is not None else devices.from_host(g._a, SHADOW))
    if _wanting(gs):
        _linked(_Over, gs, outs)
    return outs


class within:
    """Context manager: new cpu tensors of this thread are created on the bridge device."""

    __slots__ = ("before",)

    def __enter__(self) -> None:
        self.before, devices.WITHIN.on = devices.WITHIN.on, True

    def __exit__(self, *exc: object) -> None:
        devices.WITHIN.on = self.before


__all__ = ["Places", "array_of", "back", "start", "stop", "takes", "within"]
