"""Hooks: functions and classes that the backend calls and the layers above provide.

The backend imports no layer above it and reads a field of `hooks` instead, as core does
(`core/hooks.py`). Each field is followed by its purpose and its provider. The bootstrap modules
`core/bootstrap.py`, `core/mindspore/bootstrap.py` and `torch/_bootstrap.py` assign them. Those that
only compiled steps need are assigned when the first step is compiled.
"""
from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

#: What a hook of a compiled step returns if the call is not part of the step.
NO: Any = object()


def unset(name: str, provider: str = "mindtorch.torch") -> Callable[..., Any]:
    """Returns the default of a hook that its layer cannot do without: it raises RuntimeError."""
    def hook(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"hooks.{name} is not set: it is called before {provider} has been imported")
    return hook


def _never(*args: Any) -> bool:
    return False


def nothing(*args: Any) -> None:
    """Does nothing."""


@dataclasses.dataclass(slots=True, eq=False)
class Hooks:
    """The hooks of the backend."""

    # -------------------------------------------------------------- Cells (backend/mindspore/cell.py)
    autocast_call_in: Callable[..., Any] = unset("autocast_call_in")
    """Calls a function under autocast's rules for Cells. From core/dispatch/autocast.py."""
    to_float32: Callable[[Any], Any] = unset("to_float32")
    """Casts low-precision tensors to float32. From core/dispatch/autocast.py."""
    parameter_class: Any = None
    """The Parameter class. From core/tensor/tensor.py."""
    rebase_parameter: Callable[[Any, Any], None] = unset("rebase_parameter")
    """(Parameter, tensor): moves the Parameter to the tensor's memory and version counter. From
    core/tensor/tensor.py."""

    # -------------------------------------------------------------- MindSpore's ops on facade tensors (backend/mindspore/interop.py)
    call_op: Callable[..., Any] = unset("call_op")
    """(callable, name, args, kwargs): runs a MindSpore op with a facade tensor or a Parameter among
    its arguments. This and the other hooks of this section are from core/mindspore/autograd.py."""
    refuse_bprop: Callable[[Any, Any, Any], None] = unset("refuse_bprop")
    """(Cell, args, kwargs): raises NotImplementedError if backward() would have to go through the
    Cell's bprop."""
    prepare_operands: Callable[[Any], None] = unset("prepare_operands")
    """Makes the memory of device tensors among arguments visible to MindSpore."""
    follow_grad_mode: Callable[[Any], Any] = unset("follow_grad_mode")
    """MindSpore's _no_grad begins or ends. Takes a grad mode, or None for the previous one, and
    returns the mode before."""
    part_of_parameter: Callable[[Any], bool] = unset("part_of_parameter")
    """True if a native tensor is a part of a native Parameter in MindSpore's autograd graph."""
    native_values: Callable[[Any], Any] = unset("native_values")
    """Replaces facade tensors without history by MindSpore's own tensors."""
    write_subscript: Callable[[Any, Any, Any], bool] = unset("write_subscript")
    """(tensor, index, value): writes if the value has a history in the facade, else returns False."""
    write_through: Callable[[Any, Any], bool] = unset("write_through")
    """(tensor, value): stores a value into a facade tensor's memory and returns True, if it fits."""
    note_write: Callable[[Any], None] = unset("note_write")
    """Records a write to a tensor's memory."""
    note_optimizer_step: Callable[[Any], None] = unset("note_optimizer_step")
    """Records a write to each of the parameters."""
    copy_back: Callable[[Any], None] = unset("copy_back")
    """Copies what kernels wrote to the memory of host facade tensors."""

    # -------------------------------------------------------------- export and MindSpore's graph mode
    export_cell: Callable[[Any, Any, str], Any] = unset("export_cell")
    """(Module, inputs, file format) -> an equivalent Cell of MindSpore ops, or the bytes of the file.
    From torch/_graph.py."""
    seen_in: Callable[..., Any] = unset("seen_in")
    """Returns a name for the mindtorch code that an object refers to, or None. From
    backend/mindspore/jit_fallback.py, which assigns it."""
    holds_facade_tensor: Callable[[Any], bool] = unset("holds_facade_tensor")
    """True if values contain mindtorch tensors. From backend/mindspore/jit_fallback.py, which
    assigns it."""

    # -------------------------------------------------------------- compiled steps in MindSpore's style
    step_session: Callable[[Any], Any] | None = None
    """(key): context manager for one run of the callable that `key` represents. This and the next
    five hooks are from core/compile/graph_mode.py; the defaults describe a process without compiled
    steps."""
    step_possible: Callable[[], bool] = _never
    """True if there is a device that supports graphs."""
    step_active: Callable[[], bool] = _never
    """True while a run is being recorded."""
    step_suspended: Callable[[str], Any] = contextlib.nullcontext
    """(reason): context manager for eager computation inside a run."""
    step_flush: Callable[[str], Any] = nothing
    """(reason): flushes all deferred kernels."""
    step_postpone: Callable[..., bool] = _never
    """(f, t): True if f(t) will be called when the run has ended."""
    step_grad_forward: Callable[..., Any] = unset("step_grad_forward")
    """(function, wanted arguments, args, kwargs, earlier result): runs a function for gradients on
    the facade's autograd graph. This and the next hook are from core/mindspore/functional_grad.py."""
    step_gradients: Callable[..., Any] = unset("step_gradients")
    """(run, weights, sens, has_aux): computes the gradients of such a run."""
    step_layer: Callable[[Any, Any], Any] = unset("step_layer")
    """(Cell, args): runs a layer as one call of a compiled step, or returns None. From
    core/mindspore/cells.py."""
    step_function: Callable[[Any, Any, Any], Any] = unset("step_function")
    """(function, args, kwargs): runs a MindSpore function as part of a compiled step, or returns NO.
    This and the next two hooks are from core/mindspore/ops.py."""
    step_optimizer: Callable[[Any, Any], Any] = unset("step_optimizer")
    """(optimizer, args): runs an optimizer's step as part of a compiled step, or returns NO."""
    step_uses: Callable[[Any], bool] = _never
    """True if a deferred call reads or writes a MindSpore tensor."""
    step_set_parameter: Callable[[Any, Any], bool] = _never
    """(Parameter, value): assigns the value in place; False if that is not possible. From
    backend/mindspore/native_ops.py."""


hooks = Hooks()
