"""MindSpore's side of torch-style autograd: MindSpore's autograd, used op by op, and the hooks for
facade tensors passed to MindSpore.

MindSpore's operators check every argument that is not exactly a `mindspore.Tensor` for
`__fallback__`. If it exists, it receives the entire call, with a callable that continues natively.
So facade tensors and Parameters are noticed when a MindSpore op uses them, and cost nothing before.
Operators that take tensors in a Python list do not check; `Primitive.__call__` does it for them.
"""
import functools
import re
import threading

from mindtorch.backend.hooks import NO, hooks
from mindtorch.backend.cpython import at_exit
from mindtorch.backend.mindspore import graph_mode_step
from mindtorch.backend.mindspore.patches import IN_PLACE, READS, put
from mindtorch.backend.mindspore.private import MSParameter, MSTensor, executor, from_array, tracking
from mindtorch.backend.mindspore.runtime import in_graph_mode, ms, target

from mindspore._c_expression import TensorPy as _TensorPy  # noqa: E402
from mindspore._c_expression import BackwardNodePy as BackwardNode  # noqa: E402,F401
from mindspore._c_expression import run_backward  # noqa: E402,F401
from mindspore.graph import api as _api  # noqa: E402
from mindspore.ops.composite import base as _base  # noqa: E402
from mindspore.ops.primitive import Primitive  # noqa: E402

_grad_flag = executor._executor.grad_flag


class _Depth(threading.local):
    native = 0  # nonzero inside an op that runs natively: its arguments are not checked again


depth = _Depth()

needs_grad = MSTensor._requires_grad.__get__
#: Creates another handle of the same native tensor, with its history.
same_tensor = _TensorPy


def storage_key(t):
    """Returns the address of the memory block that contains a native tensor."""
    return _TensorPy._data_ptr(t) - _TensorPy.storage_offset(t) * t._itemsize


def owned_by_mindspore():
    """True while MindSpore records on behalf of value_and_grad, or of a Cell under set_grad()."""
    return _grad_flag() and not tracking.on


def begin_tracking(pack, unpack):
    """Starts recording by MindSpore's autograd in this thread, until MindSpore needs its autograd
    for itself."""
    if not (tracking.on and _grad_flag()):
        if not tracking.on:
            executor.push_saved_tensor_hook(pack, unpack)
        tracking.on = True
        executor.set_grad_flag(True)


def end_tracking():
    """Stops recording: MindSpore's own functions find its autograd as if it had not been used."""
    if tracking.on:
        tracking.on = False
        executor.pop_saved_tensor_hook()
        executor.set_grad_flag(False)


# A Python function that MindSpore still references after the interpreter has ended aborts the
# process.
at_exit("MindSpore's tape")(end_tracking)


def set_recording(on):
    """Sets MindSpore's own grad mode of this thread."""
    executor.set_enable_grad(on)


# ------------------------------------------------------------------ recordings of MindSpore's own
_forward = _base._pynative_func_grad_forward
_pre_process = ms.nn.Cell._call_pre_process


@functools.wraps(_forward)
def _forward_on_a_free_tape(fn, *args, **kwargs):
    end_tracking()
    hooks.prepare_operands((args, kwargs))
    return _forward(fn, *args, **kwargs)


@functools.wraps(_pre_process)
def _pre_process_on_a_free_tape(self, *args, **kwargs):
    if tracking.on and self.requires_grad:
        end_tracking()
    return _pre_process(self, *args, **kwargs)


put("mindspore.ops.composite.base:_pynative_func_grad_forward", _forward_on_a_free_tape)
put("mindspore.ops.function.grad.grad_func:_pynative_func_grad_forward", _forward_on_a_free_tape)
put("mindspore.nn.cell:Cell._call_pre_process", _pre_process_on_a_free_tape)


def _entering(self, _enter=_api._no_grad.__enter__):
    self._mode_before = hooks.follow_grad_mode(False)
    return _enter(self)


def _leaving(self, *exc, _exit=_api._no_grad.__exit__):
    result = _exit(self, *exc)
    hooks.follow_grad_mode(self._mode_before)
    return result


def follow_no_grad():
    """Makes MindSpore's _no_grad apply to the facade as well."""
    put("mindspore.graph.api:_no_grad.__enter__", _entering)
    put("mindspore.graph.api:_no_grad.__exit__", _leaving)


# ------------------------------------------------------------------ ops that receive facade tensors
def _handed(op, args, kwargs=None):
    return hooks.call_op(op, op.name, args, kwargs or {})


def _fallback(t):
    if depth.native:
        raise AttributeError("__fallback__")
    return _handed


def _holds(x):
    """True if a list or tuple contains a facade tensor or a Parameter."""
    for i in x:
        c = type(i)
        if c is not MSTensor and MSTensor in c.__mro__ or (c is list or c is tuple) and _holds(i):
            return True
    return False


_primitive_call = Primitive.__call__
_cell_call = ms.nn.Cell.__call__


@functools.wraps(_primitive_call)
def _call_primitive(self, *args):
    if not depth.native:
        for x in args:
            c = x.__class__
            if (c is list or c is tuple) and _holds(x):
                return hooks.call_op(functools.partial(_primitive_call, self), self.name, args, {})
    return _primitive_call(self, *args)


@functools.wraps(_cell_call)
def _call_cell(self, *args, **kwargs):
    # While MindSpore's autograd is off, as before the first op, a Cell does not check for its
    # bprop. MindSpore itself records a Cell under set_grad().
    if self.__dict__.get("has_bprop") and not (depth.native or self.requires_grad or in_graph_mode()):
        hooks.refuse_bprop(self, args, kwargs)
    if args and not kwargs and not depth.native and hooks.step_active():
        r = hooks.step_layer(self, args)
        if r is not None:
            return r
    return _cell_call(self, *args, **kwargs)


_getitem, _setitem = MSTensor.__getitem__, MSTensor.__setitem__


@functools.wraps(_getitem)
def _subscript(self, index):
    return _getitem(self, index) if depth.native else hooks.call_op(_getitem, "getitem", (self, index), {})


@functools.wraps(_setitem)
def _assign_subscript(self, index, value):
    if depth.native or not hooks.write_subscript(self, index, value):
        _unrecorded(_setitem, self, index, value)
    return self


def _unrecorded(method, *args, **kwargs):
    """Calls a method without recording, if MindSpore records only on the facade's behalf."""
    if not (tracking.on and executor.enable_grad()):
        return method(*args, **kwargs)
    set_recording(False)
    try:
        return method(*args, **kwargs)
    finally:
        set_recording(True)


def _in_place(method):
    """Wraps an in-place method. MindSpore rejects a write to a part of a leaf while it records, and
    outside of value_and_grad it records only on the facade's behalf."""
    @functools.wraps(method)
    def writes(self, *args, **kwargs):
        if hooks.step_uses(self):
            hooks.step_flush("MindSpore writes to a tensor")
        if tracking.on and hooks.part_of_parameter(self):
            return _unrecorded(method, self, *args, **kwargs)
        return method(self, *args, **kwargs)
    return writes


#: True if kernels have their own memory: MindSpore copies a host tensor there at its first use, and
#: from then on neither side sees the other's writes.
ELSEWHERE = target() != "CPU"


def bring_up(t):
    """Makes the current contents of host memory visible to MindSpore's kernels."""
    MSTensor.assign_value_cpp(t, from_array(t._array.copy()))


def bring_down(t):
    """Copies what a MindSpore kernel wrote back to host memory."""
    if t._array.size:
        t._array[...] = _TensorPy.asnumpy(t).reshape(t._array.shape)


def _noted(method):
    @functools.wraps(method)
    def writes(self, *args, **kwargs):
        if graph_mode_step.plainly.n and args and hooks.step_set_parameter(self, args[0]):
            return self
        if hooks.step_uses(self):
            hooks.step_flush("MindSpore writes to a tensor")
        hooks.note_write(self)  # before the call, since some of them replace the memory
        if args and hooks.write_through(self, args[0]):
            return self
        return method(self, *args, **kwargs)
    return writes


def _read(method):
    """Wraps a method that reads a Parameter's values: a deferred step that writes to it is flushed
    first."""
    @functools.wraps(method)
    def reads(self, *args, **kwargs):
        if hooks.step_uses(self):
            hooks.step_flush("values are read")
        return method(self, *args, **kwargs)
    return reads


def _stepping(self, *args, **kwargs):
    """Runs a step of a MindSpore optimizer. Many of them are compiled, so that their ops are not
    visible."""
    parameters = list(self.get_parameters())
    # In a compiled step the optimizer runs as a MindSpore graph, as it would with a native model.
    compiled = hooks.step_active() and isinstance(self, ms.nn.Optimizer) and not kwargs
    if compiled:
        r = hooks.step_optimizer(self, args)
        if r is not NO:
            return r
    # also the facade's grad mode, since each op of a Parameter sets MindSpore's from it
    before, mode = executor.enable_grad(), hooks.follow_grad_mode(False)
    set_recording(False)
    try:
        with hooks.step_suspended("a MindSpore optimizer"):
            hooks.note_optimizer_step(parameters)
            if not compiled:
                return ms.nn.Cell.__call__(self, *args, **kwargs)
            args = hooks.native_values(args)
            ms.set_context(mode=ms.GRAPH_MODE)
            try:
                return ms.nn.Cell.__call__(self, *args)
            finally:
                ms.set_context(mode=ms.PYNATIVE_MODE)
    finally:
        hooks.follow_grad_mode(mode)
        set_recording(before)
        if ELSEWHERE:
            hooks.copy_back(parameters)


def watch():
    """Starts to check the arguments of MindSpore's ops."""
    put("mindspore.common.tensor:Tensor.__fallback__", property(_fallback))
    put("mindspore.ops.primitive:Primitive.__call__", _call_primitive)
    put("mindspore.nn.cell:Cell.__call__", _call_cell)
    put("mindspore.common.parameter:Parameter.__getitem__", _subscript)
    put("mindspore.common.tensor:Tensor.__setitem__", _assign_subscript)
    for name in IN_PLACE:
        put("mindspore.common.tensor:Tensor." + name, _in_place(getattr(MSTensor, name)))
    put("mindspore.common.tensor:Tensor.assign_value", _noted(MSTensor.assign_value))
    for name in READS:
        put("mindspore.common.parameter:Parameter." + name, _read(getattr(MSParameter, name)))
    put("mindspore.common.parameter:Parameter.set_data", _noted(MSParameter.set_data))
    put("mindspore.nn.optim.optimizer:Optimizer.__call__", _stepping)
    put("mindspore.experimental.optim.optimizer:Optimizer.__call__", _stepping)


# ------------------------------------------------------------------ ops that write
_ONE = re.compile("(Inner)?Inplace|(Dynamic)?Assign(Add|Sub)?$|IndexAdd$|Scatter(Nd)?(Update|Add|Sub|Mul|Div|Min|Max)$|ScatterNonAliasingAdd$")
_SEVERAL = re.compile("(Sparse)?Apply[A-Z]|FusedSparse|Fused(Weight|Cast|Ada)|Adam|SGD$|Lamb|LARS")
_STATISTICS = re.compile("(Sync)?BatchNorm(Ext)?$|InstanceNorm$")


def written(name, args):
    """Returns (tensors that an op writes to, whether writing is all it does)."""
    prim = None
    if args and isinstance(args[0], Primitive) and args[-1].__class__ is tuple:
        prim, args = args[0], args[-1]
    if _ONE.match(name):
        return args[:1], True
    if _SEVERAL.match(name):
        return [a for a in args if isinstance(a, MSParameter)], True
    if _STATISTICS.match(name) and getattr(prim, "is_training", True):
        return [a for a in args[3:5] if isinstance(a, MSTensor)], False
    return (), False
