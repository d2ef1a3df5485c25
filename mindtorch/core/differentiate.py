"""MindSpore's functional gradients (`value_and_grad`, `grad`, `GradOperation`) taken on the facade's own tape.

MindSpore's tape holds values, so what is recorded there has to be computed at once; ours holds tensors, whose values may be put off until a whole step is
compiled.  So in a step that is compiled the functions that use the facade are differentiated here.  What MindSpore's own ops compute between is
differentiated by MindSpore as everywhere else (core/interop.py).
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch.backend.device import home_of
from mindtorch.backend.mindspore import grad_inputs, interop as native
from mindtorch.backend.mindspore.npu import DTYPES
from mindtorch.backend.mindspore.patches import PRIVATE
from mindtorch.backend.mindspore.private import MSTensor, attributes as _attributes
from mindtorch.core import engine, graph_mode, interop, lazy, native_cells, tensor as _tensor
from mindtorch.core.grad_mode import mode
from mindtorch.core.records import TABLE
from mindtorch.core.tensor import Tensor, adopt, again, real


class _Depth(threading.local):
    n = 0           # functions that are being differentiated in this thread


_depth = _Depth()


class Run:
    """A function's result, and the arguments whose gradient is wanted."""

    __slots__ = ("out", "wanted", "inner")

    def __init__(self, out: Any, wanted: list[Tensor], inner: bool) -> None:
        self.out, self.wanted, self.inner = out, wanted, inner


def forward(fn: Callable[..., Any], wanted: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any], before: list[Any] | None = None) -> Run | None:
    """Runs `fn` with the wanted arguments as leaves; None, and nothing run, where that has to be MindSpore's affair. before: [its result], where it has run."""
    if before is not None:
        return Run(before[0], [], _depth.n > 0)
    if not mode.on or not all(isinstance(t, MSTensor) for t in wanted):
        return None
    inner = _depth.n > 0
    if not inner:
        # (What an argument was computed from is no part of the function.)
        cut: dict[int, Any] = {}
        args, kwargs, wanted = [_cut(x, cut) for x in args], {k: _cut(x, cut) for k, x in kwargs.items()}, [_cut(x, cut) for x in wanted]
    leaves = [adopt(t) for t in wanted]
    marked = [t for t in leaves if not t._rg and t._stype.kind in "fcV"]
    for t in marked:
        t._rg = True
    _depth.n += 1
    try:
        out = fn(*args, **kwargs)
    finally:
        _depth.n -= 1
        for t in marked:
            if t._gnode is None:
                t._rg = False
    return Run(out, leaves, inner)


def _cut(x: Any, done: dict[int, Any]) -> Any:
    """An argument, or a list or tuple or dict of those, with tensors without history in the place of those that have one: each once."""
    if isinstance(x, MSTensor):
        if Tensor not in type(x).__mro__ or x._gnode is None:
            return x
        if id(x) not in done:
            done[id(x)] = again(x), x
        return done[id(x)][0]
    if x.__class__ in (tuple, list):
        return x.__class__([_cut(i, done) for i in x])
    return {k: _cut(i, done) for k, i in x.items()} if x.__class__ is dict else x


def _tensors(out: Any, found: list[Tensor]) -> list[Tensor]:
    if isinstance(out, MSTensor):
        # (A tensor of MindSpore's stays one for the caller: another object takes part here.)
        found.append(out if Tensor in type(out).__mro__ else adopt(MSTensor(out)))
    elif out.__class__ in (tuple, list):
        for x in out:
            _tensors(x, found)
    return found


def gradients(run: Run, weights: Sequence[Any], sens: Any, aux: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of a run's result (its first part alone: `aux`) to the wanted arguments and to `weights`; zeros where nothing arrives."""
    leaves = [*run.wanted, *[adopt(p) for p in weights]]
    outs = _tensors(run.out[0] if aux else run.out, [])
    given = [None] * len(outs) if sens is None else _tensors(sens, [])
    if len(given) != len(outs):
        raise ValueError(f"the sens of a gradient has {len(given)} tensors, the function's result {len(outs)}")
    roots, starts = [], []
    for t, g in zip(outs, given):
        if t._rg:
            roots.append(t)
            starts.append(TABLE["ones_like"].fn(t, requires_grad=False) if g is None else again(g))
    found: list[Tensor | None] = [None] * len(leaves)
    asked = [i for i, t in enumerate(leaves) if t._rg or t._stype.kind in "fcV"]
    if roots:
        for i, g in zip(asked, engine.run_backward(roots, starts, run.inner, run.inner, [leaves[i] for i in asked], True) or ()):
            found[i] = g
    made: list[Tensor] = []
    taken = {_memory(t) for t in (*leaves, *outs, *starts)}
    for t, g in zip(leaves, found):
        if g is None:
            g = TABLE["zeros_like"].fn(t, requires_grad=False)
        elif not run.inner:
            # (Each its own: who unscales one in place means that one.)
            g = TABLE["clone"].fn(g) if _memory(g) in taken else g
            g = again(g) if g._rg else g
        taken.add(_memory(g))
        made.append(g)
    n = len(run.wanted)
    if not run.inner:
        for g in made:
            hand(g)
    return made[:n], made[n:]


def _memory(t):
    if t._h is not None:
        return id(home_of(t._a))
    a = t._a
    while a.base is not None:
        a = a.base
    return id(a)


# ------------------------------------------------------------------ what MindSpore's code gets
class Later(MSTensor):
    """A tensor of MindSpore's whose values are put off: the shape is known, whoever asks for more has it computed, torch-style code goes on with it."""

    def __getattribute__(self, name):
        if name == "shape":
            return tuple(_attributes(self)["_a"].shape)
        if name == "dtype":
            return DTYPES[_attributes(self)["_a"].dtype]
        if name == "ndim":
            return _attributes(self)["_a"].ndim
        if name in _ASKS and not (name == "__fallback__" and native.depth.native):
            return object.__getattribute__(self, name)
        if name in _READS:
            graph_mode.settle("values are read")
        self.__class__ = Tensor
        if name not in _FACADE:
            settle(self)
        return getattr(self, name)


#: methods of MindSpore's tensors that leave the call to `__fallback__` where the tensor has that, or call others that do
METHODS = frozenset("abs add all any astype ceil cos div equal exp floor greater greater_equal isfinite isinf isnan less less_equal log logical_and "
                    "logical_not logical_or max maximum mean min minimum mul ne neg not_equal pow prod reciprocal round rsqrt sigmoid sign sin "
                    "sqrt square sub sum tanh to".split())
#: what goes on to MindSpore's ops, which leave a call to `__fallback__`; and what reads values
_ASKS = frozenset(("__class__", "__fallback__", "__ms_dispatch__", *METHODS))
_READS = frozenset(("asnumpy", "_item", "_tolist", "numpy", "item", "tolist"))
def now(t: Any) -> None:
    """Has the values of a `Later` computed."""
    t.__class__ = Tensor
    settle(t)


_FACADE = frozenset((*PRIVATE, "_a", "_sizes", "_stype", "_numel", "_contiguous", "_foreign", "_real", "_when"))


def hand(t: Any) -> None:
    """Makes a facade tensor without history one of MindSpore's, with its values when it is asked for them."""
    if t._h is not None and graph_mode.active():        # (also where they are there already: each run is to go the same way)
        t.__class__ = Later
    else:
        settle(t)


def settle(t: Any) -> None:
    """The same with its values."""
    if t._h is not None:
        real(t)
        t._home = t._dev
    t.__class__ = MSTensor


def begin() -> None:
    """Called once, when the facade is complete."""
    grad_inputs.own_forward, grad_inputs.own_gradients = forward, gradients
    _tensor.later = Later
    graph_mode.begin()
    native.as_one = native_cells.run
    interop.now = now
    lazy.at_first.append(_native_ops)


def _native_ops():
    from mindtorch.core import native_ops           # (only steps that are compiled need it)
    native_ops.hand = hand
    native_ops.begin()
