"""torch._C._functorch: what asks whether a tensor is a transform's own; transforms here run on plain tensors."""
from mindtorch.torch._refusing import refuse


def is_batchedtensor(tensor):
    """False."""
    return False


is_gradtrackingtensor = is_functionaltensor = is_legacy_batchedtensor = is_functorch_wrapped_tensor = is_batchedtensor


def maybe_get_level(tensor):
    """-1: of no transform."""
    return -1


def get_unwrapped(tensor):
    """The tensor itself."""
    return tensor


def peek_interpreter_stack():
    """None: no transform's interpreter runs."""


def maybe_get_bdim(tensor):
    return -1


def maybe_current_level():
    return None


refuse(globals(), "transforms here run on plain tensors", "_add_batch_dim _remove_batch_dim _unwrap_batched _wrap_for_grad _unwrap_for_grad "
       "_vmap_increment_nesting _vmap_decrement_nesting _grad_increment_nesting _grad_decrement_nesting current_level",
       "TransformType RandomnessType CInterpreter CGradInterpreterPtr CVmapInterpreterPtr")
