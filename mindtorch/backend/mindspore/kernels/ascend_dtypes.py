"""Element types that the chip's kernels refuse, where a primitive's kernel would launch them: the host answers then, with its warning.

CANN refuses a launch when it is prepared, which MindSpore does in a thread of its own: the error would come with some later call. The documents are those
that mindtorch/tools/standin/limits names; what is launched beyond them benchmarks/ascend_limits.py finds in a log.
"""
from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np

from mindtorch.backend.mindspore.kernels import stypes
from mindtorch.backend.mindspore.npu import STYPES

#: element types -> primitives with a kernel of which no operand may have one of them
REFUSED = {
    "float64": "embedding_dense_backward expm1 elu celu erfinv hardsigmoid hardswish kthvalue linalg_vector_norm log_softmax_backward softmax_backward "
               "max_dim min_dim median_all repeat_interleave roll sort sort_stable argsort trace_backward trunc frac",
    "complex64 complex128": "acos asin atan gather index_add logical_not masked_scatter masked_select nonzero repeat_interleave roll tril triu",
    "complex128": "cat",
    "int8 int16 int32 uint8": "max_dim min_dim",
    "bfloat16": "searchsorted",
}
#: the same for families of primitives, by the beginning of their names
FAMILIES = {"complex64 complex128": ("index_", "index_put_", "index_put_add_", "index_backward_")}


def _again(fn):
    """The same kernel as another object, for attributes of its own."""
    if not isinstance(fn, types.FunctionType):
        new: Any = functools.partial(fn)
    else:
        new = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
        new.__kwdefaults__ = fn.__kwdefaults__
    new.__dict__.update(getattr(fn, "__dict__", {}))
    return new


def restrict(table: dict[str, Any]) -> None:
    """Takes the refused element types from what the kernels of a table take."""
    refused: dict[str, frozenset[np.dtype]] = {}
    for names, primitives in REFUSED.items():
        for name in primitives.split():
            refused[name] = refused.get(name, frozenset()) | stypes(names)
    for name in table:
        for names, beginnings in FAMILIES.items():
            if any(name.removeprefix(b).isdigit() for b in beginnings):
                refused[name] = refused.get(name, frozenset()) | stypes(names)
    for name, types_ in refused.items():
        if name in table:
            fn = table[name] = _again(table[name])
            fn.only = (getattr(fn, "only", None) or frozenset(STYPES.values())) - types_
