"""torch.fx.passes.split_utils: splits a graph by the tags of its nodes."""
import dataclasses
import operator

from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.graph_module import GraphModule, _assign_attr
from mindtorch.torch.fx.node import map_arg
from mindtorch.torch.fx.passes.utils.common import HolderModule, lift_subgraph_as_module

__all__ = ["getattr_recursive", "setattr_recursive", "Component", "split_by_tags"]


def getattr_recursive(obj, name):
    """Returns the attribute with a dotted name, or None if it does not exist."""
    for part in name.split("."):
        if not hasattr(obj, part):
            return None
        obj = getattr(obj, part)
    return obj


def setattr_recursive(obj, attr, value):
    """Sets the attribute with a dotted name."""
    *path, last = attr.split(".")
    for part in path:
        obj = getattr(obj, part)
    setattr(obj, last, value)


@dataclasses.dataclass
class Component:
    """A partition: its graph, its inputs (in the partition and in the original graph), its outputs
    and its module."""

    graph: Graph
    order: int
    name: str
    input_placeholders: list = dataclasses.field(default_factory=list)
    orig_inputs: list = dataclasses.field(default_factory=list)
    orig_outputs: list = dataclasses.field(default_factory=list)
    getattr_maps: dict = dataclasses.field(default_factory=dict)
    constructor_args: list = dataclasses.field(default_factory=list)
    gm: object = None


def split_by_tags(gm, tags, return_fqn_mapping=False, return_tuple=False, GraphModuleCls=GraphModule):
    """Returns a GraphModule that calls one submodule per tag, in the order of `tags`.

    Every compute node must have an attribute `tag`. A partition may only use values of earlier
    partitions. With `return_fqn_mapping` the result is a pair whose second element maps attribute
    names in `gm` to names in the result.
    """
    parts = {t: Component(Graph(), i, t) for i, t in enumerate(tags)}
    of, env, base = {}, {}, Graph()
    base._codegen = gm.graph._codegen
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            if node.op == "placeholder":
                env[node] = base.node_copy(node)
            continue
        if not hasattr(node, "tag"):
            raise AssertionError(f"Node {node} has no tag")
        part = of[node] = parts[node.tag]
        inside = part.getattr_maps

        def argument(n, part=part, inside=inside):
            if n in inside:
                return inside[n]
            if n.op == "get_attr":
                inside[n] = part.graph.node_copy(n)
                return inside[n]
            if n.op != "placeholder" and of[n].order >= part.order:
                raise AssertionError(f"partition {part.name} uses {n} of the later partition {of[n].name}")
            inside[n] = part.graph.placeholder(n.name, n.type)
            inside[n].meta = dict(n.meta)
            part.input_placeholders.append(inside[n])
            part.orig_inputs.append(n)
            return inside[n]
        inside[node] = part.graph.node_copy(node, argument)
    for user in gm.graph.nodes:
        for n in user.all_input_nodes:
            if n in of and of[n] is not of.get(user) and n not in of[n].orig_outputs:
                of[n].orig_outputs.append(n)
    names, modules = {}, {}
    for part in parts.values():
        results = tuple(part.getattr_maps[n] for n in part.orig_outputs)
        part.graph.output(results if return_tuple or len(results) != 1 else results[0])
        part.gm, found = lift_subgraph_as_module(gm, part.graph, part.name)
        names.update((old, new) for new, old in found.items())
        modules[part.name] = part.gm
        call = base.call_module(part.name, tuple(env[n] for n in part.orig_inputs))
        for i, n in enumerate(part.orig_outputs):
            env[n] = base.call_function(operator.getitem, (call, i)) if return_tuple or len(results) != 1 else call
            env[n].meta = dict(n.meta)
    out = gm.graph.output_node()
    for n in out.all_input_nodes:
        if n.op == "get_attr":
            env[n] = base.node_copy(n)
            modules[n.target] = getattr_recursive(gm, n.target)
    base.output(map_arg(out.args[0], lambda n: env[n]), out.type).meta = dict(out.meta)
    root = HolderModule({})
    for k, v in modules.items():
        _assign_attr(v, root, k)
    made = GraphModuleCls(root, base)
    return (made, names) if return_fqn_mapping else made
