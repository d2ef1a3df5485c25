"""torch.utils.deterministic: whether deterministic mode fills uninitialized memory."""
import sys
import types

from mindtorch.core.dispatch import deterministic as _determinism


class _Deterministic(types.ModuleType):
    """Class of this module, so that assigning to its attribute changes the mode."""

    @property
    def fill_uninitialized_memory(self):
        """True if new memory is filled with NaN, the largest integer or True while deterministic
        algorithms are enabled."""
        return _determinism.MODE.fill

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, value):
        if not isinstance(value, bool):
            raise RuntimeError(f"expected a bool, but got {type(value).__name__}")
        _determinism.switch(fill=value)


sys.modules[__name__].__class__ = _Deterministic
