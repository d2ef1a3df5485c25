"""torch.cpu.amp.grad_scaler: deprecated name of torch.amp's GradScaler."""
from mindtorch.torch._deprecation import deprecated
from mindtorch.torch.amp import grad_scaler as _scaler

__all__ = ["GradScaler"]


class GradScaler(_scaler.GradScaler):
    """torch.amp.GradScaler for the CPU."""

    @deprecated("`torch.cpu.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cpu', args...)` instead.")
    def __init__(self, init_scale=2.0 ** 16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
