"""Expressions of the values of tensors."""
from __future__ import annotations

from typing import Any

from mindtorch.backend.interface import Sizes, Strides
from mindtorch.backend.mindspore.graph import _ascend, _views
from mindtorch.backend.mindspore.graph._ascend import ASCEND
from mindtorch.backend.mindspore.graph._expressions import Expr
from mindtorch.backend.mindspore.graph._lines import LineWriter
from mindtorch.backend.mindspore.graph._runtime_inputs import RuntimeInputs
from mindtorch.backend.mindspore.graph._storages import Storage, StorageTable, in_order
from mindtorch.backend.mindspore.runtime import ms
from mindtorch.backend.strides import contiguous_strides
from mindspore.ops import auto_generate as G
from mindspore.ops import operations as P

_reshape, _contiguous, _depend = P.Reshape(), G.Contiguous(), ms.ops.Depend()


class TensorReads:
    """Reads of views of storages. Each is recorded once, until its storage is written."""

    def __init__(self, table: StorageTable, writer: LineWriter, inputs: RuntimeInputs) -> None:
        self._table, self._writer, self._inputs = table, writer, inputs

    def operand(self, h: Any) -> Expr:
        """Returns the expression of a tensor's values."""
        return self.view(*self._table.view_of(h))

    def view(self, root: Storage, sizes: Sizes, strides: Strides, offset: int) -> Expr:
        """Returns the expression of a view of a root."""
        if sizes == root.sizes and not offset and in_order(sizes, strides):
            return root.name
        key = sizes, strides, offset
        name = root.reads.get(key)
        if name is None:
            emit = self._writer.emit
            name = ASCEND and _ascend.read(emit, lambda have: self._source(root, have), root.sizes, sizes, strides, offset)
            if name:
                return name  # Not cached: MindSpore copies the result of a view for a second use.
            have, steps = _ascend.merged(sizes, strides)
            name = ASCEND and have != sizes and _ascend.read(emit, lambda have: self._source(root, have), root.sizes, have, steps, offset)
            if name:
                name = root.reads[key] = emit(_reshape, emit(_contiguous, name), sizes)
                return name
            name = root.reads[key] = _views.read(emit, root.name, root.sizes, sizes, strides, offset, root.np_dtype, ASCEND)
        return name

    def _source(self, root, sizes):
        """Returns a root's values in other sizes, as the source of a view.

        MindSpore copies a value from which a view is taken, for each other use; a Depend around the
        value avoids the copy.
        """
        name = self._reshaped(root, sizes)
        if name.startswith("self."):
            return name
        return self._writer.emit(_depend, name, Expr("x0" if self._inputs.arguments else "self.p0"))

    def _reshaped(self, root, sizes):
        """Returns a root's values in other sizes; an argument is passed in these sizes."""
        if sizes == root.sizes:
            return root.name
        name = root.reads.get(sizes)
        if name is None:
            if root.kind == "argument" and root.index >= 0 and root.name == root.own:
                name = self._inputs.argument("given", root.index, (sizes, contiguous_strides(sizes), 0, root.np_dtype))
            else:
                name = self._writer.emit(_reshape, root.name, sizes)
            root.reads[sizes] = name
        return name

    def contiguous(self, h: Any) -> Expr:
        """Returns the expression of a tensor's values in C order."""
        if not ASCEND or h.is_contiguous():
            return self.operand(h)
        root, sizes, strides, offset = self._table.view_of(h)
        if root.kind != "argument" and _ascend.turned(root.sizes, sizes, strides, offset):
            # The transpose kernel is one launch; a view of a Reshape would be copied first.
            return _views.read(self._writer.emit, root.name, root.sizes, sizes, strides, offset, root.np_dtype, True)
        return self._writer.emit(_contiguous, self.view(root, sizes, strides, offset))

    def copied(self, h: Any, r: Any) -> None:
        """Notes that the storage of `r` is a copy of the view `h`."""
        root, *where = self._table.view_of(h)
        copy = self._table.find(r)
        if copy is not None:
            copy.copied = root, *where, root.name
