"""Elementwise arithmetic, comparisons and logic of two operands."""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import kernel


def _binary(names, function):
    """A kernel and, with the name Inplace..., the one that writes its first operand."""
    kernel(names, "self, other, out!")(lambda self, other, out: function(self, other))
    kernel(" ".join("Inplace" + n for n in names.split()), "self!, other")(lambda self, other: function(self, other))


def _add(self, other, alpha):
    return self + (other if alpha == 1 else other * alpha)


kernel("Add", "self, other, alpha:scalar, out!")(lambda self, other, alpha, out: _add(self, other, alpha))
kernel("Adds", "self, other:scalar, alpha:scalar, out!")(lambda self, other, alpha, out: _add(self, other, alpha))
kernel("InplaceAdd", "self!, other, alpha:scalar")(_add)
kernel("InplaceAdds", "self!, other:scalar, alpha:scalar")(_add)
_binary("Mul", torch.mul)
