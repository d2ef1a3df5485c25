"""torch.utils._python_dispatch: there is no dispatcher below the functions; TorchFunctionMode takes part above them."""
from mindtorch.torch._refusing import refuse


def is_traceable_wrapper_subclass(t):
    """True for a subclass that takes itself apart into tensors."""
    return hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def _get_current_dispatch_mode():
    return None


def _get_current_dispatch_mode_stack():
    return []


refuse(globals(), "use torch.overrides.TorchFunctionMode", "transform_subclass return_and_correct_aliasing", "TorchDispatchMode")
