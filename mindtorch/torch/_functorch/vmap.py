"""torch._functorch.vmap."""
from mindtorch.torch.func._vmap import vmap

__all__ = ["vmap"]
