"""`__torch_dispatch__`: modes and tensor subclasses with that method intercept calls at the level
of aten operators, below autograd.

This is a layer of the dispatcher (`mindtorch/core/dispatch/dispatcher.py`), active while such tensors exist or
a mode is on. It intercepts primitives. `mindtorch/torch/_aten_calls.py` maps each primitive to
aten's name and arguments, and the handler is called without recording. Its result gets the
primitive's autograd node, so gradients are computed by further primitives, which are intercepted in
turn. Calls that are no primitive (in-place writes, `detach`, `item`) are intercepted as ops.

Ops that are a single operator in aten but not here are dispatched as that operator
(`mindtorch/torch/_aten_whole.py`), registered operators as themselves (`mindtorch/torch/_ops.py`),
layers and their gradients as aten's (`mindtorch/torch/_aten_layers.py`).

Differences from PyTorch: any other op arrives as the primitives that it is composed of here. A
primitive that aten has no operator for becomes an operator of the namespace `mindtorch`; dropout,
recurrent layers and fft are examples. An in-place write while gradients are recorded arrives as the
operator that computes the value, followed by `copy_` for a tensor of such a class. Calls that
neither read nor compute values (sizes, `requires_grad_`) do not arrive.
"""
import threading
import weakref

import numpy as np

from mindtorch.backend.device import reserve_address_range, view_of
from mindtorch.backend.mindspore.private import MSTensor
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import inplace, tensor_wrappers
from mindtorch.core.dispatch import dispatcher
from mindtorch.core.autograd import graph as autograd_graph
from mindtorch.core.compile import tracing
from mindtorch.core.tensor.dtypes import of_np
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.op_registry import any_grad
from mindtorch.core.dispatch.primitives import Node, link
from mindtorch.core.tensor.tensor import ScalarOperand, SavedArray, Parameter, Tensor, VersionCounter, empty_tensor, bump_version, set_device, set_requires_grad, saved_to_tensor, is_tensor
from mindtorch.torch import _aten_calls, _aten_layer_table, _aten_layers, _aten_whole, _meta, _ops  # noqa: F401 (the table fills what _aten_layers holds)
from mindtorch.torch._function_protocol import collect

CAPTURE = "followed"


class State(threading.local):
    """Per-thread state: the active modes, the nesting depth of disabled class dispatch, and whether
    the caller of the innermost handler records gradients."""

    modes = ()
    off = 0
    recorded = True


state = State()


# ------------------------------------------------------------------ participating tensors
class _Live:
    """Weak references to the live tensors of such classes, by id, and the number of calls that
    found none."""

    refs = {}
    idle = 0
    wanted = False


_takes = {Tensor: False, Parameter: False}


def _enabled(found):
    f = getattr(found, "__func__", found)
    return f is not _disabled and getattr(f, "__name__", "") != "_disabled_torch_dispatch_impl"


def takes_part(x):
    """True if a tensor's class defines its own `__torch_dispatch__`."""
    cls = x.__class__
    try:
        return _takes[cls]
    except KeyError:
        found = getattr(cls, "__torch_dispatch__", None)
        r = _takes[cls] = found is not None and _enabled(found) and issubclass(cls, Tensor)
        return r


def _disabled(cls, func, types, args=(), kwargs=None):
    state.off += 1
    try:
        return func(*args, **(kwargs or {}))
    finally:
        state.off -= 1


class disabled:
    """Context manager that disables dispatch to modes and classes: operators are computed as for
    plain tensors."""

    def __enter__(self):
        self._modes, state.modes = state.modes, ()
        state.off += 1

    def __exit__(self, *exc):
        state.off -= 1
        state.modes = self._modes


def disabled_impl(func, types, args=(), kwargs=None):
    """`__torch_dispatch__` implementation that computes the operator as for a plain tensor."""
    return _disabled(None, func, types, args, kwargs)


Tensor.__torch_dispatch__ = classmethod(_disabled)


def activate():
    """Starts intercepting calls. Each call must be matched by `deactivate`."""
    dispatcher.enable_layer("primitives", "dispatch")
    dispatcher.enable_layer("ops", "dispatch")


def deactivate():
    """Undoes one `activate`."""
    dispatcher.disable_layer("primitives", "dispatch")
    dispatcher.disable_layer("ops", "dispatch")


def enrol(t):
    """Records that a tensor of such a class exists."""
    key = id(t)
    if key not in _Live.refs:
        _Live.refs[key] = weakref.ref(t, lambda _: _Live.refs.pop(key, None))
    _Live.idle = 0
    if not _Live.wanted:
        _Live.wanted = True
        activate()


def _changed(t):
    """Updates the records after a tensor's class changed."""
    if not takes_part(t):
        _Live.refs.pop(id(t), None)
    elif id(t) not in _Live.refs:
        enrol(t)


def _nobody():
    """Called if no mode is on and no operand participates. After more than 500 such calls without
    live tensors of such classes, interception is deactivated so that calls regain their full speed.
    """
    if _Live.wanted and not _Live.refs:
        _Live.idle += 1
        if _Live.idle > 500:
            _Live.wanted = False
            deactivate()


def _listed(t):
    """Returns the number of weak references to a tensor that only track its lifetime."""
    return (id(t) in _Live.refs) + tensor_wrappers.is_wrapped(t)


hooks.count_weakrefs = _listed


def takes_part_class(cls):
    """True if tensors of a class participate."""
    if cls not in _takes:
        found = getattr(cls, "__torch_dispatch__", None)
        _takes[cls] = found is not None and _enabled(found)
    return _takes[cls]


def make_wrapper(cls, size, strides, storage_offset, dtype, device, requires_grad):
    """Returns a tensor of a class with `__torch_dispatch__` that reports a geometry but has no
    memory."""
    t = _new(cls)
    t._array = _placed(tuple(int(n) for n in size), dtype.np, None if strides is None else tuple(int(s) for s in strides), int(storage_offset or 0))
    t._handle = tensor_wrappers.SubclassHandle(t)
    if device is not None and device.type == "meta":
        t._device = device  # only the reported device; there is no memory in any case
    elif device is not None:
        set_device(t, device)
    enrol(t)
    hooks.subclass_made(cls)
    if requires_grad:
        set_requires_grad(t, True)
    return t


def _new(cls):
    # A class with `__slots__` cannot be assigned to an existing tensor.
    t = MSTensor.__new__(cls)
    MSTensor.__init__(t, empty_tensor())
    return t


def _placed(size, np_dtype, strides, offset):
    a = reserve_address_range(size, np_dtype, strides)
    if not offset:
        return a
    # The offset is represented by the position of this view within a larger array.
    span = 1 + sum([(n - 1) * s for n, s in zip(size, strides if strides is not None else ())]) if 0 not in size else 0
    if strides is None:
        span, strides = a.size, tuple([s // np_dtype.itemsize for s in a.strides])
    memory = reserve_address_range((offset + span,), np_dtype)
    part = np.ndarray(size, np_dtype, np.ndarray.view(memory, np.ndarray), offset * np_dtype.itemsize, [s * np_dtype.itemsize for s in strides])
    return view_of(memory, part)


# ------------------------------------------------------------------ calling the handlers
def _has_handler(a):
    return hasattr(a.__class__, "_is_mindtorch_tensor") and takes_part(a)


def relevant_of(args):
    """Returns the operands (also in lists, tuples and dicts) whose classes have a handler: one per
    class, subclasses before their bases."""
    found = []
    if not state.off:
        collect(args, found, _has_handler, (list, tuple, dict))
    return found


def call(func, relevant, args, kwargs):
    """Calls the handler of the innermost mode, then those of the operands' classes, without
    recording. TypeError if all return NotImplemented."""
    types = tuple([type(a) for a in relevant])
    tried = []
    before, modes, follow = mode.on, state.modes, hooks.grad_mode_changed
    recorded, state.recorded = state.recorded, before
    mode.on = False
    if follow is not None:
        follow(False)
    try:
        if modes:
            state.modes = modes[:-1]
            try:
                r = modes[-1].__torch_dispatch__(func, types, args, kwargs)
            finally:
                state.modes = modes
            if r is not NotImplemented:
                return r
            tried.append(type(modes[-1]).__name__)
        for a in relevant:
            r = type(a).__torch_dispatch__(func, types, args, kwargs)
            if r is not NotImplemented:
                return r
            tried.append(type(a).__name__)
    finally:
        state.recorded = recorded
        mode.on = before
        if follow is not None:
            follow(before)
    raise TypeError(f"Multiple dispatch failed for '{func}'; all __torch_dispatch__ handlers returned NotImplemented:\n\n  - " + "\n  - ".join(tried))


def written_to(x):
    """Bumps the version counter of the argument (a tensor of such a class, or several) that an
    operator modified in place, if the handler did not."""
    for t in x if isinstance(x, (list, tuple)) else (x,):
        if is_tensor(t) and tensor_wrappers.is_wrapper_subclass(t):
            bump_version(t)


def _registered(op, args, kwargs, computed):
    """Runs a registered operator below autograd: through modes and operands' classes, or else
    `computed(args, kwargs)`."""
    relevant = relevant_of((*args, *kwargs.values()))
    if not relevant and not state.modes:
        return computed(args, kwargs)
    given, named = op._shortened(args, kwargs)
    r = call(op, relevant, given, named)
    for a, value in zip(op._schema.arguments, (*args, *kwargs.values())):
        if a.is_write:
            written_to(value)
    return r


class reentrant:
    """Context manager for handlers: inside, ops are recorded as they are for the operator's caller.
    """

    def __enter__(self):
        self._before, mode.on = mode.on, state.recorded

    def __exit__(self, *exc):
        mode.on = self._before


#: classes of operands that never have a handler, and of other arguments that contain no tensors
_EVERYDAY = frozenset((Tensor, Parameter, ScalarOperand, SavedArray, type(None)))
_NO_TENSORS = frozenset(dispatcher.NON_TENSOR_TYPES - {list, tuple})


# ------------------------------------------------------------------ primitives
@dispatcher.register_layer("primitives", "dispatch")
def _primitive(prim, args, kw, below):
    if autograd_graph.hooks_here.aside:
        return below(prim, args, kw)
    ins = tuple(args[0]) if prim.variadic else args
    if not state.modes:
        for x in ins:
            if x.__class__ not in _EVERYDAY:
                break
        else:
            _nobody()
            return below(prim, args, kw)
    relevant = relevant_of(ins)
    if not relevant and not state.modes:
        _nobody()
        return below(prim, args, kw)
    if ins and all([x is None or x.__class__ is ScalarOperand or x.__class__ is SavedArray for x in ins]):
        return below(prim, args, kw)  # arithmetic on Python scalars
    layer = _aten_layers.PRIMITIVES.get(prim.name)
    if layer is not None and _aten_layers.usable() and (r := layer(*args, **kw)) is not NotImplemented:
        return r
    made = _aten_calls.decomposition(prim)
    if made is not None:
        r = _without_recording(made, args, kw)
        if r is not NotImplemented:
            return _linked(prim, r, ins, kw)
    func, given, named, back = _aten_calls.of(prim, args, kw)
    r, modes = call(func, relevant, given, named), state.modes
    state.modes = ()
    try:
        r = _without_recording(back, (r,), {})
    finally:
        state.modes = modes
    return _linked(prim, r, ins, kw)


def _without_recording(fn, args, kw):
    before, mode.on = mode.on, False
    try:
        return fn(*args, **kw)
    finally:
        mode.on = before


def _linked(prim, r, ins, kw):
    """Returns the handler's result as the primitive's results, with their autograd node."""
    several = r.__class__ is tuple
    outs = list(r) if several else [r]
    for i, t in enumerate(outs):
        if t is None:
            continue
        if not is_tensor(t):
            raise TypeError(f"{prim.name}: __torch_dispatch__ returned {type(t).__name__} where a Tensor was expected")
        if i in prim.residuals:
            outs[i] = t if takes_part(t) else SavedArray(t._array, t._handle, t._device)
        elif t._requires_grad_ or t._base is not None and not prim.view or any([t is x for x in ins]):
            outs[i] = plain_alias(t)
    if prim.view:
        _lie_within(prim, outs, ins, kw)
    r = link(prim, tuple(outs) if several else outs[0], ins, kw)
    if mode.on:
        _keep_results(outs)
        for i in prim.residuals:
            if outs[i].__class__ is not SavedArray and outs[i] is not None:
                outs[i]._grad_fn_, outs[i]._requires_grad_ = None, False
    return r


def plain_alias(t):
    """Returns another tensor that shares the values, without autograd history."""
    return _detached(t) if takes_part(t) else inplace.shallow_copy(t)


def _lie_within(prim, outs, ins, kw):
    """Places the geometry of views inside the geometry of their base, so that in-place writes find
    them."""
    x = ins[0]
    if not tensor_wrappers.is_wrapper_subclass(x) or not all([t is None or tensor_wrappers.is_wrapper_subclass(t) for t in outs]):
        return
    r = prim.fwd(np.ndarray.view(x._array, np.ndarray), **kw)
    for t, a in zip(outs, r if r.__class__ is tuple else (r,)):
        if t is not None and a.shape == t._array.shape and a.dtype == t._array.dtype and a.strides == t._array.strides:
            t._array = view_of(x._array, a)


def _keep_results(outs):
    """Results that a node saves are stored as tensors of their class, not as memory."""
    node = next((t._grad_fn_ for t in outs if t is not None and t.__class__ is not SavedArray and t._grad_fn_ is not None), None)
    if node is None:
        return
    vals = Node._saved.__get__(node)
    for k, s in (vals or {}).items():
        if s.__class__ is autograd_graph._Out and takes_part(outs[s.idx]):
            vals[k] = _saved(outs[s.idx], node, s.idx)


def _saved(t, node, i):
    saved, ver, ref = _without_recording(_detached, (t,), {}), inplace.version_counter(t), weakref.ref(node)
    at = ver.v

    def unpack(saved):
        node = ref()
        if ver.v != at:
            raise autograd_graph._stale(saved, node, ver.v, at)
        d = _without_recording(_detached, (saved,), {})
        d._version_counter = ver
        if d._np_dtype.kind in "fcV":
            d._grad_fn_, d._output_nr, d._requires_grad_ = node, i, True
        return d
    return autograd_graph._Packed(saved, unpack, None)


# ------------------------------------------------------------------ callbacks for core
def _detached(t):
    r = call(_ops.find_overload("aten::detach"), [t], (t,), {}) if not state.off else _shallow(t)
    if r is t:
        r = _shallow(t)
    return r


def _shallow(t):
    """Returns a tensor of the same class and attributes, without autograd history."""
    r = make_wrapper(type(t), (), None, 0, of_np(t._array.dtype), None, False)
    r._array, r._device = t._array, t._device
    for c in type(t).__mro__:
        for name in getattr(c, "__slots__", ()):
            if c not in Tensor.__mro__ and hasattr(t, name):
                setattr(r, name, getattr(t, name))
    r.__dict__.update(dict(t.__dict__))
    return r


def _detached_wrapper(t):
    return _without_recording(_detached, (t,), {})


def _write(t, value):
    if value.__class__ is not Tensor and not is_tensor(value):
        value = saved_to_tensor(value) if value.__class__ is SavedArray else value._array.item()
    if is_tensor(value):
        _without_recording(call, (_ops.find_overload("aten::copy_"), relevant_of((t, value)), (t, value), {}), {})
    else:
        _without_recording(call, (_ops.find_overload("aten::fill_.Scalar"), [t], (t, value), {}), {})


def _no_memory(t):
    raise RuntimeError(f"cannot access the memory of a {type(t).__name__}: it is a wrapper subclass without storage "
                       "(torch.Tensor._make_wrapper_subclass); its values are only available through __torch_dispatch__")


def _values(t):
    """Returns the values as a host array, read one element at a time; for ops that read only a few
    values."""
    def elements():
        return [call(_ops.find_overload("aten::_local_scalar_dense"), [e], (e,), {}) for e in (t.reshape(-1).unbind(0) if t.ndim else (t,))]
    if state.off:
        _no_memory(t)
    return np.array(_without_recording(elements, (), {}), t._np_dtype).reshape(t._sizes)


hooks.wrapper_shallow_copy, hooks.wrapper_write, hooks.wrapper_values, hooks.wrapper_changed = _detached_wrapper, _write, _values, _changed
_ops.dispatched, _aten_whole.takes_part, _aten_whole.unseen = _registered, takes_part, disabled


# ------------------------------------------------------------------ ops that are not primitives
_NUMBERS = {"item": lambda r: r, "__bool__": bool, "__float__": float, "__int__": int, "__index__": int, "__complex__": complex, "is_nonzero": bool}


@dispatcher.register_layer("ops", "dispatch")
def _op(entry, args, kwargs, below):
    if not state.modes and not kwargs:
        for x in args:
            if x.__class__ not in _EVERYDAY and x.__class__ not in _NO_TENSORS:
                break
        else:
            _nobody()
            return below(entry, args, kwargs)
    relevant = relevant_of(args if not kwargs else (*args, *kwargs.values()))
    if not relevant and not state.modes:
        _nobody()
        return below(entry, args, kwargs)
    name = entry.name.removeprefix("Tensor.")
    r = _aten_layers.of_op(entry, args, kwargs)
    if r is not NotImplemented:
        return r
    complete = _aten_whole.of(entry, args, kwargs)
    if complete is not None:
        func, given, named = complete
        return _aten_whole.recorded(entry, func, args, kwargs, lambda: _answer(func, relevant, given, named))
    if name in _NUMBERS and len(args) == 1 and args[0]._numel == 1:
        return _NUMBERS[name](call(_ops.find_overload("aten::_local_scalar_dense"), relevant, (args[0],), {}))
    if name in _MEMORY and args and is_tensor(args[0]) and tensor_wrappers.is_wrapper_subclass(args[0]):
        _no_memory(args[0])
    if name in ("detach", "data.__get__"):
        return _detach(args[0], relevant, name == "detach")
    if name == "equal" and len(args) == 2:
        return call(_ops.find_overload("aten::equal"), relevant, args, {})
    if name in _LIKE and (relevant or name in ("ones_like", "zeros_like", "empty_like")):
        func = _ops.find_overload("aten::" + name)
        return _linked_leaf(call(func, relevant, args, {k: v for k, v in kwargs.items() if k != "requires_grad"}), kwargs.get("requires_grad", False))
    if entry.inplace or entry.name[:7] == "Tensor." and tracing._writes(name):
        return _written(entry, name, relevant, args, kwargs, below)
    out = kwargs.get("out")
    if out is not None and any([is_tensor(t) and tensor_wrappers.is_wrapper_subclass(t) for t in (out if isinstance(out, (tuple, list)) else (out,))]):
        return _into(entry, out, args, {k: v for k, v in kwargs.items() if k != "out"})
    return below(entry, args, kwargs)


def _answer(func, relevant, args, kwargs):
    r = call(func, relevant, args, kwargs)
    for t in r if isinstance(r, (list, tuple)) else (r,):
        if t is not None and not is_tensor(t):
            raise TypeError(f"{func}: __torch_dispatch__ returned {type(t).__name__} where a Tensor was expected")
    return r


def _answered(func, args, kwargs):
    """Runs an operator below autograd: through modes and operands' classes, or else computes it."""
    relevant = relevant_of((*args, *kwargs.values()))
    if not relevant and not state.modes:
        return _without_recording(func.fn, args, kwargs)
    return _answer(func, relevant, args, kwargs)


def _wants_dispatch(args, kwargs):
    return bool(state.modes or relevant_of((*args, *kwargs.values())))


_aten_layers.answer, _aten_layers.wants_dispatch, _aten_layers.unseen, _aten_layers.takes_part = _answered, _wants_dispatch, disabled, takes_part


#: methods that access memory
_MEMORY = frozenset("data_ptr tolist numpy __array__ untyped_storage storage _typed_storage __dlpack__ asnumpy apply_ map_ share_memory_".split())
_LIKE = _meta.LIKE - {"new_tensor"}


def _linked_leaf(t, requires_grad):
    if requires_grad:
        set_requires_grad(t, True)
    return t


def _detach(x, relevant, counted):
    r = call(_ops.find_overload("aten::detach"), relevant, (x,), {})
    if not is_tensor(r):
        return r
    if r is x or r._requires_grad_:
        r = _shallow(x) if tensor_wrappers.is_wrapper_subclass(x) else inplace.shallow_copy(r)
    if counted and r._version_counter is None:
        if x._version_counter is None:
            x._version_counter = VersionCounter()
        r._version_counter = x._version_counter
    return r


def _into(entry, out, args, kwargs):
    r = entry.func(*args, **kwargs)
    pairs = zip(out, r) if isinstance(out, (tuple, list)) else ((out, r),)
    for a, b in pairs:
        if a._sizes != b._sizes:
            raise NotImplementedError(f"{entry.name}: cannot resize out= from {list(a._sizes)} to {list(b._sizes)}: it is a wrapper subclass without storage; "
                                      "pass an out= tensor of the result's shape")
        _write(a, b)
        bump_version(a)
    return out


def _written(entry, name, relevant, args, kwargs, below):
    """Dispatches a method that modifies its tensor in place."""
    x = args[0]
    if not is_tensor(x) or name in ("requires_grad_", "detach_", "share_memory_", "rename_"):
        return below(entry, args, kwargs)
    if name == "__setitem__":
        return _set_item(x, args, relevant, entry, below)
    if mode.on and (x._requires_grad_ or any_grad(args, kwargs)):
        if name == "copy_" and tensor_wrappers.is_wrapper_subclass(x):
            return _copied(x, *args[1:])
        return below(entry, args, kwargs)
    if name[:3] == "__i" and name[3:-2] in tracing._INPLACE_OPERATORS:
        name = tracing._INPLACE_OPERATORS[name[3:-2]] + "_"
    found = _aten_calls.overload_for(name, args, kwargs)
    if found is None:
        return below(entry, args, kwargs)
    inplace.check_inplace(x, False, True)
    since = inplace.version_counter(x).v
    r = call(found, relevant, args, kwargs)
    if inplace.version_counter(x).v == since:
        bump_version(x)
    return x if r is None or is_tensor(r) else r


def _copied(x, src, non_blocking=False):
    """copy_ with gradient recording."""
    from mindtorch.core.dispatch.primitives import sequence
    inplace.check_inplace(x, src._requires_grad_, True)
    since = next(sequence)
    value = src.to(x.dtype).expand(x._sizes)
    return inplace.assign(x, value.clone() if value is src else value, since, (src,))


def _set_item(x, args, relevant, entry, below):
    if not any([tensor_wrappers.is_wrapper_subclass(t) for t in relevant]) or not tensor_wrappers.is_wrapper_subclass(x):
        return below(entry, args, {})
    _, key, value = args
    keys = key if isinstance(key, tuple) else (key,)
    if any([is_tensor(k) or isinstance(k, list) for k in keys]):
        if not all([k.__class__ is slice and k == slice(None) or is_tensor(k) for k in keys]):
            raise NotImplementedError(f"{type(x).__name__}[...] = value with both index tensors and other indices is not supported for a wrapper subclass without storage: "
                                      "use index_put_")
        indices = [k if is_tensor(k) else None for k in keys]
        x.index_put_(tuple(indices), value if is_tensor(value) else Tensor.new_full(x, (), value))
        return None
    part = x[key]
    part.copy_(value) if is_tensor(value) else part.fill_(value)
    return None
