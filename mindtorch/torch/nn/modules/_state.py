"""Saving and loading of module state: the implementation of state_dict() and load_state_dict()."""
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Mapping

import mindtorch.torch as torch
from mindtorch.backend.mindspore import cell as _cell
from mindtorch.backend.mindspore.cell import Cell, forget_names
from mindtorch.core.dispatch.traceback_filter import api_boundary
from mindtorch.core.tensor.tensor import Parameter, is_tensor
from mindtorch.torch.nn.modules._hooks import WrappedHook, _register
from mindtorch.torch.nn.parameter import is_lazy

EXTRA_STATE = "_extra_state"
_NO_EXTRA = "Reached a code path in Module.{}_extra_state() that should never be called: the module does not define it."


class conversion:
    """Settings of torch.__future__: whether converted parameters are new objects or are swapped
    with the old ones."""

    overwrite = swap = False


class IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """Result of load_state_dict(): the keys missing from the state dict, and those unknown to the
    module."""

    __slots__ = ()

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


IncompatibleKeys.__name__ = IncompatibleKeys.__qualname__ = "_IncompatibleKeys"


# Set by _cells.py: converts a MindSpore Cell to a Module; checks whether a Cell counts as a child.
adopt_cell = is_child = None


def as_child(module, value):
    """Returns `value`, converted to a Module if it is a MindSpore Cell that can be a child of
    `module`."""
    if not isinstance(value, _cell.module_class) and isinstance(value, Cell) and is_child(module, value):
        if "_modules" not in module.__dict__:
            raise AttributeError("cannot assign module before Module.__init__() call")
        forget_names(adopt_cell(value, module.training))
    return value


def submodules(module):
    """Yields (name, child) for the direct children that are not None. MindSpore Cells are converted
    to Modules first."""
    for name, m in module._modules.items():
        if m is not None and (isinstance(m, _cell.module_class) or not isinstance(m, Cell) or isinstance(as_child(module, m), _cell.module_class)):
            yield name, m


def _overrides(module, name):
    return getattr(type(module), name) is not getattr(StateMixin, name)


def _persistent(module):
    """Yields (name, tensor) for parameters and persistent buffers, in state_dict order. Tensors may
    be None."""
    yield from module._parameters.items()
    hidden = module._non_persistent_buffers_set
    for name, buf in module._buffers.items():
        if name not in hidden:
            yield name, buf


def _load_one(module, name, target, key, given, assign):
    """Copies or assigns one tensor. Returns an error message, or None."""
    if not is_tensor(given) and not hasattr(type(given), "__torch_function__"):
        return (f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from '
                f"checkpoint but received {type(given)}")
    lazy = is_lazy(target)
    if not lazy:
        if target.dim() == 0 and given.dim() == 1 and given.shape[0] == 1:
            given = given[0]  # PyTorch 0.3 checkpoints stored scalars as one-element vectors
        if given.shape != target.shape:
            return (f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, the shape in "
                    f"current model is {target.shape}.")
    if target.is_meta and not given.is_meta and not assign:
        warnings.warn(f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the "
                      "current model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the "
                      "state dictionary to their corresponding key in the module instead of copying them in place?)",
                      stacklevel=3)
    swap = conversion.swap
    try:
        with torch.no_grad():
            if swap:
                new = target.module_load(given, assign=assign)
                if new is given or new is target:
                    raise RuntimeError(f"module_load returned one of self or other, please .detach() the result if returning one of the inputs in "
                                       f"{type(target).__name__}.module_load")
                if is_tensor(target, Parameter):
                    if not is_tensor(new, Parameter):
                        new = Parameter(new, requires_grad=target.requires_grad)
                    else:
                        new.requires_grad_(target.requires_grad)
                torch.utils.swap_tensors(target, new)
                return None
            if not assign:
                target.copy_(given)
                return None
            if is_tensor(target, Parameter):
                if not is_tensor(given, Parameter):
                    given = Parameter(given, requires_grad=target.requires_grad)
                else:
                    given.requires_grad_(target.requires_grad)
            setattr(module, name, given)
    except Exception as e:                   # noqa: BLE001  reported with all others by load_state_dict
        shape = "unknown" if lazy else target.shape
        return (f'While {"swapping" if swap else "assigning" if assign else "copying"} the parameter named "{key}", whose dimensions in the '
                f"model are {shape} and whose dimensions in the checkpoint are {given.shape}, an exception occurred : "
                f"{e.args}.")
    return None


def _load(module, part, prefix, metadata, assign, found):
    """Loads the state of a module and its descendants.

    `found` holds the lists of missing keys, unexpected keys and errors. (This is not a nested
    function of load_state_dict: a recursive closure is a reference cycle, which would keep the
    entire state dict alive.)
    """
    local = {} if metadata is None else metadata.get(prefix[:-1], {})
    if assign:
        local["assign_to_params_buffers"] = True
    module._load_from_state_dict(part, prefix, local, True, *found)
    for name, child in submodules(module):
        below = f"{prefix}{name}."
        _load(child, {k: v for k, v in part.items() if k.startswith(below)}, below, metadata, assign, found)
    result = IncompatibleKeys(*found[:2])
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, result) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                "values, if incompatible_keys need to be modified, it should be done inplace.")


class StateMixin:
    """Mixin with state_dict(), load_state_dict() and their hooks."""

    __slots__ = ()

    # ---- hooks
    def register_state_dict_pre_hook(self, hook):
        """Registers hook(module, prefix, keep_vars), called before state_dict() collects this
        module."""
        return _register(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook):
        """Registers hook(module, state_dict, prefix, local_metadata) -> None, called after
        state_dict() collected this module."""
        hook._from_public_api = True
        return _register(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook):
        """Like `register_state_dict_post_hook`, but the hook may return another state_dict."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError("Cannot register the same function as the state dict post hook that was previously "
                               "registered via register_state_dict_post_hook")
        return _register(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook):
        """Registers hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected,
        errors), called before loading."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return _register(self._load_state_dict_pre_hooks, WrappedHook(hook, self if with_module else None))

    def register_load_state_dict_post_hook(self, hook):
        """Registers hook(module, incompatible_keys), called after load_state_dict(). It may modify
        the keys in place."""
        return _register(self._load_state_dict_post_hooks, hook)

    # ---- extra state
    def get_extra_state(self):
        """Returns additional state to include in state_dict(). Override together with
        `set_extra_state`."""
        raise RuntimeError(_NO_EXTRA.format("get"))

    def set_extra_state(self, state):
        """Restores the state that `get_extra_state` returned."""
        raise RuntimeError(_NO_EXTRA.format("set"))

    # ---- saving
    def _save_to_state_dict(self, destination, prefix, keep_vars):
        """Stores this module's own tensors (not its children's) in `destination`."""
        for name, t in _persistent(self):
            if t is not None:
                destination[prefix + name] = t if keep_vars else t.detach()
        if _overrides(self, "get_extra_state"):
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """Returns the parameters and persistent buffers of the entire module under dotted names.
        They are detached unless `keep_vars`."""
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead. Refer to "
                          "https://pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.state_dict "
                          "for details.",
                          FutureWarning, stacklevel=2)
            if destination is None:
                destination = args[0]
            if len(args) > 1 and prefix == "":
                prefix = args[1]
            if len(args) > 2 and keep_vars is False:
                keep_vars = args[2]
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in submodules(self):
            module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            new = hook(self, destination, prefix, metadata)
            if getattr(hook, "_from_public_api", False):
                if new is not None:
                    raise RuntimeError("state_dict post-hook must return None")
            elif new is not None:
                destination = new
        return destination

    # ---- loading
    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                              error_msgs):
        """Loads this module's own tensors (not its children's) from `state_dict`; appends errors to
        the lists."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        persistent = {name: t for name, t in _persistent(self) if t is not None}
        for name, t in persistent.items():
            key = prefix + name
            if key in state_dict:
                message = _load_one(self, name, t, key, state_dict[key], assign)
                if message:
                    error_msgs.append(message)
            elif strict:
                missing_keys.append(key)

        extra = prefix + EXTRA_STATE
        if _overrides(self, "set_extra_state"):
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    head, dot, _ = key[len(prefix):].partition(".")
                    # A child reports unexpected keys below it; only names without such a child are
                    # reported here.
                    if key[len(prefix):] not in persistent and (not dot or head not in self._modules):
                        unexpected_keys.append(key)

    @api_boundary
    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copies the tensors of `state_dict` into this module, or assigns them with `assign`.

        Returns the missing and unexpected keys. With `strict` these raise RuntimeError; shape
        mismatches always do.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing, unexpected, errors = [], [], []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        if metadata is not None:
            state_dict._metadata = metadata

        _load(self, state_dict, "", metadata, assign, (missing, unexpected, errors))
        if strict:
            for what, keys in (("Unexpected", unexpected), ("Missing", missing)):
                if keys:
                    listed = ", ".join(f'"{k}"' for k in keys)
                    errors.insert(0, f"{what} key(s) in state_dict: {listed}. ")
        if errors:
            listed = "\n\t".join(errors)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}")
        return IncompatibleKeys(missing, unexpected)
