"""torch.cuda.amp.autocast_mode: deprecated names of torch.amp's autocast and decorators."""
from mindtorch.core.tensor.dtypes import float16
from mindtorch.torch._deprecation import deprecated, deprecated_class
from mindtorch.torch.amp import autocast_mode as _mode

#: Capture policy of this module's functions under torch.compile (see `torch/_dynamo/_capture.py`).
CAPTURE = "followed"

__all__ = ["autocast", "custom_fwd", "custom_bwd"]


@deprecated_class("`torch.cuda.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cuda', args...)` instead.")
class autocast(_mode.autocast):
    """torch.amp.autocast('cuda', ...)."""

    def __init__(self, enabled=True, dtype=float16, cache_enabled=True):
        super().__init__("cuda", dtype, enabled, cache_enabled)


@deprecated("`torch.cuda.amp.autocast_mode._cast(value, dtype)` is deprecated. Please use "
            "`torch.amp.autocast_mode._cast(value, 'cuda', dtype)` instead.")
def _cast(value, dtype):
    return _mode._cast(value, "cuda", dtype)


@deprecated("`torch.cuda.amp.custom_fwd(args...)` is deprecated. Please use `torch.amp.custom_fwd(args..., device_type='cuda')` instead.")
def custom_fwd(fwd=None, *, cast_inputs=None):
    """torch.amp.custom_fwd for device type 'cuda'."""
    return _mode.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


@deprecated("`torch.cuda.amp.custom_bwd(args...)` is deprecated. Please use `torch.amp.custom_bwd(args..., device_type='cuda')` instead.")
def custom_bwd(bwd):
    """torch.amp.custom_bwd for device type 'cuda'."""
    return _mode.custom_bwd(bwd, device_type="cuda")
