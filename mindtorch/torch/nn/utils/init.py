"""Modules without weight initialization
(https://pytorch.org/docs/stable/generated/torch.nn.utils.skip_init.html)."""
import inspect

from mindtorch.torch.nn.modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls, *args, **kwargs):
    """Creates module_cls(*args, **kwargs) with uninitialized parameters and buffers, without
    consuming random numbers."""
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    final = kwargs.pop("device", "cpu")
    return module_cls(*args, device="meta", **kwargs).to_empty(device=final)
