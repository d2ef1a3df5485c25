"""torch.autograd.graph: saved-tensor hooks and the nodes of the graph."""
import abc
import contextlib

from mindtorch.core import engine, nodes, tape
from mindtorch.core.engine import GradientEdge
from mindtorch.core.tensor import taken

__all__ = ["saved_tensors_hooks", "save_on_cpu", "disable_saved_tensors_hooks", "Node", "increment_version",
           "register_multi_grad_hook", "get_gradient_edge", "GradientEdge", "allow_mutation_on_saved_tensors"]


class Node(abc.ABC):
    """What every grad_fn is an instance of, and its class a subclass, without inheriting from it."""

    @abc.abstractmethod
    def name(self):
        """The operation's name."""

    @property
    @abc.abstractmethod
    def next_functions(self):
        """(node, output number) of each input."""

    @abc.abstractmethod
    def metadata(self):
        """A dictionary for whoever wants to note something."""

    @abc.abstractmethod
    def register_hook(self, fn):
        """fn(grad_inputs, grad_outputs) after the node ran."""

    @abc.abstractmethod
    def register_prehook(self, fn):
        """fn(grad_outputs) before the node runs."""

    @classmethod
    def __subclasshook__(cls, other):
        return issubclass(other, nodes.Node) or NotImplemented if cls is Node else NotImplemented


class saved_tensors_hooks:
    """Context manager: pack(tensor) when a tensor is saved for backward, unpack(packed) when it is needed."""

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self):
        nodes.push_saved_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc):
        nodes.pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Keeps saved tensors in host memory (where they are anyway on CPU)."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        super().__init__(lambda t: (t.device, t.cpu()), lambda p: p[1].to(p[0]))


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message):
    """Inside, saved_tensors_hooks raises RuntimeError(error_message), and so does this where hooks are active already."""
    here = nodes.hooks_here
    if here.pairs:
        raise RuntimeError(error_message)
    old, here.refused = here.refused, error_message
    try:
        yield
    finally:
        here.refused = old


def get_gradient_edge(tensor):
    """The edge into which the gradient of `tensor` flows."""
    if not tensor._rg:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    if tensor._gnode is None:
        return GradientEdge(tape.AccumulateGrad.of(tensor), 0)
    return GradientEdge(tensor._gnode, tensor._oi)


def increment_version(tensor):
    """Counts a write into the tensor(s) that autograd did not see."""
    from mindtorch.core.tensor import bump
    for t in ([tensor] if taken(tensor) else tensor):
        bump(t)


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """fn(grads) in each backward, once the gradients of all `tensors` that it computes are there (None in the place of the others).

    mode="any": fn(grad) at the first gradient of each backward.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = tuple(tensors)
    if mode == "any":
        tensors = tuple(t for t in tensors if t.requires_grad)
    key = object()

    def notes():
        # Kept by the backward itself: nested ones, those of other threads and failed ones do not mix.
        this = engine.current_pass()
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
    """Handle of several hooks at once."""

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
    """Context manager: tensors that were saved for backward may be written to; they are copied before the first write.

    Backward has to run inside as well (AssertionError elsewhere); RuntimeError where one is entered within another.
    """
    from mindtorch.torch.autograd._mutation import allow_mutation_on_saved_tensors
    return allow_mutation_on_saved_tensors()

