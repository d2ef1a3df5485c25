"""torch.autograd.grad_mode."""
import threading

from mindtorch.core.grad_mode import (Switch as _DecoratorContextManager, enable_grad, inference_mode,  # noqa: F401
                                      no_grad, set_grad_enabled)
from mindtorch.core.tensor import taken, version

__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "set_multithreading_enabled"]


class _Threads(threading.local):
    wanted = True


_threads = _Threads()


def is_multithreading_enabled():
    """What set_multithreading_enabled said last in this thread; backward runs in the calling thread either way."""
    return _threads.wanted


class set_multithreading_enabled(_DecoratorContextManager):
    """Accepted, at once or for a `with` block: this engine always runs backward in the calling thread."""

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
    """Writes inside are not counted: what was saved for backward is taken for unchanged, though it is not."""

    def __init__(self, tensors):
        self.tensors = (tensors,) if taken(tensors) else tuple(tensors)
        self.counts = [t._version for t in self.tensors]

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        for t, v in zip(self.tensors, self.counts):
            version(t).v = v

    def _clone(self):
        return type(self)(self.tensors)
