"""Free sizes of a recording, found by comparing recordings of the same function for several sizes:
differences become expressions of the inputs' shapes.

Recorded calls have sizes as constants: targets of Reshape, counts of Tile, tensors filled with one
value. If all of them are linear in a size, they are written as such expressions. If anything else
depends on the size, `SpecializationError` names it.
"""
from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mindtorch.backend.errors import SpecializationError
from mindtorch.backend.interface import Array
from mindtorch.backend.mindspore.graph._expressions import Instruction, TupleExpr
from mindtorch.backend.mindspore.npu import shape_of
from mindtorch.backend.mindspore.private import MSTensor, bfloat16_np, from_contiguous
from mindtorch.backend.mindspore.runtime import ms
from mindspore.ops import operations as P
from mindspore.ops.primitive import Primitive

_reshape, _tile, _range, _tensor, _divide = P.Reshape(), P.Tile(), P.Range(), P.ScalarToTensor(), P.RealDiv()


class SymInt:
    """A free size: its name in the code, its name in messages, its value in the first recording,
    and its value in the recording where it differs."""

    __slots__ = ("name", "label", "small", "large")

    def __init__(self, name: str, label: str, small: int, large: int) -> None:
        self.name, self.label, self.small, self.large = name, label, small, large


class AffineExpr:
    """An integer that is `base` plus a multiple of each free size."""

    __slots__ = ("factors", "base", "free")

    def __init__(self, factors, base, free):
        self.factors, self.base, self.free = factors, base, free

    def __repr__(self):
        parts = [f.name if k == 1 else f"{k} * {f.name}" for k, f in zip(self.factors, self.free) if k]
        return " + ".join([*parts, *([str(self.base)] if self.base else [])])


class ShapeUnifier:
    """A comparison of recordings: the first, and for each free size one that differs in it.

    Each of `recordings` has `lines`, `attributes`, and `value(text)`, which returns the value of an
    operand.
    """

    def __init__(self, recordings: Sequence[Any], free: Sequence[SymInt], attribute: Callable[[Any], str]) -> None:
        self.recordings, self.free, self.attribute = recordings, free, attribute
        self.lines: list[Instruction] = []
        self.positions = [{line.target: i for i, line in enumerate(r.lines)} for r in recordings]
        self._count = 0
        self._tiled: dict[str, str] = {}

    def run(self) -> list[Instruction]:
        """Returns the lines that are valid for all sizes."""
        first, *others = self.recordings
        for r, f in zip(others, self.free):
            if [_kind(r, x) for x in r.lines] != [_kind(first, x) for x in first.lines]:
                raise SpecializationError(f"export to MindIR: other kernels run for another {f.label}")
        for lines in zip(*[r.lines for r in self.recordings]):
            self._line(lines)
        return self.lines

    # ---- lines
    def _line(self, lines):
        base = lines[0]
        prims = [r.attributes[x.call[5:]] for r, x in zip(self.recordings, lines)]
        operands = [self._operand(parts, prims[0]) for parts in zip(*[x.operands for x in lines], strict=True)]
        if all([_alike(prims[0], p) for p in prims[1:]]):
            self.lines.append(Instruction(base.target, base.call, operands, False))
        elif isinstance(prims[0], P.BroadcastTo):
            self._broadcast(lines, prims, operands[0])
        else:
            raise SpecializationError(f"export to MindIR: how {type(prims[0]).__name__} computes depends on {self._whose(prims)}")

    def _whose(self, items):
        found = [f.label for f, x in zip(self.free, items[1:]) if not _alike(items[0], x)]
        return " and ".join(found) or "a free size"

    def _broadcast(self, lines, prims, name):
        """Records a BroadcastTo whose target has free sizes: dimensions that already have them
        stay, repeated dimensions become a Tile."""
        target = self._number([tuple(p.shape) for p in prims])
        have = self._number([shape_of(r.value(x.operands[0])) for r, x in zip(self.recordings, lines)])
        lead = len(target) - len(have)
        full = (1,) * lead + have
        if lead:
            name = self._new(_reshape, name, _text(_one_open(full)))
        counts = tuple([1 if repr(n) == repr(m) else m for n, m in zip(full, target)])
        if any([n != 1 and c.__class__ is AffineExpr or c != 1 and n != 1 for n, c in zip(full, counts)]):
            raise AssertionError(f"{full} is not broadcast to {target}")
        self.lines.append(Instruction(lines[0].target, self.attribute(_tile), [name, _text(counts)], False))

    def _new(self, prim, *operands):
        name = f"w{self._count}"
        self._count += 1
        self.lines.append(Instruction(name, self.attribute(prim), list(operands), False))
        return name

    # ---- operands
    def _operand(self, parts, prim):
        base = parts[0]
        if isinstance(base, list):
            return TupleExpr([self._operand(items, None) for items in zip(*parts, strict=True)])
        if base[0] == "v" and not base.startswith("self."):
            at = {(positions[p.partition("[")[0]], p.partition("[")[2]) for positions, p in zip(self.positions, parts)}
            if len(at) > 1:
                raise SpecializationError("export to MindIR: what is computed depends on a free size")
            return base
        if base.startswith("self.a"):
            return self._constant([r.attributes[p[5:]] for r, p in zip(self.recordings, parts)], base)
        if all([p == base for p in parts]):
            return base
        n = self._number([ast.literal_eval(p) for p in parts])
        return _text(_one_open(n) if isinstance(prim, P.Reshape) else n)

    def _constant(self, values, text):
        base = values[0]
        if not isinstance(base, MSTensor):
            if isinstance(base, tuple) and all([isinstance(x, int) for v in values for x in v]):
                return _text(self._number(values))
            if not all([_alike(base, v) for v in values]):
                raise SpecializationError(f"export to MindIR: a constant is {base} or another, by {self._whose(values)}")
            return text
        arrays = [array_of(v) for v in values]
        a = arrays[0]
        if all([b.shape == a.shape and b.tobytes() == a.tobytes() for b in arrays]):
            return text
        name = self._tiled.get(text)
        if name is None:
            name = self._tiled[text] = self._repeated(values, arrays)
        return name

    def _repeated(self, values, arrays):
        """Returns a tensor whose values repeat along its free sizes."""
        a = arrays[0]
        if all([b.ndim == a.ndim for b in arrays]):
            sizes = self._number([b.shape for b in arrays])
            free = [isinstance(n, AffineExpr) for n in sizes]
            part = np.ascontiguousarray(a[tuple([slice(0, 1) if f else slice(None) for f in free])])
            if any(free) and all([np.array_equal(np.broadcast_to(part, b.shape), b) for b in arrays]):
                return self._new(_tile, self.attribute(like(part, values[0])), _text(tuple([n if f else 1 for n, f in zip(sizes, free)])))
            if a.ndim == 1 and a.dtype == np.int64 and free[0] and all([np.array_equal(b, np.arange(len(b))) for b in arrays]):
                return self._new(_range, *[_text(n) for n in (0, sizes[0], 1)])
            if all([b.shape == a.shape and b.size and (b == b.flat[0]).all() for b in arrays]) and a.dtype.kind in "if":
                one = self._counted([b.flat[0] for b in arrays], values[0])
                if one is not None:
                    return one if not a.ndim else self._new(_tile, self._new(_reshape, one, _text((1,) * a.ndim)), _text(a.shape))
        raise SpecializationError(f"export to MindIR: the values of a constant depend on {self._whose_array(arrays)}")

    def _counted(self, values, like_):
        """Returns a 0-d tensor with a value that follows from free sizes: a count, or 1 / count.
        None for any other value."""
        for over in (False, True):
            counts = [round(1 / float(v)) if over and v else int(v) for v in values]
            if all([c and v.dtype.type(1 / c) == v if over else c == v for c, v in zip(counts, values)]):
                try:
                    n = _text(self._number(counts))
                except SpecializationError:
                    return None
                one = self._new(_tensor, n, self.attribute(like_.dtype))
                return self._new(_divide, self.attribute(like(np.ones((), values[0].dtype), like_)), one) if over else one
        return None

    def _whose_array(self, arrays):
        a = arrays[0]
        return " and ".join([f.label for f, b in zip(self.free, arrays[1:]) if b.shape != a.shape or b.tobytes() != a.tobytes()])

    def _number(self, values):
        """Merges the values of all recordings, scalars or nested sequences of them, into constants
        or `AffineExpr`."""
        base = values[0]
        if base.__class__ is tuple or base.__class__ is list:
            if any([len(v) != len(base) for v in values]):
                raise SpecializationError("export to MindIR: a number of dimensions depends on a free size")
            return tuple([self._number(items) for items in zip(*values)])
        if all([v == base and v.__class__ is base.__class__ for v in values]):
            return base
        if base.__class__ is not int:
            raise SpecializationError(f"export to MindIR: the number {base} depends on a free size")
        factors, rest = [], base
        for v, f in zip(values[1:], self.free):
            k, over = divmod(v - base, f.large - f.small)
            if over:
                raise SpecializationError(f"export to MindIR: the number {base} is {v} where {f.label} is {f.large} and not {f.small}: not a linear function")
            factors.append(k)
            rest -= k * f.small
        return AffineExpr(factors, rest, self.free)


def _kind(r, line):
    return type(r.attributes[line.call[5:]])


def _alike(a, b):
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, Primitive):
        return a.name == b.name and repr(a.attrs) == repr(b.attrs) and _settings(a) == _settings(b)
    return repr(a) == repr(b)


def _settings(p):
    return {k: repr(v) for k, v in vars(p).items() if v.__class__ in (int, float, bool, str, tuple, list)}


def _one_open(sizes):
    """Returns the sizes for a Reshape: a single free size becomes -1."""
    if isinstance(sizes, tuple) and sum([isinstance(n, AffineExpr) for n in sizes]) == 1:
        return tuple([-1 if isinstance(n, AffineExpr) else n for n in sizes])
    return sizes


def _text(n):
    return repr(n)


def array_of(t: Any) -> Array:
    """Returns the values of a tensor; bfloat16 as float32."""
    return t.astype(ms.float32).asnumpy() if t.dtype == ms.bfloat16 else t.asnumpy()


def tensor_of(array: Array) -> Any:
    """Returns an array as a MindSpore tensor."""
    if array.dtype == bfloat16_np:
        return MSTensor(array.astype(np.float32)).astype(ms.bfloat16)
    return from_contiguous(np.array(array, order="C"))


def like(part: Array, t: Any) -> Any:
    """Returns values in the form of `array_of` as a tensor of t's dtype."""
    return from_contiguous(part) if part.dtype.kind != "V" and str(t.dtype) != "BFloat16" else MSTensor(part).astype(t.dtype)
