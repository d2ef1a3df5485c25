"""torch._C functions that describe the backward pass running in this thread."""
import heapq
import threading
import weakref

from mindtorch.core.autograd import engine
from mindtorch.core.autograd.graph import AccumulateGrad, Node


def _current_graph_task_id():
    """Returns the id of the innermost backward pass, unique for each pass; -1 outside of backward.
    """
    this = engine.current_graph_task()
    return -1 if this is None else this.number


def _current_autograd_node():
    """Returns the node that the innermost backward pass is running; None outside of backward."""
    this = engine.current_graph_task()
    return None if this is None else this.node


def _will_engine_execute_node(node):
    """True if the running backward pass executes (or has executed) a node. RuntimeError outside of
    backward."""
    this = engine.current_graph_task()
    if not isinstance(node, Node):
        raise RuntimeError(f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}")
    if this is None:
        raise RuntimeError("_get_should_execute_nodes should only be called during the backward pass")
    if isinstance(node, AccumulateGrad) and this.returns:
        raise RuntimeError("A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). This is currently not "
                           "supported.")
    return this.runs_node(node)


def _current_graph_task_execution_order():
    """Returns the nodes of the running backward pass in execution order. RuntimeError outside of
    backward."""
    this = engine.current_graph_task()
    if this is None:
        raise RuntimeError("_current_graph_task_execution_order should only be called during the backward pass")
    left, out = {}, []
    for n in this.nodes:
        for e in n._next_edges:
            if e is not None:
                k = e[0] if isinstance(e, tuple) else id(e)
                left[k] = left.get(k, 0) + 1
    ready = [(-n._sequence_number, n) for n in this.nodes if n not in left]
    heapq.heapify(ready)
    while ready:
        _, n = heapq.heappop(ready)
        if this.runs_node(n):
            out.append(n)
        for e in n._next_edges:
            if e is None:
                continue
            leaf = not isinstance(e, tuple)
            k = id(e) if leaf else e[0]
            left[k] -= 1
            if left[k]:
                continue
            if not leaf:
                heapq.heappush(ready, (-k._sequence_number, k))
            elif this.runs(e):
                out.append(AccumulateGrad.of(e))
    return out


class _Stash(threading.local):
    def __init__(self):
        self.objects = {}


_stash = _Stash()


def _stash_obj_in_tls(key, obj):
    """Stores an object under a key, for this thread and the backward passes it runs."""
    _stash.objects[key] = obj


def _get_obj_in_tls(key):
    return _stash.objects[key]


def _is_key_in_tls(key):
    return key in _stash.objects


class _WeakTensorRef:
    """Weak reference to a tensor."""

    def __init__(self, tensor):
        self._ref = weakref.ref(tensor)

    def expired(self):
        """True if the tensor has been freed."""
        return self._ref() is None
