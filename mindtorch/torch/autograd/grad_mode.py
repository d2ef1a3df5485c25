"""torch.autograd.grad_mode."""
from mindtorch.core.grad_mode import (Switch as _DecoratorContextManager, enable_grad, inference_mode,  # noqa: F401
                                      no_grad, set_grad_enabled)

__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "set_multithreading_enabled"]


class set_multithreading_enabled(_DecoratorContextManager):
    """Accepted: this engine always runs backward in the calling thread."""

    def __init__(self, mode):
        self.mode = bool(mode)

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        pass

    def _clone(self):
        return type(self)(self.mode)
