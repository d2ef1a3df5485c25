"""A recording compiled as a MindSpore graph.

Its source is generated into a real file, because MindSpore's compiler reads files. It is compiled
at the first run.
"""
from __future__ import annotations

import itertools
import os
import re
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from mindtorch.backend import progress
from mindtorch.backend.errors import BackendCompileError, RuntimeGuardFailed
from mindtorch.backend.device import UnsupportedByKernel
from mindtorch.backend.mindspore import ir_dump
from mindtorch.backend.mindspore.graph._ascend import ASCEND
from mindtorch.backend.mindspore.graph._dynamic import RecordedGraph
from mindtorch.backend.mindspore.graph._expressions import Expr, Instruction, Keyword, TupleExpr, WeakExprs
from mindtorch.backend.mindspore.graph._files import folder
from mindtorch.backend.mindspore.graph._runtime_inputs import DrawIndex
from mindtorch.backend.mindspore.graph.builder import Recorder
from mindtorch.backend.mindspore.npu import dtype_of, offset_of, shape_of, stride_of, stype_of
from mindtorch.backend.mindspore.private import _TensorPy, executor, forget_graphs, from_contiguous, MSParameter, swap_impl, unrecorded
from mindtorch.backend.mindspore.recorder_api import Number, same, value
from mindtorch.backend.mindspore.runtime import ms

_counter = itertools.count()
_set = _TensorPy.set_


def _parameter(h, name):
    """Creates a Parameter on a tensor's memory, with its own native tensor: MindSpore would treat
    any other native tensor as a constant."""
    p = MSParameter(ms.Tensor(np.zeros(1, np.float32), dtype_of(h)), name=name, requires_grad=True)
    if ASCEND:
        # `set_` requires memory on the same device. The native tensor stores `param_info`, which
        # identifies a Parameter.
        info = p.param_info
        swap_impl(p, _TensorPy(ms.mint.empty((1,), dtype=dtype_of(h), device="Ascend")))
        p.param_info = info
    _set(p, h, offset_of(h), shape_of(h), tuple(stride_of(h)))
    return p


def _constant(a):
    h = from_contiguous(a)
    return ms.mint.empty_like(h, device="Ascend").copy_(h) if ASCEND else h


#: Cells of deleted graphs. They are freed when the next graph is made, since a finalizer may run
#: while MindSpore is executing.
_dropped: list[Any] = []


def _free():
    while _dropped:
        forget_graphs(_dropped.pop())


class Body:
    """Code that MindSpore has compiled, or compiles at the first run. Graphs of several sizes share
    it if their sizes are free.

    `dead`: MindSpore has rejected it.
    """

    def __init__(self, lines: Sequence[Instruction], results: Sequence[str], names: Sequence[str], attributes: dict[str, Any], states: Sequence[Any],
                 level: str,
                 inputs: Sequence[Any] = (), shared: Any = None) -> None:
        number = next(_counter)
        requested: set[str] = set()
        for o in (*map(Expr, results), *[o for line in lines for o in line.operands]):
            _names(o, requested, True)
        body = [f"    {line.target} = {line.call}({', '.join(map(_text, line.operands))})" if line.target in requested
                else f"    {line.call}({', '.join(map(_text, line.operands))})" for line in lines]
        given = f"({''.join(n + ', ' for n in results)})" if results else "0"
        mentioned = set(re.findall(r"\b[xcn]\d+\b", "\n".join([*body, given])))
        self.positions = [i for i, n in enumerate(names) if n in mentioned]
        self.source = "\n".join([f"def construct({', '.join(['self', *[names[i] for i in self.positions]])}):", *body, f"    return {given}", ""])
        path = os.path.join(folder(), f"graph{number}.py")
        with open(path, "w") as f:
            f.write(self.source)
        scope: dict[str, Any] = {"__name__": __name__}  # a module name that the compiler can import
        exec(compile(self.source, path, "exec"), scope)
        construct = ms.jit(scope["construct"], capture_mode="ast", jit_level=level)
        cell = type(f"Graph{number}", (ms.nn.Cell,), {"construct": construct, "_mindtorch_graph": True})()
        used = self.source
        for name, obj in attributes.items():
            if f"self.{name}(" in used or f"self.{name}," in used or f"self.{name})" in used:
                # MindSpore folds constants: it simplifies x * nan to x, and x * 1e-30 * 1e30 too.
                # It does not fold Parameters.
                constant = isinstance(obj, ms.Tensor) and stype_of(obj).kind not in "iub"
                setattr(cell, name, _parameter(obj, f"graph{number}.{name}") if constant else obj)
        for name, h in states:
            if f"self.{name}," in used or f"self.{name})" in used or f"self.{name}\n" in used:
                setattr(cell, name, _parameter(h, f"graph{number}.{name}"))
        if inputs:
            cell.set_inputs(*[inputs[i] for i in self.positions])
        self.cell, self.shared, self.dead = cell, shared, False
        _free()
        weakref.finalize(self, _dropped.append, cell).atexit = False
        self.runs = 0
        self.compiling = 0.0

    def run(self, args: Sequence[Any]) -> Any:
        """Returns the results for `args`, the arguments at the indices `positions`."""
        if self.runs:
            r = self.cell.construct(*args)
        else:
            start = time.perf_counter()
            try:
                with progress.notify_if_slow("MindSpore compiles a graph of torch.compile; later calls with the same shapes start at "
                                             "once"), ir_dump.into(folder()):
                    r = self.cell.construct(*args)
            except Exception as e:
                self.dead = True
                if self.shared is not None:
                    self.shared.failed(self, str(e))
                raise BackendCompileError(str(e)) from e
            self.compiling = time.perf_counter() - start
        self.runs += 1
        return r


class Graph:
    """A recording, and the Body that runs it: its own (`compile`) or a shared one (`shares`).

    In `run(given, numbers)`, `given` has the handles in the order of their declaration, and
    `numbers` the scalars passed to kernels, by index.
    """

    def __init__(self, recorder: Recorder, groups: Sequence[Any], outputs: Sequence[Any], level: str) -> None:
        inputs, end = recorder.inputs, recorder.finish(outputs)
        self.views = end.views
        self.after, self.pooled, self.outputs = [i for i, _ in end.after], end.pooled, len(outputs)
        self.looks = [look for *_, look in inputs.afterwards]
        self.count = len(end.expressions)
        results = [*end.expressions, *[name for _, name in end.after], *end.checks]
        lines = _pruned(recorder.writer.lines, results)
        self.groups, self.level = groups, level
        self.states = [(groups[index].first, handle) for _, index, handle in inputs.states]
        self.takes, self.makes, self.checks, self.conditions = inputs.takes, inputs.makes, inputs.checks, inputs.conditions
        self.ones = {np_dtype: _constant(np.ones((), np_dtype)) for kind, *rest in inputs.arguments if kind == "one" for np_dtype in rest}
        self.lines = len(lines)
        self.calls = [getattr(recorder.writer.attributes[line.call[5:]], "name", line.call) for line in lines]
        self.sheet: Any = RecordedGraph(recorder, lines, results, (self.count, *self.after, len(self.looks)))
        self.arguments: list[Any] = []
        self.extra: list[Any] = []
        #: `free`: the sizes are free. `new`: the body was made for this graph.
        self.free = self.new = False

    def compile(self) -> None:
        """Creates a Body for this graph only."""
        s = self.sheet
        self.body = Body(s.lines, s.results, [f"x{i}" for i in range(len(s.arguments))], s.attributes, [(n, h) for n, (_, h) in s.states.items()], self.level)
        self.arguments = [s.arguments[i] for i in self.body.positions]
        self.sheet, self.new = None, True

    def generalised(self, template: Any, shared: Any) -> Body:
        """Creates a Body for free sizes."""
        s = template.base
        lines, more = template.written()
        self.new = True
        return Body(lines, s.results, template.signature(), {**s.attributes, **more}, [(n, h) for n, (_, h) in s.states.items()], self.level,
                    template.inputs(), shared)

    def shares(self, template: Any, body: Body, arguments: Sequence[Any], extra: Sequence[Any]) -> None:
        """Uses a Body for free sizes, with this graph's own arguments followed by constants and
        scalars."""
        self.body, self.sheet, self.free = body, None, True
        self.arguments = [arguments[i] for i in body.positions if i < len(arguments)]
        self.extra = [extra[i - len(arguments)] for i in body.positions if i >= len(arguments)]

    @property
    def source(self) -> str:
        """Source code that MindSpore compiles."""
        return self.body.source

    def holds(self, given: Sequence[Any], scalars: Sequence[Any]) -> bool:
        """True if the graph is valid for these tensors and scalars."""
        if self.body.dead:
            return False
        for i, h in self.states:
            if given[i] is not h:
                return False
        for n, then in self.conditions:
            if not same(value(n, scalars), then):
                return False
        return True

    def run(self, given: Sequence[Any], scalars: Sequence[Any], device: Any) -> list[Any]:
        """Runs the graph and returns the outputs."""
        for i, (sizes, strides, offset, np_dtype), look in self.checks:
            try:
                look(device.view(self.groups[i].root(given, device), sizes, strides, offset, np_dtype))
            except Exception as e:
                raise RuntimeGuardFailed from e
        draws = [scalars[key].drawn[i] for key, i in self.takes]
        made = [make(*[draws[g.at] if g.__class__ is DrawIndex else g for g in rest]) for make, rest in self.makes]
        args = []
        for kind, *what in self.arguments:
            if kind == "given":
                h = self.groups[what[0]].root(given, device)
                args.append(h if len(what) == 1 else device.view(h, *what[1]))
            elif kind == "number":
                args.append(from_contiguous(np.asarray(value(what[0], scalars)).astype(what[1])))
            elif kind == "constant":
                args.append(what[0])
            elif kind == "one":
                args.append(self.ones[what[0]])
            else:
                r = made[what[0]]
                args.append(r[what[1]] if r.__class__ is tuple else r)
        with unrecorded():
            # On the CPU target the graph runs in this thread. Otherwise MindSpore passes it to
            # another thread and spins until that thread is done. That costs a second core's time,
            # or time slices if there is no second core (CPU time per step, in the other thread vs
            # in this one: MLP 9.3 ms vs 4.5 ms, three convolutions 120 ms vs 42 ms, GPT-2-like 259
            # ms vs 91 ms).
            inline = device.target == "CPU" and not executor.disable_frontend_and_bprop_pipeline()
            try:
                r = self.body.run([*args, *self.extra])
            finally:
                if inline:
                    executor.enable_frontend_and_bprop_pipeline()
        n = self.count
        if not n and not self.after and not self.looks:
            return []
        r = r if isinstance(r, (tuple, list)) else (r,)
        for i, h in zip(self.after, r[n:]):
            device.write(self.groups[i].root(given, device), h)
        for look, h in zip(self.looks, r[n + len(self.after):]):
            try:
                look(h)
            except UnsupportedByKernel:
                raise RuntimeError("a kernel of a compiled call does not support the values that it received: "
                                   "run the call without torch.compile, so that the op is computed on the host") from None
        found = [h if v is None else device.view(h, *v) for h, v in zip(r, self.views)]
        for i, positions, several, settings in self.pooled:
            saved = tuple([None if k is None else found[k] for k in positions])
            found[i].pooled = saved if several else saved[0], settings
        return found[:self.outputs]


def _text(operand):
    if operand.__class__ is TupleExpr:
        return f"({''.join(_text(x) + ', ' for x in operand)})"
    if operand.__class__ is WeakExprs:
        return f"({''.join(x + ', ' for x in operand)})"
    if operand.__class__ is Keyword:
        return f"{operand.name}={_text(operand.value)}"
    return operand


def _names(operand, found, all=False):
    if operand.__class__ is TupleExpr or operand.__class__ is WeakExprs and all:
        for x in operand:
            _names(Expr(x) if all else x, found)
    elif operand.__class__ is Keyword:
        _names(operand.value, found)
    elif operand.__class__ is WeakExprs:
        return
    elif operand[0] == "v" and (operand.__class__ is Expr):
        found.add(operand.partition("[")[0])


def _pruned(lines, results):
    """Returns the lines that the results or side effects need."""
    needed: set[str] = set()
    for r in results:
        _names(Expr(r), needed)
    retained = []
    for line in reversed(lines):
        if line.effect or line.target in needed:
            retained.append(line)
            for o in line.operands:
                _names(o, needed)
    there = {line.target: line for line in retained}
    for line in retained:
        for o in line.operands:
            if o.__class__ is WeakExprs:
                o[:] = [x for x in o if x in there]
    return retained[::-1]


__all__ = ["Graph", "Number", "Recorder"]
