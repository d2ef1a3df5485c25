"""MindSpore layers on device tensors inside a compiled step: deferred like kernels, with nodes in
mindtorch's autograd graph."""
from __future__ import annotations

from typing import Any

from mindtorch.backend.hooks import NO
from mindtorch.backend.mindspore import native_cells
from mindtorch.backend.mindspore.private import MSTensor
from mindtorch.core.device import device_dispatch
from mindtorch.core.compile import graph_mode, replay
from mindtorch.core.hooks import hooks
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.sparse import SparseTensor
from mindtorch.core.dispatch.primitives import Node, new_node
from mindtorch.core.tensor.tensor import Tensor, adopt, shallow_copy, version_counter


class NativeCell(Node):
    """Node of a MindSpore layer."""

    __slots__ = ()

    def _apply(self, gs):
        if mode.on:
            raise NotImplementedError(f"create_graph=True is not supported through the MindSpore layer {self.calls['value'].name}: its second "
                                      "derivatives are not recorded; use PyTorch's layer")
        g = gs[0]
        position = tuple([i for i, e in enumerate(self._next_edges) if e is not None])
        args = [getattr(self, f"x{i}") for i in range(len(self._next_edges))]
        call = native_cells.gradient(self.calls, position)
        r = _run(call, [*[x._handle for x in args], g._handle])
        r = r if r.__class__ is tuple else (r,)
        found: list[Any] = [None] * len(args)
        for i, h in zip(position, r):
            found[i] = device_dispatch.tensor(g._device, h)
        return found

    @property
    def calls(self):
        """Calls of the layer and of its gradients."""
        return self._attrs["calls"]


@device_dispatch.device_lock
def _run(call, handles):
    if graph_mode.active():
        return replay.current.session.call(call.name, call, handles, {})
    return call(*handles)


def run(cell: Any, args: tuple[Any, ...]) -> Tensor | None:
    """Returns the result of a MindSpore layer; None where MindSpore has to run it."""
    r = hooks.defer_native_layer(cell, args)
    if r is not NO:
        return r
    dev = next((x._device for x in args if isinstance(x, MSTensor) and Tensor in type(x).__mro__ and x._handle is not None), None)
    if dev is None or not all([isinstance(x, MSTensor) and not isinstance(x, SparseTensor) for x in args]):
        return None
    made = native_cells.calls(cell)
    if made is None:
        return None
    ins = [x if Tensor in type(x).__mro__ else adopt(x if type(x) is hooks.lazy_tensor_class else MSTensor(x), dev) for x in args]
    if any([x._handle is None or x._device != dev or not x._array.size or not x._array.flags.c_contiguous for x in ins]):
        return None
    r = _run(made["value"], [x._handle for x in ins])
    if r.__class__ is tuple:
        return None
    t = device_dispatch.tensor(dev, r)
    if mode.on and t._np_dtype.kind in "fV" and any([x._requires_grad_ for x in ins]):
        node = new_node(NativeCell)
        node._prim = None
        node._next_edges = [None if not x._requires_grad_ or x._np_dtype.kind not in "fV" else x if x._grad_fn_ is None else (x._grad_fn_,
                                                                                                                              x._output_nr) for x in ins]
        node._input_metadata = ((t._array.shape, t._array.dtype),)
        node._attrs = {"calls": made}
        node._saved = {f"x{i}": (shallow_copy(x), version_counter(x), version_counter(x).v) for i, x in enumerate(ins)}
        t._grad_fn_, t._requires_grad_ = node, True
    return t
