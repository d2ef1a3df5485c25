"""MindSpore's ops in torch-style autograd.

A facade tensor passed to a MindSpore op is replaced by a proxy: a native MindSpore tensor on the
same memory that is a leaf of MindSpore's autograd and has a `GradEdgeProxy`, its edge in mindtorch's graph.
Results of the op stay native, with MindSpore's history, until the facade uses them. Then `wrap_native`
gives them a node. Its edges are the places (of facade tensors and of Parameters) that the result
depends on, and its rule lets MindSpore differentiate the part in between. With create_graph it
raises, because MindSpore's second derivatives lose terms.

Values saved by MindSpore are packed with the version counter of their memory, so any write between
forward and backward raises an error.
"""
import functools
import threading
import weakref
from typing import Any

import numpy as np

from mindtorch.backend.hooks import NO, hooks as backend_hooks
from mindtorch.backend.mindspore import grad_inputs, interop as native
from mindtorch.backend.mindspore.patches import GRADIENTS, put
from mindtorch.backend.mindspore.private import MSParameter, MSTensor, from_array, from_contiguous, grad_flag
from mindtorch.core.hooks import hooks
from mindtorch.core.device import device_dispatch
from mindtorch.core.tensor.conj_neg_bits import LIVE, ConjNegBits
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.storage_impl import COW, unshare, on_write
from mindtorch.core.dispatch.op_schema import OPS
from mindtorch.core.tensor.sparse import SparseTensor
from mindtorch.core.dispatch.primitives import Node, new_node
from mindtorch.core.tensor.tensor import Tensor, VersionCounter, adopt, bump_version, check_inplace_on_view, bind_native_memory, version_counter, wrap_array

depth = native.depth
_needs_grad = MSTensor._requires_grad.__get__
_native_version = MSTensor._version.__get__
_node_of = MSTensor._grad_node.__get__
_BackwardNode = native.BackwardNode


def _is_facade(t):
    """Like isinstance(t, Tensor), but does not adopt `t`."""
    return Tensor in type(t).__mro__


# ------------------------------------------------------------------ from the facade to MindSpore
class GradEdgeProxy:
    """Edge in mindtorch's graph for a leaf of MindSpore's autograd.

    The edge is output `index` of a node, or a leaf.
    """

    __slots__ = ("node", "index", "leaf", "native", "dev", "__weakref__")

    def __init__(self, t, leaf):
        self.dev = t._device
        # Strong references to tensors would pass through MindSpore's autograd graph, where the
        # garbage collector cannot see the cycle.
        self.node, self.index = t._grad_fn_, t._output_nr
        self.leaf = weakref.ref(t) if t._grad_fn_ is None and not t._view_without_history else None
        self.native = weakref.ref(leaf)
        # The hook keeps the place alive exactly as long as MindSpore's autograd needs it.
        MSTensor.register_hook(leaf, functools.partial(_gather, self))
        _edge_proxies[_node_of(leaf)._unique_id()] = self

    def edge(self):
        """Returns the edge for a node; None if this gradient is no longer reachable."""
        if self.node is not None:
            return self.node, self.index
        leaf = None if self.leaf is None else adopt(self.leaf()) if self.leaf() is not None else None
        return leaf if leaf is not None and leaf._requires_grad_ else None


class _ParameterGradEdgeProxy(GradEdgeProxy):
    """Like `GradEdgeProxy`, for a native Parameter."""

    __slots__ = ()

    def __init__(self, p):
        self.node, self.index, self.dev = None, 0, p._device if _is_facade(p) else None
        self.leaf = self.native = weakref.ref(p)
        MSTensor.register_hook(p, functools.partial(_gather, self))
        _edge_proxies[_node_of(p)._unique_id()] = self


# id of a leaf of MindSpore's autograd -> its place
_edge_proxies: weakref.WeakValueDictionary[int, GradEdgeProxy] = weakref.WeakValueDictionary()


class _GradCollector(threading.local):
    found = None  # place -> gradient, while MindSpore's backward runs


_grad_collector = _GradCollector()


def _gather(proxy, g):
    found = _grad_collector.found
    if found is None:
        return None
    found[proxy] = g
    # MindSpore adds the result of a hook to its own sum at the leaf. Returning the gradient
    # unchanged for that sum requires a kernel that is missing on CPUs. The sum of a proxy is never
    # read. A Parameter may have MindSpore hooks that run after this one.
    a = MSTensor.asnumpy(g)
    return from_contiguous(a.copy() if proxy.__class__ is _ParameterGradEdgeProxy else np.empty(a.shape, a.dtype))


def proxy_tensor(t: Tensor) -> Any:
    """Returns the native proxy that MindSpore's ops get for a facade tensor that requires grad."""
    if t._creation_meta is not None:
        check_inplace_on_view(t)
    made = t._ms_proxy
    if made is not None and made[1] is t._grad_fn_ and made[2] == t._output_nr and made[3] is t._array:
        return made[0]
    leaf = from_array(t._array) if t._handle is None else device_dispatch.same_memory(t)
    MSTensor._requires_grad.__set__(leaf, True)
    GradEdgeProxy(t, leaf)
    t._ms_proxy = (leaf, t._grad_fn_, t._output_nr, t._array)
    return leaf


def _register(p):
    """Creates the place of a Parameter's leaf in MindSpore's autograd."""
    if not _needs_grad(p):
        MSTensor._requires_grad.__set__(p, True)
    if _node_of(p)._unique_id() not in _edge_proxies:
        _ParameterGradEdgeProxy(p)


def _share_counter(t):
    """Shares a facade tensor's version counter with what MindSpore saves of its memory."""
    made = t._ms_proxy
    _versions[native.storage_key(t if made is None else made[0])] = version_counter(t)


def _replaced(x):
    """Returns an argument of a MindSpore op as MindSpore's autograd tracks it."""
    if isinstance(x, MSTensor):
        if type(x) is MSTensor:
            return x
        if _is_facade(x):
            if isinstance(x, SparseTensor) or x._device.type == "meta":
                return x
            if isinstance(x, MSParameter):
                if x._requires_grad_:
                    _register(x)
            elif x._requires_grad_:
                x, facade = proxy_tensor(x), x
                _share_counter(facade)
                return x
            elif x._handle is not None:
                x, facade = x._handle, x
                _versions[native.storage_key(x)] = version_counter(facade)
                return x
            elif _needs_grad(x):
                # its MindSpore history is not its history here: detach_(), in-place writes
                return from_array(x._array)
            _share_counter(x)
        elif x.requires_grad:
            _register(x)
        return x
    c = x.__class__
    if c is tuple or c is list:
        return c(map(_replaced, x))
    if c is dict:
        return {k: _replaced(v) for k, v in x.items()}
    return x


def _writes_to_facade(t, name):
    if _is_facade(t) and mode.on and t._requires_grad_ and not isinstance(t, MSParameter):
        raise NotImplementedError(f"MindSpore's {name} writes to a torch-style tensor that requires grad (dtype {t.dtype}, device "
                                  f"{t.device}): autograd cannot follow that; use the torch operation, or no_grad()")


class _Homes(threading.local):
    found = None  # device of a facade tensor among an op's arguments, if it is not the host


_homes = _Homes()


def _call(op, name, args, kwargs):
    """Runs a MindSpore op with a facade tensor or a Parameter among its arguments.

    The results are on the device of these arguments.
    """
    if LIVE:
        args, kwargs = _resolve_bits(args, name, native.written(name, args)[0]), _resolve_bits(kwargs, name, ())
    _lend(args)
    if not device_dispatch.USED and not native.ELSEWHERE:
        return _called(op, name, args, kwargs)
    if backend_hooks.step_active():
        r = hooks.defer_native_op(op, name, args, kwargs)
        if r is not NO:
            return r
        with backend_hooks.step_suspended(f"MindSpore's {name}"):
            return _call(op, name, args, kwargs)
    before, _homes.found = _homes.found, None
    try:
        _look(args)
        _look(kwargs.values())
        r = _called(op, name, args, kwargs)
        return r if _homes.found is None else _sent(r, _homes.found)
    finally:
        _homes.found = before


def _resolve_bits(x, name, targets):
    """Resolves lazy conjugation and negation in arguments: MindSpore does not support them."""
    if _is_facade(x) and x._handle.__class__ is ConjNegBits:
        if any([t is x for t in targets]):
            raise NotImplementedError(f"MindSpore's {name} writes to a {x.dtype} tensor with a conjugate or negative bit on device {x._device}: "
                                      "write by torch's operations, or to resolve_conj() or resolve_neg() of it")
        return OPS["clone"].fn(x)
    c = x.__class__
    if c is tuple or c is list:
        return c([_resolve_bits(y, name, targets) for y in x])
    return {k: _resolve_bits(y, name, targets) for k, y in x.items()} if c is dict else x


def _look(args):
    """Records the device of the arguments, and makes their memory visible to MindSpore."""
    for x in args:
        if isinstance(x, MSTensor):
            if type(x) is hooks.lazy_tensor_class:
                hooks.materialize_native(x)
                _homes.found = x._home
            elif _is_facade(x):
                if x._handle is not None:
                    _homes.found = x._device
                    bind_native_memory(x)
                elif _elsewhere(x) and (isinstance(x, MSParameter) or not _needs_grad(x)):
                    # a result tracked by MindSpore's autograd would lose its history
                    native.bring_up(x)
        elif x.__class__ in (list, tuple):
            _look(x)
        elif x.__class__ is dict:
            _look(x.values())


def _lend(args):
    """Marks the memory of the arguments as possibly shared with MindSpore's code."""
    for x in args:
        if _is_facade(x):
            x._escaped_to_mindspore = True
        elif x.__class__ in (list, tuple):
            _lend(x)


def _elsewhere(x):
    """True if a facade tensor is in host memory while MindSpore's kernels use other memory."""
    return native.ELSEWHERE and x._handle is None and x._device.type == "cpu" and not isinstance(x, SparseTensor)


def _written_elsewhere(targets):
    for t in targets:
        if _is_facade(t) and _elsewhere(t):
            native.bring_down(t)


def _prepare_steps(parameters):
    if COW.on:
        unshare([p for p in parameters if _is_facade(p)])
    for p in parameters:
        wrote(p)
        if _is_facade(p) and p._handle is not None:
            bind_native_memory(p)
        if native.ELSEWHERE and _is_facade(p):
            if p._handle is None:
                native.bring_up(p)
            elif getattr(p._handle, "viewed", False):
                raise NotImplementedError(f"MindSpore's optimizers cannot write to a parameter that is a view of other memory on {p.device} (shape "
                                          f"{list(p.shape)}): their updates would be lost; give it its own storage: p.data = p.data.clone()")


def _native_values(x):
    """Returns an argument with native MindSpore tensors instead of facade tensors."""
    if isinstance(x, MSTensor):
        if not _is_facade(x) and type(x) is not hooks.lazy_tensor_class:
            return x
        t = adopt(x)
        return t._handle if t._handle is not None else from_array(t._array)
    c = x.__class__
    return c(map(_native_values, x)) if c is tuple or c is list else x


def _sent(r, dev):
    """Marks an op's results with their device."""
    if type(r) is MSTensor:
        r._home = dev
    elif r.__class__ in (list, tuple):
        for x in r:
            _sent(x, dev)
    return r


def _called(op, name, args, kwargs):
    targets, only = native.written(name, args)
    if COW.on and targets:
        unshare([t for t in targets if _is_facade(t)])
    if native.owned_by_mindspore():
        if mode.on and not only:
            args = _inside_run(tuple(args))
        depth.native += 1
        try:
            return op(*args, **kwargs)
        finally:
            depth.native -= 1
            for t in targets:
                wrote(t)
            _written_elsewhere(targets)
    _follow(mode.on)
    for t in targets:
        _writes_to_facade(t, name)
        if not only:
            wrote(t)  # before the op, which saves values that are valid after the write
    if only:
        native.set_recording(False)
    elif mode.on:
        native.begin_tracking(_pack, _unpack)
        args, kwargs = _replaced(tuple(args)), _replaced(kwargs)
    depth.native += 1
    try:
        return op(*args, **kwargs)
    finally:
        depth.native -= 1
        if only:
            native.set_recording(mode.on)
            for t in targets:
                wrote(t)
        _written_elsewhere(targets)


def _inside_run(x):
    """Like `_replaced`, while MindSpore records for itself.

    A tensor that requires grad and that MindSpore does not track gets a leaf, so that the result is
    known to depend on it.
    """
    if isinstance(x, MSTensor):
        if type(x) is MSTensor or isinstance(x, MSParameter) or not x._requires_grad_ or _needs_grad(x) or isinstance(x, SparseTensor):
            return x
        return proxy_tensor(x)
    c = x.__class__
    if c is tuple or c is list:
        return c(map(_inside_run, x))
    return x


def _refuse_bprop(cell, args, kwargs):
    if native.owned_by_mindspore() or not mode.on:
        return
    for x in (*args, *kwargs.values()):
        if isinstance(x, MSTensor) and (_is_facade(x) and x._requires_grad_ or _needs_grad(x)):
            raise NotImplementedError(f"{type(cell).__name__} has a bprop of its own, which torch-style backward() cannot follow "
                                      "(mindspore.value_and_grad can); write it as a torch.autograd.Function")


def _write_subscript(t, index, value):
    """Runs `t[index] = value` of a native tensor through the facade if the value has a history.

    Returns False if MindSpore should do it.
    """
    if isinstance(t, MSParameter):
        wrote(t)
        return False
    if native.owned_by_mindspore() or not (mode.on and isinstance(value, MSTensor)):
        return False
    if not (_is_facade(value) and value._requires_grad_ or _needs_grad(value) or _needs_grad(t)):
        return False
    adopt(t)[index] = value
    return True


# ------------------------------------------------------------------ grad mode
def _follow(on):
    """From the first op on, MindSpore's grad mode follows the facade's."""
    if hooks.grad_mode_changed is None:
        hooks.grad_mode_changed = native.set_recording
    native.set_recording(on)


def _follow_native(on):
    before, mode.on = mode.on, on
    return before


# ------------------------------------------------------------------ writes
#
# Version counter of the memory at an address, as long as it is in use.
_versions: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()


class _Saved:
    """A value saved by MindSpore's autograd, and the version of its memory when it was saved."""

    __slots__ = ("tensor", "counter", "at", "native_at")

    def __init__(self, t):
        key = native.storage_key(t)
        counter = _versions.get(key)
        if counter is None:
            counter = _versions[key] = VersionCounter()
        if _node_of(t) is not None:
            # An op's own result has the op as its history: saving both would keep them alive
            # forever. MindSpore restores the history.
            t = from_array(MSTensor.asnumpy(t))
        self.tensor, self.counter, self.at, self.native_at = t, counter, counter.v, _native_version(t)


def _part_of_parameter(t):
    """True if a native tensor is a view of a Parameter that the facade has not adopted."""
    if type(t) is not MSTensor or not _needs_grad(t):
        return False
    node = _node_of(t)
    while node.__class__ is _BackwardNode:
        proxy = _edge_proxies.get(node._unique_id())
        if proxy is not None:
            leaf = proxy.native()
            return (proxy.__class__ is _ParameterGradEdgeProxy and leaf is not None and not _is_facade(leaf)
                    and native.storage_key(leaf) == native.storage_key(t))
        below = [m for m, _ in node.next_functions if m is not None]
        if len(below) != 1:
            return False
        node = below[0]
    return False


def _unpack(saved):
    t = saved.tensor
    if saved.counter.v != saved.at or _native_version(t) != saved.native_at:
        raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation: a tensor "
                           f"of shape {list(t.shape)} that a MindSpore operation saved is at version "
                           f"{saved.counter.v + _native_version(t)}; expected version {saved.at + saved.native_at} instead.")
    return t


_pack = _Saved


def wrote(t: Any) -> None:
    """Bumps the version of the memory of `t` after a write by MindSpore."""
    if _is_facade(t):
        bump_version(t)
    elif isinstance(t, MSTensor):
        counter = _versions.get(native.storage_key(t))
        if counter is not None:
            counter.v += 1


def _write_through(t, value):
    """Implements assign_value and set_data of a facade tensor: writes into its memory.

    Its views share that memory. Returns False if MindSpore should do it.
    """
    if not _is_facade(t) or not isinstance(value, MSTensor) or t._device.type == "meta":
        return False
    if t._handle is not None:
        value = adopt(value, t._device)
        if value._sizes != t._sizes or value._np_dtype != t._np_dtype:
            return False
        device_dispatch.write(t, value)
        return True
    a = MSTensor.asnumpy(value)
    if a.shape != t._array.shape or a.dtype != t._array.dtype or not t._array.flags.writeable and not on_write(t):
        return False
    np.copyto(t._array, a)
    return True


# ------------------------------------------------------------------ from MindSpore to the facade
class MindSporeBackward(Node):
    """Node for a part of the graph that MindSpore's ops computed.

    The part leads from facade tensors or Parameters to a tensor that the facade uses.
    """

    __slots__ = ()

    def _apply(self, gs):
        with backend_hooks.step_suspended("MindSpore's backward"):
            return self._apply_now(gs)

    def _apply_now(self, gs):
        root, proxies = self.part
        g = gs[0]
        if mode.on:
            raise NotImplementedError(f"create_graph=True through MindSpore operations (here a result of dtype {g.dtype} on device "
                                      f"{g.device}): MindSpore's second derivatives are not always correct; use torch operations")
        if g._handle.__class__ is ConjNegBits:
            g = hooks.bits_resolved(g)
        if g._handle is not None:
            g = g._handle
        elif not g._array.flags.c_contiguous:
            g = wrap_array(np.ascontiguousarray(g._array))
        before, _grad_collector.found = _grad_collector.found, {}
        depth.native += 1
        try:
            native.run_backward((root,), (g,), True, False, None, True, accumulate_grad=False)
            grads = [_grad_collector.found.get(p) for p in proxies]
            for p in _grad_collector.found:
                leaf = p.native()
                if leaf is not None:
                    # drop the gradient that MindSpore accumulated there: the facade accumulates it
                    MSTensor._grad.__set__(leaf, None)
        finally:
            depth.native -= 1
            _grad_collector.found = before
            native.set_recording(False)  # after an error inside, MindSpore's grad mode is still on
        return [None if g is None else adopt(g, p.dev) for g, p in zip(grads, proxies)]


class _Inside(Node):
    """Node of a MindSpore op recorded by MindSpore's value_and_grad, which differentiates it."""

    __slots__ = ()

    def _apply(self, gs):
        raise NotImplementedError("torch-style backward() through a MindSpore operation that mindspore.value_and_grad (or grad) is "
                                  "recording: take this gradient with torch operations, or outside of the recorded function")


_Inside.__name__ = "MindSporeBackward"


def _inside(t):
    n = new_node(_Inside)
    n._prim, n._next_edges, n._input_metadata = None, [], ((t._array.shape, t._array.dtype),)
    return n


def _below(t):
    """Returns the places that a native tensor was computed from."""
    proxies, seen, stack = [], set(), [_node_of(t)]
    while stack:
        n = stack.pop()
        # The node of a custom Python function is that function's object, without a node id.
        key = n._unique_id() if n.__class__ is _BackwardNode else id(n)
        if key in seen:
            continue
        seen.add(key)
        proxy = _edge_proxies.get(key)
        if proxy is not None:
            proxies.append(proxy)
            continue
        for m, _ in n.next_functions:
            if m is not None:
                stack.append(m)
    return proxies


def wrap_native(t: Tensor) -> None:
    """Sets the history of a tensor created by MindSpore that the facade uses for the first time."""
    if _versions and t._version_counter is None:
        counter = _versions.get(native.storage_key(t))
        if counter is not None:
            t._version_counter = counter
    if isinstance(t, MSParameter) or not _needs_grad(t):
        return
    if t._array.dtype.kind not in "fcV":
        return
    if grad_flag() and native.owned_by_mindspore():
        # Inside value_and_grad: results computed from it must be tracked by MindSpore's autograd as
        # well.
        wanted = grad_inputs.state_of(t)
        if wanted:
            grad_inputs.mark(t)
        elif wanted is None:
            # Created by a MindSpore op, so it is not a leaf; mindtorch's graph ends here.
            t._requires_grad_, t._grad_fn_ = True, _inside(t)
        return
    if _node_of(t) is None:
        return
    proxies = _below(t)
    if not proxies:
        return
    node = new_node(MindSporeBackward)
    node._prim = None
    node._next_edges = [p.edge() for p in proxies]
    node._input_metadata = ((t._array.shape, t._array.dtype),)
    node._saved = {"part": [native.same_tensor(t), proxies]}
    t._grad_fn_, t._requires_grad_ = node, True


# ------------------------------------------------------------------ torch attributes of native tensors
class _OfFacade:
    """A torch attribute on a native tensor, which becomes a facade tensor on access."""

    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __get__(self, t, cls=None):
        if t is None:
            return self
        return getattr(adopt(t), self.name)


def watch() -> None:
    """Starts to check the arguments of MindSpore's ops. Called once, when the hooks are assigned."""
    native.follow_no_grad()
    native.watch()
    for name in GRADIENTS:
        put("mindspore.common.tensor:Tensor." + name, _OfFacade(name))


