"""Pooling and its gradients for the CPU target. The Ascend kernels are in `ascend_pool.py`.

Max pooling saves linear indices into the spatial dimensions of the input for the gradient.
"""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels._call import (UnsupportedByKernel, P, all_of, cast, copied, dtype_of, from_contiguous, full, kernel, ms, number, op,
                                                       reshape,
                                                       shape_of)
from mindtorch.backend.mindspore.kernels._index_utils import expanded
from mindtorch.backend.mindspore.kernels.indexing import added
from mindtorch.backend.mindspore.recorder_api import STATE, constant
from mindtorch.backend.sizes import out_size
from mindspore.ops.operations import _grad_ops as GO
from mindspore.ops.operations import nn_ops as N

_F = "float32 float64"


def _planes(x, dims):
    """Reshapes to (planes, elements per plane)."""
    s = shape_of(x)
    return reshape(x, (math.prod(s[:-dims]), math.prod(s[-dims:])))


def _lead(x, dims, rank):
    """Reshapes x to (1 or N, C, *spatial) with `rank` spatial dimensions, the first of which may
    have size 1."""
    s = shape_of(x)
    lead = s[:-dims] if len(s) == dims + 2 else (1, *s[:-dims])
    return reshape(x, (*lead, *(1,) * (rank - dims), *s[-dims:]))


def _signed(y, override):
    """Returns y, negated if the divisor override is negative: MindSpore receives its absolute
    value."""
    return y if override is None or override > 0 else op(P.Neg)(y)


def _ceiled(size, kernel, stride, padding, dilation, out):
    """True if the output has the size of `ceil_mode`."""
    return tuple(out) != out_size(size, kernel, stride, [(p, p) for p in padding], dilation)


def _nan_first(x):
    """Replaces NaN by infinity, because MindSpore's pooling ignores NaN."""
    # Minimum returns its second operand if the first is NaN; Select takes five times as long
    return op(P.Minimum)(x, all_of(math.inf, x))


def _at(x, index, dims):
    return reshape(op(P.GatherD)(_planes(x, dims), 1, _planes(index, dims)), shape_of(index))


# ------------------------------------------------------------------ max pooling
@kernel("max_pool1d max_pool2d max_pool3d", target="CPU", only=_F)
def _max_pool(x, *, kernel, stride, padding, dilation, out, return_indices):
    # The values are gathered at the indices, because the kernel itself returns -3.4e38 for -inf. Of
    # several NaNs in a window the first one wins; the host kernel chooses the last.
    s, dims = shape_of(x), len(out)
    ceil = _ceiled(s[-dims:], kernel, stride, padding, dilation, out)
    if STATE.on is not None and STATE.on.old and dims == 2 and not return_indices and not any(padding) and set(dilation) == {1} and not ceil:
        return op(P.MaxPool, kernel, stride, "VALID")(x)  # less exact for NaN and -inf
    m = _nan_first(x)
    one, zero = (1,) * (2 - dims), (0,) * (2 - dims)
    if dims < 3:
        _, index = op(P.MaxPoolWithArgmaxV2, one + kernel, one + stride, zero + padding, one + dilation, ceil)(_lead(m, dims, 2))
    else:
        _, index = op(P.MaxPool3DWithArgmax, kernel, stride, padding, dilation, ceil)(_lead(m, 3, 3))
    shape = s[:-dims] + tuple(out)
    index = reshape(index, shape)
    y = _at(x, index, dims)
    return (y, index) if return_indices else y


# For integers, the host's pooling kernel saves indices relative to the window in a narrower dtype.
# The host kernels handle those.
kernel("max_pool_index", lambda arg, *, size, kernel, stride, padding, dilation: copied(arg), target="CPU", only="int64")


@kernel("max_pool_backward", target="CPU", only="float32 float64 int64")
def _max_pool_backward(g, arg, *, size, kernel, stride, padding, dilation):
    return _scattered(g, arg, size)


def _scattered(g, index, size):
    """Adds the elements of g at their indices in planes of shape `size`."""
    dims = len(size)
    lead = shape_of(g)[:-dims]
    r = full((math.prod(lead), math.prod(size)), 0, dtype_of(g))
    return reshape(added(r, _planes(index, dims), _planes(g, dims), 1), (*lead, *size))


kernel("scatter_flat", lambda g, index, *, size: _scattered(g, index, size), target="CPU", only="float32 float64 int64")
kernel("gather_flat", lambda x, index, *, dims: _at(x, index, dims), target="CPU", only="float32 float64 int64")


@kernel("adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d", target="CPU", only=_F)
def _adaptive_max(x, *, target, return_indices):
    if 0 in target:
        raise UnsupportedByKernel  # MindSpore rejects empty results
    s, dims = shape_of(x), len(target)
    m = _nan_first(x)
    if dims < 3:
        _, index = op(P.AdaptiveMaxPool2D, (1,) * (2 - dims) + tuple(target))(_lead(m, dims, 2))
    else:
        _, index = op(N.AdaptiveMaxPool3D)(_lead(m, 3, 3), from_contiguous(np.array(target, np.int32)))
        index = cast(index, ms.int64)
    index = reshape(index, s[:-dims] + tuple(target))
    y = _at(x, index, dims)
    return (y, index) if return_indices else y


# ------------------------------------------------------------------ average pooling
def _average(kernel, stride, padding, include_pad, override):
    """Returns the settings that MindSpore's average pooling expects, extended to three dimensions.
    """
    k = 3 - len(kernel)
    pads = tuple([p for p in (0,) * k + tuple(padding) for _ in range(2)])
    return (1,) * k + tuple(kernel), (1,) * k + tuple(stride), pads, include_pad, abs(override or 0)


@kernel("avg_pool1d avg_pool2d avg_pool3d", target="CPU", only="float32")
def _avg_pool(x, *, kernel, stride, padding, out, include_pad, override):
    s, dims = shape_of(x), len(out)
    ceil = _ceiled(s[-dims:], kernel, stride, padding, (1,) * dims, out)
    k, t, pads, include_pad, by = _average(kernel, stride, padding, include_pad, override)
    y = op(P.AvgPool3D, k, t, "pad", pads, ceil, include_pad, by)(_lead(x, dims, 3))
    return reshape(_signed(y, override), s[:-dims] + tuple(out))


@kernel("avg_pool1d_backward avg_pool2d_backward avg_pool3d_backward", target="CPU", only="float32")
def _avg_pool_backward(g, *, size, kernel, stride, padding, include_pad, override):
    s, dims = shape_of(g), len(size)
    ceil = _ceiled(size, kernel, stride, padding, (1,) * dims, s[-dims:])
    # otherwise AvgPool3DGrad ignores the override
    include_pad = include_pad or override is not None
    k, t, pads, include_pad, by = _average(kernel, stride, padding, include_pad, override)
    m = _lead(g, dims, 3)
    full_shape = (*shape_of(m)[:2], *(1,) * (3 - dims), *size)
    r = op(GO.AvgPool3DGrad, k, t, pads, ceil, include_pad, by)(_sizes(full_shape), m)
    return reshape(_signed(r, override), s[:-dims] + tuple(size))


_size_tensors: dict = {}


def _sizes(size):
    t = _size_tensors.get(size)
    if t is None:
        if len(_size_tensors) > 512:
            _size_tensors.clear()
        t = _size_tensors[size] = from_contiguous(np.array(size, np.int32))
    return constant(t)


@kernel("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d", target="CPU", only="float32")
def _adaptive_avg(x, *, out):
    s, dims = shape_of(x), len(out)
    if all([o == 1 for o in out]):
        m = _planes(x, dims)
        return reshape(op(P.Mul)(op(P.ReduceSum)(m, 1), number(1 / shape_of(m)[1], dtype_of(x))), s[:-dims] + tuple(out))
    if dims < 3:
        y = op(P.AdaptiveAvgPool2D, (1,) * (2 - dims) + tuple(out))(_lead(x, dims, 2))
    else:
        y = op(P.AdaptiveAvgPool3D, tuple(out))(_lead(x, 3, 3))
    return reshape(y, s[:-dims] + tuple(out))


@kernel("adaptive_avg_pool1d_backward adaptive_avg_pool2d_backward adaptive_avg_pool3d_backward", target="CPU", only="float32")
def _adaptive_avg_backward(g, *, size):
    s, dims = shape_of(g), len(size)
    shape = s[:-dims] + tuple(size)
    if all([o == 1 for o in s[-dims:]]):
        each = op(P.Mul)(g, number(1 / math.prod(size), dtype_of(g)))
        return each if shape == s else expanded(each, shape)
    if dims < 3:
        m = _lead(g, dims, 2)
        r = op(GO.AdaptiveAvgPool2DGrad)(m, cast(_sizes((*shape_of(m)[:2], *(1,) * (2 - dims), *size)), ms.int64))
    else:
        m = _lead(g, 3, 3)
        r = op(GO.AdaptiveAvgPool3DGrad)(m, _sizes((*shape_of(m)[:2], *size)))
    return reshape(r, shape)


@kernel("max_unpool", target="CPU", only="float32 float64 int64")
def _max_unpool(x, index, *, size):
    # TensorScatterUpdate raises an error for an index outside a plane.
    dims = len(size)
    lead = shape_of(x)[:-dims]
    values, indices = _planes(x, dims), _planes(index, dims)
    planes, each = shape_of(values)
    rows = from_contiguous(np.repeat(np.arange(planes), each).reshape(planes, each, 1))
    at = op(P.Concat, -1)((rows, reshape(indices, (planes, each, 1))))
    return reshape(op(P.TensorScatterUpdate)(full((planes, math.prod(size)), 0, dtype_of(x)), at, values), (*lead, *size))
