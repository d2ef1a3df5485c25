"""Ascend kernels for interpolation, padding and grid_sample. Each is one launch of an aclnn kernel
unless noted."""

import numpy as np

from mindtorch.backend.cpu import padding, resize as host
from mindtorch.backend.mindspore.kernels._call import G, UnsupportedByKernel, dtype_of, cached_constants, op, shape_of
from mindtorch.backend.mindspore.kernels._index_utils import table
from mindtorch.backend.mindspore.kernels.ascend import CUBE, ascend, copy, empty, zeros
from mindtorch.backend.mindspore.kernels.shapes import narrowed

# ------------------------------------------------------------------ interpolation
#
# kind -> (forward, gradient). The nearest kernels accept neither `align` nor a scale that differs
# from the ratio of the sizes.
_KINDS = {
    "upsample_nearest1d": (G.UpsampleNearest1D, G.UpsampleNearest1DGrad),
    "upsample_nearest2d": (G.UpsampleNearest2D, G.UpsampleNearest2DGrad),
    "upsample_nearest3d": (G.UpsampleNearest3D, G.UpsampleNearest3DGrad),
    "upsample_linear1d": (G.UpsampleLinear1D, G.UpsampleLinear1DGrad),
    "upsample_bilinear2d": (G.UpsampleBilinear2D, G.UpsampleBilinear2DGrad),
    "upsample_bicubic2d": (G.UpsampleBicubic2D, G.UpsampleBicubic2DGrad),
    "upsample_trilinear3d": (G.UpsampleTrilinear3D, G.UpsampleTrilinear3DGrad),
}


def _by_kernel(kind, backward, size, out, scales, align):
    """Returns f(x, *input size) that launches the kernel, or None if the elements have to be
    gathered by index."""
    if kind not in _KINDS:
        return None
    prim = _KINDS[kind][backward]
    plain = align or all([s is None or n * s == m for n, m, s in zip(size, out, scales)])
    to = (tuple(out), None) if plain else (None, tuple([0.0 if s is None else float(s) for s in scales]))
    if "nearest" in kind:
        return (lambda *a: op(prim)(*a, *to)) if plain else None
    if "trilinear" in kind:
        return lambda *a: op(prim, align)(*a, *to)
    return lambda *a: op(prim)(*a, *to, align)


@cached_constants(512)
def _rows(kind, size, out, scales):
    """Returns (axis, source index of each output element) for each axis that changes."""
    return [(axis, table(index[0])) for axis, index, _, _ in host._plan(kind, size, out, scales, False, np.float32)]


def _upsample(kind):
    def run(x, *, size, scales, align):
        have = tuple(shape_of(x)[2:])
        call = _by_kernel(kind, 0, have, size, scales, align)
        if call is not None:
            r = call(x)
            if tuple(shape_of(r)[2:]) != tuple(size):
                raise UnsupportedByKernel  # the kernel rounds size * scale differently
            return r
        maps = _rows(kind, have, tuple(size), tuple(scales))  # one launch per axis
        for axis, index in maps:
            x = op(G.IndexSelect)(x, axis, index)
        return x if maps else copy(x)
    return run


for _kind in (*_KINDS, *[f"upsample_nearest_exact{n}d" for n in (1, 2, 3)]):
    ascend(_kind, _upsample(_kind), only=CUBE)


@ascend("upsample_backward", only=CUBE)
def _upsample_backward(g, *, size, kind, scales, align):
    size, out = tuple(size), tuple(shape_of(g)[2:])
    call = _by_kernel(kind, 1, size, out, scales, align)
    if call is not None:
        return call(g, (*shape_of(g)[:2], *size))
    if "nearest" not in kind:
        raise UnsupportedByKernel
    maps = _rows(kind, size, out, tuple(scales))  # two launches per axis
    for axis, index in reversed(maps):
        g = _added_up(g, axis, index, size[axis - 2])
    return g if maps else copy(g)


def _added_up(g, axis, index, n):
    """Adds the slices of g at their indices along an axis of n elements."""
    shape = list(shape_of(g))
    shape[axis] = n
    return op(G.IndexAddExt)(zeros(shape, dtype_of(g)), axis, index, g, 1)


# ------------------------------------------------------------------ padding
@ascend("constant_pad_nd")
def _constant_pad(x, *, pads, value):
    shape = shape_of(x)
    if not shape or value.__class__ is complex:
        raise UnsupportedByKernel
    for axis, (lo, hi) in enumerate(pads):
        if lo < 0 or hi < 0:  # negative padding: crop first, with a view
            if shape[axis] + min(lo, 0) + min(hi, 0) <= 0:
                raise UnsupportedByKernel
            x = narrowed(x, axis, max(-lo, 0), shape[axis] - max(-hi, 0))
    flat = [max(n, 0) for pair in reversed(pads) for n in pair]
    while flat and not flat[-1] and not flat[-2]:
        flat = flat[:-2]
    return op(G.ConstantPadND)(x, tuple(flat), value) if flat else copy(x)


_MIRRORS = {"reflect": ((G.ReflectionPad1D, G.ReflectionPad1DGrad), (G.ReflectionPad2D, G.ReflectionPad2DGrad), (G.ReflectionPad3D, G.ReflectionPad3DGrad)),
            "replicate": ((G.ReplicationPad1D, G.ReplicationPad1DGrad), (G.ReplicationPad2D, G.ReplicationPad2DGrad),
                          (G.ReplicationPad3D, G.ReplicationPad3DGrad))}


def _mirror(plan, rank):
    """Returns (number of padded dims, kernel padding with the last dimension first) if one kernel
    covers the plan, else None."""
    modes = {p[1] for p in plan}
    if len(modes) != 1 or not modes <= _MIRRORS.keys() or any([p[3] < 0 or p[4] < 0 for p in plan]):
        return None
    dims = rank - min([p[0] for p in plan])
    if dims > 3 or not dims < rank <= dims + 2:
        return None
    counts = {p[0]: p[3:5] for p in plan}
    return dims, tuple([n for axis in range(rank - 1, rank - 1 - dims, -1) for n in counts.get(axis, (0, 0))])


@cached_constants(512)
def _source(mode, n, lo, hi):
    """Returns the source index, of n, of each element of the padded axis. The table is cached on
    the device."""
    return table(np.asarray(padding._index(mode, n, lo, hi), np.int64))


@ascend("pad_by_index")
def _pad_by_index(x, *, plan):
    found = _mirror(plan, len(shape_of(x)))
    if found is not None:
        return op(_MIRRORS[plan[0][1]][found[0] - 1][0])(x, found[1])
    original = x
    for axis, mode, n, lo, hi in plan:  # one launch per axis
        x = op(G.IndexSelect)(x, axis, _source(mode, n, lo, hi))
    return copy(x) if x is original else x


@ascend("pad_by_index_backward", only=CUBE)
def _pad_by_index_backward(g, *, plan):
    shape = list(shape_of(g))
    found = _mirror(plan, len(shape))
    if found is not None:
        for axis, _, n, *_ in plan:
            shape[axis] = n
        return op(_MIRRORS[plan[0][1]][found[0] - 1][1])(g, empty(shape, dtype_of(g)), found[1])
    original = g
    for axis, mode, n, lo, hi in reversed(plan):  # two launches per axis
        g = _added_up(g, axis, _source(mode, n, lo, hi), n)
    return copy(g) if g is original else g


# ------------------------------------------------------------------ grid_sample
def _known(kind):
    if kind == "bicubic":
        raise UnsupportedByKernel  # aclnn supports bicubic, but MindSpore's primitive does not accept it


@ascend("grid_sampler_2d", only=CUBE)
def _grid_sampler_2d(x, grid, *, kind, padding, align):
    _known(kind)
    return op(G.GridSampler2D, kind, padding, align)(x, grid)


ascend("grid_sampler_3d", lambda x, grid, *, kind, padding, align: op(G.GridSampler3D, kind, padding, align)(x, grid), only=CUBE)


@ascend("grid_sampler_backward", only=CUBE)
def _grid_sampler_backward(g, x, grid, *, kind, padding, align, needs):
    _known(kind)
    prim = G.GridSampler3DGrad if len(shape_of(x)) == 5 else G.GridSampler2DGrad
    gx, gg = op(prim, kind, padding, align, (int(needs[0]), int(needs[1])))(g, x, grid)
    return gx if needs[0] else None, gg if needs[1] else None
