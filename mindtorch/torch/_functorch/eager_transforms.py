"""torch._functorch.eager_transforms: the transforms that differentiate, and their selection of
arguments."""
from mindtorch.torch.func._modules import functionalize
from mindtorch.torch.func._transforms import argument_indices, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp

__all__ = ["grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "linearize", "functionalize"]


def _validate_and_wrap_argnums(argnums, num_args):
    """Returns argnums as non-negative indices, in the form in which they were passed. RuntimeError
    if they are out of range for `num_args` arguments."""
    places = argument_indices(argnums, num_args)
    return places if isinstance(argnums, tuple) else places[0]


def _slice_argnums(args, argnums, as_tuple=True):
    """Returns the arguments at these indices. For a single index, the argument itself unless
    as_tuple."""
    found = tuple([args[i] for i in argument_indices(argnums, len(args))])
    return found if as_tuple or isinstance(argnums, tuple) else found[0]
