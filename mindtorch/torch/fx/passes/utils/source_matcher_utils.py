"""torch.fx.passes.utils.source_matcher_utils: which steps of a program came of one module or function of its source."""
import dataclasses

from mindtorch.torch.fx.node import Node

__all__ = ["get_source_partitions", "check_subgraphs_connected", "SourcePartition"]


@dataclasses.dataclass
class SourcePartition:
    """Steps of one source: what goes in, what comes out, and the parameters among what goes in."""

    nodes: list
    source: object
    input_nodes: list = dataclasses.field(default_factory=list)
    output_nodes: list = dataclasses.field(default_factory=list)
    params: list = dataclasses.field(default_factory=list)


def get_source_partitions(graph, wanted_sources, filter_fn=None):
    """{source: SourcePartitions} by the nodes' meta: "source_fn_stack" or, without that, "torch_fn", as tracers of source programs leave them.

    filter_fn   says of a node whether it counts; partitions keep out if one of their nodes does not
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
        for m in n.args:          # (what stands in a list among the arguments does not count)
            if isinstance(m, Node) and m not in inner:
                inputs.setdefault(m)
        if n.op == "get_attr":
            params.setdefault(n)
        if any(u not in inner for u in n.users):
            outputs.setdefault(n)
    return SourcePartition(list(nodes), source, [m for m in inputs if m.op != "get_attr"], list(outputs),
                           [*params, *[m for m in inputs if m.op == "get_attr"]])


def check_subgraphs_connected(subgraph1, subgraph2):
    """Whether the second uses what the first gives."""
    return any(m in subgraph1.nodes for n in subgraph2.nodes for m in n.all_input_nodes)
