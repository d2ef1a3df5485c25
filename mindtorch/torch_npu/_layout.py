"""Shapes, copies and formats. All tensors here have the format ND (2)."""
from mindtorch import torch

_ND = 2


def get_npu_format(x):
    """Returns the memory format of a tensor: 2 (ND)."""
    return _ND


def npu_format_cast(x, acl_format, customize_dtype=None):
    """Returns x unchanged: there is only one format here, and kernels choose theirs internally."""
    return x


def npu_format_cast_(x, src):
    """`npu_format_cast` in place."""
    return x


def npu_dtype_cast(input, dtype):
    """Converts the tensor to another dtype."""
    return input.to(dtype)


def npu_transpose(self, perm, require_contiguous=True):
    """Permutes the dimensions; returns a contiguous copy unless require_contiguous=False."""
    r = self.permute(*perm)
    return r.contiguous() if require_contiguous else r


def npu_broadcast(self, size):
    """Returns a copy expanded to the given size."""
    return self.expand(*size).contiguous()


def npu_reshape(self, shape, can_refresh=False):
    """Reshapes the tensor."""
    return self.reshape(shape)


def npu_slice(self, offsets, size):
    """Returns a contiguous copy of the region that starts at `offsets` and has the sizes `size`."""
    return self[tuple(slice(o, o + n) for o, n in zip(offsets, size))].contiguous()


def npu_confusion_transpose(self, perm, shape, transpose_first):
    """Transposes and reshapes; transpose_first gives the order."""
    return self.permute(*perm).contiguous().reshape(shape) if transpose_first else self.reshape(shape).permute(*perm).contiguous()


def npu_one_hot(input, num_classes=-1, depth=1, on_value=1, off_value=0):
    """Returns float32 vectors with `on_value` at the index given by `input` and `off_value`
    elsewhere; an index beyond the depth gives only `off_value`."""
    n = depth if num_classes == -1 else num_classes
    places = torch.arange(n, device=input.device)
    return torch.where(input.unsqueeze(-1) == places, float(on_value), float(off_value)).to(torch.float32)
