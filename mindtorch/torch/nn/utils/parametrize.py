"""Parametrizations: tensors computed from other tensors
(https://pytorch.org/docs/stable/nn.html#parametrizations)."""
import collections
import copy
from contextlib import contextmanager

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Parameter, is_tensor
from mindtorch.torch.nn.modules.container import ModuleDict, ModuleList

__all__ = ["cached", "ParametrizationList", "register_parametrization", "is_parametrized", "remove_parametrizations",
           "type_before_parametrizations", "transfer_parametrizations_and_params"]

_cache_enabled = 0
_cache = {}


@contextmanager
def cached():
    """Caches each parametrized tensor within the block."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _register_parameter_or_buffer(module, name, x):
    if is_tensor(x, Parameter):
        module.register_parameter(name, x)
    else:
        module.register_buffer(name, x)


def _maybe_set(dest, src):
    """Sets the data of `dest` to `src`."""
    dest.data = src


def _as_original(like, value):
    """Returns `value`, as a Parameter if `like` is one."""
    if is_tensor(like, Parameter) and not is_tensor(value, Parameter):
        return Parameter(value, like.requires_grad)
    return value


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied in sequence to the stored tensors.

    The stored tensor is `original`, or original0, original1, ... if the first parametrization's
    right_inverse returns several tensors.
    """

    def __init__(self, modules, original, unsafe=False):
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with torch.no_grad():
            new = original
            for module in reversed(self):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:
                        pass
        if not is_tensor(new) and not isinstance(new, collections.abc.Sequence):
            raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
                             f"{type(new).__name__}")
        self.is_tensor = is_tensor(new)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if dtype != new.dtype:
                raise ValueError("When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                                 f"original.dtype: {dtype}\nright_inverse(original).dtype: {new.dtype}")
            if original.device != new.device:
                raise ValueError("When `right_inverse` outputs one tensor, it may not change the device.\n"
                                 f"original.device: {original.device}\nright_inverse(original).device: {new.device}")
            # The parameter stays the same object, because existing optimizers refer to it.
            _maybe_set(original, new)
            _register_parameter_or_buffer(self, "original", original)
        else:
            for i, t in enumerate(new):
                if not is_tensor(t):
                    raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                                     f"Got element {i} of the sequence with type {type(t).__name__}.")
                _register_parameter_or_buffer(self, f"original{i}", _as_original(original, t))
        if not unsafe:
            made = self()
            if not is_tensor(made):
                raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
            if made.dtype != dtype:
                raise ValueError("Registering a parametrization may not change the dtype of the tensor, unless "
                                 f"`unsafe` flag is enabled.\nunparametrized dtype: {dtype}\nparametrized dtype: "
                                 f"{made.dtype}")
            if made.shape != shape:
                raise ValueError("Registering a parametrization may not change the shape of the tensor, unless "
                                 f"`unsafe` flag is enabled.\nunparametrized shape: {shape}\nparametrized shape: "
                                 f"{made.shape}")

    def right_inverse(self, value):
        """Updates the stored tensors so that the parametrizations yield `value`, as far as
        possible."""
        with torch.no_grad():
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            if self.is_tensor:
                if not is_tensor(value):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
                if value.dtype != self.original.dtype:
                    raise ValueError("The tensor `right_inverse` returned has another dtype than the parametrized "
                                     f"tensor: {value.dtype}, expected {self.original.dtype}")
                _maybe_set(self.original, value)
                return
            if not isinstance(value, collections.abc.Sequence):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(value)}.")
            if len(value) != self.ntensors:
                raise ValueError("'right_inverse' must return a sequence of tensors of length "
                                 f"{self.ntensors}. Got a sequence of length {len(value)}.")
            for i, t in enumerate(value):
                original = getattr(self, f"original{i}")
                if not is_tensor(t):
                    raise ValueError(f"`right_inverse` must return a sequence of tensors. Got element {i} of type "
                                     f"{type(t).__name__}")
                if original.dtype != t.dtype:
                    raise ValueError(f"Tensor {i} returned by `right_inverse` has dtype {t.dtype}, while `original{i}` "
                                     f"has dtype {original.dtype}")
                _maybe_set(original, t)

    def forward(self):
        originals = (self.original,) if self.is_tensor else (getattr(self,
                                                                     f"original{i}") for i in range(self.ntensors))
        x = self[0](*originals)
        for i in range(1, len(self)):
            x = self[i](x)
        return x


def _inject_new_class(module):
    """Replaces the class of `module` with a new subclass, to which properties can be added."""
    cls = type(module)

    def __getstate__(self):
        raise RuntimeError("Serialization of parametrized modules is only supported through state_dict(). See:\n"
                           "https://pytorch.org/tutorials/beginner/saving_loading_models.html#saving-loading-a-general"
                           "-checkpoint-for-inference-and-or-resuming-training")

    def __deepcopy__(self, memo):
        existing = memo.get(id(self))
        if existing is not None:
            return existing
        replica = self.__new__(type(self))
        memo[id(self)] = replica
        replica.__dict__ = copy.deepcopy(self.__dict__, memo)
        # The class belongs to this object alone, so the copy needs its own.
        replica.__class__ = type(type(self).__name__, type(self).__bases__, dict(vars(type(self))))
        return replica

    body = {"__getstate__": __getstate__, "__module__": "torch.nn.utils.parametrize"}
    if not hasattr(cls, "__deepcopy__"):
        body["__deepcopy__"] = __deepcopy__
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), body)


def _inject_property(module, tensor_name):
    """Replaces the attribute with a property that runs the parametrizations."""
    def get(self):
        if not _cache_enabled:
            return self.parametrizations[tensor_name]()
        key = (id(self), tensor_name)
        value = _cache.get(key)
        if value is None:
            value = _cache[key] = self.parametrizations[tensor_name]()
        return value

    def set(self, value):
        self.parametrizations[tensor_name].right_inverse(value)

    setattr(type(module), tensor_name, property(get, set))


def _append(module, name, parametrization, unsafe):
    """Appends a parametrization to the existing ones."""
    if not unsafe:
        y = getattr(module, name)
        x = parametrization(y)
        if not is_tensor(x):
            raise ValueError(f"A parametrization must return a tensor. Got {type(x).__name__}.")
        if x.dtype != y.dtype:
            raise ValueError("Registering a parametrization may not change the dtype of the tensor, unless the "
                             f"`unsafe` flag is enabled.\nmodule.{name}.dtype: "
                             f"{y.dtype}\nparametrization(module.{name}).dtype: {x.dtype}")
        if x.shape != y.shape:
            raise ValueError("Registering a parametrization may not change the shape of the tensor, unless the "
                             f"`unsafe` flag is enabled.\nmodule.{name}.shape: "
                             f"{y.shape}\nparametrization(module.{name}).shape: {x.shape}")
        if hasattr(parametrization, "right_inverse"):
            try:
                z = parametrization.right_inverse(x)
            except NotImplementedError:
                pass
            else:
                if not is_tensor(z):
                    raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(z).__name__}")
                if z.dtype != y.dtype:
                    raise ValueError("The tensor returned by parametrization.right_inverse must have the same dtype "
                                     f"as module.{name}, unless the `unsafe` flag is enabled.\nmodule.{name}.dtype: "
                                     f"{y.dtype}\nreturned dtype: {z.dtype}")
                if z.shape != y.shape:
                    raise ValueError("The tensor returned by parametrization.right_inverse must have the same shape "
                                     f"as module.{name}, unless the `unsafe` flag is enabled.\nmodule.{name}.shape: "
                                     f"{y.shape}\nreturned shape: {z.shape}")
    parametrizations = module.parametrizations[name]
    parametrizations.append(parametrization)
    parametrizations.unsafe |= unsafe


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Replaces module.<tensor_name> with the result of parametrization(original).

    `unsafe` allows a different shape or dtype. The attribute can be assigned to if the
    parametrization defines `right_inverse`.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        _append(module, tensor_name, parametrization, unsafe)
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        # Created before `module` is modified, because the constructor may raise.
        parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_new_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations._modules[tensor_name] = parametrizations
    else:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
                         f"'{tensor_name}'")
    return module


def is_parametrized(module, tensor_name=None):
    """True if the module (or its tensor `tensor_name`) has a parametrization."""
    parametrizations = module._modules.get("parametrizations")
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Removes the parametrizations of a tensor.

    The tensor keeps its current value if `leave_parametrized`, otherwise the stored original is
    restored.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    if parametrizations.is_tensor:
        original = parametrizations.original
        if leave_parametrized:
            with torch.no_grad():
                value = getattr(module, tensor_name)
            _maybe_set(original, value.detach())
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in "
                         "terms of a sequence of tensors.")
    delattr(type(module), tensor_name)
    del module.parametrizations._modules[tensor_name]
    _register_parameter_or_buffer(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module):
    """Returns the class that the module had before its first parametrization."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module, to_module, tensor_name=None):
    """Copies parametrizations and their stored tensors to another module."""
    if not is_parametrized(from_module):
        return to_module
    for name in [tensor_name] if tensor_name is not None else list(from_module.parametrizations):
        if name not in from_module.parametrizations:
            continue
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(source.original if source.is_tensor else source.original0))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target = to_module.parametrizations[name]
        with torch.no_grad():
            if source.is_tensor:
                target.original.copy_(source.original)
            else:
                for i in range(source.ntensors):
                    getattr(target, f"original{i}").copy_(getattr(source, f"original{i}"))
    return to_module
