"""torch.fx.passes.utils.source_matcher_utils: groups nodes by the module or function they come
from."""
import dataclasses

from mindtorch.torch.fx.node import Node

__all__ = ["get_source_partitions", "check_subgraphs_connected", "SourcePartition"]


@dataclasses.dataclass
class SourcePartition:
    """Nodes with a common source, their inputs and outputs, and the get_attr nodes among the
    inputs."""

    nodes: list
    source: object
    input_nodes: list = dataclasses.field(default_factory=list)
    output_nodes: list = dataclasses.field(default_factory=list)
    params: list = dataclasses.field(default_factory=list)


def get_source_partitions(graph, wanted_sources, filter_fn=None):
    """Returns {source: [SourcePartition]} from the nodes' meta.

    The meta entry is "source_fn_stack", or else "torch_fn", as set by tracers. A partition is
    dropped if `filter_fn` returns False for any of its nodes.
    """
    found: dict = {}
    for node in graph.nodes:
        stack = node.meta.get("source_fn_stack")
        if stack:
            name, source = stack[-1]
        else:
            fn = node.meta.get("torch_fn")
            if fn is None:
                continue
            name, source = fn[0], fn[1].split(".")[1] if "." in fn[1] else fn[1]
        if source in wanted_sources:
            found.setdefault(source, {}).setdefault(name, []).append(node)
    return {source: [_partition(nodes, source) for nodes in groups.values() if filter_fn is None or all(map(filter_fn, nodes))]
            for source, groups in found.items()}


def _partition(nodes, source):
    inner, inputs, params, outputs = set(nodes), {}, {}, {}
    for n in nodes:
        for m in n.args:  # (nodes inside list arguments do not count)
            if isinstance(m, Node) and m not in inner:
                inputs.setdefault(m)
        if n.op == "get_attr":
            params.setdefault(n)
        if any(u not in inner for u in n.users):
            outputs.setdefault(n)
    return SourcePartition(list(nodes), source, [m for m in inputs if m.op != "get_attr"], list(outputs),
                           [*params, *[m for m in inputs if m.op == "get_attr"]])


def check_subgraphs_connected(subgraph1, subgraph2):
    """True if the second partition uses a node of the first."""
    return any(m in subgraph1.nodes for n in subgraph2.nodes for m in n.all_input_nodes)
