"""torch._functorch.apis: vmap, grad, grad_and_value, and chunked vmap."""
import functools

from mindtorch.torch.func._transforms import grad, grad_and_value
from mindtorch.torch.func._vmap import _process_batched_inputs, vmap

__all__ = ["vmap", "grad", "grad_and_value", "chunk_vmap"]


def chunk_vmap(func, in_dims=0, out_dims=0, randomness="error", chunks=2):
    """vmap that processes the batch in `chunks` parts."""
    def chunked(*args, **kwargs):
        size = _process_batched_inputs(in_dims, args, func)[0]
        return vmap(func, in_dims=in_dims, out_dims=out_dims, randomness=randomness, chunk_size=max(-(-size // chunks), 1))(*args, **kwargs)
    return functools.wraps(func)(chunked)
