"""The engine of backward: walks the recorded nodes from the roots to the leaves, adds gradients up, runs hooks."""
from __future__ import annotations

import functools
import heapq
import threading
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch.core import grad_mode, gradients, lazy, tape
from mindtorch.core.fitting import fit
from mindtorch.core.grad_mode import mode
from mindtorch.core.sparse import SparseTensor, SparseUse, dispatch
from mindtorch.core.tensor import Tensor, taken


def _sum_with_sparse(g, h):
    """Sum of two gradients of which one or both are sparse; dense if one of them is."""
    return dispatch["add"](h, g) if isinstance(g, SparseTensor) else dispatch["add"](g, h)


_ops: dict[str, Callable[..., Any]] = {}        # add, clone, meta: differentiable helpers set by the ops floor


class _Buffer:
    """Sum of the gradients that arrive at one place."""

    __slots__ = ("g", "own")

    def __init__(self):
        self.g, self.own = None, False

    def add(self, g, create_graph):
        if self.g is None:
            self.g = g
            return
        try:
            if create_graph:
                self.g = _ops["add"](self.g, g)
            elif self.own:
                gradients.accumulate(self.g, g)
            else:
                self.g = gradients.total(self.g, g)
                self.own = True
        except SparseUse:
            self.g = _sum_with_sparse(self.g, g)


class Pass:
    """One backward under way: what it will run, and what hooks remember while it does."""

    __slots__ = ("nodes", "leaves", "useful", "targets", "notes")
    nodes: dict[Any, None]
    leaves: dict[int, int]
    useful: set[Any] | None
    targets: dict[Any, list[int]]
    notes: Any

    def runs(self, t: Tensor) -> bool:
        """Whether a gradient of `t` is computed in this pass."""
        if t._gnode is None:
            return id(t) in self.leaves and (self.useful is None or id(t) in self.targets)
        n = t._gnode
        return n in self.nodes and (self.useful is None or n in self.useful or (id(n), t._oi) in self.targets)


@functools.lru_cache(None)
def _order_of_ties(count, others):
    """In which order torch's queue gives back `count` leaves that were put in one after another, on top of `others` nodes.

    All leaves have one priority, above that of any node, so the order is that of the C++ library's binary heap.
    """
    heap = [-1] * others

    def rise(hole, value):
        while hole and heap[(hole - 1) // 2] < 0 <= value:
            heap[hole] = heap[(hole - 1) // 2]
            hole = (hole - 1) // 2
        heap[hole] = value

    for i in range(count):
        heap.append(i)
        rise(len(heap) - 1, i)
    order = []
    while len(order) < count:
        order.append(heap[0])
        value = heap.pop()
        if not heap:
            break
        hole, n = 0, len(heap)
        while 2 * hole + 1 < n:
            child = 2 * hole + 2
            if child == n or heap[child] < 0 <= heap[child - 1]:
                child -= 1
            heap[hole] = heap[child]
            hole = child
        rise(hole, value)
    return tuple(order)


class _State:
    """How many backwards of a thread are under way, the innermost one, and what is to be called when the outermost has ended."""

    __slots__ = ("depth", "current", "callbacks")

    depth: int
    current: Pass | None
    callbacks: tuple[Callable[[], object], ...]


class _Under(threading.local):
    def __init__(self) -> None:
        self.state = s = _State()
        s.depth, s.current, s.callbacks = 0, None, ()


_under = _Under()


def current_pass() -> Pass | None:
    """The innermost backward that this thread runs; None outside of one."""
    return _under.state.current


def queue_callback(fn: Callable[[], object]) -> None:
    """fn() when the outermost backward of this thread has ended well; RuntimeError outside of one."""
    under = _under.state
    if not under.depth:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    under.callbacks += (fn,)


def run_backward(roots: Sequence[Tensor], grads: Sequence[Any], keep_graph: bool, create_graph: bool, inputs: Sequence[Tensor] | None = None,
                 allow_unused: bool = False, accumulate: bool = False) -> list[Tensor | None] | None:
    """Propagates `grads` from `roots`.

    Without `inputs` every leaf reached accumulates into .grad; with `inputs` either only those do (`accumulate`) or their
    gradients are returned (None where unreached).
    """
    trace = lazy.backward.of(roots) if lazy.backward.spans and lazy.current.session is None else None
    if trace is None:
        return _run_backward(roots, grads, keep_graph, create_graph, inputs, allow_unused, accumulate)
    with lazy.session(trace):           # (after a compiled forward)
        return _run_backward(roots, grads, keep_graph, create_graph, inputs, allow_unused, accumulate)


def _run_backward(roots, grads, keep_graph, create_graph, inputs, allow_unused, accumulate):
    targets: dict[Any, list[int]] = {}          # key -> position(s) in the result
    found: list[Tensor | None] | None = [None] * len(inputs) if inputs is not None else None
    if inputs is not None:
        for i, t in enumerate(inputs):
            targets.setdefault((id(t._gnode), t._oi) if t._gnode is not None else id(t), []).append(i)
    start: list[Any] = []
    for t in roots:
        start.append(t if t._gnode is None else (t._gnode, t._oi))

    # How often each node will be reached, so that it runs once, when all gradients are in.
    waiting: dict[Any, int]
    leaves: dict[int, int]
    order: dict[Any, None]
    waiting, leaves, order, stack = {}, {}, {}, []
    for e in start:
        if e.__class__ is tuple and e[0] not in order:
            order[e[0]] = None
            stack.append(e[0])
    while stack:
        n = stack.pop()
        for e in n.edges:
            if e is None:
                continue
            if e.__class__ is tuple:
                m = e[0]
                if m in waiting:
                    waiting[m] += 1
                else:
                    waiting[m] = 1
                    if m not in order:
                        order[m] = None
                        stack.append(m)
            else:
                k = id(e)
                leaves[k] = leaves.get(k, 0) + 1
    for e in start:
        if e.__class__ is tuple:
            waiting[e[0]] = waiting.get(e[0], 0) + 1
        else:
            leaves[id(e)] = leaves.get(id(e), 0) + 1
    useful = _useful(order, targets) if inputs is not None else None

    buffers: dict[Any, dict[int, Any]]
    ready: list[tuple[int, Any]]
    leafbuf: dict[int, _Buffer]
    complete: list[tuple[Tensor, _Buffer]]
    buffers, ready, leafbuf, complete = {}, [], {}, []
    this, under = Pass(), _under.state
    outer = under.current
    this.nodes, this.leaves, this.useful, this.targets, this.notes = order, leaves, useful, targets, None
    old_mode = mode.on
    mode.on = create_graph
    if grad_mode.follow is not None:
        grad_mode.follow(create_graph)
    under.depth += 1
    under.current = this
    well = False

    def leaf_done(leaf, buf):
        g = buf.g
        if g is None:
            return
        where = None
        if inputs is not None:
            where = targets.get(id(leaf))
            if where is None:
                return
        if leaf._thooks:
            g._passed = True
            for fn in list(leaf._thooks.values()):
                r = fn(g)
                if r is not None:
                    g = r
                    g._passed = True
        if where is not None and not accumulate:
            for i in where:
                found[i] = g
            return
        if not leaf._rg:
            return            # cut off since (detach_, requires_grad_(False)): nothing more is gathered, as in torch
        _accumulate(leaf, g, create_graph)
        if leaf._acchooks:
            for fn in list(leaf._acchooks.values()):
                fn(leaf)

    def arrive(e, g, name):
        if e.__class__ is tuple:
            n, i = e
            if g is not None and (useful is None or n in useful or (id(n), i) in targets):
                meta = n.meta[i]
                try:
                    a = g._a
                    if a.shape != meta[0] or a.dtype is not meta[1]:
                        g = fit(g, meta, name)
                except SparseUse:
                    g = fit(g, meta, name)
                slots = buffers.get(n)
                if slots is None:
                    buffers[n] = {i: g}
                else:
                    b = slots.get(i)
                    if b is None:           # most places get one gradient, and need no sum
                        slots[i] = g
                    elif b.__class__ is _Buffer:
                        b.add(g, create_graph)
                    else:
                        total = slots[i] = _Buffer()
                        total.g = b
                        total.add(g, create_graph)
            left = waiting[n] = waiting[n] - 1
            if not left:
                heapq.heappush(ready, (-n.seq, n))
            return
        k = id(e)
        if g is not None:
            b = leafbuf.get(k)
            if b is None:
                b = leafbuf[k] = _Buffer()
            b.add(fit(g, (e._sizes, e._stype), name), create_graph)
        leaves[k] -= 1
        if not leaves[k]:
            b = leafbuf.pop(k, None)
            if b is not None:
                complete.append((e, b))

    def settle(in_order):
        """Deals with the leaves that a node has completed, all of them before any other node."""
        if in_order or len(complete) < 4:
            for leaf, buf in complete:
                leaf_done(leaf, buf)
        else:
            for i in _order_of_ties(len(complete), len(ready)):
                leaf_done(*complete[i])
        complete.clear()

    try:
        for e, g in zip(start, grads):
            g._passed = True
            arrive(e, g, "the root gradient")
        n = None
        while True:
            if complete:
                settle(n is None or n.order is not None)
            if not ready:
                break
            _, n = heapq.heappop(ready)
            slots = buffers.pop(n, None)
            if slots is None:
                if n.prim is not None or useful is not None and n not in useful:
                    for e in n.edges:          # nothing arrived: what lies below still has to be counted down
                        if e is not None:
                            arrive(e, None, "")
                    continue
                slots = {}                     # a user's function may make something of no gradients at all
            gs = []
            for i in range(len(n.meta)):
                g = slots.get(i)
                gs.append(g.g if g.__class__ is _Buffer else g)
            if n.hooks or n.retain:
                gs = _tensor_hooks(n, gs)
            if targets:
                for i in range(len(gs)):
                    for j in targets.get((id(n), i), ()):
                        if accumulate and gs[i] is not None:
                            _accumulate(inputs[j], gs[i], create_graph)
                        found[j] = gs[i]
            if useful is not None and n not in useful:
                for e in n.edges:
                    if e is not None:
                        arrive(e, None, "")
                continue
            if n.pre:
                for fn in list(n.pre.values()):
                    r = fn(tuple(gs))
                    if r is not None:
                        gs = list(r) if isinstance(r, (tuple, list)) else [r]
            if tape.anomaly is None:
                res = n._apply(gs) if n.prim is None else n.prim.backward(n, gs)
            else:
                try:
                    res = n._apply(gs)
                except Exception as err:
                    tape.anomaly(n, err, None)
                    raise
                tape.anomaly(n, None, [r for r in res if taken(r)])
            if res.__class__ is Tensor or res is None:
                res = (res,)
            if n.post:
                for fn in list(n.post.values()):
                    r = fn(tuple(res), tuple(gs))
                    if r is not None:
                        res = r if isinstance(r, (tuple, list)) else (r,)
            if not keep_graph and n.vals is not None:
                n.vals = None
                n.freed = True
            name = n.__class__.__name__
            passes = n.prim is None or len(res) > 1
            for e, g in zip(n.edges, res) if n.order is None else [(n.edges[i], res[i]) for i in n.order]:
                if e is not None:
                    if g is not None and (passes or g is gs[0]):
                        # Rules such as add's hand the same tensor on: a leaf that gets it must copy, not keep it.
                        if n.prim is None or _among(gs, g, 0) or _among(res, g, 1):
                            g._passed = True
                    arrive(e, g, name)
            del res, gs, slots
        well = True
    finally:
        mode.on = old_mode
        if grad_mode.follow is not None:
            grad_mode.follow(old_mode)
        under.depth -= 1
        under.current = outer
        if not under.depth and under.callbacks:
            callbacks, under.callbacks = under.callbacks, ()
            if well:
                for fn in callbacks:
                    fn()
    if inputs is None or accumulate:
        return None
    return found


def _among(items, x, more_than):
    n = 0
    for i in items:
        if i is x:
            n += 1
    return n > more_than


def _useful(order, targets):
    """Nodes from which some target can be reached; the others need not run."""
    below = {}
    for n in sorted(order, key=lambda n: n.seq):
        ok = False
        for e in n.edges:
            if e is None:
                continue
            if e.__class__ is tuple:
                ok = ok or below.get(e[0], False) or (id(e[0]), e[1]) in targets
            else:
                ok = ok or id(e) in targets
        below[n] = ok
    return {n for n, ok in below.items() if ok}


def _tensor_hooks(n, gs):
    for i in range(len(gs)):
        g = gs[i]
        if g is None:
            continue
        if n.hooks and i in n.hooks:
            for fn in list(n.hooks[i].values()):
                r = fn(g)
                if r is not None:
                    if not taken(r):
                        raise TypeError(f"hook '{getattr(fn, '__name__', fn)}' has changed the type of value (was "
                                        f"torch.Tensor got {type(r).__name__})")
                    g = fit(r, n.meta[i], "a tensor hook")
            gs[i] = g
        if n.retain and i in n.retain:
            t = n.retain[i]()
            if t is not None:
                t._g = g if t._g is None else _ops["add"](t._g, g)
    return gs


def _accumulate(leaf, g, create_graph):
    try:
        _accumulate_dense(leaf, g, create_graph)
    except SparseUse:
        old = leaf._g
        if old is None:
            leaf._g = g if create_graph else dispatch["clone"](g.detach())
        else:
            leaf._g = _sum_with_sparse(old, g) if create_graph else _sum_with_sparse(old, g.detach())


def _accumulate_dense(leaf, g, create_graph):
    old = leaf._g
    if leaf._dev.type == "meta":
        leaf._g = _ops["meta"](g) if old is None else old
        return
    if old is None:
        if create_graph:
            leaf._g = _ops["clone"](g) if g._gnode is None or gradients.shared(g) else g
        else:
            leaf._g = gradients.own(leaf, g)
        if leaf._dev is not leaf._g._dev:
            leaf._g._dev = leaf._dev
    elif create_graph:
        leaf._g = _ops["add"](old, g)
    else:
        gradients.add_to(old, g)
