"""Arguments of a function that MindSpore differentiates with respect to, determined while it runs
the function.

MindSpore marks every argument of a recorded function as requiring grad and selects the
differentiated ones only afterwards. The facade has to know them before: an argument that requires
grad is recorded, and may not be modified in place.
"""
import sys
import threading

from mindtorch.backend.hooks import hooks
from mindtorch.backend.mindspore import graph_mode_step
from mindtorch.backend.mindspore.cell import as_function
from mindtorch.backend.mindspore.patches import put
from mindtorch.backend.mindspore.private import is_ours
from mindtorch.backend.mindspore.runtime import ms

from mindspore.graph.api import _pynative_executor as executor  # noqa: E402
from mindspore.ops.composite import base as _base  # noqa: E402

MSTensor = ms.Tensor
MSParameter = ms.Parameter


class _Runs(threading.local):
    def __init__(self):
        self.stack = []
        self.own = []  # (function, its run, sens) of those recorded in the facade's autograd graph


_runs = _Runs()


class _Run:
    """One recorded call: its tensor arguments by id, and the tensors that were made to require grad
    for it."""

    __slots__ = ("args", "wanted", "marked")

    def __init__(self, args, wanted):
        self.args, self.wanted, self.marked = args, wanted, []


def _tensors(values, found):
    for v in values:
        if isinstance(v, MSTensor):
            found[id(v)] = v
        elif isinstance(v, (list, tuple)):
            _tensors(v, found)
        elif isinstance(v, dict):
            _tensors(v.values(), found)
    return found


def _wanted(values, caller):
    """Returns the arguments whose gradients MindSpore's `after_grad` (the frame `caller`) will
    request."""
    names = caller.f_locals
    op = names.get("grad_") or names.get("self")
    if op is None or getattr(op, "get_all", True):
        return values
    if getattr(op, "get_by_position", False):
        at = names.get("grad_position", 0)
        return [values[i] for i in (at if isinstance(at, (tuple, list)) else (at,)) if i < len(values)]
    return () if op.get_by_list else values[:1]


def state_of(t):
    """Returns None if `t` is not an argument of a call that is being recorded, else whether its
    gradient is requested."""
    if not _runs.stack:
        return None
    run = _runs.stack[-1]
    if id(t) not in run.args:
        return None
    return id(t) in run.wanted


def mark(t):
    """Makes a facade tensor require grad until the call that is being recorded ends."""
    t._requires_grad_ = True
    _runs.stack[-1].marked.append(t)


_forward_run, _backward = _base._pynative_forward_run, _base._pynative_func_grad_backward


def _forward_run_with_inputs(fn, sens_param, *args, **kwargs):
    values = [*(args[:-1] if sens_param and "sens" not in kwargs else args), *[v for k, v in kwargs.items() if k != "sens" or not sens_param]]
    caller = sys._getframe(1)
    wanted = _wanted(values, caller)
    if not hooks.step_active():
        return _run_by_mindspore(fn, sens_param, args, kwargs, values, wanted)
    names = caller.f_locals
    op = names.get("grad_") or names.get("self")
    if graph_mode_step.uses_facade(fn, values) and not (op.get_by_list and names.get("weights") is None):
        found = _run_here(fn, sens_param, args, kwargs, wanted)
        if found is not None:
            return found
    with hooks.step_suspended("MindSpore differentiates"):
        return _run_by_mindspore(fn, sens_param, args, kwargs, values, wanted)


def _run_by_mindspore(fn, sens_param, args, kwargs, values, wanted):
    run = _Run(_tensors(values, {}), _tensors(wanted, {}))
    _runs.stack.append(run)
    try:
        for t in run.wanted.values():
            # A native MindSpore tensor is marked when facade code first uses it.
            if is_ours(t) and t._requires_grad_ is False and t._array.dtype.kind in "fcV" and not isinstance(t, MSParameter):
                mark(t)
        with as_function(fn):
            return _forward_run(fn, sens_param, *args, **kwargs)
    except BaseException:
        # Otherwise MindSpore would continue to record, and every gradient after this error would be
        # wrong.
        if len(_runs.stack) == 1:
            if isinstance(fn, ms.nn.Cell):
                fn.requires_grad = False
            executor.clear_res()
            executor.set_grad_flag(False)
        raise
    finally:
        _runs.stack.pop()
        for t in run.marked:
            if t._grad_fn_ is None:
                t._requires_grad_ = False


def _run_here(fn, sens_param, args, kwargs, wanted):
    sens, kwargs = None, dict(kwargs)
    if sens_param:
        if "sens" in kwargs:
            sens = kwargs.pop("sens")
        else:
            *args, sens = args
    before = graph_mode_step.result_of(fn, args) if isinstance(fn, ms.nn.Cell) and not kwargs else None
    if before is not None and wanted:
        raise NotImplementedError(f"the gradient of {type(fn).__name__} (under set_grad() in a compiled step) with respect to its arguments is not "
                                  "supported after the call, which did not record them; use mindspore.value_and_grad")
    run = hooks.step_grad_forward(fn, wanted, args, kwargs, before)
    if run is None:
        return None
    _runs.own.append((fn, run, sens))
    return (*args, *kwargs.values()), run.out


def _gradients(fn, grad_op, weights, grad_position, has_aux, *run_args):
    if not (_runs.own and _runs.own[-1][0] is fn):
        hooks.prepare_operands(run_args)  # a sens, which the forward has not seen
        with as_function(fn):
            return _backward(fn, grad_op, weights, grad_position, has_aux, *run_args)
    _, run, sens = _runs.own.pop()
    listed = () if not grad_op.get_by_list else (weights,) if isinstance(weights, MSParameter) else tuple(weights)
    of_inputs, of_weights = hooks.step_gradients(run, listed, sens, has_aux)
    of_inputs = tuple(of_inputs) if getattr(grad_op, "get_all", False) or len(of_inputs) != 1 else of_inputs[0]
    if not grad_op.get_by_list:
        return of_inputs
    of_weights = of_weights[0] if isinstance(weights, MSParameter) else tuple(of_weights)
    return (of_inputs, of_weights) if run.wanted else of_weights


put("mindspore.ops.composite.base:_pynative_forward_run", _forward_run_with_inputs)
put("mindspore.ops.composite.base:_pynative_func_grad_backward", _gradients)
