"""Reductions: sums, extremes, moments, norms."""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import kernel


def _over(function):
    """Wraps a reduction as function(self, dims, keepdim): no dims means all of them, and a 0-d
    tensor is reduced as a tensor of one element."""
    def call(self, dims, keepdim):
        return function(self, tuple(dims or range(self.dim())), keepdim) if self.dim() else function(self.reshape(1), (0,), False)
    return call


for _name, _function in ("ReduceSum", _over(torch.sum)), ("ReduceNansum", _over(torch.nansum)), ("Mean", _over(torch.mean)):
    kernel(_name, "self, dims:ints, keepdim:bool, dtype:int32, out!")(
        lambda self, dims, keepdim, dtype, out, *, f=_function: f(self.to(out.dtype), dims, keepdim))
for _name, _function in ("Amax", _over(torch.amax)), ("Amin", _over(torch.amin)), ("All", _over(torch.all)), ("Any", _over(torch.any)):
    kernel(_name, "self, dims:ints, keepdim:bool, out!")(
        lambda self, dims, keepdim, out, *, f=_function: f(self, dims, keepdim))
kernel("LogSumExp", "self, dims:ints, keepdim:bool, out!")(
    lambda self, dims, keepdim, out: _over(torch.logsumexp)(self.to(torch.promote_types(out.dtype, torch.float32)), dims, keepdim))
kernel("Max", "self, out!")(lambda self, out: torch.max(self))
kernel("Min", "self, out!")(lambda self, out: torch.min(self))
kernel("Prod", "self, dtype:int32, out!")(lambda self, dtype, out: torch.prod(self.to(out.dtype)))
kernel("ProdDim", "self, dim:int, keepdim:bool, dtype:int32, out!")(
    lambda self, dim, keepdim, dtype, out: torch.prod(self.to(out.dtype), dim, keepdim))

# With indices.

for _name, _function in ("MaxDim", torch.max), ("MinDim", torch.min), ("MedianDim", torch.median):
    kernel(_name, "self, dim:int, keepdim:bool, out!, indices!")(
        lambda self, dim, keepdim, out, indices, *, f=_function: tuple(f(self, dim, keepdim)))
kernel("Median", "self, out!")(lambda self, out: torch.median(self))
kernel("ArgMax", "self, dim:int, keepdim:bool, out!")(lambda self, dim, keepdim, out: torch.argmax(self, dim, keepdim))
kernel("ArgMin", "self, dim:int, keepdim:bool, out!")(lambda self, dim, keepdim, out: torch.argmin(self, dim, keepdim))
kernel("Kthvalue", "self, k:int, dim:int, keepdim:bool, values!, indices!")(
    lambda self, k, dim, keepdim, values, indices: tuple(torch.kthvalue(self, k, dim, keepdim)))

# Moments.


def _moment(function):
    def call(self, dims, correction, keepdim):
        return _over(lambda x, d, k: function(x, d, correction=correction, keepdim=k))(self, dims, keepdim)
    return call


for _name, _function in ("VarCorrection", _moment(torch.var)), ("Std", _moment(torch.std)):
    kernel(_name, "self, dims:ints, correction:int, keepdim:bool, out!")(
        lambda self, dims, correction, keepdim, out, *, f=_function: f(self, dims, correction, keepdim))
for _name, _function in ("VarMean", _moment(torch.var_mean)), ("StdMeanCorrection", _moment(torch.std_mean)):
    kernel(_name, "self, dims:ints, correction:int, keepdim:bool, out!, mean!")(
        lambda self, dims, correction, keepdim, out, mean, *, f=_function: tuple(f(self, dims, correction, keepdim)))

# Norms.


def _norm(self, order, dims, keepdim):
    return _over(lambda x, d, k: torch.linalg.vector_norm(x, order, d, k))(self, dims, keepdim)


kernel("LinalgVectorNorm", "self, ord:scalar, dims:ints, keepdim:bool, dtype:int32, out!")(
    lambda self, order, dims, keepdim, dtype, out: _norm(self if self.is_complex() else self.to(out.dtype), order, dims, keepdim))
kernel("Norm", "self, p:scalar, dims:ints, keepdim:bool, out!")(lambda self, p, dims, keepdim, out: _norm(self, p, dims, keepdim))
