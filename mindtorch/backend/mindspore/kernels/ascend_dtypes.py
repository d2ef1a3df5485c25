"""Element types that the chip's kernels refuse, where a primitive's kernel would launch them: the host answers then, with its warning.

CANN refuses a launch when it is prepared, which MindSpore does in a thread of its own: the error would come with some later call. The documents are those
that mindtorch/tools/standin/limits names; what is launched beyond them benchmarks/ascend_limits.py finds in a log.
"""
from mindtorch.backend.mindspore.kernels import refuse

#: element types -> primitives with a kernel of which no operand may have one of them
REFUSED = {
    "float64": "embedding_dense_backward expm1 elu celu erfinv hardsigmoid hardswish kthvalue linalg_vector_norm "
               "max_dim min_dim median_all repeat_interleave roll sort sort_stable argsort trace_backward trunc frac",
    "complex64 complex128": "acos asin atan gather index_add logical_not masked_scatter masked_select nonzero repeat_interleave roll tril triu "
                            + " ".join([f"{name}_{n}" for name in ("index", "index_put", "index_put_add", "index_backward") for n in range(1, 9)]),
    "complex128 uint16 uint32 uint64": "cat",
    "int8 int16 int32 uint8": "max_dim min_dim",
    "bfloat16": "searchsorted",
}

for _names, _primitives in REFUSED.items():
    refuse(_primitives, _names, target="Ascend")
