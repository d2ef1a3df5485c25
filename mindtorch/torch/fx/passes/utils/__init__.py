"""torch.fx.passes.utils."""
from mindtorch.torch.fx.passes.utils.common import HolderModule, compare_graphs, lift_subgraph_as_module  # noqa: F401
