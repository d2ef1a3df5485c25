"""torch.autograd.graph: saved-tensor hooks and graph nodes."""
import abc
import contextlib

from mindtorch.core.autograd import engine, graph as autograd_graph
from mindtorch.core.dispatch import primitives
from mindtorch.core.autograd.engine import GradientEdge
from mindtorch.core.tensor.tensor import is_tensor

__all__ = ["saved_tensors_hooks", "save_on_cpu", "disable_saved_tensors_hooks", "Node", "increment_version",
           "register_multi_grad_hook", "get_gradient_edge", "GradientEdge", "allow_mutation_on_saved_tensors"]


class Node(abc.ABC):
    """Abstract base class: every grad_fn is an instance of it (and its class a subclass) without
    inheriting from it."""

    @abc.abstractmethod
    def name(self):
        """Returns the operation's name."""

    @property
    @abc.abstractmethod
    def next_functions(self):
        """Returns (node, output_nr) of each input."""

    @abc.abstractmethod
    def metadata(self):
        """Returns a dictionary for user annotations."""

    @abc.abstractmethod
    def register_hook(self, fn):
        """Registers fn(grad_inputs, grad_outputs), called after the node runs."""

    @abc.abstractmethod
    def register_prehook(self, fn):
        """Registers fn(grad_outputs), called before the node runs."""

    @classmethod
    def __subclasshook__(cls, other):
        return issubclass(other, autograd_graph.Node) or NotImplemented if cls is Node else NotImplemented


class saved_tensors_hooks:
    """Context manager: calls pack_hook(tensor) when a tensor is saved for backward and
    unpack_hook(packed) when it is needed."""

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self):
        autograd_graph.push_saved_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc):
        autograd_graph.pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Context manager that stores saved tensors in host memory (on the CPU they already are)."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        super().__init__(lambda t: (t.device, t.cpu()), lambda p: p[1].to(p[0]))


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message):
    """Context manager in which saved_tensors_hooks raises RuntimeError(error_message). It raises
    this itself if hooks are active."""
    here = autograd_graph.hooks_here
    if here.pairs:
        raise RuntimeError(error_message)
    old, here.refused = here.refused, error_message
    try:
        yield
    finally:
        here.refused = old


def get_gradient_edge(tensor):
    """Returns the edge that receives the gradient of `tensor`."""
    if not tensor._requires_grad_:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    if tensor._grad_fn_ is None:
        return GradientEdge(primitives.AccumulateGrad.of(tensor), 0)
    return GradientEdge(tensor._grad_fn_, tensor._output_nr)


def increment_version(tensor):
    """Increments the version counter of the tensor(s), for a write that autograd did not see."""
    from mindtorch.core.tensor.tensor import bump_version
    for t in ([tensor] if is_tensor(tensor) else tensor):
        bump_version(t)


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """Calls fn(grads) in each backward pass once all gradients of `tensors` that it computes are
    available (None for the others).

    mode="any": calls fn(grad) for the first gradient of each backward pass.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = tuple(tensors)
    if mode == "any":
        tensors = tuple(t for t in tensors if t.requires_grad)
    key = object()

    def notes():
        # Stored on the backward pass, so that nested, concurrent and failed passes do not
        # interfere.
        this = engine.current_graph_task()
        if this.notes is None:
            this.notes = {}
        if key not in this.notes:
            this.notes[key] = [sum(map(this.runs, tensors)), [None] * len(tensors)]
        return this.notes[key]

    def hook_all(i):
        def hook(g):
            state = notes()
            state[0] -= 1
            state[1][i] = g
            if not state[0]:
                fn(state[1])
        return hook

    def hook_any(g):
        state = notes()
        if state[0]:
            state[0] = 0
            fn(g)

    return MultiHandle([t.register_hook(hook_all(i) if mode == "all" else hook_any) for i, t in enumerate(tensors)])


class MultiHandle:
    """Handle that removes several hooks at once."""

    def __init__(self, handles):
        self.handles = tuple(handles)

    def remove(self):
        for h in self.handles:
            h.remove()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()


def allow_mutation_on_saved_tensors():
    """Context manager: tensors saved for backward may be modified in place; they are copied before
    the first write.

    Backward must also run inside the context (AssertionError elsewhere). Nested contexts raise
    RuntimeError.
    """
    from mindtorch.torch.autograd._mutation import allow_mutation_on_saved_tensors
    return allow_mutation_on_saved_tensors()

