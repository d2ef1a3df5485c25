"""Which arguments of a function MindSpore differentiates with respect to, known while it runs the function.

MindSpore marks every argument of a recorded function as requiring grad and picks the wanted ones only afterwards.  The
facade has to know before: an argument that counts as requiring grad is recorded, and may not be written to in place.
"""
import sys
import threading

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


_runs = _Runs()


class _Run:
    """One recorded call: its tensor arguments by id, and those that were made to require grad for it."""

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
    """The arguments whose gradient MindSpore's `after_grad` (the frame `caller`) is going to ask for."""
    names = caller.f_locals
    op = names.get("grad_") or names.get("self")
    if op is None or getattr(op, "get_all", True):
        return values
    if getattr(op, "get_by_position", False):
        at = names.get("grad_position", 0)
        return [values[i] for i in (at if isinstance(at, (tuple, list)) else (at,)) if i < len(values)]
    return () if op.get_by_list else values[:1]


def state_of(t):
    """None if `t` is no argument of a call that is being recorded; else whether its gradient is wanted."""
    if not _runs.stack:
        return None
    run = _runs.stack[-1]
    if id(t) not in run.args:
        return None
    return id(t) in run.wanted


def mark(t):
    """Makes a facade tensor require grad until the call that is being recorded has ended."""
    t._rg = True
    _runs.stack[-1].marked.append(t)


_forward_run = _base._pynative_forward_run


def _forward_run_with_inputs(fn, sens_param, *args, **kwargs):
    values = [*(args[:-1] if sens_param and "sens" not in kwargs else args), *kwargs.values()]
    run = _Run(_tensors(values, {}), _tensors(_wanted(values, sys._getframe(1)), {}))
    _runs.stack.append(run)
    try:
        for t in run.wanted.values():
            # (A tensor of MindSpore's own is marked when facade code meets it.)
            if is_ours(t) and t._rg is False and t._a.dtype.kind in "fcV" and not isinstance(t, MSParameter):
                mark(t)
        return _forward_run(fn, sens_param, *args, **kwargs)
    except BaseException:
        # MindSpore would go on recording, and every gradient after this error would be wrong.
        if len(_runs.stack) == 1:
            if isinstance(fn, ms.nn.Cell):
                fn.requires_grad = False
            executor.clear_res()
            executor.set_grad_flag(False)
        raise
    finally:
        _runs.stack.pop()
        for t in run.marked:
            if t._gnode is None:
                t._rg = False


put("mindspore.ops.composite.base:_pynative_forward_run", _forward_run_with_inputs)
