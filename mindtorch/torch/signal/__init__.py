"""torch.signal: signal processing."""
from mindtorch.torch.signal import windows

__all__ = ["windows"]
