"""torch.cuda.jiterator: kernels from CUDA source. They can be created, but raise
NotImplementedError when called."""


class _JittedFunction:
    """CUDA kernel source that cannot be compiled here."""

    def __init__(self, code_string, return_by_ref, num_outputs, **kwargs):
        self.code_string, self.return_by_ref, self.num_outputs, self.kwargs_dict = code_string, return_by_ref, num_outputs, kwargs
        self.is_cuda_available = False

    def __call__(self, *tensors, **kwargs):
        raise NotImplementedError("torch.cuda.jiterator is not supported: an NPU runs no CUDA code")


def _create_jit_fn(code_string, **kwargs):
    return _JittedFunction(code_string, False, 1, **kwargs)


def _create_multi_output_jit_fn(code_string, num_outputs, **kwargs):
    return _JittedFunction(code_string, True, num_outputs, **kwargs)
