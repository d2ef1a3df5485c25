"""Custom autograd functions under vmap: the rule that a function brings with it."""
import collections

from mindtorch.core.tensor import taken
from mindtorch.torch.autograd.function import Function, check_setup
from mindtorch.torch.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

_MORE = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"

#: what a rule is told: how many slices there are, and what random operations may do
VmapInfo = collections.namedtuple("VmapInfo", ["batch_size", "randomness"])


def function_of(f):
    """The autograd.Function whose `apply` this is; None for anything else."""
    owner = getattr(f, "__self__", None)
    return owner if isinstance(owner, type) and getattr(f, "__name__", "") == "apply" and issubclass(owner, Function) else None


def has_vmap_rule(function):
    """Whether a Function has a `vmap` of its own."""
    return function.vmap is not Function.vmap


def check_vmap_support(function):
    """RuntimeError unless a Function says in exactly one way how it is mapped."""
    name = function.__name__
    check_setup(function)
    if function.generate_vmap_rule and has_vmap_rule(function):
        raise RuntimeError(f"You tried to vmap over {name}, but it has both generate_vmap_rule=True and an overridden vmap staticmethod. Please set "
                           f"generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid ambiguity. {_MORE}")
    if not function.generate_vmap_rule and not has_vmap_rule(function):
        raise RuntimeError(f"You tried to vmap over {name}, but it does not have vmap support. Please override and implement the vmap staticmethod or "
                           f"set generate_vmap_rule=True. {_MORE}")


def custom_vmap(function, info, in_dims, args):
    """(results of the function's own rule, the dimension of each tensor among them or None, their structure)."""
    r = function.vmap(info, in_dims, *args)
    if not isinstance(r, tuple) or len(r) != 2:
        got = f"{len(r)} returns" if isinstance(r, tuple) else f"a {type(r)}"
        raise RuntimeError("Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible with the output. "
                           f"Got {got} instead")
    output, out_dims = r
    leaves, spec = tree_flatten(output)
    dims = _broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        raise RuntimeError(f"The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected out_dims={out_dims} to be "
                           f"compatible with the structure of `output`. out_dims has structure {tree_flatten(out_dims)[1]} but output has structure "
                           f"{spec}. {_MORE}")
    return leaves, dims, spec


def mapped(function, info, leaves, dims, spec, place):
    """vmap over a Function alone, by its rule; place(number of outputs' structure) -> where each output's dimension is to be."""
    outs, at, out_spec = custom_vmap(function, info, tree_unflatten(dims, spec), tree_unflatten(leaves, spec))
    done = []
    for x, d, to in zip(outs, at, place(out_spec)):
        if taken(x) and to is not None:
            x = x.movedim(d, to) if d is not None else _spread(x, info.batch_size, to)
        done.append(x)
    return tree_unflatten(done, out_spec)


def _spread(x, n, to):
    return x.unsqueeze(0).expand(n, *x.shape).movedim(0, to)
