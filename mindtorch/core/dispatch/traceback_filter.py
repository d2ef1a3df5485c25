"""Traceback filtering: an error that leaves the API shows the frames of the user.

A function of the API ends with

    except Exception as e:
        hide_internal_frames(e)
        raise

and so removes the frames below it that are not code of the user. The handler costs nothing until an
error occurs. Python 3.11 and later do not add a frame at a bare `raise`, so the function itself is
hidden, too; Python 3.10 keeps that one frame. A call from mindtorch's own code is left alone: the
function of the API that the user called removes all frames at once.

`MINDTORCH_TRACEBACK=full` keeps all frames.
"""
from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from mindtorch.core.dispatch import generated_files

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
P = ParamSpec("P")
R = TypeVar("R")
_USER, _INTERNAL, _LIBRARY = range(3)
#: libraries whose frames are hidden where mindtorch calls them
_CALLED = ("numpy", "scipy", "mindspore")
_origins: dict[str, int] = {}  # file name of a code object -> whose code it is

enabled = os.environ.get("MINDTORCH_TRACEBACK", "").lower() != "full"


def _is_in_package(file):
    return file.startswith((_PACKAGE, generated_files.folder(), "<mindtorch "))


def _origin(file):
    """Returns whose code a file has."""
    found = _origins.get(file)
    if found is None:
        found = _USER
        if _is_in_package(file):
            found = _INTERNAL
        elif file.startswith("<frozen ") or file.startswith(_STANDARD_LIBRARY) and f"{os.sep}site-packages{os.sep}" not in file:
            found = _LIBRARY
        else:
            for name in _CALLED:
                path = getattr(sys.modules.get(name), "__file__", None)
                if path is not None and file.startswith(os.path.dirname(path) + os.sep):
                    found = _LIBRARY
        _origins[file] = found
    return found


def _filtered(tb: TracebackType | None, internal: bool) -> tuple[TracebackType | None, bool]:
    """Returns (the first entry that stays, True if entries were removed).

    Frames of libraries are removed where mindtorch's frames precede them. `internal`: they precede
    the first entry. The entries that stay are relinked in place.
    """
    first = last = None
    removed = False
    while tb is not None:
        origin = _origin(tb.tb_frame.f_code.co_filename)
        if origin is not _LIBRARY:
            internal = origin is _INTERNAL
        if internal:
            removed = True
        else:
            if last is None:
                first = tb
            elif removed:
                last.tb_next = tb
            last = tb
        tb = tb.tb_next
    if last is not None and last.tb_next is not None:
        last.tb_next = None
    return first, removed


def hide_internal_frames(error: BaseException) -> None:
    """Removes internal frames from the traceback of an error that leaves a function of the API.

    To be called by that function, whose frame is the first entry. Does nothing if the function was
    called by mindtorch's own code. The tracebacks of the errors in `__cause__` and `__context__`
    are filtered, too.
    """
    if not enabled:
        return
    caller = sys._getframe(1).f_back
    if caller is not None and _origin(caller.f_code.co_filename) is _INTERNAL:
        return
    remove_internal_frames(error)


def remove_internal_frames(error: BaseException) -> None:
    """Removes internal frames from the tracebacks of an error and of the errors that led to it."""
    e: BaseException | None = error
    seen: set[int] = set()
    while e is not None and id(e) not in seen:
        seen.add(id(e))
        finish = getattr(e, "finish_message", None)
        if finish is not None:
            finish()
        top = e.__traceback__
        first, removed = _filtered(top, e is error)
        if removed:
            # Python 3.10 raises an error again with the entry of the handler's frame.
            if top is not None and top is not first:
                top.tb_next = first
            e.__traceback__ = first
        elif e is not error:
            return
        e = e.__cause__ if e.__cause__ is not None or e.__suppress_context__ else e.__context__


def api_boundary(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorator: hides internal frames in the errors of a function of the API.

    For functions that take long enough for one more call not to matter.
    """
    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except Exception as e:
            hide_internal_frames(e)
            raise
    return call
