"""Recordings of npu kernels for a file: a Cell of MindSpore primitives that computes the same, for
ms.export and MindIR.

A recording for a file differs from one that runs in this process. Its arguments are the function's
inputs, its Parameters belong to the graph and have names, and nothing can be created or checked
before a run. A free size is found by comparing recordings for several sizes, line by line
(`sizes.py`).
"""
from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mindtorch.backend import kernels
from mindtorch.backend.errors import GraphBreak
from mindtorch.backend.interface import Array, NpDtype
from mindtorch.backend.kernels import TABLES
from mindtorch.backend.mindspore.graph._compiled import _pruned, _text
from mindtorch.backend.mindspore.graph._expressions import Expr
from mindtorch.backend.mindspore.graph._files import folder
from mindtorch.backend.mindspore.graph._tensor_writes import TensorWrites
from mindtorch.backend.mindspore.graph.builder import Recorder
from mindtorch.backend.mindspore.graph.symint import SymInt, ShapeUnifier, array_of, like, tensor_of
from mindtorch.backend.mindspore.npu import Npu, shape_of, stype_of
from mindtorch.backend.mindspore.private import MSParameter, MSTensor
from mindtorch.backend.mindspore.recorder_api import Number
from mindtorch.backend.mindspore.runtime import ms, target
from mindspore.ops import operations as P

_identity = P.Identity()
_counter = itertools.count()


# ------------------------------------------------------------------ the device
class MindIRDevice(Npu):
    """Device on which a function runs while it is recorded; other code does not see it. Data from
    the host are constants, and values cannot be read back."""

    type, indexed, graphs = "recording", False, False
    names: Any = ()
    notes: MindIRRecorder

    def arrived(self, array: Array) -> Any:
        """Uploads values without recording them."""
        return super().upload(array)

    def seen(self, handle: Any) -> Array:
        """Returns the values of any handle."""
        return super().download(handle)

    def upload(self, array: Array) -> Any:
        h = super().upload(array)
        self.notes.known(h, array)
        return h

    def constant(self, array: Array) -> Any:
        return self.upload(array)

    def download(self, handle: Any) -> Array:
        root = self.notes.find(handle)
        if 0 not in shape_of(handle) and (root is None or root.kind != "constant" or root.touched):
            raise GraphBreak("it reads values")
        return super().download(handle)


@functools.cache
def mindir_device(npu: Npu | None) -> MindIRDevice:
    """Returns the device for recordings on MindSpore's target, with the kernels of the npu device.
    """
    from mindtorch.backend.mindspore import kernels as own
    if npu is None:
        kernels.load(own)
        own.fill_table()
    made = MindIRDevice.__new__(MindIRDevice)
    if npu is None:
        made.__init__(target())         # type: ignore[misc]
    else:
        made.__dict__.update(npu.__dict__)
    TABLES[made.type] = TABLES["npu"]
    return made


class _IdentityWrites(TensorWrites):
    """Writes whose copies are a primitive that every file format has."""

    def copy(self, name: str, np_dtype: NpDtype) -> Expr:
        return self._writer.call(_identity, [name])


class MindIRRecorder(Recorder):
    """Recorder of a function that is written to a file."""

    by_arguments, writes_class = False, _IdentityWrites

    def __init__(self, device: Any, old: bool = False) -> None:
        super().__init__(device)
        self.names: list[str] = []
        self.old = old

    # ---- inputs, parameters and constants
    def input(self, h: Any) -> None:
        """Declares an argument of the Cell."""
        index = len(self.inputs.arguments)
        self.table.add(h, self.inputs.argument("given", index), "argument", index)

    def parameter(self, name: str, h: Any) -> None:
        """Declares a Parameter of the Cell."""
        self.given(len(self.inputs.states), h, True)
        self.names.append(name)

    def known(self, h: Any, array: Array) -> None:
        """Declares a constant."""
        if 0 not in array.shape:
            self.table.add(h, self.writer.attribute(tensor_of(array)), "constant")

    # ---- features that no file can hold
    def next_rng(self, generator: Any) -> Any:
        raise GraphBreak("it draws random numbers")

    def new_buffer(self, make: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        raise GraphBreak("it draws random numbers")

    def runtime_assert(self, h: Any, look: Callable[[Any], None]) -> bool:
        """Skips the check: nothing can check the values passed to a file's graph."""
        return super().runtime_assert(h, lambda _: None)

    def slot(self, n: Number, np_dtype: Any) -> Any:
        raise AssertionError("a file has no numbers")

    def host_reads(self, h: Any) -> None:
        super().host_reads(h)
        if self.broken is not None:
            raise GraphBreak(self.broken)

    def ended(self, outputs: Sequence[Any]) -> list[str]:
        """Returns the expressions of the outputs."""
        if any([r.touched and r.kind != "value" for r in self.table.roots]) or any([line.effect for line in self.writer.lines]):
            raise GraphBreak("it writes to its inputs or parameters")
        expressions: list[str] = []
        for h in outputs:
            name = self.reads.operand(h) if 0 not in shape_of(h) else self.writer.attribute(h)
            # An output that is an input, a constant or another output needs its own operation.
            expressions.append(name if name[0] == "v" and name not in expressions else self.writes.copy(name, stype_of(h)))
        self.writer.lines = _pruned(self.writer.lines, expressions)
        return expressions


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Runs MindSpore eagerly (PyNative mode) inside this context."""
    mode = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    try:
        yield
    finally:
        ms.set_context(mode=mode)


# ------------------------------------------------------------------ the Cell
class _GraphCell(ms.nn.Cell):
    """Base of the Cells made here. `_mindtorch_graph` tells mindspore.jit that the Cell contains no
    facade code."""

    _mindtorch_graph = True

    def __del__(self, ending=sys.is_finalizing, base=ms.nn.Cell.__del__):
        if not ending():  # MindSpore's __del__ needs modules that no longer exist then
            base(self)


#: elementwise primitives of MindSpore's with two tensors (CPU target, us for two operands of 1 x 64 x 112 x 112: Add
#: 1230, Maximum 1430; for one operand and a scalar: 240, 970)
_BROADCASTING = frozenset("Add Sub Mul RealDiv Maximum Minimum Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr Pow".split())


class RecordedGraph:
    """A finished recording: lines and attributes, and the values of the lines when they are
    executed again for certain inputs."""

    def __init__(self, notes: MindIRRecorder, expressions: list[str], parameters: Sequence[tuple[Array, bool]]) -> None:
        self.lines, self.expressions, self.head = notes.writer.lines, expressions, list[str]()
        self.attributes = notes.writer.attributes
        self.inputs = len(notes.inputs.arguments)
        # ("self.p0", name, values, whether it is trained)
        self.parameters = [(attribute, name, *more) for (attribute, _, _), name, more in zip(notes.inputs.states, notes.names, parameters)]
        self._scope: dict[str, Any] = {}

    def run(self, inputs: Sequence[Array]) -> None:
        """Executes every line, for `value`."""
        own = types.SimpleNamespace(**self.attributes, **{attribute: tensor_of(array) for attribute, _, array, _ in self.parameters})
        scope = self._scope = {"self": own, **{f"x{i}": tensor_of(a) for i, a in enumerate(inputs)}}
        for line in self.lines:
            scope[line.target] = eval(f"{line.call}({', '.join(map(_text, line.operands))})", scope)

    def value(self, text: str) -> Any:
        """Returns the value of an operand in the last `run`."""
        return eval(text, self._scope)

    def lean(self, inputs: Sequence[Array]) -> None:
        """Replaces constants whose elements are all equal by scalars, e.g. zeros combined with an
        activation: a file would store every element."""
        uniform = {}
        for name, value in self.attributes.items():
            if isinstance(value, MSTensor) and value.size > 1:
                a = array_of(value)
                if (a.view(f"u{a.itemsize}") == a.view(f"u{a.itemsize}").flat[0]).all() if a.dtype.kind != "c" else (a == a.flat[0]).all():
                    uniform[f"self.{name}"] = value
        found = [line for line in self.lines if self.attributes[line.call[5:]].name in _BROADCASTING and not uniform.keys().isdisjoint(
            [o for o in line.operands if isinstance(o, str)])]
        if not found:
            return
        if not self._scope:
            self.run(inputs)
        small: dict[str, str] = {}
        for line in found:
            for k, other in ((0, 1), (1, 0)):
                name = line.operands[k]
                # Only if the other operand already has the shape of the result.
                if name in uniform and line.operands[other] not in uniform and tuple(self.value(line.operands[other]).shape) == tuple(
                        self.value(line.target).shape):
                    if name not in small:
                        small[name] = self._attribute(like(np.ascontiguousarray(array_of(uniform[name]).reshape(-1)[0]).reshape(()), uniform[name]))
                    line.operands[k] = small[name]
        self._scope["self"].__dict__.update(self.attributes)

    def merged(self, others: Sequence[RecordedGraph], free: Sequence[tuple[SymInt, int, int]]) -> None:
        """Generalizes the recording to all sizes. free: the sizes, each with the input and axis
        that it is read from."""
        self.lines = ShapeUnifier([self, *others], [f for f, _, _ in free], self._attribute).run()
        texts = [_text(o) for line in self.lines for o in line.operands]
        self.head = [f"    {f.name} = x{i}.shape[{axis}]" for f, i, axis in free if any([re.search(rf"\b{f.name}\b", t) for t in texts])]

    def _attribute(self, value):
        for name, a in self.attributes.items():
            if a is value:
                return f"self.{name}"
        name = f"b{len(self.attributes)}"
        self.attributes[name] = value
        return f"self.{name}"

    def cell(self, class_name: str) -> Any:
        """Returns a Cell that computes the recording."""
        body = [f"    {line.target} = {line.call}({', '.join(map(_text, line.operands))})" for line in self.lines]
        source = "\n".join([f"def construct(self, {', '.join(f'x{i}' for i in range(self.inputs))}):", *self.head, *body,
                            f"    return {', '.join(self.expressions)}", ""])
        path = os.path.join(folder(), f"file_{next(_counter)}.py")         # (MindSpore's compiler reads a method's source from its file.)
        with open(path, "w", encoding="utf-8") as f:
            f.write(source)
        scope: dict[str, Any] = {"__name__": __name__}
        exec(compile(source, path, "exec"), scope)
        cell = type(class_name, (_GraphCell,), {"construct": scope["construct"], "__module__": __name__})()
        used = {a for line in self.lines for a in (line.call, *_attributes(line.operands))}
        for name, value in self.attributes.items():
            if f"self.{name}" in used:
                setattr(cell, name, value)
        for attribute, name, array, trained in self.parameters:
            if f"self.{attribute}" in used:
                setattr(cell, attribute, MSParameter(tensor_of(array), name=name, requires_grad=trained))
        cell.set_train(False)
        return cell


def _attributes(operands):
    for o in operands:
        if isinstance(o, list):
            yield from _attributes(o)
        elif o.startswith("self."):
            yield o
