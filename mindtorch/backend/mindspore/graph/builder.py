"""Recorder of the calls that kernels of the npu device make while they run, as lines of a function
that MindSpore's compiler can read.

Tensors are identified by their memory (`_storages.py`). The contents of a piece of memory are an
expression (`_expressions.py`). Views are read (`_tensor_reads.py`) and written (`_tensor_writes.py`)
functionally. `_runtime_inputs.py` describes what every run of the graph receives.
"""
from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mindtorch.backend.errors import GraphBreak
from mindtorch.backend.mindspore.graph import _raw
from mindtorch.backend.mindspore.graph._ascend import ASCEND
from mindtorch.backend.mindspore.graph._ascend_calls import AscendCalls
from mindtorch.backend.mindspore.graph._expressions import Keyword
from mindtorch.backend.mindspore.graph._graph_outputs import GraphOutputs, graph_outputs
from mindtorch.backend.mindspore.graph._lines import LineWriter
from mindtorch.backend.mindspore.graph._runtime_inputs import RngDraw, RuntimeInputs
from mindtorch.backend.mindspore.graph._state_order import StateOrder
from mindtorch.backend.mindspore.graph._storages import Storage, StorageTable
from mindtorch.backend.mindspore.graph._tensor_reads import TensorReads
from mindtorch.backend.mindspore.graph._tensor_writes import MS_DTYPES, TensorWrites
from mindtorch.backend.mindspore.npu import converted, memory_of, shape_of, stype_of
from mindtorch.backend.mindspore.private import MSTensor, from_contiguous
from mindtorch.backend.mindspore.recorder_api import STATE, Number
from mindtorch.backend.mindspore.runtime import ms
from mindspore.graph.jit_context import JitContext, set_jit_context
from mindspore.ops import auto_generate as G

#: primitive of MindSpore's -> indices of the operands that it modifies in place; primitives whose names begin with
#: Inplace modify the first
WRITES = {"Adam": (0, 1, 2), "ApplyMomentum": (0, 1), "ApplyGradientDescent": (0,), "ApplyAdamWithAmsgradV2": (0, 1, 2, 3), "Assign": (0,),
          "AssignAdd": (0,), "AssignSub": (0,), "AdamWeightDecay": (0, 1, 2), "AdamW": (0, 1, 2, 3), "SGD": (0, 3, 5)}
_fill, _scalar = G.FillScalar(), G.TensorToScalar()


class Recorder(JitContext):
    """Context in which kernels run and are recorded. MindSpore's primitives themselves call
    `run_op`."""

    #: whether state and constants are read as arguments of the graph (on Ascend MindSpore copies a
    #: Parameter)
    by_arguments = ASCEND
    #: whether kernels use only primitives that MindSpore's ONNX writer supports, even where these
    #: are less accurate
    old = False
    writes_class = TensorWrites

    def __init__(self, device: Any, lenient: bool = False) -> None:
        super().__init__()
        self.device = device
        #: reason for the graph break, or None; a kernel is never interrupted, because it may have
        #: written already
        self.broken: str | None = None
        self.inputs = RuntimeInputs()
        self.table = StorageTable(lenient)
        self.writer = LineWriter(StateOrder(), weakref.WeakMethod(self._resolve))
        self.reads = TensorReads(self.table, self.writer, self.inputs)
        self.writes = self.writes_class(self.table, self.writer, self.inputs)
        self._ascend = AscendCalls(self.table, self.writer, self.reads, self.writes, weakref.proxy(self)) if ASCEND else None
        self._off = 0

    def __enter__(self) -> Recorder:
        STATE.on = self
        set_jit_context(self)
        return self

    def __exit__(self, *error: object) -> None:
        STATE.on = None
        set_jit_context(None)

    def aside(self) -> _Off:
        """Returns a context in which nothing is recorded."""
        return _Off(self)

    def _resolve(self, a):
        """Returns the expression of a tensor, an array or a `Number` (or a value of the latter)."""
        if a.__class__ is Number:
            if ASCEND and a.value.__class__ is not bool:
                return self.inputs.scalar(a, lambda x: self.writer.emit(_scalar, x))
            return a._seen()
        if isinstance(a, np.ndarray):
            a = from_contiguous(np.ascontiguousarray(a).reshape(a.shape))
            self.constant(a)
        return self.reads.operand(a)

    # ---- memory
    def find(self, h: Any) -> Storage | None:
        """Returns the root whose memory contains tensor `h`, or None."""
        return self.table.find(h)

    def given(self, index: int, h: Any, persistent: bool) -> None:
        """Declares a tensor in C order that is passed to the graph. persistent: it is the same at
        every run, so it may be state of the graph."""
        if persistent:
            root = self.table.add(h, f"self.{self.inputs.state(index, h)}", "state", index)
            if self.by_arguments:
                root.name = self.inputs.argument("given", index)
                self.writer.order.show(root.name, root.own)
        else:
            self.table.add(h, self.inputs.argument("given", index), "argument", index)

    def constant(self, h: Any) -> None:
        """Declares a tensor whose values are part of the graph."""
        if 0 not in shape_of(h) and self.find(h) is None:
            # The graph uses its own copy: the tensor may become a result and be modified in place.
            with _Off(self):
                own = _copied(h) if ASCEND else from_contiguous(np.array(memory_of(h)))
            # MindSpore folds constants that are not Parameters.
            name = self.inputs.argument("constant", own) if self.by_arguments else self.writer.attribute(own)
            self.table.add(h, name, "constant")

    # ---- notifications from kernels (backend/mindspore/recorder_api.py)
    def host_reads(self, h: Any) -> None:
        """Breaks the graph if the host reads memory that is not constant."""
        root = self.find(h)
        if root is None or root.kind != "constant" or root.touched:
            self.broken = "it reads values in host memory"

    def next_rng(self, generator: Any) -> RngDraw:
        """Draws the next (seed, offset) of a generator."""
        return self.inputs.draw(generator)

    def new_buffer(self, make: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        """Creates tensors that every run creates again, as arguments."""
        with _Off(self):
            r = make(*given)
            # Each gets its own storage: parts of one table of random numbers would be mistaken for
            # one another.
            r = tuple([converted(h, stype_of(h)) for h in r]) if r.__class__ is tuple else converted(r, stype_of(r))
        call = self.inputs.make(make, given)
        for i, h in enumerate(r if r.__class__ is tuple else (r,)):
            self.table.add(h, self.inputs.argument("fresh", call, i), "argument")
        return r

    def runtime_assert(self, h: Any, look: Callable[[Any], None]) -> bool:
        """Checks values now. Values of a given tensor are also checked before each run, values
        computed by the graph after each run.

        Returns False if the values cannot be checked before the run.
        """
        try:
            root, sizes, strides, offset = self.table.view_of(h)
        except GraphBreak as e:
            self.broken = str(e)
            return False
        with _Off(self):
            look(h)
        if root.kind == "value" or root.touched or root.kind == "argument" and root.index < 0:
            with _Off(self):
                name = self.reads.operand(h)
            self.inputs.afterwards.append((name, root.np_dtype, look))
            return False
        if root.kind != "constant":
            self.inputs.checks.append((root.index, (sizes, strides, offset, root.np_dtype), look))
        return True

    def cached(self, make: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        """Creates tensors from constants, which may have been done in an earlier run, and declares
        them as constants."""
        with _Off(self):
            r = make(*given)
        stack = [r]
        while stack:
            x = stack.pop()
            if x.__class__ is tuple or x.__class__ is list:
                stack.extend(x)
            elif isinstance(x, MSTensor):
                self.constant(x)
        return r

    def opaque_call(self, obj: Any, compute: Callable[..., Any], handles: tuple[Any, ...]) -> Any:
        """Runs `compute`, and records it as one call of `obj`."""
        with _Off(self):
            set_jit_context(None)
            try:
                r = compute(*handles)
            finally:
                set_jit_context(self)
            with _NotedBreaks(self):
                v = self.writer.emit(obj, *handles)
                for i, h in enumerate(r if r.__class__ is tuple else (r,)):
                    if h is not None and 0 not in shape_of(h):
                        self.table.add(h, f"{v}[{i}]" if r.__class__ is tuple else v, "value")
        return r

    def raw(self, name: str, operands: tuple[Any, ...], results: int) -> Any:
        """Returns an object that `opaque_call` can record, for a primitive that MindSpore's
        compiler does not accept from source (`_raw.py`)."""
        with _Off(self):
            return _raw.call(name, operands, results)

    def slot(self, n: Number, np_dtype: Any) -> Any:
        """Returns a scalar as a 0-d tensor that is an argument."""
        return self.inputs.tensor(n, np_dtype, lambda h, name: self.table.add(h, name, "argument"))

    def is_state(self, h: Any) -> bool:
        """True if a tensor is an entire piece of the graph's state, which MindSpore's optimizers
        may modify in place."""
        root = self.find(h)
        return root is not None and root.kind == "state" and shape_of(h) == root.sizes and h.is_contiguous()

    def holds_for(self, n: Number) -> None:
        """Guards the graph on the scalar's current value."""
        self.inputs.conditions.append((n, n.value))

    # ---- calls
    def pass_trace_node(self, before: Any, after: Any) -> None:
        """Does nothing. MindSpore calls it when it replaces a tensor by another."""

    def default_output(self) -> Any:
        """Returns None. MindSpore's own tracer needs this method."""
        return None

    def run_op(self, prim: Any, r: Any, *args: Any) -> Any:
        """Records a call of a primitive with `args` that returned `r`; MindSpore calls this method.
        """
        return r if self._off or self.broken is not None else self.called(prim, r, _call_args(prim, args))

    def called(self, of: Any, r: Any, args: Sequence[Any], keys: dict[str, Any] | None = None) -> Any:
        """Records a call that returned `r`, of a primitive or of a function that MindSpore's
        compiler can read."""
        if not self._off and self.broken is None:
            with _Off(self):
                try:
                    self._called(of, r, [*args, *[Keyword(k, v) for k, v in (keys or {}).items()]])
                except GraphBreak as e:
                    self.broken = str(e)
        return r

    def _called(self, prim, r, args):
        name = type(prim).__name__
        if self._ascend is not None and self._ascend.replace(prim, r, args):
            return
        writes = WRITES.get(name, (0,) if name.startswith("Inplace") else ())
        if name == "BatchNorm" and prim.attrs.get("side_effect_mem") or name == "BatchNormExt" and args[3] is not None and args[5]:
            writes = (3, 4)
        if name.startswith(("Apply", "Scatter")) and not writes and name not in ("ScatterNd",):
            raise GraphBreak(f"it is not known what {name} writes to")
        if not writes:
            tensors = r if isinstance(r, (tuple, list)) else (r,)
            if all([isinstance(t, MSTensor) and 0 not in shape_of(t) and self.find(t) is not None for t in tensors]):
                return  # views: they are read from the memory that they share
            return self.register(name, self.writer.emit(prim, *args), r)
        self.register(name, self.writes.in_place(prim, args, writes), r)

    def register(self, name: str, v: Any, r: Any) -> None:
        """Registers the results of a call of primitive `name` under the expression `v`."""
        tensors = r if isinstance(r, (tuple, list)) else (r,)
        for i, t in enumerate(tensors):
            if isinstance(t, MSTensor) and 0 not in shape_of(t) and self.find(t) is None:
                if not t.is_contiguous():
                    raise GraphBreak(f"{name} gives a tensor that is not in C order")
                self.table.add(t, f"{v}[{i}]" if tensors is r else v, "value")

    # ---- casts, copies and writes of the device itself
    def cast(self, h: Any, r: Any) -> None:
        """Records that `r` is a contiguous copy of `h`, possibly in another element type."""
        if 0 in shape_of(h):
            return
        with _Off(self), _NotedBreaks(self):
            name = self.reads.contiguous(h)
            if stype_of(r) != stype_of(h):
                name = self.writes.cast(name, stype_of(r))
            # A copy has the same name as its source, until the source is modified in place:
            # `TensorWrites.separate`.
            self.table.add(r, name, "value")
            if ASCEND and stype_of(r) == stype_of(h) and not h.is_contiguous():
                self.reads.copied(h, r)

    def write(self, h: Any, value: Any) -> None:
        """Records that `value`, broadcast and cast, has been or will be stored in `h`."""
        if 0 in shape_of(h):
            return
        with _Off(self), _NotedBreaks(self):
            name = self.reads.contiguous(value)
            have, want = stype_of(value), stype_of(h)
            if have != want:
                name = self.writes.cast(name, want)
            self.writes.store(h, name, shape_of(value))

    def fill(self, h: Any, number: Any) -> None:
        """Records that one scalar has been or will be stored in all elements of `h`."""
        if 0 in shape_of(h):
            return
        with _Off(self), _NotedBreaks(self):
            if ASCEND:
                number = number.item() if isinstance(number, np.ndarray) else number
                return self.writes.store(h, self.writer.emit(_fill, shape_of(h), number, MS_DTYPES[stype_of(h)]), shape_of(h))
            c = from_contiguous(np.array(number))
            self.constant(c)
            self.writes.store(h, self.reads.operand(c), ())

    def finish(self, outputs: Sequence[Any]) -> GraphOutputs:
        """Returns the results of the graph, for these outputs. Writes to state are recorded as
        lines."""
        with _Off(self):
            return graph_outputs(outputs, self.table, self.reads, self.writes, self.inputs)


def _call_args(prim, args):
    """Returns the arguments of a primitive's call.

    MindSpore passes strings and dtypes to `run_op` as integers, which the compiler does not accept,
    and adds the instance's own settings.
    """
    code = type(prim).__call__.__code__
    frame: Any = sys._getframe(2)
    for _ in range(8):
        if frame is None or frame.f_code is code and frame.f_locals["self"] is prim:
            break
        frame = frame.f_back
    if frame is None or frame.f_code is not code:
        return args if code.co_flags & 4 else args[:code.co_argcount - 1]
    names, n = code.co_varnames, code.co_argcount
    given = [frame.f_locals[x] for x in names[1:n]]
    return [*given, *frame.f_locals[names[n + code.co_kwonlyargcount]]] if code.co_flags & 4 else given


def _copied(h):
    return ms.mint.empty_like(h, device="Ascend").copy_(h)


class _Off:
    """Context in which calls are not recorded. On exit recording resumes only if it was active
    before."""

    __slots__ = ("recorder", "before")

    def __init__(self, recorder):
        self.recorder = recorder

    def __enter__(self):
        self.recorder._off += 1
        self.before, STATE.on = STATE.on, None

    def __exit__(self, *error):
        self.recorder._off -= 1
        STATE.on = self.before  # None if the kernels have already run.


class _NotedBreaks:
    """Context that stores the reason for a graph break instead of raising GraphBreak."""

    __slots__ = ("recorder",)

    def __init__(self, recorder):
        self.recorder = recorder

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is GraphBreak:
            self.recorder.broken = str(error)
            return True
        return False
