"""Whole steps that are recorded: what MindSpore's graph mode and `mindspore.jit` are over torch-style code (jit_fallback.py says which code that is).

MindSpore's compiler reads source, and would give torch-style code another meaning.  So the code runs, and what it asks the device for is recorded and
compiled (core/lazy.py); what MindSpore does itself in between needs values, and gets them.
"""
import contextlib
import functools
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

from mindtorch.backend.mindspore.patches import put
from mindtorch.backend.mindspore.private import native_recording
from mindtorch.backend.mindspore.runtime import ms

#: Set by core.graph_mode. session(key): a context manager, one run of the callable that `key` stands for; possible(): whether there is a device that has
#: graphs; active(): whether a run is being recorded; suspended(reason): a context manager, eager computation inside of one; settle(reason): has all computed
#: that was put off; postpone(f, t): whether f(t) will be called when the run has ended.
session: Callable[[Any], Any] | None = None
possible: Callable[[], bool] = bool         # (False)
active: Callable[[], bool] = bool
suspended: Callable[[str], Any] = contextlib.nullcontext
settle: Callable[[str], Any] = id           # (nothing)
postpone: Callable[..., bool] = bool
#: set by jit_fallback: a name for what of the facade an object refers to; whether there are facade tensors among values
seen_in: Callable[..., Any] = None              # type: ignore[assignment]
facade_tensor: Callable[..., bool] = None       # type: ignore[assignment]

class _Plainly(threading.local):
    n = 0           # calls of native_ops.py that this thread is in: what is under MindSpore's jit runs as the Python that it is


plainly = _Plainly()


class Key:
    """A compiled callable: what it is called, and how far MindSpore compiles (jit_level)."""

    __slots__ = ("title", "level", "trace")

    def __init__(self, title, level="O0"):
        self.title, self.level, self.trace = title, level, None


_known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _refers(obj):
    """Whether a function, method, or Cell refers to the facade, as far as that is seen without running it."""
    if isinstance(obj, functools.partial):
        return _refers(obj.func) or facade_tensor(obj.args) or facade_tensor(obj.keywords.values())
    if isinstance(obj, types.MethodType):
        return _refers(obj.__func__) or _refers(obj.__self__)
    try:
        found = _known.get(obj)
        if found is None:
            found = _known[obj] = seen_in(obj, set(), [] if isinstance(obj, ms.nn.Cell) else None) is not None
    except TypeError:           # (no weak references to it, or no hash)
        found = seen_in(obj, set()) is not None
    return found


def uses_facade(fn, values=()):
    """Whether a function or Cell refers to the facade, or gets its tensors."""
    return facade_tensor(values) or _refers(fn)


# ------------------------------------------------------------------ Cells under set_grad()
#: (Cell, arguments, result) of those that have run in the present step with their gradient to be asked for
_ran: list[Any] = []


def result_of(cell, args):
    """A one-element list of what a Cell under set_grad() has given for these very arguments in this step; it is forgotten. None: it has not run."""
    for i, (c, given, out) in enumerate(_ran):
        if c is cell and len(given) == len(args) and all(a is b for a, b in zip(given, args)):
            del _ran[i]
            return [out]
    return None


def forget():
    """A step has ended."""
    _ran.clear()


def records(cell, args):
    """Whether a Cell's call, whose gradient may be asked for afterwards, is the affair of the facade's tape."""
    return active() and not native_recording() and uses_facade(cell, args)


def ran(cell, args, out):
    """Notes such a call."""
    del _ran[:-7]
    _ran.append((cell, args, out))
    return out


_complex_call = ms.nn.Cell._complex_call


@functools.wraps(_complex_call)
def _call_with_gradient(self, *args, **kwargs):
    if not (self.requires_grad and not kwargs and records(self, args)):
        return _complex_call(self, *args, **kwargs)
    self.requires_grad = False
    try:
        return ran(self, args, self(*args))
    finally:
        self.requires_grad = True


put("mindspore.nn.cell:Cell._complex_call", _call_with_gradient)
