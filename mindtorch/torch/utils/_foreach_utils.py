"""torch.utils._foreach_utils: grouping of tensors by device and dtype, for external optimizers."""
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.optim.optimizer import _get_foreach_kernels_supported_devices, _get_fused_kernels_supported_devices  # noqa: F401


def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
    """Groups tensors by the (device, dtype) of the first list.

    Returns {(device, dtype): (the group's part of every list, its indices if with_indices)}. All
    lists must have the length of the first or be empty, and all but the first may contain None;
    otherwise raises RuntimeError.
    """
    if not tensorlistlist or not tensorlistlist[0]:
        raise RuntimeError("_group_tensors_by_device_and_dtype: expected a non-empty list whose first list is not empty")
    first = tensorlistlist[0]
    for i, t in enumerate(first):
        if not is_tensor(t):
            raise RuntimeError(f"Tensors of the first list of nested Tensor lists are supposed to be defined but the {i}-th Tensor is not.")
    if any(len(other) not in (0, len(first)) for other in tensorlistlist):
        raise RuntimeError(f"_group_tensors_by_device_and_dtype: lists must be empty or of equal length, got {[len(other) for other in tensorlistlist]}")
    indices = {}
    for i, t in enumerate(first):
        indices.setdefault((t.device, t.dtype), []).append(i)
    return {key: ([[other[i] for i in at] if other else [] for other in tensorlistlist], at if with_indices else []) for key, at in indices.items()}


def _device_has_foreach_support(device):
    return device.type in (*_get_foreach_kernels_supported_devices(), "cpu")


def _has_foreach_support(tensors, device):
    return _device_has_foreach_support(device) and all(t is None or is_tensor(t) for t in tensors)
