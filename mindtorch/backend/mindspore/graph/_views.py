"""Views of memory, and writes through them, as calls of MindSpore primitives without side effects,
for a compiled graph.

A piece of memory (the root) is a contiguous value. A view of it is (sizes, strides, offset) in
elements of the root, which may overlap or repeat (stride 0). `read` returns the view's values as a
contiguous value, `write` the root's new values after a store.

The root is cut into cells: runs of adjacent dimensions, the root's own where possible, such that
each dimension of the view lies in one cell. One Slice takes contiguous ranges of all cells at once.
A step, or several overlapping dimensions, need a Gather along that cell. Then come Transpose, and
Tile for strides of 0. Reshape is inserted only where the sizes differ.

Time per call on the CPU target in a graph at O0, in us on top of an empty call, for float32; in
parentheses for a root of 1000 x 1000 (of which 400 us are for the result's memory): Reshape 0-1 (0
between two calls), Slice 2 (100 to 500), StridedSlice 50 (inner dimensions sliced as well: 13000),
Gather 2 (x[:, ::2]: 1290, StridedSlice 1330, Reshape and Slice 2750), Transpose 3 (1950),
BroadcastTo 3 (2020 to 2620), Tile 3 (1280 to 1410), Concat 3 (760).
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from mindspore import dtype as mstype
from mindspore.ops import auto_generate as G
from mindspore.ops import operations as P

Sizes = tuple[int, ...]
Dims = list[tuple[int, int]]


@functools.lru_cache(None)
def _op(cls: Any, *settings: Any) -> Any:
    """Returns a shared instance of a primitive with these settings."""
    return cls(*settings)


def read(emit: Callable[..., Any], root: Any, root_sizes: Sequence[int], sizes: Sequence[int], strides: Sequence[int], offset: int,
         dtype: Any = None, ascend: bool = False) -> Any:
    """Returns the values of a view as a contiguous value of `sizes`.

    `emit(primitive, *args)` records a call and returns the name of its value. Its args are names,
    tuples of names, or constants (scalars, tuples of scalars, NumPy arrays, a MindSpore dtype).
    `dtype` (a NumPy dtype or its name) is the dtype of the root and the view. It is needed for
    bfloat16 on the CPU target and for dtypes that Ascend's slices do not support. Raises ValueError
    for a view that exceeds the root.
    """
    where = _geometry(root_sizes, sizes, strides, offset)
    plan = _Plan(ascend, dtype)
    r = _read(plan, _Value(_ROOT, where.root, where.root), where)
    return plan.play(emit, (root,), plan.use(r))


def write(emit: Callable[..., Any], root: Any, root_sizes: Sequence[int], sizes: Sequence[int], strides: Sequence[int], offset: int, value: Any,
          dtype: Any = None, ascend: bool = False) -> Any:
    """Returns the root's new values after `value` (contiguous, of `sizes`) is stored through a
    view.

    `emit`, `dtype` and errors are as for `read`. Also raises ValueError for a view that has an
    element of the root twice.
    """
    where = _geometry(root_sizes, sizes, strides, offset)
    plan = _Plan(ascend, dtype)
    r = _write(plan, _Value(_ROOT, where.root, where.root), where, _Value(_STORED, where.sizes, where.sizes))
    return plan.play(emit, (root, value), plan.use(r))


# ------------------------------------------------------------------ geometry
class _Where(NamedTuple):
    root: Sizes
    sizes: Sizes
    strides: Sizes
    offset: int

    @property
    def elements(self) -> int:
        return math.prod(self.root)


def _geometry(root_sizes: Sequence[int], sizes: Sequence[int], strides: Sequence[int], offset: int) -> _Where:
    where = _Where(tuple(root_sizes), tuple(sizes), tuple(strides), offset)
    if len(where.sizes) != len(where.strides):
        raise ValueError(f"{len(where.sizes)} sizes and {len(where.strides)} strides")
    if 0 not in where.sizes:
        last = offset + sum([(n - 1) * s for n, s in zip(where.sizes, where.strides)])
        if offset < 0 or min(where.strides, default=0) < 0 or last >= where.elements:
            raise ValueError(f"the view {where.sizes}, {where.strides}, {offset} leaves its memory of {where.elements} elements")
    return where


def _name(dtype: Any) -> str | None:
    return dtype if dtype is None or dtype.__class__ is str else np.dtype(dtype).name


def _in_memory(where: _Where) -> list[int]:
    """Returns the dimensions with more than one element and a nonzero stride, in memory order."""
    return sorted([d for d, (n, s) in enumerate(zip(where.sizes, where.strides)) if n > 1 and s], key=lambda d: -where.strides[d])


def _merged(dims: Dims) -> Dims:
    """Merges contiguous neighboring dimensions, which are given in memory order."""
    r: Dims = []
    for n, s in dims:
        if r and r[-1][1] == n * s:
            r[-1] = (r[-1][0] * n, s)
        else:
            r.append((n, s))
    return r


def _parts_at(dims: Dims, offset: int, t: int) -> bool:
    """True if no dimension of the view crosses blocks of `t` elements: each goes from block to
    block, or stays within one."""
    return all([s < t or s % t == 0 for _, s in dims]) and offset % t + sum([(n - 1) * s for n, s in dims if s < t]) < t


class _Cell(NamedTuple):
    """A run of `size` elements, and the view's dimensions and offset in it."""
    size: int
    dims: Dims
    offset: int

    @property
    def step(self) -> int:
        return self.dims[0][1] if self.dims else 1

    @property
    def length(self) -> int:
        return self.dims[0][0] if self.dims else 1

    @property
    def is_stretch(self) -> bool:
        return not self.dims or len(self.dims) == 1 and self.step == 1

    @property
    def is_full(self) -> bool:
        return self.is_stretch and self.length == self.size

    def indices(self) -> np.ndarray:
        return _linear_indices([n for n, _ in self.dims], [s for _, s in self.dims], self.offset)


def _linear_indices(sizes: Sequence[int], strides: Sequence[int], offset: int) -> np.ndarray:
    at = np.full((), offset, np.int64)
    for n, s in zip(sizes, strides):
        at = at[..., None] + np.arange(n) * s
    return _index(at)


def _index(at: np.ndarray) -> np.ndarray:
    """Casts indices to int32 if they fit: Gather is a fifth faster, and the graph stores half as
    much."""
    return at.astype(np.int32) if not at.size or at.max() < 2 ** 31 else at


def _cut(size: int, dims: Dims, offset: int, at: Sequence[int]) -> list[_Cell]:
    """Cuts a run into cells at the block lengths `at` (increasing, each dividing the next)."""
    cells, inner = [], 1
    for t in at:
        cells.append(_Cell(t // inner, _merged([(n, s // inner) for n, s in dims if inner <= s < t]), offset % t // inner))
        inner = t
    cells.append(_Cell(size // inner, _merged([(n, s // inner) for n, s in dims if s >= inner]), offset // inner))
    return cells[::-1]


def _cells(where: _Where) -> list[_Cell]:
    """Returns the root as cells, outermost first: its own dimensions where the view does not cross
    their borders."""
    dims = [(where.sizes[d], where.strides[d]) for d in _in_memory(where)]
    borders, t = [], 1
    for n in where.root[:0:-1]:
        t *= n
        if _parts_at(dims, where.offset, t):
            borders.append(t)
    cells: list[_Cell] = []
    for cell in _cut(where.elements, dims, where.offset, borders):
        cells += _split(cell) if len(cell.dims) > 1 else [cell]
    return cells


def _split(cell: _Cell) -> list[_Cell]:
    """Splits a cell that contains several dimensions of the view at the view's own borders, e.g.
    x[:, 2:4] of a flat root."""
    found: list[int] = []
    for t in sorted({t for n, s in cell.dims for t in (s, n * s)}):
        if 1 < t < cell.size and cell.size % t == 0 and t % (found[-1] if found else 1) == 0 and _parts_at(cell.dims, cell.offset, t):
            found.append(t)
    cells = _cut(cell.size, cell.dims, cell.offset, found)
    return cells if all([len(c.dims) < 2 for c in cells]) else [cell]


# ------------------------------------------------------------------ calls
class _Ref(int):
    """Index of a value in the plan."""


_ROOT, _STORED = _Ref(0), _Ref(1)
#: the only kernels used here that support bfloat16 in a graph on the CPU target, which has no
#: ViewDtype either; others get float32, which represents bfloat16 exactly
_ANY_TYPE = (P.Slice, P.Concat)
#: dtypes that Ascend's Slice does not support and IndexSelect does
_UNSLICED = frozenset("int16 uint16 uint32 uint64 complex64 complex128".split())


#: maximum number of dimensions of the kernels; a value with more is viewed as three dimensions
#: around the affected one
_MOST = 8


def _around(sizes: Sequence[int], d: int) -> Sizes:
    return math.prod(sizes[:d]), sizes[d], math.prod(sizes[d + 1:])


class _Value(NamedTuple):
    """A value with its actual sizes (`have`) and the sizes in which it is viewed."""
    ref: _Ref
    have: Sizes
    sizes: Sizes

    def seen(self, sizes: Sequence[int]) -> _Value:
        return self._replace(sizes=tuple(sizes))


class _Plan:
    """The calls that will be emitted."""

    def __init__(self, ascend: bool, dtype: Any) -> None:
        self.ascend, self.dtype = ascend, _name(dtype)
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []

    def play(self, emit: Callable[..., Any], given: tuple[Any, ...], result: _Ref) -> Any:
        """Emits all calls; returns the name of the result."""
        upcast = self.dtype == "bfloat16" and not self.ascend and not all([isinstance(op, _ANY_TYPE) for op, _ in self.calls])
        used = {a for _, args in self.calls for b in args for a in (b if isinstance(b, tuple) else (b,)) if isinstance(a, _Ref)}
        names: dict[int, Any] = dict(enumerate(given))
        if upcast:
            names.update({i: emit(_op(P.Cast), n, mstype.float32) for i, n in names.items() if _Ref(i) in used})

        def named(a: Any) -> Any:
            if isinstance(a, tuple):
                return tuple([named(b) for b in a])
            return names[a] if isinstance(a, _Ref) else a
        for i, (op, args) in enumerate(self.calls):
            names[i + 2] = emit(op, *[named(a) for a in args])
        return emit(_op(P.Cast), names[result], mstype.bfloat16) if upcast else names[result]

    def call(self, sizes: Sequence[int], op: Any, *args: Any) -> _Value:
        self.calls.append((op, args))
        sizes = tuple([int(n) for n in sizes])
        return _Value(_Ref(len(self.calls) + 1), sizes, sizes)

    def use(self, v: _Value) -> _Ref:
        return v.ref if v.have == v.sizes else self.call(v.sizes, _op(P.Reshape), v.ref, v.sizes).ref

    def box(self, v: _Value, starts: Sequence[int], lengths: Sequence[int]) -> _Value:
        """Takes a contiguous range of every dimension."""
        if tuple(lengths) == v.sizes:
            return v
        if not self.ascend and len(v.sizes) <= _MOST:
            return self.call(lengths, _op(P.Slice), self.use(v), tuple(starts), tuple(lengths))
        for d, (at, n) in enumerate(zip(starts, lengths)):
            if n != v.sizes[d] and self.ascend:
                v = self.pick(v, d, at, n, 1)
            elif n != v.sizes[d]:
                before, m, after = _around(v.sizes, d)
                v = self.box(v.seen((before, m, after)), (0, at, 0), (before, n, after)).seen([*v.sizes[:d], n, *v.sizes[d + 1:]])
        return v

    def pick(self, v: _Value, dim: int, start: int, n: int, step: int) -> _Value:
        """Takes every `step`-th element of a dimension."""
        if len(v.sizes) > _MOST:
            return self.pick(v.seen(_around(v.sizes, dim)), 1, start, n, step).seen([*v.sizes[:dim], n, *v.sizes[dim + 1:]])
        if self.ascend and self.dtype not in _UNSLICED:
            stop = start + (n - 1) * step + 1 if n else start
            return self.call([*v.sizes[:dim], n, *v.sizes[dim + 1:]], _op(G.SliceExt), self.use(v), dim, start, stop, step)
        return self.take(v, dim, _index(start + np.arange(n) * step))

    def take(self, v: _Value, dim: int, index: np.ndarray) -> _Value:
        """Gathers indices of a dimension, which is replaced by the dimensions of `index`."""
        before, after = v.sizes[:dim], v.sizes[dim + 1:]
        if len(v.sizes) + max(index.ndim - 1, 0) > _MOST:
            return self.take(v.seen(_around(v.sizes, dim)), 1, index.reshape(-1)).seen([*before, *index.shape, *after])
        if self.ascend:  # aclnn has no kernel for P.Gather
            flat = self.call([*before, index.size, *after], _op(G.IndexSelect), self.use(v), dim, index.reshape(-1).astype(np.int64))
            return flat.seen([*before, *index.shape, *after])
        return self.call([*before, *index.shape, *after], _op(P.Gather), self.use(v), index, dim)

    def transpose(self, v: _Value, order: Sequence[int]) -> _Value:
        if tuple(order) == tuple(range(len(order))):
            return v
        return self.call([v.sizes[d] for d in order], _op(P.Transpose), self.use(v), tuple(order))

    def expand(self, v: _Value, sizes: Sizes) -> _Value:
        """Repeats dimensions of size 1."""
        if v.sizes == sizes:
            return v
        if len(sizes) > _MOST:
            for d, n in enumerate(sizes):
                if n != v.sizes[d]:
                    before, m, after = _around(v.sizes, d)
                    v = self.expand(v.seen((before, m, after)), (before, n, after)).seen([*v.sizes[:d], n, *v.sizes[d + 1:]])
            return v
        lead = next((d for d, n in enumerate(v.sizes) if n > 1), len(sizes))
        if lead and v.have == v.sizes[lead:] and v.have:
            v = v.seen(v.have)  # missing leading dimensions need no Reshape
        if self.ascend:
            return self.call(sizes, _op(P.BroadcastTo, sizes), self.use(v))
        have = (1,) * (len(sizes) - len(v.sizes)) + v.sizes
        return self.call(sizes, _op(P.Tile), self.use(v), tuple([n // m for n, m in zip(sizes, have)]))

    def concat(self, dim: int, parts: list[_Value]) -> _Value:
        sizes = list(parts[0].sizes)
        sizes[dim] = sum([p.sizes[dim] for p in parts])
        if len(sizes) > _MOST:
            return self.concat(1, [p.seen(_around(p.sizes, dim)) for p in parts]).seen(sizes)
        return self.call(sizes, _op(P.Concat, dim), tuple([self.use(p) for p in parts])) if len(parts) > 1 else parts[0]


# ------------------------------------------------------------------ reading
#: below so many elements a Gather goes before a Slice more
_FEW = 1024


def _read(plan: _Plan, root: _Value, where: _Where) -> _Value:
    sizes = where.sizes
    if 0 in sizes:
        return (plan.box(root.seen((where.elements,)), (0,), (0,)) if where.elements else root).seen(sizes)
    order = _in_memory(where)
    still = tuple([n if s else 1 for n, s in zip(sizes, where.strides)])      # the view without its repetitions
    moving = tuple([sizes[d] for d in order])
    cells = _cells(where)
    if len(cells) == 1 and len(cells[0].dims) > 1:
        near = _stretch(plan, root, where, cells[0])
        if near is not None:
            return near
        v = plan.take(root.seen((where.elements,)), 0, _linear_indices(still, where.strides, where.offset))
        return plan.expand(v, sizes)
    v = root.seen([c.size for c in cells])
    stretches = [c.length if c.is_stretch else c.size for c in cells]
    partial = [d for d, c in enumerate(cells) if not c.is_full]
    if len(partial) == 1 and not cells[partial[0]].dims and tuple(stretches) != still and not plan.ascend:
        d = partial[0]  # x[3]: a Gather with a scalar index also removes the dimension
        v = plan.take(v, d, _index(np.array(cells[d].offset, np.int64)))
    else:
        v = plan.box(v, [c.offset if c.is_stretch else 0 for c in cells], stretches)
        for d in reversed(partial):
            c = cells[d]
            if len(c.dims) > 1:
                v = plan.take(v, d, c.indices())
            elif not c.is_stretch:
                v = plan.pick(v, d, c.offset, c.length, c.step)
    if order == sorted(order):
        return plan.expand(v.seen(still), sizes)
    have = [n for n in v.have if n > 1]
    # Dimensions of size 1 are transposed along, which saves a Reshape before and one after.
    if len(v.have) == len(still) and tuple(have) == moving:
        at, ones = [d for d, n in enumerate(v.have) if n > 1], iter([d for d, n in enumerate(v.have) if n == 1])
        turned = [at[order.index(d)] if still[d] > 1 else next(ones) for d in range(len(still))]
        v = plan.transpose(v.seen(v.have), turned)
    else:
        v = plan.transpose(v.seen(moving), np.argsort(order).tolist())
    return plan.expand(v.seen(still), sizes)


def _stretch(plan: _Plan, root: _Value, where: _Where, cell: _Cell) -> _Value | None:
    """Reads a large view of rows whose length does not divide the root, from the range of memory
    that the rows occupy; None if not possible."""
    n, s = cell.dims[0]
    low = min(cell.offset, cell.size - n * s)
    if low < 0 or n * s == cell.size or math.prod([n for n, _ in cell.dims]) < _FEW:
        return None
    near = where._replace(root=(n * s,), offset=cell.offset - low)
    if any([len(c.dims) > 1 for c in _cells(near)]):
        return None
    return _read(plan, plan.box(root.seen((where.elements,)), (low,), (n * s,)), near)


# ------------------------------------------------------------------ writing
def _write(plan: _Plan, root: _Value, where: _Where, value: _Value) -> _Value:
    sizes, count = where.sizes, where.elements
    if 0 in sizes:
        return root
    _refuse_overlap(where)
    order = _in_memory(where)
    moving = [sizes[d] for d in order]
    n = math.prod(moving)
    turned = order != sorted(order)

    def in_memory() -> _Value:
        if not turned:
            return value
        full = [*[d for d in range(len(sizes)) if sizes[d] == 1], *order]
        return plan.transpose(value, full)
    if n == count:
        return in_memory().seen(where.root)
    cells = _cells(where)
    boxed = all([c.is_stretch for c in cells])
    partial = [d for d, c in enumerate(cells) if not c.is_full]
    # CPU target, time in us for 1000 x 1000 float32: TensorScatterUpdate 620 plus 0.019 for each
    # row of its index; Concat of slices 530 to 750; Select of values gathered from the stored value
    # 2700 to 3500; Select of a padded value 740 to 14300. TensorCopySlices supports only whole
    # rows, and no 8-bit or unsigned types. For 8 x 8 each takes 3 to 10 us.
    rows = _merged([(sizes[d], where.strides[d]) for d in order])
    row = math.prod(where.root[1:])
    block = math.gcd(count, where.offset, rows[-1][0], *[s for _, s in rows[:-1]]) if rows and rows[-1][1] == 1 else 1
    if row > 1 and block % row == 0 and n // row <= 256:
        block = row  # saves one or two Reshapes
    if not plan.ascend and n // block <= (1000 if boxed else 512 + count // 7):
        return _scattered(plan, root, where, in_memory, value, block)
    if boxed and (len(partial) == 1 or not plan.ascend):
        return _joined(plan, root, cells, partial, in_memory()).seen(where.root)
    indices = _linear_indices(sizes, where.strides, where.offset).reshape(-1)
    at, mask = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    at[indices], mask[indices] = np.arange(n), True
    shape = where.root if len(where.root) <= _MOST else (count,)
    found = plan.take(value.seen((n,)), 0, _index(at).reshape(shape))
    return plan.call(shape, _op(P.Select), mask.reshape(shape), plan.use(found), plan.use(root.seen(shape))).seen(where.root)


def _refuse_overlap(where: _Where) -> None:
    if any([s == 0 and n > 1 for n, s in zip(where.sizes, where.strides)]):
        raise ValueError(f"cannot store to a view with sizes {where.sizes} and strides {where.strides}: it has an element several times")
    reach = 0
    for d in reversed(_in_memory(where)):
        if where.strides[d] <= reach:  # may overlap, but need not
            indices = _linear_indices(where.sizes, where.strides, where.offset).reshape(-1)
            if len(np.unique(indices)) != len(indices):
                raise ValueError(f"cannot store to a view with sizes {where.sizes} and strides {where.strides}: it has an element several times")
            return
        reach += (where.sizes[d] - 1) * where.strides[d]


def _scattered(plan: _Plan, root: _Value, where: _Where, in_memory: Callable[[], _Value], value: _Value, block: int) -> _Value:
    """Returns the root with some blocks replaced, by an index of the blocks."""
    indices = _linear_indices(where.sizes, where.strides, where.offset)
    order = _in_memory(where)
    if block > 1 and order != sorted(order):
        value, indices = in_memory(), _linear_indices([where.sizes[d] for d in order], [where.strides[d] for d in order], where.offset)
    rows = indices.reshape(-1)[::block] // block
    row = () if block == 1 else where.root[1:] if math.prod(where.root[1:]) == block and len(where.root) <= _MOST else (block,)
    v = plan.call((where.elements // block, *row), _op(P.TensorScatterUpdate), plan.use(root.seen((where.elements // block, *row))), rows[:, None],
                  plan.use(value.seen((len(rows), *row))))
    return v.seen(where.root)


def _joined(plan: _Plan, root: _Value, cells: list[_Cell], partial: list[int], value: _Value) -> _Value:
    """Concatenates the value with the root's parts before and after it in each dimension, from the
    inner ones outwards."""
    root = root.seen([c.size for c in cells])
    v = value.seen([c.length for c in cells])
    for k in range(len(partial) - 1, -1, -1):
        d, outer = partial[k], partial[:k]
        start, stop = cells[d].offset, cells[d].offset + cells[d].length
        starts = [cells[i].offset if i in outer else 0 for i in range(len(cells))]
        lengths = [c.length if i in outer else c.size for i, c in enumerate(cells)]
        parts = []
        for low, high in ((0, start), (stop, cells[d].size)):
            starts[d], lengths[d] = low, high - low
            parts.append([plan.box(root, starts, lengths)] if high > low else [])
        v = plan.concat(d, [*parts[0], v, *parts[1]])
    return v
