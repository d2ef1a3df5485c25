"""torch.ops: operators by namespace and name, and the kernels that torch.library registers for
them.

`aten` and `prims` resolve to the facade's own functions. Some libraries ship C++ kernels, which
cannot be loaded here; the modules of `hooks.op_modules` define the same operators in Python.
"""
import importlib
import threading
import types

from mindtorch.core.autograd import grad_mode
from mindtorch.core.dispatch.dispatcher import is_enabled
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.torch import _aten_losses, _aten_ops, _function_protocol as protocol, _schema
from mindtorch.torch._hooks import hooks

#: set by `mindtorch/torch/_dispatch_protocol.py`: (operator, args, kwargs, function that computes
#: it) -> its result below autograd, after dispatch to modes and operands' classes
dispatched = None

#: (namespace, name) -> OpOverloadPacket
_packets = {}


class _Below(threading.local):
    """Per-thread flag: True while a kernel for an autograd key runs. Operators that it calls run
    the kernel below autograd."""

    autograd = False


below = _Below()


class below_autograd:
    """Context manager under which operators skip their autograd kernels."""

    def __enter__(self):
        self._before, below.autograd = below.autograd, True

    def __exit__(self, *exc):
        below.autograd = self._before


def _dispatched(op, args, kwargs):
    """Returns the result of modes and arguments with `__torch_function__` for a call of an
    operator; NotImplemented if there are none."""
    state = protocol.state
    if not state.modes and state.off:
        return NotImplemented
    relevant = () if state.off else protocol.overloaded((*args, *kwargs.values()))
    return protocol.call(op, relevant, args, kwargs) if relevant or state.modes else NotImplemented


def _tensors(args):
    for a in args:
        if is_tensor(a):
            yield a
        elif isinstance(a, (list, tuple)):
            yield from _tensors(a)


def _is_default(value, default):
    return value is default or value.__class__ is default.__class__ and not is_tensor(value) and value == default


class OpOverload:
    """One overload of an operator. Callable."""

    def __init__(self, packet, schema):
        self._overloadpacket, self._schema = packet, schema
        self._overloadname = schema.overload_name or "default"
        self.namespace, self._opname = packet._namespace, packet._name
        self.__name__ = f"{packet._name}.{self._overloadname}"
        self.__qualname__ = self._name = f"{packet._namespace}::{packet._name}" + (
            f".{schema.overload_name}" if schema.overload_name else "")
        self.__module__ = f"torch._ops.{packet._namespace}"
        self.kernels = {}          # dispatch key -> function
        self.autograd = None       # (backward, setup_context)
        self.tags = []

    def __repr__(self):
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"

    def __str__(self):
        return f"{self.namespace}.{self._opname}.{self._overloadname}"

    def __deepcopy__(self, memo):
        return self

    def __hash__(self):
        return hash(self._name)

    @property
    def overloadpacket(self):
        return self._overloadpacket

    @property
    def op(self):
        return self

    def name(self):
        return self._name

    def has_kernel_for_dispatch_key(self, k):
        return str(k).rpartition(".")[2] in self.kernels

    def decompose(self, *args, **kwargs):
        return NotImplemented

    def _bind(self, args, kwargs):
        """Returns all positional arguments in the schema's order with defaults filled in, and the
        keyword-only arguments as a dict."""
        parameters = self._schema.arguments
        if not parameters and not args and not kwargs:
            return (), {}
        positional = [p for p in parameters if not p.kwarg_only]
        if len(args) > len(positional):
            raise RuntimeError(f"{self._name}() expected at most {len(positional)} argument(s) but received {len(args)} "
                               f"argument(s). Declaration: {self._schema}")
        out, named, kwargs = list(args), {}, dict(kwargs)
        for i, p in enumerate(parameters):
            if i < len(args):
                if p.name in kwargs:
                    raise RuntimeError(f"{self._name}() got multiple values for argument '{p.name}'. Declaration: {self._schema}")
                continue
            if p.name in kwargs:
                value = kwargs.pop(p.name)
            elif p.has_default:
                value = p.default_value
            else:
                raise RuntimeError(f"{self._name}() is missing value for argument '{p.name}'. Declaration: {self._schema}")
            if p.kwarg_only:
                named[p.name] = value
            else:
                out.append(value)
        if kwargs:
            raise RuntimeError(f"Unknown keyword argument '{next(iter(kwargs))}' for operator '{self._name}'. "
                               f"Schema: {self._schema}")
        return tuple(out), named

    def _shortened(self, args, kwargs):
        """Returns bound arguments as handlers receive them: without trailing and keyword arguments
        that equal their defaults."""
        positional = [p for p in self._schema.arguments if not p.kwarg_only]
        n = len(args)
        while n and positional[n - 1].has_default and _is_default(args[n - 1], positional[n - 1].default_value):
            n -= 1
        named = {p.name: p for p in self._schema.arguments if p.kwarg_only}
        return args[:n], {k: v for k, v in kwargs.items() if not (named[k].has_default and _is_default(v, named[k].default_value))}

    def __call__(self, /, *args, **kwargs):
        if is_enabled("ops", "function") and (r := _dispatched(self, args, kwargs)) is not NotImplemented:
            return r
        args, kwargs = self._bind(args, kwargs)
        tensors = list(_tensors((*args, *kwargs.values())))
        kind = tensors[0].device.type if tensors else "cpu"
        if any(t.device.type == "meta" for t in tensors):
            kind = "meta"
        key = {"cpu": "CPU", "cuda": "CUDA", "npu": "PrivateUse1", "meta": "Meta"}.get(kind, kind.upper())
        if below.autograd:
            if is_enabled("ops", "dispatch"):
                return dispatched(self, args, kwargs, lambda args, kwargs: self._below(key)(*args, **kwargs))
            return self._below(key)(*args, **kwargs)
        kernels = self.kernels
        above = kernels.get("Autograd" + key) or kernels.get("Autograd")
        if above is not None:
            return above(*args, **kwargs)
        kernel, implicit = self._find(key)
        if implicit:
            return kernel(*args, **kwargs)
        if grad_mode.is_grad_enabled() and any(t.requires_grad for t in tensors) and not self._schema.is_mutable:
            return self._differentiable(kernel, args, kwargs)
        return self._run(kernel, args, kwargs)

    def _run(self, kernel, args, kwargs):
        if is_enabled("ops", "dispatch"):
            return dispatched(self, args, kwargs, lambda args, kwargs: self._computed(kernel, args, kwargs))
        return self._computed(kernel, args, kwargs)

    def _computed(self, kernel, args, kwargs):
        with grad_mode.no_grad():
            r = kernel(*args, **kwargs)
        given = {id(t) for t in _tensors((*args, *kwargs.values()))}
        for t in _tensors((r,)):
            if id(t) in given:
                raise RuntimeError(f"{self._name}: an output of this operator is one of its inputs; return a clone instead")
        return r

    def _below(self, key):
        return self._find(key)[0]

    def _find(self, key):
        kernels = self.kernels
        for k in (key, "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "Undefined"):
            if k in kernels:
                return kernels[k], False
        for k in ("CompositeImplicitAutograd", ""):
            if k in kernels:
                return kernels[k], True
        raise NotImplementedError(f"Could not run '{self._name}' with arguments from the '{key}' backend: no kernel is "
                                  f"registered for it (there are some for {sorted(kernels) or 'nothing'}).")

    def _differentiable(self, kernel, args, kwargs):
        from mindtorch.torch.autograd.function import Function
        op, named, at, flat = self, list(kwargs), [], []
        # Flattens lists of tensors, so that autograd sees every tensor.
        for a in (*args, *kwargs.values()):
            if isinstance(a, (list, tuple)) and any(is_tensor(t) for t in a):
                at.append((len(flat), len(a), type(a)))
                flat.extend(a)
            else:
                at.append((len(flat), None, None))
                flat.append(a)

        def unflat(values):
            return [values[i] if n is None else kind(values[i:i + n]) for i, n, kind in at]

        def forward(ctx, *flat):
            values = unflat(flat)
            positional, keyed = tuple(values[:len(args)]), dict(zip(named, values[len(args):]))
            out = op._run(kernel, positional, keyed)
            if op.autograd is not None and op.autograd[1] is not None:
                setup = op.autograd[1]
                if keyed:
                    setup(ctx=ctx, inputs=positional, keyword_only_inputs=keyed, output=out)
                else:
                    setup(ctx=ctx, inputs=positional, output=out)
            return tuple(out) if isinstance(out, list) else out

        def backward(ctx, *grads):
            if op.autograd is None:
                raise NotImplementedError(f"Trying to backward through {op._name} but no autograd formula was registered. "
                                          "Please use register_autograd to add one.")
            got = op.autograd[0](ctx, *grads)
            got = list(got) if isinstance(got, tuple) else [got]
            got += [None] * (len(at) - len(got))
            out = []
            for g, (_, n, _) in zip(got, at):
                if n is None:
                    out.append(g)
                else:
                    out.extend([None] * n if g is None else g)
            return tuple(out)

        cls = type(f"GeneratedBackwardFor_{self.namespace}_{self._opname}_{self._overloadname}", (Function,),
                   {"forward": staticmethod(forward), "backward": staticmethod(backward)})
        return cls.apply(*flat)


class OpOverloadPacket:
    """An operator with all its overloads. Calling it runs the overload that accepts the arguments.
    """

    def __init__(self, namespace, name):
        self._namespace, self._name = namespace, name
        self._qualified_op_name = f"{namespace}::{name}"
        self.__name__ = name
        self.__module__ = f"torch._ops.{namespace}"
        self._overloads = {}

    def __repr__(self):
        return f"<OpOverloadPacket(op='{self._namespace}.{self._name}')>"

    def __deepcopy__(self, memo):
        return self  # packets are used in tables that are deep-copied

    def __str__(self):
        return f"{self._namespace}.{self._name}"

    def overloads(self):
        return list(self._overloads)

    @property
    def op(self):
        return self

    def __getattr__(self, key):
        if not key.startswith("__"):
            found = self._overloads.get(key)
            if found is not None:
                return found
        raise AttributeError(f"The underlying op of '{self._namespace}.{self._name}' has no overload name '{key}'")

    def __call__(self, /, *args, **kwargs):
        found = list(self._overloads.values())
        if len(found) == 1:
            return found[0](*args, **kwargs)
        errors = []
        for o in found:
            try:
                o._bind(args, kwargs)
            except RuntimeError as err:
                errors.append(str(err))
            else:
                return o(*args, **kwargs)
        raise RuntimeError(f"No overload of {self._qualified_op_name} takes these arguments: " + "; ".join(errors))


class _AtenOverload(OpOverload):
    """Overload of an operator that is a facade function. The function distinguishes the overloads
    itself."""

    def __init__(self, packet, name, fn):
        super().__init__(packet, _schema.FunctionSchema(packet._qualified_op_name, "" if name == "default" else name))
        self.fn = fn

    def __call__(self, /, *args, **kwargs):
        if is_enabled("ops", "function") and (r := _dispatched(self, args, kwargs)) is not NotImplemented:
            return r
        return self.fn(*args, **kwargs)


class _AtenPacket(OpOverloadPacket):
    def __init__(self, namespace, name, fn):
        super().__init__(namespace, name)
        self.fn = fn

    def overloads(self):
        return ["default"]

    def __getattr__(self, key):
        if key.startswith("_"):
            raise AttributeError(key)
        return self._overloads.setdefault(key, _AtenOverload(self, key, self.fn))

    def __call__(self, /, *args, **kwargs):
        if is_enabled("ops", "function") and (r := _dispatched(self, args, kwargs)) is not NotImplemented:
            return r
        return self.fn(*args, **kwargs)


def _facade_function(name):
    for prefix in ("", "nn.functional.", "linalg.", "special.", "fft."):
        short = name
        if prefix in ("linalg.", "special.", "fft."):
            if not name.startswith(prefix[:-1] + "_"):
                continue
            short = name[len(prefix):]
        row = OPS.get(prefix + short)
        if row is not None:
            return row.public or row.fn
    f = vars(Tensor).get(name)
    return f if callable(f) else None


# Operators that PyTorch's own code is composed of, and that libraries name to define the behavior
# of a subclass.
_INTERNAL = frozenset("""_to_copy slice sym_stride sym_numel sym_storage_offset index _pin_memory _fft_c2c _fft_r2c _fft_c2r
 _reshape_alias_copy _grouped_mm _local_scalar_dense _conj _neg_view _assert_async sym_constrain_range_for_size _unsafe_view _reshape_alias lift_fresh
 _sparse_mm_reduce_impl _sparse_addmm _is_all_true _is_any_true _embedding_bag _assert_tensor_metadata _assert_scalar _unsafe_index
 _index_put_impl_ _softmax _log_softmax native_batch_norm native_layer_norm native_dropout convolution
 _scaled_mm _convolution cudnn_convolution _slow_conv2d_forward convolution_overrideable
 _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention
 _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward""".split())


def sym_size(input, dim):
    """Returns the size of a dimension, as graphs with dynamic sizes query it."""
    return input.size(dim)


def numpy_T(input):
    """Returns Tensor.T."""
    return input.T


def _native_batch_norm_legit_functional(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """Returns (batch norm, mean, 1 / sqrt(var + eps), new running mean, new running variance)
    without modifying anything in place."""
    mean, var = running_mean.detach().clone(), running_var.detach().clone()
    out = OPS["nn.functional.batch_norm"].fn(input, mean, var, weight, bias, training, momentum, eps)
    with grad_mode.no_grad():
        dims = [d for d in range(input.dim()) if d != 1]
        now = input.mean(dims)
        return out, now, (input.var(dims, correction=0) + eps).rsqrt(), mean, var


_OWN = {f.__name__: f for f in (sym_size, numpy_T, _native_batch_norm_legit_functional)}


def _internal(name):
    if name in _OWN:
        return _OWN[name]
    if name not in _INTERNAL:
        return None

    def fn(*args, **kwargs):
        raise NotImplementedError(f"torch.ops.aten.{name} is not supported: it is an internal operator of torch")
    fn.__name__ = name
    return fn


class _OpNamespace(types.ModuleType):
    """torch.ops.<namespace>."""

    def __init__(self, name):
        super().__init__("torch.ops." + name)
        self.name = name
        self._dir = []

    def __getattr__(self, op_name):
        if op_name.startswith("__"):
            raise AttributeError(f"Invalid attribute '{op_name}' for '_OpNamespace' '{self.name}'")
        if self.name == "higher_order":
            packet = hooks.higher_order(op_name)
        else:
            packet = find_packet(self.name, op_name)
        if packet is None:
            raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{op_name}'")
        vars(self)[op_name] = packet
        self._dir.append(op_name)
        return packet

    def __dir__(self):
        return [n for ns, n in _packets if ns == self.name]


def load_builtin(namespace):
    """Imports the module that defines a namespace's operators in Python. True if there is one."""
    module = hooks.op_modules.get(namespace)
    if module is None:
        return False
    importlib.import_module(module)
    return True


def find_packet(namespace, name):
    """Returns the operator, or None."""
    packet = _packets.get((namespace, name))
    if packet is None and namespace in ("aten", "prims"):
        fn = _aten_losses.function(name) or _aten_ops.function(name) or _facade_function(name) or _internal(name)
        if fn is not None:
            packet = _packets[namespace, name] = _AtenPacket(namespace, name, fn)
    elif packet is None and load_builtin(namespace):
        packet = _packets.get((namespace, name))
    return packet


def find_overload(qualname):
    """Returns the OpOverload for "ns::name" or "ns::name.overload", or None."""
    namespace, _, rest = qualname.partition("::")
    name, _, overload = rest.partition(".")
    packet = find_packet(namespace, name)
    if packet is None:
        return None
    try:
        return getattr(packet, overload or "default")
    except AttributeError:
        return None


def define(namespace, text):
    """Adds an operator by its schema. RuntimeError if it exists."""
    schema = _schema.parse(text)
    name = schema.name.rpartition("::")[2]
    packet = _packets.setdefault((namespace, name), OpOverloadPacket(namespace, name))
    key = schema.overload_name or "default"
    if key in packet._overloads:
        raise RuntimeError(f"Tried to register an operator ({namespace}::{text}) with the same name and overload name multiple "
                           "times.")
    schema.name = f"{namespace}::{name}"
    packet._overloads[key] = OpOverload(packet, schema)
    return packet._overloads[key]


def undefine(overload):
    """Removes an overload of an operator."""
    packet = overload._overloadpacket
    packet._overloads.pop(overload._overloadname, None)
    if not packet._overloads:
        _packets.pop((packet._namespace, packet._name), None)
        vars(namespace(packet._namespace)).pop(packet._name, None)


_namespaces = {}


def namespace(name):
    """Returns torch.ops.<name>."""
    return _namespaces.setdefault(name, _OpNamespace(name))


def __getattr__(name):
    if name == "HigherOrderOperator":
        return hooks.higher_order_class()
    raise AttributeError(f"module 'torch._ops' has no attribute '{name}'")
