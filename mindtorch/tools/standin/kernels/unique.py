"""Unique values of a tensor. The kernel determines their number: at launch, outputs have their
largest size."""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import Sized, kernel


def _values(self, inverse, counts, dim=None):
    """Returns sorted values, inverse indices and counts; the last two are None unless requested."""
    values, inverses, multiplicities = torch.unique(self, sorted=True, return_inverse=True, return_counts=True, dim=dim)
    return Sized(values), inverses if inverse else None, Sized(multiplicities) if counts else None


def _runs(self, inverse, counts, dim):
    """Returns one value for each run of equal ones. A dimension of 1000 means all elements,
    flattened."""
    values, inverses, multiplicities = torch.unique_consecutive(self, return_inverse=True, return_counts=True, dim=None if dim >= 1000 else dim)
    return Sized(values), inverses if inverse else None, Sized(multiplicities) if counts else None


kernel("Unique", "self, sorted:bool, inverse:bool, values!, inverses!")(lambda self, sorted, inverse, values, inverses: _values(self, inverse, False)[:2])
kernel("Unique2", "self, sorted:bool, inverse:bool, counts:bool, values!, inverses!, multiplicities!")(
    lambda self, sorted, inverse, counts, values, inverses, multiplicities: _values(self, inverse, counts))
kernel("UniqueDim", "self, sorted:bool, inverse:bool, dim:int, values!, inverses!, multiplicities!")(
    lambda self, sorted, inverse, dim, values, inverses, multiplicities: _values(self, True, True, dim))
kernel("UniqueConsecutive", "self, inverse:bool, counts:bool, dim:int, values!, inverses!, multiplicities!")(
    lambda self, inverse, counts, dim, values, inverses, multiplicities: _runs(self, inverse, counts, dim))
