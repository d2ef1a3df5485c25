"""All MindSpore attributes that mindtorch replaces or adds; see `mindtorch/backend/patching.py`.

Private MindSpore names that are only used are in `private.py`. Importing this module does not
import MindSpore.
"""
import ctypes
import sys

from mindtorch.backend.patching import ADDS, AT_TIMES, RELIES, REPLACES, PatchError, declare, put, put_everywhere, take_back  # noqa: F401

_CHECKED = ("mindspore", "2.10.0")
_TENSOR, _PARAMETER, _CELL = "mindspore.common.tensor:Tensor.", "mindspore.common.parameter:Parameter.", "mindspore.nn.cell:Cell."


def _adds(name, why, *tests):
    declare(name, ADDS, why, _CHECKED, tests)


def _replaces(name, takes, why, *tests, kind=REPLACES):
    declare(name, kind, why, _CHECKED, tests, takes)


# ------------------------------------------------------------------ attributes of tensors
_adds(_TENSOR + "_array", "a tensor created by a MindSpore kernel creates its array on first access", "tests/core/test_interop.py",
      "tests/facade/test_ms_style.py")
for _name in ("_sizes", "_np_dtype", "_numel", "_contiguous"):
    _adds(_TENSOR + _name, "geometry of a tensor created by a MindSpore kernel", "tests/core/test_interop.py")
#: Names that mindtorch's own code reads from a tensor that it receives.
PRIVATE = ("_requires_grad_", "_grad_fn_", "_output_nr", "_grad_", "_version_counter", "_base", "_views", "_creation_meta", "_view_without_history",
           "_tensor_hooks", "_post_accumulate_grad_hooks", "_grad_accumulator",
           "_retain", "_device", "_handle", "_inference", "_fw_grad")
for _name in PRIVATE:
    _adds(_TENSOR + _name, "a tensor created by a MindSpore kernel is adopted when mindtorch reads one of its attributes", "tests/core/test_interop.py")
#: PyTorch's autograd interface, which MindSpore's tensors lack.
GRADIENTS = ("backward", "retain_grad", "requires_grad", "grad", "grad_fn", "detach", "detach_", "is_leaf")
for _name in GRADIENTS:
    _adds(_TENSOR + _name, "results that MindSpore ops compute from torch-style tensors have PyTorch's autograd interface", "tests/core/test_interop.py")

# ------------------------------------------------------------------ autograd (`interop.py`)
#
# Torch-style autograd through MindSpore's ops.
_adds(_TENSOR + "__fallback__", "MindSpore's operators dispatch a call with a torch-style tensor to it", "tests/core/test_interop.py")
_replaces("mindspore.ops.primitive:Primitive.__call__", "self, *args", "operators that accept a list of tensors do not check for __fallback__",
          "tests/core/test_interop.py")
_replaces(_CELL + "__call__", "self, *args, **kwargs", "torch-style autograd rejects a Cell with its own bprop", "tests/core/test_interop.py")
_replaces(_PARAMETER + "__getitem__", None, "indexing a Parameter does not check for __fallback__", "tests/core/test_interop.py")
_replaces(_TENSOR + "__setitem__", None, "an assignment of a value with torch-style autograd history is recorded", "tests/core/test_interop.py")
_replaces(_TENSOR + "assign_value", "self, value", "MindSpore's writes bump the version counter and reach a torch-style tensor's views",
          "tests/core/test_interop.py",
          "tests/facade/test_ms_style.py")
_replaces(_PARAMETER + "set_data", "self, data, slice_shape", "writes to a Parameter bump its version counter", "tests/core/test_interop.py",
      "tests/facade/test_ms_style.py")
for _name in ("mindspore.nn.optim.optimizer", "mindspore.experimental.optim.optimizer"):
    _replaces(_name + ":Optimizer.__call__", "self, *args, **kwargs", "a step of a MindSpore optimizer counts as an in-place write to its parameters",
          "tests/core/test_interop.py",
              "tests/facade/test_ms_style.py")
#: In-place methods of MindSpore's tensors: those of the native class, and those of the Python class
#: with their parameters.
_NATIVE = """add_ copy_ div_ exp_ fill_ fill_diagonal_ floor_divide_ index_copy_ index_fill_ log_ masked_fill_ masked_scatter_ mul_ put_ remainder_ scatter_
sigmoid_ sub_ __iadd__ __ifloordiv__ __imod__ __imul__ __isub__ __itruediv__""".split()
_PYTHON = {
    "addmm_": "mat1, mat2, *, beta, alpha", "bernoulli_": "p, *, generator", "clamp_": "min, max", "erfinv_": "", "exponential_": "lambd, *, generator",
    "floor_": "", "index_add_": "dim, index, source, *, alpha", "index_put_": "indices, values, accumulate", "normal_": "mean, std, *, generator",
    "random_": "from_, to, *, generator", "scatter_add_": "dim, index, src", "sign_": "", "tanh_": "", "uniform_": "from_, to, *, generator", "zero_": ""}
IN_PLACE = (*_NATIVE, *_PYTHON)
for _name in IN_PLACE:
    _declared = (_TENSOR + _name, "a part of a Parameter can be modified in place, as without autograd recording", _CHECKED,
                 ("tests/device/test_ascend_plain.py",))
    if _name in _NATIVE:
        declare(_declared[0], ADDS, *_declared[1:])
    else:
        declare(_declared[0], REPLACES, *_declared[1:], ", ".join(filter(None, ("self", _PYTHON[_name]))))
#: Methods that read a Parameter's values.
READS = ("asnumpy", "_item", "_tolist", "get_bytes")
for _name in READS:
    _adds(_PARAMETER + _name, "a deferred step of a MindSpore optimizer is flushed before its parameters are read",
          "tests/device/test_graph_native_ops.py")
#: Methods (native and Python) and functions that MindSpore's recording of primitives does not see.
_UNSEEN = {**dict.fromkeys("__mul__ __rmul__ __add__ __radd__ __sub__ __truediv__ __rtruediv__ all reshape".split()), "astype": "self, dtype, copy"}
_UNSEEN = {**{_TENSOR + _name: _takes for _name, _takes in _UNSEEN.items()}, "mindspore.ops:less": "*args, **kwargs"}
UNSEEN = tuple(_UNSEEN)
for _name, _takes in _UNSEEN.items():
    _replaces(_name, _takes, "calls by MindSpore's own functions inside a graph are recorded", "tests/device/test_graph_native_ops.py",
              kind=AT_TIMES)
_replaces("mindspore.graph.api:_no_grad.__enter__", "self", "MindSpore's _no_grad applies to torch-style code too", "tests/core/test_interop.py")
_replaces("mindspore.graph.api:_no_grad.__exit__", "self, exc_type, exc_val, exc_tb", "MindSpore's _no_grad ends for torch-style code too",
          "tests/core/test_interop.py")
for _name in ("mindspore.ops.composite.base", "mindspore.ops.function.grad.grad_func"):
    _replaces(_name + ":_pynative_func_grad_forward", "fn, *args, **kwargs", "value_and_grad finds MindSpore's autograd in its initial state",
              "tests/core/test_interop.py")
_replaces(_CELL + "_call_pre_process", "self, *args, **kwargs", "a Cell under set_grad() finds MindSpore's autograd in its initial state",
          "tests/core/test_interop.py")
_replaces("mindspore.ops.composite.base:_pynative_forward_run", "fn, sens_param, *args, **kwargs",
          "mindtorch needs to know the differentiated arguments while the function runs; an error inside ends the recording", "tests/facade/test_ms_style.py")

_replaces("mindspore.ops.composite.base:_pynative_func_grad_backward", "fn, grad_op, weights, grad_position, has_aux, *run_args",
          "gradients of a compiled step use mindtorch's autograd; elsewhere the sens is passed to MindSpore's", "tests/device/test_graph_mindspore_style.py",
          "tests/device/test_mindspore_style.py")

# ------------------------------------------------------------------ graphs (jit_fallback.py)
for _name in ("mindspore.graph._parse:get_obj_type", "mindspore.graph._parse:parser.get_obj_type"):
    _replaces(_name, "obj", "compilation of torch-style code is aborted: the graph would give it MindSpore's semantics",
          "tests/facade/test_ms_style.py")
_replaces("mindspore.graph._parse:Parser.__init__", "self, fn, parse_method", "compilation of a torch-style function is aborted",
          "tests/facade/test_ms_style.py")
_replaces("mindspore.graph.api:_JitExecutor.__call__", "self, *args, **kwargs", "a function that uses torch-style code runs eagerly",
          "tests/facade/test_ms_style.py")
_replaces("mindspore.graph.api:_JitExecutor.compile", "self, method_name, *args, phase, **kwargs",
          "an aborted compilation reports the torch-style code that caused it", "tests/facade/test_ms_style.py")
_replaces("mindspore.graph.jit_trace:_jit_trace", "jit_config", "a function that uses torch-style code is not traced: its values would be constants",
          "tests/facade/test_ms_style.py")
_replaces("mindspore.graph.jit_trace:_get_caller_lines", "", "skips frames without source (as of `python -m`): reading their source is an error",
          "tests/facade/test_ms_style_hooked.py")
_replaces("mindspore.graph._utils.pijit_context:PIJitCaptureContext.__call__", "self, fn",
          "the bytecode of a function that uses torch-style code is not captured", "tests/facade/test_ms_style.py")
_replaces(_CELL + "compile_and_run", "self, *args, **kwargs",
          "a Cell in GRAPH_MODE that uses torch-style code runs eagerly; a graph with torch-style weights tracks their updates",
          "tests/facade/test_ms_style.py", "tests/facade/test_graph_weights.py")
_replaces("mindspore.graph.api:_pynative_executor.clear_res", "self", "an aborted compilation does not clear what an outer function has recorded",
          "tests/facade/test_ms_style.py", kind=AT_TIMES)

_replaces(_CELL + "_complex_call", "self, *args, **kwargs", "mindtorch's autograd records a Cell under set_grad() in a compiled step",
          "tests/device/test_graph_mindspore_style.py")
_replaces(_CELL + "compile", "self, *args, **kwargs", "a Cell that uses torch-style code cannot be compiled before it has run",
          "tests/device/test_graph_mindspore_style.py")

# ------------------------------------------------------------------ data sinking (sink.py)
_replaces("mindspore.train.model:Model._exec_preprocess", "self, is_train, dataset, dataset_sink_mode, sink_size, epoch_num, dataset_helper",
          "a network that is not a MindSpore graph is fed from the host: the device queue would run only one step per epoch",
          "tests/device/test_graph_mindspore_style.py")
_replaces("mindspore.train.data_sink:data_sink", "fn, dataset, sink_size, jit_config, input_signature",
          "a function that is not a MindSpore graph is fed from the host",
          "tests/device/test_graph_mindspore_style.py")

# ------------------------------------------------------------------ devices (npu.py)
_replaces("mindspore.common.tensor:Tensor.__init__", None, "a MindSpore tensor created from a torch-style npu tensor gets its values",
          "tests/device/test_mindspore_style.py", kind=AT_TIMES)

# ------------------------------------------------------------------ `checkpoint.py`
#
# Checkpoints and export.
_replaces("mindspore.train.serialization:_convert_save_obj_to_param_list", "save_obj, integrated_save, append_dict, choice_func",
          "save_checkpoint accepts lists and dicts of torch-style tensors", "tests/facade/test_ms_style.py")
_replaces("mindspore.train.serialization:load_param_into_net", "net, parameter_dict, strict_load, remove_redundancy",
          "warns about buffers that are missing in a checkpoint", "tests/facade/test_ms_children.py", "tests/facade/test_ms_style.py")
_replaces("mindspore.train.serialization:_export", "net, file_name, file_format, *inputs, **kwargs", "a Module is exported by tracing",
      "tests/backend/test_export.py")

# ------------------------------------------------------------------ mixed precision (cell.py)
_replaces("mindspore.train.amp:_auto_mixed_precision_rewrite", "network, dtype, *, white_list, black_list", "level O1 of a Module is an autocast region",
          "tests/facade/test_ms_style.py")
_replaces("mindspore.train.amp:_set_amp_decorator", "obj, amp_level, amp_dtype, white_list, black_list",
          "level auto of a Module is an autocast region", "tests/facade/test_ms_style.py")
_replaces("mindspore.train.amp:_OutputTo32.construct", "self, *args, **kwargs",
          "O2 and O3 cast a Module's result with a cast that mindtorch's autograd records",
          "tests/facade/test_ms_style.py")

# ------------------------------------------------------------------ processes
for _name in ("prepare_before_fork", "parent_at_fork", "child_at_fork"):
    _replaces("mindspore._c_expression:fork_utils." + _name, None, "MindSpore's fork callbacks run exactly once for every fork (runtime.py)",
              "tests/backend/test_runtime.py", "tests/facade/test_data_workers.py")
_replaces(_CELL + "__del__", "self", "a Cell alive at interpreter exit is not destroyed after the objects that it uses (at_exit.py)",
          "tests/facade/test_ms_children.py", "tests/backend/test_patches.py")
for _name in ("get_cache_group_rank", "get_cache_group_size"):
    _replaces(f"mindspore.mint.distributed.distributed:{_name}.__defaults__", None,
              "mint.distributed bound the default group's name before the group existed (backend/comm/mindspore.py)",
              "tests/facade/distributed/test_ms_parallel.py", kind=AT_TIMES)
del _name, _declared


# ------------------------------------------------------------------ relied-on layouts
def _same_layout():
    ms = sys.modules["mindspore"]
    got = [c.__basicsize__ for c in (ms.Tensor, ms.Parameter)]
    return None if got[0] == got[1] else f"Tensor and Parameter have different sizes {got} (bytes): objects cannot change their class"


def _cells_base():
    name = sys.modules["mindspore.nn"].Cell.__bases__[0].__name__
    return None if name == "Cell_" else f"Cell's first base is {name}, not Cell_"


declare("mindspore.common.tensor:Tensor", RELIES, "a MindSpore tensor becomes a mindtorch tensor by a change of its class, and keeps its memory "
                                                  "(core/tensor/tensor.py)", _CHECKED,
        ("tests/core/test_interop.py", "tests/facade/test_ms_style.py"), check=_same_layout)
declare("mindspore.nn.cell:Cell", RELIES, "a Module initializes only the C++ part of a Cell (cell.py)", _CHECKED,
        ("tests/facade/test_ms_style.py", "tests/facade/test_ms_children.py"),
        check=_cells_base)


# ------------------------------------------------------------------ NumPy's dtype of bfloat16
_mended: list[bool] = []


def mend_copies(dtype):
    """Makes NumPy copy MindSpore's bfloat16 with its own function for float16, which also moves two
    bytes.

    MindSpore's function cannot copy zero elements: it sets an error without holding the GIL, so the
    process crashes or a MemoryError surfaces later. NumPy calls it with zero elements wherever a
    piece happens to be empty: between the indices of a mask, in an empty slice, in a concatenation.
    The offsets are those of NumPy 1's structures. To verify them, the type number and item size of
    both dtypes are read back first.
    """
    import numpy as np
    number, size, functions, copy_many, copy_one = 28, 32, 64, 184, 192
    half = np.dtype(np.float16)
    for d in (half, dtype):
        if [ctypes.c_int.from_address(id(d) + at).value for at in (number, size)] != [d.num, d.itemsize] or d.itemsize != 2:
            _mended[:] = [False]
            return
    of, to = [ctypes.c_size_t.from_address(id(d) + functions).value for d in (half, dtype)]
    for at in (copy_many, copy_one):
        ctypes.c_size_t.from_address(to + at).value = ctypes.c_size_t.from_address(of + at).value
    _mended[:] = [True]


declare("mindspore.common.np_dtype:bfloat16", RELIES, "its copy function, which fails for zero elements, is replaced by NumPy's for float16", ("numpy", "1.26"),
        ("tests/ops/test_ops_out.py",),
        check=lambda: None if _mended != [False] else "not patched, because NumPy's structures differ: an empty piece of a bfloat16 array may crash the "
                                                      "process")
