"""torch.fx.graph."""
from mindtorch.torch.fx import CodeGen, Graph  # noqa: F401
