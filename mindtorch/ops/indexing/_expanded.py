"""Indexed writes to expanded tensors, whose elements share places in memory.

torch deprecates these writes, warns, and makes them: a place gets the last value that is written to it, or with `accumulate` the sum of all.
Here the same is written to the part of the tensor in which each place occurs once.
"""
import warnings

from mindtorch.core.alias import expanded_dims
from mindtorch.core.tensor import Const, taken
from mindtorch.core.values import values
from mindtorch.ops.basic import new_full
from mindtorch.ops.indexing._gather import index_at

_ADVICE = {"index_put_": "tensor[indices] = tensor", "index_fill_": "tensor[mask] = scalar", "masked_fill_": "tensor[mask] = scalar"}


def warn(name):
    """The warning of an indexed write to an expanded tensor."""
    warnings.warn(f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
                  f"This also applies to advanced indexing e.g. {_ADVICE[name]}", UserWarning, stacklevel=5)


def _distinct(x):
    """(the part of an expanded tensor in which each place occurs once, the dimensions that have one element there)."""
    dims = expanded_dims(x)
    part = x
    for d in dims:
        part = part.narrow(d, 0, 1)
    return part, dims


def _as_tensor(value, x):
    return new_full(x, size=(), value=values(value).item(), stype=x._stype) if value.__class__ is Const else value


def masked_fill(x, mask, value):
    """masked_fill_ of an expanded tensor."""
    warn("masked_fill_")
    part, dims = _distinct(x)
    if taken(mask) and mask._stype.kind == "b":
        mask = mask.expand(x._sizes)        # (which says what does not fit)
        for d in dims:
            mask = mask.any(d, keepdim=True)
    part.masked_fill_(mask, _as_tensor(value, x))


def index_fill(x, dim, index, value):
    """index_fill_ of an expanded tensor."""
    warn("index_fill_")
    part, dims = _distinct(x)
    dim = dim + x.ndim if dim < 0 else dim
    if dim in dims:
        x.index_select(dim, index)          # (which says what is wrong with the index)
        index = index.reshape(-1)[:1] * 0
    part.index_fill_(dim, index, value)


def index_put(x, value, indices, dims, shape, accumulate=False):
    """(tensor, values, index tensors) of the write to distinct places that has the effect of a write of values, which broadcast to `shape`."""
    warn("index_put_")
    index_at(x, indices, dims)          # (which says what is wrong with an index)
    part, single = _distinct(x)
    value = _as_tensor(value, x).expand(shape)
    # Dimensions of the values that belong to no index: those before the first one of the indices', and those behind.
    joint = len(shape) - (x.ndim - len(dims))
    start = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    kept = [d for d in range(x.ndim) if d not in dims]
    for i, d in enumerate(kept):
        if d in single:
            at = i if i < start else i + joint
            value = value.sum(at, keepdim=True) if accumulate else value.narrow(at, shape[at] - 1, 1) if shape[at] else value
    return part, value, [index * 0 if d in single else index for d, index in zip(dims, indices)]
