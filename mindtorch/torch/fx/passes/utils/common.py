"""torch.fx.passes.utils.common: lifting subgraphs to modules, and comparing graphs."""
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.graph_module import GraphModule, _assign_attr
from mindtorch.torch.nn.modules.module import Module

__all__ = ["HolderModule", "lift_subgraph_as_module", "compare_graphs"]


class HolderModule(Module):
    """A module that holds the submodules of a dictionary."""

    def __init__(self, d):
        super().__init__()
        for k, v in d.items():
            self.add_module(k, v)


def lift_subgraph_as_module(gm, subgraph, comp_name="", class_name="GraphModule"):
    """Returns (GraphModule, {name in it: name in `gm`}) for a subgraph of `gm`.

    The mapping covers submodules, parameters and buffers. Attributes keep their names. The new
    module becomes the owner of the subgraph's nodes.
    """
    root, names = HolderModule({}), {}
    for n in subgraph.nodes:
        if n.op not in ("call_module", "get_attr"):
            continue
        at, found = root, gm
        *path, last = n.target.split(".")
        for part in path:
            found = getattr(found, part)
            if not hasattr(at, part):
                at.add_module(part, HolderModule({}))
            at = getattr(at, part)
        value = getattr(found, last)
        if not hasattr(at, last):
            _assign_attr(value, at, last)
        names[f"{comp_name}.{n.target}" if comp_name else n.target] = n.target
    return GraphModule(root, subgraph, class_name), names


def compare_graphs(left, right):
    """True if two Graphs are equivalent: one matches the entire other."""
    from mindtorch.torch.fx.passes.utils.matcher_utils import SubgraphMatcher
    if not isinstance(left, Graph) or not isinstance(right, Graph):
        raise TypeError("compare_graphs takes two Graphs")
    return len(left.nodes) == len(right.nodes) and len(SubgraphMatcher(left, match_output=True, match_placeholder=True).match(right)) > 0
