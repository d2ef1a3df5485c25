"""Element types that the chip's kernels reject although a primitive's kernel would launch them: the
host computes them, with its warning.

CANN rejects a launch when it is prepared, which MindSpore does in a separate thread, so the error
would be raised by a later call. The sources are the documents named in
mindtorch/tools/standin/limits.json. benchmarks/ascend_limits.py finds launches beyond them in a log.
"""
from mindtorch.backend.mindspore.kernels import refuse

#: element types -> primitives with a kernel that supports them for no operand
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
