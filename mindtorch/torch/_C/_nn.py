"""torch._C._nn: the functions behind torch.nn.functional, which are the same functions here."""
from mindtorch.torch import _namespace
from mindtorch.torch.nn import functional as _functional
from mindtorch.torch.nn.modules._to import parse_to as _parse


_namespace.fill(globals(), "_C._nn")
_REDUCTIONS = ("none", "mean", "sum")


def nll_loss2d(self, target, weight=None, reduction=1, ignore_index=-100):
    """nll_loss for inputs of shape (N, C, H, W), with PyTorch's integer code for the reduction."""
    return _functional.nll_loss(self, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction])


def _parse_to(*args, **kwargs):
    """Returns (device, dtype, non_blocking, memory_format) from the arguments of to()."""
    return _parse(args, kwargs)


def slow_conv3d(self, weight, kernel_size, bias=None, stride=1, padding=0):
    """conv3d; `kernel_size` only matters for a 2-D weight."""
    if weight.dim() not in (2, 5):
        raise RuntimeError(f"non-empty 5D (n_output_plane x n_input_plane x kernel_depth x kernel_height x kernel_width) tensor expected for weight, but got: "
                           f"{list(weight.shape)}")
    size = (kernel_size,) * 3 if isinstance(kernel_size, int) else tuple(kernel_size)
    return _functional.conv3d(self, weight.reshape(weight.shape[0], self.shape[1], *size), bias, stride, padding)


def __getattr__(name):
    return getattr(_functional, name)
