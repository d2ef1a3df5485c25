"""torch._C._autograd: saved tensors, saved-tensor hooks, and the state of the running backward
pass."""
from mindtorch.core.autograd import engine, graph as autograd_graph
from mindtorch.core.autograd.graph import SavedTensor  # noqa: F401
from mindtorch.core.tensor.tensor import version_counter

_push_saved_tensors_default_hooks = autograd_graph.push_saved_hooks
_pop_saved_tensors_default_hooks = autograd_graph.pop_saved_hooks


def _saved_tensors_hooks_is_enabled():
    """False inside torch.autograd.graph.disable_saved_tensors_hooks."""
    return autograd_graph.hooks_here.refused is None


def _saved_tensors_hooks_disable(message):
    """Makes saved_tensors_hooks raise RuntimeError(message) in this thread from now on."""
    if autograd_graph.hooks_here.pairs:
        raise RuntimeError(message)
    autograd_graph.hooks_here.refused = message


def _saved_tensors_hooks_enable():
    autograd_graph.hooks_here.refused = None


def _saved_tensors_hooks_get_disabled_error_message():
    return autograd_graph.hooks_here.refused


def _get_current_graph_task_keep_graph():
    """True if the running backward pass keeps the graph, or if no backward pass is running."""
    this = engine.current_graph_task()
    return this is None or this.keeps


def _unsafe_set_version_counter(tensors, versions):
    """Sets the tensors' version counters, so that in-place writes can be hidden from autograd."""
    for t, v in zip(tensors, versions, strict=True):
        if v < 0:
            raise RuntimeError(f"Cannot set a version_counter to a value below 0: {v}")
        version_counter(t).v = v
