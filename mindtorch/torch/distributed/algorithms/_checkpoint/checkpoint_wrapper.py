"""Activation checkpointing as a module wrapper."""
import enum

from mindtorch.torch._refusing import refuse
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.utils.checkpoint import checkpoint

_PREFIX = "_checkpoint_wrapped_module."


class CheckpointImpl(enum.Enum):
    """Variant of activation checkpointing."""

    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class CheckpointWrapper(Module):
    """Wrapper that recomputes a module's forward in backward. Its parameters have their names in
    the wrapped module."""

    def __init__(self, mod, checkpoint_impl=CheckpointImpl.NO_REENTRANT, checkpoint_fn=None, **checkpoint_fn_kwargs):
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.checkpoint_impl = checkpoint_impl
        self._fn, self._kwargs = checkpoint_fn, checkpoint_fn_kwargs
        self._register_state_dict_hook(self._without_prefix)
        self._register_load_state_dict_pre_hook(self._with_prefix, with_module=False)

    def forward(self, *args, **kwargs):
        """Runs the module's forward under checkpoint."""
        if self._fn is not None:
            return self._fn(self._checkpoint_wrapped_module, *args, **self._kwargs, **kwargs)
        return checkpoint(self._checkpoint_wrapped_module, *args, use_reentrant=self.checkpoint_impl is CheckpointImpl.REENTRANT,
                          **self._kwargs, **kwargs)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_checkpoint_wrapped_module"), name)

    def __getitem__(self, key):
        return self._checkpoint_wrapped_module[key]

    def named_parameters(self, *args, **kwargs):
        """Yields the parameters with their names in the wrapped module."""
        for n, p in super().named_parameters(*args, **kwargs):
            yield n.replace(_PREFIX, ""), p

    @staticmethod
    def _without_prefix(module, state, prefix, local_metadata):
        for key in [k for k in state if k.startswith(prefix + _PREFIX)]:
            state[prefix + key[len(prefix) + len(_PREFIX):]] = state.pop(key)
        return state

    @staticmethod
    def _with_prefix(state, prefix, *args):
        for key in [k for k in state if k.startswith(prefix) and not k.startswith(prefix + _PREFIX)]:
            state[prefix + _PREFIX + key[len(prefix):]] = state.pop(key)


def checkpoint_wrapper(module, checkpoint_impl=CheckpointImpl.NO_REENTRANT, checkpoint_fn=None, **checkpoint_fn_kwargs):
    """Wraps the module in a CheckpointWrapper."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda _: True, auto_wrap_policy=None):
    """Wraps in place every submodule for which check_fn returns True, or that auto_wrap_policy
    selects."""
    if auto_wrap_policy is not None:
        from mindtorch.torch.distributed.fsdp.wrap import _wrap_by
        _wrap_by(model, auto_wrap_policy, checkpoint_wrapper_fn, set())
        return
    for name, child in list(model.named_children()):
        apply_activation_checkpointing(child, checkpoint_wrapper_fn, check_fn)
        if check_fn(child):
            setattr(model, name, checkpoint_wrapper_fn(child))


refuse(globals(), "saved tensors are already in host memory", "offload_wrapper", "OffloadWrapper")
