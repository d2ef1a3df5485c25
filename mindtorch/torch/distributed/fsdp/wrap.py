"""Policies that select the submodules which FullyShardedDataParallel wraps separately."""
import contextlib
import functools

from mindtorch.torch.nn import ModuleDict, ModuleList
from mindtorch.torch.nn.modules.module import Module

__all__ = ["always_wrap_policy", "lambda_auto_wrap_policy", "transformer_auto_wrap_policy", "size_based_auto_wrap_policy",
           "enable_wrap", "wrap", "CustomPolicy", "ModuleWrapPolicy"]


def always_wrap_policy(*args, **kwargs):
    """Wraps every submodule."""
    return True


def lambda_auto_wrap_policy(module, recurse, nonwrapped_numel, lambda_fn):
    """Wraps submodules for which lambda_fn(module) is true."""
    return True if recurse else lambda_fn(module)


def transformer_auto_wrap_policy(module, recurse, nonwrapped_numel, transformer_layer_cls):
    """Wraps submodules of the given classes."""
    return True if recurse else isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(module, recurse, nonwrapped_numel, min_num_params=int(1e8), force_leaf_modules=None,
                                exclude_wrap_modules=None):
    """Wraps submodules with at least `min_num_params` parameters that are not already in a wrapped
    submodule."""
    exclude = exclude_wrap_modules or {ModuleList, ModuleDict}
    large = nonwrapped_numel >= min_num_params
    if recurse:
        return large and not isinstance(module, tuple(force_leaf_modules or ()))
    return large and not isinstance(module, tuple(exclude))


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {ModuleList, ModuleDict}
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = set()


def _or_policy(module, recurse, nonwrapped_numel, policies):
    return any(p(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for p in policies)


class _Policy:
    """Base class of policy objects."""

    def __call__(self, module, recurse, *args, **kwargs):
        return True if recurse else self.wraps(module)


class ModuleWrapPolicy(_Policy):
    """Wraps submodules of the given classes."""

    def __init__(self, module_classes):
        self._module_classes = set(module_classes)

    def wraps(self, module):
        return isinstance(module, tuple(self._module_classes))


class CustomPolicy(_Policy):
    """Wraps submodules for which `lambda_fn(module)` is true. A dict of options as its result is
    not supported."""

    def __init__(self, lambda_fn):
        self._lambda_fn = lambda_fn

    def wraps(self, module):
        r = self._lambda_fn(module)
        if isinstance(r, dict):
            raise NotImplementedError("CustomPolicy with per-module options is not supported: lambda_fn returned a dict")
        return r


def _wrap_by(module, policy, make, ignored):
    """Wraps the submodules selected by a policy, innermost first. Returns the number of wrapped
    parameters."""
    wrapped = 0
    for name, child in module.named_children():
        if child in ignored:
            continue
        numel = sum(p.numel() for p in child.parameters())
        if not policy(module=child, recurse=True, nonwrapped_numel=numel):
            continue
        inner = _wrap_by(child, policy, make, ignored)
        if not isinstance(child, (ModuleList, ModuleDict)) and policy(module=child, recurse=False, nonwrapped_numel=numel - inner):
            setattr(module, name, make(child))
            inner = numel
        wrapped += inner
    return wrapped


_enabled = []


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls, **wrapper_kwargs):
    """Context manager: `wrap` wraps modules."""
    _enabled.append(functools.partial(wrapper_cls, **wrapper_kwargs))
    try:
        yield
    finally:
        _enabled.pop()


def wrap(module, **wrap_overrides):
    """Returns the module wrapped as set by `enable_wrap`, or the module itself outside of one."""
    return _enabled[-1](module, **wrap_overrides) if _enabled and isinstance(module, Module) else module
