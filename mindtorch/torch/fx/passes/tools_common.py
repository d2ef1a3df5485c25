"""torch.fx.passes.tools_common: node helpers for tools that split graphs."""
from mindtorch.core.tensor.tensor import Tensor
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.node import qualified_name

__all__ = ["get_acc_ops_name", "get_node_target", "is_node_output_tensor", "legalize_graph", "stable_topological_sort"]

CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def get_acc_ops_name(k):
    """Returns the qualified name of a function; an `acc_ops` module is shortened to `acc_ops`."""
    if isinstance(k, str):
        return k
    if k.__module__ and "acc_ops" in k.__module__:
        return f"acc_ops.{k.__name__}"
    return f"{k.__module__.replace('torch._ops', 'torch.ops') if k.__module__ else ''}.{k.__name__}"


def get_node_target(submodules, node):
    """Returns the target of a node as a string: the class of a module, or the name of a function or
    method."""
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(f"Expect op types of {', '.join(CALLABLE_NODE_OPS)}, but found {node.op}")
    if node.op == "call_module":
        if node.target not in submodules:
            raise AssertionError(f"module {node.target} is not among the submodules")
        return _base(submodules[node.target])
    if node.op == "call_method":
        return node.target
    name = qualified_name(node.target)
    return f"builtins.{name}" if "." not in name else name


def _base(m):
    name = qualified_name(getattr(m, "_base_class_origin", type(m)))
    return name if name.startswith("torch.") or not type(m).__module__.startswith(("torch.", "mindtorch.torch.")) else f"torch.{name}"


def is_node_output_tensor(node):
    """True if a node's output is known to be a tensor (meta["type"], see `ShapeProp`)."""
    t = node.meta.get("type")
    return isinstance(t, type) and issubclass(t, Tensor)


def _sorted(gm, ready_first):
    waiting = {n: len(n.all_input_nodes) for n in gm.graph.nodes}
    ready, graph, env = [n for n in gm.graph.nodes if not waiting[n]], Graph(), {}
    order = []
    while ready:
        n = ready_first(ready)
        order.append(n)
        for u in n.users:
            waiting[u] -= 1
            if not waiting[u]:
                ready.append(u)
    if len(order) != len(waiting):
        raise RuntimeError(f"Input graph has cycles, unable to add {[n for n in waiting if n not in order]}")
    # (the output stays last)
    for n in sorted(order, key=lambda n: n.op == "output"):
        env[n] = graph.node_copy(n, lambda x: env[x])
    graph._codegen = gm.graph._codegen
    gm.graph = graph
    return gm


def legalize_graph(gm):
    """Sorts the nodes of `gm` topologically and returns `gm`. RuntimeError if the graph has a
    cycle."""
    return _sorted(gm, lambda ready: ready.pop(0))


def stable_topological_sort(gm):
    """Like `legalize_graph`, but stays as close to the original order as possible."""
    place = {n: i for i, n in enumerate(gm.graph.nodes)}

    def first(ready):
        n = min(ready, key=place.__getitem__)
        ready.remove(n)
        return n
    return _sorted(gm, first)
