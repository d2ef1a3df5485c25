"""Lazy conjugation and negation: creation, reads, writes and the dispatcher layer.

`x.conj()` is a view of x's memory with the conjugate bit, `x.conj().imag` one with the negative bit
(`mindtorch/core/bits.py`). This is the only place where an operand is materialized. A view of a
tensor with bits keeps them. Every other primitive gets a materialized copy, while its node refers
to the tensor itself.
"""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from mindtorch.backend.cpython import module_lock
from mindtorch.core import alias, bits, devices, dispatch, tape
from mindtorch.core.bits import LIVE, Bits, veiled
from mindtorch.core.grad_mode import INFERENCE, no_grad
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Const, Tensor, again, blank, put_on, version

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
        t = again(of)
    else:
        _start()
        t = blank()
        t._h = Bits(of, conj, neg)
        t._a = veiled(of)
    if of._dev is not t._dev:
        put_on(t, of._dev)
    t._when = of._when
    t._ver = version(of)
    if INFERENCE.ever and t._inference is not of._inference:
        t._inference = of._inference
    return t


def _again(t):
    h = t._h
    return with_bits(h.of, h.conj, h.neg)


def _become(t: Tensor, of: Tensor, conj: bool, neg: bool) -> None:
    """Moves a tensor that has bits, or will have them, to the memory of `of`, which has none."""
    t._h, t._a = Bits(of, conj, neg), veiled(of)
    of._ver = version(t)
    if t._dev is not of._dev:
        put_on(t, of._dev)


bits.again, bits.become = _again, _become

conj_view: Callable[[Any], Any]
neg_view: Callable[[Any], Any]
_conj = primitive("conj_view", "a", lambda c, g: conj_view(g), view=True, node="ConjBackward0")
_neg = primitive("neg_view", "a", lambda c, g: neg_view(g), view=True, node="NegViewBackward0")


def _start():
    _Layer.idle = 0
    if not _Layer.on:
        with _lock:
            if not _Layer.on:
                dispatch.want("primitives", "bits")
                _Layer.on = True


def _stop():
    with _lock:
        if _Layer.on and not LIVE:
            dispatch.drop("primitives", "bits")
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
    fn.prim.function = tape.PRIMITIVES[fn.prim.name] = flipped
    return flipped


#: View of a complex tensor with the conjugate bit flipped.
conj_view = _flipping(_conj)
#: View of any tensor with the negative bit flipped.
neg_view = _flipping(_neg)


def _flip(prim, x):
    if x._h.__class__ is Bits:
        of, conj, neg = x._h.of, x._h.conj, x._h.neg
    else:
        of, conj, neg = again(x), False, False
        of._ver = version(x)
        if of._dev is not x._dev:
            put_on(of, x._dev)
    if prim is _conj.prim:
        conj = not conj
    else:
        neg = not neg
    return tape.link(prim, with_bits(of, conj, neg), (x,), {})


# ------------------------------------------------------------------ the layer
def _on_primitives(prim, args, kw, below):
    return _bound(below)(prim, args, kw)


def _bound(below):
    def layer(prim, args, kw):
        ins = args if not prim.variadic else tuple(args[0])
        for x in ins:
            if getattr(x, "_h", None).__class__ is Bits:
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
        given = tuple([_made_whole(x, below) if getattr(x, "_h", None).__class__ is Bits else x for x in ins])
        if prim.variadic:
            given = given,
        with no_grad():
            outs = below(prim, given, dict(kw))
        return tape.link(prim, outs, ins, kw)
    return layer


_on_primitives.bound = _bound           # type: ignore[attr-defined]
dispatch.layer("primitives", "bits")(_on_primitives)


def _view(prim, ins, kw, below):
    x = ins[0]
    h = x._h
    if h.__class__ is not Bits:  # an operand used for its geometry only
        raise NotImplementedError(f"primitive '{prim.name}' of a {x.dtype} tensor on device {x._dev} with a tensor that has the conjugate or negative bit is "
                                  "not supported; call resolve_conj() or resolve_neg() on that one first")
    conj, neg = h.conj, h.neg
    if prim.name == "view_dtype" or prim.name == "real_pairs" and conj:
        raise NotImplementedError(f"primitive '{prim.name}' of a {x.dtype} tensor with the {'conjugate' if conj else 'negative'} bit on device {x._dev}")
    if conj and prim.name in ("real_view", "imag_view"):
        conj, neg = False, neg if prim.name == "real_view" else not neg
    r = below(prim, (h.of, *ins[1:]), dict(kw))  # without history
    if r.__class__ is tuple:
        return tape.link(prim, tuple([_part(t, x, conj, neg) for t in r]), ins, kw)
    return tape.link(prim, _part(r, x, conj, neg), ins, kw)


def _part(of, x, conj, neg):
    of._ver = version(x)
    return with_bits(of, conj, neg)


# ------------------------------------------------------------------ reading
def _made_whole(x, below):
    h = x._h
    r = h.of
    if h.conj:
        r = below(tape.PRIMITIVES["conj"].prim, (r,), {})
    if h.neg:
        r = below(tape.PRIMITIVES["neg"].prim, (r,), {})
    return r


def whole(x: Tensor) -> Tensor:
    """Returns a tensor with the values of x, without bits and history."""
    h: Any = x._h
    r = h.of
    with no_grad():
        if h.conj:
            r = tape.PRIMITIVES["conj"](r)
        if h.neg:
            r = tape.PRIMITIVES["neg"](r)
    return r


def _values(x):
    h = x._h
    a = devices.values(h.of)
    if h.conj:
        a = tape.PRIMITIVES["conj"].prim.compute((a,), {})
    if h.neg:
        a = tape.PRIMITIVES["neg"].prim.compute((a,), {})
    return a


bits.values, bits.whole = _values, whole


# ------------------------------------------------------------------ writing
def _turned(x, r):
    h = x._h
    if h.__class__ is not Bits:
        return r
    with no_grad():
        if r.__class__ is Const:
            a = alias.cast_array(r._a, x._stype)
            a = np.conj(a) if h.conj else a
            r = Const(0, x._stype)
            r._a = tape.PRIMITIVES["neg"].prim.compute((a,), {}) if h.neg else a
            return r
        r = devices.cast(r, x._stype)
        if h.conj:
            r = tape.PRIMITIVES["conj"](r)
        return tape.PRIMITIVES["neg"](r) if h.neg else r


def _write(x, r):
    of, r = x._h.of, _turned(x, r)
    if of._h is not None:
        return devices.write(of, r)
    if of._dev.type != "meta":
        of._a[...] = devices.values(r)


# ------------------------------------------------------------------ histories
def between(view: Tensor, base: Tensor) -> tuple[bool, bool]:
    """Returns (conjugated, negated): how a view differs from its region of the base."""
    conj, neg = bits.bits_of(view)
    base_conj, base_neg = bits.bits_of(base)
    if view._stype.kind == base._stype.kind:
        return conj != base_conj, neg != base_neg
    # The view is the real or imaginary part of complex numbers: the base's conjugate bit negates
    # the imaginary part.
    offset = alias.geometry(view, base)[2] % base._stype.itemsize
    return False, neg != (base_neg != (base_conj and offset != 0))


def _related(view, base, r):
    conj, neg = between(view, base)
    if conj:
        r = tape.PRIMITIVES["conj"](r)
    return tape.PRIMITIVES["neg"](r) if neg else r


def _turning(node, view, base):
    for name, on in zip(("conj", "neg"), between(view, base)):
        if on:
            prim = tape.PRIMITIVES[name].prim
            n = tape.new_node(prim.node_class)
            n.prim, n.edges, n.meta, n.kw = prim, [(node, 0)], node.meta, {}
            node = n
    return node


bits.write, bits.turned, bits.related, bits.turning = _write, _turned, _related, _turning
