"""The end of a recording: outputs, writes to given tensors, and values to check."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mindtorch.backend.mindspore.graph._ascend import ASCEND
from mindtorch.backend.mindspore.graph._runtime_inputs import RuntimeInputs
from mindtorch.backend.mindspore.graph._storages import StorageTable
from mindtorch.backend.mindspore.graph._tensor_reads import TensorReads
from mindtorch.backend.mindspore.graph._tensor_writes import TensorWrites
from mindtorch.backend.mindspore.npu import shape_of, stype_of


@dataclass(slots=True)
class GraphOutputs:
    """Results of a graph.

    - expressions: expressions of the outputs
    - views: which view of its expression each output is (None: the value itself)
    - pooled: tensors that a kernel attached to a result: (result, their indices, whether there are
      several, settings)
    - after: (index, expression) of values to write to given tensors after the run
    - checks: expressions of the values to check after the run
    """

    expressions: list[str]
    views: list[Any]
    pooled: list[tuple[int, list[int | None], bool, Any]]
    after: list[tuple[int, str]]
    checks: list[str]


def graph_outputs(handles: Sequence[Any], table: StorageTable, reads: TensorReads, writes: TensorWrites, inputs: RuntimeInputs) -> GraphOutputs:
    """Returns the results of a recording; records writes to state as lines."""
    written = [r for r in table.roots if r.touched and r.name != r.own]
    for root in written:
        if root.kind == "state":
            writes.separate(root)
    end = GraphOutputs([], [], [], [], [])
    expressions = end.expressions
    for h in handles:
        if h.is_contiguous() and (not ASCEND or shape_of(h) == table.view_of(h)[0].sizes):
            name = reads.operand(h)
            end.views.append(None)
        else:  # with its memory layout
            root, *where = table.view_of(h)
            name = root.name
            end.views.append((*where, root.np_dtype))
        if name[0] != "v" or name in expressions:  # an output has its own storage
            name = writes.copy(name, stype_of(h))
        expressions.append(name)
    for i, h in enumerate(handles):
        hung = h.__dict__.get("pooled")
        if hung is None:
            continue
        positions: list[int | None] = []
        for t in hung[0] if hung[0].__class__ is tuple else hung[:1]:
            if t is None:
                positions.append(None)
                continue
            name = reads.operand(t)
            expressions.append(name if name[0] == "v" and name not in expressions else writes.copy(name, stype_of(t)))
            positions.append(len(expressions) - 1)
            end.views.append(None)
        end.pooled.append((i, positions, hung[0].__class__ is tuple, hung[1]))
    for root in written:
        value = root.name if root.name[0] == "v" else writes.copy(root.name, root.np_dtype)
        if root.kind == "state":
            writes.assign(root, value)
        elif root.index >= 0:
            end.after.append((root.index, value if value not in expressions else writes.copy(value, root.np_dtype)))
    end.checks += [name if name[0] == "v" else writes.copy(name, np_dtype) for name, np_dtype, _ in inputs.afterwards]
    return end
