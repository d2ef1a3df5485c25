"""torch.fx._symbolic_trace: traces modules and functions into graphs
(https://pytorch.org/docs/stable/fx.html#torch.fx.Tracer)."""
import functools
import inspect
import math
import sys
import threading
import types
import warnings

from mindtorch.core.tensor.tensor import Parameter, is_tensor
from mindtorch.torch import _function_protocol as _protocol
from mindtorch.torch.fx._compatibility import compatibility  # noqa: F401
from mindtorch.torch.fx._wrapped import default_tracer, wrapped_objects
from mindtorch.torch.fx._codegen import _PyTreeCodeGen, _PyTreeInfo
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.graph_module import GraphModule
from mindtorch.torch.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase, base_types
from mindtorch.torch.nn.modules.container import Sequential
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.utils import _pytree

__all__ = ["Tracer", "symbolic_trace", "wrap", "is_fx_tracing", "is_fx_symbolic_tracing", "ProxyableClassMeta", "PH", "PHBase", "PHWithMeta"]


class _Tracing(threading.local):
    depth = 0


_state = _Tracing()


def is_fx_tracing():
    """True if this thread is tracing."""
    return _state.depth > 0


is_fx_symbolic_tracing = is_fx_tracing


class PHBase:
    """Marks a value in concrete_args that stays an input."""

    def __repr__(self):
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """A PH whose attributes are copied to the node of the input."""

    def __init__(self, ph_key=None):
        self.ph_key = ph_key


class ProxyableClassMeta(type):
    """Metaclass: creating an instance from traced values becomes a node of the graph."""

    def __call__(cls, *args, **kwargs):
        self = cls.__new__(cls)
        found = []
        _pytree.tree_map(lambda a: found.append(a) if isinstance(a, Proxy) else None, (args, kwargs))
        if not found:
            cls.__init__(self, *args, **kwargs)
            return self
        return found[0].tracer.create_proxy("call_function", cls, args, kwargs)


# ------------------------------------------------------------------ functions that are not traced into
_wrapped_in = []  # (globals, name) of functions registered with `wrap`
# (class, name) of methods whose calls with a proxy argument become nodes
_wrapped_methods_to_patch = []


def wrap(fn_or_name):
    """Registers a function of the calling module, so that its calls become nodes instead of being
    traced into. Returns its argument.

    Takes the function (also as a decorator) or its name. Must be called at the top level of a
    module.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_in.append((frame.f_globals, name))
    if callable(fn_or_name):
        wrapped_objects.add(fn_or_name)
    return fn_or_name


def _first_proxy(*args, **kwargs):
    found = []

    def look(a):
        if isinstance(a, Proxy):
            found.append(a)
        elif isinstance(a, (list, tuple)):
            for x in a:
                look(x)
        elif isinstance(a, dict):
            for x in a.values():
                look(x)
        elif isinstance(a, slice):
            look((a.start, a.stop, a.step))
    look(args)
    look(kwargs)
    return found[0] if found else None


def _as_step(fn):
    @functools.wraps(fn)
    def step(*args, **kwargs):
        p = _first_proxy(*args, **kwargs)
        if p is None:
            return fn(*args, **kwargs)
        wrapped_objects.add(fn)
        return p.tracer.create_proxy("call_function", fn, args, kwargs)
    step._fx_step = True
    return step


def _as_method_step(fn, name):
    @functools.wraps(fn)
    def step(*args, **kwargs):
        p = _first_proxy(*args, **kwargs)
        return fn(*args, **kwargs) if p is None else p.tracer.create_proxy("call_method", name, args, kwargs)
    return step


class _Patches:
    """Temporary changes to globals and classes during tracing."""

    def __init__(self):
        self._undo = []

    def item(self, scope, name, value):
        missing = name not in scope
        old = scope.get(name)
        scope[name] = value
        self._undo.append(lambda: scope.pop(name, None) if missing else scope.__setitem__(name, old))

    def attribute(self, owner, name, value):
        own = name in vars(owner)
        old = vars(owner).get(name)
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, old) if own else delattr(owner, name))

    def wrapped(self):
        import builtins
        for scope, name in _wrapped_in:
            if name in scope:
                fn = scope[name]
            elif hasattr(builtins, name):
                fn = getattr(builtins, name)
            else:
                continue
            if not getattr(fn, "_fx_step", False):
                self.item(scope, name, _as_step(fn))
        for cls, name in _wrapped_methods_to_patch:
            self.attribute(cls, name, _as_method_step(getattr(cls, name), name))

    def undo(self):
        for f in reversed(self._undo):
            f()


class Tracer(TracerBase):
    """Runs a module's forward on proxies and records the operations.

    Override `is_leaf_module`, `call_module`, `create_arg`, `path_of_module`, ... to change what is
    recorded.
    """

    def __init__(self, autowrap_modules=(math,), autowrap_functions=(), param_shapes_constant=False):
        self._functions = {id(f): f for m in autowrap_modules for n, f in vars(m).items() if not n.startswith("_") and callable(f)}
        self._functions.update({id(f): f for f in autowrap_functions})
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.root_module_name = ""
        self.scope, self.module_stack, self.node_name_to_scope = Scope("", None), {}, {}
        self.submodule_paths = None
        self._tracing = True

    # ---- methods to override
    def is_leaf_module(self, m, module_qualified_name):
        """True if a module's call becomes one node: by default all of torch.nn except Sequential,
        and MindSpore's Cells."""
        ours = ("torch.nn", "torch.ao.nn", "mindtorch.torch.nn", "mindtorch.torch.ao.nn")
        return hasattr(m, "_mindtorch_native") or m.__module__.startswith(ours) and not isinstance(m, Sequential)

    def path_of_module(self, mod):
        """Returns the dotted name of a submodule. NameError if the module is not a submodule."""
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
            if path is None:
                raise NameError(f"module {mod} is not installed as a submodule")
            return path
        for name, m in self.root.named_modules():
            if m is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m, forward, args, kwargs):
        """Records a module call as one node, or traces into it with forward(*args, **kwargs)."""
        name = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(name, type(m))):
            self.module_stack[name] = (name, type(m))
            try:
                if self.is_leaf_module(m, name):
                    return self.create_proxy("call_module", name, args, kwargs)
                # as in PyTorch, a scripted module is not traced into: it may branch on values
                if getattr(m, "_opaque", False):
                    return self.create_proxy("call_method", "forward", (m, *args), kwargs)
                return forward(*args, **kwargs)
            finally:
                self.module_stack.pop(name, None)

    def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        return node

    def create_arg(self, a):
        """Converts a value to a node argument. Parameters, buffers and other tensors become
        get_attr nodes."""
        if is_tensor(a, Parameter):
            for n, p in self.root.named_parameters():
                if a is p:
                    return self.create_node("get_attr", n, (), {})
            raise NameError("parameter is not a member of this module")
        if is_tensor(a):
            for n, b in self.root.named_buffers():
                if a is b:
                    return self.create_node("get_attr", n, (), {})
            name = self.tensor_attrs.get(a)
            if name is None:
                name = self._fresh("_tensor_constant")
                self.tensor_attrs[a] = name
                setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        if isinstance(type(a), ProxyableClassMeta):
            name = self._fresh(f"_{type(a).__name__}_constant_")
            setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def _fresh(self, prefix):
        i = 0
        while hasattr(self.root, f"{prefix}{i}"):
            i += 1
        return f"{prefix}{i}"

    get_fresh_qualname = _fresh

    def getattr(self, attr, attr_val, parameter_proxy_cache):
        """Returns a module attribute during tracing: proxies for parameters, and for buffers if
        enabled."""
        def proxied(collection, make):
            for n, p in collection:
                if attr_val is p:
                    if n not in parameter_proxy_cache:
                        parameter_proxy_cache[n] = self.create_proxy("get_attr", n, (), {}, **make(n, p))
                    return parameter_proxy_cache[n]
            return None
        if is_tensor(attr_val, Parameter):
            # A user's tracer may override create_proxy with an older signature, without this
            # argument.
            shapes = self.param_shapes_constant and "proxy_factory_fn" in inspect.signature(self.create_proxy).parameters
            r = proxied(self.root.named_parameters(), lambda n, p: {} if not shapes else {
                "proxy_factory_fn": lambda node: ParameterProxy(self, node, n, p)})
            return attr_val if r is None else r
        if self.proxy_buffer_attributes and is_tensor(attr_val):
            r = proxied(self.root.named_buffers(), lambda n, p: {})
            return attr_val if r is None else r
        return attr_val

    _module_getattr = getattr

    # ---- tracing
    def create_args_for_root(self, root_fn, is_module, concrete_args=None):
        """Returns (function, its arguments as proxies)."""
        fn = inspect.unwrap(root_fn)
        code = fn.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        names = iter(code.co_varnames)
        args, skip = [], 0
        if is_module:
            if count == 0:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            skip = 1
            next(names)
            args.append(self.root)
        signature = inspect.signature(fn)
        given = _as_dict(signature, concrete_args, skip)
        annotations = getattr(fn, "__annotations__", {})

        def default(name):
            p = signature.parameters.get(name)
            return () if p is None or p.default is inspect.Parameter.empty else (p.default,)

        def placeholder(name):
            if name in given:
                return self._specialised(name, given[name], default(name))
            plain = name.lstrip("*")
            return self.create_proxy("placeholder", name, default(plain), {}, type_expr=annotations.get(plain))

        named = [placeholder(next(names)) for _ in range(skip, count)]
        # Keyword-only arguments are passed by name.
        keywords = {}
        if code.co_kwonlyargcount:
            only = code.co_varnames[code.co_argcount:count]
            keywords = dict(zip(only, named[len(named) - len(only):]))
            named = named[:len(named) - len(only)]
        args += named
        stars = code.co_flags
        var_args = placeholder("*" + next(names)) if stars & inspect.CO_VARARGS else None
        var_kwargs = placeholder("**" + next(names)) if stars & inspect.CO_VARKEYWORDS else None
        if var_args is not None or var_kwargs is not None or keywords:
            return _call_with(root_fn, len(args), var_args, var_kwargs, keywords), args
        if concrete_args is not None:
            flat, spec = _pytree.tree_flatten(tuple(args))
            if not all(c.is_leaf() for c in spec.children_specs):
                return self._nested(root_fn, list(code.co_varnames[:count]), spec), flat
        return root_fn, args

    def _nested(self, fn, names, in_spec):
        """Returns `fn` as a function of flat arguments. The graph's codegen takes and returns the
        nested ones."""
        codegen = _PyTreeCodeGen(_PyTreeInfo(names, in_spec, None))

        def flat_fn(*args):
            flat, out_spec = _pytree.tree_flatten(fn(*_pytree.tree_unflatten(list(args), in_spec)))
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return flat
        self.graph.set_codegen(codegen)
        return flat_fn

    def _specialised(self, name, value, default):
        """Creates placeholders for the leaves of a partially known argument. The graph asserts that
        the known leaves have the same values."""
        count = 0

        def leaf(x):
            nonlocal count
            count += 1
            out = self.create_proxy("placeholder", f"{name}_{count}", default, {})
            if isinstance(x, PHBase):
                for k, v in vars(x).items():
                    if not hasattr(out.node, k):
                        setattr(out.node, k, v)
                return out
            message = f"{name} has been specialized to have value {x} but got another value"
            if x is None:
                self.create_proxy("call_function", _assert_is_none, (out, message), {})
            elif isinstance(x, base_types):
                _torch()._assert(out == x, message)
            else:
                warnings.warn(f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up to the user to "
                              "make sure that your inputs match the inputs you specialized the function with.", stacklevel=2)
            return x
        return _pytree.tree_map(leaf, value, is_leaf=lambda x: isinstance(x, PHBase))

    def trace(self, root, concrete_args=None):
        """Returns the Graph of a module's forward, or of a function."""
        if isinstance(root, Module):
            self.root = root
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}")
            fn = getattr(type(root), self.traced_func_name)
            self.root_module_name = root._get_name()
            self.submodule_paths = {m: n for n, m in root.named_modules()}
        else:
            self.root, fn, self.submodule_paths = Module(), root, None
            self.root_module_name = ""
        tracer_cls = getattr(self, "__class__", None)
        self.graph = Graph(tracer_cls=tracer_cls)
        if hasattr(fn, "__code__"):
            self.graph._co_fields = (fn.__code__.co_name, fn.__code__.co_filename, fn.__code__.co_firstlineno)
        self.tensor_attrs = {}
        for prefix, m in self.root.named_modules():
            for k, v in m.__dict__.items():
                if is_tensor(v):
                    self.tensor_attrs[v] = f"{prefix}.{k}" if prefix else k
        patches = _Patches()
        cache = {}
        plain_getattr, plain_call = Module.__getattr__, Module.__call__

        @functools.wraps(plain_getattr)
        def module_getattr(mod, attr):
            return self.getattr(attr, plain_getattr(mod, attr), cache)

        @functools.wraps(plain_call)
        def module_call(mod, *args, **kwargs):
            def forward(*args, **kwargs):
                return plain_call(mod, *args, **kwargs)
            patches_scope = vars(sys.modules.get(type(mod).__module__, types))
            self._wrap_functions_in(patches, patches_scope)
            return self.call_module(mod, forward, args, kwargs)

        _protocol.activate()
        _state.depth += 1
        try:
            fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
            patches.attribute(Module, "__getattr__", module_getattr)
            patches.attribute(Module, "__call__", module_call)
            patches.wrapped()
            unwrapped = inspect.unwrap(root if not isinstance(root, Module) else getattr(type(root), self.traced_func_name))
            self._wrap_functions_in(patches, getattr(unwrapped, "__globals__", {}))
            for module in self._autowrap_search:
                self._wrap_functions_in(patches, vars(module))
            result = fn(*args)
            self.create_node("output", "output", (self.create_arg(result),), {},
                             type_expr=getattr(unwrapped, "__annotations__", {}).get("return"))
        finally:
            patches.undo()
            _state.depth -= 1
            _protocol.deactivate()
        return self.graph

    def _wrap_functions_in(self, patches, scope):
        if scope.get("__name__", "").startswith(("torch.", "mindtorch.")):
            return
        for name, value in list(scope.items()):
            if id(value) in self._functions and not name.startswith("_") and not getattr(value, "_fx_step", False):
                patches.item(scope, name, _as_step(value))

    def keys(self, obj):
        return super().keys(obj)

    def __deepcopy__(self, memo):
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new


def _call_with(fn, count, var_args, var_kwargs, keywords):
    def call(*args):
        a = list(args[:count])
        if var_args is not None:
            a += [_Starred(var_args)]
        if any(isinstance(x, _Starred) for x in a) or var_kwargs is not None:
            return _run_starred(fn, a[:count], var_args, var_kwargs, keywords)
        return fn(*a, **keywords)
    return call


class _Starred:
    def __init__(self, proxy):
        self.proxy = proxy


def _run_starred(fn, args, var_args, var_kwargs, keywords):
    """Runs a function with one proxy as its *args tuple and another as its **kwargs dict."""
    target = inspect.unwrap(fn)
    code = target.__code__
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    n = code.co_argcount
    extra = (var_args is not None) + (var_kwargs is not None)
    total = n + code.co_kwonlyargcount + extra
    if code.co_kwonlyargcount and extra:
        plain = types.FunctionType(code.replace(co_flags=flags, co_argcount=total, co_kwonlyargcount=0), target.__globals__, target.__name__,
                                   None, target.__closure__)
    else:
        plain = types.FunctionType(code.replace(co_flags=flags, co_argcount=total), target.__globals__, target.__name__, None, target.__closure__)
    tail = [keywords[k] for k in code.co_varnames[n:n + code.co_kwonlyargcount]]
    return plain(*args, *tail, *[v for v in (var_args, var_kwargs) if v is not None])


def _as_dict(signature, concrete_args, skip):
    if concrete_args is None:
        return {}
    if isinstance(concrete_args, tuple):
        names = list(signature.parameters)[skip:]
        if len(names) != len(concrete_args):
            raise RuntimeError(f"Tracing expected {len(names)} arguments but got {len(concrete_args)} concrete arguments")
        return dict(zip(names, concrete_args))
    return dict(concrete_args)


def _assert_is_none(value, msg):
    if isinstance(value, Proxy):
        return value.tracer.create_proxy("call_function", _assert_is_none, (value, msg), {})
    assert value is None, msg


def _torch():
    return sys.modules["mindtorch.torch"]


def symbolic_trace(root, concrete_args=None):
    """Returns a GraphModule that computes a module's forward or a function.

    https://pytorch.org/docs/stable/fx.html#torch.fx.symbolic_trace
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    return GraphModule(tracer.root, graph, type(root).__name__ if isinstance(root, Module) else root.__name__)


default_tracer.append(Tracer)
