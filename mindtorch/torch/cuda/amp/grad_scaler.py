"""torch.cuda.amp.grad_scaler: deprecated name of torch.amp's GradScaler."""
from mindtorch.torch._deprecation import deprecated
from mindtorch.torch.amp import grad_scaler as _scaler
from mindtorch.torch.amp.grad_scaler import OptState  # noqa: F401

__all__ = ["GradScaler"]


class GradScaler(_scaler.GradScaler):
    """torch.amp.GradScaler('cuda', ...)."""

    @deprecated("`torch.cuda.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cuda', args...)` instead.")
    def __init__(self, init_scale=2.0 ** 16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
