"""Helpers for operands and results of many kernels: upcasts, output masks."""
from mindtorch.tools.standin.kernels._engine import torch


def upcast(x):
    """Upcasts half-precision dtypes to float32, in which the chip computes them."""
    return x.float() if x is not None and x.dtype in (torch.float16, torch.bfloat16) else x


def chosen(mask, *values):
    """Returns the values selected by an output mask, None for the others."""
    return tuple(v if wanted else None for v, wanted in zip(values, mask))
