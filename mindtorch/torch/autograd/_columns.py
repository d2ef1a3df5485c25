"""Jacobians by tangents: one direction for each element of an input, all carried on at once."""
import numpy as np

from mindtorch.core import forward
from mindtorch.core.table import TABLE
from mindtorch.core.values import tensor_from


def units(x):
    """The unit tensors of x's shape, one for each element."""
    return list(tensor_from(np.eye(x._numel).astype(x._stype).reshape(-1, *x._sizes), x)) if x._numel else []


def columns(out, x, levels):
    """d out / d x, shaped out.shape + x.shape, where x has a unit tensor for its tangent at each of these levels."""
    js = [forward.tangent(out, v) for v in levels]
    if all([j is None for j in js]):
        return tensor_from(np.zeros((*out._sizes, *x._sizes), out._stype), out)
    none = tensor_from(np.zeros(out._sizes, out._stype), out)
    return TABLE["stack"].fn([none if j is None else j for j in js], -1).reshape(*out._sizes, *x._sizes)
