"""torch.fx.passes."""
from mindtorch.torch.fx.passes import shape_prop  # noqa: F401
