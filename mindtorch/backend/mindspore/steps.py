"""Whole steps that are recorded: what MindSpore's graph mode and `mindspore.jit` are over torch-style code (jit_fallback.py says which code that is).

MindSpore's compiler reads source, and would give torch-style code another meaning.  So the code runs, and what it asks the device for is recorded and
compiled (core/lazy.py); what MindSpore does itself in between needs values, and gets them.
"""
import contextlib
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

from mindtorch.backend.mindspore.runtime import ms

#: set by core.lazy's users above: a step of the callable that `key` stands for; whether one is being recorded; eager computation inside of one
session: Callable[[Any], Any] | None = None
active: Callable[[], bool] = lambda: False
suspended: Callable[[], Any] = contextlib.nullcontext
#: set by jit_fallback: a name for what of the facade an object refers to; whether there are facade tensors among values
seen_in: Callable[..., Any] = None              # type: ignore[assignment]
facade_tensor: Callable[..., bool] = None       # type: ignore[assignment]

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
