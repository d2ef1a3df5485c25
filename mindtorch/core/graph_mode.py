"""Steps of MindSpore's graph mode and of `mindspore.jit` as sessions of core/lazy.py, and what MindSpore's own code needs inside of one.

MindSpore's ops read and write memory at once, so before one gets a tensor of the device everything that was put off is computed: a break.
"""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from mindtorch.backend.mindspore import steps
from mindtorch.core import lazy

#: branches of a trace after which a callable runs eagerly
LIMIT = 32


class _Step:
    """One run; `recorded`: whether it was recorded, and what it did was the device's affair."""

    __slots__ = ("session", "trace")

    def __init__(self, session: Any, trace: lazy.Trace) -> None:
        self.session, self.trace = session, trace

    @property
    def recorded(self) -> bool:
        return bool(self.trace.start.children)


class _Off(threading.local):
    n = 0           # regions of eager computation that this thread is in
    after: list[Any] = []


_off = _Off()


@contextlib.contextmanager
def step(key: Any) -> Iterator[_Step]:
    """A run of the callable that `key` stands for."""
    trace = key.trace
    if trace is None:
        trace = key.trace = lazy.Trace(key.title, key.level)
    if len(trace.branches) > LIMIT:
        yield _Step(None, trace)
        return
    before, _off.after = _off.after, []
    try:
        with lazy.session(trace) as session:
            yield _Step(session, trace)
    finally:
        after, _off.after = _off.after, before
        for f, t in after:
            f(t)


def active() -> bool:
    """Whether kernels are put off."""
    s = lazy.current.session
    return s is not None and not _off.n and s.thread == threading.get_ident()


@contextlib.contextmanager
def suspended(reason: str) -> Iterator[None]:
    """Eager computation inside of a step."""
    if not active():
        yield
        return
    s = lazy.current.session
    s.settle(reason)
    _off.n += 1
    try:
        with lazy.aside(s):
            yield
    finally:
        _off.n -= 1


def settle(reason: str) -> None:
    """Before MindSpore's own code reads or writes a tensor of the device."""
    if lazy.current.session is not None and not _off.n:
        lazy.current.session.settle(reason)


def postpone(f: Any, t: Any) -> bool:
    """Whether f(t), which nobody asks for during the step, will be called at its end."""
    if not active():
        return False
    _off.after.append((f, t))
    return True


def begin() -> None:
    """Called once, when the facade is complete."""
    steps.session, steps.active, steps.suspended, steps.settle, steps.postpone = step, active, suspended, settle, postpone
    steps.possible = lambda: lazy.device_of_sessions() is not None
