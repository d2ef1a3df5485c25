"""One graph for several sizes, from a comparison of recordings of the same kernels for different
sizes.

Each size is recorded separately. Each recording determines which views of which tensors it takes,
which random numbers it draws and which values it checks. A graph contains only the calls. If two
recordings have the same calls on the same values and differ only in integers (sizes, indices) and
constant tensors, these become arguments of one graph with free dimensions (`DynamicGraphTemplate`). Each
recording that fits passes its own. So nothing is inferred from one size for another.
"""
from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from mindtorch.backend.errors import SpecializationError
from mindtorch.backend.interface import Sizes, NpDtype
from mindtorch.backend.mindspore.graph._ascend import ASCEND
from mindtorch.backend.mindspore.graph._expressions import Expr, Instruction, Keyword
from mindtorch.backend.mindspore.graph._tensor_writes import MS_DTYPES
from mindtorch.backend.mindspore.graph.builder import Recorder
from mindtorch.backend.mindspore.npu import shape_of, stype_of
from mindtorch.backend.mindspore.private import MSTensor
from mindtorch.backend.mindspore.runtime import ms
from mindspore.ops import auto_generate as G
from mindspore.ops import operations as P
from mindspore.ops.primitive import Primitive

#: matches a value, an argument, a piece of state or an attribute, but no constant
_NAMED = re.compile(r"(v\d+)((?:\[\d+\])?)|(x\d+)|self\.(p\d+)|self\.([ab]\d+)")


class RecordedGraph:
    """The lines of a recording, their results, and the arguments, states and attributes that they
    use."""

    __slots__ = ("lines", "results", "attributes", "arguments", "geometry", "states", "kinds", "positions")

    def __init__(self, recorder: Recorder, lines: Sequence[Instruction], results: Sequence[str], kinds: tuple[int, ...]) -> None:
        self.lines, self.results, self.arguments, self.kinds = list(lines), list(results), recorder.inputs.arguments, kinds
        used = {line.call[5:] for line in lines} | {m[5] for line in lines for o in _texts(line.operands) for m in [_NAMED.fullmatch(o)] if m and m[5]}
        self.attributes = {k: v for k, v in recorder.writer.attributes.items() if k in used}
        self.states = {name: (index, h) for name, index, h in recorder.inputs.states}
        self.positions = {line.target: i for i, line in enumerate(lines)}
        of_given = {r.index: (r.sizes, r.np_dtype) for r in recorder.table.roots if r.index >= 0}
        by_name = {str(r.own): (r.sizes, r.np_dtype) for r in recorder.table.roots if r.kind == "argument"}
        self.geometry = [_geometry(f"x{i}", what, of_given, by_name) for i, what in enumerate(self.arguments)]


def _geometry(name, what, of_given, by_name) -> tuple[Sizes, NpDtype] | None:
    """Returns (sizes, element type) of an argument."""
    kind = what[0]
    if kind == "given":
        return of_given.get(what[1]) if len(what) == 2 else (what[2][0], what[2][3])
    if kind == "constant":
        return shape_of(what[1]), stype_of(what[1])
    if kind == "fresh":
        return by_name.get(name)
    return (), what[2] if kind == "number" else what[1]


def _texts(operands):
    for o in operands:
        if isinstance(o, list):
            yield from _texts(o)
        elif o.__class__ is Keyword:
            yield from _texts([o.value])
        else:
            yield o


# ------------------------------------------------------------------ side by side
class _Pair:
    """A comparison of two recordings.

    `ints` has the positions where integers differ, `tensors` the positions where constant tensors
    differ, and `arguments` maps each argument of the first recording to that of the second.
    """

    def __init__(self, base: RecordedGraph, other: RecordedGraph, plain: bool = False) -> None:
        self.base, self.other = base, other
        # whether the second may have a literal scalar where the first has an argument
        self.plain = plain
        self.ints: dict[tuple[Any, ...], tuple[int, int]] = {}
        self.tensors: dict[tuple[Any, ...], tuple[str, Any]] = {}
        # so that each pair of constants is compared once
        self._alike: dict[tuple[str, str], bool] = {}
        self.arguments: dict[str, str] = {}
        if len(base.lines) != len(other.lines) or base.kinds != other.kinds:
            raise SpecializationError("the calls or the requested results differ")
        for i, (a, b) in enumerate(zip(base.lines, other.lines)):
            if a.effect != b.effect:
                raise SpecializationError("the writes to state differ")
            self._prim((i,), base.attributes[a.call[5:]], other.attributes[b.call[5:]])
            self._all((i,), a.operands, b.operands)
        self._all(("results",), list(map(Expr, base.results)), list(map(Expr, other.results)))

    def _prim(self, path, a, b):
        if a is b:
            return
        if isinstance(a, P.BroadcastTo) and isinstance(b, P.BroadcastTo):
            self._scalars((*path, "shape"), tuple(a.shape), tuple(b.shape))
        elif not alike(a, b):
            raise SpecializationError(f"the settings of {getattr(a, 'name', a)} depend on a size, or another op is called")

    def _all(self, path, a, b):
        if len(a) != len(b):
            raise SpecializationError("the number of operands differs")
        for i, (x, y) in enumerate(zip(a, b)):
            self._operand((*path, i), x, y)

    def _operand(self, path, a, b):
        if isinstance(a, list) or isinstance(b, list):
            if a.__class__ is not b.__class__:
                raise SpecializationError("other operands")
            return self._all(path, a, b)
        if a.__class__ is Keyword or b.__class__ is Keyword:
            if a.__class__ is not b.__class__ or a.name != b.name:
                raise SpecializationError("other operands")
            return self._operand((*path, a.name), a.value, b.value)
        m, n = _NAMED.fullmatch(a), _NAMED.fullmatch(b)
        if m is None or n is None:
            if m is not n:
                if self._is_number(m):
                    return
                raise SpecializationError("other operands")
            if a != b:
                self._scalars(path, ast.literal_eval(a), ast.literal_eval(b))
        elif m[1] and n[1]:
            if self.base.positions[m[1]] != self.other.positions[n[1]] or m[2] != n[2]:
                raise SpecializationError("other operands")
        elif m[3] and (n[3] or n[4]):
            if self.arguments.setdefault(a, b) != b:
                raise SpecializationError("other operands")
        elif m[4] and n[4]:
            if self.base.states[m[4]][1] is not self.other.states[n[4]][1]:
                raise SpecializationError("the graphs have different state tensors")
        elif m[5] and n[5]:
            self._attribute(path, a, b, self.base.attributes[m[5]], self.other.attributes[n[5]])
        elif not (n[5] and self._is_number(m) and isinstance(self.other.attributes[n[5]], MSTensor) and shape_of(self.other.attributes[n[5]]) == ()):
            raise SpecializationError(f"operands or state tensors differ ({a}, {b})")

    def _is_number(self, m):
        return self.plain and m is not None and m[3] and self.base.arguments[int(m[3][1:])][0] == "number"

    def _attribute(self, path, name, text, a, b):
        if a is b:
            return
        alike = self._alike.get((name, text))
        if alike is None:
            alike = self._alike[name, text] = self._same(a, b)
        if not alike:
            self.tensors[path] = name, b

    def _same(self, a, b):
        """True if two constants are equal; raises SpecializationError if they differ and
        cannot be arguments.
        """
        if not isinstance(a, MSTensor) or not isinstance(b, MSTensor):
            if a.__class__ is not b.__class__ or isinstance(a, Primitive) or not (a == b or repr(a) == repr(b)) or a.__class__ is float and repr(a) != repr(b):
                raise SpecializationError(f"a constant is {str(a)[:80]} or {str(b)[:80]}")
            return True
        if stype_of(a) != stype_of(b) or len(shape_of(a)) != len(shape_of(b)):
            raise SpecializationError("a constant has another type or number of dimensions")
        return shape_of(a) == shape_of(b) and _bytes(a) == _bytes(b)

    def _scalars(self, path, a, b):
        if a.__class__ is not b.__class__:
            raise SpecializationError(f"a constant is {a} or {b}")
        if a.__class__ is tuple or a.__class__ is list:
            if len(a) != len(b):
                raise SpecializationError("a number of dimensions differs")
            for i, (x, y) in enumerate(zip(a, b)):
                self._scalars((*path, i), x, y)
        elif a.__class__ is int:
            if a != b:
                self.ints[path] = a, b
        elif repr(a) != repr(b):
            raise SpecializationError(f"the number {a} depends on a size")


def _bytes(t):
    return (t if stype_of(t).kind != "V" else t.astype(ms.float32)).asnumpy().tobytes()


def alike(a: Any, b: Any) -> bool:
    """True if two primitives compute the same."""
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, Primitive):
        return False
    return a.name == b.name and repr(a.attrs) == repr(b.attrs) and _settings(a) == _settings(b)


def _settings(p):
    # `instance_name` is excluded: it is the name of the Cell attribute that holds the primitive.
    return {k: repr(v) for k, v in vars(p).items() if k != "instance_name" and (
        v is None or v.__class__ in (int, float, bool, str, tuple, list) or isinstance(v, ms.dtype.Type))}


# ------------------------------------------------------------------ for all sizes
class DynamicGraphTemplate:
    """Two recordings merged into one graph: sizes in which they differ are free."""

    def __init__(self, one: RecordedGraph, base: RecordedGraph) -> None:
        # The recording of the first size has size-dependent scalars, such as a mean's 1 / n, as
        # literals.
        pair = _Pair(base, one, plain=True)
        self.base = base
        #: positions of free integers, grouped by the argument that supplies them: those whose
        #: values have been equal so far
        together: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
        for path, both in pair.ints.items():
            together.setdefault(both, []).append(path)
        self.scalars = list(together.values())
        self.first = [both[0] for both in together]
        if ASCEND and together:
            # Each kernel that uses such an argument would first copy it from the device.
            raise SpecializationError("a kernel takes scalars that depend on sizes")
        # One constant may correspond to two for another size: 5 as a bound, and 5 as a count.
        paths_of: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
        for path, (name, other) in pair.tensors.items():
            paths_of.setdefault((name, id(other)), []).append(path)
        self.tensors = [(paths, base.attributes[name[5:]]) for (name, _), paths in paths_of.items()]
        self.names: list[str] = []
        self.shapes: list[Any] = []
        free = bool(together or self.tensors)
        for name, other in pair.arguments.items():
            a, b = base.geometry[int(name[1:])], _geometry_of(one, other)
            if a is None or b is None or a[1] != b[1] or len(a[0]) != len(b[0]):
                raise SpecializationError("an argument has another type or number of dimensions")
            self.names.append(name)
            self.shapes.append((tuple([n if n == m else None for n, m in zip(a[0], b[0])]), a[1]))
            free = free or None in self.shapes[-1][0]
        if not free:
            raise SpecializationError("the graphs have different state tensors, or nothing differs")
        for i, what in enumerate(base.arguments):
            if what[0] == "number" and f"x{i}" not in pair.arguments:
                self.names.append(f"x{i}")
                self.shapes.append(base.geometry[i])
        for paths, a in self.tensors:
            b = pair.tensors[paths[0]][1]
            self.shapes.append((tuple([n if n == m else None for n, m in zip(shape_of(a), shape_of(b))]), stype_of(a)))

    def signature(self) -> list[str]:
        """Returns the names of the arguments."""
        return [*self.names, *[f"c{i}" for i in range(len(self.tensors))], *[f"n{i}" for i in range(len(self.scalars))]]

    def inputs(self) -> list[Any]:
        """Returns the description of the arguments for MindSpore."""
        return [*[_input(*s) for s in self.shapes], *[ms.mutable(n) for n in self.first]]

    def written(self) -> tuple[list[Instruction], dict[str, Any]]:
        """Returns the lines, and the attributes needed in addition to those of the recording."""
        at = {path: f"n{i}" for i, paths in enumerate(self.scalars) for path in paths}
        known = {path: f"c{i}" for i, (paths, _) in enumerate(self.tensors) for path in paths}
        more: dict[str, Any] = {}
        lines = []
        for i, line in enumerate(self.base.lines):
            operands = [_written((i, k), o, at, known) for k, o in enumerate(line.operands)]
            call = line.call
            prim = self.base.attributes[call[5:]]
            if any([p[:2] == (i, "shape") for p in at]):
                more["broadcast_to"], call = G.broadcast_to, "self.broadcast_to"
                operands.append(_nest((i, "shape"), tuple(prim.shape), at))
            lines.append(Instruction(line.target, call, operands, line.effect))
        return lines, more

    def served(self, sheet: RecordedGraph) -> tuple[list[Any], list[Any]]:
        """Returns (arguments, the constants and integers that follow them) for a recording that
        fits; raises SpecializationError for any other."""
        pair = _Pair(self.base, sheet)
        arguments = []
        for name, (sizes, np_dtype) in zip(self.names, self.shapes):
            other = pair.arguments.get(name)
            if other is None:  # no line uses it
                arguments.append(("unused",))
                continue
            have = _geometry_of(sheet, other)
            if have is None or have[1] != np_dtype or not _fits(have[0], sizes):
                raise SpecializationError("a size varies that was fixed so far")
            arguments.append(sheet.arguments[int(other[1:])] if other[0] == "x" else ("given", sheet.states[other[5:]][0]))
        extra: list[Any] = []
        others = dict(pair.tensors)
        for (paths, mine), (sizes, _) in zip(self.tensors, self.shapes[len(self.names):]):
            found = [others.pop(path, ("", mine))[1] for path in paths]
            if not _fits(shape_of(found[0]), sizes):
                raise SpecializationError("a size varies that was fixed so far")
            if any([t is not found[0] and (shape_of(t) != shape_of(found[0]) or _bytes(t) != _bytes(found[0])) for t in found[1:]]):
                raise SpecializationError("constants that were equal so far differ")
            extra.append(found[0])
        if others:
            raise SpecializationError("a constant varies that was fixed so far")
        left = dict(pair.ints)
        for paths, n in zip(self.scalars, self.first):
            values = {left.pop(path, (n, n))[1] for path in paths}
            if len(values) > 1:
                raise SpecializationError("sizes that were equal so far differ")
            extra.append(ms.mutable(values.pop()))
        if left:
            raise SpecializationError("a size varies that was fixed so far")
        return arguments, extra


def _geometry_of(sheet, text):
    if text[0] == "x":
        return sheet.geometry[int(text[1:])]
    h = sheet.states[text[5:]][1]
    return shape_of(h), stype_of(h)


def _fits(have, sizes):
    return len(have) == len(sizes) and all([m is None or m == n for n, m in zip(have, sizes)])


def _input(sizes, np_dtype):
    dtype = MS_DTYPES[np_dtype]
    return ms.Tensor(shape=list(sizes), dtype=dtype) if sizes else ms.Tensor(np.zeros((), np.float32)).astype(dtype)


def _written(path, o, at, known):
    if isinstance(o, list):
        return o.__class__([_written((*path, i), x, at, known) for i, x in enumerate(o)])
    if o.__class__ is Keyword:
        return o.with_value(_written((*path, o.name), o.value, at, known))
    if path in known:
        return Expr(known[path])
    if _NAMED.fullmatch(o) or not any([p[:len(path)] == path for p in at]):
        return o
    return _nest(path, ast.literal_eval(o), at)


def _nest(path, value, at):
    if value.__class__ is tuple or value.__class__ is list:
        return f"({''.join(_nest((*path, i), x, at) + ', ' for i, x in enumerate(value))})"
    return at.get(path) or repr(value)


class Shared:
    """State shared by the recordings of one segment for several sizes: templates, and the last
    recordings with a graph of their own."""

    #: maximum number of templates (another one is made when another dimension turns out to be
    #: free), and of saved recordings
    MAX_GRAPHS = 4

    def __init__(self) -> None:
        self.bodies: list[tuple[DynamicGraphTemplate, Any]] = []
        self.sheets: list[RecordedGraph] = []
        self.refused: str | None = None

    def serve(self, graph: Any, only: bool = False) -> str | None:
        """Assigns a Body to a recorded graph: one for free sizes, or its own.

        Returns None for a Body with free sizes, else the reason why it is not used ("" for the
        first recording). With `only`, uses an existing Body for free sizes or assigns none.
        """
        sheet, why = graph.sheet, self.refused
        for template, body in self.bodies:
            if not body.dead:
                try:
                    graph.shares(template, body, *template.served(sheet))
                    return None
                except SpecializationError as e:
                    why = str(e)
        if only:
            return why or "there is none"
        if self.refused is None and len(self.bodies) < self.MAX_GRAPHS:
            for other in self.sheets:
                try:
                    template = DynamicGraphTemplate(other, sheet)
                    served = template.served(sheet)
                except SpecializationError as e:
                    why = str(e)
                    continue
                body = graph.generalised(template, self)
                graph.shares(template, body, *served)
                self.bodies.insert(0, (template, body))
                return None
        graph.compile()
        self.sheets = [sheet, *self.sheets][:self.MAX_GRAPHS]
        return why or "" if len(self.sheets) > 1 else ""

    def failed(self, body: Any, why: str) -> None:
        """Disables free sizes after MindSpore failed to compile a graph that has them. Bodies that
        have already run stay valid."""
        self.refused = next(iter(why.strip().splitlines()), "MindSpore cannot compile a graph for free sizes")
        for _, b in self.bodies:
            b.dead = b.dead or b is body or not b.runs
