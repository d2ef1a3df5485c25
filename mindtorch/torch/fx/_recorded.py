"""Converts recorded calls (`backend/graph.py`) to an fx Graph, for torch.compile's callable
backends and torch.export.

A recording contains calls as they were made. In fx a method call is `call_method`, an operator is
Python's operator function, everything else is `call_function`. A recording stores grad mode and
autocast with every call; the graph gets calls that switch them.
"""
import operator

import numpy as np

from mindtorch.backend.graph import Node as Call
from mindtorch.backend.graph import Sym, Value, like
from mindtorch.core.autograd.grad_mode import inference_mode
from mindtorch.core.tensor.tensor import Tensor, wrap_array
from mindtorch.torch import _C
from mindtorch.torch._ops import OpOverload
from mindtorch.torch.amp import autocast_mode
from mindtorch.torch.autograd.function import Function

_BINARY = """add sub mul matmul truediv floordiv mod pow lshift rshift and or xor""".split()
_OPERATORS = {f"__{n}__": getattr(operator, f"__{n}__") for n in [
    *_BINARY, *(f"i{n}" for n in _BINARY), *"eq ne lt le gt ge neg pos invert getitem setitem".split()]}
_REVERSED = {f"__r{n}__": getattr(operator, f"__{n}__") for n in _BINARY}


def _methods():
    """Returns {function: name of the Tensor method}. Dunder names only if there is no other name.
    """
    found = {}
    for name, f in vars(Tensor).items():
        if callable(f) and not isinstance(f, (staticmethod, classmethod, type)):
            known = found.get(f)
            if known is None or known[:2] == "__" and name[:2] != "__":
                found[f] = name
    return found


_known: dict = {}


def spelled(call):
    """Returns (fx op, target, args, kwargs) of a recorded call, in the form in which the code made
    it."""
    if not _known:
        _known.update(_methods())
    func, args, kwargs = call.func, call.args, call.kwargs
    if call.op.startswith("function.get_") and func.__qualname__.startswith("_property_op"):
        return "call_function", getattr, (args[0], func.__name__[4:]), {}
    if call.op.endswith(".__get__"):
        return "call_function", getattr, (args[0], call.op.split(".")[-2]), {}
    if func is Function.__dict__["apply"].__func__:
        return "call_function", args[0].apply, args[1:], kwargs
    name = _known.get(func)
    if name is None or not args:
        return "call_function", func, args, kwargs
    if not kwargs and name in _OPERATORS and len(args) <= 3:
        return "call_function", _OPERATORS[name], args, {}
    if not kwargs and name in _REVERSED and len(args) == 2:
        return "call_function", _REVERSED[name], args[::-1], {}
    return "call_method", name, args, kwargs


def example_tensor(shape, dtype, requires_grad=False, strides=None):
    """Returns a tensor of zeros with this geometry, for a node's meta. Its memory is not allocated
    until it is read."""
    a = np.zeros(shape, dtype.np)
    if strides is not None and strides != a.strides and a.size and min(strides) >= 0:
        storage = np.zeros(sum((n - 1) * s for n, s in zip(shape, strides)) + a.itemsize, np.uint8)
        a = np.ndarray(shape, dtype.np, storage.data, 0, strides)
    r = wrap_array(a)
    return r.requires_grad_() if requires_grad else r


class Writer:
    """Adds recorded calls to an fx graph.

      spell   converts a call to fx form: see `spelled`
      size    size(sym) returns the node for a dynamic size
      seen    called with every new node and its Value, or None if that is unknown
      used    Values that are needed: others are not extracted from multiple results
    """

    def __init__(self, graph, spell=spelled, size=None, seen=None, used=None):
        self.graph, self.spell, self.size, self.seen, self.used = graph, spell, size, seen, used
        self.nodes: dict[Value, object] = {}  # Value -> its current node
        self.modes = self.base = None
        self.region = self.inference = None  # nodes of the entered regions

    def put(self, value, node):
        """Assigns a node to a value."""
        self.nodes[value] = node
        if self.seen is not None:
            self.seen(node, value)
        return node

    def argument(self, x):
        """Returns a recorded argument with values replaced by nodes."""
        cls = x.__class__
        if cls is Value:
            return self.nodes[x]
        if isinstance(x, Sym):
            return x.example if self.size is None else self.size(x)
        if isinstance(x, (tuple, list)):
            items = [self.argument(v) for v in x]
            return like(x, items) if hasattr(x, "_make") else list(items) if cls is list else tuple(items)
        if isinstance(x, dict):
            return {k: self.argument(v) for k, v in x.items()}
        if cls is slice:
            return slice(self.argument(x.start), self.argument(x.stop), self.argument(x.step))
        return x

    def call(self, call: Call):
        """Adds one call to the graph."""
        if self.modes is not None and call.modes is not None:
            self._switch(call.modes)
        op, target, args, kwargs = self.spell(call)
        name = target._opname.lower() if isinstance(target, OpOverload) else None
        node = self.graph.create_node(op, target, self.argument(tuple(args)), self.argument(dict(kwargs)), name)
        paths = call.paths if call.paths is not None else [()] if len(call.outputs) == 1 else [(i,) for i in range(len(call.outputs))]
        if paths and all(p == () for p in paths):
            self.put(call.outputs[0], node)
            return node
        if self.seen is not None:
            self.seen(node, None)
        parts = {(): node}
        for path, value in zip(paths, call.outputs):
            if self.used is not None and value not in self.used:
                continue
            for i in range(1, len(path) + 1):
                if path[:i] not in parts:
                    parts[path[:i]] = self.graph.call_function(operator.getitem, (parts[path[:i - 1]], path[i - 1]))
            self.put(value, parts[path])
        return node

    # ---- modes
    def begin(self, modes):
        """Sets the modes at the start of the graph, with which the modes of the following calls are
        compared."""
        self.modes = self.base = modes

    def end(self):
        """Switches back to the modes at the start of the graph."""
        if self.modes is not None:
            self._switch(self.base)

    def _switch(self, to):
        if to == self.modes:
            return
        add = self.graph.call_function
        on, inference, host, there = self.modes
        if (host, there) != to[2:] and self.region is not None:
            add(autocast_mode._exit_autocast, (self.region,))
            self.region, (host, there) = None, self.base[2:]
        if inference != to[1]:
            if self.inference is not None:
                add(_exit_inference_mode, (self.inference,))
                self.inference, on = None, self.base[0]
            else:
                self.inference, on = add(_enter_inference_mode, (to[1],)), not to[1]
        if on != to[0]:
            add(_C._set_grad_enabled, (to[0],))
        if (host, there) != to[2:]:
            device, now = ("cpu", to[2]) if host != to[2] else (autocast_mode.accelerator(), to[3])
            if host != to[2] and there != to[3]:
                raise NotImplementedError("an autocast region for two devices at once is not supported in a graph")
            dtype = None if now is None else autocast_mode.dtypes.of_np(now)
            self.region = add(autocast_mode._enter_autocast, (device, dtype, now is not None, None))
        self.modes = to


def _enter_inference_mode(mode):
    """Enters inference mode with this setting. Returns the argument for `_exit_inference_mode`."""
    region = inference_mode(mode)
    region.__enter__()
    return region


def _exit_inference_mode(region):
    """Leaves the region entered by `_enter_inference_mode`."""
    region.__exit__(None, None, None)
