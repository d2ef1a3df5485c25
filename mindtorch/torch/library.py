"""torch.library: registration of ops from Python (https://pytorch.org/docs/stable/library.html)."""
import contextlib

from mindtorch.torch import _ops, _schema
from mindtorch.torch._refusing import refuse

__all__ = ["Library", "custom_op", "CustomOpDef", "define", "fallthrough_kernel", "impl", "impl_abstract", "infer_schema", "register_autograd",
           "register_fake", "register_kernel", "register_torch_dispatch", "register_vmap", "get_ctx", "opcheck", "triton_op",
           "wrap_triton", "register_autocast", "get_kernel"]

_libraries = {}      # namespace -> the Library that defines it


def fallthrough_kernel():
    """Kernel marker that makes the dispatcher fall through to the next dispatch key."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def _overload(op):
    if isinstance(op, CustomOpDef):
        return op._opoverload
    if isinstance(op, _ops.OpOverload):
        return op
    if isinstance(op, _ops.OpOverloadPacket):
        return op.default
    if not isinstance(op, str):
        raise ValueError(f"expected the operator's name or an OpOverload, got {type(op)}")
    found = _ops.find_overload(op)
    if found is None:
        raise RuntimeError(f"operator {op} does not exist")
    return found


_KEYS = {"cpu": "CPU", "cuda": "CUDA", "npu": "PrivateUse1", "meta": "Meta", "mps": "MPS", "xpu": "XPU", "hpu": "HPU",
         "mtia": "MTIA", "default": "CompositeExplicitAutograd"}


def _register(op, key, fn, allow_override=True):
    key = str(key).rpartition(".")[2] if not isinstance(key, str) else key
    if fn is fallthrough_kernel:
        op.kernels.pop(key, None)
        return
    if key in op.kernels and not allow_override:
        raise RuntimeError(f"This is not allowed since there's already a kernel registered from python overriding "
                           f"{op.name()}'s behavior for {key} dispatch key.")
    op.kernels[key] = fn


class Library:
    """A set of ops ("DEF", "FRAGMENT") or kernels ("IMPL") in one namespace."""

    def __init__(self, ns, kind, dispatch_key=""):
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in ("prim", "prims") or (ns == "aten" and kind == "DEF"):
            raise ValueError(f"{ns} is a reserved namespace. Please try creating a library with another name.")
        if kind == "DEF":
            if ns in _libraries:
                raise RuntimeError(f"Only a single TORCH_LIBRARY can be used to register the namespace {ns}; please put all of "
                                   "your definitions in a single TORCH_LIBRARY block, or use FRAGMENT.")
            _libraries[ns] = self
        _ops.load_builtin(ns)
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._defined, self._implemented = [], []

    def __repr__(self):
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema, alias_analysis="", *, tags=()):
        """Defines an op by its schema ("name(Tensor x) -> Tensor") and returns its name."""
        if self.kind == "IMPL":
            raise RuntimeError("define() can only be called on a Library of kind DEF or FRAGMENT")
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        op = _ops.define(self.ns, schema)
        op.tags = list(tags) if isinstance(tags, (list, tuple)) else [tags]
        self._defined.append(op)
        return schema.partition("(")[0].strip()

    def impl(self, op_name, fn, dispatch_key="", *, with_keyset=False, allow_override=False):
        """Registers a kernel for an op and a dispatch key (default: the library's dispatch key)."""
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        if with_keyset:
            raise NotImplementedError("torch.library.Library.impl: with_keyset is not supported: kernels get no dispatch keys")
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        name = op_name.name() if isinstance(op_name, (_ops.OpOverload)) else op_name
        if isinstance(op_name, _ops.OpOverloadPacket):
            name = op_name._qualified_op_name
        op = _overload(name if "::" in name else f"{self.ns}::{name}")
        if isinstance(op, _ops._AtenOverload):
            raise NotImplementedError(f"torch.library.Library.impl: kernels of {op.name()} cannot be replaced")
        _register(op, key, fn, allow_override)
        self._implemented.append((op, key, fn))

    def fallback(self, fn, dispatch_key="", *, with_keyset=False):
        raise NotImplementedError("torch.library.Library.fallback is not supported: operators have no common fallback")

    def _register_fake(self, op_name, fn, _stacklevel=1, *, allow_override=False):
        _register(_overload(op_name if "::" in op_name else f"{self.ns}::{op_name}"), "Meta", fn)

    def _destroy(self):
        """Removes the ops and kernels that this library has registered."""
        for op, key, fn in self._implemented:
            if op.kernels.get(str(key)) is fn:
                del op.kernels[str(key)]
        for op in self._defined:
            _ops.undefine(op)
        if _libraries.get(self.ns) is self:
            del _libraries[self.ns]


@contextlib.contextmanager
def _scoped_library(*args, **kwargs):
    lib = Library(*args, **kwargs)
    try:
        yield lib
    finally:
        lib._destroy()


def define(qualname, schema=None, *, lib=None, tags=()):
    """Defines the op "ns::name" with schema "(Tensor x) -> Tensor".

    With a Library as first argument, returns a decorator for the default kernel.
    """
    if isinstance(qualname, Library):
        name = qualname.define(schema, "", tags=tags)
        return _decorator(lambda fn: qualname.impl(name, fn))
    if "::" not in qualname:
        raise ValueError(f"Expected qualname to be of the form 'ns::name', got {qualname}")
    namespace, _, name = qualname.partition("::")
    (lib or Library(namespace, "FRAGMENT")).define(name + schema, tags=tags)
    return None


def _decorator(register):
    def deco(fn):
        register(fn)
        return fn
    return deco


def impl(qualname, types, func=None, *, lib=None):
    """Registers a kernel for device types ("cpu", "default") or, with a Library, for a dispatch
    key.

    Returns a decorator if `func` is omitted.
    """
    if isinstance(qualname, Library):
        library, name, key = qualname, types, func if isinstance(func, str) else ""
        return _decorator(lambda fn: library.impl(name, fn, key))
    op = _overload(qualname)

    def register(fn):
        for t in [types] if isinstance(types, str) else types:
            _register(op, _KEYS.get(t, t), fn)
    return _decorator(register) if func is None else register(func)


def register_kernel(op, device_types, func=None, /, *, lib=None):
    """Registers a kernel for device types (None: all)."""
    target = _overload(op)

    def register(fn):
        for t in ["default"] if device_types is None else [device_types] if isinstance(device_types, str) else device_types:
            _register(target, _KEYS.get(t, t), fn)
    return _decorator(register) if func is None else register(func)


def register_fake(op, func=None, /, *, lib=None, _stacklevel=1, allow_override=False):
    """Registers the implementation of an op for meta tensors."""
    target = _overload(op)
    return _decorator(lambda fn: _register(target, "Meta", fn)) if func is None else _register(target, "Meta", func) or func


impl_abstract = register_fake


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    """Registers the gradient of an op: backward(ctx, *grads).

    setup_context(ctx, inputs, output) runs after the forward pass and saves what `backward` needs.
    """
    target = _overload(op)
    if target._schema.is_mutable:
        raise RuntimeError(f"Cannot register autograd formula for non-functional operator {target.name()}")
    target.autograd = backward, setup_context


def infer_schema(prototype_function, /, *, mutates_args, op_name=None):
    """Returns the schema of an annotated function as text."""
    return _schema.infer(prototype_function, mutates_args, op_name)


class CustomOpDef:
    """The callable that `custom_op` returns, with decorators that register kernels and gradients.
    """

    def __init__(self, namespace, name, schema, fn, tags=None):
        self._namespace, self._name, self._schema = namespace, name, schema
        self._qualname, self._init_fn = f"{namespace}::{name}", fn
        self.__name__ = name
        self.__doc__ = fn.__doc__
        self._disabled = {}
        existing = _ops._packets.get((namespace, name))
        if existing is not None and "default" in existing._overloads:
            _ops.undefine(existing._overloads["default"])  # a notebook cell may run twice
        self._opoverload = _ops.define(namespace, f"{name}{schema}")
        self._opoverload.tags = list(tags or ())

    def __repr__(self):
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args, **kwargs):
        return self._opoverload(*args, **kwargs)

    def register_kernel(self, device_types, fn=None, /):
        """Registers a kernel for one or more device types (None: all)."""
        return register_kernel(self, device_types, fn)

    def register_fake(self, fn, /):
        """Registers the implementation for meta tensors."""
        return register_fake(self, fn)

    def register_autograd(self, backward, /, *, setup_context=None):
        """Registers the gradient."""
        register_autograd(self, backward, setup_context=setup_context)

    def register_vmap(self, func=None):
        raise NotImplementedError("torch.library.CustomOpDef.register_vmap is not supported on device cpu")

    def register_torch_dispatch(self, torch_dispatch_class, fn=None, /):
        raise NotImplementedError("torch.library.CustomOpDef.register_torch_dispatch is not supported on device cpu")

    def register_autocast(self, device_type, cast_inputs):
        raise NotImplementedError("torch.library.CustomOpDef.register_autocast is not supported on device cpu")

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type, enabled=True):
        """Enables or disables the kernel of a device type within the block. If disabled, the
        default kernel runs."""
        kernels, key = self._opoverload.kernels, _KEYS.get(device_type, device_type)
        before = kernels.get(key)
        if not enabled:
            self._disabled[key] = kernels.pop(key, None)
            if before is not None and "CompositeExplicitAutograd" not in kernels:
                kernels["CompositeExplicitAutograd"] = self._init_fn
                fallback = True
            else:
                fallback = False
        else:
            fallback = False
            if before is None and self._disabled.get(key) is not None:
                kernels[key] = self._disabled[key]
        try:
            yield
        finally:
            if fallback:
                del kernels["CompositeExplicitAutograd"]
            if before is None:
                kernels.pop(key, None)
            else:
                kernels[key] = before


def custom_op(name, fn=None, /, *, mutates_args, device_types=None, schema=None, tags=None):
    """Creates the op "ns::name" from an annotated function (or with `schema`).

    Returns a decorator if `fn` is omitted.
    """
    def make(fn):
        if "::" not in name:
            raise ValueError(f"Expected name to be of the form 'ns::name', got {name}")
        namespace, _, short = name.partition("::")
        made = CustomOpDef(namespace, short, schema if schema is not None else infer_schema(fn, mutates_args=mutates_args), fn, tags)
        if schema is not None:
            declared = {a.name for a in made._opoverload._schema.arguments if a.is_write}
            if set(mutates_args) != declared:
                raise ValueError(f"Attempted to create a custom op with `mutates_args={mutates_args}` and `schema={schema}. The "
                                 f"schema suggests that the op mutates args {sorted(declared)}, which are different")
        register_kernel(made, device_types, fn)
        return made
    return make if fn is None else make(fn)


refuse(globals(), "operators run eagerly through plain Python kernels",
       "opcheck triton_op wrap_triton register_vmap register_torch_dispatch register_autocast get_ctx get_kernel "
       "fallback")
