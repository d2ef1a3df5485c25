"""Custom autograd functions under vmap: the function's own vmap rule."""
import collections
import contextlib

from mindtorch.core.transforms import vmap, functorch_levels
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.autograd.function import Function, _SingleLevelFunction, _under_vmap, check_setup
from mindtorch.torch.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_leaves, tree_map, tree_unflatten

_MORE = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"

#: information passed to a vmap rule: the number of slices and the randomness mode
VmapInfo = collections.namedtuple("VmapInfo", ["batch_size", "randomness"])


def has_vmap_rule(function):
    """True if a Function overrides `vmap`."""
    return function.vmap is not Function.vmap


def check_vmap_support(function):
    """Raises RuntimeError unless a Function defines exactly one way to be vmapped."""
    name = function.__name__
    check_setup(function)
    if function.generate_vmap_rule and has_vmap_rule(function):
        raise RuntimeError(f"You tried to vmap over {name}, but it has both generate_vmap_rule=True and an overridden vmap staticmethod. Please set "
                           f"generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid ambiguity. {_MORE}")
    if not function.generate_vmap_rule and not has_vmap_rule(function):
        raise RuntimeError(f"You tried to vmap over {name}, but it does not have vmap support. Please override and implement the vmap staticmethod or "
                           f"set generate_vmap_rule=True. {_MORE}")


def custom_vmap(function, info, in_dims, args):
    """Returns (results of the function's own vmap rule, the dimension of each tensor among them or
    None, their structure)."""
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


def _by_rule(function, level, args):
    """Calls a function's own vmap rule on the tensors of all slices."""
    def batch_dim(x):
        if not is_tensor(x) or not vmap.remove_batch_dim(x, level)[1]:
            return None
        entered = level.given.get(id(x))
        return 0 if entered is None else entered[2]

    def unbatched(x):
        if not is_tensor(x):
            return x
        # the rule receives the tensors that were passed to vmap, unchanged
        entered = level.given.get(id(x))
        return vmap.remove_batch_dim(x, level)[0] if entered is None else entered[1]
    with vmap._Outside(level), functorch_levels.below(level) if level.marks else contextlib.nullcontext():
        outs, at, spec = custom_vmap(function, VmapInfo(level.size, level.randomness), tree_map(batch_dim, tuple(args)), tree_map(unbatched, tuple(args)))
        done = []
        for x, d in zip(outs, at):
            if is_tensor(x):
                x = vmap.add_batch_dim(x if not d else x.movedim(d, 0), d is not None, level)
                if x._handle.value._requires_grad_:
                    level.deep = True
            done.append(x)
    return tree_unflatten(done, spec)


def apply(function, level, args, kwargs):
    """Applies a Function to batched tensors.

    If it is differentiated inside the vmap, it is recorded on the batched tensors, with its vmap
    rule (if any) as its forward. Otherwise its vmap rule is called. Without a rule, it is applied
    to each slice if the full tensors have autograd history or if it reads values.
    """
    if issubclass(function, _SingleLevelFunction):
        return function._apply_plain(args, kwargs)[0]  # has a transform level of its own
    if level.marks:
        check_vmap_support(function)
    tensors = [x for x in tree_leaves((args, kwargs)) if is_tensor(x)]
    batched = [x for x in tensors if vmap.level_of(x) is level]
    inside = mode.on and any([x._requires_grad_ for x in batched])
    outside = mode.on and level.outside and any([vmap.remove_batch_dim(x, level)[0]._requires_grad_ for x in tensors])
    rule = has_vmap_rule(function)
    if inside and outside:
        raise NotImplementedError(f"torch.vmap: the autograd.Function {function.__name__} is differentiated both inside and outside of a vmap, which is not "
                                  "supported; implement it with PyTorch's own operations")
    if rule and not kwargs:
        if not inside:
            return _by_rule(function, level, args)

        def forward(*given):
            return _by_rule(function, level, given)
        return type(function.__name__, (function,), {"forward": staticmethod(forward), "__module__": function.__module__})._apply_plain(args, kwargs)[0]
    if outside:
        return vmap.op_per_slice(function.apply, args, kwargs, level)
    try:
        return function._apply_plain(args, kwargs)[0]
    except vmap.NeedsValues:
        if inside:
            raise
        return vmap.op_per_slice(function.apply, args, kwargs, level)


_under_vmap.append(apply)
