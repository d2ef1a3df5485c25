"""Where ops and the host meet: the one place at which values are waited for, and the one at which host values become tensors.

On `cpu` both cost nothing. On a device the first is a synchronisation and a copy, so an op reads values only where torch does too (sizes
that depend on data, `item`, errors that depend on values); everything else is a kernel.
"""
from mindtorch.core.tensor import wrap


def values(t):
    """The values of a tensor (or a Const) as a host array, to be read only."""
    return t._a


def tensor_from(array, like=None):
    """A tensor on a host array's values, on the device of the tensor `like` (default: cpu, sharing the array's memory)."""
    return wrap(array)
