"""torch._functorch: internals of torch.func that libraries import, implemented on the facade's own
transforms."""
import importlib

_MODULES = frozenset(["apis", "autograd_function", "eager_transforms", "make_functional", "utils", "vmap"])


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module("mindtorch.torch._functorch." + name)
    raise AttributeError(f"module 'torch._functorch' has no attribute '{name}'")
