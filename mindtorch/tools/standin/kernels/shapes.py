"""Concatenation, repetition, permutation and slicing: outputs contain only elements of the inputs.
"""
from mindtorch.tools.standin.kernels._engine import F, torch
from mindtorch.tools.standin.kernels._results import upcast
from mindtorch.tools.standin.kernels._table import kernel

# ---- concatenation, slicing
kernel("Cat", "tensors:tensors, dim:int, out!")(lambda tensors, dim, out: torch.cat([t.to(out.dtype) for t in tensors], dim))
kernel("Stack", "tensors:tensors, dim:int, out!")(lambda tensors, dim, out: torch.stack([t.to(out.dtype) for t in tensors], dim))
kernel("SplitTensor", "self, size:int, dim:int, out:tensors!")(lambda self, size, dim, out: list(self.split(size, dim)))
kernel("SplitWithSize", "self, sizes:ints, dim:int, out:tensors!")(lambda self, sizes, dim, out: list(self.split(sizes, dim)))


def _slice(self, dim, start, end, step, out):
    n = self.shape[dim]
    return self.index_select(dim, torch.arange(n)[slice(start, end, step)])


kernel("Slice", "self, dim:int, start:int, end:int, step:int, out!")(_slice)
kernel("ConstantPadNd", "self, pad:ints, value:scalar, out!")(lambda self, pad, value, out: F.pad(self, pad, value=value))

# ---- repetition
kernel("Expand", "self, size:ints, out!")(lambda self, size, out: self.expand(size))
kernel("Repeat", "self, repeats:ints, out!")(lambda self, repeats, out: self.repeat(repeats))
kernel("RepeatInterleave", "self, repeats, size:int, out!")(lambda self, repeats, size, out: torch.repeat_interleave(self, repeats.long()))
kernel("RepeatInterleaveInt", "self, repeats:int, size:int, out!")(lambda self, repeats, size, out: torch.repeat_interleave(self, repeats))
kernel("RepeatInterleaveWithDim", "self, repeats, dim:int, size:int, out!")(
    lambda self, repeats, dim, size, out: torch.repeat_interleave(self, repeats.long(), dim))
kernel("RepeatInterleaveIntWithDim", "self, repeats:int, dim:int, size:int, out!")(
    lambda self, repeats, dim, size, out: torch.repeat_interleave(self, repeats, dim))


def _repeats_gradient(grad, repeats, dim, out):
    """Sums over the copies of each slice; a single repeat count applies to all slices."""
    n, grad = out.shape[dim], upcast(grad)
    owners = torch.repeat_interleave(torch.arange(n), repeats.long().reshape(-1).expand(n))
    return torch.zeros(out.shape, dtype=grad.dtype).index_add(dim, owners, grad)


kernel("RepeatInterleaveGrad", "grad, repeats, dim:int, out!")(_repeats_gradient)

# ---- permutation
kernel("Permute", "self, dims:ints, out!")(lambda self, dims, out: self.permute(dims))
kernel("Flip", "self, dims:ints, out!")(lambda self, dims, out: self.flip(dims))
kernel("Roll", "self, shifts:ints, dims:ints, out!")(lambda self, shifts, dims, out: torch.roll(self, shifts, dims) if dims else torch.roll(self, shifts[0]))

# ---- triangles, diagonals
kernel("Tril", "self, diagonal:int, out!")(lambda self, diagonal, out: self.tril(diagonal))
kernel("Triu", "self, diagonal:int, out!")(lambda self, diagonal, out: self.triu(diagonal))
kernel("Diag", "self, diagonal:int, out!")(lambda self, diagonal, out: torch.diag(self, diagonal))
