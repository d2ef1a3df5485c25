"""Calls of primitives that MindSpore's compiler accepts only from its own differentiation, not from
source, loaded from a MindIR of one node.

(When source calls BatchNormGradExt, MindSpore passes its settings at wrong positions or rejects
them.) The shapes and dtypes of a MindIR's arguments do not matter: the compiler infers them again
at the call.
"""
from __future__ import annotations

import functools
import itertools
import os
from typing import Any

from mindspore.train import mind_ir_pb2 as ir

from mindtorch.backend.mindspore.graph._files import folder
from mindtorch.backend.mindspore.runtime import ms

_counter = itertools.count()
_KINDS = {type(None): (ir.AttributeProto.NONE, None), bool: (ir.AttributeProto.BOOL, "i"), int: (ir.AttributeProto.INT64, "i"),
          float: (ir.AttributeProto.FLOAT, "f")}


@functools.cache
def call(name: str, operands: tuple[Any, ...], results: int) -> Any:
    """Returns a Cell that calls the primitive `name` on its tensor arguments.

    `operands` has `...` for each tensor; the others are None, scalars, or tuples of integers.
    `results` is the number of results.
    """
    model = ir.ModelProto(ir_version="1.1", producer_name="MindSpore", model_version=ms.__version__, little_endian=True, mind_ir_version=3)
    graph = model.graph
    graph.name = name
    given = []
    for i, o in enumerate(operands):
        given.append(f"x{i}")
        if o is ...:
            graph.input.add(name=f"x{i}").tensor.add(dims=[1], data_type=1)
            continue
        value = graph.node.add(output=[f"x{i}"], name=f"x{i}", op_type="Constant").attribute.add(name="value")
        if o.__class__ is tuple:
            value.type = ir.AttributeProto.TUPLE
            for n in o:
                value.values.add(ints=[n], type=ir.AttributeProto.INT64)
            continue
        value.type, field = _KINDS[o.__class__]
        if field is not None:
            setattr(value, field, int(o) if o.__class__ is bool else o)
    node = graph.node.add(input=given, output=["r"], name="r", op_type=f"REF::{name}:1", domain=f"Default/{name}-op0")
    result = graph.output.add(name="r", denotation="Tuple").attr_info
    for a in node.attribute.add(name="shape"), result:
        a.type = ir.AttributeProto.TUPLE
        for _ in range(results):
            a.values.add(type=ir.AttributeProto.TENSORS).tensors.add(dims=[1], data_type=1)
        a.seq_info.is_dyn_len = False
    model.primitives.add(name=f"{name}:1", op_type=name, prim_type=ir.PrimitiveProto.PRIMITIVE_FUNCTION)
    path = os.path.join(folder(), f"call{next(_counter)}.mindir")
    with open(path, "wb") as f:
        f.write(model.SerializeToString())
    return ms.nn.GraphCell(ms.load(path))
