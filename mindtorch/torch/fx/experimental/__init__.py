"""torch.fx.experimental."""
from mindtorch.torch.fx._submodules import on_demand as _on_demand

__getattr__ = _on_demand(globals())
