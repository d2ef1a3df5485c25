"""What many kernels do with operands and results: width of numbers, output masks."""
from mindtorch.tools.standin.kernels._engine import torch


def wide(x):
    """Narrow floating dtypes as float32, in which the chip computes them."""
    return x.float() if x is not None and x.dtype in (torch.float16, torch.bfloat16) else x


def chosen(mask, *values):
    """The values that an output mask wants, None for the others."""
    return tuple(v if wanted else None for v, wanted in zip(values, mask))
