"""torch.cpu.amp.autocast_mode: deprecated name of torch.amp's autocast."""
from mindtorch.core.tensor.dtypes import bfloat16
from mindtorch.torch._deprecation import deprecated_class
from mindtorch.torch.amp import autocast_mode as _mode

#: Capture policy of this module's functions under torch.compile (see `torch/_dynamo/_capture.py`).
CAPTURE = "followed"

__all__ = ["autocast"]


@deprecated_class("`torch.cpu.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cpu', args...)` instead.")
class autocast(_mode.autocast):
    """torch.amp.autocast for the CPU."""

    def __init__(self, enabled=True, dtype=bfloat16, cache_enabled=True):
        super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
