"""torch.func: function transforms (https://pytorch.org/docs/stable/func.html).

grad, vjp and jacrev run reverse-mode autograd over fresh copies of the inputs; jvp and jacfwd
propagate tangents. vmap calls the function once, on batched tensors.
"""
from mindtorch.torch.func._modules import (functional_call, functionalize, debug_unwrap, replace_all_batch_norm_modules_,
                                           stack_module_state)
from mindtorch.torch.func._transforms import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from mindtorch.torch.func._vmap import vmap

__all__ = ["grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "vmap", "linearize", "functionalize",
           "functional_call", "stack_module_state", "replace_all_batch_norm_modules_", "debug_unwrap", "rearrange"]

# functorch names that torch.func replaces with functional_call, stack_module_state and the
# chunk_size of vmap.
_OLDER = frozenset(["FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "make_functional", "make_functional_with_buffers"])


def __getattr__(name):
    if name in _OLDER:
        from mindtorch.torch._functorch import make_functional
        return getattr(make_functional, name)
    if name == "rearrange":
        from mindtorch.torch.func._rearrange import rearrange
        return rearrange
    if name == "chunk_vmap":
        from mindtorch.torch._functorch.apis import chunk_vmap
        return chunk_vmap
    if name == "make_fx":
        from mindtorch.torch.fx.experimental.proxy_tensor import make_fx
        return make_fx
    raise AttributeError(f"module 'torch.func' has no attribute '{name}'")
