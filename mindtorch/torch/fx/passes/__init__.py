"""torch.fx.passes."""
from mindtorch.torch.fx.passes import shape_prop  # noqa: F401
from mindtorch.torch.fx._submodules import on_demand as _on_demand

__getattr__ = _on_demand(globals())
