"""torch.utils._foreach_utils: tensors put together by device and dtype, as optimizers outside of torch ask for them."""
from mindtorch.core.tensor import taken
from mindtorch.torch.optim.optimizer import _get_foreach_kernels_supported_devices, _get_fused_kernels_supported_devices  # noqa: F401


def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
    """{(device, dtype) of the first list's tensors: (their parts of all lists, their places if with_indices)}.

    All lists are as long as the first, or empty; all but the first may hold None.  RuntimeError otherwise.
    """
    if not tensorlistlist or not tensorlistlist[0]:
        raise RuntimeError("_group_tensors_by_device_and_dtype: there has to be a list, and a tensor in the first one")
    first = tensorlistlist[0]
    for i, t in enumerate(first):
        if not taken(t):
            raise RuntimeError(f"Tensors of the first list of nested Tensor lists are supposed to be defined but the {i}-th Tensor is not.")
    if any(len(other) not in (0, len(first)) for other in tensorlistlist):
        raise RuntimeError(f"_group_tensors_by_device_and_dtype: lists of {[len(other) for other in tensorlistlist]} tensors do not go together")
    places = {}
    for i, t in enumerate(first):
        places.setdefault((t.device, t.dtype), []).append(i)
    return {key: ([[other[i] for i in at] if other else [] for other in tensorlistlist], at if with_indices else []) for key, at in places.items()}


def _device_has_foreach_support(device):
    return device.type in (*_get_foreach_kernels_supported_devices(), "cpu")


def _has_foreach_support(tensors, device):
    return _device_has_foreach_support(device) and all(t is None or taken(t) for t in tensors)
