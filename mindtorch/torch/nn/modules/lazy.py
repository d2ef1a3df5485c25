"""Modules that infer their sizes from the first input.

https://pytorch.org/docs/stable/nn.html#lazy-modules-initialization
"""
from mindtorch.torch.nn.parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Makes a Module lazy: its parameters are uninitialized until the first forward.

    `initialize_parameters`, which the class defines, receives the arguments of the first forward.
    Afterwards the module becomes an instance of `cls_to_become`.
    """

    cls_to_become = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        # Uninitialized parameters cannot be detached, and loading must recognize them.
        for name, p in self._parameters.items():
            if p is not None:
                destination[prefix + name] = p if is_lazy(p) or keep_vars else p.detach()
        for name, b in self._buffers.items():
            if b is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = b if is_lazy(b) or keep_vars else b.detach()

    def _lazy_load_hook(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        """Before loading: allocates uninitialized parameters with the shapes in the state dict."""
        for held in (self._parameters, self._buffers):
            for name, t in held.items():
                given = state_dict.get(prefix + name)
                if t is not None and given is not None and is_lazy(t) and not is_lazy(given):
                    t.materialize(given.shape)

    def initialize_parameters(self, *args, **kwargs):
        """Allocates the parameters with shapes derived from the arguments of the first forward."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self):
        """True while any parameter or buffer is uninitialized."""
        return any(is_lazy(t) for held in (self._parameters, self._buffers) for t in held.values())

    def _infer_parameters(self, module, args, kwargs=None):
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook
        del module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self):
        raise RuntimeError("Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy "
                           "forward pass to correctly initialize the modules")
