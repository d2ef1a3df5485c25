"""Parameters as one vector (https://pytorch.org/docs/stable/generated/torch.nn.utils.parameters_to_vector.html)."""
import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import is_tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters):
    """Flattens and concatenates all parameters."""
    return torch.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec, parameters):
    """Sets the parameters' data to consecutive slices of `vec`."""
    if not is_tensor(vec):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    begin = 0
    for p in parameters:
        n = p.numel()
        p.data = vec[begin:begin + n].view_as(p).data
        begin += n
