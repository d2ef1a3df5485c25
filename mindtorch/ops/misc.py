"""Ops that belong to no family: covariance and correlation, Vandermonde matrices, copies of slices,
norms of slices."""
import math
import warnings

from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import I64
from mindtorch.core.tensor.scalars import read
from mindtorch.core.dispatch.op_registry import OPS, register_op
from mindtorch.core.dispatch.op_schema import Bool, Int, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.core.tensor.sync import of_all
from mindtorch.ops.creation import _reparam  # noqa: F401  (declare _standard_gamma and its like, segment_reduce)
from mindtorch.ops.indexing import _segments  # noqa: F401  (declare _standard_gamma and its like, segment_reduce)
from mindtorch.ops._checks import check_tensor, wrap_dim
from mindtorch.ops._operands import no_derivative, scalar
from mindtorch.ops.basic import cast, conj, lt_, new_full
from mindtorch.ops.shapes.shape import clone_


# ------------------------------------------------------------------ cov, corrcoef
def _weights(name, x, w, kinds, wanted):
    """Checks the weights of observations."""
    if w is None:
        return
    d, n = w._np_dtype, x._sizes[1]
    if w.ndim > 1:
        raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {name} with {w.ndim} dimensions")
    if d.kind not in kinds:
        raise RuntimeError(f"cov(): expected {name} to have {wanted} dtype but got {name} with {scalar_type_name(d)} dtype")
    if w._numel != n:
        raise RuntimeError(f"cov(): expected {name} to have the same numel as there are observations in the input but got "
                           f"{w._numel} != {n}")
    if of_all(lt_(w, scalar(0, w)).any()).any():
        raise RuntimeError(f"cov(): {name} cannot be negative")


@register_op
def cov(input, *, correction: Int = 1, fweights=None, aweights=None):
    """Covariance matrix of variables (rows) over observations (columns); for a single variable its
    variance, 0-dim.

    fweights (integers) are the repetition counts of the observations, aweights (floats) their
    relative weights.
    """
    check_tensor("cov", input)
    correction = read("cov", "correction", "int", correction)
    if input.ndim > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions")
    if input._np_dtype.kind == "b":
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input if input.ndim == 2 else input.reshape(1, -1)
    _weights("fweights", x, fweights, "iu", "integral")
    _weights("aweights", x, aweights, "fV", "floating point")
    n = x._sizes[1]
    if fweights is None and aweights is None:
        w, total = None, n
        mean = x.sum(1, keepdim=True) / n
    else:
        w = aweights if fweights is None else fweights if aweights is None else fweights * aweights
        total = w.sum()
        if total.item() == 0:
            raise RuntimeError("cov(): weights sum to zero, can't be normalized")
        mean = (x * w).sum(1, keepdim=True) / total
    if w is not None and aweights is not None and correction != 0:
        freedom = total - correction * (w * aweights).sum() / total
    else:
        freedom = total - correction
    if (freedom.item() if is_tensor(freedom) else freedom) <= 0:
        warnings.warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.",
                      stacklevel=2)
        freedom = (freedom * 0).abs() if is_tensor(freedom) else 0
    away = x - mean
    r = away @ conj(away if w is None else away * w).T / freedom
    return r if input.ndim == 2 and x._sizes[0] != 1 else r.reshape(())


@register_op
def corrcoef(input):
    """Pearson's correlation coefficients of variables (rows) over observations (columns)."""
    check_tensor("corrcoef", input)
    if input.ndim > 2:
        raise RuntimeError("corrcoef(): expected input to have two or fewer dimensions but got an input with "
                           f"{input.ndim} dimensions")
    c = cov(input)
    if not c.ndim:
        return c / c
    d = c.diagonal()
    d = d.real if c._np_dtype.kind == "c" else d
    scale = d.sqrt()
    c = c / scale.unsqueeze(1) / scale.unsqueeze(0)
    if c._np_dtype.kind == "c":
        return OPS["complex"].fn(c.real.clamp(-1, 1), c.imag.clamp(-1, 1))
    return c.clamp(-1, 1)


@register_op(method=False)
def vander(x, N: Int = None, increasing: Bool = False):
    """Vandermonde matrix: powers of the elements of a vector in N columns, descending unless
    `increasing`."""
    check_tensor("vander", x, "x")
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    rows = x._numel
    n = rows if N is None else int(N)
    if n < 0:
        raise RuntimeError("N must be non-negative.")
    x = cast(x, I64) if x._np_dtype.kind in "biu" else x
    if n == 0:
        return new_full(x, size=(rows, 0), value=0, np_dtype=x._np_dtype)
    columns = x.unsqueeze(1).expand(rows, n - 1)
    r = OPS["cat"].fn([new_full(x, size=(rows, 1), value=1, np_dtype=x._np_dtype), columns.cumprod(1)], 1)
    return r if increasing else r.flip(1)


# ------------------------------------------------------------------ copies
@register_op(method=False, out="same")
def slice_copy(input, dim: Int = 0, start: SymInt = None, end: SymInt = None, step: SymInt = 1):
    """Returns a slice along `dim` as a copy."""
    check_tensor("slice_copy", input)
    axis = wrap_dim("slice_copy", dim, input.ndim)
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    return clone_(input[(slice(None),) * axis + (slice(start, end, step),)], fmt="contiguous")


@register_op(method=False, out=True, aten="detach_copy.default")
def detach_copy(input):
    """Returns a copy, through which no gradient can be computed."""
    check_tensor("detach_copy", input)
    return _detach_copy(input)


_detach_copy = primitive("detach_copy", "a", no_derivative("detach_copy"), raw=True)


@register_op
def slice_inverse(input, src, dim: Int = 0, start: SymInt = None, end: SymInt = None, step: SymInt = 1):
    """Views the memory of input with the shape and strides of src."""
    check_tensor("slice_inverse", input)
    check_tensor("slice_inverse", src, "src", 2)
    return input.as_strided(src._sizes, src.stride(), src.storage_offset())


# ------------------------------------------------------------------ norms of slices
@register_op(method=False)
def norm_except_dim(v, pow: Int = 2, dim: Int = 0):
    """Norm of each slice along `dim` (-1: of the whole tensor), shaped to broadcast against v."""
    check_tensor("norm_except_dim", v, "v")
    if dim == -1:
        return v.norm(pow)
    n = v.ndim
    axis = wrap_dim("norm_except_dim", dim, n)
    if axis not in (0, n - 1):
        return norm_except_dim(v.transpose(0, axis), pow, 0).transpose(0, axis)
    flat = v.reshape(v._sizes[0], -1).norm(pow, 1) if axis == 0 else v.reshape(-1, v._sizes[-1]).norm(pow, 0)
    shape = [1] * n
    shape[axis] = v._sizes[axis]
    return flat.reshape(shape)


def _method(fn):
    setattr(Tensor, fn.__name__, fn)
    return fn


def _resized(self, sizes):
    # Unlike in view, all sizes are explicit: none is inferred.
    if not all(isinstance(n, int) for n in sizes) or math.prod(sizes) != self._numel or (sizes and min(sizes) < 0):
        raise RuntimeError(f"requested resize to {'x'.join(map(str, sizes))}, but the given tensor has a size of {'x'.join(map(str, self._sizes))} "
                           f"({self._numel} elements). resize can only change the shape of a tensor, not how many elements it has")
    return self.contiguous().view(sizes)


@_method
def resize(self, *sizes):
    """Returns the elements in another shape; deprecated."""
    warnings.warn("non-inplace resize is deprecated", stacklevel=2)
    return _resized(self, sizes)


@_method
def resize_as(self, tensor):
    """Returns the elements in the shape of another tensor; deprecated."""
    warnings.warn("non-inplace resize_as is deprecated", stacklevel=2)
    return _resized(self, tensor._sizes)


@_method
def reinforce(self, reward):
    """Removed from PyTorch, where it raises an error, too."""
    raise RuntimeError("reinforce() was removed. Use torch.distributions instead: sample from a distribution, and differentiate "
                       "-log_prob(action) * reward.")
