"""Module, the base class of all neural networks
(https://pytorch.org/docs/stable/generated/torch.nn.Module.html)."""
import functools
import warnings
from collections import OrderedDict

import mindtorch.torch as torch
from mindtorch.backend.mindspore.cell import AFTER_SETTING, BORROWED, Cell, be_a_cell, borrowed
from mindtorch.core.device import device_dispatch
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.tensor.tensor import Parameter, Tensor, is_tensor
from mindtorch.torch.nn.modules._hooks import (  # noqa: F401  these are this module's public functions too
    BackwardHook,
    WrappedHook as _WrappedHook,
    _register,
    everywhere,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
    warn_non_full,
)
from mindtorch.torch.nn.modules._state import (  # noqa: F401
    EXTRA_STATE as _EXTRA_STATE_KEY_SUFFIX,
    IncompatibleKeys as _IncompatibleKeys,
    StateMixin,
    as_child,
    conversion,
    submodules,
)
from mindtorch.torch.nn.modules._to import parse_to
from mindtorch.torch.nn.parameter import Buffer, is_lazy

__all__ = [
    "register_module_forward_pre_hook", "register_module_forward_hook", "register_module_full_backward_pre_hook",
    "register_module_backward_hook", "register_module_full_backward_hook", "register_module_buffer_registration_hook",
    "register_module_module_registration_hook", "register_module_parameter_registration_hook", "Module",
]

# Read on every call. The dictionaries are never replaced. Libraries access them under PyTorch's
# names.
_g_backward = _global_backward_hooks = everywhere.backward
_g_backward_pre = _global_backward_pre_hooks = everywhere.backward_pre
_g_forward = _global_forward_hooks = everywhere.forward
_g_forward_pre = _global_forward_pre_hooks = everywhere.forward_pre
_global_forward_hooks_always_called, _global_forward_hooks_with_kwargs = everywhere.forward_always, everywhere.forward_kwargs
_global_buffer_registration_hooks, _global_module_registration_hooks = everywhere.buffer, everywhere.module
_global_parameter_registration_hooks = everywhere.parameter

# Set while a callable with a graph break runs eagerly in some thread: route(module, args, kwargs)
# may run a module's captured graph, otherwise it returns `_GO_ON` (torch/_dynamo/_parts.py).
_route, _GO_ON = None, object()

HOOKS = ("_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs",
         "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks",
         "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")


def _typename(obj):
    if is_tensor(obj):
        return obj.type()
    cls = obj if isinstance(obj, type) else type(obj)
    name = f"{cls.__module__}.{cls.__qualname__}"
    return name.removeprefix("builtins.").removeprefix("mind" if name.startswith("mindtorch.torch.") else "").replace(
        "torch.torch.", "torch.", 1)


def _addindent(s, n):
    """Indents all lines of `s` but the first by n."""
    return s.replace("\n", "\n" + " " * n)


def _has(module, name):
    """Like hasattr(), but ignores attributes that a Module has only because it is a Cell."""
    if name in BORROWED and name not in module.__dict__ and not hasattr(type(module), name):
        return any(name in module.__dict__.get(d, ()) for d in ("_parameters", "_buffers", "_modules"))
    return hasattr(module, name)


def _check_name(kind, name, tail=""):
    if not isinstance(name, str):
        raise TypeError(f"{kind} name should be a string. Got {_typename(name)}")
    if "." in name:
        raise KeyError(f'{kind} name can\'t contain "."{tail}')
    if name == "":
        raise KeyError(f'{kind} name can\'t be empty string ""')


def _notify(hooks, module, name, value):
    for hook in hooks.values():
        new = hook(module, name, value)
        if new is not None:
            value = new
    return value


def _with_state(cls):
    """Copies the functions of StateMixin into Module, so that object is its only base."""
    for name, f in vars(StateMixin).items():
        if isinstance(f, type(_with_state)):
            f.__module__, f.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
            setattr(cls, name, f)
    be_a_cell(cls)
    return cls


@_with_state
class Module:
    """Base class of all neural network modules.

    Subclasses call `super().__init__()`, assign parameters, buffers and submodules as attributes,
    and define `forward`. A Module also counts as a `mindspore.nn.Cell`.
    """

    dump_patches = False
    _version = 1
    training: bool
    call_super_init = False
    _compiled_call_impl = None

    def __init__(self, *args, **kwargs):
        cls = type(self)
        if not cls.call_super_init:
            if kwargs:
                raise TypeError(f"{cls.__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
            if args:
                raise TypeError(f"{cls.__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        # Assigned directly to __dict__, because __setattr__ requires these attributes to exist.
        d = self.__dict__
        d["training"] = True
        d["_parameters"] = {}
        d["_buffers"] = {}
        d["_non_persistent_buffers_set"] = set()
        d["_backward_pre_hooks"] = OrderedDict()
        d["_backward_hooks"] = OrderedDict()
        d["_is_full_backward_hook"] = None
        for name in HOOKS[2:]:
            d[name] = OrderedDict()
        d["_modules"] = {}
        if cls.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *input):
        """Defines the computation of every call. Subclasses must override it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # ------------------------------------------------------------------ call
    def _call_impl(self, *args, **kwargs):
        if not (self._backward_hooks or self._backward_pre_hooks or self._forward_hooks or self._forward_pre_hooks
                or _g_backward or _g_backward_pre or _g_forward or _g_forward_pre):
            return self.forward(*args, **kwargs)
        called = set()
        state = [None, args, kwargs]
        try:
            return _call_with_hooks(self, state, called)
        except Exception:
            # Hooks with always_call that have not run yet also run after an exception. Their own
            # exceptions only warn.
            result, args, kwargs = state
            for where, hooks, always, with_kwargs in (
                    ("global module", _g_forward, everywhere.forward_always, everywhere.forward_kwargs),
                    ("module", self._forward_hooks, self._forward_hooks_always_called,
                     self._forward_hooks_with_kwargs)):
                for i, hook in list(hooks.items()):
                    if i in always and i not in called:
                        try:
                            new = hook(self, args, kwargs, result) if i in with_kwargs else hook(self, args, result)
                            if new is not None:
                                result = new
                        except Exception as e:      # noqa: BLE001
                            warnings.warn(f"{where} forward hook with ``always_call=True`` raised an exception that "
                                          f"was silenced as another error was raised in forward: {e}", stacklevel=2)
            raise

    _wrapped_call_impl = _call_impl

    def __call__(self, *args, **kwargs):
        try:
            if self._compiled_call_impl is not None:
                return self._compiled_call_impl(*args, **kwargs)
            if _route is not None:
                r = _route(self, args, kwargs)
                if r is not _GO_ON:
                    return r
            if (self._backward_hooks or self._backward_pre_hooks or self._forward_hooks or self._forward_pre_hooks
                    or _g_backward or _g_backward_pre or _g_forward or _g_forward_pre):
                return self._call_impl(*args, **kwargs)
            return self.forward(*args, **kwargs)
        except Exception as e:
            hide_internal_frames(e)
            raise

    # ------------------------------------------------------------------ hooks
    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Registers hook(module, args[, kwargs]) -> None or new arguments, called before every
        forward."""
        handle = _register(self._forward_pre_hooks, hook,
                           *([self._forward_pre_hooks_with_kwargs] if with_kwargs else ()))
        if prepend:
            self._forward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Registers hook(module, args[, kwargs], output) -> None or a new output, called after
        every forward."""
        flags = [self._forward_hooks_with_kwargs] if with_kwargs else []
        if always_call:
            flags.append(self._forward_hooks_always_called)
        handle = _register(self._forward_hooks, hook, *flags)
        if prepend:
            self._forward_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_backward_hook(self, hook):
        """Registers a non-full backward hook, which sees only the module's last op. Prefer
        `register_full_backward_hook`."""
        return _register_backward(self, hook, False)

    def register_full_backward_hook(self, hook, prepend=False):
        """Registers hook(module, grad_input, grad_output) -> None or a new grad_input, called when
        the gradients of the inputs are computed."""
        return _register_backward(self, hook, True, prepend)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Registers hook(module, grad_output) -> None or a new grad_output, called when the
        gradients of the outputs are computed."""
        handle = _register(self._backward_pre_hooks, hook)
        if prepend:
            self._backward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def _get_backward_hooks(self):
        """Returns the (full, non-full) hooks that a call would use."""
        full, non_full = [], []
        for hooks, is_full in ((_g_backward, everywhere.backward_is_full),
                               (self._backward_hooks, self._is_full_backward_hook)):
            (full if is_full else non_full).extend(hooks.values())
        return full, non_full

    def _get_backward_pre_hooks(self):
        return list(_g_backward_pre.values()) + list(self._backward_pre_hooks.values())

    # ------------------------------------------------------------------ registration
    def register_buffer(self, name, tensor, persistent=True):
        """Adds a tensor that is part of the module's state but not a parameter. Excluded from
        state_dict unless `persistent`."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        _check_name("buffer", name)
        if name not in self._buffers and _has(self, name):
            raise KeyError(f"attribute '{name}' already exists")
        if tensor is not None and not is_tensor(tensor):
            raise TypeError(f"cannot assign '{_typename(tensor)}' object to buffer '{name}' (torch Tensor or None "
                            "required)")
        self._buffers[name] = _notify(everywhere.buffer, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name, param):
        """Adds a Parameter (or None) under `name`."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        _check_name("parameter", name)
        if name not in self._parameters and _has(self, name):
            raise KeyError(f"attribute '{name}' already exists")
        if param is not None:
            if not is_tensor(param, Parameter):
                raise TypeError(f"cannot assign '{_typename(param)}' object to parameter '{name}' (torch.nn.Parameter "
                                "or None required)")
            if param.grad_fn is not None:
                raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                                 f"created explicitly. To express '{name}' as a function of another Tensor, compute "
                                 "the value in the forward() method.")
            param = _notify(everywhere.parameter, self, name, param)
        self._parameters[name] = param

    def add_module(self, name, module):
        """Adds a submodule (or None) under `name`. A MindSpore Cell is converted to a Module."""
        module = as_child(self, module)
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        _check_name("module", name, f", got: {name}" if isinstance(name, str) else "")
        if name not in self._modules and _has(self, name):
            raise KeyError(f"attribute '{name}' already exists")
        self._modules[name] = _notify(everywhere.module, self, name, module)

    def register_module(self, name, module):
        """Alias of `add_module`."""
        self.add_module(name, module)

    # ------------------------------------------------------------------ attributes
    def __getattr__(self, name):
        d = self.__dict__
        for holder in ("_parameters", "_buffers", "_modules"):
            held = d.get(holder)
            if held is not None and name in held:
                return held[name]
        return borrowed(self, name)

    def __setattr__(self, name, value):
        d = self.__dict__
        if is_tensor(value, Parameter):
            if "_parameters" not in d:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            _forget(d, name, "_buffers", "_modules")
            self.register_parameter(name, value)
            return
        params = d.get("_parameters")
        if params is not None and name in params:
            if value is not None:
                raise TypeError(f"cannot assign '{_typename(value)}' as parameter '{name}' (torch.nn.Parameter or None "
                                "expected)")
            self.register_parameter(name, value)
            return
        modules = d.get("_modules")
        if isinstance(value, Module) or isinstance(value, Cell) and isinstance(as_child(self, value), Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            _forget(d, name, "_parameters", "_buffers")
            modules[name] = _notify(everywhere.module, self, name, value)
            return
        if modules is not None and name in modules:
            if value is not None:
                raise TypeError(f"cannot assign '{_typename(value)}' as child module '{name}' (torch.nn.Module or None "
                                "expected)")
            modules[name] = _notify(everywhere.module, self, name, value)
            return
        buffers = d.get("_buffers")
        known = buffers is not None and name in buffers
        if known or is_tensor(value) and isinstance(value, Buffer):
            if value is not None and not is_tensor(value):
                raise TypeError(f"cannot assign '{_typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor "
                                "or None expected)")
            if isinstance(value, Buffer):
                persistent = getattr(value, "persistent", True)  # (MindSpore's buffers lack it)
            else:
                persistent = name not in self._non_persistent_buffers_set
            if buffers is None:
                raise AttributeError("cannot assign buffer before Module.__init__() call")
            self.register_buffer(name, value, persistent)
            return
        object.__setattr__(self, name, value)
        if name in AFTER_SETTING:
            AFTER_SETTING[name](self, value)

    def __delattr__(self, name):
        for holder in (self._parameters, self._buffers, self._modules):
            if name in holder:
                del holder[name]
                if holder is self._buffers:
                    self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __getstate__(self):
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        if "_native_buffers" in state:  # a copy has its own buffers under the same names
            state["_native_buffers"] = {k: p if isinstance(p, str) else p.name for k, p in state["_native_buffers"].items()}
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        # Attributes that modules pickled by older versions lack.
        for name in HOOKS:
            self.__dict__.setdefault(name, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)
        if "mixed_precision_type" in self.__dict__:
            self.mixed_precision_type = self.__dict__["mixed_precision_type"]

    def __dir__(self):
        names = set(dir(type(self)))
        names.update(self.__dict__, self._parameters, self._modules, self._buffers)
        return sorted(n for n in names if not n[0].isdigit())

    def _get_name(self):
        return type(self).__name__

    def extra_repr(self):
        """Returns the text that repr() shows for this module itself."""
        return ""

    def __repr__(self):
        extra = self.extra_repr()
        own = extra.split("\n") if extra else []
        children = [f"({name}): " + _addindent(repr(m), 2) for name, m in self._modules.items()]
        if not children and len(own) == 1:
            body = own[0]
        else:
            body = "\n  " + "\n  ".join(own + children) + "\n" if own or children else ""
        return f"{self._get_name()}({body})"

    # ------------------------------------------------------------------ traversal
    def _named_members(self, get_members_fn, prefix="", recurse=True, remove_duplicate=True):
        seen = set()
        for path, module in self.named_modules(prefix=prefix,
                                               remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]:
            for name, value in get_members_fn(module):
                if value is None or (remove_duplicate and value in seen):
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield f"{path}.{name}" if path else name, value

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """Yields (dotted name, parameter) for this module and, with `recurse`, all its descendants.
        """
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        """Yields the parameters of this module and, with `recurse`, of all its descendants."""
        for _, p in self.named_parameters(recurse=recurse):
            yield p

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """Yields (dotted name, buffer) for this module and, with `recurse`, all its descendants."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        """Yields the buffers of this module and, with `recurse`, of all its descendants."""
        for _, b in self.named_buffers(recurse=recurse):
            yield b

    def named_children(self):
        """Yields (name, module) for the direct submodules, each module once."""
        seen = set()
        for name, m in submodules(self):
            if m not in seen:
                seen.add(m)
                yield name, m

    def children(self):
        """Yields the direct submodules."""
        for _, m in self.named_children():
            yield m

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """Yields (dotted name, module) for this module and all its descendants. With
        `remove_duplicate`, each module occurs once."""
        if memo is None:
            memo = set()
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, m in submodules(self):
            yield from m.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate=True):
        """Yields this module and all its descendants."""
        for _, m in self.named_modules(remove_duplicate=remove_duplicate):
            yield m

    def get_submodule(self, target):
        """Returns the submodule with this dotted name. AttributeError if there is none."""
        m = self
        for name in target.split(".") if target else ():
            if not _has(m, name):
                raise AttributeError(f"{m._get_name()} has no attribute `{name}`")
            m = as_child(m, getattr(m, name))
            if not isinstance(m, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return m

    def set_submodule(self, target, module, strict=False):
        """Replaces the submodule with this dotted name. With `strict` it must already exist."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        module = as_child(self, module)
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not _has(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if _has(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target):
        """Returns the parameter with this dotted name. AttributeError if there is none."""
        return _get_member(self, target, lambda m, n, v: is_tensor(v, Parameter), "an nn.Parameter")

    def get_buffer(self, target):
        """Returns the buffer with this dotted name. AttributeError if there is none."""
        return _get_member(self, target, lambda m, n, v: n in m._buffers, "a buffer")

    # ------------------------------------------------------------------ converting all tensors
    def _apply(self, fn, recurse=True):
        if recurse:
            for m in self.children():
                m._apply(fn)
        overwrite, swap = conversion.overwrite, conversion.swap

        def in_place(old, new):
            return not overwrite and old.is_meta == new.is_meta and old.is_sparse == new.is_sparse

        for name, p in self._parameters.items():
            if p is None:
                continue
            with torch.no_grad():
                new = fn(p)
            grad = p.grad
            kept = p
            if swap:
                p.grad = None
                try:
                    torch.utils.swap_tensors(p, new if is_tensor(new, Parameter) and new is not p else Parameter(new, p.requires_grad))
                except Exception as e:
                    p.grad = grad
                    raise RuntimeError(f"_apply(): Couldn't swap {self._get_name()}.{name}") from e
            elif in_place(p, new):
                p.grad = None  # otherwise its dtype would differ from the parameter's for a moment
                p.data = new
            else:
                kept = self._parameters[name] = Parameter(new, p.requires_grad)
            if grad is not None:
                with torch.no_grad():
                    new = fn(grad)
                if swap:
                    new.requires_grad_(grad.requires_grad)
                    try:
                        torch.utils.swap_tensors(grad, new)
                    except Exception as e:
                        raise RuntimeError(f"_apply(): Couldn't swap {self._get_name()}.{name}.grad") from e
                    p.grad = grad
                elif kept is p and in_place(grad, new):
                    grad.data = new
                    p.grad = grad
                else:
                    kept.grad = new.requires_grad_(grad.requires_grad)
        for name, b in self._buffers.items():
            if b is None:
                continue
            if is_lazy(b):
                b.data = fn(b)  # (it stays uninitialized)
            else:
                self._buffers[name] = fn(b)
        return self

    def apply(self, fn):
        """Calls fn on every submodule and then on this module, for example to initialize weights.
        """
        for m in self.children():
            m.apply(fn)
        fn(self)
        return self

    def to(self, *args, **kwargs):
        """Moves and converts parameters and buffers in place: to(device, dtype), to(dtype),
        to(tensor), to(memory_format=...).

        Only floating point and complex tensors change their dtype.
        """
        device, dtype, non_blocking, memory_format = parse_to(args, kwargs)
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError("nn.Module.to only accepts floating point or complex dtypes, but got desired "
                                f"dtype={dtype}")
            if dtype.is_complex:
                warnings.warn("Complex modules are a new feature under active development whose design may change, "
                              "and some modules might not work as expected when using complex tensors as parameters "
                              "or buffers.",
                              stacklevel=2)

        def convert(t):
            new = dtype if t.is_floating_point() or t.is_complex() else None
            if t.is_meta and device is not None and device.type != "meta":
                raise NotImplementedError("Cannot copy out of meta tensor; no data! Please use "
                                          "torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving "
                                          "module from meta to a different device.")
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device, new, non_blocking, memory_format=memory_format)
            return t.to(device, new, non_blocking)

        return self._apply(convert)

    def to_empty(self, *, device, recurse=True):
        """Moves the module to `device` without copying values: its tensors are uninitialized there.
        """
        return self._apply(lambda t: torch.empty_like(t, device=device), recurse=recurse)

    def type(self, dst_type):
        """Casts all parameters and buffers to `dst_type`."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self):
        """Casts floating point parameters and buffers to float32."""
        return _floating(self, torch.float32)

    def double(self):
        """Casts floating point parameters and buffers to float64."""
        return _floating(self, torch.float64)

    def half(self):
        """Casts floating point parameters and buffers to float16."""
        return _floating(self, torch.float16)

    def bfloat16(self):
        """Casts floating point parameters and buffers to bfloat16."""
        return _floating(self, torch.bfloat16)

    def cpu(self):
        """Moves parameters and buffers to the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device=None):
        """Moves parameters and buffers to the accelerator. Raises an error if there is none."""
        return self._apply(lambda t: t.cuda(device))

    def npu(self, device=None):
        """Moves parameters and buffers to the NPU. Raises an error if there is none."""
        return self.to("npu" if device is None else f"npu:{device}" if isinstance(device, int) else device)

    def xpu(self, device=None):
        """Moves parameters and buffers to an XPU. Raises an error if there is none."""
        return _elsewhere(self, "xpu", device)

    def ipu(self, device=None):
        """Moves parameters and buffers to an IPU. Raises an error if there is none."""
        return _elsewhere(self, "ipu", device)

    def mtia(self, device=None):
        """Moves parameters and buffers to an MTIA device. Raises an error if there is none."""
        return _elsewhere(self, "mtia", device)

    def share_memory(self):
        """Moves parameters and buffers to shared memory."""
        return self._apply(lambda t: t.share_memory_())

    def train(self, mode=True):
        """Sets training mode (or evaluation mode with False) for this module and all its
        descendants."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for m in self.children():
            m.train(mode)
        return self

    def eval(self):
        """Sets evaluation mode for this module and all its descendants."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Sets whether autograd tracks the parameters of this module."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Sets the gradients of all parameters to None (or to zero)."""
        if self.__dict__.get("_is_replica", False):
            warnings.warn("Calling .zero_grad() from a module created with nn.DataParallel() has no effect. The "
                          "parameters are copied (in a differentiable manner) from the original module. This means "
                          "they are not leaf nodes in autograd and so don't accumulate gradients. If you need "
                          "gradients in your forward method, consider using autograd.grad instead.", stacklevel=2)
        for p in self.parameters():
            if p.grad is not None:
                if set_to_none or device_dispatch.async_errors.about(p.grad):
                    p.grad = None
                else:
                    if p.grad.grad_fn is not None:
                        p.grad.detach_()
                    else:
                        p.grad.requires_grad_(False)
                    p.grad.zero_()

    def compile(self, *args, **kwargs):
        """Compiles this module's calls with torch.compile."""
        self._compiled_call_impl = torch.compile(self._call_impl, *args, **kwargs)

    def _replicate_for_data_parallel(self):
        """Returns a copy with its own dictionaries and without parameters."""
        replica = type(self).__new__(type(self))
        replica.__dict__.update(self.__dict__)
        replica.__dict__.update(_parameters={}, _buffers=self._buffers.copy(), _modules=self._modules.copy(),
                                _is_replica=True)
        return replica


def _call_with_hooks(module, state, called):
    """Runs forward and its hooks.

    `state` is [result, args, kwargs], updated as the call proceeds. `called` collects the ids of
    the forward hooks that ran.
    """
    full, non_full = [], []
    pre = list(_g_backward_pre.values()) + list(module._backward_pre_hooks.values())
    for hooks, is_full in ((_g_backward, everywhere.backward_is_full),
                           (module._backward_hooks, module._is_full_backward_hook)):
        (full if is_full else non_full).extend(hooks.values())

    own_kwargs = module._forward_pre_hooks_with_kwargs
    for hooks, with_kwargs in ((_g_forward_pre, ()), (module._forward_pre_hooks, own_kwargs)):
        for i, hook in list(hooks.items()):
            if i in with_kwargs:
                new = hook(module, state[1], state[2])
                if new is not None:
                    if not (isinstance(new, tuple) and len(new) == 2):
                        raise RuntimeError("forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                                           f"but got {new}.")
                    state[1], state[2] = new
            else:
                new = hook(module, state[1])
                if new is not None:
                    state[1] = new if isinstance(new, tuple) else (new,)

    backward = None
    if full or pre:
        backward = BackwardHook(module, full, pre)
        state[1] = backward.setup_input_hook(state[1])

    state[0] = module.forward(*state[1], **state[2])

    for hooks, always, with_kwargs in (
            (_g_forward, everywhere.forward_always, everywhere.forward_kwargs),
            (module._forward_hooks, module._forward_hooks_always_called, module._forward_hooks_with_kwargs)):
        for i, hook in list(hooks.items()):
            if i in always:
                called.add(i)
            new = hook(module, state[1], state[2], state[0]) if i in with_kwargs else hook(module, state[1], state[0])
            if new is not None:
                state[0] = new

    result = state[0]
    if backward is not None:
        if isinstance(result, (Tensor, tuple)):
            state[0] = result = backward.setup_output_hook(result)
        else:
            warnings.warn("For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but "
                          f"received {type(result)}", stacklevel=3)
    if non_full:
        var = result
        while not is_tensor(var):
            var = next(v for v in var.values() if is_tensor(v)) if isinstance(var, dict) else var[0]
        if var.grad_fn is not None:
            for hook in non_full:
                var.grad_fn.register_hook(functools.update_wrapper(functools.partial(hook, module), hook))
            args = state[1]
            warn_non_full(args[0] if len(args) == 1 else args, result, var.grad_fn)
    return result


def _register_backward(module, hook, full, prepend=False):
    if module._is_full_backward_hook is (not full):
        raise RuntimeError("Cannot use both regular backward hooks and full backward hooks on a single Module. Please "
                           "use only one of them.")
    module._is_full_backward_hook = full
    handle = _register(module._backward_hooks, hook)
    if prepend:
        module._backward_hooks.move_to_end(handle.id, last=False)
    return handle


def _get_member(module, target, fits, what):
    path, _, name = target.rpartition(".")
    m = module.get_submodule(path)
    if not _has(m, name):
        raise AttributeError(f"{m._get_name()} has no attribute `{name}`")
    value = getattr(m, name)
    if not fits(m, name, value):
        raise AttributeError(f"`{name}` is not {what}")
    return value


def _floating(module, dtype):
    return module._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)


def _elsewhere(module, kind, device):
    return module.to(kind if device is None else torch.device(kind, device) if isinstance(device, int) else device)


def _forget(d, name, *holders):
    """Removes `name` from __dict__ and from the `holders`, where another kind of value may be
    registered."""
    d.pop(name, None)
    for h in holders:
        if name in d[h]:
            del d[h][name]
            if h == "_buffers":
                d["_non_persistent_buffers_set"].discard(name)
