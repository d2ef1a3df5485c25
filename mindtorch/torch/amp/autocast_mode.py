"""torch.amp.autocast."""
import functools
import warnings

from mindtorch.core import device as _device
from mindtorch.core import dtypes

__all__ = ["autocast", "custom_fwd", "custom_bwd", "is_autocast_available"]


def is_autocast_available(device_type):
    """True if autocast works on that device type."""
    return False


class autocast:
    """Mixed precision regions.

    `enabled=False`, and 'cuda' on a machine without one (where torch disables it with a warning as well), leave everything
    in the tensors' own dtypes.  Casting itself is not supported yet: entering an enabled region raises
    NotImplementedError.
    """

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device, self._enabled = device_type, bool(enabled)
        self.fast_dtype = dtype or dtypes.NAMES["bfloat16" if device_type == "cpu" else "float16"]
        if device_type not in ("cpu",) and enabled and device_type not in _device.accelerator():
            warnings.warn(f"User provided device_type of '{device_type}', but {device_type.upper()} is not available. Disabling",
                          stacklevel=3)
            self._enabled = False

    def __enter__(self):
        if self._enabled:
            raise NotImplementedError(f"torch.autocast to {self.fast_dtype} is not supported on device {self.device}; "
                                      "use enabled=False or cast the model with .to(dtype)")
        return self

    def __exit__(self, *exc):
        return False

    def __call__(self, func):
        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            with self:
                return func(*args, **kwargs)
        return wrapper


def custom_fwd(fwd=None, *, device_type=None, cast_inputs=None):
    """Marks the forward of a Function used under autocast."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    return fwd


def custom_bwd(bwd=None, *, device_type=None):
    """Marks the backward of a Function used under autocast."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    return bwd
