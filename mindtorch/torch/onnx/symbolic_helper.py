"""torch.onnx.symbolic_helper: symbolic functions can be declared, but are never called."""
from mindtorch.torch._refusing import refuse


def parse_args(*arg_descriptors):
    """Decorator for symbolic functions that stores the argument descriptors in `_arg_descriptors`.
    """
    def deco(fn):
        fn._arg_descriptors = list(arg_descriptors)
        return fn
    return deco


refuse(globals(), "torch.onnx.export does not use symbolic functions (docs/export.md)",
       "_get_tensor_rank _get_tensor_sizes _maybe_get_const _unimplemented quantized_args _is_tensor _is_none _parse_arg")
