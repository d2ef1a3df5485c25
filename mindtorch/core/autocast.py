"""Autocast: which ops compute in a lower precision, which in float32, inside a region.

A region makes the dispatcher ask `_cast_operands`, which goes by what the op's record says (`@op(autocast=...)`):

    lower      computes in the region's dtype
    float32    computes in float32
    by_input   computes in the dtype in which its input comes: weights and states are cast to it

That is what torch's CPU backend does, found by running its op samples inside `torch.autocast("cpu", torch.bfloat16)`.
"""
from __future__ import annotations

import functools
import threading
from typing import Any
from collections.abc import Callable

import numpy as np

from mindtorch.backend.interface import Stype
from mindtorch.backend.mindspore import cell
from mindtorch.core import dispatch
from mindtorch.core.dtypes import LOW
from mindtorch.core.tensor import taken

#: how torch.compile takes the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "followed"

class _State(threading.local):
    """`to` is the NumPy dtype of the active region, None outside of one."""

    to: Stype | None = None


state = _State()
_F32 = np.dtype(np.float32)
_cast = None        # set by the ops floor


def _lowered(x, d):
    # float64 stays: torch leaves what is not float32 or half alone.
    if taken(x):
        k = x._a.dtype
        return _cast(x, d) if k is not d and (k == _F32 or k in LOW) else x
    if x.__class__ is list or x.__class__ is tuple:
        return x.__class__(_lowered(i, d) for i in x)
    return x


def _raised(x):
    if taken(x):
        return _cast(x, _F32) if x._a.dtype in LOW else x
    if x.__class__ is list or x.__class__ is tuple:
        return x.__class__(_raised(i) for i in x)
    return x


def switch(to: Stype | None) -> Stype | None:
    """Sets the dtype of this thread's region (None: there is none any more) and returns the one before."""
    old = state.to
    state.to = to
    if (to is None) is not (old is None):
        (dispatch.want if to is not None else dispatch.drop)("ops", "autocast")
    return old


@dispatch.layer("ops", "autocast")
def _cast_operands(entry, args, kwargs, below):
    """The layer of the dispatcher: operands in the dtype that suits the op."""
    category = entry.autocast
    old = state.to
    if category is None or old is None:
        return below(entry, args, kwargs)
    if category == "lower":
        args, kwargs = [_lowered(a, old) for a in args], {k: _lowered(v, old) for k, v in kwargs.items()}
    elif category == "float32":
        args, kwargs = [_raised(a) for a in args], {k: _raised(v) for k, v in kwargs.items()}
    elif args and taken(args[0]):
        d = args[0]._stype
        args = [_lowered(a, d) if d in LOW else _raised(a) for a in args]
    # What the op is composed of must not be cast again.
    state.to = None
    try:
        return below(entry, args, kwargs)
    finally:
        state.to = old


# ------------------------------------------------------------------ MindSpore's way
def _to(x, d):
    """Floating-point tensors (float64 apart), also nested, in dtype `d`."""
    if taken(x):
        return _cast(x, d) if x._a.dtype != d and (x._a.dtype == _F32 or x._a.dtype in LOW) else x
    if isinstance(x, dict):
        return {k: _to(v, d) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_to(v, d) for v in x))
    if x.__class__ in (list, tuple):
        return x.__class__(_to(v, d) for v in x)
    return x


def call_in(kind: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """fn(*args, **kwargs) as a Cell of that mixed precision computes.

    kind  "float16", "bfloat16", "float32": inputs are cast to it, and ops compute in it (matrix products and convolutions
          cast their parameters).  "autocast float16": inputs stay as they are; "float32 result, autocast ..." the same,
          with the result in float32.
    """
    region = kind.rpartition(" ")[2]
    d = _F32 if region == "float32" else LOW[0] if region == "float16" else LOW[1]
    if region == kind:
        args, kwargs = _to(args, d), _to(kwargs, d)
    old = switch(None if d is _F32 else d)
    try:
        out = fn(*args, **kwargs)
    finally:
        switch(old)
    return _to(out, _F32) if kind.startswith("float32 result") else out


cell.call_in = call_in
cell.to_float32 = functools.partial(_to, d=_F32)
