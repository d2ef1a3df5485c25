"""Saved tensors while saved-tensor hooks are active: hooks see the tensors that PyTorch's nodes
save, at the time PyTorch saves them.

Without hooks, a node saves what its rules read, partly as raw kernel outputs (`held`). Hooks see
every tensor that a node saves: the operands before the kernel runs, so that a hook that raises (a
checkpoint that has recomputed enough) avoids the kernel, and the rest afterwards. Where PyTorch's
node saves other tensors, `tells` declares them, and the rules derive what they read from those.
"""
from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

from mindtorch.core.dispatch import layer
from mindtorch.core.grad_mode import mode, no_grad
from mindtorch.core.nodes import Node, _packed, _save, _unpack, _version_of, hooks_here
from mindtorch.core.tape import Primitive, PrimitiveFunction, Rule
from mindtorch.core.tensor import Const, Held, Parameter, Tensor, shown

#: a tensor that a node saves: an operand's name, or (operand's name, function that computes the
#: tensor passed to hooks, function that restores the operand)
Before: TypeAlias = "str | tuple[str, Callable[[Any], Tensor], Callable[[Any], Tensor]]"

_KNOWN = frozenset((Tensor, Parameter, Const, Held, type(None)))


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Context manager: ops inside record nothing and are hidden from all modes.

    For results that are a by-product of PyTorch's kernel.
    """
    before, hooks_here.aside = hooks_here.aside, True
    try:
        with no_grad():
            yield
    finally:
        hooks_here.aside = before


@contextlib.contextmanager
def later(**more: Tensor | None) -> Iterator[None]:
    """Context manager that packs what nodes save after their kernels at the end of the block.

    For a sequence of ops that is one kernel in PyTorch. more: additional operands that the nodes
    save.
    """
    outer = hooks_here.later, hooks_here.more
    hooks_here.later, hooks_here.more = [], more
    try:
        yield
        for finish in hooks_here.later:
            finish()
    finally:
        hooks_here.later, hooks_here.more = outer


class Told:
    """Specification of what PyTorch's node of a primitive saves."""

    def __init__(self, prim: Primitive, before: Callable[[Any], Sequence[Before]], after: Callable[[Any], Sequence[Any]],
                 restored: Callable[[dict[str, Any], Node], None] | None, rule: Rule | None, again: Primitive) -> None:
        self.before, self.after = before, after
        shown_prim: Any = copy.copy(prim)
        shown_prim.__class__ = _Shown
        shown_prim.again, shown_prim.restored, shown_prim.told, shown_prim._masks = again, restored, None, {}
        if rule is not None:
            shown_prim.grads = (rule, *prim.grads[1:])
        self.shown: Primitive = shown_prim

    def run(self, prim: Primitive, args: Any, kw: dict[str, Any], below: Callable[..., Any], needed: Any) -> Any:
        """Runs the primitive so that hooks see these tensors."""
        named = dict(zip(prim.inputs, args))
        c = SimpleNamespace(**named, **kw)
        outer = hooks_here.early
        hooks_here.early = None
        packed: dict[str, Any] = {}
        try:
            for what in self.before(c):
                _keep(what, named, packed)
            for name, t in hooks_here.more.items():
                if t is not None:
                    _save(name, t, packed)
            early: dict[tuple[str, int], Any] = {}
            for n, i in needed[0]:
                x = args[i]
                if x is not None and x.__class__ is not Held and x.__class__ is not Const:
                    v = _version_of(x)
                    early[n, id(x)] = packed[n] if n in packed else (x, v, v.v)
            hooks_here.early = early
            outs = below(prim, args, kw)
        finally:
            hooks_here.early = outer
        node = _node_of(prim, outs)
        if node is None:
            return outs
        node.vals = {n: s for n, s in (node.vals or {}).items() if s.__class__ is not Held}
        node.vals.update(packed)
        node.prim = self.shown
        for i, t in enumerate(outs if outs.__class__ is tuple else (outs,)):
            setattr(c, f"out{i}", shown(t) if t.__class__ is Held else t if t is None else t.detach())
        if hooks_here.later is None:
            self._finish(node, named, c)
        else:
            hooks_here.later.append(lambda: self._finish(node, named, c))
        return outs

    def _finish(self, node: Any, named: dict[str, Any], c: Any) -> None:
        with aside():
            after = list(self.after(c))
        for what in after:
            if what.__class__ is tuple and len(what) == 2:
                _save(what[0], what[1], node.vals)
            else:
                _keep(what, named, node.vals)


def _keep(what, named, kept):
    """Packs an operand with the current hooks."""
    if what.__class__ is str:
        if named[what] is not None:
            kept[what] = None
            _save(what, named[what], kept)
        return
    name, make, back = what
    x = named[name]
    if x is None:
        return
    pack, unpack = hooks_here.pairs[-1]
    with aside():
        given = make(x)
    edge = None if not x._rg else x if x._gnode is None else (x._gnode, x._oi)

    def unpacked(value):
        with aside():
            return back(unpack(value))
    kept[name] = _packed(given, pack, unpacked, edge)


class _Shown(Primitive):
    """A primitive whose nodes save the same tensors as PyTorch's."""

    again: Primitive
    restored: Callable[[dict[str, Any], Node], None] | None

    def backward(self, node: Any, gs: Any) -> Any:
        return Primitive.backward(self, _Restored(node), gs)        # type: ignore[arg-type]


class _Restored:
    """What rules read from such a node: saved tensors and kernel results.

    Results that were not saved are recomputed by the kernel.
    """

    def __init__(self, node: Any) -> None:
        self._node, self._values = node, {k: _unpack(node, s, k) for k, s in (node.vals or {}).items()}
        if self._values and node.prim.restored is not None:
            with aside():
                node.prim.restored(self._values, node)

    def __getattr__(self, name: str) -> Any:
        values, node = self._values, self._node
        if name in values:
            return values[name]
        if values and re.fullmatch(r"out\d+", name):
            prim = node.prim.again
            with aside():
                outs = prim.function(*[values.get(n) for n in prim.inputs], **{n: node.kw[n] for n in prim.statics})
            for i, t in enumerate(outs if outs.__class__ is tuple else (outs,)):
                values.setdefault(f"out{i}", t)
            return values[name]
        return getattr(node, name)


def tells(fn: PrimitiveFunction, *before: Before, ahead: Callable[[Any], Sequence[Before]] | None = None,
          after: Callable[[Any], Sequence[Any]] = lambda c: (), restored: Callable[[dict[str, Any], Node], None] | None = None,
          rule: Rule | None = None, again: PrimitiveFunction | None = None) -> None:
    """Declares what PyTorch's node of a primitive saves.

        before    the operands, in order (ahead: function that returns them for a call)
        after     (c) -> what is saved after the kernel: pairs (name, tensor) or operands, computed
                  from operands, constants and results (c.out0, ...)
        restored  (values, node): adds what the rules read to `values`, which holds the saved
                  tensors; missing results are recomputed
        rule      the gradient rule of such a node, if it is not the primitive's own
        again     the primitive that recomputes those results, if the kernel does more than that
    """
    fn.prim.told = Told(fn.prim, ahead or (lambda c: before), after, restored, rule, (again or fn).prim)


def _node_of(prim, outs):
    for t in outs if outs.__class__ is tuple else (outs,):
        if t is not None and t.__class__ is not Held and t._gnode is not None and t._gnode.prim is prim:
            return t._gnode
    return None


@layer("primitives", "saves")
def _pack(prim, args, kw, below):
    """Dispatcher layer: passes what a node will save to the saved-tensor hooks."""
    if not (hooks_here.pairs and mode.on and prim.grads) or prim.variadic:
        return below(prim, args, kw)
    mask = 0
    for i, x in enumerate(args):
        if x is not None and x._rg and i not in prim.ruleless:
            mask |= 1 << i
    if not mask:
        return below(prim, args, kw)
    needed = prim._masks.get(mask) or prim.needed(mask)
    if prim.told is not None and all([x.__class__ in _KNOWN for x in args]):
        return prim.told.run(prim, args, kw, below, needed)
    outer = hooks_here.early
    hooks_here.early, early = None, {}
    try:
        for n, i in needed[0]:
            x = args[i]
            if x is not None and x.__class__ is not Held and x.__class__ is not Const:
                kept = {}
                _save(n, x, kept)
                early[n, id(x)] = kept[n]
        hooks_here.early = early
        outs = below(prim, args, kw)
    finally:
        hooks_here.early = outer
    if prim.held or any([x.__class__ is Held for x in args]):
        node = _node_of(prim, outs)
        for n, s in sorted((node.vals or {}).items()) if node is not None else ():
            if s.__class__ is Held:
                _save(n, shown(s), node.vals)
    return outs


__all__ = ["Told", "aside", "later", "tells"]
