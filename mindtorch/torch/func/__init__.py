"""torch.func: function transforms (https://pytorch.org/docs/stable/func.html).

grad, vjp and the Jacobians run the tape over fresh copies of the inputs; vmap calls the function once for each slice.
"""
from mindtorch.torch.func._modules import (functional_call, functionalize, debug_unwrap, replace_all_batch_norm_modules_,
                                           stack_module_state)
from mindtorch.torch.func._transforms import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from mindtorch.torch.func._vmap import vmap

__all__ = ["grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "vmap", "linearize", "functionalize",
           "functional_call", "stack_module_state", "replace_all_batch_norm_modules_", "debug_unwrap"]
