"""Tracks the active function transforms (torch.func) of each thread, and the tensors created in
them.

Transforms work on plain tensors: where PyTorch uses wrapper tensors, a number on the tensor is
enough here. Every level has a serial number, in rising order. While there is a level, the results
of public calls get the number of the innermost one. A tensor belongs to a level (was created inside
it or passed to it) if its number is at least the level's; otherwise it is captured. A view or alias
of a captured tensor is captured.
"""
from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from mindtorch.backend.cpython import module_lock
from mindtorch.backend.device import GeometryArray, storage_array
from mindtorch.core.dispatch import dispatcher
from mindtorch.core.tensor.tensor import TRANSFORMS, Tensor
from mindtorch.core.tensor.tensor_wrappers import BatchedHandle

_serials = itertools.count(1)
_lock = module_lock(globals(), "_lock", threading.Lock)


class TransformLevel:
    """An active transform.

    kind: "grad", "jvp", "vmap" or "functionalize"; size, randomness: of a vmap.
    """

    __slots__ = ("kind", "serial", "size", "randomness", "given", "listens", "around")

    def __init__(self, kind: str, size: int = 1, randomness: str = "error") -> None:
        self.kind, self.serial, self.size, self.randomness = kind, 0, size, randomness
        self.listens = False
        self.around: tuple[TransformLevel, ...] = ()
        self.given: dict[int, Any] = {}  # id of an entered tensor -> (tensor, original tensor, ...)

    def __enter__(self) -> TransformLevel:
        self.serial = next(_serials)
        self.around = _thread.all
        _thread.levels = _thread.all = (*_thread.levels, self)
        with _lock:
            TRANSFORMS.count += 1
        self.listen(True)
        return self

    def __exit__(self, *exc: object) -> None:
        _thread.levels, _thread.all = _thread.levels[:-1], self.around
        with _lock:
            TRANSFORMS.count -= 1
        self.listen(False)

    def listen(self, on: bool) -> None:
        """Turns the dispatcher layer on or off for this level."""
        if self.listens is not on:
            self.listens = on
            (dispatcher.enable_layer if on else dispatcher.disable_layer)("ops", "transform")


class _Thread(threading.local):
    levels: tuple[TransformLevel, ...] = ()
    all: tuple[TransformLevel, ...] = ()  # including the levels hidden by `below`
    inside = False  # True inside a call: its own calls are not marked


_thread = _Thread()
#: this thread's state; `inside`: the current code belongs to a call that has been handled
thread = _thread


def levels() -> tuple[TransformLevel, ...]:
    """Returns this thread's transforms, innermost last."""
    return _thread.levels


def numbered(n: int) -> TransformLevel:
    """Returns the level with number `n` (1: outermost); RuntimeError if there is none."""
    if not 0 < n <= len(_thread.all):
        raise RuntimeError(f"there is no transform of level {n}")
    return _thread.all[n - 1]


@contextlib.contextmanager
def below(level: TransformLevel) -> Iterator[None]:
    """Context manager that restricts this thread to the transforms around `level`."""
    before = _thread.levels
    _thread.levels = before[:before.index(level)]
    try:
        yield
    finally:
        _thread.levels = before


def enter(level: TransformLevel, t: Tensor, original: Tensor, *more: Any) -> None:
    """Records that `t` represents `original` inside a level.

    more: the dimension along which it is a slice.
    """
    t._functorch_level = level.serial
    level.given[id(t)] = (t, original, *more)


def made(t: Tensor) -> None:
    """Records that `t` was created at this thread's current level."""
    now = _thread.levels
    if now:
        t._functorch_level = now[-1].serial


def exit_level(t: Tensor) -> None:
    """Moves `t` to this thread's current level."""
    now = _thread.levels
    t._functorch_level = now[-1].serial if now else 0


def move_to_current(level: TransformLevel, t: Any) -> Any:
    """Moves a level's result to the current level if it was created inside or is new."""
    if isinstance(t, Tensor) and (t._functorch_level >= level.serial or not t._functorch_level):
        exit_level(t)
    return t


# ------------------------------------------------------------------ calls
def _over(below):
    last = below is dispatcher.body

    def run(entry, args, kwargs):
        here = _thread
        now = here.levels
        if not now or here.inside:
            return below(entry, args, kwargs)
        level = now[-1]
        writes = _writes.get(entry)
        if writes is None:
            name = entry.name.rpartition(".")[2]
            writes = _writes[entry] = name.endswith("_") and not name.endswith("__") and name not in _NO_WRITES or name == "__setitem__"
        if (writes or kwargs and "inplace" in kwargs and kwargs["inplace"]) and args:
            for x in args[0] if args[0].__class__ in (list, tuple) else args[:1]:
                if isinstance(x, Tensor) and x._functorch_level < level.serial:
                    _refuse(level, entry, args, kwargs)
        here.inside = True
        try:
            r = entry.run(*args, **kwargs) if last else below(entry, args, kwargs)
        finally:
            here.inside = False
        c = r.__class__
        if c is Tensor:
            _mark(r, level.serial, args, kwargs)
        elif c is tuple or c is list or isinstance(r, tuple):
            for x in r:
                if isinstance(x, Tensor):
                    _mark(x, level.serial, args, kwargs)
        elif isinstance(r, Tensor):
            _mark(r, level.serial, args, kwargs)
        return r
    return run


@dispatcher.register_layer("ops", "transform")
def _note(entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any], below: Any) -> Any:
    """Dispatcher layer: rejects writes to captured tensors, assigns levels to results."""
    return _over(below)(entry, args, kwargs)


_note.bound = _over         # type: ignore[attr-defined]


_writes: dict[Any, bool] = {}
_NO_WRITES = frozenset(["requires_grad_", "share_memory_", "rename_"])


def _mark(r, serial, args, kwargs):
    a, is_base = r._array, r._array.base is None
    for x in (*args, *kwargs.values()) if kwargs else args:
        c = x.__class__
        if c is Tensor or c is not int and c is not float and isinstance(x, Tensor):
            if x is r:
                return
            if x._array is a or not is_base and _shares(a, x._array):
                r._functorch_level = x._functorch_level
                return
        elif not is_base and c in (tuple, list):
            for y in x:
                if isinstance(y, Tensor) and _shares(a, y._array):
                    r._functorch_level = y._functorch_level
                    return
    r._functorch_level = serial


def _shares(a, b):
    if a.__class__ is GeometryArray or b.__class__ is GeometryArray:
        return a.__class__ is b.__class__ and storage_array(a) is storage_array(b)
    return np.may_share_memory(a, b)


def _refuse(level, entry, args, kwargs):
    if level.kind in ("grad", "jvp"):
        raise RuntimeError(f"During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation ({entry.name}) that "
                           "would mutate a captured Tensor. This is not supported; please rewrite the function being transformed to explicitly accept "
                           "the mutated Tensor(s) as inputs.")
    if level.kind == "vmap" and any([getattr(x, "_handle", None).__class__ is BatchedHandle and x._handle.level.serial >= level.serial for x in (*args[1:],
            *kwargs.values())]):
        if args[0].__class__ in (list, tuple) or not (args[0]._handle.__class__ is BatchedHandle and args[0]._handle.level.serial >= level.serial):
            raise RuntimeError("vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has "
                               "more elements than `self`. This happened due to `other` being vmapped over but `self` not being vmapped over in a vmap. "
                               f"Please try to use out-of-place operators instead of inplace arithmetic. ({entry.name})")


def refuse_requires_grad() -> None:
    """Raises RuntimeError inside a transform, which itself selects the tensors to differentiate."""
    if _thread.levels and not _thread.inside:
        raise RuntimeError("You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional.* APIs) inside of a function being "
                           "transformed by a functorch transform. This is unsupported, please attempt to use the functorch transforms (e.g. grad, vjp, "
                           "jacrev, jacfwd, hessian) or call requires_grad_() outside of a function being transformed instead.")


def refuse_retain_grad() -> None:
    """Raises RuntimeError inside a transform that differentiates."""
    if any([level.kind != "functionalize" for level in _thread.levels]):
        raise RuntimeError("You are attempting to call Tensor.retain_grad() inside of a function being transformed by a functorch transform. This is "
                           "unsupported, please attempt to use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call retain_grad() "
                           "outside of a function being transformed instead.")


def refuse_backward() -> None:
    """Raises RuntimeError inside a transform."""
    if _thread.levels:
        raise RuntimeError("backward() called inside a functorch transform. This is not supported, please use functorch.grad or functorch.vjp instead or call "
                           "backward() outside of functorch transforms.")


def differentiating() -> bool:
    """True if this thread is in a reverse-mode transform."""
    return any([level.kind == "grad" for level in _thread.levels])


def level_number(t: Tensor) -> int:
    """Returns the number of a tensor's level: 0 for none, -1 for a level that has ended."""
    if not t._functorch_level:
        return 0
    for i, level in enumerate(_thread.levels):
        if level.serial == t._functorch_level:
            return i + 1
    return -1


def creation_levels(t: Tensor) -> list[tuple[int, TransformLevel]]:
    """Returns (number, level) of the levels in which a tensor was created, innermost first."""
    return [(i + 1, level) for i, level in enumerate(_thread.levels) if level.serial <= t._functorch_level][::-1]
