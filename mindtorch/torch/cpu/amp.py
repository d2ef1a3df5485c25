"""torch.cpu.amp: the older names of torch.amp's classes."""
from mindtorch.torch.amp import autocast_mode as _mode
from mindtorch.torch.amp import grad_scaler as _scaler


class autocast(_mode.autocast):
    """torch.amp.autocast for the CPU."""

    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_scaler.GradScaler):
    """torch.amp.GradScaler for the CPU."""

    def __init__(self, *args, **kwargs):
        super().__init__("cpu", *args, **kwargs)
