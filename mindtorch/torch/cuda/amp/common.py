"""torch.cuda.amp.common."""
from importlib.util import find_spec

from mindtorch.core.device import device as _device

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available():
    """True if neither an accelerator nor torch_xla is available."""
    return not (_device.accelerator() or find_spec("torch_xla"))
