"""torch.npu.amp.autocast_mode."""
from mindtorch.torch.npu.amp import autocast, custom_bwd, custom_fwd

__all__ = ["autocast", "custom_fwd", "custom_bwd"]
