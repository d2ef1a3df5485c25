"""Hooks: functions and classes that the backend calls and the layers above provide.

The backend imports no layer above it and reads a field of `hooks` instead, as core does
(`core/hooks.py`). Each field is followed by its purpose and its provider. `core/bootstrap.py` and
the functions `begin` of `core/mindspore/` and `core/compile/graph_mode.py` assign them. Those of a
compiled step are assigned when the first step is compiled.
"""
from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

#: What a hook of a compiled step returns if the call is not part of the step.
NO: Any = object()


def _unset(name: str) -> Callable[..., Any]:
    """Returns the default of a hook that the backend cannot do without."""
    def unset(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"hooks.{name} is not set: it is called before mindtorch.torch has been imported")
    return unset


def _never(*args: Any) -> bool:
    return False


def _nothing(*args: Any) -> None:
    """Does nothing."""


@dataclasses.dataclass(slots=True, eq=False)
class Hooks:
    """The hooks of the backend."""

    # -------------------------------------------------------------- Cells (backend/mindspore/cell.py)
    autocast_call_in: Callable[..., Any] = _unset("autocast_call_in")
    """Calls a function under autocast's rules for Cells. From core/dispatch/autocast.py."""
    to_float32: Callable[[Any], Any] = _unset("to_float32")
    """Casts low-precision tensors to float32. From core/dispatch/autocast.py."""
    parameter_class: Any = None
    """The Parameter class. From core/tensor/tensor.py."""
    rebase_parameter: Callable[[Any, Any], None] = _unset("rebase_parameter")
    """(Parameter, tensor): moves the Parameter to the tensor's memory and version counter. From
    core/tensor/tensor.py."""

    # -------------------------------------------------------------- compiled steps in MindSpore's style
    step_session: Callable[[Any], Any] | None = None
    """(key): context manager for one run of the callable that `key` represents. This and the other
    `step_` hooks are from core/compile/graph_mode.py; the defaults describe a process without
    compiled steps."""
    step_possible: Callable[[], bool] = _never
    """True if there is a device that supports graphs."""
    step_active: Callable[[], bool] = _never
    """True while a run is being recorded."""
    step_suspended: Callable[[str], Any] = contextlib.nullcontext
    """(reason): context manager for eager computation inside a run."""
    step_flush: Callable[[str], Any] = _nothing
    """(reason): flushes all deferred kernels."""
    step_postpone: Callable[..., bool] = _never
    """(f, t): True if f(t) will be called when the run has ended."""


hooks = Hooks()
