"""Modules as pure functions of their parameters."""
import functools

from mindtorch.core.transforms import functorch_levels
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import detached, is_tensor
from mindtorch.core.compile.tracing import is_tracing
from mindtorch.torch.nn.utils.stateless import _functional_call
from mindtorch.torch.utils._pytree import tree_map

_REMOVE = ("mutations", "mutations_and_views")


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """Calls the module with these tensors (a dict by name, or several dicts) instead of its own."""
    if isinstance(parameter_and_buffer_dicts, dict):
        given = parameter_and_buffer_dicts
    elif isinstance(parameter_and_buffer_dicts, (list, tuple)):
        if not all(isinstance(d, dict) for d in parameter_and_buffer_dicts):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        names = [k for d in parameter_and_buffer_dicts for k in d]
        repeated = [k for k in dict.fromkeys(names) if names.count(k) > 1]
        if repeated:
            raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        given = {k: v for d in parameter_and_buffer_dicts for k, v in d.items()}
    else:
        raise ValueError("Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
                         f"{type(parameter_and_buffer_dicts)}")
    return _functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models):
    """Returns (parameters, buffers) of modules of the same class as dicts by name, each tensor
    stacked over the modules."""
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or not any(m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    params = {}
    for name, first in models[0].named_parameters():
        tensors = [dict(m.named_parameters())[name] for m in models]
        if len({t.requires_grad for t in tensors}) > 1:
            raise RuntimeError(f"Expected {name} parameter from each model to have the same .requires_grad")
        params[name] = _stack([t.detach() for t in tensors]).requires_grad_(first.requires_grad)
    buffers = {name: _stack([dict(m.named_buffers())[name].detach() for m in models]) for name, _ in models[0].named_buffers()}
    return params, buffers


def _stack(tensors):
    return OPS["stack"].fn(tensors, 0)


def replace_all_batch_norm_modules_(root):
    """Makes every batch normalization in a module use batch statistics only, without running
    statistics."""
    from mindtorch.torch.nn.modules.batchnorm import _BatchNorm
    for m in root.modules():
        if isinstance(m, _BatchNorm):
            m.running_mean = m.running_var = m.num_batches_tracked = None
            m.track_running_stats = False
    return root


def functionalize(func, *, remove="mutations"):
    """Wraps the function in a transform level. In eager mode the function and its version without
    mutations have equal results, so nothing is rewritten."""
    if remove not in _REMOVE:
        raise RuntimeError(f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are:\n"
                           "     remove='mutations': all inplace and out= operators will be removed from the program, and replaced with their "
                           "out-of-place equivalents.\n     remove='mutations_and_views': In addition to the above, all aliasing operators {view} will "
                           "be replaced with their non-aliasing counterparts, {view}_copy.\n")

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        if is_tracing():
            return func(*args, **kwargs)
        level = functorch_levels.TransformLevel("functionalize")
        with level:
            given = tree_map(lambda t: _entered(level, t), (args, kwargs))
            r = func(*given[0], **given[1])
        return tree_map(lambda t: _left(level, t), r)

    wrapped.functionalized = remove
    return wrapped


def _entered(level, t):
    if not is_tensor(t):
        return t
    # in-place changes reach `t`; autograd flags set inside do not
    inside = t if t._requires_grad_ else detached(t)
    if inside is not t:
        functorch_levels.enter(level, inside, t)
    return inside


def _left(level, t):
    return functorch_levels.move_to_current(level, t)


def debug_unwrap(tensor, *, recurse=True):
    """Returns the tensor unchanged."""
    if not is_tensor(tensor):
        raise TypeError(f"debug_unwrap() expects a Tensor, got {type(tensor).__name__}")
    return tensor
