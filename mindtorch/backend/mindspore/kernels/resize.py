"""Interpolation and affine grids for the CPU target; pixel and channel shuffles for both targets.

Interpolation works axis by axis with the host kernels' indices and weights. The forward pass
gathers and weights up to 4 elements instead of multiplying by a matrix, where infinity times a zero
weight would be NaN. Gradients are products with the interpolation matrices.
"""
import math

import numpy as np

from mindtorch.backend.cpu import resize as host
from mindtorch.backend.mindspore.kernels._call import (G, UnsupportedByKernel, P, STYPES, stype_of, copied, dtype_of, from_contiguous, cached_constants, kernel,
                                                       op,
                                                       reshape,
                                                       shape_of, stride_of)
from mindtorch.backend.mindspore.kernels._index_utils import dense, permuted, view


@cached_constants(512)
def _maps(kind, size, out, scales, align, dtype):
    """Returns (axis, (indices of the taps, their weights or None), interpolation matrix (in, out))
    for each axis that changes."""
    real = STYPES[dtype].type
    maps = []
    for axis, index, weight, n in host._plan(kind, size, out, scales, align, real):
        rank = len(size) + 2
        taps = None
        if len(index) <= 4:
            weights = None if weight is None else [from_contiguous(host._per_axis(np.ascontiguousarray(w, real), axis, rank)) for w in weight]
            taps = [from_contiguous(np.ascontiguousarray(i, np.int32)) for i in index], weights
        maps.append((axis, taps, from_contiguous(host._matrix(index, weight, n, np.dtype(real)))))
    return tuple(maps)


def _along(x, axis, m, transposed):
    """Multiplies each line along an axis by the matrix (or its transpose)."""
    s = shape_of(x)
    out = shape_of(m)[not transposed]
    if axis == len(s) - 1:
        return reshape(op(P.MatMul, False, transposed)(reshape(x, (-1, s[-1])), m), (*s[:-1], out))
    lead, tail = math.prod(s[:axis]), math.prod(s[axis + 1:])
    y = op(P.MatMul, not transposed, False)(m, reshape(permuted(reshape(x, (lead, s[axis], tail)), (1, 0, 2)), (s[axis], -1)))
    return reshape(permuted(reshape(y, (out, lead, tail)), (1, 0, 2)), (*s[:axis], out, *s[axis + 1:]))


def _upsample(kind):
    def run(x, *, size, scales, align):
        original = x
        for axis, taps, m in _maps(kind, shape_of(x)[2:], size, scales, align, dtype_of(x)):
            if taps is None:
                x = _along(x, axis, m, False)
                continue
            index, weights = taps
            if weights is None:
                x = op(P.Gather)(x, index[0], axis)
                continue
            r = None
            for i, w in zip(index, weights):
                part = op(P.Mul)(op(P.Gather)(x, i, axis), w)
                r = part if r is None else op(P.Add)(r, part)
            x = r
        return copied(x) if x is original else x
    return run


for _kind in host._KINDS:
    kernel(_kind, _upsample(_kind), target="CPU", only="float32 float64")


@kernel("upsample_backward", target="CPU", only="float32 float64")
def _upsample_backward(g, *, size, kind, scales, align):
    original = g
    for axis, _, m in reversed(_maps(kind, tuple(size), shape_of(g)[2:], scales, align, dtype_of(g))):
        g = _along(g, axis, m, True)
    return copied(g) if g is original else g


# ------------------------------------------------------------------ shuffles
def _reordered(x, sizes, order):
    """Returns a copy of x, reshaped to `sizes` and permuted."""
    x = reshape(dense(x), sizes)
    strides = stride_of(x)
    return copied(view(x, tuple([sizes[d] for d in order]), tuple([strides[d] for d in order]), 0, stype_of(x)))


@kernel("pixel_shuffle", half=True)
def _shuffle(x, *, factor):
    r = factor
    *lead, c, h, w = shape_of(x)
    k = len(lead)
    y = _reordered(x, (*lead, c // (r * r), r, r, h, w), (*range(k + 1), k + 3, k + 1, k + 4, k + 2))
    return reshape(y, (*lead, c // (r * r), h * r, w * r))


@kernel("pixel_unshuffle", half=True)
def _unshuffle(x, *, factor):
    r = factor
    *lead, c, h, w = shape_of(x)
    k = len(lead)
    y = _reordered(x, (*lead, c, h // r, r, w // r, r), (*range(k + 1), k + 2, k + 4, k + 1, k + 3))
    return reshape(y, (*lead, c * r * r, h // r, w // r))


@kernel("native_channel_shuffle", half=True)
def _channels(x, *, groups):
    s = shape_of(x)
    return reshape(_reordered(x, (s[0], groups, s[1] // groups, *s[2:]), (0, 2, 1, *range(3, len(s) + 1))), s)


@kernel("affine_base_grid", target="CPU", half=True)
def _base_grid(theta, *, size, align):
    np_dtype = stype_of(theta)
    return from_contiguous(np.ascontiguousarray(host._base_grid(np.empty(0, np_dtype), size=size, align=align)))


# ------------------------------------------------------------------ grid_sample
def _solid(x, grid):
    """Reshapes images and their grid to volumes of depth 1."""
    s, g = shape_of(x), shape_of(grid)
    flat = op(P.Pad, ((0, 0),) * 3 + ((0, 1),))(grid)
    return reshape(x, (s[0], s[1], 1, *s[2:])), reshape(flat, (g[0], 1, g[1], g[2], 3))


@kernel("grid_sampler_2d", target="CPU", only="float32")
def _grid_sampler_2d(x, grid, *, kind, padding, align):
    if kind == "bicubic":
        raise UnsupportedByKernel
    n, c, *_ = shape_of(x)
    return reshape(op(P.GridSampler3D, kind, padding, align)(*_solid(x, grid)), (n, c, *shape_of(grid)[1:3]))


kernel("grid_sampler_3d", lambda x, grid, *, kind, padding, align: op(P.GridSampler3D, kind, padding, align)(x, grid), target="CPU", only="float32")


@kernel("grid_sampler_backward", target="CPU", only="float32")
def _grid_sampler_backward(g, x, grid, *, kind, padding, align, needs):
    if kind == "bicubic":
        raise UnsupportedByKernel
    s, grid_shape = shape_of(x), shape_of(grid)
    if len(s) == 5:
        gx, gg = op(G.GridSampler3DGrad, kind, padding, align)(g, x, grid)
        return gx if needs[0] else None, gg if needs[1] else None
    # GridSampler2DGrad writes out of bounds.
    x, grid = _solid(x, grid)
    gx, gg = op(G.GridSampler3DGrad, kind, padding, align)(reshape(g, (*s[:2], 1, *grid_shape[1:3])), x, grid)
    flat = copied(op(P.Slice)(reshape(gg, (*grid_shape[:3], 3)), (0, 0, 0, 0), grid_shape)) if needs[1] else None
    return reshape(gx, s) if needs[0] else None, flat
