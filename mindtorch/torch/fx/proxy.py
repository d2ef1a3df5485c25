"""torch.fx.proxy: values that record the operations on them
(https://pytorch.org/docs/stable/fx.html#torch.fx.Proxy)."""
import copy
import dataclasses
import dis
import enum
import operator
import sys
import traceback

from mindtorch.core.device import device as _device
from mindtorch.core.tensor import dtypes
from mindtorch.core.tensor.tensor import Tensor
from mindtorch.torch import _function_protocol as _protocol
from mindtorch.torch._ops import OpOverload
from mindtorch.torch._types import layout, memory_format
from mindtorch.torch.fx import traceback as fx_traceback
from mindtorch.torch.fx.node import Node, map_aggregate

__all__ = ["TracerBase", "GraphAppendingTracer", "TraceError", "Proxy", "Attribute", "ParameterProxy", "Scope", "ScopeContextManager"]

base_types = (str, int, float, bool, complex, dtypes.dtype, _device.device, memory_format, layout, type(None), type(Ellipsis), enum.Enum, range,
              OpOverload)

#: operators that proxies record: name in `operator` -> format in the generated code
magic_methods = {"eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}", "ge": "{} >= {}", "pos": "+{}",
                 "neg": "-{}", "invert": "~{}", "add": "{} + {}", "mul": "{} * {}", "sub": "{} - {}", "truediv": "{} / {}",
                 "floordiv": "{} // {}", "mod": "{} % {}", "pow": "{} ** {}", "matmul": "{} @ {}", "lshift": "{} << {}", "rshift": "{} >> {}",
                 "and_": "{} & {}", "or_": "{} | {}", "xor": "{} ^ {}", "getitem": "{}[{}]"}
reflectable_magic_methods = {n: magic_methods[n] for n in ("add", "mul", "sub", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift",
                                                           "and_", "or_", "xor")}
inplace_methods = {"iadd": "{} += {}", "iand": "{} &= {}", "ifloordiv": "{} //= {}", "ilshift": "{} <<= {}", "imod": "{} %= {}",
                   "imul": "{} *= {}", "imatmul": "{} @= {}", "ior": "{} |= {}", "ipow": "{} **= {}", "irshift": "{} >>= {}",
                   "isub": "{} -= {}", "itruediv": "{} /= {}", "ixor": "{} ^= {}", "setitem": "{}[{}] = {}"}


class TraceError(ValueError):
    """Raised when a traced program needs the concrete value of a proxy."""


class Scope:
    """The module that is being traced: its path and type."""

    def __init__(self, module_path, module_type):
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """Sets the current Scope within a block."""

    def __init__(self, scope, current_scope):
        self._before = Scope(scope.module_path, scope.module_type)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type
        self._scope = scope

    def __enter__(self):
        return self._scope

    def __exit__(self, *exc):
        self._scope.module_path, self._scope.module_type = self._before.module_path, self._before.module_type


#: meta entries that are copied to nodes derived from a node
_COPY_META_FIELDS = ["stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack", "original_aten", "recompute", "ac_graph_id", "has_backward_hook",
                     "from_node", "quantization_tag", "custom", "partitioner_tag"]


class TracerBase:
    """Base class for creating nodes and proxies; see `Tracer`."""

    graph = None
    module_stack = ()
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    traced_func_name = "forward"

    def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
        """Creates a node in the graph."""
        if kind == "call_function" and self.check_mutable_operations:
            from mindtorch.torch.fx.operator_schemas import check_for_mutable_operation
            check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if fx_traceback.has_preserved_node_meta():
            now = fx_traceback.get_current_meta()
            for field in _COPY_META_FIELDS:
                if field in now:
                    node.meta[field] = copy.copy(now[field])
        elif self.module_stack:
            node.meta["nn_module_stack"] = dict(self.module_stack)
        return node

    def proxy(self, node):
        """Returns a proxy for a node's value."""
        return Proxy(node, self)

    def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, proxy_factory_fn=None):
        """Creates a node and returns a proxy for its value. The arguments may contain proxies."""
        args, kwargs = self.create_arg(args), self.create_arg(kwargs)
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            raise AssertionError("create_arg must keep tuples and dicts")
        node = self.create_node(kind, target, args, kwargs, name, type_expr)
        p = proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)
        if self.record_stack_traces and not node.stack_trace:
            frames = [f for f in traceback.extract_stack() if "/mindtorch/torch/" not in f.filename]
            node.stack_trace = "".join(traceback.format_list(frames)).strip()
        return p

    def create_arg(self, a):
        """Converts a value to a node argument: proxies become their nodes.

        NotImplementedError for values that a graph cannot store.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            items = [self.create_arg(x) for x in a]
            return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
        if isinstance(a, list):
            return [self.create_arg(x) for x in a]
        if isinstance(a, dict):
            for k in a:
                if isinstance(k, Proxy):
                    raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {k.node}")
            return {k: self.create_arg(v) for k, v in a.items()}
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(a.start, a.stop, a.step)
        if isinstance(a, Node):
            return a
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            return self.create_node("call_function", type(a), (), {f.name: self.create_arg(getattr(a, f.name)) for f in dataclasses.fields(a)})
        if isinstance(a, base_types) or a is ... or isinstance(a, type) or callable(a) and hasattr(a, "__name__"):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def to_bool(self, obj):
        """Called when a proxy is used as a condition. An override may return a bool."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj):
        """Called when a proxy is iterated over."""
        n = _unpacked()
        if n is not None:
            return (obj[i] for i in range(n))
        raise TraceError("Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or **kwargs "
                         "function argument. Only unpacking into a known number of names can be traced.")

    def keys(self, obj):
        """Called when a proxy is passed as **kwargs."""
        return Attribute(obj, "keys")()


def _unpacked():
    """Returns the number of names that the traced code unpacks a proxy into, or None if it does not
    unpack it."""
    frame = sys._getframe(3)
    for ins in dis.get_instructions(frame.f_code):
        if ins.offset == frame.f_lasti:
            return ins.argval if ins.opname == "UNPACK_SEQUENCE" else None
    return None


class GraphAppendingTracer(TracerBase):
    """Appends nodes to an existing graph."""

    def __init__(self, graph):
        self.graph = graph
        self.scope, self.module_stack, self.node_name_to_scope = Scope("", None), {}, {}


_listening = False


def _listen():
    """Makes PyTorch functions check their arguments for proxies from now on."""
    global _listening
    if not _listening:
        _listening = True
        _protocol.activate()


class Proxy:
    """Represents a node's value: operators, PyTorch functions, methods and attribute accesses
    create new nodes."""

    def __init__(self, node, tracer=None):
        if tracer is None:
            tracer = GraphAppendingTracer(node.graph)
        if not getattr(tracer, "_tracing", False):
            _listen()
        self.tracer, self.node = tracer, node

    def __repr__(self):
        return f"Proxy({self.node.name})"

    def __getattr__(self, name):
        if name in ("tracer", "node") or name == "__torch_function__":
            raise AttributeError(name)
        return Attribute(self, name)

    def __getstate__(self):
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__.update(state)

    def __deepcopy__(self, memo):
        r = object.__new__(type(self))
        for k, v in self.__dict__.items():
            r.__dict__[k] = v if k in ("tracer", "node") else copy.deepcopy(v, memo)
        return r

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self):
        return self.tracer.iter(self)

    def __abs__(self):
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self):
        return self.tracer.to_bool(self)

    def keys(self):
        return self.tracer.keys(self)

    def __len__(self):
        raise RuntimeError("'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
                           "torch.fx.wrap('len') at module scope")

    def __hash__(self):
        return id(self)

    @classmethod
    def __torch_function__(cls, orig_method, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tracers = {}

        def find(a):
            if isinstance(a, cls):
                tracers[a.tracer] = None
            return a
        map_aggregate((args, kwargs), find)
        if len(tracers) > 1:
            raise RuntimeError(f"Found multiple different tracers {list(tracers)} while trying to trace operations {orig_method}")
        tracer = next(iter(tracers))
        name = getattr(orig_method, "__name__", "")
        if name == "__get__":
            return tracer.create_proxy("call_function", getattr, (args[0], orig_method.__self__.fget.__name__), {})
        if vars(Tensor).get(name) is orig_method:
            return tracer.create_proxy("call_method", _METHODS.get(name, name), args, kwargs)
        if isinstance(orig_method, OpOverload):
            return tracer.create_proxy("call_function", orig_method, args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs, name=tracer.graph._target_to_str(name))


#: Tensor methods of binary operators between a tensor and a proxy -> recorded method names
_METHODS = {f"__{n}__": n for n in "add sub mul matmul pow eq ne lt le gt ge".split()} | {"__truediv__": "div", "__mod__": "remainder"}


class Attribute(Proxy):
    """An attribute of a proxy. A node is created only if it is used as a value; calling it records
    a method call."""

    def __init__(self, root, attr):
        self.root, self.attr, self.tracer, self._node = root, attr, root.tracer, None

    def __getattr__(self, name):
        if name in ("tracer", "root", "attr", "_node") or name == "__torch_function__":
            raise AttributeError(name)
        return Attribute(self, name)

    @property
    def node(self):
        # (Lazy, because a node for a bound method would be unused.)
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter whose shape can be read during tracing."""

    def __init__(self, tracer, node, name, param):
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self):
        return f"ParameterProxy({self.name})"

    @property
    def shape(self):
        return self.param.shape

    def size(self, *args):
        return self.param.size(*args)

    def dim(self):
        return self.param.dim()

    @property
    def ndim(self):
        return self.param.ndim

    def numel(self):
        return self.param.numel()

    def nelement(self):
        return self.param.nelement()


def _operator(name):
    def method(self, *args):
        return self.tracer.create_proxy("call_function", getattr(operator, name), (self, *args), {})
    return method


def _reflected(name):
    def method(self, other):
        return self.tracer.create_proxy("call_function", getattr(operator, name), (other, self), {})
    return method


for _n in magic_methods:
    setattr(Proxy, f"__{_n.strip('_')}__", _operator(_n))
for _n in reflectable_magic_methods:
    setattr(Proxy, f"__r{_n.strip('_')}__", _reflected(_n))
