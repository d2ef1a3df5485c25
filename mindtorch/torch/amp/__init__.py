"""torch.amp: gradient scaling and autocast (https://pytorch.org/docs/stable/amp.html)."""
from mindtorch.torch.amp.autocast_mode import (autocast, custom_bwd, custom_fwd, is_autocast_available)  # noqa: F401
from mindtorch.torch.amp.grad_scaler import GradScaler  # noqa: F401
from mindtorch.torch.amp import autocast_mode, grad_scaler  # noqa: F401

__all__ = ["autocast", "GradScaler", "custom_fwd", "custom_bwd", "is_autocast_available"]
