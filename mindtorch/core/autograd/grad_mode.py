"""Thread-local autograd switches: no_grad, enable_grad, set_grad_enabled, inference_mode."""
from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.hooks import hooks

#: How torch.compile treats the functions of this module (`mindtorch/torch/_dynamo/_capture.py`).
CAPTURE = "followed"


class _Mode(threading.local):
    on = True
    inference = False


mode = _Mode()


class _Inference:
    """`ever`: True once any thread has entered inference_mode.

    Reading it takes 5 ns, reading a thread-local 50 ns.
    """

    __slots__ = ("ever",)

    ever: bool


INFERENCE = _Inference()
INFERENCE.ever = False


def _switch(on: bool) -> None:
    mode.on = on
    if hooks.grad_mode_changed is not None:
        hooks.grad_mode_changed(on)


def is_grad_enabled() -> bool:
    """True if operations are recorded for backward in this thread."""
    return mode.on


def is_inference_mode_enabled() -> bool:
    """True inside torch.inference_mode() in this thread."""
    return mode.inference


class GradMode:
    """Context manager and decorator.

    A decorated generator has the mode only while its own body runs.
    """

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isclass(func):
            raise TypeError(f"{type(self).__name__} cannot decorate a class; decorate its methods")
        if inspect.isgeneratorfunction(func):
            @functools.wraps(func)
            def generator(*args, **kwargs):
                inner = func(*args, **kwargs)
                send, value = inner.send, None
                while True:
                    try:
                        with self._clone():
                            item = send(value)
                    except StopIteration as stop:
                        return stop.value
                    try:
                        value = yield item
                        send = inner.send
                    except GeneratorExit:
                        with self._clone():
                            inner.close()
                        raise
                    except BaseException as e:
                        value, send = e, inner.throw
            return generator

        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            try:
                with self._clone():
                    return func(*args, **kwargs)
            except Exception as e:
                hide_internal_frames(e)
                raise
        return wrapper

    def _clone(self):
        return type(self)()


class no_grad(GradMode):
    """Operations inside are not recorded.

    See https://pytorch.org/docs/stable/generated/torch.no_grad.html.
    """

    _to = False

    def __new__(cls, orig_func=None):
        self = object.__new__(cls)
        return self if orig_func is None else GradMode.__call__(self, orig_func)

    def __enter__(self):
        self._old = mode.on
        mode.on = self._to
        if hooks.grad_mode_changed is not None:
            hooks.grad_mode_changed(self._to)

    def __exit__(self, *exc):
        mode.on = self._old
        if hooks.grad_mode_changed is not None:
            hooks.grad_mode_changed(self._old)


class enable_grad(no_grad):
    """Operations inside are recorded, also within no_grad."""

    _to = True


class set_grad_enabled(GradMode):
    """Sets grad mode immediately; a `with` block restores the old mode at its end."""

    def __init__(self, mode_):
        self._old, self._to = mode.on, bool(mode_)
        _switch(self._to)

    def __call__(self, func):
        _switch(self._old)
        return super().__call__(func)

    def __enter__(self):
        _switch(self._to)

    def __exit__(self, *exc):
        _switch(self._old)

    def _clone(self):
        new = object.__new__(set_grad_enabled)
        new._old, new._to = mode.on, self._to
        return new


class inference_mode(GradMode):
    """no_grad whose results can never be used in autograd later."""

    def __new__(cls, mode=True):
        self = object.__new__(cls)
        if callable(mode):
            self._to = True
            return GradMode.__call__(self, mode)
        self._to = bool(mode)
        return self

    def __enter__(self):
        self._old = mode.on, mode.inference
        INFERENCE.ever = True
        mode.inference = self._to
        _switch(not self._to)

    def __exit__(self, *exc):
        on, mode.inference = self._old
        _switch(on)

    def _clone(self):
        return inference_mode(self._to)
