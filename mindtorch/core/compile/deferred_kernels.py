"""Deferred versions of a device's kernels, as a session (`mindtorch/core/compile/replay.py`) exposes them.

Every call goes through the session. The wrappers handle random numbers and the tensor lists of
optimizer kernels.
"""
from __future__ import annotations

import dataclasses
import inspect
import threading
from types import FunctionType, MethodType
from typing import Any

from mindtorch.backend import optimizer_formulas
from mindtorch.backend.device import UnsupportedByKernel
from mindtorch.backend.kernels import flags_of, set_flags

#: Classes of Python scalars that can be operands.
SCALAR_TYPES = frozenset((int, float, bool, complex))


class _CurrentSession:
    """The open session, or None, and the class of pending handles (handles without memory)."""

    session: Any = None
    pending: Any = None


current = _CurrentSession()


def defer_kernel(name, fn):
    if name in optimizer_formulas.STEPS:
        return _step(name, fn)
    if name == "optimizer_layout":
        return _layout(fn)
    # A kernel whose result sizes depend on operand values runs before Python continues.
    of_values = flags_of(fn).dynamic_shape
    if "generator" in inspect.signature(fn).parameters:
        put_off = _drawing(name, fn)
    else:
        def put_off(*handles, **kw):
            if of_values is not None and of_values(handles, kw):
                current.session.flush(f"{name}: the size of its result depends on values")
                return current.session.call_eagerly(name, fn, handles, kw)
            return current.session.call(name, fn, handles, kw)
    # Which of a kernel and `alike` runs depends on the geometries that the device has in stock, so
    # a trace would diverge there.
    set_flags(put_off, dataclasses.replace(flags_of(fn), alike=None))
    put_off.__kwdefaults__ = fn.__kwdefaults__ if isinstance(fn, FunctionType | MethodType) else None
    return put_off


class DeferredRngState:
    """Generator of a deferred call.

    The seeds and offsets are taken from the real generator in program order, whenever the call is
    computed.
    """

    __slots__ = ("generator", "drawn", "at", "key")
    on_host = False

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self.drawn: list[tuple[int, int]] = []
        self.at = 0
        self.key: Any = None

    def __eq__(self, other: object) -> bool:
        return other.__class__ is DeferredRngState  # The generator and its offset are not part of a trace.

    def __hash__(self) -> int:
        return hash(DeferredRngState)

    def take(self) -> tuple[int, int]:
        """Returns (seed, offset) of the next draw of this call."""
        self.at += 1
        if self.at > len(self.drawn):
            self.drawn.append(self.generator.take())
        return self.drawn[self.at - 1]

    def ahead(self, n: int) -> None:
        """Takes (seed, offset) pairs from the generator until there are `n`."""
        while len(self.drawn) < n:
            self.drawn.append(self.generator.take())

    def keyed(self, key: Any) -> DeferredRngState:
        """Sets the key of this generator in the graph under construction; returns self."""
        self.key = key
        return self

    def for_host(self) -> Any:
        """Returns the host generator.

        Host kernels draw when they are called; their draws are not deferred.
        """
        return self.generator.for_host()


def _drawing(name, fn):
    """Defers a kernel that draws random numbers.

    Each run takes as many (seed, offset) pairs as the recorded one.
    """
    def put_off(*handles, **kw):
        session, generator = current.session, kw["generator"]
        if generator.on_host:
            return _drawn_on_host(session, name, fn, handles, kw)
        spot = kw["generator"] = DeferredRngState(generator)
        r, log = session.call(name, fn, handles, kw), session.cursor.log
        if log and log[-1][2] is kw:
            spot.ahead(len(log[-1][0].kw["generator"].drawn))
        return r
    return put_off


def _drawn_on_host(session, name, fn, handles, kw):
    """Like `_drawing`, with the host's generator.

    A mask that does not depend on operand values is drawn now and passed to the graph.
    """
    if not handles:
        raise UnsupportedByKernel  # A new tensor, which the host creates.
    use = session.device.masked.get(name)
    if threading.get_ident() != session.thread:
        use = None
    mask = None if use is None else use.draw(session.device, [session.geometry(h) for h in handles if h is not None], **kw)
    if use is None or mask is None and kw["keep"] != 1:
        session.flush("random numbers drawn on the host")
        return fn(*handles, **kw)
    r = session.call(f"{name} by its mask", use.kernel, (*handles, mask), {k: v for k, v in kw.items() if k in use.constants})
    return use.results(r, mask)


def _layout(fn):
    def layout(handles):
        if any([h.__class__ is current.pending for h in handles]):
            current.session.flush("an optimizer reads the layout of pending parameters")
        return fn(handles)
    return layout


def _step(name, fn):
    """Defers an optimizer kernel, which takes lists of tensors and, for each row, scalars."""
    def rows(*given, layout, columns, options, row):
        n = len(given) - sum(k for _, k in options)
        handles, scalars = given[:n], given[n:]
        m = n // columns
        lists = [list(handles[i * m:(i + 1) * m]) for i in range(columns)]
        consts, at = [], 0
        for o, k in options:
            consts.append((o, tuple(scalars[at:at + k])))
            at += k
        fn(layout, lists, [consts[i] for i in row])

    def step(layout, columns, consts):
        # The kernel was looked up while a session of another thread was open.
        if current.session is None:
            return fn(layout, columns, consts)
        different: dict[int, int] = {}
        unique = []
        row = []
        for c in consts:
            k = different.get(id(c))
            if k is None:
                k = different[id(c)] = len(unique)
                unique.append(c)
            row.append(k)
        flat = [x for _, ns in unique for x in ns]
        if any([x.__class__ not in SCALAR_TYPES for x in flat]):
            current.session.flush("an optimizer's hyperparameters are tensors")
            return fn(layout, columns, consts)
        return current.session.call(name, rows, [*[h for c in columns for h in c], *flat],
                                    {"layout": layout, "columns": len(columns), "options": tuple([(o, len(ns)) for o, ns in unique]), "row": tuple(row)})
    return step
