"""Forward-mode AD: tensors with tangents, and the dispatcher layer that propagates them.

While a level is open, every primitive goes through this layer. An operand with a tangent (a *dual*)
makes the result a dual. The result's tangent is computed in one of four ways: by the primitive's
own rule; by the primitive itself if it is linear or a view; by its gradient rule if its Jacobian is
diagonal; otherwise by differentiating the gradient rule. That rule is linear in the gradient, and
the derivative of u -> (gradients for u) is the transpose of the Jacobian.

A tensor's tangents are in `_fw_grad`, by level. Levels nest (a jvp within a jvp): the tangent of an
inner level is itself a dual of the outer ones, so the computation for one level sees only the
levels that were opened before it. Levels that are opened together are separate directions: one run
of a function gives its derivative along each of them.

An in-place write gives the modified tensor the tangent of the written value
(`mindtorch/core/tensor/inplace.py` calls `wrote`). The tangent of a view is a view of its base's tangent.
While no level is open, none of this runs or is checked.
"""
from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mindtorch.backend.cpython import module_lock
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import inplace
from mindtorch.core.transforms import vmap, functorch_levels
from mindtorch.core.dispatch import dispatcher
from mindtorch.core.autograd import engine, grad_mode
from mindtorch.core.tensor.conj_neg_bits import ConjNegBits, is_conj
from mindtorch.core.dispatch.lazy_conj import between, conj_view, neg_view
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.autograd.validate_grad import validate_grad
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.op_schema import OPS
from mindtorch.core.autograd.graph import Node, _DualOut, _Out
from mindtorch.core.dispatch.primitives import Primitive
from mindtorch.core.tensor.tensor import ScalarOperand, SavedArray, Tensor, shallow_copy, detached, is_tensor
from mindtorch.core.tensor.tensor_wrappers import BatchedHandle

_FLOATS = "fcV"
_ids = itertools.count()
_lock = module_lock(globals(), "_lock", threading.RLock)


class Tangents(dict):
    """A tensor's tangents: level -> tensor, or None where it has none whatever its base has."""

    __slots__ = ("__weakref__",)


class ForwardLevel:
    """An open level; `start` is the id of the first level that was opened together with it."""

    __slots__ = ("id", "start", "tangents")

    def __init__(self, start: int | None = None) -> None:
        self.id = next(_ids)
        self.start = self.id if start is None else start
        self.tangents: weakref.WeakValueDictionary[int, Tangents] = weakref.WeakValueDictionary()


LEVELS: dict[int, ForwardLevel] = {}


class _State(threading.local):
    """What this thread propagates: nothing unless `on`, and only levels in [low, high)."""

    on = True
    low = 0
    high = 1 << 62


state = _State()


# ------------------------------------------------------------------ levels
def open_levels(n: int = 1) -> list[ForwardLevel]:
    """Opens n levels that are independent of each other."""
    with _lock:
        first = ForwardLevel()
        opened = [first, *[ForwardLevel(first.id) for _ in range(n - 1)]]
        if not LEVELS:
            _start()
        LEVELS.update({v.id: v for v in opened})
    return opened


def close_levels(levels: Iterable[ForwardLevel]) -> None:
    """Closes levels and drops their tangents."""
    with _lock:
        for v in levels:
            LEVELS.pop(v.id, None)
            for tan in list(v.tangents.values()):
                tan.pop(v.id, None)
        if not LEVELS:
            _stop()


def _start():
    for hook in at_first:
        hook()
    at_first.clear()
    dispatcher.enable_layer("primitives", "forward")
    dispatcher.enable_layer("ops", "forward")
    dispatch_state.dual = dual
    hooks.tangent_write = propagate_write
    hooks.tangent_backward = backward


def _stop():
    dispatcher.disable_layer("primitives", "forward")
    dispatcher.disable_layer("ops", "forward")
    dispatch_state.dual = hooks.tangent_write = hooks.tangent_backward = None


#: Called before the first level of the process is opened: the ops package declares its rules.
at_first: list[Callable[[], object]] = []


class LevelGuard:
    """Context that sees only the levels opened before `level`.

    Calls inside do not count as calls of the user.
    """

    __slots__ = ("high", "old", "inside")

    def __init__(self, level: int) -> None:
        self.high = LEVELS[level].start if level in LEVELS else level

    def __enter__(self):
        self.old, self.inside = state.high, functorch_levels.thread.inside
        state.high, functorch_levels.thread.inside = self.high, True

    def __exit__(self, *exc):
        state.high, functorch_levels.thread.inside = self.old, self.inside


# ------------------------------------------------------------------ tangents of a tensor
def levels(x: Any) -> list[int]:
    """Returns the visible levels at which x has a tangent."""
    tangents, base = x._fw_grad, x._base
    if tangents is None and base is None:
        return []
    low, high = state.low, state.high
    found = [v for v, t in tangents.items() if t is not None and low <= v < high] if tangents else []
    if base is not None and base._fw_grad:
        found += [v for v, t in base._fw_grad.items() if t is not None and low <= v < high and (tangents is None or v not in tangents)]
    return found


def dual(*tensors: Any) -> bool:
    """True if one of these (also in lists and tuples) has a visible tangent."""
    if not state.on:
        return False
    for x in tensors:
        if x.__class__ is Tensor or is_tensor(x):
            if (x._fw_grad or x._base is not None) and levels(x):
                return True
        elif (x.__class__ is list or x.__class__ is tuple) and dual(*x):
            return True
    return False


def tangent(x: Any, level: int) -> Any:
    """Returns the tangent of x at this level, or None.

    A view without its own tangent gets a view of its base's tangent.
    """
    tan = x._fw_grad
    if tan is not None and level in tan:
        return tan[level]
    base = x._base
    if base is None or not base._fw_grad:
        return None
    t = base._fw_grad.get(level)
    if t is None:
        return None
    with LevelGuard(level):
        t = _part(t, base, x)
    _put(x, level, t)
    return t


def _put(x, level, t):
    tan = x._fw_grad
    if tan is None:
        tan = x._fw_grad = Tangents()
    tan[level] = t
    if level in LEVELS:
        LEVELS[level].tangents[id(tan)] = tan
    else:
        tan.pop(level)


def none(x: Tensor, level: int) -> None:
    """Marks x as having no tangent at this level, whatever its base has."""
    _put(x, level, None)


def copy_tangents(x: Any, to: Tensor) -> Tensor:
    """Copies the tangents of x to `to`, which replaces x without its history."""
    for v in levels(x) if dispatch_state.dual is not None else ():
        _put(to, v, tangent(x, v))
    return to


def recorded(x: Any) -> bool:
    """True if x or one of its tangents has history."""
    return x._requires_grad_ or vmap.hides_history(x) or dispatch_state.dual is not None and any([(g := tangent(x,
            v))._requires_grad_ or vmap.hides_history(g) for v in levels(x)])


def detach(x: Tensor, keeps: Callable[[Tensor], bool] | None = None) -> Tensor:
    """Returns x without history.

    Its tangents lose their history too, except those for which `keeps` returns True.
    """
    t = detached(x)
    within = vmap.unwrap_hidden(x)
    if within is not None and vmap.hides_history(x):
        h: Any = x._handle
        t._handle = BatchedHandle(detach(within, keeps), h.mapped, h.level)
    for v in levels(x) if dispatch_state.dual is not None else ():
        g: Any = tangent(x, v)
        _put(t, v, g if not g._requires_grad_ and not vmap.hides_history(g) or keeps is not None and keeps(g) else detach(g, keeps))
    return t


def attach_view(x: Tensor, level: int, t: Tensor) -> None:
    """Sets the tangent of the view x; t is the corresponding view of the base's tangent."""
    _put(x, level, t)


def attach(x: Tensor, level: int, t: Tensor) -> None:
    """Sets the tangent of x, which is not a view and has no tangent.

    t itself is used if its memory layout is that of x, else a copy.
    """
    with LevelGuard(level):
        _put(x, level, _like(t, x))


def _op(name):
    return OPS[name].fn


def _same_layout(t, x):
    if t._np_dtype != x._np_dtype or t._sizes != x._sizes:
        return False
    if not x._numel:
        return t.stride() == x.stride() or t._contiguous and x._contiguous
    return (t.stride() == x.stride() and t.storage_offset() == x.storage_offset() and inplace.storage_extent(t)[1] == inplace.storage_extent(x)[1]
            and t.is_conj() == x.is_conj() and t.is_neg() == x.is_neg())


def _zeros_like(x, t=None):
    """Returns zeros with the memory layout of x: the same strides, in a storage of the same size.

    Batched if `t`, which will be written there, is batched.
    """
    if t is not None and vmap.level_of(t) is not vmap.level_of(x):
        return hooks.new_full(t, size=x._sizes, value=0, np_dtype=x._np_dtype)
    within = vmap.level_of(x)
    if within is not None:
        return vmap.add_batch_dim(_zeros_like(x._handle.value), x._handle.mapped, within)
    k = x._np_dtype.itemsize
    offset, size = inplace.storage_extent(x)
    if x._contiguous and not offset and size == x._nbytes:
        return _op("zeros_like")(x, requires_grad=False)
    flat = hooks.new_full(x, size=(size // k,), value=0, np_dtype=x._np_dtype)
    t = shallow_copy(flat)
    inplace.set_storage_within(t, flat, x._sizes, tuple([s * k for s in x.stride()]), offset)
    return t


def _like(t, x):
    if _same_layout(t, x):
        return t
    r = _zeros_like(x, t)
    if t._sizes == r._sizes or len(t._sizes) <= len(r._sizes):
        r.copy_(t)
    return r


def _part(t, base, view):
    """Returns the region of a base's tangent that corresponds to a view of the base."""
    turned = view._handle.__class__ is ConjNegBits or base._handle.__class__ is ConjNegBits or t._handle.__class__ is ConjNegBits
    conj, neg = between(view, base) if turned else (False, False)
    if view._np_dtype != base._np_dtype:
        if base._np_dtype.kind == "c" and view._np_dtype.kind in "fV":
            if is_conj(t):
                t, neg = conj_view(t), neg != (inplace.geometry(view, base)[2] % base._np_dtype.itemsize != 0)
            t = _op("view_as_real")(t)
        elif view._np_dtype.kind == "c" and base.ndim and base._sizes[-1] == 2:
            t = _op("view_as_complex")(t)
        else:
            raise NotImplementedError(f"Trying to use forward AD with a view of dtype {view.dtype} of a {base.dtype} tensor that does not support it")
    offset = inplace.geometry(view, base)[2] // view._np_dtype.itemsize
    if view._sizes == t._sizes and view.stride() == t.stride() and not offset:
        part = _op("view_as")(t, t)
    else:
        part = _op("as_strided")(t, view._sizes, view.stride(), t.storage_offset() + offset)
    if conj:
        part = conj_view(part)
    return neg_view(part) if neg else part


def write_tangent(x: Tensor, level: int, t: Tensor) -> None:
    """Sets the tangent of `x` after an in-place write; x had none before.

    If `x` is a view, the tangent is stored on its base and `x` gets the corresponding view of it.
    """
    base = x._base
    with LevelGuard(level):
        if base is None or x._fw_grad is not None and level in x._fw_grad or base._fw_grad and base._fw_grad.get(level) is not None:
            return _put(x, level, _like(t, x))
        if _same_layout(t, base) and _same_layout(t, x):
            _put(base, level, t)
            return _put(x, level, t)
        base_tangent = _zeros_like(base, t)
        part = _part(base_tangent, base, x)
        part.copy_(t)
        _put(base, level, base_tangent)
        _put(x, level, part)


def propagate_write(x: Tensor, r: Any, since: int) -> None:
    """Replaces the tangents of x, whose memory now holds the values of r, by those of r.

    r is None for values without history. Nodes created from sequence number `since` on that saved
    an overwritten tangent get a copy of it.
    """
    if not state.on or x._np_dtype.kind not in _FLOATS:
        return
    mine = levels(x)
    for v in sorted({*mine, *(levels(r) if r is not None else ())}):
        old: Any = tangent(x, v)
        new: Any = tangent(r, v) if r is not None else None
        if new is old:
            continue
        with LevelGuard(v):
            if old is not None:
                if new is None:
                    old.zero_()
                else:
                    if new._grad_fn_ is not None and since and old._version_counter is not None:
                        inplace.copy_saved_before_write(old._version_counter, new, since)
                    old.copy_(new)
                continue
            if new._sizes != x._sizes:
                new = _op("expand")(new, x._sizes)
            if new._base is not None or new._np_dtype != x._np_dtype:
                new = _op("clone")(_op("to")(new, x.dtype))
        write_tangent(x, v, new)


# ------------------------------------------------------------------ rules
class Context:
    """The values that a gradient rule reads of a call."""

    def __init__(self, prim, ins, kw, outs, wanted):
        names = self.__dict__
        if not prim.variadic:
            names.update(zip(prim.inputs, ins))
        names.update(kw)
        if outs.__class__ is tuple:
            names.update({f"out{i}": t for i, t in enumerate(outs)})
            names["out"] = outs[0]
        else:
            names["out"] = names["out0"] = outs
        self._prim, self._attrs = prim, dict(kw)
        self.shapes = [None if x is None else x._sizes for x in ins]
        self.dtypes = [None if x is None else x._np_dtype for x in ins]
        self.needs = tuple([i in wanted for i in range(len(ins))])
        self._next_edges = [wanted.get(i) for i in range(len(ins))]
        self._saved = None
        several = outs.__class__ is tuple and not prim.rest
        self._input_metadata = tuple([None if t is None or i in prim.nondiff or t._np_dtype.kind not in _FLOATS else (t._sizes, t._np_dtype)
                                      for i, t in enumerate(outs if several else (outs[0],) if outs.__class__ is tuple else (outs,))])

    def __getattr__(self, name):
        if name[:2] != "__" and name in self._attrs:
            return self._attrs[name]
        raise AttributeError(name)


class _Recording:
    """Context that switches grad mode on or off."""

    __slots__ = ("to", "old")

    def __init__(self, to: bool) -> None:
        self.to = to

    def __enter__(self):
        self.old = mode.on
        grad_mode._switch(self.to)

    def __exit__(self, *exc):
        grad_mode._switch(self.old)


def is_differentiated(*tensors: Any) -> bool:
    """True if results computed from these are differentiated, backward or forward.

    For batched tensors, also if the tensors of all slices are.
    """
    return mode.on and any([x._requires_grad_ for x in tensors]) or dispatch_state.dual is not None and dual(*tensors) or any(
        [x._handle.__class__ is BatchedHandle and is_differentiated(x._handle.value) for x in tensors])


def moved(x: Tensor, r: Tensor) -> None:
    """Updates the tangents of x after x has become its view r."""
    for v in levels(x):
        _put(x, v, tangent(r, v))


def _unsupported(name):
    return NotImplementedError(f"Trying to use forward AD with {name} that does not support it because it has not been implemented yet.")


def _results(prim, outs):
    return outs if outs.__class__ is tuple else (outs,)


def compute(prim: Primitive, ins: Sequence[Any], kw: dict[str, Any], outs: Any, tans: dict[int, Tensor]) -> Sequence[Tensor | None]:
    """Returns the tangents of a primitive's results, given the tangents of some operands."""
    try:
        return _compute(prim, ins, kw, outs, tans)
    except RuntimeError as e:
        if not str(e).startswith("derivative for aten::"):
            raise
        raise NotImplementedError(f"Trying to use forward AD with {str(e).split()[2]} that does not support it.") from None


def _compute(prim: Primitive, ins: Sequence[Any], kw: dict[str, Any], outs: Any, tans: dict[int, Tensor]) -> Sequence[Tensor | None]:
    rule = prim.forward
    if rule is not None:
        if rule == "constant":
            return (None,) * len(_results(prim, outs))
        if rule == "linear":
            return _linear(prim, ins, kw, tans),
        r = rule(Context(prim, ins, kw, outs, tans), tans)
        return r if r.__class__ is tuple else (r,)
    if prim.view:
        r = prim.function(tans[0], *ins[1:], **kw)
        return r if r.__class__ is tuple else (r,)
    if not prim.grads:
        if prim.inputs and prim.inputs[0] in ("g", "gy"):
            raise _unsupported(prim.name)
        return (None,) * len(_results(prim, outs))
    if prim.elementwise and outs.__class__ is not tuple:
        r = _diagonal(prim, ins, kw, outs, tans)
        if r is not None:
            return r,
    return derived(prim, ins, kw, outs, tans)


#: Ops that raise for operands with tangents, as in PyTorch -> PyTorch's name of the op. (name,
#: parameter): only if that parameter is passed.
REFUSED: dict[str, str | tuple[str, str]] = {}


def _linear(prim, ins, kw, tans):
    if prim.variadic:
        return prim.function([tans[i] if i in tans else _no(x) for i, x in enumerate(ins)], **kw)
    return prim.function(*[tans[i] if i in tans else _no(x) if x is not None and (prim.joint or i < len(prim.grads) and prim.grads[i] is not None)
                           and x._np_dtype.kind in _FLOATS else x for i, x in enumerate(ins)], **kw)


def _no(x):
    """Returns zeros to use in place of the operand x."""
    return hooks.new_full(x, size=x._sizes, value=0, np_dtype=x._np_dtype) if x.__class__ is not ScalarOperand else ScalarOperand(0, x._np_dtype)


def _diagonal(prim, ins, kw, outs, tans):
    """Applies the gradient rule itself, for real operands and results.

    An elementwise op has a diagonal Jacobian, which equals its transpose.
    """
    if outs._np_dtype.kind != "f" or any([x is not None and x._np_dtype.kind == "c" for x in ins]):
        return None
    total = None
    given = [*[x for x in ins if x is not None], *tans.values()]
    plain = not vmap.with_history(*given) and not dual(*given)
    for i, t in tans.items():
        rule = prim.grads[0 if prim.joint else i] if prim.joint or i < len(prim.grads) else None
        if rule is None:
            continue
        if t._sizes != outs._sizes:
            t = _op("expand")(t, outs._sizes)
        if t._np_dtype != outs._np_dtype:
            t = _op("to")(t, outs.dtype)
        with _Recording(not plain):
            r = rule(Context(prim, ins, kw, outs, {i: outs}), t)
            if prim.joint:
                r = r[i]
        if r is None or r._sizes != outs._sizes:
            # A rule that calls composite ops returns None for an operand that does not require
            # grad.
            return None
        total = r if total is None else _op("add")(total, r)
    if total is None:
        return _no(outs)
    if total._requires_grad_ and not mode.on:
        total = detach(total)
    return total if total._np_dtype == outs._np_dtype else _op("to")(total, outs.dtype)


class _Deriving(threading.local):
    on = False


_deriving = _Deriving()


def _leaf(x):
    t = shallow_copy(x)
    t._fw_grad, t._requires_grad_ = x._fw_grad, True
    if x._fw_grad is None and x._base is not None:
        copy_tangents(x, t)
    return t


def derived(prim: Primitive, ins: Sequence[Any], kw: dict[str, Any], outs: Any, tans: dict[int, Tensor]) -> Sequence[Tensor | None]:
    """Differentiates the gradient rule with respect to the incoming gradient."""
    needs_grad = any([x is not None and x._requires_grad_ for x in ins]) or any([t._requires_grad_ for t in tans.values()])
    track = mode.on and (needs_grad or vmap.with_history(*[x for x in ins if x is not None], *tans.values()))
    given = [_leaf(x) if i in tans and not x._requires_grad_ else x for i, x in enumerate(ins)]
    c = Context(prim, given, kw, outs, {i: given[i] for i in tans})
    was, _deriving.on = _deriving.on, True
    try:
        with _Recording(True):
            us: list[Any] = []
            for m in c._input_metadata:
                u = None if m is None else hooks.new_full(_results(prim, outs)[0], size=m[0], value=0, np_dtype=m[1])
                if u is not None:
                    u._requires_grad_ = True
                us.append(u)
            gs = prim.backward(c, us)       # type: ignore[arg-type]
            if gs.__class__ is Tensor:
                gs = (gs,)
            roots, starts = [], []
            for i, t in tans.items():
                g = gs[i] if gs is not None and i < len(gs) else None
                if g is not None and g._requires_grad_:
                    roots.append(validate_grad(g, (t._sizes, t._np_dtype), prim.name))
                    starts.append(t)
    finally:
        _deriving.on = was
    js: Sequence[Any] = [None] * len(us)
    requested = [i for i, u in enumerate(us) if u is not None]
    pairs = [(r, s) for r, s in zip(roots, starts) if r._requires_grad_]
    if pairs:
        # The tangents may belong to the user, and the engine marks the gradients that it passes on.
        starts = [copy_tangents(s, detached(s)) if not (track and s._requires_grad_) else s for _, s in pairs]
        for i, j in zip(requested, engine.run_backward([r for r, _ in pairs], starts, True, track, [us[i] for i in requested], True) or ()):
            js[i] = j if needs_grad or j is None or not j._requires_grad_ else detach(j)          # type: ignore[index]
    for i in requested:
        if js[i] is None:
            js[i] = hooks.new_full(us[i], size=us[i]._sizes, value=0, np_dtype=us[i]._np_dtype)      # type: ignore[index]
    return js


# ------------------------------------------------------------------ the layers
@dispatcher.register_layer("primitives", "forward")
def _on_primitives(prim, args, kw, below):
    if not state.on:
        return below(prim, args, kw)
    ins = tuple(args[0]) if prim.variadic else args
    # For operands batched by a vmap, tensors from outside are constants: their tangents are
    # propagated where all slices are computed.
    within = vmap.top(ins) if dispatcher.is_enabled("primitives", "vmap") else None
    found: set[int] = set()
    for x in ins:
        if within is not None and vmap.level_of(x) is not within:
            continue
        if x is not None and x.__class__ is not ScalarOperand and x.__class__ is not SavedArray and (x._fw_grad or x._base is not None):
            found.update(levels(x))
    if _deriving.on and not prim.grads and prim.forward is None and mode.on and prim.inputs and prim.inputs[0] in ("g", "gy") and getattr(ins[0],
            "_requires_grad_", False):
        raise _unsupported(prim.name)
    outs = below(prim, args, dict(kw) if found else kw)  # that call records what a node saves
    if prim.view and ins[0]._fw_grad:
        empty_levels = [v for v, t in ins[0]._fw_grad.items() if t is None]
        for v in empty_levels:
            for t in _results(prim, outs):
                if t is not None:
                    none(t, v)
    # Outer levels first: the rules of inner levels read the result, which is a dual of the outer
    # ones.
    for v in sorted(found):
        _propagate_level(prim, ins, kw, outs, v, within)
    if found:
        _saved(outs)
    return outs


def _propagate_level(prim, ins, kw, outs, v, within):
    """Gives a primitive's results their tangents at level `v`."""
    tans = {i: t for i, x in enumerate(ins) if x is not None and x.__class__ is not ScalarOperand and x.__class__ is not SavedArray
            and (within is None or vmap.level_of(x) is within) and x._np_dtype.kind in _FLOATS and (t := tangent(x, v)) is not None}
    if prim.view and 0 not in tans or not tans:
        return
    results = _results(prim, outs)
    differentiable = [t is not None and t.__class__ is not SavedArray and t._np_dtype.kind in _FLOATS and i not in prim.nondiff for i, t in enumerate(results)]
    if not any(differentiable):
        return
    with LevelGuard(v):
        js = compute(prim, ins, kw, outs, tans)
    for has_tangent, t, j in zip(differentiable, results, js):
        if has_tangent and j is not None:
            with LevelGuard(v):
                j = _as_tangent_of(t, j, tans, prim.view)
            _put(t, v, j)


def _as_tangent_of(t, j, tans, view):
    """Returns a computed tangent with the sizes and dtype of result `t`, and its own memory unless
    the result is a view."""
    if j._sizes != t._sizes:
        j = _op("expand")(j, t._sizes)
    if j._np_dtype != t._np_dtype:
        j = _op("to")(j, t.dtype)
    if view:
        return j
    if any([j is s for s in tans.values()]) or j._base is not None or inplace.storage_id(j) in [inplace.storage_id(s) for s in tans.values()]:
        j = _op("clone")(j)
    return _like(j, t)


def _saved(outs):
    """Makes a node that has saved its own result unpack it with its tangents."""
    for t in outs if outs.__class__ is tuple else (outs,):
        n = None if t is None or t.__class__ is SavedArray else t._grad_fn_
        if n is not None and n._saved and t._fw_grad:
            for k, s in n._saved.items():
                if s.__class__ is _Out and s.idx == t._output_nr and s._array is t._array:
                    n._saved[k] = _DualOut(s, t._fw_grad)


@dispatcher.register_layer("ops", "forward")
def _on_ops(entry, args, kwargs, below):
    if not state.on:
        return below(entry, args, kwargs)
    refused = REFUSED.get(entry.name.removeprefix("Tensor.").removesuffix("_"))
    if refused is not None and (refused.__class__ is str or kwargs.get(refused[1]) is not None) and dual(*args, *kwargs.values()):
        name = refused if refused.__class__ is str else refused[0]
        raise NotImplementedError(f"Trying to use forward AD with {name} that does not support it.") if "::" in name else _unsupported(name)
    if entry.recorded is not None and dual(*args, *kwargs.values()):
        return entry.recorded(*args, **kwargs)
    return below(entry, args, kwargs)


def backward(n: Node, gs: Sequence[Any]) -> Any:
    """Runs one node of a backward pass with create_graph=False.

    Gradients of duals are duals, so the rules run with recording on, which selects differentiable
    ops.
    """
    if n._prim is None or not state.on:
        return n._apply(gs)
    with _Recording(True):
        rs = n._prim.backward(n, gs)
    return _stripped(rs) if rs.__class__ is Tensor else None if rs is None else [_stripped(r) for r in rs]


def _stripped(r):
    if r is None or getattr(r, "is_sparse", False) or not recorded(r):
        return r
    t = detach(r)
    t._grad_may_alias = True
    return t


def unpacked(x: Tensor, level: int) -> Tensor:
    """Returns a view of x without its tangent at this level."""
    t: Tensor = _op("view_as")(x, x)
    if level in levels(t) or level in LEVELS:
        none(t, level)
    return t


class OpenLevels:
    """Context that opens n levels.

    If forward mode is off outside, it is switched on and the tangents of outer levels are ignored.
    """

    def __init__(self, n: int = 1) -> None:
        self.n = n

    def __enter__(self) -> list[int]:
        self.levels = open_levels(self.n)
        self.old = state.on, state.low
        if not state.on:
            state.on, state.low = True, self.levels[0].id
        return [v.id for v in self.levels]

    def __exit__(self, *exc: object) -> None:
        state.on, state.low = self.old
        close_levels(self.levels)
