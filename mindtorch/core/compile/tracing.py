"""Tracing: runs a function once and records the ops that it calls as a `Graph` (backend/graph.py).

A trace is a dispatcher layer for ops and for primitives. An op accepted by the caller's `leaf` is
recorded as one node; other ops are traced down to their primitives. If an unrecorded op returns a
tensor computed from recorded ones, it becomes an opaque node, so a missed op never turns a value
into a constant.
"""
import threading
from typing import Any

import numpy as np

from mindtorch.backend.errors import TraceError
from mindtorch.backend.graph import Graph, Node, Value, dtype_name, flat_tensors, leaves, mapped, rebuilt, signature
from mindtorch.core.dispatch import autocast, dispatcher
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor.conj_neg_bits import ConjNegBits
from mindtorch.core.tensor.dtypes import of_np
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.dispatch.primitives import Primitive
from mindtorch.core.tensor.tensor import wrap_array, is_tensor

_ESCAPES = frozenset("""item tolist numpy __array__ __bool__ __float__ __int__ __complex__ __index__ is_nonzero __contains__ equal
 allclose is_same_size""".split())
_UNRECORDED = frozenset("""__init__ __new__ __hash__ __repr__ __str__ __format__ __dir__ __deepcopy__ __reduce_ex__ backward register_hook
 requires_grad_ retain_grad detach_ as_subclass _make_subclass register_post_accumulate_grad_hook __torch_function__ __len__ size dim
 ndimension numel nelement stride storage_offset data_ptr is_contiguous is_floating_point is_complex is_signed is_inference get_device
 untyped_storage storage __dlpack__ __dlpack_device__ has_names share_memory_ pin_memory is_tensor""".split())


class _Active(threading.local):
    tracer = None


active = _Active()


def is_tracing() -> bool:
    """True if this thread is tracing."""
    return active.tracer is not None


# ------------------------------------------------------------------ recorded calls
_INPLACE_OPERATORS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "div": "div", "mod": "remainder",
                      "floordiv": "floor_divide", "pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
                      "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift"}
_WRITE_METHODS = frozenset(["__setitem__", "copy_", "fill_", "zero_"])


class _Call:
    """A function as a trace records it.

    Holds its name, the function, whether it writes to its first argument, and the layers below.
    """

    __slots__ = ("name", "fn", "inplace", "below", "entry")

    def __init__(self, name, fn, inplace, entry):
        self.name, self.fn, self.inplace, self.entry, self.below = name, fn, inplace, entry, None

    def original(self, *args, **kwargs):
        return self.below(self.entry, args, kwargs)


_calls: dict[Any, _Call] = {}  # (entry or primitive, layer below) -> recorded form


def _writes(name):
    """True if a method without a record writes to its tensor, judging by its name."""
    return name in _WRITE_METHODS or name[-1] == "_" and name[-2:] != "__" or name[:3] == "__i" and name[3:-2] in _INPLACE_OPERATORS


def name_of(entry):
    """Returns the name under which a function is recorded.

    This is the name of its record ("nn.functional.conv2d"), also for handwritten methods, and
    "Tensor.add_" for methods without a record or with an in-place effect.
    """
    name = entry.name
    if entry.op is None and name.startswith("Tensor.") and name[7:] in OPS and not (entry.inplace or _writes(name[7:])):
        return name[7:]
    return name


def _seen(entry, below):
    """Returns the call as a trace records it.

    None for calls that are not recorded: functions that are not ops, and methods that only query.
    """
    key = entry, below
    if key in _calls:
        return _calls[key]
    c = None
    if isinstance(entry, Primitive):
        c = _Call(f"prim.{entry.name}", entry.function, False, entry)
    elif entry.op is not None:
        c = _Call(entry.name, entry.op.body, False, entry)
    elif entry.name.startswith("Tensor."):
        name = entry.name[7:]
        if name not in _UNRECORDED:
            c = _Call(name_of(entry), entry.run, entry.inplace or _writes(name), entry)
    if c is not None:
        c.below = below
    _calls[key] = c
    return c


def writes_first(entry: Any) -> bool:
    """True if a call writes to its first argument."""
    return entry.inplace or _writes(entry.name.rpartition(".")[2])


@dispatcher.register_layer("ops", "trace")
def _trace_op(entry, args, kwargs, below):
    t = active.tracer
    if t is None or t.paused:
        return below(entry, args, kwargs)
    c = _seen(entry, below)
    return below(entry, args, kwargs) if c is None else t.call(c, args, kwargs)


@dispatcher.register_layer("primitives", "trace")
def _trace_primitive(prim, args, kwargs, below):
    t = active.tracer
    if t is None or t.paused:
        return below(prim, args, kwargs)
    return t.call(_seen(prim, below), args, kwargs)


# ------------------------------------------------------------------ the tracer
class _Known:
    __slots__ = ("value", "tensor", "version", "stale")

    def __init__(self, value, tensor):
        self.value, self.tensor, self.version, self.stale = value, tensor, _version(tensor), None


def _version(t):
    return 0 if t._version_counter is None else t._version_counter.v


def _writable_copy(t):
    return np.array(t._array if t._handle.__class__ is not ConjNegBits else hooks.bits_values(t))


class Tracer:
    """Implements `trace` for functional graphs."""

    functional = True

    def __init__(self, leaf, names, escaped=None):
        self.leaf, self.names, self.escaped = leaf, names, escaped
        self.known, self.arrays, self.alive = {}, {}, []
        self.parameters, self.nodes, self.inside = {}, [], []
        self.mutations, self.escapes = [], []
        self.paused = 0

    # ---- tensors and values
    def bind(self, t, value):
        self.known[id(t)] = _Known(value, t)
        self.arrays[id(t._array)] = (value, t._array)
        return value

    def parameter(self, t):
        """Returns a new parameter for a tensor that has a name, else None."""
        name = self.names.get(id(t))
        if name is None:
            return None
        v = self.parameters[name] = self.new(t, "parameter", name=name, tensor=t)
        return self.bind(t, v)

    def new(self, t, kind, **more):
        return Value(kind, t._array.shape, dtype_name(t._array.dtype), t._array if t._handle.__class__ is not ConjNegBits else hooks.bits_values(t), **more)

    def value_of(self, t):
        """Returns the Value of a tensor.

        An unknown tensor becomes a parameter if it has a name, else a constant.
        """
        k = self.known.get(id(t))
        if k is not None:
            if k.stale is not None:
                raise TraceError(f"tracing does not support reading a tensor of shape {list(t._array.shape)} after {k.stale} wrote to its "
                                 "memory through another view; use the out-of-place op")
            if k.version == _version(t):
                return k.value
            if k.value.dynamic:
                raise TraceError(f"tracing: a tensor of shape {list(t._array.shape)} was modified in place by code that the trace cannot "
                                 "record")
        parameter = self.parameter(t)
        if parameter is not None:
            return parameter
        same = self.arrays.get(id(t._array))
        if same is not None and k is None:
            return self.bind(t, same[0])  # .data, detach(): another object on the same memory
        a = t._array
        for other in self.known.values():
            if other.value.kind == "node" and other.value.dynamic and a.size and np.may_share_memory(a, other.tensor._array):
                raise TraceError(f"tracing: a tensor of shape {list(a.shape)} shares memory with a computed one, but no recorded op "
                                 "made it")
        v = self.new(t, "constant", dynamic=False)
        v.array = _writable_copy(t)
        v.tensor = t
        return self.bind(t, v)

    def dynamic(self, args):
        """True if nested arguments contain recorded tensors that are not constants."""
        for t in _tensors(args):
            k = self.known.get(id(t))
            if k is not None and k.value.dynamic or id(t) in self.names:
                return True
        return False

    def encode(self, x):
        if is_tensor(x):
            return self.value_of(x)
        cls = x.__class__
        if cls is tuple or cls is list:
            return cls(self.encode(v) for v in x)
        if cls is dict:
            return {k: self.encode(v) for k, v in x.items()}
        if cls is slice:
            return slice(self.encode(x.start), self.encode(x.stop), self.encode(x.step))
        if isinstance(x, np.ndarray):
            return Value("constant", x.shape, x.dtype.name, x.copy(), dynamic=False, tensor=x)
        if isinstance(x, tuple):
            return tuple(self.encode(v) for v in x)      # Size, named tuples
        return x

    # ---- calls
    def call(self, e, args, kwargs):
        if e.inplace:
            return self.write(e, args, kwargs)
        name = e.name
        short = name.rpartition(".")[2]
        if short in _ESCAPES:
            if self.dynamic(args):
                self.escapes.append(short)
                if self.escaped is not None:
                    self.escaped(short)
            return self.unseen(e, args, kwargs)
        if kwargs.get("out") is None and self.leaf(name):
            return self.record(e, args, kwargs)
        self.inside.append(name)
        before = len(self.nodes)
        try:
            out = e.original(*args, **kwargs)
        finally:
            self.inside.pop()
        lost = [t for t in flat_tensors(out) if is_tensor(t) and not self.current(t)]
        if lost and self.dynamic((args, kwargs)):
            del self.nodes[before:]
            self.add(self.opaque(name, e.fn, args, kwargs), lost)
        return out

    def current(self, t):
        """True if the trace has recorded how this tensor was computed."""
        k = self.known.get(id(t))
        if k is not None:
            return k.stale is None and k.version == _version(t)
        if id(t._array) in self.arrays and self.arrays[id(t._array)][0].dynamic:
            self.bind(t, self.arrays[id(t._array)][0])
            return True
        return id(t) in self.names

    def encode_known(self, args):
        return [self.known[id(t)].value for t in _tensors(args) if id(t) in self.known]

    def node(self, op, fn, args, kwargs=None, opaque=False):
        """Returns a node for a call of `fn`, without its outputs yet."""
        return Node(op, fn, args, kwargs or {}, [], inside=tuple(self.inside), opaque=opaque)

    def opaque(self, name, fn, args, kwargs):
        """Returns a node of which only the operands are recorded."""
        return self.node(name, fn, (), {"given": self.encode_known((args, kwargs))}, True)

    def unseen(self, e, args, kwargs):
        self.paused += 1
        try:
            return e.original(*args, **kwargs)
        finally:
            self.paused -= 1

    def record(self, e, args, kwargs):
        """Records the op as one node."""
        b = signature(e.fn).bind(*args, **kwargs)
        b.apply_defaults()
        b.arguments.pop("out", None)
        node = self.node(e.name, e.fn, self.encode(b.args), self.encode(b.kwargs))
        if b.arguments.get("inplace") is True:
            self.copy_overlapping(next(iter(_tensors((args, kwargs)))))
        before = [(t, _version(t)) for t in _tensors((args, kwargs))]
        out = self.unseen(e, args, kwargs)
        flat = flat_tensors(out)
        fresh = [t for t in flat if not self.current(t)]
        if fresh:
            self.add(node, flat)
        for t, version in before:
            if _version(t) != version:
                self.written(t, e.name)
        return out

    def add(self, node, tensors):
        dynamic = any(v.dynamic for v in node.values)
        for t in tensors:
            v = self.new(t, "node", dynamic=dynamic)
            node.outputs.append(v)
            v.tensor = t
            self.bind(t, v)
        self.nodes.append(node)

    def copy_overlapping(self, t):
        """Called before a write to `t`: copies recorded arrays that share its memory."""
        for k in self.known.values():
            if np.may_share_memory(k.tensor._array, t._array) and k.value.kind != "parameter" and k.value.array is k.tensor._array:
                k.value.array = _writable_copy(k.tensor)

    def written(self, t, what):
        """Called after a write to `t`, whose new value is known.

        Tensors that share its memory get new values derived from it.
        """
        name = self.names.get(id(t))
        if name is not None:
            self.mutations.append(name)
        me = self.known.get(id(t))
        for k in list(self.known.values()):
            a = k.tensor._array
            if k.tensor is t or not a.size or not np.may_share_memory(a, t._array):
                continue
            indices = None if name is not None or me is None or a.dtype != t._array.dtype else _write_indices(a, t._array)
            if indices is None or k.stale is not None or k.value.kind == "parameter":
                if k.value.dynamic:
                    k.stale = what
            elif len(indices):
                self.add(self.node("written_through", _written_through, (k.value, me.value, indices)), [k.tensor])

    def write(self, e, args, kwargs):
        """Records an in-place op: the tensor's new value is a new node, computed out of place."""
        t = args[0]
        short = e.name.rpartition(".")[2]
        if not self.dynamic((args, kwargs)):
            return self.unseen(e, args, kwargs)
        self.copy_overlapping(t)
        if short in ("__setitem__", "copy_", "fill_", "zero_"):
            op = "setitem" if short == "__setitem__" else short
            node = self.node(op, _WRITES[op], self.encode(tuple(args)), self.encode(dict(kwargs)), not self.leaf(op))
            out = self.unseen(e, args, kwargs)
            self.add(node, [t])
            self.written(t, short)
            return out
        base = short[3:-2] if short.startswith("__i") else short[:-1]
        o = OPS.get(_INPLACE_OPERATORS.get(base, base)) or OPS.get(f"nn.functional.{base}")
        if o is None:
            node = self.opaque(e.name, e.fn, args, kwargs)
            out = self.unseen(e, args, kwargs)
            self.add(node, [t])
            self.written(t, short)
            return out
        a = _writable_copy(t)
        # The op runs twice: out of place for the trace, and in place for its effect.
        r = o.fn(t, *args[1:], **kwargs)
        if r is t:
            raise TraceError(f"tracing: {short} of a tensor with shape {list(a.shape)} could not be recorded out of place")
        value = self.value_of(r)
        out = self.unseen(e, args, kwargs)
        if value.dtype != dtype_name(t._array.dtype):
            self.add(self.node("type_as_written", _as_written, (value, t._array.dtype)), [t])
        else:
            self.bind(t, value)
        self.written(t, short)
        return out


class AsRan(Tracer):
    """Tracer whose nodes are the outermost calls as executed, including writes and modes.

    The graph is not functional. `leaf` selects the calls that are recorded as one node. `refused`
    is called before each and may raise. No tensor's memory is read.
    """

    functional = False
    refused = staticmethod(lambda name, entry, args, kwargs: None)

    def new(self, t, kind, **more):
        return Value(kind, tuple(t._sizes), dtype_name(t._np_dtype), **more)

    def value_of(self, t):
        """Returns the Value of a tensor.

        A tensor that shares another one's memory without a recorded op (old code's `.data`) is
        recorded as its detach().
        """
        k = self.known.get(id(t))
        if k is not None:
            return k.value
        parameter = self.parameter(t)
        if parameter is not None:
            return parameter
        same = self.arrays.get(id(t._array))
        if same is not None:
            detach = dispatcher.DISPATCH_ENTRIES[type(t).detach]
            node = self.node("Tensor.detach", detach.func, (same[0],))
            self.finish(node, t)
            return self.known[id(t)].value
        if t._handle is None and t._numel:
            for other in self.known.values():
                if other.value.dynamic and other.tensor._handle is None and np.may_share_memory(t._array, other.tensor._array):
                    raise TraceError(f"tracing: a tensor of shape {list(t._sizes)} shares memory with a computed one, but no recorded op made it")
        return self.bind(t, self.new(t, "constant", dynamic=False, tensor=t))

    def call(self, e, args, kwargs):
        short = e.name.rpartition(".")[2]
        if short in _ESCAPES:
            if self.dynamic((args, kwargs)):
                self.escapes.append(short)
                if self.escaped is not None:
                    self.escaped(short)
            return self.unseen(e, args, kwargs)
        if not self.leaf(e.name):
            self.inside.append(e.name)
            try:
                return e.original(*args, **kwargs)
            finally:
                self.inside.pop()
        self.refused(e.name, e.entry, args, kwargs)
        func = e.entry.func if e.entry.__class__ is dispatcher.DispatchEntry else e.fn
        node = self.node(e.name, func, self.encode(tuple(args)), self.encode(dict(kwargs)))
        out = self.unseen(e, args, kwargs)
        self.finish(node, out, e.inplace)
        return out

    def finish(self, node, out, writes=False):
        """Records a call that has run; a call without tensors in its result only if it writes."""
        node.paths, node.modes = [], (mode.on, mode.inference, autocast.state.to, autocast.state.there)
        dynamic = any(v.dynamic for v in node.values)

        def look(x, path):
            if is_tensor(x):
                k = self.known.get(id(x))
                value = k.value if k is not None else self.value_of(x) if id(x) in self.names else self.bind(x, self.new(x, "node", dynamic=dynamic))
                node.outputs.append(value)
                node.paths.append(path)
            elif isinstance(x, (tuple, list)):
                for i, v in enumerate(x):
                    look(v, (*path, i))
        look(out, ())
        if node.outputs or writes:
            self.nodes.append(node)


def _addresses(a):
    at = np.full(a.shape, a.__array_interface__["data"][0], np.int64)
    for d, (n, s) in enumerate(zip(a.shape, a.strides)):
        at += (np.arange(n, dtype=np.int64) * s).reshape([n if i == d else 1 for i in range(a.ndim)])
    return at.reshape(-1)


def _write_indices(a, written):
    """Maps every element of `a` to its index in [all of a, all of `written`] after the write.

    Returns an empty sequence if they share no element, None if elements overlap partially.
    """
    mine, theirs = _addresses(a), _addresses(written)
    order = np.argsort(theirs, kind="stable")
    found = np.searchsorted(theirs[order], mine)
    found = np.minimum(found, len(theirs) - 1)
    hit = theirs[order][found] == mine
    if not hit.any():
        near = np.abs(theirs[order][found] - mine).min() < a.itemsize
        return None if near else ()
    return np.where(hit, a.size + order[found], np.arange(a.size))


def _tensors(x):
    return [t for t in leaves(x) if is_tensor(t)]


# ------------------------------------------------------------------ in-place ops, out of place
def _setitem(self, index, value):
    r = OPS["clone"].fn(self)
    r[index] = value
    return r


def _copied(self, src, non_blocking=False):
    return OPS["expand_as"].fn(OPS["clone"].fn(src), self).to(self.dtype)


def _filled(self, value):
    return OPS["full_like"].fn(self, value) if not is_tensor(value) else _copied(self, value)


def _zeroed(self):
    return OPS["zeros_like"].fn(self)


def _written_through(old, new, indices):
    both = OPS["cat"].fn([old.reshape(-1), new.reshape(-1)])
    return both[wrap_array(indices)].reshape(old.shape)


def _as_written(value, like):
    return value.to(of_np(like))


_WRITES = {"setitem": _setitem, "copy_": _copied, "fill_": _filled, "zero_": _zeroed}
#: nodes of a graph that are neither ops nor primitives
STEPS = frozenset([*_WRITES, "written_through", "type_as_written", "Tensor.detach", "Tensor.__getitem__"])


# ------------------------------------------------------------------ entry
def trace(fn, inputs, *, leaf, names=None, input_names=(), call=None, escaped=None, kind=Tracer):
    """Runs fn on `inputs` (tensors) and returns (Graph, result of fn).

        leaf         leaf(op name): True if an op is recorded as one node
        names        {id(tensor): name} of parameters and buffers; other tensors that fn uses are
                     constants
        call         how to call fn: call(fn, inputs); default: fn(*inputs)
        escaped      called with the name of an op that converts a traced value to a Python number
        kind         Tracer: a functional graph; AsRan or a subclass: the calls as executed

    Raises TraceError (a NotImplementedError) for writes to memory that cannot be tracked.
    """
    if active.tracer is not None:
        raise TraceError("nested traces are not supported")
    t = kind(leaf, names or {}, escaped)
    values = []
    for i, x in enumerate(inputs):
        v = t.new(x, "input", name=input_names[i] if i < len(input_names) else f"input_{i}")
        if kind.functional:
            v.array = _writable_copy(x)
        values.append(t.bind(x, v))
    dispatcher.enable_layer("ops", "trace")
    dispatcher.enable_layer("primitives", "trace")
    active.tracer = t
    try:
        out = call(fn, inputs) if call is not None else fn(*inputs)
        result = rebuilt(out, lambda x: t.value_of(x) if is_tensor(x) else x)
    finally:
        active.tracer = None
        dispatcher.disable_layer("ops", "trace")
        dispatcher.disable_layer("primitives", "trace")
        _calls.clear()
    g = Graph(values, list(t.parameters.values()), t.nodes, result, kind.functional, mutations=list(dict.fromkeys(t.mutations)), escapes=t.escapes)
    return g, out


__all__ = ["trace", "is_tracing", "Graph", "mapped"]
