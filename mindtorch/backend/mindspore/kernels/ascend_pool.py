"""Pooling on Ascend. 1-d average pooling is computed on images of one row; 2-d and 3-d average
pooling and plain 2-d max pooling have their own kernels.

There are no aclnn kernels for 1-d and 3-d max pooling, dilated max pooling and adaptive max
pooling. They gather the elements of every window with an index table and take the maximum of each
window: four launches with the indices, two for the gradient.
"""
import math

import numpy as np

from mindtorch.backend.mindspore.kernels._call import dtype_of, G, cached_constants, ms, op, P, reshape, shape_of, UnsupportedByKernel
from mindtorch.backend.mindspore.kernels._index_utils import table
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy, CUBE, empty, zeros


def _exceeds(size, kernel, stride, padding, dilation, out):
    """True if there are more windows than fit completely, as with `ceil_mode`."""
    return tuple(out) != tuple([(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(size, kernel, stride, padding, dilation)])


# ------------------------------------------------------------------ average pooling
def _rows(x, n):
    """Reshapes x (*, L) to images of one row, (N, C, 1, L), with N = 1 for an unbatched input."""
    s = shape_of(x)
    return reshape(x, (*(s[:-1] if len(s) == 3 else (1, *s[:-1])), 1, n))


@ascend("avg_pool1d", only=CUBE)
def _avg1(x, *, kernel, stride, padding, out, include_pad, override):
    s = shape_of(x)
    ceil = _exceeds(s[-1:], kernel, stride, padding, (1,), out)
    y = op(G.AvgPool2D)(_rows(x, s[-1]), (1, *kernel), (1, *stride), (0, *padding), ceil, include_pad, override)
    return reshape(y, (*s[:-1], *out))


@ascend("avg_pool1d_backward", only=CUBE)
def _avg1_backward(g, *, size, kernel, stride, padding, include_pad, override):
    s = shape_of(g)
    ceil = _exceeds(size, kernel, stride, padding, (1,), s[-1:])
    rows = _rows(g, s[-1])
    x = empty((*shape_of(rows)[:-1], *size), dtype_of(g))
    return reshape(op(G.AvgPool2DGrad)(rows, x, (1, *kernel), (1, *stride), (0, *padding), ceil, include_pad, override), (*s[:-1], *size))


def _volumes(x):
    return x if len(shape_of(x)) == 5 else reshape(x, (1, *shape_of(x)))


@ascend("avg_pool3d", only=CUBE)
def _avg3(x, *, kernel, stride, padding, out, include_pad, override):
    s = shape_of(x)
    ceil = _exceeds(s[-3:], kernel, stride, padding, (1,) * 3, out)
    y = op(G.AvgPool3DExt)(_volumes(x), tuple(kernel), tuple(stride), tuple(padding), ceil, include_pad, override)
    return reshape(y, (*s[:-3], *out))


@ascend("avg_pool3d_backward", only=CUBE)
def _avg3_backward(g, *, size, kernel, stride, padding, include_pad, override):
    s = shape_of(g)
    ceil = _exceeds(size, kernel, stride, padding, (1,) * 3, s[-3:])
    g = _volumes(g)
    x = empty((*shape_of(g)[:2], *size), dtype_of(g))
    r = op(G.AvgPool3DGradExt)(g, x, tuple(kernel), tuple(stride), tuple(padding), ceil, include_pad, override)
    return reshape(r, (*s[:-3], *size))


@ascend("adaptive_avg_pool1d", only=CUBE)
def _mean1(x, *, out):
    s = shape_of(x)
    return reshape(op(G.AdaptiveAvgPool2DExt)(_rows(x, s[-1]), (1, *out)), (*s[:-1], *out))


@ascend("adaptive_avg_pool1d_backward", only=CUBE)
def _mean1_backward(g, *, size):
    s = shape_of(g)
    rows = _rows(g, s[-1])
    return reshape(op(G.AdaptiveAvgPool2DGradExt)(rows, empty((*shape_of(rows)[:-1], *size), dtype_of(g))), (*s[:-1], *size))


ascend("adaptive_avg_pool3d", lambda x, *, out: reshape(op(G.AdaptiveAvgPool3DExt)(_volumes(x), tuple(out)), (*shape_of(x)[:-3], *out)), only=CUBE)


@ascend("adaptive_avg_pool3d_backward", only=CUBE)
def _mean3_backward(g, *, size):
    s = shape_of(g)
    g = _volumes(g)
    return reshape(op(G.AdaptiveAvgPool3DGradExt)(g, empty((*shape_of(g)[:2], *size), dtype_of(g))), (*s[:-3], *size))


# ------------------------------------------------------------------ max pooling with an index table
def _sliding(n, kernel, stride, padding, dilation, out):
    """Returns the indices of the elements of each window along one axis, shape (out, kernel); -1
    outside the input."""
    at = np.arange(out)[:, None] * stride - padding + np.arange(kernel) * dilation
    return np.where((at >= 0) & (at < n), at, -1)


def _dividing(n, out):
    starts, ends = np.arange(out) * n // out, -(-(np.arange(1, out + 1) * n) // out)
    at = starts[:, None] + np.arange((ends - starts).max())
    return np.where(at < ends[:, None], at, -1)


@cached_constants(256)
def _windows(size, axes):
    """Returns (linear indices of the elements of all windows, offset of each window in them,
    elements per window). Elements outside the input are replaced by the first element of their
    window."""
    indices = np.zeros((1, 1), np.int64)
    for n, (make, *settings) in zip(size, axes):
        more = make(n, *settings)
        a, b = indices[:, None, :, None], more[None, :, None, :]
        indices = np.where((a < 0) | (b < 0), -1, a * n + b).reshape(len(indices) * len(more), -1)
    inside = indices >= 0
    first = np.take_along_axis(indices, inside.argmax(1)[:, None], 1)
    indices = np.where(inside, indices, first)
    return table(indices.reshape(-1)), table(np.arange(len(indices)) * indices.shape[1]), indices.shape[1]


def of_windows(x, axes, out, return_indices):
    """Returns the maximum of each window, and with `return_indices` its linear index too. The first
    of equal maxima wins, and NaN counts as the maximum."""
    s, dims = shape_of(x), len(out)
    at, starts, n = _windows(tuple(s[-dims:]), axes)
    planes = reshape(x, (math.prod(s[:-dims]), math.prod(s[-dims:])))
    picked = reshape(op(G.IndexSelect)(planes, 1, at), (shape_of(planes)[0], math.prod(out), n))
    y, which = op(G.MaxDim)(picked, 2, False)
    y = reshape(y, (*s[:-dims], *out))
    if not return_indices:
        return y
    index = op(G.IndexSelect)(at, 0, reshape(op(G.AddExt)(which, starts, 1), (-1,)))
    return y, reshape(index, (*s[:-dims], *out))


def sliding_max(x, *, kernel, stride, padding, dilation, out, return_indices):
    axes = tuple([(_sliding, *settings) for settings in zip(kernel, stride, padding, dilation, out)])
    found = of_windows(x, axes, out, return_indices)
    if return_indices:
        # The indices that the host saves for the gradient are relative to the window.
        found[1].linear_indices = True
    return found


def scatter_windows(g, index, size):
    """Adds the elements of g at their indices in planes of shape `size`."""
    dims = len(size)
    s = shape_of(g)
    planes = math.prod(s[:-dims]), math.prod(s[-dims:])
    r = zeros((planes[0], math.prod(size)), dtype_of(g))
    return reshape(op(G.ScatterAddExt)(r, 1, reshape(index, planes), reshape(g, planes)), (*s[:-dims], *size))


ascend("max_pool1d max_pool3d", sliding_max, only=CUBE)


@ascend("adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d", only=CUBE)
def _adaptive_max(x, *, target, return_indices):
    return of_windows(x, tuple([(_dividing, n) for n in target]), tuple(target), return_indices)


ascend("scatter_flat", lambda g, index, *, size: scatter_windows(g, index, size), only=CUBE + " int64")


@ascend("gather_flat")
def _gather_flat(x, index, *, dims):
    s, out = shape_of(x), shape_of(index)
    lead = math.prod(s[:-dims])
    r = op(G.GatherD)(reshape(x, (lead, math.prod(s[-dims:]))), 1, reshape(index, (lead, math.prod(out[-dims:]))))
    return reshape(r, out)


@ascend("max_unpool", only=CUBE + " int64")
def _max_unpool(x, index, *, size):
    dims = len(size)
    lead = shape_of(x)[:-dims]
    planes = math.prod(lead), math.prod(shape_of(x)[-dims:])
    r = zeros((planes[0], math.prod(size)), dtype_of(x))
    return reshape(op(G.Scatter)(r, 1, reshape(index, planes), reshape(x, planes), "none"), (*lead, *size))


# ------------------------------------------------------------------ 2-d pooling
def _images(x):
    """Returns x as (N, C, H, W); an image without a batch dimension as a view with one."""
    return x if len(shape_of(x)) == 4 else op(P.Reshape)(x, (1, *shape_of(x)))


@ascend("max_pool2d", only=CUBE)
def _max_pool(x, *, kernel, stride, padding, dilation, out, return_indices):
    if any(d != 1 for d in dilation):
        return sliding_max(x, kernel=kernel, stride=stride, padding=padding, dilation=dilation, out=out, return_indices=return_indices)
    shape = shape_of(x)
    settings = tuple(kernel), tuple(stride), tuple(padding), (1, 1), _exceeds(shape[-2:], kernel, stride, padding, dilation, out)
    brain = dtype_of(x) is ms.bfloat16
    if brain:  # MindSpore does not support bfloat16 here; float32 represents the same values.
        x = op(P.Cast)(x, ms.float32)
    y, mask = op(G.MaxPoolWithMask, *settings)(_images(x))
    if shape_of(y)[2:] != tuple(out):
        raise UnsupportedByKernel
    if brain:
        y = op(P.Cast)(y, ms.bfloat16)
    if len(shape) == 3:
        y = y.view(shape[:1] + tuple(out))
    if not return_indices:
        return y
    # The gradient's kernel needs the input in addition to the mask, whose bits have their own
    # order.
    mask.pooled = x, settings
    return y, mask


@ascend("max_pool_backward")
def _max_pool_backward(g, arg, *, size, kernel, stride, padding, dilation):
    if hasattr(arg, "linear_indices"):
        return scatter_windows(g, arg, size)
    x, settings = _pooled(arg)
    brain = dtype_of(g) is ms.bfloat16
    r = op(G.MaxPoolGradWithMask, *settings)(_images(x), _images(op(P.Cast)(g, ms.float32) if brain else g), arg)
    r = r if len(shape_of(x)) == 4 else r.view(shape_of(x))
    return op(P.Cast)(r, ms.bfloat16) if brain else r


@ascend("max_pool_index")
def _max_pool_index(arg, *, size, kernel, stride, padding, dilation):
    if hasattr(arg, "linear_indices"):
        return copy(arg)
    x, settings = _pooled(arg)
    index = op(P.Cast)(op(G.MaxPoolWithIndices, *settings)(_images(x))[1], ms.int64)
    return index if len(shape_of(x)) == 4 else index.view(shape_of(index)[1:])


def _pooled(arg):
    found = getattr(arg, "pooled", None)
    if found is None:
        raise UnsupportedByKernel  # indices that the host computed
    return found


@ascend("avg_pool2d", only=CUBE)
def _avg_pool(x, *, kernel, stride, padding, out, include_pad, override):
    shape = shape_of(x)
    ceil = _exceeds(shape[-2:], kernel, stride, padding, (1, 1), out)
    y = op(G.AvgPool2D)(_images(x), tuple(kernel), tuple(stride), tuple(padding), ceil, include_pad, override)
    return y if len(shape) == 4 else y.view(shape_of(y)[1:])


@ascend("avg_pool2d_backward", only=CUBE)
def _avg_pool_backward(g, *, size, kernel, stride, padding, include_pad, override):
    lead, out = shape_of(g)[:-2], shape_of(g)[-2:]
    ceil = _exceeds(size, kernel, stride, padding, (1, 1), out)
    image = empty((lead if len(lead) == 2 else (1, *lead)) + tuple(size), dtype_of(g))
    r = op(G.AvgPool2DGrad)(_images(g), image, tuple(kernel), tuple(stride), tuple(padding), ceil, include_pad, override)
    return r if len(lead) == 2 else r.view(lead + tuple(size))


ascend("adaptive_avg_pool2d", lambda x, *, out: op(G.AdaptiveAvgPool2DExt)(x, tuple(out)), only=CUBE)


@ascend("adaptive_avg_pool2d_backward", only=CUBE)
def _adaptive_avg_pool_backward(g, *, size):
    return op(G.AdaptiveAvgPool2DGradExt)(g, empty(shape_of(g)[:-2] + tuple(size), dtype_of(g)))
