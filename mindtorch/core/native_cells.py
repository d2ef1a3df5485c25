"""MindSpore layers on device tensors inside a compiled step: deferred like kernels, with nodes in
mindtorch's autograd graph."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch.backend.mindspore import native_cells
from mindtorch.backend.mindspore.private import MSTensor
from mindtorch.core import devices, graph_mode, lazy, tensor as _tensor
from mindtorch.core.grad_mode import mode
from mindtorch.core.sparse import SparseTensor
from mindtorch.core.tape import Node, new_node
from mindtorch.core.tensor import Tensor, adopt, again, version


NO: Any = None
#: set by core.native_ops: returns the deferred result of a layer made for one call, or `NO`
layer: Callable[..., Any] = None            # type: ignore[assignment]


class NativeCell(Node):
    """Node of a MindSpore layer."""

    __slots__ = ()

    def _apply(self, gs):
        if mode.on:
            raise NotImplementedError(f"create_graph=True is not supported through the MindSpore layer {self.calls['value'].name}: its second "
                                      "derivatives are not recorded; use PyTorch's layer")
        g = gs[0]
        position = tuple([i for i, e in enumerate(self.edges) if e is not None])
        args = [getattr(self, f"x{i}") for i in range(len(self.edges))]
        call = native_cells.gradient(self.calls, position)
        r = _run(call, [*[x._h for x in args], g._h])
        r = r if r.__class__ is tuple else (r,)
        found: list[Any] = [None] * len(args)
        for i, h in zip(position, r):
            found[i] = devices.tensor(g._dev, h)
        return found

    @property
    def calls(self):
        """Calls of the layer and of its gradients."""
        return self.kw["calls"]


@devices.alone
def _run(call, handles):
    if graph_mode.active():
        return lazy.current.session.call(call.name, call, handles, {})
    return call(*handles)


def run(cell: Any, args: tuple[Any, ...]) -> Tensor | None:
    """Returns the result of a MindSpore layer; None where MindSpore has to run it."""
    r = layer(cell, args)
    if r is not NO:
        return r
    dev = next((x._dev for x in args if isinstance(x, MSTensor) and Tensor in type(x).__mro__ and x._h is not None), None)
    if dev is None or not all([isinstance(x, MSTensor) and not isinstance(x, SparseTensor) for x in args]):
        return None
    made = native_cells.calls(cell)
    if made is None:
        return None
    ins = [x if Tensor in type(x).__mro__ else adopt(x if type(x) is _tensor.later else MSTensor(x), dev) for x in args]
    if any([x._h is None or x._dev != dev or not x._a.size or not x._a.flags.c_contiguous for x in ins]):
        return None
    r = _run(made["value"], [x._h for x in ins])
    if r.__class__ is tuple:
        return None
    t = devices.tensor(dev, r)
    if mode.on and t._stype.kind in "fV" and any([x._rg for x in ins]):
        node = new_node(NativeCell)
        node.prim = None
        node.edges = [None if not x._rg or x._stype.kind not in "fV" else x if x._gnode is None else (x._gnode, x._oi) for x in ins]
        node.meta = ((t._a.shape, t._a.dtype),)
        node.kw = {"calls": made}
        node.vals = {f"x{i}": (again(x), version(x), version(x).v) for i, x in enumerate(ins)}
        t._gnode, t._rg = node, True
    return t
