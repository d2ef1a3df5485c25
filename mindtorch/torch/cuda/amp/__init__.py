"""torch.cuda.amp: deprecated names of torch.amp."""
from mindtorch.torch.cuda.amp import autocast_mode, common, grad_scaler  # noqa: F401
from mindtorch.torch.cuda.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from mindtorch.torch.cuda.amp.common import amp_definitely_not_available
from mindtorch.torch.cuda.amp.grad_scaler import GradScaler

__all__ = ["amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd", "GradScaler"]
