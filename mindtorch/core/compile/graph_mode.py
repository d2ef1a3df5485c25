"""Steps of MindSpore's graph mode and of `mindspore.jit`, as `mindtorch/core/compile/replay.py` sessions.

The module also supports MindSpore's own code inside a session. MindSpore's ops read and write
memory immediately. Before one receives a device tensor, all pending kernels are flushed: a graph
break.
"""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from mindtorch.core.compile import replay

#: Number of branches of a trace after which a callable runs eagerly.
LIMIT = 32


class _Step:
    """One run of a step; `recorded` is True if the trace contains device calls."""

    __slots__ = ("session", "trace")

    def __init__(self, session: Any, trace: replay.Trace) -> None:
        self.session, self.trace = session, trace

    @property
    def recorded(self) -> bool:
        return bool(self.trace.start.children)


class _Off(threading.local):
    n = 0  # nesting depth of eager regions in this thread
    after: list[Any] = []


_off = _Off()


@contextlib.contextmanager
def step(key: Any) -> Iterator[_Step]:
    """Context of one run of the callable identified by `key`."""
    trace = key.trace
    if trace is None:
        trace = key.trace = replay.Trace(key.label, key.level)
    if len(trace.branches) > LIMIT:
        yield _Step(None, trace)
        return
    before, _off.after = _off.after, []
    try:
        with replay.session(trace) as session:
            yield _Step(session, trace)
    finally:
        after, _off.after = _off.after, before
        for f, t in after:
            f(t)


def possible() -> bool:
    """True if there is a device that supports graphs."""
    return replay.device_of_sessions() is not None


def active() -> bool:
    """True if this thread's kernels are deferred."""
    s = replay.current.session
    return s is not None and not _off.n and s.thread == threading.get_ident()


@contextlib.contextmanager
def suspended(reason: str) -> Iterator[None]:
    """Context of eager computation inside a step."""
    if not active():
        yield
        return
    s = replay.current.session
    s.flush(reason)
    _off.n += 1
    try:
        with replay.aside(s):
            yield
    finally:
        _off.n -= 1


def flush(reason: str) -> None:
    """Flushes pending kernels, before MindSpore's own code reads or writes a device tensor."""
    if replay.current.session is not None and not _off.n:
        replay.current.session.flush(reason)


def defer_until_end(f: Any, t: Any) -> bool:
    """Schedules f(t) for the end of the step and returns True; returns False outside of a step.

    The result of f(t) must not be needed during the step.
    """
    if not active():
        return False
    _off.after.append((f, t))
    return True
