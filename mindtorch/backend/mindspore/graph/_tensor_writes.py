"""Writes to tensors: functional for values of the graph, in place for its state."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mindtorch.backend.errors import GraphBreak
from mindtorch.backend.interface import NpDtype, Sizes
from mindtorch.backend.mindspore.graph import _views
from mindtorch.backend.mindspore.graph._ascend import ASCEND
from mindtorch.backend.mindspore.graph._expressions import Expr, WeakExprs
from mindtorch.backend.mindspore.graph._lines import LineWriter
from mindtorch.backend.mindspore.graph._runtime_inputs import RuntimeInputs
from mindtorch.backend.mindspore.graph._storages import Storage, StorageTable, in_order
from mindtorch.backend.mindspore.npu import STYPES
from mindtorch.backend.mindspore.runtime import ms
from mindspore.ops import auto_generate as G
from mindspore.ops import operations as P

#: element type -> MindSpore's dtype
MS_DTYPES = {v: k for k, v in STYPES.items()}

_reshape, _store, _depend, _broadcast = P.Reshape(), G.InplaceCopy(), ms.ops.Depend(), P.BroadcastTo
_cast, _assign, _mul, _and = P.Cast(), P.Assign(), P.Mul(), P.LogicalAnd()


class TensorWrites:
    """Writes to storages of a recording."""

    def __init__(self, table: StorageTable, writer: LineWriter, inputs: RuntimeInputs) -> None:
        self._table, self._writer, self._inputs, self._order = table, writer, inputs, writer.order

    def store(self, h: Any, name: str, have: Sizes) -> None:
        """Records that the value `name` of sizes `have`, broadcast, is stored in `h`."""
        root, sizes, strides, offset = self._table.view_of(h)
        self._order.check_writes(root, False)
        if root.kind == "constant":
            root.kind = "value"  # the graph's own copy keeps its initial values
        if have != sizes:
            name = self._moved(root.np_dtype, _broadcast(sizes), name)
        complete = not offset and math.prod(sizes) == math.prod(root.sizes) and in_order(sizes, strides)
        if complete:
            root.name = name if sizes == root.sizes else self._moved(root.np_dtype, _reshape, name, root.sizes)
        else:
            root.name = _views.write(self._writer.emit, Expr(root.name), root.sizes, sizes, strides, offset, Expr(name), root.np_dtype, ASCEND)
        root.reads.clear()
        root.touched = True

    def _moved(self, np_dtype, prim, name, *args):
        emit = self._writer.emit
        if np_dtype.kind != "V" or ASCEND:
            return emit(prim, Expr(name), *args)
        # The CPU target supports neither primitive for bfloat16.
        upcast = emit(prim, self.cast(name, STYPES[ms.float32]), *args)
        return self.cast(upcast, np_dtype)

    def cast(self, name: str, np_dtype: NpDtype) -> Expr:
        """Records a cast of an expression."""
        return self._writer.emit(_cast, Expr(name), MS_DTYPES[np_dtype])

    def copy(self, name: str, np_dtype: NpDtype) -> Expr:
        """Records a copy of an expression's value."""
        return self._writer.call(_and if np_dtype.kind == "b" else _mul, [name, self._inputs.one(np_dtype)])

    def in_place(self, prim: Any, args: Sequence[Any], writes: Sequence[int]) -> Expr:
        """Records a call that writes to the operands with these indices, pieces of state; returns
        the name of its result."""
        kind = type(prim).__name__
        roots = []
        for i in writes:
            root, sizes, strides, offset = self._table.view_of(args[i])
            if root.kind != "state" or sizes != root.sizes or offset or not in_order(sizes, strides):
                raise GraphBreak(f"{kind} writes to a tensor that is not an entire piece of the graph's state")
            roots.append(root)
        # MindSpore is unaware that a batch norm writes.
        unknown = ASCEND and kind == "BatchNormExt"
        for root in roots:
            self._order.check_writes(root, unknown)
            if root.touched if ASCEND else root.name != root.own:
                self._assign_now(root)
            self.separate(root)
        operands = [self._writer.expression(a) for a in args]
        # The call has to run after earlier readers of the state, and later readers after the call.
        if unknown:
            before = [v for root in roots for v in self._order.take_readers(root.own)]
            if before:
                operands[0] = self._writer.call(_depend, [operands[0], WeakExprs(before)])
        for i, root in zip(writes, roots):
            operands[i] = root.own if unknown else self._target(root)
        v = self._writer.call(prim, operands, True)
        for root in roots:
            root.name = root.own
            root.reads.clear()
            if unknown:
                root.name = self._writer.call(_depend, [Expr(f"x{self._inputs.arguments.index(('given', root.index))}"), v])
                self._order.show(root.name, root.own)
                self._order.written_by(root.own, v)
        return v

    def separate(self, root: Storage) -> None:
        """Prepares for an in-place write to state: other roots that are known by its name get a
        value of their own."""
        for other in self._table.roots:
            if other.copied is not None and other.copied[0] is root:
                other.copied = None
            if other is not root and (other.name == root.own or self._order.shows(other.name, root.own)):
                other.name = self.copy(other.name, root.np_dtype)

    def assign(self, root: Storage, name: str) -> None:
        """Records that `name` is stored in a piece of state."""
        self._writer.call(_store if ASCEND else _assign, [self._target(root), name], True)

    def _assign_now(self, root):
        self.assign(root, root.name)
        root.name, root.touched = root.own, False
        root.reads.clear()

    def _target(self, root):
        """Returns the expression for writing to state, ordered after all calls that read it."""
        readers = self._order.take_readers(root.own)
        return self._writer.call(_depend, [root.own, WeakExprs(readers)]) if readers else root.own
