"""torch.utils."""
from mindtorch.torch.utils import checkpoint, data  # noqa: F401
