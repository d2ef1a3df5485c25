"""Explicit conversions between facade tensors and MindSpore's tensor type, in any nesting."""
import mindtorch.torch.tensor  # noqa: F401      (puts the two on the function that `torch.tensor` is)
import mindtorch.torch as _torch

cast_to_adapter_tensor, cast_to_ms_tensor = _torch.tensor.cast_to_adapter_tensor, _torch.tensor.cast_to_ms_tensor
