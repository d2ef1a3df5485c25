"""MindSpore's functional gradients, computed by mindtorch's autograd.

These are `value_and_grad`, `grad` and `GradOperation`. MindSpore's autograd records values, so
everything recorded there has to be computed at once. mindtorch's autograd records tensors, whose
values may be deferred until a whole step is compiled. In a compiled step, functions that use the
facade are therefore differentiated here. The parts that MindSpore's own ops compute are
differentiated by MindSpore, as everywhere else (`mindtorch/core/mindspore/autograd.py`).
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch.backend.device import storage_array
from mindtorch.backend.mindspore import interop as native
from mindtorch.backend.mindspore.npu import DTYPES
from mindtorch.backend.mindspore.patches import PRIVATE
from mindtorch.backend.mindspore.private import MSTensor, attributes as _attributes
from mindtorch.core.autograd import engine
from mindtorch.core.compile import graph_mode
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.op_schema import OPS
from mindtorch.core.tensor.tensor import Tensor, adopt, shallow_copy, bind_native_memory


class _Depth(threading.local):
    n = 0  # number of functions being differentiated in this thread


_depth = _Depth()


class Run:
    """A function's result, and the arguments with respect to which it is differentiated."""

    __slots__ = ("out", "wanted", "inner")

    def __init__(self, out: Any, wanted: list[Tensor], inner: bool) -> None:
        self.out, self.wanted, self.inner = out, wanted, inner


def forward(fn: Callable[..., Any], wanted: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any], before: list[Any] | None = None) -> Run | None:
    """Runs `fn` with the arguments to differentiate as leaves.

    Returns None without running `fn` where MindSpore has to differentiate it. `before` is [result]
    if `fn` has run already.
    """
    if before is not None:
        return Run(before[0], [], _depth.n > 0)
    if not mode.on or not all(isinstance(t, MSTensor) for t in wanted):
        return None
    inner = _depth.n > 0
    if not inner:
        # The history of an argument is not part of the function.
        cut: dict[int, Any] = {}
        args, kwargs, wanted = [_cut(x, cut) for x in args], {k: _cut(x, cut) for k, x in kwargs.items()}, [_cut(x, cut) for x in wanted]
    leaves = [adopt(t) for t in wanted]
    marked = [t for t in leaves if not t._requires_grad_ and t._np_dtype.kind in "fcV"]
    for t in marked:
        t._requires_grad_ = True
    _depth.n += 1
    try:
        out = fn(*args, **kwargs)
    finally:
        _depth.n -= 1
        for t in marked:
            if t._grad_fn_ is None:
                t._requires_grad_ = False
    return Run(out, leaves, inner)


def _cut(x: Any, done: dict[int, Any]) -> Any:
    """Replaces tensors that have history by detached ones.

    `x` is an argument, or a list, tuple or dict of arguments. Each tensor is replaced once.
    """
    if isinstance(x, MSTensor):
        if Tensor not in type(x).__mro__ or x._grad_fn_ is None:
            return x
        if id(x) not in done:
            done[id(x)] = shallow_copy(x), x
        return done[id(x)][0]
    if x.__class__ in (tuple, list):
        return x.__class__([_cut(i, done) for i in x])
    return {k: _cut(i, done) for k, i in x.items()} if x.__class__ is dict else x


def _tensors(out: Any, found: list[Tensor]) -> list[Tensor]:
    if isinstance(out, MSTensor):
        # The caller's MindSpore tensor keeps its class: another object is used here.
        found.append(out if Tensor in type(out).__mro__ else adopt(MSTensor(out)))
    elif out.__class__ in (tuple, list):
        for x in out:
            _tensors(x, found)
    return found


def gradients(run: Run, weights: Sequence[Any], sens: Any, aux: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the gradients of a run's result.

    They are with respect to the differentiated arguments and to `weights`. With `aux`, only the
    first part of the result is differentiated. Missing gradients are zeros.
    """
    leaves = [*run.wanted, *[adopt(p) for p in weights]]
    outs = _tensors(run.out[0] if aux else run.out, [])
    given = [None] * len(outs) if sens is None else _tensors(sens, [])
    if len(given) != len(outs):
        raise ValueError(f"sens has {len(given)} tensors, but the function returned {len(outs)}")
    roots, starts = [], []
    for t, g in zip(outs, given):
        if t._requires_grad_:
            roots.append(t)
            starts.append(OPS["ones_like"].fn(t, requires_grad=False) if g is None else shallow_copy(g))
    found: list[Tensor | None] = [None] * len(leaves)
    requested = [i for i, t in enumerate(leaves) if t._requires_grad_ or t._np_dtype.kind in "fcV"]
    if roots:
        for i, g in zip(requested, engine.run_backward(roots, starts, run.inner, run.inner, [leaves[i] for i in requested], True) or ()):
            found[i] = g
    made: list[Tensor] = []
    used = {_memory(t) for t in (*leaves, *outs, *starts)}
    for t, g in zip(leaves, found):
        if g is None:
            g = OPS["zeros_like"].fn(t, requires_grad=False)
        elif not run.inner:
            # Gradients do not share memory: callers unscale them in place.
            g = OPS["clone"].fn(g) if _memory(g) in used else g
            g = shallow_copy(g) if g._requires_grad_ else g
        used.add(_memory(g))
        made.append(g)
    n = len(run.wanted)
    if not run.inner:
        for g in made:
            to_mindspore(g)
    return made[:n], made[n:]


def _memory(t):
    if t._handle is not None:
        return id(storage_array(t._array))
    a = t._array
    while a.base is not None:
        a = a.base
    return id(a)


# ------------------------------------------------------------------ tensors returned to MindSpore code
class LazyTensor(MSTensor):
    """A MindSpore tensor whose values are deferred.

    Shape and dtype are known. Reading anything else computes the values; torch-style code continues
    with the deferred tensor.
    """

    def __getattribute__(self, name):
        if name == "shape":
            return tuple(_attributes(self)["_array"].shape)
        if name == "dtype":
            return DTYPES[_attributes(self)["_array"].dtype]
        if name == "ndim":
            return _attributes(self)["_array"].ndim
        if name in _QUERIES and not (name == "__fallback__" and native.depth.native):
            return object.__getattribute__(self, name)
        if name in _READS:
            graph_mode.flush("values are read")
        self.__class__ = Tensor
        if name not in _FACADE:
            to_mindspore_now(self)
        return getattr(self, name)


#: Methods of MindSpore tensors that delegate to `__fallback__` if the tensor has it, or call other
#: methods that do.
METHODS = frozenset("abs add all any astype ceil cos div equal exp floor greater greater_equal isfinite isinf isnan less less_equal log logical_and "
                    "logical_not logical_or max maximum mean min minimum mul ne neg not_equal pow prod reciprocal round rsqrt sigmoid sign sin "
                    "sqrt square sub sum tanh to".split())
#: Attributes that lead to MindSpore's ops, which delegate to `__fallback__` (`_QUERIES`), and
#: attributes that read values (`_READS`).
_QUERIES = frozenset(("__class__", "__fallback__", "__ms_dispatch__", *METHODS))
_READS = frozenset(("asnumpy", "_item", "_tolist", "numpy", "item", "tolist"))
def materialize(t: Any) -> None:
    """Computes the values of a `LazyTensor`."""
    t.__class__ = Tensor
    to_mindspore_now(t)


_FACADE = frozenset((*PRIVATE, "_array", "_sizes", "_np_dtype", "_numel", "_contiguous", "_from_mindspore", "_real", "_enqueue_epoch"))


def to_mindspore(t: Any) -> None:
    """Turns a facade tensor without history into a MindSpore tensor with deferred values."""
    # Also if the values exist already, so that every run takes the same path.
    if t._handle is not None and graph_mode.active():
        t.__class__ = LazyTensor
    else:
        to_mindspore_now(t)


def to_mindspore_now(t: Any) -> None:
    """Turns a facade tensor without history into a MindSpore tensor with its values."""
    if t._handle is not None:
        bind_native_memory(t)
        t._home = t._device
    t.__class__ = MSTensor
