"""torch.onnx.symbolic_helper: translations are kept, and never run."""
from mindtorch.torch._refusing import refuse


def parse_args(*arg_descriptors):
    """Decorator of translations; it keeps what the arguments are in `_arg_descriptors`."""
    def deco(fn):
        fn._arg_descriptors = list(arg_descriptors)
        return fn
    return deco


refuse(globals(), "models are exported with MindSpore (mindspore.export writes MINDIR and ONNX)",
       "_get_tensor_rank _get_tensor_sizes _maybe_get_const _unimplemented quantized_args _is_tensor _is_none _parse_arg")
