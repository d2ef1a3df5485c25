"""Recorded training steps: the implementation of MindSpore's graph mode and `mindspore.jit` for
torch-style code. `jit_fallback.py` decides which code that is.

MindSpore's compiler reads source code and would interpret torch-style code differently. So the code
runs as Python, and its device calls are recorded and compiled (`mindtorch/core/compile/replay.py`). MindSpore
code in between that needs values receives materialized ones.
"""
import functools
import threading
import types
import weakref
from typing import Any

from mindtorch.backend.hooks import hooks
from mindtorch.backend.mindspore.patches import put
from mindtorch.backend.mindspore.private import native_recording
from mindtorch.backend.mindspore.runtime import ms


class _Plainly(threading.local):
    # number of active calls of `native_ops.py` in this thread: code under MindSpore's jit then runs
    # as plain Python
    n = 0


plainly = _Plainly()


class Key:
    """A compiled callable: its name, and MindSpore's compilation level (jit_level)."""

    __slots__ = ("label", "level", "trace")

    def __init__(self, label, level="O0"):
        self.label, self.level, self.trace = label, level, None


_known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _refers(obj):
    """True if a function, method or Cell refers to mindtorch, as far as that can be determined
    without running it."""
    if isinstance(obj, functools.partial):
        return _refers(obj.func) or hooks.holds_facade_tensor(obj.args) or hooks.holds_facade_tensor(obj.keywords.values())
    if isinstance(obj, types.MethodType):
        return _refers(obj.__func__) or _refers(obj.__self__)
    try:
        found = _known.get(obj)
        if found is None:
            found = _known[obj] = hooks.seen_in(obj, set(), [] if isinstance(obj, ms.nn.Cell) else None) is not None
    except TypeError:  # not weakly referenceable, or not hashable
        found = hooks.seen_in(obj, set()) is not None
    return found


def uses_facade(fn, values=()):
    """True if a function or Cell refers to mindtorch, or receives its tensors."""
    return hooks.holds_facade_tensor(values) or _refers(fn)


# ------------------------------------------------------------------ Cells under set_grad()
#
# (Cell, arguments, result) of the Cells that ran in the current step and whose gradient may be
# requested.
_ran: list[Any] = []


def result_of(cell, args):
    """Returns, in a one-element list, the result of a Cell under set_grad() for exactly these
    arguments in this step, and removes the entry. Returns None if the Cell has not run."""
    for i, (c, given, out) in enumerate(_ran):
        if c is cell and len(given) == len(args) and all(a is b for a, b in zip(given, args)):
            del _ran[i]
            return [out]
    return None


def forget():
    """Clears the entries at the end of a step."""
    _ran.clear()


def records(cell, args):
    """True if a Cell's call, whose gradient may be requested later, has to be recorded by
    mindtorch's autograd."""
    return hooks.step_active() and not native_recording() and uses_facade(cell, args)


def ran(cell, args, out):
    """Records the result of such a call."""
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
