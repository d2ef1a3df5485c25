"""torch.utils.deterministic: whether deterministic mode fills memory that an op leaves unwritten."""
import sys
import types

from mindtorch.core import determinism as _determinism


class _Deterministic(types.ModuleType):
    """The module itself, so that assigning to its attribute changes the mode."""

    @property
    def fill_uninitialized_memory(self):
        """Whether new memory is filled with nan, the largest integer or True while deterministic algorithms are asked for."""
        return _determinism.MODE.fill

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, value):
        if not isinstance(value, bool):
            raise RuntimeError(f"expected a bool, but got {type(value).__name__}")
        _determinism.switch(fill=value)


sys.modules[__name__].__class__ = _Deterministic
