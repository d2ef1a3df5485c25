"""The autograd engine: traverses the nodes, sums gradients and runs hooks."""
from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from sys import getrefcount
from typing import Any

from mindtorch.core.autograd import accumulate_grad, graph as autograd_graph
from mindtorch.core.compile import replay
from mindtorch.core.dispatch.dispatcher import dispatch_state, is_enabled
from mindtorch.core.autograd.validate_grad import validate_grad
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor.sparse import SparseTensor, SparseUse, dispatch
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.core.tensor.tensor_wrappers import is_wrapped


def _sum_with_sparse(g, h):
    """Returns the sum of two gradients, at least one of them sparse; dense if one is dense."""
    if isinstance(g, SparseTensor):
        return dispatch["gradient_sum" if isinstance(h, SparseTensor) else "add"](h, g)
    return dispatch["add"](g, h)


class InputBuffer:
    """Sum of the gradients that arrive at one node output or leaf."""

    __slots__ = ("g", "owned")

    def __init__(self):
        self.g, self.owned = None, False

    def add(self, g, create_graph):
        if self.g is None:
            self.g = g
            return
        try:
            if create_graph or hooks.tangent_backward is not None or dispatch_state.primitives and (is_wrapped(g) or is_wrapped(self.g)):
                self.g = hooks.add(self.g, g)
            elif self.owned:
                accumulate_grad.accumulate_into(self.g, g)
            else:
                self.g = accumulate_grad.sum_grads(self.g, g)
                self.owned = True
        except SparseUse:
            self.g = _sum_with_sparse(self.g, g)


_task_ids = itertools.count()


class GraphTask:
    """A backward pass: what it will run, what has arrived, and notes that hooks leave meanwhile.

    Each node runs once, when all its gradients have arrived. Of the nodes that are ready, the one
    with the highest sequence number runs first.
    """

    __slots__ = ("inputs", "accumulate", "create_graph", "keeps", "returns", "targets", "captured", "start", "nodes", "dependencies", "leaves", "exec_info",
                 "buffers", "ready", "leaf_buffers", "complete", "node", "notes", "number_", "callbacks", "watch", "span", "through")
    inputs: Sequence[Any] | None
    accumulate: bool  # True if the gradients of `inputs` are accumulated into .grad
    create_graph: bool
    keeps: bool  # True if the graph is retained
    returns: bool  # True if gradients are returned instead of accumulated into .grad
    targets: dict[Any, list[int]]  # (id of a node, output) or id of a leaf -> indices in `captured`
    captured: list[Tensor | None] | None  # gradients of `inputs`
    start: list[Any]  # where the root gradients arrive
    nodes: dict[Any, None]
    dependencies: dict[Any, int]  # node -> number of gradients yet to arrive
    leaves: dict[int, int]  # id of a leaf -> number of gradients yet to arrive
    exec_info: set[Any] | None  # nodes that lead to a target; None: all
    buffers: dict[Any, dict[int, Any]]  # node -> output -> gradient or InputBuffer
    ready: list[tuple[int, Any]]  # heap of nodes whose gradients have all arrived
    leaf_buffers: dict[int, InputBuffer]
    complete: list[tuple[Tensor, InputBuffer]]  # leaves whose gradients have all arrived
    node: Any  # the node that is running
    notes: Any
    callbacks: tuple[Callable[[], object], ...]
    watch: Callable[[Any, int], Generator[None, None, None]] | None
    span: Generator[None, None, None] | None  # observes the node that is running
    through: Callable[..., Any] | None  # gradient rule that propagates tangents

    def __init__(self, roots: Sequence[Any], inputs: Sequence[Any] | None, retain_graph: bool, create_graph: bool, accumulate: bool) -> None:
        self.inputs, self.accumulate, self.create_graph, self.keeps = inputs, accumulate, create_graph, retain_graph
        self.returns = inputs is not None and not accumulate
        self.targets, self.captured = {}, None
        if inputs is not None:
            self.captured = [None] * len(inputs)
            for i, t in enumerate(inputs):
                e = gradient_edge(t)
                self.targets.setdefault((id(e[0]), e[1]) if e.__class__ is tuple else id(e), []).append(i)
        self.start = [gradient_edge(t) for t in roots]
        self.nodes, self.dependencies, self.leaves = {}, {}, {}
        self._compute_dependencies()
        self.exec_info = None if inputs is None else self._exec_info(inputs)
        self.buffers, self.ready, self.leaf_buffers, self.complete = {}, [], {}, []
        self.node = self.notes = self.span = None
        self.callbacks = ()
        self.watch = hooks.node_observer
        self.through = None if create_graph else hooks.tangent_backward

    @property
    def number(self) -> int:
        """Unique id of this backward pass, assigned lazily."""
        n = getattr(self, "number_", None)
        if n is None:
            n = self.number_ = next(_task_ids)
        return n

    def runs_node(self, n: Any) -> bool:
        """True if a gradient arrives at a node in this pass."""
        if isinstance(n, autograd_graph.AccumulateGrad):
            return self.runs(n.variable)
        return n in self.nodes and (self.exec_info is None or n in self.exec_info or any([(id(n), i) in self.targets for i in range(len(n._input_metadata))]))

    def runs(self, t: Tensor) -> bool:
        """True if a gradient of `t` is computed in this pass."""
        if t._grad_fn_ is None:
            return id(t) in self.leaves and (self.exec_info is None or id(t) in self.targets)
        n = t._grad_fn_
        return n in self.nodes and (self.exec_info is None or n in self.exec_info or (id(n), t._output_nr) in self.targets)

    # -- before the pass
    def _compute_dependencies(self) -> None:
        """Finds the nodes and leaves below the roots, and counts how often each is reached."""
        start, order, dependencies, leaves = self.start, self.nodes, self.dependencies, self.leaves
        stack = []
        for e in start:
            if e.__class__ is tuple and e[0] not in order:
                order[e[0]] = None
                stack.append(e[0])
        while stack:
            n = stack.pop()
            for e in n._next_edges:
                if e is None:
                    continue
                if e.__class__ is tuple:
                    m = e[0]
                    if m in dependencies:
                        dependencies[m] += 1
                    else:
                        dependencies[m] = 1
                        if m not in order:
                            order[m] = None
                            stack.append(m)
                else:
                    k = id(e)
                    leaves[k] = leaves.get(k, 0) + 1
        for e in start:
            if e.__class__ is tuple:
                dependencies[e[0]] = dependencies.get(e[0], 0) + 1
            else:
                leaves[id(e)] = leaves.get(id(e), 0) + 1

    def _exec_info(self, inputs: Sequence[Any]) -> set[Any]:
        """Returns the nodes from which some target can be reached; the others need not run."""
        targets = self.targets
        below: dict[Any, bool] = {}
        for n in sorted(self.nodes, key=lambda n: n._sequence_number):
            ok = False
            for e in n._next_edges:
                if e is None:
                    continue
                if e.__class__ is tuple:
                    ok = ok or below.get(e[0], False) or (id(e[0]), e[1]) in targets
                else:
                    ok = ok or id(e) in targets
            below[n] = ok
        found = {n for n, ok in below.items() if ok}
        if self.accumulate:
            # the nodes of the inputs run, as in PyTorch
            found.update([e[0] for e in map(gradient_edge, inputs) if e.__class__ is tuple and e[0] in self.nodes])
        return found

    # -- the pass
    def run(self, under: _State, grads: Sequence[Any]) -> None:
        """Runs the pass from the gradients of the roots. under: the state of this thread."""
        outer = under.current
        packing = autograd_graph.get_saved_hooks() if autograd_graph.saved_hooks else ()
        old_mode = mode.on
        mode.on = self.create_graph
        if hooks.grad_mode_changed is not None:
            hooks.grad_mode_changed(self.create_graph)
        under.depth += 1
        under.current = self
        well = False
        try:
            for e, g in zip(self.start, grads):
                g._grad_may_alias = True
                self._arrive(e, g, "the root gradient")
            ready, complete = self.ready, self.complete
            while ready or complete:
                if complete:
                    self._process_leaves()
                if ready:
                    self.node = heapq.heappop(ready)[1]
                    self._run_node(self.node)
            well = True
        finally:
            if self.span is not None:
                self.span.close()
            mode.on = old_mode
            if hooks.grad_mode_changed is not None:
                hooks.grad_mode_changed(old_mode)
            under.depth -= 1
            under.current = outer
            self.node = None
            if autograd_graph.saved_hooks or packing:
                autograd_graph.restore_saved_hooks(packing)
            self._finish(under, outer, well)

    def _finish(self, under: _State, outer: GraphTask | None, well: bool) -> None:
        """Calls the callbacks of this pass and, at the end of the outermost one, of the thread."""
        while self.callbacks and well:
            callbacks, self.callbacks = self.callbacks, ()
            under.current = self
            try:
                for fn in callbacks:
                    fn()
            finally:
                under.current = outer
        if not under.depth and under.callbacks:
            callbacks, under.callbacks = under.callbacks, ()
            if well:
                for fn in callbacks:
                    fn()

    # -- gradients that arrive
    def _arrive(self, e: Any, g: Any, name: str) -> None:
        """Adds a gradient (None: none) from the node `name` at an edge, and counts it."""
        if e.__class__ is tuple:
            n, i = e
            if g is not None and (self.exec_info is None or n in self.exec_info or (id(n), i) in self.targets):
                meta = n._input_metadata[i]
                try:
                    a = g._array
                    if a.shape != meta[0] or a.dtype is not meta[1]:
                        g = validate_grad(g, meta, name)
                except SparseUse:
                    g = validate_grad(g, meta, name)
                slots = self.buffers.get(n)
                if slots is None:
                    self.buffers[n] = {i: g}
                else:
                    b = slots.get(i)
                    if b is None:  # most outputs get one gradient, and need no sum
                        slots[i] = g
                    elif b.__class__ is InputBuffer:
                        b.add(g, self.create_graph)
                    else:
                        total = slots[i] = InputBuffer()
                        total.g = b
                        total.add(g, self.create_graph)
            dependencies = self.dependencies
            remaining = dependencies[n] = dependencies[n] - 1
            if not remaining:
                heapq.heappush(self.ready, (-n._sequence_number, n))
            return
        k = id(e)
        if g is not None:
            b = self.leaf_buffers.get(k)
            if b is None:
                b = self.leaf_buffers[k] = InputBuffer()
            b.add(validate_grad(g, (e._sizes, e._np_dtype), name), self.create_graph)
        leaves = self.leaves
        leaves[k] -= 1
        if not leaves[k]:
            b = self.leaf_buffers.pop(k, None)
            if b is not None:
                self.complete.append((e, b))
            elif e._tensor_hooks:
                self.complete.append((e, InputBuffer()))

    def _skip(self, n: Any) -> None:
        """Counts a node that does not run, at the nodes below it."""
        for e in n._next_edges:
            if e is not None:
                self._arrive(e, None, "")

    # -- nodes
    def _run_node(self, n: Any) -> None:
        """Runs a node, with its hooks, and passes its gradients on.

        No reference to a gradient outlives the call: `_leaf_done` counts them.
        """
        exec_info = self.exec_info
        slots = self.buffers.pop(n, None)
        if slots is None:
            if n._prim is not None and not (n._tensor_hooks or n._pre_hooks or n._post_hooks) or exec_info is not None and n not in exec_info:
                return self._skip(n)
            # a user's Function may return gradients without receiving any, and hooks are called
            slots = {}
        gs = []
        for i in range(len(n._input_metadata)):
            g = slots.get(i)
            gs.append(g.g if g.__class__ is InputBuffer else g)
        if n._tensor_hooks or n._retains_grad:
            gs = _tensor_hooks(n, gs)
        if exec_info is not None:
            self._capture(n, gs)
            if n not in exec_info:
                return self._skip(n)
        if n._pre_hooks:
            gs = _node_prehooks(n, gs)
        if (n._pre_hooks or not slots) and n._prim is not None and not any([g is not None for g in gs]):
            _posthooks_without_gradient(n, gs)
            return self._skip(n)
        if self.watch is not None:
            self.span = self.watch(n, n._sequence_number)
            next(self.span)
        if self.through is not None or hooks.anomaly is not None:
            res = self._apply_observed(n, gs)
        else:
            try:
                res = n._apply(gs) if n._prim is None else n._prim.backward(n, gs)
            except SparseUse:
                if n._prim is None or not any([isinstance(g, SparseTensor) for g in gs]):
                    raise
                # the rule requires dense gradients
                gs = [g.to_dense() if isinstance(g, SparseTensor) else g for g in gs]
                res = n._prim.backward(n, gs)
        if self.span is not None:
            next(self.span)
        if res.__class__ is Tensor or res is None:
            res = (res,)
        if n._post_hooks:
            res = _node_posthooks(n, gs, res)
        if not self.keeps and n._saved is not None:
            n._saved = None
            n._released = True
        self._pass_on(n, gs, res)
        if self.span is not None:
            self.span.close()
            self.span = None

    def _capture(self, n: Any, gs: Sequence[Any]) -> None:
        """Stores those gradients of a node's outputs that are targets."""
        for i, g in enumerate(gs):
            for j in self.targets.get((id(n), i), ()):
                if self.accumulate and g is not None and self.inputs[j].__class__ is not GradientEdge:  # type: ignore[index]
                    _accumulate(self.inputs[j], g, self.create_graph)  # type: ignore[index]
                self.captured[j] = g  # type: ignore[index]

    def _apply_observed(self, n: Any, gs: Sequence[Any]) -> Any:
        """Applies a gradient rule with tangents, or in anomaly mode."""
        if self.through is not None:
            return self.through(n, gs)
        anomaly: Any = hooks.anomaly
        try:
            res = n._apply(gs)
        except Exception as err:
            anomaly(n, err, None)
            raise
        anomaly(n, None, [r if is_tensor(r) else None for r in ((res,) if res is None or res.__class__ is Tensor else res)])
        return res

    def _pass_on(self, n: Any, gs: Sequence[Any], res: Sequence[Any]) -> None:
        """Passes the gradients of a node's inputs on, in the order in which PyTorch does."""
        name = n.__class__.__name__
        passes = n._prim is None or len(res) > 1
        for e, g in zip(n._next_edges, res) if n.order is None else [(n._next_edges[i], res[i]) for i in n.order]:
            if e is not None:
                if g is not None and (passes or g is gs[0]):
                    # Rules such as add's pass the same tensor on: a leaf that receives it must copy
                    # it, not store it.
                    if n._prim is None or _index_of(gs, g, 0) or _index_of(res, g, 1):
                        g._grad_may_alias = True
                self._arrive(e, g, name)

    # -- leaves
    def _process_leaves(self) -> None:
        """Processes the leaves that a node has completed, all of them before any other node."""
        complete = self.complete
        done = self._leaf_done if self.watch is None else self._watched_leaf_done
        if len(complete) < 4 or self.node is None or self.node.order is not None:
            for leaf, buf in complete:
                done(leaf, buf)
        else:
            for i in _order_of_ties(len(complete), len(self.ready)):
                done(*complete[i])
        complete.clear()

    def _watched_leaf_done(self, leaf: Tensor, buf: InputBuffer) -> None:
        span = self.watch(autograd_graph.AccumulateGrad.of(leaf), -1)  # type: ignore[misc]
        next(span)
        try:
            self._leaf_done(leaf, buf)
        finally:
            span.close()

    def _leaf_done(self, leaf: Tensor, buf: InputBuffer) -> None:
        """Runs a leaf's hooks, and captures or accumulates its gradient."""
        if buf.g is None:
            if leaf._tensor_hooks and (self.inputs is None or id(leaf) in self.targets):
                for fn in list(leaf._tensor_hooks.values()):  # called with None: there is no gradient
                    if fn(None) is not None:
                        raise RuntimeError("can't replace a None gradient with a non-None value")
            return
        # referenced by the buffer and the call
        if buf.g._grad_may_alias and getrefcount(buf.g) == 2 and accumulate_grad.is_unaliased(buf.g):
            buf.g._grad_may_alias = False
        g, buf.g = buf.g, None
        where = None
        if self.inputs is not None:
            where = self.targets.get(id(leaf))
            if where is None:
                return
        seen = dispatch_state.primitives and is_enabled("primitives", "dispatch")
        if seen:
            self.node = autograd_graph.AccumulateGrad.of(leaf)
        if leaf._tensor_hooks:
            g._grad_may_alias = True
            for fn in list(leaf._tensor_hooks.values()):
                r = fn(g)
                if r is not None:
                    g = r
                    g._grad_may_alias = True
        if where is not None and not self.accumulate:
            for i in where:
                self.captured[i] = g  # type: ignore[index]
            return
        if leaf._requires_grad_:
            # else detached since (detach_, requires_grad_(False)): nothing more is accumulated, as
            # in PyTorch
            self._accumulate_leaf(leaf, g, seen)

    def _accumulate_leaf(self, leaf: Tensor, g: Any, seen: bool) -> None:
        """Accumulates a leaf's gradient, with the hooks of its AccumulateGrad node.

        seen: True if a dispatch mode sees the operators.
        """
        node: Any = leaf._grad_accumulator
        if node is not None:
            node, g = _prehooks(node, g)
            first = leaf._grad_ is None
        if seen and leaf._grad_ is None and not (self.create_graph or isinstance(g, SparseTensor) or accumulate_grad.may_be_shared(g)):
            g = g.detach()
        _accumulate(leaf, g, self.create_graph)
        if leaf._post_accumulate_grad_hooks:
            for fn in list(leaf._post_accumulate_grad_hooks.values()):
                if fn(leaf) is not None:
                    raise RuntimeError("Tensor post accumulate grad hooks should return None.")
        if node is not None and node._post_hooks:
            for fn in list(node._post_hooks.values()):
                # the first gradient is the same object as the leaf's .grad
                fn((), (leaf._grad_ if first else g,))


@functools.lru_cache(None)
def _order_of_ties(count, others):
    """Returns the order in which PyTorch's queue pops `count` leaves.

    The leaves were pushed in sequence, on top of `others` nodes. All leaves have the same priority,
    above that of any node, so the order is that of the C++ library's binary heap.
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
    """Per-thread engine state.

        depth      number of nested backward passes
        current    the innermost one
        callbacks  called when the outermost one has ended
        check      called before each one; raises an exception if it is not allowed
    """

    __slots__ = ("depth", "current", "callbacks", "check")

    depth: int
    current: GraphTask | None
    callbacks: tuple[Callable[[], object], ...]
    check: Callable[[], None] | None


class _EngineState(threading.local):
    def __init__(self) -> None:
        self.state = s = _State()
        s.depth, s.current, s.callbacks, s.check = 0, None, (), None


_engine_state = _EngineState()


def current_graph_task() -> GraphTask | None:
    """Returns the innermost backward pass of this thread; None outside of one."""
    return _engine_state.state.current


@contextlib.contextmanager
def checking(fn: Callable[[], None]) -> Iterator[None]:
    """Context manager: this thread calls fn() before each backward pass; fn may raise."""
    under = _engine_state.state
    before, under.check = under.check, fn
    try:
        yield
    finally:
        under.check = before


def queue_callback(fn: Callable[[], object]) -> None:
    """Registers fn() to be called after this thread's outermost backward pass has succeeded.

    Raises RuntimeError outside of a backward pass.
    """
    under = _engine_state.state
    if not under.depth:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    under.callbacks += (fn,)


def call_at_end(fn: Callable[[], object]) -> None:
    """Registers fn() to be called after this thread's innermost backward pass has succeeded.

    Raises RuntimeError outside of a backward pass.
    """
    this = _engine_state.state.current
    if this is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    this.callbacks += (fn,)


class GradientEdge(tuple):
    """(node, output_nr): identifies the gradient of one output of a node."""

    __slots__ = ()

    def __new__(cls, node: Any, output_nr: int, ownership_token: object = None) -> GradientEdge:
        return tuple.__new__(cls, (node, output_nr))

    def __repr__(self):
        return f"GradientEdge(node={self[0]!r}, output_nr={self[1]})"

    node = property(lambda self: self[0])
    output_nr = property(lambda self: self[1])
    ownership_token = None


def gradient_edge(x: Any) -> Any:
    """Returns where the gradient of a tensor or GradientEdge arrives: a leaf, or (node, output)."""
    if isinstance(x, tuple):
        return x[0].variable if isinstance(x[0], autograd_graph.AccumulateGrad) else (x[0], x[1])
    return x if x._grad_fn_ is None else (x._grad_fn_, x._output_nr)


def run_backward(roots: Sequence[Tensor], grads: Sequence[Any], retain_graph: bool, create_graph: bool, inputs: Sequence[Tensor] | None = None,
                 allow_unused: bool = False, accumulate: bool = False) -> list[Tensor | None] | None:
    """Propagates `grads` from `roots`; the roots and `inputs` are tensors or GradientEdges.

    Without `inputs`, every leaf reached accumulates into .grad. With `inputs`, either only these
    accumulate (`accumulate`) or their gradients are returned (None where unreached).
    """
    under = _engine_state.state
    if under.check is not None:
        under.check()
    trace = replay.backward.of(roots) if replay.backward.spans and replay.current.session is None else None
    if trace is None:
        return _run_backward(under, roots, grads, retain_graph, create_graph, inputs, accumulate)
    with replay.session(trace):  # after a compiled forward
        return _run_backward(under, roots, grads, retain_graph, create_graph, inputs, accumulate)


def _run_backward(under, roots, grads, retain_graph, create_graph, inputs, accumulate):
    task = GraphTask(roots, inputs, retain_graph, create_graph, accumulate)
    task.run(under, grads)
    return task.captured if task.returns else None


def _node_prehooks(n, gs):
    """Returns the gradients of a node's outputs after its pre-hooks."""
    for fn in list(n._pre_hooks.values()):
        r = fn(tuple(gs))
        if r is not None:
            gs = list(autograd_graph.returned(fn, r, gs))
    return gs


def _node_posthooks(n, gs, res):
    """Returns the gradients of a node's inputs after its post-hooks."""
    for fn in list(n._post_hooks.values()):
        r = fn(tuple(res), tuple(gs))
        if r is not None:
            res = autograd_graph.returned(fn, r, res)
    return res


def _posthooks_without_gradient(n, gs):
    """Calls the post-hooks of a node that received no gradient and does not run."""
    for fn in list(n._post_hooks.values()) if n._post_hooks else ():
        r = fn((None,) * len(n._next_edges), tuple(gs))
        if r is not None:
            # there is no gradient to replace
            autograd_graph.returned(fn, r, (None,) * len(n._next_edges))


def _prehooks(node, g):
    """Returns (a leaf's AccumulateGrad if it is alive, the gradient after its pre-hooks)."""
    node = node()
    if node is not None and node._pre_hooks:
        for fn in list(node._pre_hooks.values()):
            r = fn((g,))
            if r is not None:
                g = r[0] if isinstance(r, (tuple, list)) else r
                g._grad_may_alias = True
    return node, g


def _index_of(items, x, more_than):
    n = 0
    for i in items:
        if i is x:
            n += 1
    return n > more_than


def _tensor_hooks(n, gs):
    for i in range(len(gs)):
        g = gs[i]
        if g is None and not (n._tensor_hooks and i in n._tensor_hooks and not getattr(n._prim, "residuals", ())):
            # Hooks are called with None for a missing gradient. Results of RNN cells are an
            # exception: in PyTorch they have their own nodes, which are not reached.
            continue
        if n._tensor_hooks and i in n._tensor_hooks:
            for fn in list(n._tensor_hooks[i].values()):
                r = fn(g)
                if r is not None:
                    if not is_tensor(r):
                        raise TypeError(f"hook '{getattr(fn, '__name__', fn)}' has changed the type of value (was "
                                        f"torch.Tensor got {type(r).__name__})")
                    g = validate_grad(r, n._input_metadata[i], "a tensor hook")
            gs[i] = g
        if n._retains_grad and i in n._retains_grad and g is not None:
            t = n._retains_grad[i]()
            if t is not None:
                t._grad_ = g if t._grad_ is None else hooks.add(t._grad_, g)
    return gs


def _accumulate(leaf, g, create_graph):
    try:
        if g.__class__ is SparseTensor and leaf._grad_ is None and not create_graph:
            leaf._grad_ = _clone_sparse(g)
            return
        _accumulate_dense(leaf, g, create_graph)
    except SparseUse:
        old = leaf._grad_
        if old is None:
            leaf._grad_ = g if create_graph else dispatch["clone"](g.detach())
        elif create_graph:
            leaf._grad_ = _sum_with_sparse(old, g)
        elif isinstance(old, SparseTensor) and not isinstance(g, SparseTensor):
            leaf._grad_ = dispatch["add"](g.detach(), old)
        else:
            dispatch["gradient_sum_" if isinstance(old, SparseTensor) else "add_"](old, g.detach())


def _clone_sparse(g):
    """Returns a leaf's first gradient, if that is sparse.

    The gradient of a lookup is returned itself if nothing else refers to its values (its indices
    are shared with the lookup, as in PyTorch); any other is copied. Forward and backward of a bag
    of 256 x 4 rows of 64 take 208 us, vs 290 us with the copy.
    """
    v = g._sp_values
    if (g._lookup and not g._grad_may_alias and v.__class__ is Tensor and v._handle is None and v._contiguous and not v._requires_grad_ and not v._fw_grad
            # referenced by the gradient, by this variable and by the call
            and getrefcount(v) == 3 and not accumulate_grad.may_be_shared(v) and hooks.tangent_backward is None):
        return g
    return dispatch["clone"](g.detach())


def _accumulate_dense(leaf, g, create_graph):
    old = leaf._grad_
    if leaf._device.type == "meta":
        leaf._grad_ = hooks.meta_like(g) if old is None else old
        return
    if old is None:
        if create_graph or g._fw_grad:
            leaf._grad_ = hooks.clone(g) if g._grad_fn_ is None or accumulate_grad.may_be_shared(g) else g
        else:
            leaf._grad_ = accumulate_grad.steal_or_clone(leaf, g)
        if leaf._device is not leaf._grad_._device:
            leaf._grad_._device = leaf._device
    elif create_graph or hooks.tangent_backward is not None:
        leaf._grad_ = hooks.add(old, g)
    else:
        try:
            accumulate_grad.accumulate_grad(old, g)
        except ValueError:
            # raises the error about differing shapes, as after `.data` of another size
            hooks.add(old, g)
            raise
