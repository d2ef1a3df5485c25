"""Indexed writes to expanded tensors, whose elements share memory locations.

PyTorch deprecates these writes: it warns and performs them. A location gets the last value written
to it, or with `accumulate` the sum of all. Here the same values are written to the part of the
tensor in which each location occurs once.
"""
import warnings

from mindtorch.core.tensor.inplace import expanded_dims
from mindtorch.core.tensor.tensor import ScalarOperand, is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.ops.basic import new_full
from mindtorch.ops.indexing._gather import index_at

_ADVICE = {"index_put_": "tensor[indices] = tensor", "index_fill_": "tensor[mask] = scalar", "masked_fill_": "tensor[mask] = scalar"}


def warn(name):
    """Warns about an indexed write to an expanded tensor."""
    warnings.warn(f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
                  f"This also applies to advanced indexing e.g. {_ADVICE[name]}", UserWarning, stacklevel=5)


def _distinct(x):
    """Returns (the part of an expanded tensor in which each memory location occurs once, the
    dimensions that have one element there)."""
    dims = expanded_dims(x)
    part = x
    for d in dims:
        part = part.narrow(d, 0, 1)
    return part, dims


def _as_tensor(value, x):
    return new_full(x, size=(), value=to_host(value).item(), np_dtype=x._np_dtype) if value.__class__ is ScalarOperand else value


def masked_fill(x, mask, value):
    """masked_fill_ of an expanded tensor."""
    warn("masked_fill_")
    part, dims = _distinct(x)
    if is_tensor(mask) and mask._np_dtype.kind == "b":
        mask = mask.expand(x._sizes)  # raises if the shapes do not broadcast
        for d in dims:
            mask = mask.any(d, keepdim=True)
    part.masked_fill_(mask, _as_tensor(value, x))


def index_fill(x, dim, index, value):
    """index_fill_ of an expanded tensor."""
    warn("index_fill_")
    part, dims = _distinct(x)
    dim = dim + x.ndim if dim < 0 else dim
    if dim in dims:
        x.index_select(dim, index)  # raises if the index is invalid
        index = index.reshape(-1)[:1] * 0
    part.index_fill_(dim, index, value)


def index_put(x, value, indices, dims, shape, accumulate=False):
    """Returns (tensor, values, index tensors) of a write to distinct locations that has the effect
    of the given write, whose values broadcast to `shape`."""
    warn("index_put_")
    index_at(x, indices, dims)  # raises if an index is invalid
    part, single = _distinct(x)
    value = _as_tensor(value, x).expand(shape)
    # Dimensions of the values that belong to no index: those before the first index dimension, and
    # those after the last.
    joint = len(shape) - (x.ndim - len(dims))
    start = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    other_dims = [d for d in range(x.ndim) if d not in dims]
    for i, d in enumerate(other_dims):
        if d in single:
            at = i if i < start else i + joint
            value = value.sum(at, keepdim=True) if accumulate else value.narrow(at, shape[at] - 1, 1) if shape[at] else value
    return part, value, [index * 0 if d in single else index for d, index in zip(dims, indices)]
