"""torch.cpu.amp: deprecated names of torch.amp's classes."""
from mindtorch.torch.cpu.amp import autocast_mode, grad_scaler  # noqa: F401
from mindtorch.torch.cpu.amp.autocast_mode import autocast  # noqa: F401
from mindtorch.torch.cpu.amp.grad_scaler import GradScaler  # noqa: F401
