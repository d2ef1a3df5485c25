"""MindSpore's functional gradients over facade tensors.

Inside `mindspore.value_and_grad(fn, ...)` MindSpore records its own autograd graph. Every mindtorch
node is then also registered there as a custom function whose backward is the node's own rule. So
facade code, MindSpore ops and parameters can be mixed freely, and a PyTorch-style `backward()`
outside is not affected.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindtorch.backend.mindspore.private import NativeFunction, native_recording  # noqa: F401
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import conj_neg_bits
from mindtorch.core.autograd import grad_mode
from mindtorch.core.autograd.validate_grad import validate_grad
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.tensor import Tensor, adopt, bind_native_memory, is_tensor


class _Step:
    __slots__ = ("node", "outs", "where", "metas")

    def __init__(self, node, outs, where, metas):
        self.node, self.outs, self.where, self.metas = node, outs, where, metas


def _native(t):
    """Returns the tensor that MindSpore's autograd receives for a gradient."""
    if t._handle.__class__ is conj_neg_bits.ConjNegBits:
        t = hooks.bits_resolved(t)
    return t if t._handle is None else t._handle


class _Native(NativeFunction):
    @staticmethod
    def forward(ctx, step, *tensors):
        ctx.step = step
        return step.outs if len(step.outs) > 1 else step.outs[0]

    @staticmethod
    def backward(ctx, *gs):
        step = ctx.step
        node = step.node
        # Where MindSpore records this as well, for a second derivative, the rules are recorded too.
        # The results that they read must then be the result tensors themselves, which MindSpore
        # tracks; a node saves only their memory.
        old, mode.on = mode.on, native_recording()
        saved = node._saved
        if mode.on and saved:
            by_output_nr = {o._output_nr: o for o in step.outs}
            node._saved = {k: (by_output_nr[s.idx], s.ver, s.at) if getattr(s, "idx", None) in by_output_nr else s for k, s in saved.items()}
        try:
            dev = step.outs[0]._device
            gs = [None if g is None else adopt(g, dev) for g in gs]
            # MindSpore passes zeros for outputs without a gradient (integers); the rules expect
            # None.
            gs = [None if m is None else g for g, m in zip(gs, node._input_metadata)]
            res = list(node._apply(gs))
            out = []
            for i, meta in zip(step.where, step.metas):
                r = res[i] if i < len(res) else None
                out.append(None if r is None else _native(validate_grad(r, meta, node.name())))
        finally:
            node._saved = saved
            grad_mode._switch(old)
        return (None, *out)


def link(node: Any, outs: Any, ins: Sequence[Any]) -> None:
    """Registers a node with MindSpore's autograd.

    outs, ins: result and operand Tensors of the operation.
    """
    where = [i for i, x in enumerate(ins) if is_tensor(x)]
    tensors = [ins[i] for i in where]
    if not any(t._requires_grad for t in tensors):
        return
    metas = [(t._array.shape, t._array.dtype) for t in tensors]
    outs = tuple(o for o in (outs if outs.__class__ is tuple else (outs,)) if is_tensor(o))
    for t in (*tensors, *outs):
        if t._handle is not None:
            bind_native_memory(t)
    _Native.apply(_Step(node, outs, where, metas), *tensors)


class _Written(NativeFunction):
    """Attaches a gradient rule to `x` after an in-place write.

    The rule maps the gradient of `x` to the gradients of its old value and of the other operands.
    """

    @staticmethod
    def forward(ctx, rule, x, *others):
        ctx.rule, ctx.dev = rule, x._device
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        if g is None:
            return (None,) * (len(ctx.needs_input_grad))
        old, mode.on = mode.on, False
        try:
            return (None, *[None if r is None else _native(r) for r in ctx.rule(adopt(g, ctx.dev))])
        finally:
            grad_mode._switch(old)


def link_write(rule: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor, *others: Tensor) -> None:
    """Registers an in-place write with MindSpore's autograd; see `_Written`."""
    if x._requires_grad or any(o._requires_grad for o in others):
        for t in (x, *others):
            if t._handle is not None:
                bind_native_memory(t)
        _Written.apply(rule, x, *others)
