"""torch.utils."""
from mindtorch.torch.utils import _pytree, checkpoint, data  # noqa: F401
