"""Saved tensors while saved-tensor hooks are active: hooks see the tensors that PyTorch's nodes
save, at the time PyTorch saves them.

Without hooks, a node saves what its rules read, partly as raw kernel outputs (`residuals`). Hooks see
every tensor that a node saves: the operands before the kernel runs, so that a hook that raises (a
checkpoint that has recomputed enough) avoids the kernel, and the rest afterwards. Where PyTorch's
node saves other tensors, `declare_saved` declares them, and the rules derive what they read from those.
"""
from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

from mindtorch.core.dispatch.dispatcher import register_layer
from mindtorch.core.autograd.grad_mode import mode, no_grad
from mindtorch.core.autograd.graph import Node, _packed, _save, _unpack, _version_of, hooks_here
from mindtorch.core.dispatch.primitives import Primitive, PrimitiveFunction, Rule
from mindtorch.core.tensor.tensor import ScalarOperand, SavedArray, Parameter, Tensor, saved_to_tensor

#: a tensor that a node saves: an operand's name, or (operand's name, function that computes the
#: tensor passed to hooks, function that restores the operand)
Before: TypeAlias = "str | tuple[str, Callable[[Any], Tensor], Callable[[Any], Tensor]]"

_KNOWN = frozenset((Tensor, Parameter, ScalarOperand, SavedArray, type(None)))


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
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
def after_kernel(**more: Tensor | None) -> Iterator[None]:
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


class SavedSpec:
    """Specification of what PyTorch's node of a primitive saves."""

    def __init__(self, prim: Primitive, before: Callable[[Any], Sequence[Before]], after: Callable[[Any], Sequence[Any]],
                 restored: Callable[[dict[str, Any], Node], None] | None, rule: Rule | None, recompute: Primitive) -> None:
        self.before, self.after = before, after
        node_prim: Any = copy.copy(prim)
        node_prim.__class__ = _SavingPrimitive
        node_prim.recompute, node_prim.restored, node_prim.saved_spec, node_prim._masks = recompute, restored, None, {}
        if rule is not None:
            node_prim.grads = (rule, *prim.grads[1:])
        self.prim: Primitive = node_prim

    def run(self, prim: Primitive, args: Any, kw: dict[str, Any], below: Callable[..., Any], needed: Any) -> Any:
        """Runs the primitive so that hooks see these tensors."""
        named = dict(zip(prim.inputs, args))
        c = SimpleNamespace(**named, **kw)
        outer = hooks_here.early
        hooks_here.early = None
        packed: dict[str, Any] = {}
        try:
            for what in self.before(c):
                _pack_operand(what, named, packed)
            for name, t in hooks_here.more.items():
                if t is not None:
                    _save(name, t, packed)
            early: dict[tuple[str, int], Any] = {}
            for n, i in needed[0]:
                x = args[i]
                if x is not None and x.__class__ is not SavedArray and x.__class__ is not ScalarOperand:
                    v = _version_of(x)
                    early[n, id(x)] = packed[n] if n in packed else (x, v, v.v)
            hooks_here.early = early
            outs = below(prim, args, kw)
        finally:
            hooks_here.early = outer
        node = _node_of(prim, outs)
        if node is None:
            return outs
        node._saved = {n: s for n, s in (node._saved or {}).items() if s.__class__ is not SavedArray}
        node._saved.update(packed)
        node._prim = self.prim
        for i, t in enumerate(outs if outs.__class__ is tuple else (outs,)):
            setattr(c, f"out{i}", saved_to_tensor(t) if t.__class__ is SavedArray else t if t is None else t.detach())
        if hooks_here.later is None:
            self._finish(node, named, c)
        else:
            hooks_here.later.append(lambda: self._finish(node, named, c))
        return outs

    def _finish(self, node: Any, named: dict[str, Any], c: Any) -> None:
        with unrecorded():
            after = list(self.after(c))
        for what in after:
            if what.__class__ is tuple and len(what) == 2:
                _save(what[0], what[1], node._saved)
            else:
                _pack_operand(what, named, node._saved)


def _pack_operand(what, named, saved):
    """Packs an operand with the current hooks."""
    if what.__class__ is str:
        if named[what] is not None:
            saved[what] = None
            _save(what, named[what], saved)
        return
    name, make, inverse = what
    x = named[name]
    if x is None:
        return
    pack, unpack = hooks_here.pairs[-1]
    with unrecorded():
        given = make(x)
    edge = None if not x._requires_grad_ else x if x._grad_fn_ is None else (x._grad_fn_, x._output_nr)

    def unpacked(value):
        with unrecorded():
            return inverse(unpack(value))
    saved[name] = _packed(given, pack, unpacked, edge)


class _SavingPrimitive(Primitive):
    """A primitive whose nodes save the same tensors as PyTorch's."""

    recompute: Primitive
    restored: Callable[[dict[str, Any], Node], None] | None

    def backward(self, node: Any, gs: Any) -> Any:
        return Primitive.backward(self, _Restored(node), gs)        # type: ignore[arg-type]


class _Restored:
    """What rules read from such a node: saved tensors and kernel results.

    Results that were not saved are recomputed by the kernel.
    """

    def __init__(self, node: Any) -> None:
        self._node, self._values = node, {k: _unpack(node, s, k) for k, s in (node._saved or {}).items()}
        if self._values and node._prim.restored is not None:
            with unrecorded():
                node._prim.restored(self._values, node)

    def __getattr__(self, name: str) -> Any:
        values, node = self._values, self._node
        if name in values:
            return values[name]
        if values and re.fullmatch(r"out\d+", name):
            prim = node._prim.recompute
            with unrecorded():
                outs = prim.function(*[values.get(n) for n in prim.inputs], **{n: node._attrs[n] for n in prim.attrs})
            for i, t in enumerate(outs if outs.__class__ is tuple else (outs,)):
                values.setdefault(f"out{i}", t)
            return values[name]
        return getattr(node, name)


def declare_saved(fn: PrimitiveFunction, *before: Before, ahead: Callable[[Any], Sequence[Before]] | None = None,
                  after: Callable[[Any], Sequence[Any]] = lambda c: (), restored: Callable[[dict[str, Any], Node], None] | None = None,
                  rule: Rule | None = None, recompute: PrimitiveFunction | None = None) -> None:
    """Declares what PyTorch's node of a primitive saves.

        before    the operands, in order (ahead: function that returns them for a call)
        after     (c) -> what is saved after the kernel: pairs (name, tensor) or operands, computed
                  from operands, constants and results (c.out0, ...)
        restored  (values, node): adds what the rules read to `values`, which holds the saved
                  tensors; missing results are recomputed
        rule      the gradient rule of such a node, if it is not the primitive's own
        recompute  the primitive that recomputes those results, if the kernel does more than that
    """
    fn.prim.saved_spec = SavedSpec(fn.prim, ahead or (lambda c: before), after, restored, rule, (recompute or fn).prim)


def _node_of(prim, outs):
    for t in outs if outs.__class__ is tuple else (outs,):
        if t is not None and t.__class__ is not SavedArray and t._grad_fn_ is not None and t._grad_fn_._prim is prim:
            return t._grad_fn_
    return None


@register_layer("primitives", "saves")
def _pack(prim, args, kw, below):
    """Dispatcher layer: passes what a node will save to the saved-tensor hooks."""
    if not (hooks_here.pairs and mode.on and prim.grads) or prim.variadic:
        return below(prim, args, kw)
    mask = 0
    for i, x in enumerate(args):
        if x is not None and x._requires_grad_ and i not in prim.ruleless:
            mask |= 1 << i
    if not mask:
        return below(prim, args, kw)
    needed = prim._masks.get(mask) or prim.needed(mask)
    if prim.saved_spec is not None and all([x.__class__ in _KNOWN for x in args]):
        return prim.saved_spec.run(prim, args, kw, below, needed)
    outer = hooks_here.early
    hooks_here.early, early = None, {}
    try:
        for n, i in needed[0]:
            x = args[i]
            if x is not None and x.__class__ is not SavedArray and x.__class__ is not ScalarOperand:
                saved = {}
                _save(n, x, saved)
                early[n, id(x)] = saved[n]
        hooks_here.early = early
        outs = below(prim, args, kw)
    finally:
        hooks_here.early = outer
    if prim.residuals or any([x.__class__ is SavedArray for x in args]):
        node = _node_of(prim, outs)
        for n, s in sorted((node._saved or {}).items()) if node is not None else ():
            if s.__class__ is SavedArray:
                _save(n, saved_to_tensor(s), node._saved)
    return outs


__all__ = ["SavedSpec", "unrecorded", "after_kernel", "declare_saved"]
