"""Host-graph bridge: exposes host tensors as MindSpore CPU tensors on the same memory while a graph
of them is computed (torch.compile(backend="mindspore")).

The bridge device is internal: no name refers to it, and its tensors never leave the graph. Inputs
(`to_graph`) are not copied: parameters, buffers and inputs are read and modified in place, and share
their version counters with the host tensors. Outputs (`from_graph`) are not copied either. Each direction
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
from mindtorch.core.device import device as _device, device_dispatch, device_state
from mindtorch.core.dispatch import dispatcher, primitives
from mindtorch.core.compile import replay
from mindtorch.core.autograd import graph as autograd_graph
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.tensor import Tensor, on_device, version_counter, wrap_array

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
    from mindtorch.backend.mindspore import kernels as npu_kernels
    from mindtorch.backend.mindspore.graph.graph_compiler import GraphCompiler
    from mindtorch.backend.mindspore.kernels.dropout import MASKED
    kernels.load(npu_kernels)
    npu_kernels.fill_table(SHADOW.type)
    device = npu.Shadow("CPU")
    device.maker, device.masked = GraphCompiler, MASKED
    device_dispatch.KERNEL_CACHE[SHADOW.type] = {}
    _device.registered[SHADOW.type] = device
    dispatcher.enable_layer("primitives", "device")
    return device


def stop() -> None:
    """Reverts `start`."""
    if _device.registered.pop(SHADOW.type, None) is not None:
        del TABLES[SHADOW.type], device_dispatch.KERNEL_CACHE[SHADOW.type]
        dispatcher.disable_layer("primitives", "device")


def unsupported_reason(t: Any) -> str | None:
    """Returns why a tensor cannot be bridged, or None if it can."""
    if t._handle is not None:
        return f"a tensor is on {t._device}"
    if t._device.type != "cpu" or t.__class__.__mro__[0].__name__ not in ("Tensor", "Parameter") or t._array.__class__ is not np.ndarray:
        return f"a tensor is a {type(t).__name__} on {t._device}"
    if t._array.dtype not in npu.DTYPES:
        return f"a tensor has dtype {t.dtype}, which MindSpore does not support"
    return None


class _ToGraph(primitives.Node):
    """Node for host tensors -> bridge tensors."""

    __slots__ = ()

    def _apply(self, gs):
        return from_graph(gs, True)


class _FromGraph(primitives.Node):
    """Node for bridge tensors -> host tensors."""

    __slots__ = ()

    def _apply(self, gs):
        return _up(gs)


def _linked(cls, ins, outs):
    node = primitives.new_node(cls)
    edges: list[Any] = []
    meta: list[Any] = []
    for i, (x, t) in enumerate(zip(ins, outs)):
        if t is None or x is None or not x._requires_grad_:
            edges.append(None)
            meta.append(None)
            continue
        edges.append(autograd_graph.edge_to(x))
        meta.append((t._array.shape, t._array.dtype))
        t._grad_fn_, t._output_nr, t._requires_grad_ = node, i, True
    node._prim, node._next_edges, node._input_metadata = None, edges, tuple(meta)


def _wanting(ts):
    return mode.on and any([t is not None and t._requires_grad_ for t in ts])


class AliasTable:
    """Handles on the memory of the tensors passed to a graph at each call.

    A handle is cached where `retained` is set, and reused while the array is the same object.
    """

    def __init__(self, retained: Sequence[bool]) -> None:
        self.retained = retained
        self.arrays: list[Any] = [None] * len(retained)
        self.handles: list[Any] = [None] * len(retained)

    def to_graph(self, ts: Sequence[Tensor]) -> list[Tensor]:
        """Returns the bridge tensors of `ts`."""
        device: Any = _device.registered[SHADOW.type]
        arrays, handles, outs = self.arrays, self.handles, []
        with device_state.DEVICE_LOCK:
            for i, t in enumerate(ts):
                a = t._array
                if self.retained[i]:
                    if arrays[i] is not a:
                        arrays[i], handles[i] = a, device.over(a)
                    h = handles[i]
                else:
                    h = device.over(a)
                s = on_device(SHADOW, h, device.meta_array(h))
                s._version_counter = version_counter(t)
                outs.append(s)
        if _wanting(ts):
            _linked(_ToGraph, ts, outs)
        return outs


def array_of(t: Tensor) -> Array:
    """Returns the memory of a bridge tensor as a host array."""
    return npu.memory_of(t._handle) if t._array.size else np.empty(t._array.shape, t._array.dtype)


def from_graph(ts: Sequence[Any], gradients: bool = False, orders: Sequence[tuple[int, ...] | None] | None = None) -> list[Any]:
    """Returns bridge tensors as host tensors on the same memory; None stays None.

    orders: required dimension order in memory, outermost first (None: any). A tensor in another
    order is copied.
    """
    s = replay.current.session
    if s is not None and s.device.shadows:
        s.finish("")  # starts a new trace segment; not a graph break
    outs: list[Any] = []
    with device_state.DEVICE_LOCK:
        for i, t in enumerate(ts):
            if t is None or t._handle is None:
                outs.append(t)
                continue
            a = array_of(t)
            order = None if orders is None else orders[i]
            if order is not None and not (same := a.transpose(order)).flags.c_contiguous:
                outs.append(wrap_array(np.ascontiguousarray(same).transpose(np.argsort(order))))
                continue
            r = wrap_array(a)
            if not gradients:
                r._version_counter = version_counter(t)
            outs.append(r)
    if _wanting(ts):
        _linked(_FromGraph, ts, outs)
    return outs


def _up(gs):
    outs = []
    with device_state.DEVICE_LOCK:
        for g in gs:
            outs.append(None if g is None else g if g._handle is not None else device_dispatch.host_to_device(g._array, SHADOW))
    if _wanting(gs):
        _linked(_ToGraph, gs, outs)
    return outs


class within:
    """Context manager: new cpu tensors of this thread are created on the bridge device."""

    __slots__ = ("before",)

    def __enter__(self) -> None:
        self.before, device_dispatch.WITHIN.on = device_dispatch.WITHIN.on, True

    def __exit__(self, *exc: object) -> None:
        device_dispatch.WITHIN.on = self.before


__all__ = ["AliasTable", "array_of", "from_graph", "start", "stop", "unsupported_reason", "within"]
