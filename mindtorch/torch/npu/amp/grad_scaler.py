"""torch.npu.amp.grad_scaler."""
from mindtorch.torch.npu.amp import GradScaler

__all__ = ["GradScaler"]
