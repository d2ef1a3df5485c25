"""torch.autograd.grad_mode."""
import threading

from mindtorch.core.autograd.grad_mode import (GradMode as _DecoratorContextManager, enable_grad, inference_mode,  # noqa: F401
                                      no_grad, set_grad_enabled)
from mindtorch.core.tensor.tensor import is_tensor, version_counter

__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "set_multithreading_enabled"]


class _Threads(threading.local):
    wanted = True


_threads = _Threads()


def is_multithreading_enabled():
    """Returns the last setting of set_multithreading_enabled in this thread. Backward always runs
    in the calling thread."""
    return _threads.wanted


class set_multithreading_enabled(_DecoratorContextManager):
    """Accepted without effect, directly or as a context manager: this engine always runs backward
    in the calling thread."""

    def __init__(self, mode):
        self.prev, self.mode = _threads.wanted, bool(mode)
        _threads.wanted = self.mode

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        _threads.wanted = self.prev

    def __call__(self, func):
        _threads.wanted = self.prev
        return super().__call__(func)

    def _clone(self):
        return type(self)(self.mode)


class _unsafe_preserve_version_counter(_DecoratorContextManager):
    """Context manager that restores the version counters on exit: in-place writes inside go
    undetected for tensors saved for backward."""

    def __init__(self, tensors):
        self.tensors = (tensors,) if is_tensor(tensors) else tuple(tensors)
        self.counts = [t._version for t in self.tensors]

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        for t, v in zip(self.tensors, self.counts):
            version_counter(t).v = v

    def _clone(self):
        return type(self)(self.tensors)
