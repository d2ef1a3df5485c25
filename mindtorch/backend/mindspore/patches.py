"""Every attribute of MindSpore's that is replaced or added; see backend/patching.py.

(What is only used of its private names is in private.py.)  Importing this does not import MindSpore.
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


# ------------------------------------------------------------------ a tensor's other face
_adds(_TENSOR + "_a", "a tensor that a MindSpore kernel made gets its array when it is asked for", "tests/core/test_interop.py",
      "tests/facade/test_ms_style.py")
for _name in ("_sizes", "_stype", "_numel", "_contiguous"):
    _adds(_TENSOR + _name, "geometry of a tensor that a MindSpore kernel made", "tests/core/test_interop.py")
#: Names that the facade's own code asks of a tensor that it has been given.
PRIVATE = ("_rg", "_gnode", "_oi", "_g", "_ver", "_base", "_views", "_fragile", "_orphan", "_thooks", "_acchooks", "_accnode",
           "_retain", "_dev", "_h", "_inference", "_tan")
for _name in PRIVATE:
    _adds(_TENSOR + _name, "a tensor that a MindSpore kernel made is taken over where our code asks what it is", "tests/core/test_interop.py")
#: torch's way to gradients, which MindSpore's tensors do not have.
GRADIENTS = ("backward", "retain_grad", "requires_grad", "grad", "grad_fn", "detach", "detach_", "is_leaf")
for _name in GRADIENTS:
    _adds(_TENSOR + _name, "what MindSpore's ops compute from torch-style tensors has torch's way to its gradient", "tests/core/test_interop.py")

# ------------------------------------------------------------------ torch-style autograd through MindSpore's ops (interop.py)
_adds(_TENSOR + "__fallback__", "MindSpore's operators leave a call with a torch-style tensor to it", "tests/core/test_interop.py")
_replaces("mindspore.ops.primitive:Primitive.__call__", "self, *args", "operators that take tensors in a list do not ask for __fallback__",
          "tests/core/test_interop.py")
_replaces(_CELL + "__call__", "self, *args, **kwargs", "a Cell with a bprop of its own is refused in torch-style autograd", "tests/core/test_interop.py")
_replaces(_PARAMETER + "__getitem__", None, "reading a Parameter's part does not ask for __fallback__", "tests/core/test_interop.py")
_replaces(_TENSOR + "__setitem__", None, "a write whose value has a history in torch-style autograd is recorded there", "tests/core/test_interop.py")
_replaces(_TENSOR + "assign_value", "self, value", "MindSpore's writes count as writes, and reach a torch-style tensor's views", "tests/core/test_interop.py",
          "tests/facade/test_ms_style.py")
_replaces(_PARAMETER + "set_data", "self, data, slice_shape", "writes to a Parameter count as writes", "tests/core/test_interop.py",
      "tests/facade/test_ms_style.py")
for _name in ("mindspore.nn.optim.optimizer", "mindspore.experimental.optim.optimizer"):
    _replaces(_name + ":Optimizer.__call__", "self, *args, **kwargs", "a step of a MindSpore optimizer is a write to its parameters",
          "tests/core/test_interop.py",
              "tests/facade/test_ms_style.py")
#: methods of MindSpore's tensors that write to them: those of the native class, and those of the Python class with what they take
_NATIVE = """add_ copy_ div_ exp_ fill_ fill_diagonal_ floor_divide_ index_copy_ index_fill_ log_ masked_fill_ masked_scatter_ mul_ put_ remainder_ scatter_
sigmoid_ sub_ __iadd__ __ifloordiv__ __imod__ __imul__ __isub__ __itruediv__""".split()
_PYTHON = {
    "addmm_": "mat1, mat2, *, beta, alpha", "bernoulli_": "p, *, generator", "clamp_": "min, max", "erfinv_": "", "exponential_": "lambd, *, generator",
    "floor_": "", "index_add_": "dim, index, source, *, alpha", "index_put_": "indices, values, accumulate", "normal_": "mean, std, *, generator",
    "random_": "from_, to, *, generator", "scatter_add_": "dim, index, src", "sign_": "", "tanh_": "", "uniform_": "from_, to, *, generator", "zero_": ""}
IN_PLACE = (*_NATIVE, *_PYTHON)
for _name in IN_PLACE:
    _declared = (_TENSOR + _name, "a Parameter's part can be written to, as where nobody records", _CHECKED, ("tests/device/test_ascend_plain.py",))
    if _name in _NATIVE:
        declare(_declared[0], ADDS, *_declared[1:])
    else:
        declare(_declared[0], REPLACES, *_declared[1:], ", ".join(filter(None, ("self", _PYTHON[_name]))))
#: ways to a Parameter's values
READS = ("asnumpy", "_item", "_tolist", "get_bytes")
for _name in READS:
    _adds(_PARAMETER + _name, "what a step of MindSpore's optimizers that was put off writes to is computed before it is read",
          "tests/device/test_graph_native_ops.py")
#: what MindSpore's recording of primitives does not see: methods of its tensors, of the native class and of the Python class, and functions
_UNSEEN = {**dict.fromkeys("__mul__ __rmul__ __add__ __radd__ __sub__ __truediv__ __rtruediv__ all reshape".split()), "astype": "self, dtype, copy"}
_UNSEEN = {**{_TENSOR + _name: _takes for _name, _takes in _UNSEEN.items()}, "mindspore.ops:less": "*args, **kwargs"}
UNSEEN = tuple(_UNSEEN)
for _name, _takes in _UNSEEN.items():
    _replaces(_name, _takes, "MindSpore's own functions that are part of a graph are seen to call it", "tests/device/test_graph_native_ops.py",
              kind=AT_TIMES)
_replaces("mindspore.graph.api:_no_grad.__enter__", "self", "MindSpore's _no_grad holds for torch-style code as well", "tests/core/test_interop.py")
_replaces("mindspore.graph.api:_no_grad.__exit__", "self, exc_type, exc_val, exc_tb", "and ends for it", "tests/core/test_interop.py")
for _name in ("mindspore.ops.composite.base", "mindspore.ops.function.grad.grad_func"):
    _replaces(_name + ":_pynative_func_grad_forward", "fn, *args, **kwargs", "value_and_grad finds MindSpore's tape as if nobody had recorded",
              "tests/core/test_interop.py")
_replaces(_CELL + "_call_pre_process", "self, *args, **kwargs", "a Cell under set_grad() finds MindSpore's tape as if nobody had recorded",
          "tests/core/test_interop.py")
_replaces("mindspore.ops.composite.base:_pynative_forward_run", "fn, sens_param, *args, **kwargs",
          "which arguments are differentiated is known while the function runs; an error inside ends the recording", "tests/facade/test_ms_style.py")

_replaces("mindspore.ops.composite.base:_pynative_func_grad_backward", "fn, grad_op, weights, grad_position, has_aux, *run_args",
          "gradients of a step that is compiled are taken on our tape; elsewhere the sens reaches MindSpore's", "tests/device/test_graph_mindspore_style.py",
          "tests/device/test_mindspore_style.py")

# ------------------------------------------------------------------ graphs (jit_fallback.py)
for _name in ("mindspore.graph._parse:get_obj_type", "mindspore.graph._parse:parser.get_obj_type"):
    _replaces(_name, "obj", "a compilation that meets torch-style code is given up: the graph would give it MindSpore's meaning",
          "tests/facade/test_ms_style.py")
_replaces("mindspore.graph._parse:Parser.__init__", "self, fn, parse_method", "a compilation that meets a torch-style function is given up",
          "tests/facade/test_ms_style.py")
_replaces("mindspore.graph.api:_JitExecutor.__call__", "self, *args, **kwargs", "a function that uses torch-style code runs eagerly",
          "tests/facade/test_ms_style.py")
_replaces("mindspore.graph.api:_JitExecutor.compile", "self, method_name, *args, phase, **kwargs",
          "a compilation that has met torch-style code says what it was", "tests/facade/test_ms_style.py")
_replaces("mindspore.graph.jit_trace:_jit_trace", "jit_config", "a function that uses torch-style code is not traced: its values would be constants",
          "tests/facade/test_ms_style.py")
_replaces("mindspore.graph.jit_trace:_get_caller_lines", "", "frames without source, as of `python -m`, are left out: reading theirs is an error",
          "tests/facade/test_ms_style_hooked.py")
_replaces("mindspore.graph._utils.pijit_context:PIJitCaptureContext.__call__", "self, fn", "nor is its bytecode captured", "tests/facade/test_ms_style.py")
_replaces(_CELL + "compile_and_run", "self, *args, **kwargs",
          "a Cell in GRAPH_MODE that uses torch-style code runs eagerly; a graph that holds torch-style weights follows them",
          "tests/facade/test_ms_style.py", "tests/facade/test_graph_weights.py")
_replaces("mindspore.graph.api:_pynative_executor.clear_res", "self", "a compilation that is given up does not clear what an outer function has recorded",
          "tests/facade/test_ms_style.py", kind=AT_TIMES)

_replaces(_CELL + "_complex_call", "self, *args, **kwargs", "a Cell under set_grad() in a step that is compiled is recorded by our tape",
          "tests/device/test_graph_mindspore_style.py")
_replaces(_CELL + "compile", "self, *args, **kwargs", "a Cell that uses torch-style code has nothing to compile before it has run",
          "tests/device/test_graph_mindspore_style.py")

# ------------------------------------------------------------------ data sinking (sink.py)
_replaces("mindspore.train.model:Model._exec_preprocess", "self, is_train, dataset, dataset_sink_mode, sink_size, epoch_num, dataset_helper",
          "a network that is no graph of MindSpore's is fed from the host: the queue's end would make one step of each epoch",
          "tests/device/test_graph_mindspore_style.py")
_replaces("mindspore.train.data_sink:data_sink", "fn, dataset, sink_size, jit_config, input_signature", "the same for a function",
          "tests/device/test_graph_mindspore_style.py")

# ------------------------------------------------------------------ devices (npu.py)
_replaces("mindspore.common.tensor:Tensor.__init__", None, "a MindSpore tensor made of a torch-style tensor of the npu gets its values",
          "tests/device/test_mindspore_style.py", kind=AT_TIMES)

# ------------------------------------------------------------------ checkpoints, export (checkpoint.py)
_replaces("mindspore.train.serialization:_convert_save_obj_to_param_list", "save_obj, integrated_save, append_dict, choice_func",
          "save_checkpoint takes lists and dicts of torch-style tensors", "tests/facade/test_ms_style.py")
_replaces("mindspore.train.serialization:load_param_into_net", "net, parameter_dict, strict_load, remove_redundancy",
          "buffers that a checkpoint lacks are named in a warning", "tests/facade/test_ms_children.py", "tests/facade/test_ms_style.py")
_replaces("mindspore.train.serialization:_export", "net, file_name, file_format, *inputs, **kwargs", "a Module is exported by a trace",
      "tests/backend/test_export.py")

# ------------------------------------------------------------------ mixed precision (cell.py)
_replaces("mindspore.train.amp:_auto_mixed_precision_rewrite", "network, dtype, *, white_list, black_list", "O1 of a Module is an autocast region",
          "tests/facade/test_ms_style.py")
_replaces("mindspore.train.amp:_set_amp_decorator", "obj, amp_level, amp_dtype, white_list, black_list",
          "level auto of a Module is an autocast region", "tests/facade/test_ms_style.py")
_replaces("mindspore.train.amp:_OutputTo32.construct", "self, *args, **kwargs", "O2 and O3 cast a Module's result by a cast that our tape knows",
          "tests/facade/test_ms_style.py")

# ------------------------------------------------------------------ processes
for _name in ("prepare_before_fork", "parent_at_fork", "child_at_fork"):
    _replaces("mindspore._c_expression:fork_utils." + _name, None, "MindSpore's fork callbacks run for every fork, and once (runtime.py)",
              "tests/backend/test_runtime.py", "tests/facade/test_data_workers.py")
_replaces(_CELL + "__del__", "self", "a Cell that lives to the interpreter's end is not taken down after what it uses (at_exit.py)",
          "tests/facade/test_ms_children.py", "tests/backend/test_patches.py")
for _name in ("get_cache_group_rank", "get_cache_group_size"):
    _replaces(f"mindspore.mint.distributed.distributed:{_name}.__defaults__", None,
              "mint.distributed has frozen the name of the default group before there was one (backend/comm/mindspore.py)",
              "tests/facade/distributed/test_ms_parallel.py", kind=AT_TIMES)
del _name, _declared


# ------------------------------------------------------------------ what is relied on
def _same_layout():
    ms = sys.modules["mindspore"]
    got = [c.__basicsize__ for c in (ms.Tensor, ms.Parameter)]
    return None if got[0] == got[1] else f"Tensor and Parameter take {got} bytes: objects cannot change their class"


def _cells_base():
    name = sys.modules["mindspore.nn"].Cell.__bases__[0].__name__
    return None if name == "Cell_" else f"Cell's first base is {name}, not Cell_"


declare("mindspore.common.tensor:Tensor", RELIES, "a MindSpore tensor becomes ours by a change of its class, and keeps its memory (core/tensor.py)", _CHECKED,
        ("tests/core/test_interop.py", "tests/facade/test_ms_style.py"), check=_same_layout)
declare("mindspore.nn.cell:Cell", RELIES, "a Module initialises the C++ part of a Cell alone (cell.py)", _CHECKED,
        ("tests/facade/test_ms_style.py", "tests/facade/test_ms_children.py"),
        check=_cells_base)


# ------------------------------------------------------------------ NumPy's dtype of bfloat16
_mended: list[bool] = []


def mend_copies(dtype):
    """Has NumPy copy MindSpore's bfloat16 by its own function for float16, which moves two bytes as well.

    MindSpore's cannot copy zero elements: it sets an error without holding the interpreter's lock (the process dies, or a MemoryError comes up
    at some later place).  NumPy asks for that wherever a piece happens to be empty: between the places of a mask, in an empty slice, when joining.
    The places are those of NumPy 1's structures; number and size of both dtypes are read back from there first, to see that they are.
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


declare("mindspore.common.np_dtype:bfloat16", RELIES, "its copy function, which fails for zero elements, gives way to NumPy's for float16", ("numpy", "1.26"),
        ("tests/ops/test_ops_out.py",),
        check=lambda: None if _mended != [False] else "not mended, since NumPy's structures are others: an empty piece of a bfloat16 array may end the process")
