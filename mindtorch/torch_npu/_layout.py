"""Shapes, copies and formats.  All tensors here are in the one format ND (2)."""
from mindtorch import torch

_ND = 2


def get_npu_format(x):
    """The format a tensor's memory is in: 2 (ND)."""
    return _ND


def npu_format_cast(x, acl_format, customize_dtype=None):
    """The tensor in a format of Ascend's: there is only one here, and kernels choose theirs inside, so this is x itself."""
    return x


def npu_format_cast_(x, src):
    """`npu_format_cast` in place."""
    return x


def npu_dtype_cast(input, dtype):
    """The tensor in another dtype."""
    return input.to(dtype)


def npu_transpose(self, perm, require_contiguous=True):
    """The dimensions in another order; in memory of its own unless require_contiguous=False."""
    r = self.permute(*perm)
    return r.contiguous() if require_contiguous else r


def npu_broadcast(self, size):
    """A copy expanded to a size."""
    return self.expand(*size).contiguous()


def npu_reshape(self, shape, can_refresh=False):
    """The tensor in another shape."""
    return self.reshape(shape)


def npu_slice(self, offsets, size):
    """The region that begins at `offsets` and has sizes `size`, in memory of its own."""
    return self[tuple(slice(o, o + n) for o, n in zip(offsets, size))].contiguous()


def npu_confusion_transpose(self, perm, shape, transpose_first):
    """Transposed and reshaped, in the order that transpose_first says."""
    return self.permute(*perm).contiguous().reshape(shape) if transpose_first else self.reshape(shape).permute(*perm).contiguous()


def npu_one_hot(input, num_classes=-1, depth=1, on_value=1, off_value=0):
    """float32 vectors of `on_value` at the place that `input` says and `off_value` elsewhere; places beyond the depth have none."""
    n = depth if num_classes == -1 else num_classes
    places = torch.arange(n, device=input.device)
    return torch.where(input.unsqueeze(-1) == places, float(on_value), float(off_value)).to(torch.float32)
