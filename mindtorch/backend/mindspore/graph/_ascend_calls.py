"""Calls that a graph on Ascend makes with other primitives than the kernel does."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from mindtorch.backend.mindspore.graph import _ascend, _views
from mindtorch.backend.mindspore.graph._expressions import Expr
from mindtorch.backend.mindspore.graph._lines import LineWriter
from mindtorch.backend.mindspore.graph._storages import StorageTable, in_order
from mindtorch.backend.mindspore.graph._tensor_reads import TensorReads
from mindtorch.backend.mindspore.graph._tensor_writes import TensorWrites
from mindtorch.backend.mindspore.npu import shape_of
from mindtorch.backend.strides import contiguous_strides
from mindspore.ops import auto_generate as G
from mindspore.ops import operations as P

_reshape, _dense = P.Reshape(), G.Dense()


class CallRecorder(Protocol):
    """Records results, and the device's own copies and writes (`builder.Recorder`)."""

    def cast(self, h: Any, r: Any) -> None: ...
    def write(self, h: Any, value: Any) -> None: ...
    def fill(self, h: Any, number: Any) -> None: ...
    def is_state(self, h: Any) -> bool: ...
    def register(self, name: str, v: Any, r: Any) -> None: ...


class AscendCalls:
    """Replacements of calls."""

    def __init__(self, table: StorageTable, writer: LineWriter, reads: TensorReads, writes: TensorWrites, recorder: CallRecorder) -> None:
        self._table, self._writer, self._reads, self._writes = table, writer, reads, writes
        self._recorder = recorder

    def replace(self, prim: Any, r: Any, args: Sequence[Any]) -> bool:
        """Records a call that needs other primitives; False if it needs none."""
        name = type(prim).__name__
        if name == "Concat":
            return self._joined(prim, r, args)
        if name == "Copy":
            self._recorder.cast(args[0], r)
        elif name == "MatMulExt":
            return self._product(r, args)
        elif name == "Reshape" and not args[0].is_contiguous() and self._table.find(r) is None:
            self._recorder.register(name, self._writer.emit(_reshape, self._reads.contiguous(args[0]), args[1]), r)
            self._reads.copied(args[0], r)
        elif name == "Dense":
            # MindSpore's kernel treats an operand that is not a matrix as one in C order: a view
            # gives wrong results.
            first = self._reads.contiguous(args[0]) if len(shape_of(args[0])) != 2 else args[0]
            self._recorder.register(name, self._writer.emit(_dense, first, *args[1:]), r)
        elif name == "InplaceCopy":
            self._recorder.write(args[0], args[1])
        elif name == "InplaceZero" or name == "InplaceFillScalar":
            self._recorder.fill(args[0], args[1] if len(args) > 1 else 0)
        elif name in _ascend.REPLACED:
            by = _ascend.REPLACED[name]
            if by.in_place is not None and self._recorder.is_state(args[0]):
                prim, *args = by.in_place(*args)
                self._writes.in_place(prim, args, (0,))
            else:
                prim, *rest = by.out_of_place(*args)
                self._writes.store(args[0], self._writer.emit(prim, *rest), shape_of(args[0]))
        else:
            return False
        return True

    def _product(self, r, args):
        """Records a product of matrices that are transposed in memory, which its kernel can handle;
        False if it is not recorded."""
        found, turned = [], []
        for x in args:
            root, sizes, strides, offset = self._table.view_of(x)
            if len(sizes) < 2 or len(sizes) != len(shape_of(r)):
                return False
            inner = (*sizes[:-2], sizes[-1], sizes[-2]), (*strides[:-2], strides[-1], strides[-2])
            turn = not in_order(sizes, strides) and in_order(*inner) and math.prod(sizes) == math.prod(root.sizes)
            turned.append(turn)
            found.append(self._reads.view(root, *inner, offset) if turn else self._reads.view(root, sizes, strides, offset))
        if shape_of(args[0])[:-2] != shape_of(args[1])[:-2] or len(shape_of(r)) == 2 and not any(turned):
            return False
        # Batched products always use this primitive: MatMulExt converts its operands to what aclnn
        # accepts, and views do not qualify.
        self._recorder.register("MatMul", self._writer.emit((P.MatMul if len(shape_of(r)) == 2 else P.BatchMatMul)(*turned), *found), r)
        return True

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
            root, *where = self._table.view_of(h)
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
        v = self._writer.emit(_views._op(G.Concat, d), tuple([Expr(self._reads.view(*f)) for f in found]))
        self._recorder.register("Concat", v, r)
        made = self._table.find(r)
        assert made is not None
        made.sizes = (*sizes[:d], sum([f[1][d] for f in found]), *inner)
        return True
