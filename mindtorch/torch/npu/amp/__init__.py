"""torch.npu.amp: torch.amp on the NPU."""
import importlib

from mindtorch.torch.amp import GradScaler as _GradScaler
from mindtorch.torch.amp import autocast as _autocast
from mindtorch.torch.amp import custom_bwd, custom_fwd  # noqa: F401

__all__ = ["autocast", "GradScaler", "custom_fwd", "custom_bwd"]


class autocast(_autocast):
    """Shorthand for torch.amp.autocast('npu', ...)."""

    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        super().__init__("npu", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """Shorthand for torch.amp.GradScaler('npu', ...)."""

    def __init__(self, init_scale=2.0 ** 16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        super().__init__("npu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def __getattr__(name):
    if name in ("autocast_mode", "grad_scaler"):
        return importlib.import_module(f"mindtorch.torch.npu.amp.{name}")
    raise AttributeError(f"module 'torch.npu.amp' has no attribute '{name}'")
