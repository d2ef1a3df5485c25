"""Recorder of the calls that kernels of the npu device make while they run, as lines of a function
that MindSpore's compiler can read.

Tensors are identified by their memory. A `Storage` is one separate piece of memory: an argument, a
piece of state (a Parameter of the graph on the same memory), a constant, or the result of a call.
Its `name` is the expression of its current contents. Views are read and written functionally
(`_views.py`).
"""
from __future__ import annotations

import bisect
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mindtorch.backend.errors import GraphBreak
from mindtorch.backend.mindspore.graph import _ascend, _raw, _views
from mindtorch.backend.mindspore.npu import STYPES, converted, memory_of, shape_of, stride_of, stype_of
from mindtorch.backend.mindspore.private import MSTensor, from_contiguous
from mindtorch.backend.mindspore.recorder_api import STATE, Number
from mindtorch.backend.mindspore.runtime import ms, target
from mindtorch.backend.strides import contiguous_strides
from mindspore.graph.jit_context import JitContext, set_jit_context
from mindspore.ops import auto_generate as G
from mindspore.ops import operations as P

ASCEND = target() == "Ascend"
_ms_of = {v: k for k, v in STYPES.items()}

#: primitive -> indices of the operands that it modifies in place; primitives whose names begin with
#: Inplace modify the first
WRITES = {"Adam": (0, 1, 2), "ApplyMomentum": (0, 1), "ApplyGradientDescent": (0,), "ApplyAdamWithAmsgradV2": (0, 1, 2, 3), "Assign": (0,),
          "AssignAdd": (0,), "AssignSub": (0,), "AdamWeightDecay": (0, 1, 2), "AdamW": (0, 1, 2, 3), "SGD": (0, 3, 5)}
_reshape, _contiguous, _fill, _store, _scalar = P.Reshape(), G.Contiguous(), G.FillScalar(), G.InplaceCopy(), G.TensorToScalar()
_depend, _dense = ms.ops.Depend(), G.Dense()
_cast, _broadcast, _assign, _mul, _and = P.Cast(), P.BroadcastTo, P.Assign(), P.Mul(), P.LogicalAnd()


class Storage:
    """A piece of memory and its contents."""

    __slots__ = ("start", "nbytes", "np_dtype", "sizes", "name", "own", "kind", "index", "touched", "reads", "keep", "copied")

    def __init__(self, start, nbytes, np_dtype, sizes, name, kind, index=-1, keep=None):
        self.start, self.nbytes, self.np_dtype, self.sizes = start, nbytes, np_dtype, sizes
        self.name, self.kind, self.index, self.keep = name, kind, index, keep
        self.own, self.touched, self.reads = name, False, {}
        # for a view's copy: its source (root, sizes, strides, offset), and the expression of the
        # root's values at that time
        self.copied: Any = None


class Instruction:
    """One statement, target = call(operands). `effect`: it writes to state."""

    __slots__ = ("target", "call", "operands", "effect")

    def __init__(self, target, call, operands, effect):
        self.target, self.call, self.operands, self.effect = target, call, operands, effect


class RngDraw(tuple):
    """(seed, offset) of a generator, the draw with index `position` in the graph."""

    position: int


class Recorder(JitContext):
    """Context in which kernels run and are recorded. MindSpore's primitives themselves call
    `run_op`."""

    #: whether state and constants are read as arguments of the graph (on Ascend MindSpore copies a
    #: Parameter)
    by_arguments = ASCEND
    #: whether kernels use only primitives that MindSpore's ONNX writer supports, even where these
    #: are less accurate
    old = False

    def __init__(self, device: Any, lenient: bool = False) -> None:
        super().__init__()
        self.device, self.lenient = device, lenient
        #: reason for the graph break, or None; a kernel is never interrupted, because it may have
        #: written already
        self.broken: str | None = None
        self.lines: list[Instruction] = []
        self.attributes: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._roots: dict[int, Storage] = {}
        self._starts: list[int] = []
        self._keep: list[Any] = []
        self._count = 0
        #: description of each argument: ("given", index), ("number", Number, element type),
        #: ("fresh", call, which), ...
        self.arguments: list[tuple[Any, ...]] = []
        self.states: list[tuple[str, int, Any]] = []       # (attribute, index of the given tensor, handle)
        # (generator's key in the scalars of a run, index among its draws)
        self.takes: list[tuple[Any, int]] = []
        self.makes: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.checks: list[tuple[int, Any, Callable[[Any], None]]] = []
        #: values to check after the run: (expression, element type, function)
        self.afterwards: list[tuple[str, Any, Callable[[Any], None]]] = []
        self.conditions: list[tuple[Number, Any]] = []
        self._slots: dict[Any, Any] = {}
        # On Ascend state is read as an argument. It is written as a Parameter on the same memory,
        # after everything that reads it has run. Otherwise MindSpore copies a Parameter for each
        # read if there is a view, or a write to another Parameter, in between. `_lies` maps names
        # to the state that they show; `_readers` maps state to the names of the calls that read it.
        self._lies: dict[str, set[str]] = {}
        self._readers: dict[str, list[str]] = {}
        # modified state -> whether MindSpore is unaware of the write
        self._unknown: dict[str, bool] = {}
        self._fills: dict[str, tuple[Any, tuple[int, ...], tuple[Any, ...]]] = {}
        self._off = 0
        # Roots of host tensors: a host tensor moves to the device at its first use, and so changes
        # its address.
        self._objects: dict[int, Storage] = {}

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

    # ---- memory
    def _add(self, h, name, kind, index=-1):
        start = h._data_ptr()
        sizes = shape_of(h)
        root = Storage(start, h.nbytes, stype_of(h), sizes, _Name(name), kind, index, h)
        self._keep.append(h)
        if ASCEND and kind in ("constant", "argument"):
            self._objects[id(h)] = root
            # Its first use moves it to the device; another tensor may then get its address.
            if h.device == "CPU":
                return root
        if start not in self._roots:
            bisect.insort(self._starts, start)
        self._roots[start] = root
        return root

    @property
    def roots(self) -> list[Storage]:
        """All roots."""
        return [*self._roots.values(), *[r for r in self._objects.values() if self._roots.get(r.start) is not r]]

    def find(self, h: Any) -> Storage | None:
        """Returns the root whose memory contains tensor `h`, or None."""
        if self._objects:
            root = self._objects.get(id(h))
            if root is not None:
                return root
        at = h._data_ptr()
        root = self._roots.get(at)
        if root is None:
            i = bisect.bisect_right(self._starts, at) - 1
            if i < 0:
                return None
            root = self._roots[self._starts[i]]
        return root if at < root.start + root.nbytes else None

    def _storage_view(self, h):
        root = self.find(h)
        if root is None and self.lenient and h.is_contiguous() and h.nbytes:
            root = self._add(h, "x", "argument")
        if root is None:
            raise GraphBreak("it uses a tensor that was not created by a recorded call")
        np_dtype = stype_of(h)
        if np_dtype != root.np_dtype:
            raise GraphBreak(f"it reinterprets {root.np_dtype.name} memory as {np_dtype.name}")
        if 0 in shape_of(h):
            raise GraphBreak("it uses an empty tensor")
        return root, shape_of(h), tuple(stride_of(h)), 0 if self._objects.get(id(h)) is root else (h._data_ptr() - root.start) // np_dtype.itemsize

    def operand(self, h: Any) -> str:
        """Returns the expression of a tensor's values."""
        return self._view_of(*self._storage_view(h))

    def _view_of(self, root, sizes, strides, offset):
        if sizes == root.sizes and not offset and _in_order(sizes, strides):
            return root.name
        key = sizes, strides, offset
        name = root.reads.get(key)
        if name is None:
            name = ASCEND and _ascend.read(self.emit, lambda have: self._seen(root, have), root.sizes, sizes, strides, offset)
            if name:
                return name  # Not cached: MindSpore copies the result of a view for a second use.
            have, steps = _ascend.merged(sizes, strides)
            name = ASCEND and have != sizes and _ascend.read(self.emit, lambda have: self._seen(root, have), root.sizes, have, steps, offset)
            if name:
                name = root.reads[key] = self.emit(_reshape, self.emit(_contiguous, name), sizes)
                return name
            name = root.reads[key] = _views.read(self.emit, root.name, root.sizes, sizes, strides, offset, root.np_dtype, ASCEND)
        return name

    def _seen(self, root, sizes):
        """Returns a root's values in other sizes, as the source of a view.

        MindSpore copies a value from which a view is taken, for each other use; a Depend around the
        value avoids the copy.
        """
        name = self._reshaped(root, sizes)
        if name.startswith("self."):
            return name
        return self.emit(_depend, name, _Name("x0" if self.arguments else "self.p0"))

    def _reshaped(self, root, sizes):
        """Returns a root's values in other sizes; an argument is passed in these sizes."""
        if sizes == root.sizes:
            return root.name
        name = root.reads.get(sizes)
        if name is None:
            if root.kind == "argument" and root.index >= 0 and root.name == root.own:
                name = _Name(f"x{len(self.arguments)}")
                self.arguments.append(("given", root.index, (sizes, contiguous_strides(sizes), 0, root.np_dtype)))
            else:
                name = self.emit(_reshape, root.name, sizes)
            root.reads[sizes] = name
        return name

    def given(self, index: int, h: Any, persistent: bool) -> None:
        """Declares a tensor in C order that is passed to the graph. held: it is the same at every
        run, so it may be state of the graph."""
        if persistent:
            name = f"p{len(self.states)}"
            self.states.append((name, index, h))
            root = self._add(h, f"self.{name}", "state", index)
            if self.by_arguments:
                root.name = _Name(f"x{len(self.arguments)}")
                self.arguments.append(("given", index))
                self._lies[root.name] = {root.own}
        else:
            self._add(h, f"x{len(self.arguments)}", "argument", index)
            self.arguments.append(("given", index))

    def constant(self, h: Any) -> None:
        """Declares a tensor whose values are part of the graph."""
        if 0 not in shape_of(h) and self.find(h) is None:
            # The graph uses its own copy: the tensor may become a result and be modified in place.
            with _Off(self):
                own = _copied(h) if ASCEND else from_contiguous(np.array(memory_of(h)))
            if self.by_arguments:  # MindSpore folds constants that are not Parameters.
                self._add(h, f"x{len(self.arguments)}", "constant")
                self.arguments.append(("constant", own))
            else:
                self._add(h, self._attribute(own), "constant")

    def _attribute(self, value):
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"a{len(self.attributes)}"
            self.attributes[name] = value
            self._keep.append(value)
        return f"self.{name}"

    # ---- notifications from kernels (backend/mindspore/recorder_api.py)
    def host_reads(self, h: Any) -> None:
        """Breaks the graph if the host reads memory that is not constant."""
        root = self.find(h)
        if root is None or root.kind != "constant" or root.touched:
            self.broken = "it reads values in host memory"

    def next_rng(self, generator: Any) -> RngDraw:
        """Draws the next (seed, offset) of a generator."""
        t = RngDraw(generator.take())
        t.position = len(self.takes)
        self.takes.append((generator.key, generator.at - 1))
        return t

    def new_buffer(self, make: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        """Creates tensors that every run creates again, as arguments."""
        with _Off(self):
            r = make(*given)
            # Each gets its own storage: parts of one table of random numbers would be mistaken for
            # one another.
            r = tuple([converted(h, stype_of(h)) for h in r]) if r.__class__ is tuple else converted(r, stype_of(r))
        call = len(self.makes)
        self.makes.append((make, tuple([_DrawIndex(g.position) if g.__class__ is RngDraw else g for g in given])))
        for i, h in enumerate(r if r.__class__ is tuple else (r,)):
            self._add(h, f"x{len(self.arguments)}", "argument")
            self.arguments.append(("fresh", call, i))
        return r

    def runtime_assert(self, h: Any, look: Callable[[Any], None]) -> bool:
        """Checks values now. Values of a given tensor are also checked before each run, values
        computed by the graph after each run.

        Returns False if the values cannot be checked before the run.
        """
        try:
            root, sizes, strides, offset = self._storage_view(h)
        except GraphBreak as e:
            self.broken = str(e)
            return False
        with _Off(self):
            look(h)
        if root.kind == "value" or root.touched or root.kind == "argument" and root.index < 0:
            with _Off(self):
                name = self.operand(h)
            self.afterwards.append((name, root.np_dtype, look))
            return False
        if root.kind != "constant":
            self.checks.append((root.index, (sizes, strides, offset, root.np_dtype), look))
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
                v = self.emit(obj, *handles)
                for i, h in enumerate(r if r.__class__ is tuple else (r,)):
                    if h is not None and 0 not in shape_of(h):
                        self._add(h, f"{v}[{i}]" if r.__class__ is tuple else v, "value")
        return r

    def raw(self, name: str, operands: tuple[Any, ...], results: int) -> Any:
        """Returns an object that `opaque_call` can record, for a primitive that MindSpore's
        compiler does not accept from source (`_raw.py`)."""
        with _Off(self):
            return _raw.call(name, operands, results)

    def slot(self, n: Number, np_dtype: Any) -> Any:
        """Returns a scalar as a 0-d tensor that is an argument."""
        h = self._slots.get((id(n), np_dtype))
        if h is None:
            h = self._slots[id(n), np_dtype] = from_contiguous(np.asarray(n.value).astype(np_dtype))
            self._keep.append(n)
            self._add(h, f"x{len(self.arguments)}", "argument")
            self.arguments.append(("number", n, np_dtype))
        return h

    def is_state(self, h: Any) -> bool:
        """True if a tensor is an entire piece of the graph's state, which MindSpore's optimizers
        may modify in place."""
        root = self.find(h)
        return root is not None and root.kind == "state" and shape_of(h) == root.sizes and h.is_contiguous()

    def holds_for(self, n: Number) -> None:
        """Guards the graph on the scalar's current value."""
        self.conditions.append((n, n.value))

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
                    self._called(of, r, [*args, *[_Key(k, v) for k, v in (keys or {}).items()]])
                except GraphBreak as e:
                    self.broken = str(e)
        return r

    def _called(self, prim, r, args):
        name = type(prim).__name__
        if ASCEND and (name == "Concat" and self._joined(prim, r, args) or self._on_ascend(name, r, args)):
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
            return self._given(name, self.emit(prim, *args), r)
        self._write_in_place(prim, args, writes, r)

    def _given(self, name, v, r):
        """Registers the results of a call under the name `v`."""
        tensors = r if isinstance(r, (tuple, list)) else (r,)
        for i, t in enumerate(tensors):
            if isinstance(t, MSTensor) and 0 not in shape_of(t) and self.find(t) is None:
                if not t.is_contiguous():
                    raise GraphBreak(f"{name} gives a tensor that is not in C order")
                self._add(t, f"{v}[{i}]" if tensors is r else v, "value")

    def _on_ascend(self, name, r, args):
        """Records a call that needs other primitives on Ascend; False if it needs none."""
        if name == "Copy":
            self.cast(args[0], r)
        elif name == "MatMulExt":
            return self._product(r, args)
        elif name == "Reshape" and not args[0].is_contiguous() and self.find(r) is None:
            self._given(name, self.emit(_reshape, self._contiguous(args[0]), args[1]), r)
            self._copy_of(args[0], r)
        elif name == "Dense":
            # MindSpore's kernel treats an operand that is not a matrix as one in C order: a view
            # gives wrong results.
            self._given(name, self.emit(_dense, self._contiguous(args[0]) if len(shape_of(args[0])) != 2 else args[0], *args[1:]), r)
        elif name == "InplaceCopy":
            self.write(args[0], args[1])
        elif name == "InplaceZero" or name == "InplaceFillScalar":
            self.fill(args[0], args[1] if len(args) > 1 else 0)
        elif name in _ascend.REPLACED:
            by = _ascend.REPLACED[name]
            if by.in_place is not None and self.is_state(args[0]):
                prim, *args = by.in_place(*args)
                self._write_in_place(prim, args, (0,), None)
            else:
                prim, *rest = by.out_of_place(*args)
                self._stored(args[0], self.emit(prim, *rest), shape_of(args[0]))
        else:
            return False
        return True

    def _product(self, r, args):
        """Records a product of matrices that are transposed in memory, which its kernel can handle;
        False if it is not recorded."""
        found, turned = [], []
        for x in args:
            root, sizes, strides, offset = self._storage_view(x)
            if len(sizes) < 2 or len(sizes) != len(shape_of(r)):
                return False
            inner = (*sizes[:-2], sizes[-1], sizes[-2]), (*strides[:-2], strides[-1], strides[-2])
            turn = not _in_order(sizes, strides) and _in_order(*inner) and math.prod(sizes) == math.prod(root.sizes)
            turned.append(turn)
            found.append(self._view_of(root, *inner, offset) if turn else self._view_of(root, sizes, strides, offset))
        if shape_of(args[0])[:-2] != shape_of(args[1])[:-2] or len(shape_of(r)) == 2 and not any(turned):
            return False
        # Batched products always use this primitive: MatMulExt converts its operands to what aclnn
        # accepts, and views do not qualify.
        self._given("MatMul", self.emit((P.MatMul if len(shape_of(r)) == 2 else P.BatchMatMul)(*turned), *found), r)
        return True

    def _contiguous(self, h):
        """Returns the expression of a tensor's values in C order."""
        if not ASCEND or h.is_contiguous():
            return self.operand(h)
        root, *where = self._storage_view(h)
        if root.kind != "argument" and _ascend.turned(root.sizes, *where):
            # The transpose kernel is one launch; a view of a Reshape would be copied first.
            return _views.read(self.emit, root.name, root.sizes, *where, root.np_dtype, True)
        return self.emit(_contiguous, self._view_of(root, *where))

    def _copy_of(self, h, r):
        root, *where = self._storage_view(h)
        copy = self.find(r)
        if copy is not None:
            copy.copied = root, *where, root.name

    def _joined(self, prim, r, args):
        """Records a concatenation of copied views as a concatenation of the views; False if it is
        not recorded.

        The views may have been copied to merge dimensions, but the concatenation kernel accepts
        strided operands.
        """
        sizes = shape_of(r)
        d = prim.axis % max(len(sizes), 1)
        parts, inner = [], None
        for h in args[0]:
            root, *where = self._storage_view(h)
            copied = root.copied
            if copied is not None and copied[0].name == copied[4] and not root.touched and where == [root.sizes, contiguous_strides(root.sizes), 0]:
                if copied[1][:d] == sizes[:d]:
                    root, *where = copied[:4]
                    inner = where[0][d + 1:] if inner is None else inner
            parts.append((root, *where))
        if inner is None or d + 1 + len(inner) > 8:
            return False
        block, found = math.prod(inner), []
        for root, have, strides, offset in parts:
            n, remainder = divmod(math.prod(have[d:]), block)
            want = (*sizes[:d], n, *inner)
            seen = None if remainder else _ascend.viewed(have, strides, want)
            if seen is None:
                return False
            found.append((root, want, seen, offset))
        v = self.emit(_views._op(G.Concat, d), tuple([_Name(self._view_of(*f)) for f in found]))
        self._given("Concat", v, r)
        made = self.find(r)
        assert made is not None
        made.sizes = (*sizes[:d], sum([f[1][d] for f in found]), *inner)
        return True

    def _write_in_place(self, prim, args, writes, r):
        roots = []
        for i in writes:
            root, sizes, strides, offset = self._storage_view(args[i])
            if root.kind != "state" or sizes != root.sizes or offset or not _in_order(sizes, strides):
                raise GraphBreak(f"{type(prim).__name__} writes to a tensor that is not an entire piece of the graph's state")
            roots.append(root)
        # MindSpore is unaware that a batch norm writes.
        unknown = ASCEND and type(prim).__name__ == "BatchNormExt"
        for root in roots:
            self._alike(root, unknown)
            if root.touched if ASCEND else root.name != root.own:
                self._assigned(root)
            self._parted(root)
        operands = [self._expression(a) for a in args]
        # The call has to run after earlier readers of the state, and later readers after the call.
        if unknown:
            before = [v for root in roots for v in self._readers.pop(root.own, ())]
            if before:
                operands[0] = self._line_of(_depend, [operands[0], _Weak(before)], False)
        for i, root in zip(writes, roots):
            operands[i] = root.own if unknown else self._target(root)
        v = self._line_of(prim, operands, True)
        for root in roots:
            root.name = root.own
            root.reads.clear()
            if unknown:
                root.name = self._line_of(_depend, [_Name(f"x{self.arguments.index(('given', root.index))}"), v], False)
                self._lies[root.name] = {root.own}
                self._readers[root.own] = [v]
        self._given(type(prim).__name__, v, r)

    def _alike(self, root, unknown):
        """Breaks the graph if one piece of state has writes that MindSpore is aware of and others:
        MindSpore would apply one of them to a copy."""
        if ASCEND and root.kind == "state" and self._unknown.setdefault(root.own, unknown) != unknown:
            raise GraphBreak("a batch norm's running statistics are written to by something else as well")

    def _parted(self, root):
        """Prepares for an in-place write to state: other roots that are known by its name get a
        value of their own."""
        for other in self.roots:
            if other.copied is not None and other.copied[0] is root:
                other.copied = None
            if other is not root and (other.name == root.own or root.own in self._lies.get(other.name, ())):
                other.name = self._copy(other.name, root.np_dtype)

    def _copy(self, name, np_dtype):
        one = self._slots.get(("one", np_dtype))
        if one is None:
            one = self._slots["one", np_dtype] = f"x{len(self.arguments)}"
            self.arguments.append(("one", np_dtype))
        return self._line_of(_and if np_dtype.kind == "b" else _mul, [name, one], False)

    def _assigned(self, root):
        self._line_of(_store if ASCEND else _assign, [self._target(root), root.name], True)
        root.name, root.touched = root.own, False
        root.reads.clear()

    def _note_reads(self, prim, name, operands, effect):
        states: set[str] = set()
        for o in _flat(operands[:1] if prim is _depend else operands):
            states |= self._lies.get(o.partition("[")[0], frozenset())
        if states and (type(prim).__name__.endswith("View") or type(prim).__name__ in ("Depend", "Reshape")):
            self._lies[name] = states
            return
        for state in states:
            self._readers.setdefault(state, []).append(name)

    def emit(self, prim: Any, *args: Any) -> str:
        """Records a call of a primitive as a line; returns the name of its result."""
        kind = type(prim).__name__
        if kind == "SliceExt" and args[0].__class__ is _Name and args[0] in self._fills and all([a.__class__ is int and a >= 0 for a in args[1:]]):
            # A slice of a filled tensor: the compiler computes a smaller fill once, whereas the
            # slice would be a launch.
            fill, sizes, rest = self._fills[args[0]]
            d, start, stop, step = args[1:]
            return self.emit(fill, (*sizes[:d], len(range(start, min(stop, sizes[d]), step)), *sizes[d + 1:]), *rest)
        name = self._line(prim, args, False)
        if kind in ("Zeros", "Ones", "FillScalar") and args[0].__class__ is tuple:
            self._fills[name] = prim, args[0], args[1:]
        return name

    def _line(self, prim, args, effect):
        return self._line_of(prim, [self._expression(a) for a in args], effect)

    def _target(self, root):
        """Returns the expression for writing to state, ordered after all calls that read it."""
        readers = self._readers.pop(root.own, None)
        return self._line_of(_depend, [root.own, _Weak(readers)], False) if readers else root.own

    def _line_of(self, prim, operands, effect):
        name = f"v{self._count}"
        self._count += 1
        if self._lies:
            self._note_reads(prim, name, operands, effect)
        self.lines.append(Instruction(name, self._attribute(prim), operands, effect))
        return _Name(name)

    def _expression(self, a):
        if a.__class__ is _Name:
            return a
        if isinstance(a, MSTensor):
            return self.operand(a)
        if a.__class__ is tuple or a.__class__ is list:
            inner = [self._expression(x) for x in a]
            if all([x.__class__ is str for x in inner]):
                return repr(a) if all([x.__class__ in _PLAIN for x in a]) else self._attribute(a)
            return _Many(inner)
        if a.__class__ is _Key:
            return a.with_value(self._expression(a.value))
        if a.__class__ is Number:
            return self._as_scalar(a) if ASCEND and a.value.__class__ is not bool else self._expression(a._seen())
        if isinstance(a, np.integer):
            a = int(a)
        if isinstance(a, np.ndarray):
            h = from_contiguous(np.ascontiguousarray(a).reshape(a.shape))
            self.constant(h)
            return self.operand(h)
        if a.__class__ in _PLAIN and (a.__class__ is not float or math.isfinite(a)):
            return repr(a)
        return _Name(self._attribute(a))

    def _as_scalar(self, n):
        """Returns a `Number` as a scalar of the graph, extracted from a tensor argument.

        A scalar argument would be copied to the device and back for each kernel that takes it.
        """
        name = self._slots.get((id(n), "scalar"))
        if name is None:
            self._keep.append(n)
            self.arguments.append(("number", n, np.dtype(np.float32 if n.value.__class__ is float else np.int64)))
            name = self._slots[id(n), "scalar"] = self.emit(_scalar, _Name(f"x{len(self.arguments) - 1}"))
        return name

    # ---- casts, copies and writes of the device itself
    def cast(self, h: Any, r: Any) -> None:
        """Records that `r` is a contiguous copy of `h`, possibly in another element type."""
        if 0 in shape_of(h):
            return
        with _Off(self), _NotedBreaks(self):
            name = self._contiguous(h)
            if stype_of(r) != stype_of(h):
                name = self.emit(_cast, _Name(name), _ms_of[stype_of(r)])
            # A copy has the same name as its source, until the source is modified in place:
            # `_parted`.
            self._add(r, name, "value")
            if ASCEND and stype_of(r) == stype_of(h) and not h.is_contiguous():
                self._copy_of(h, r)

    def write(self, h: Any, value: Any) -> None:
        """Records that `value`, broadcast and cast, has been or will be stored in `h`."""
        if 0 in shape_of(h):
            return
        with _Off(self), _NotedBreaks(self):
            name = self._contiguous(value)
            have, want = stype_of(value), stype_of(h)
            if have != want:
                name = self.emit(_cast, _Name(name), _ms_of[want])
            self._stored(h, name, shape_of(value))

    def fill(self, h: Any, number: Any) -> None:
        """Records that one scalar has been or will be stored in all elements of `h`."""
        if 0 in shape_of(h):
            return
        with _Off(self), _NotedBreaks(self):
            if ASCEND:
                number = number.item() if isinstance(number, np.ndarray) else number
                return self._stored(h, self.emit(_fill, shape_of(h), number, _ms_of[stype_of(h)]), shape_of(h))
            c = from_contiguous(np.array(number))
            self.constant(c)
            self._stored(h, self.operand(c), ())

    def _moved(self, np_dtype, prim, name, *args):
        if np_dtype.kind != "V" or ASCEND:
            return self.emit(prim, _Name(name), *args)
        # The CPU target supports neither primitive for bfloat16.
        upcast = self.emit(prim, self.emit(_cast, _Name(name), _ms_of[np.dtype(np.float32)]), *args)
        return self.emit(_cast, upcast, _ms_of[np_dtype])

    def _stored(self, h, name, have):
        root, sizes, strides, offset = self._storage_view(h)
        self._alike(root, False)
        if root.kind == "constant":
            root.kind = "value"  # the graph's own copy keeps its initial values
        if have != sizes:
            name = self._moved(root.np_dtype, _broadcast(sizes), name)
        complete = not offset and math.prod(sizes) == math.prod(root.sizes) and _in_order(sizes, strides)
        if complete:
            root.name = name if sizes == root.sizes else self._moved(root.np_dtype, _reshape, name, root.sizes)
        else:
            root.name = _views.write(self.emit, _Name(root.name), root.sizes, sizes, strides, offset, _Name(name), root.np_dtype, ASCEND)
        root.reads.clear()
        root.touched = True

    # ---- the end
    def finish(self, outputs: Sequence[Any]) -> tuple[list[str], list[Any], list[tuple[int, str]], list[str]]:
        """Returns (outputs, views, after, checks).

        - outputs: expressions of the outputs
        - views: which view of its expression each output is (None: the value itself)
        - after: (index, expression) of values to write to given tensors after the run
        - checks: expressions of the values to check after the run

        Writes to state are recorded as lines.
        """
        with _Off(self):
            written = [r for r in self.roots if r.touched and r.name != r.own]
            for root in written:
                if root.kind == "state":
                    self._parted(root)
            expressions: list[str] = []
            views: list[Any] = []
            for h in outputs:
                if h.is_contiguous() and (not ASCEND or shape_of(h) == self._storage_view(h)[0].sizes):
                    name = self.operand(h)
                    views.append(None)
                else:  # with its memory layout
                    root, *where = self._storage_view(h)
                    name = root.name
                    views.append((*where, root.np_dtype))
                if name[0] != "v" or name in expressions:  # an output has its own storage
                    name = self._copy(name, stype_of(h))
                expressions.append(name)
            # tensors that a kernel attached to a result: (result, their indices, whether there are
            # several, settings)
            self.pooled = []
            for i, h in enumerate(outputs):
                hung = h.__dict__.get("pooled")
                if hung is None:
                    continue
                positions: list[int | None] = []
                for t in hung[0] if hung[0].__class__ is tuple else hung[:1]:
                    if t is None:
                        positions.append(None)
                        continue
                    name = self.operand(t)
                    expressions.append(name if name[0] == "v" and name not in expressions else self._copy(name, stype_of(t)))
                    positions.append(len(expressions) - 1)
                    views.append(None)
                self.pooled.append((i, positions, hung[0].__class__ is tuple, hung[1]))
            after = []
            for root in written:
                name = root.name if root.name[0] == "v" else self._copy(root.name, root.np_dtype)
                if root.kind == "state":
                    self._line_of(_store if ASCEND else _assign, [self._target(root), name], True)
                elif root.index >= 0:
                    after.append((root.index, name if name not in expressions else self._copy(name, root.np_dtype)))
            looks = [name if name[0] == "v" else self._copy(name, np_dtype) for name, np_dtype, _ in self.afterwards]
            return expressions, views, after, looks


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


def _in_order(sizes, strides):
    return all([m == 1 or s == c for m, s, c in zip(sizes, strides, contiguous_strides(sizes))])


class _Name(str):
    """An expression. A plain string is a constant."""

    __slots__ = ()


class _Many(list):
    """Expressions of a tuple's elements."""


class _Weak(list):
    """Expressions that are dropped where nothing needs them."""


def _flat(operands):
    for o in operands:
        if o.__class__ is _Many:
            yield from _flat(o)
        elif o.__class__ is _Key:
            yield from _flat([o.value])
        elif o.__class__ is not _Weak:
            yield o


class _Key:
    """A keyword argument."""

    __slots__ = ("name", "value")

    def __init__(self, name, value):
        self.name, self.value = name, value

    def with_value(self, value):
        return _Key(self.name, value)


class _DrawIndex:
    __slots__ = ("at",)

    def __init__(self, at):
        self.at = at


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


_PLAIN = frozenset((int, float, bool, str, type(None)))
