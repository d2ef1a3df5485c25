"""torch.autograd.profiler: the names that ordinary code touches; timing itself is not offered here."""
import contextlib

from mindtorch.torch._refusing import refuse

__all__ = ["record_function", "profile"]


class record_function(contextlib.ContextDecorator):
    """Labels a block of code for a profiler; without one it does nothing, as in torch."""

    def __init__(self, name, args=None):
        self.name, self.args = name, args

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False


refuse(globals(), "operators are not listed; use mindspore.profiler.profile", "", "EventList emit_nvtx emit_itt")


def profile(*args, **kwargs):
    raise NotImplementedError("torch.autograd.profiler.profile is not supported; use mindspore.profiler.profile")
