"""Differences of graphs on Ascend: views need no launch, stores have their own kernels, and scalars
are passed as scalars.

MindSpore's graphs at O0 pass strided operands to aclnn kernels. These operands are made by the
primitives whose names end in View (AsStrided and View have no graph form). A Reshape costs nothing
between two kernels. It costs a copy (memcpyD2D) before a view, of a graph input, and of a graph
result. So inputs are reshaped before the run, and results after it.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch.backend.mindspore.runtime import target
from mindspore.ops import auto_generate as G
from mindspore.ops import operations as P

_slice, _transpose, _broadcast, _expand, _select, _reshape = (G.SliceExtView(), G.TransposeView(), G.BroadcastToView(), G.ExpandDimsView(), G.SelectExtView(),
                                                              P.Reshape())


ASCEND = target() == "Ascend"


def _neg(c):
    return -c


class Replaced:
    """Replacement for a primitive that modifies its first operand in place.

    `in_place` is the in-place call, for a piece of graph state (None: no single launch does it).
    `out_of_place` is the out-of-place call.
    """

    __slots__ = ("out_of_place", "in_place")

    def __init__(self, out_of_place: Callable[..., tuple[Any, ...]], in_place: Callable[..., tuple[Any, ...]] | None = None) -> None:
        self.out_of_place, self.in_place = out_of_place, in_place


def _same(prim):
    return lambda *args: (prim, *args)


_adds, _subs, _muls, _divs = G.AddScalar(), G.SubScalar(), G.Muls(), G.Divs() if hasattr(G, "Divs") else None
#: At O0 MindSpore decomposes InplaceSubExt, InplaceDiv and Assign, or compiles them online.
REPLACED = {
    "InplaceAddExt": Replaced(_same(G.AddExt()), _same(G.InplaceAddExt())),
    "InplaceSubExt": Replaced(_same(G.SubExt()), lambda x, y, c=1: (G.InplaceAddExt(), x, y, -c)),
    "InplaceAddsExt": Replaced(_same(_adds), _same(G.InplaceAddsExt())),
    "InplaceSubScalar": Replaced(_same(_subs), lambda x, y, c=1: (G.InplaceAddsExt(), x, y, -c)),
    "InplaceMul": Replaced(_same(G.Mul()), _same(G.InplaceMul())),
    "InplaceMuls": Replaced(_same(_muls), _same(G.InplaceMuls())),
    "InplaceDiv": Replaced(_same(G.Div())),
    "InplaceClampScalar": Replaced(_same(G.ClampScalar())),
    "InplaceExp": Replaced(_same(G.Exp())),
    "InplaceLog": Replaced(_same(G.Log())),
    "InplaceTanh": Replaced(_same(G.Tanh())),
    "InplaceSigmoid": Replaced(_same(G.Sigmoid())),
    "InplaceFloor": Replaced(_same(G.Floor())),
}
if _divs is not None:
    REPLACED["InplaceDivs"] = Replaced(_same(_divs))


def read(emit: Callable[..., Any], reshaped: Callable[[tuple[int, ...]], Any], root_sizes: Sequence[int], sizes: Sequence[int], strides: Sequence[int],
         offset: int) -> Any:
    """Reads a view of a root by MindSpore's view primitives; returns None if they cannot express
    it.

    `reshaped(sizes)` returns the root in other sizes.
    """
    found = _plan(tuple(root_sizes), tuple(sizes), tuple(strides), offset)
    if found is None:
        return None
    cells, steps, order, lone, target = found
    if math.prod(cells) == 1:
        cells, steps, lone = (), [], []
    if _alike(root_sizes, cells):
        v = reshaped(tuple(root_sizes))  # a Reshape would be a copy
        for d in reversed(range(len(root_sizes))):
            if root_sizes[d] == 1:
                v = emit(_select, v, d, 0)
    else:
        v = reshaped(cells)
    have = list(cells)
    for d, (start, n, step) in enumerate(steps):
        if n != have[d]:
            v = emit(_slice, v, d, start, start + (n - 1) * step + 1, step)
            have[d] = n
    # dimensions of which one index is taken and which the view does not have
    for d in reversed(lone):
        v = emit(_select, v, d, 0)
        have.pop(d)
    if order != sorted(order):
        v = emit(_transpose, v, tuple(order))
    have = [have[d] for d in order]
    for d, n in enumerate(target):
        if d >= len(have) or n != have[d]:
            v = emit(_expand, v, d)
            have.insert(d, 1)
    return v if tuple(have) == tuple(sizes) else emit(_broadcast, v, tuple(sizes))


def _alike(a, b):
    return [n for n in a if n != 1] == [n for n in b if n != 1]


def turned(root_sizes: Sequence[int], sizes: Sequence[int], strides: Sequence[int], offset: int) -> bool:
    """True if a view is the entire root with permuted dimensions and would need a Reshape before
    the permutation."""
    if offset or 0 in strides or math.prod(sizes) != math.prod(root_sizes):
        return False
    found = _plan(tuple(root_sizes), tuple(sizes), tuple(strides), offset)
    return found is not None and not _alike(root_sizes, found[0])


def merged(sizes: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns a view's (sizes, strides) with contiguous neighboring dimensions merged."""
    runs: list[tuple[int, int]] = []
    for n, s in zip(sizes, strides):
        if runs and runs[-1][1] == n * s and s:
            runs[-1] = (runs[-1][0] * n, s)
        elif n != 1:
            runs.append((n, s))
    return tuple([n for n, _ in runs]), tuple([s for _, s in runs])


def _plan(root, sizes, strides, offset):
    """Plans a view of a root.

    Returns (sizes of the cut root, (start, count, step) for each, order of the remaining
    dimensions, dimensions to drop, the view's sizes without repetitions), or None.
    """
    count = math.prod(root)
    moving = sorted([d for d, (n, s) in enumerate(zip(sizes, strides)) if n > 1 and s], key=lambda d: -strides[d])
    dims = [(sizes[d], strides[d]) for d in moving]
    own, t = [], 1
    for n in root[:0:-1]:
        t *= n
        own.append(t)
    views = [x for n, s in dims for x in (s, n * s)]
    for borders in (own, [*own, *views], views):
        cut = _cut(count, dims, offset, sorted(set(borders)))
        if cut is not None:
            break
    else:
        return None
    cells, steps, dims_of = cut
    if len(cells) > 8:
        return None
    lone = [d for d in range(len(cells)) if d not in dims_of]
    rest = [d for d in range(len(cells)) if d in dims_of]
    at = {dims_at: rest.index(cell) for cell, dims_at in dims_of.items()}
    order = [at[moving.index(d)] for d in range(len(sizes)) if d in moving]
    target = [n if d in moving else 1 for d, n in enumerate(sizes)]
    return tuple(cells), steps, order, lone, target


def _cut(count, dims, offset, borders):
    """Cuts the root at the block lengths of `borders` that separate dimensions of the view.

    Returns (sizes, (start, count, step) of each, {cell: dimension}), or None.
    """
    inner, cells = 1, []  # from the innermost outwards
    ends = []
    for t in borders:
        if t > inner and t % inner == 0 and t < count and count % t == 0 and _parts(dims, offset, t):
            ends.append(t)
            inner = t
    inner = 1
    for t in [*ends, count]:
        within = [k for k, (_, s) in enumerate(dims) if inner <= s < t]
        if len(within) > 1:
            return None
        start = offset % t // inner
        size = t // inner
        if within:
            n, s = dims[within[0]]
            if s % inner or start + (n - 1) * (s // inner) >= size:
                return None
            cells.append((size, (start, n, s // inner), within[0]))
        else:
            cells.append((size, (start, 1, 1), None))
        inner = t
    cells.reverse()
    # Drop cells whose size is 1 from the start: they hold no dimension of the view.
    cells = [c for c in cells if c[0] != 1] or cells[:1]
    return [c[0] for c in cells], [c[1] for c in cells], {i: c[2] for i, c in enumerate(cells) if c[2] is not None}


def _parts(dims, offset, t):
    """True if no dimension of the view crosses the borders of blocks of `t` elements."""
    return all([s < t or s % t == 0 for _, s in dims]) and offset % t + sum([(n - 1) * s for n, s in dims if s < t]) < t


def viewed(sizes: Sequence[int], strides: Sequence[int], want: Sequence[int]) -> tuple[int, ...] | None:
    """Returns the strides with which a view has the sizes `want` without a copy, or None."""
    runs: list[list[int]] = []  # (number of elements in the run, stride between them)
    for n, s in zip(sizes, strides):
        if n == 1:
            continue
        if runs and runs[-1][1] == n * s:
            runs[-1] = [runs[-1][0] * n, s]
        else:
            runs.append([n, s])
    out: list[int] = []
    left = step = 1
    for n in reversed(want):
        if n == 1:
            out.append(step)
            continue
        if left == 1:
            if not runs:
                return None
            left, step = runs.pop()
        if left % n:
            return None
        out.append(step)
        left, step = left // n, step * n
    return None if runs or left != 1 else tuple(reversed(out))
