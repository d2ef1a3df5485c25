"""Lazy conjugation and negation: creation, reads, writes and the dispatcher layer.

`x.conj()` is a view of x's memory with the conjugate bit, `x.conj().imag` one with the negative bit
(`mindtorch/core/tensor/conj_neg_bits.py`). This is the only place where an operand is materialized. A view of a
tensor with bits keeps them. Every other primitive gets a materialized copy, while its node refers
to the tensor itself.
"""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.cpython import module_lock
from mindtorch.core.tensor import inplace, conj_neg_bits
from mindtorch.core.device import device_dispatch
from mindtorch.core.dispatch import dispatcher, primitives
from mindtorch.core.tensor.conj_neg_bits import LIVE, ConjNegBits, unmaterialized
from mindtorch.core.autograd.grad_mode import INFERENCE, no_grad
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import ScalarOperand, Tensor, shallow_copy, empty_tensor, set_device, version_counter

_lock = module_lock(globals(), "_lock", threading.RLock)


class _Layer:
    """State of the layer: whether it is active, and its consecutive idle calls."""

    on = False
    idle = 0


#: Idle calls after which the layer is removed. Removing and adding it takes 5 us, an idle call 0.5
#: us.
_ENOUGH = 64


# ------------------------------------------------------------------ creation
def with_bits(of: Tensor, conj: bool, neg: bool) -> Tensor:
    """Returns a tensor with the conjugated or negated values of `of`, without history.

    It shares the memory of `of`, which has no bits.
    """
    if not (conj or neg):
        t = shallow_copy(of)
    else:
        _start()
        t = empty_tensor()
        t._handle = ConjNegBits(of, conj, neg)
        t._array = unmaterialized(of)
    if of._device is not t._device:
        set_device(t, of._device)
    t._enqueue_epoch = of._enqueue_epoch
    t._version_counter = version_counter(of)
    if INFERENCE.ever and t._inference is not of._inference:
        t._inference = of._inference
    return t


def _shallow_copy(t):
    h = t._handle
    return with_bits(h.of, h.conj, h.neg)


def _set_memory(t: Tensor, of: Tensor, conj: bool, neg: bool) -> None:
    """Moves a tensor that has bits, or will have them, to the memory of `of`, which has none."""
    t._handle, t._array = ConjNegBits(of, conj, neg), unmaterialized(of)
    of._version_counter = version_counter(t)
    if t._device is not of._device:
        set_device(t, of._device)


conj_view: Callable[[Any], Any]
neg_view: Callable[[Any], Any]
_conj = primitive("conj_view", "a", lambda ctx, grad: conj_view(grad), view=True, node="ConjBackward0", aten="_conj.default")
_neg = primitive("neg_view", "a", lambda ctx, grad: neg_view(grad), view=True, node="NegViewBackward0", aten="_neg_view.default")


def _start():
    _Layer.idle = 0
    if not _Layer.on:
        with _lock:
            if not _Layer.on:
                dispatcher.enable_layer("primitives", "bits")
                _Layer.on = True


def _stop():
    with _lock:
        if _Layer.on and not LIVE:
            dispatcher.disable_layer("primitives", "bits")
            _Layer.on = False


def _flipping(fn):
    def flipped(a):
        token = object()
        LIVE.add(id(token))  # keeps the layer active until it has seen this call
        try:
            _start()
            return fn(a)
        finally:
            LIVE.discard(id(token))
    flipped.__name__, flipped.prim = fn.__name__, fn.prim
    fn.prim.function = primitives.PRIMITIVES[fn.prim.name] = flipped
    return flipped


#: View of a complex tensor with the conjugate bit flipped.
conj_view = _flipping(_conj)
#: View of any tensor with the negative bit flipped.
neg_view = _flipping(_neg)


def _flip(prim, x):
    if x._handle.__class__ is ConjNegBits:
        of, conj, neg = x._handle.of, x._handle.conj, x._handle.neg
    else:
        of, conj, neg = shallow_copy(x), False, False
        of._version_counter = version_counter(x)
        if of._device is not x._device:
            set_device(of, x._device)
    if prim is _conj.prim:
        conj = not conj
    else:
        neg = not neg
    return primitives.link(prim, with_bits(of, conj, neg), (x,), {})


# ------------------------------------------------------------------ the layer
def _on_primitives(prim, args, kw, below):
    return _bound(below)(prim, args, kw)


def _bound(below):
    def layer(prim, args, kw):
        ins = args if not prim.variadic else tuple(args[0])
        for x in ins:
            if getattr(x, "_handle", None).__class__ is ConjNegBits:
                break
        else:
            if prim is _conj.prim or prim is _neg.prim:
                return _flip(prim, ins[0])
            if not LIVE:
                _Layer.idle += 1
                if _Layer.idle > _ENOUGH:
                    _stop()
            return below(prim, args, kw)
        if prim.view or prim.shares:
            return _flip(prim, x) if prim is _conj.prim or prim is _neg.prim else _view(prim, ins, kw, below)
        given = tuple([_resolved_call(x, below) if getattr(x, "_handle", None).__class__ is ConjNegBits else x for x in ins])
        if prim.variadic:
            given = given,
        with no_grad():
            outs = below(prim, given, dict(kw))
        return primitives.link(prim, outs, ins, kw)
    return layer


_on_primitives.bound = _bound           # type: ignore[attr-defined]
dispatcher.register_layer("primitives", "bits")(_on_primitives)


def _view(prim, ins, kw, below):
    x = ins[0]
    h = x._handle
    if h.__class__ is not ConjNegBits:  # an operand used for its geometry only
        raise NotImplementedError(f"primitive '{prim.name}' of a {x.dtype} tensor on device {x._device} with a tensor that has the conjugate or negative bit "
                                  f"is "
                                  "not supported; call resolve_conj() or resolve_neg() on that one first")
    conj, neg = h.conj, h.neg
    if prim.name == "view_dtype" or prim.name == "real_pairs" and conj:
        raise NotImplementedError(f"primitive '{prim.name}' of a {x.dtype} tensor with the {'conjugate' if conj else 'negative'} bit on device {x._device}")
    if conj and prim.name in ("real_view", "imag_view"):
        conj, neg = False, neg if prim.name == "real_view" else not neg
    r = below(prim, (h.of, *ins[1:]), dict(kw))  # without history
    if r.__class__ is tuple:
        return primitives.link(prim, tuple([_part(t, x, conj, neg) for t in r]), ins, kw)
    return primitives.link(prim, _part(r, x, conj, neg), ins, kw)


def _part(of, x, conj, neg):
    of._version_counter = version_counter(x)
    return with_bits(of, conj, neg)


# ------------------------------------------------------------------ reading
def _resolved_call(x, below):
    h = x._handle
    r = h.of
    if h.conj:
        r = below(primitives.PRIMITIVES["conj"].prim, (r,), {})
    if h.neg:
        r = below(primitives.PRIMITIVES["neg"].prim, (r,), {})
    return r


def resolved(x: Tensor) -> Tensor:
    """Returns a tensor with the values of x, without bits and history."""
    h: Any = x._handle
    r = h.of
    with no_grad():
        if h.conj:
            r = primitives.PRIMITIVES["conj"](r)
        if h.neg:
            r = primitives.PRIMITIVES["neg"](r)
    return r


def _values(x):
    h = x._handle
    a = device_dispatch.to_host(h.of)
    if h.conj:
        a = primitives.PRIMITIVES["conj"].prim.compute((a,), {})
    if h.neg:
        a = primitives.PRIMITIVES["neg"].prim.compute((a,), {})
    return a



# ------------------------------------------------------------------ writing
def _turned(x, r):
    h = x._handle
    if h.__class__ is not ConjNegBits:
        return r
    with no_grad():
        if r.__class__ is ScalarOperand:
            a = inplace.cast_array(r._array, x._np_dtype)
            a = np.conj(a) if h.conj else a
            r = ScalarOperand(0, x._np_dtype)
            r._array = primitives.PRIMITIVES["neg"].prim.compute((a,), {}) if h.neg else a
            return r
        r = device_dispatch.cast(r, x._np_dtype)
        if h.conj:
            r = primitives.PRIMITIVES["conj"](r)
        return primitives.PRIMITIVES["neg"](r) if h.neg else r


def _write(x, r):
    of, r = x._handle.of, _turned(x, r)
    if of._handle is not None:
        return device_dispatch.write(of, r)
    if of._device.type != "meta":
        of._array[...] = device_dispatch.to_host(r)


# ------------------------------------------------------------------ histories
def between(view: Tensor, base: Tensor) -> tuple[bool, bool]:
    """Returns (conjugated, negated): how a view differs from its region of the base."""
    conj, neg = conj_neg_bits.bits_of(view)
    base_conj, base_neg = conj_neg_bits.bits_of(base)
    if view._np_dtype.kind == base._np_dtype.kind:
        return conj != base_conj, neg != base_neg
    # The view is the real or imaginary part of complex numbers: the base's conjugate bit negates
    # the imaginary part.
    offset = inplace.geometry(view, base)[2] % base._np_dtype.itemsize
    return False, neg != (base_neg != (base_conj and offset != 0))


def _related(view, base, r):
    conj, neg = between(view, base)
    if conj:
        r = primitives.PRIMITIVES["conj"](r)
    return primitives.PRIMITIVES["neg"](r) if neg else r


def _turning(node, view, base):
    for name, on in zip(("conj", "neg"), between(view, base)):
        if on:
            prim = primitives.PRIMITIVES[name].prim
            n = primitives.new_node(prim.node_class)
            n._prim, n._next_edges, n._input_metadata, n._attrs = prim, [(node, 0)], node._input_metadata, {}
            node = n
    return node

