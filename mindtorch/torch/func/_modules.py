"""Modules as functions of their parameters."""
from mindtorch.core.table import TABLE
from mindtorch.core.tensor import taken
from mindtorch.torch.nn.utils.stateless import _functional_call

_REMOVE = ("mutations", "mutations_and_views")


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """Calls the module with these tensors (a dict by name, or several dicts) in the place of its own."""
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
    """(parameters, buffers) of modules of one class, each stacked over the modules, as dicts by name."""
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
    return TABLE["stack"].fn(tensors, 0)


def replace_all_batch_norm_modules_(root):
    """Makes every batch normalisation in a module normalise by the batch alone, without running statistics."""
    from mindtorch.torch.nn.modules.batchnorm import _BatchNorm
    for m in root.modules():
        if isinstance(m, _BatchNorm):
            m.running_mean = m.running_var = m.num_batches_tracked = None
            m.track_running_stats = False
    return root


def functionalize(func, *, remove="mutations"):
    """The function itself: run eagerly, a function and its version without mutations give the same."""
    if remove not in _REMOVE:
        raise RuntimeError("functionalize(f, remove='mutations'): received invalid argument for remove={}. Valid options are: "
                           f"{_REMOVE}".format(remove))
    return func


def debug_unwrap(tensor, *, recurse=True):
    """The tensor itself: transforms do not wrap tensors here."""
    if not taken(tensor):
        raise TypeError(f"debug_unwrap() expects a Tensor, got {type(tensor).__name__}")
    return tensor
