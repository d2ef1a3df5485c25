"""torch.fx.passes.split_module: splits a graph into submodules."""
import operator

from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.graph_module import GraphModule
from mindtorch.torch.fx.node import map_arg

__all__ = ["Partition", "split_module", "split_module_simple"]


class Partition:
    """A partition: its nodes, inputs and outputs, and the partitions it depends on.

    Inputs and outputs are nodes of the original graph, in the order of their first use.
    """

    def __init__(self, name):
        self.name, self.submod_name = name, f"submod_{name}"
        self.nodes, self.inputs, self.outputs, self.dependencies, self.dependents = [], {}, {}, {}, {}
        self.graph, self.environment, self.targets = Graph(), {}, {}

    def __repr__(self):
        return f"name: {self.name},\n nodes: {[n.name for n in self.nodes]},\n inputs: {[n.name for n in self.inputs]},\n outputs: " \
               f"{[n.name for n in self.outputs]},\n partitions depended on: {list(self.dependencies)},\n partition dependents: {list(self.dependents)}"


def _parts(graph, split_callback):
    """Returns ({name: Partition}, {node: Partition}) for the compute nodes."""
    parts, of = {}, {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        name = str(split_callback(node))
        part = of[node] = parts[name] if name in parts else parts.setdefault(name, Partition(name))
        part.nodes.append(node)
    for node in graph.nodes:
        user = of.get(node)
        for n in node.all_input_nodes:
            made = of.get(n)
            if made is not None and made is not user:
                made.outputs.setdefault(n)
            if user is not None and made is not user:
                user.inputs.setdefault(n)
                if made is not None:
                    user.dependencies.setdefault(made.name)
                    made.dependents.setdefault(user.name)
    return parts, of


def _order(parts, keep):
    """Returns the partitions in topological order. RuntimeError if they have a cycle."""
    waiting = {n: dict(p.dependencies) for n, p in parts.items()}
    ready, order = [n for n in parts if not waiting[n]], []
    while ready:
        n = ready.pop(0 if keep else -1)
        order.append(parts[n])
        for user in parts[n].dependents:
            waiting[user].pop(n)
            if not waiting[user]:
                ready.append(user)
        if keep:
            ready.sort(key=list(parts).index)
    if len(order) != len(parts):
        raise RuntimeError("cycle exists between partitions!")
    return order


def _value(module, target):
    for part in target.split("."):
        if not hasattr(module, part):
            raise RuntimeError(f"Operator target {target} not found!")
        module = getattr(module, part)
    return module


def split_module(m, root_m, split_callback, qualname_map=None, keep_original_order=False, keep_original_node_name=False, keep_original_input_name=True, *,
                 partition_affix=None, tuple_return=False):
    """Returns a GraphModule that calls a submodule `submod_<name>` for each partition of `m`'s
    graph.

    RuntimeError if the partitions have a cycle.

    Args:
        split_callback: maps a node to the name of its partition.
        root_m: module that holds the attributes of the graph which `m` lacks.
        qualname_map: filled with {name in the result: name in `m`} of submodules.
        keep_original_order: keep the partitions in the order of their first nodes where possible.
        keep_original_node_name, keep_original_input_name: keep the names of nodes and inputs.
        partition_affix: inserted into the submodule names.
        tuple_return: a partition with a single output also returns a tuple.
    """
    parts, of = _parts(m.graph, split_callback)
    order = _order(parts, keep_original_order)
    for p in parts.values():
        p.submod_name = "_".join(["submod", *([] if partition_affix is None else [partition_affix]), p.name])
        for i, n in enumerate(p.inputs):
            name = n.name if keep_original_input_name else f"arg_{i}"
            p.environment[n] = new = p.graph.placeholder(name, type_expr=n.type)
            new.meta = dict(n.meta)
    names = {} if qualname_map is None else qualname_map
    for node in m.graph.nodes:
        p = of.get(node)
        if p is None:
            continue
        args, kwargs = (map_arg(a, lambda n, p=p: p.environment[n]) for a in (node.args, node.kwargs))
        target = node.target
        if node.op == "call_module":
            target = node.target.replace(".", "_")
            p.targets[target] = _value(m, node.target)
            names[f"{p.submod_name}.{target}"] = node.target
        new = p.environment[node] = p.graph.create_node(node.op, target, args, kwargs, node.name if keep_original_node_name else None, node.type)
        new.meta = dict(node.meta)
    base, env, attributes = Graph(), {}, {}
    base._codegen = m.graph._codegen
    for node in m.graph.nodes:
        if node.op == "placeholder":
            env[node] = base.create_node("placeholder", node.target, node.args, type_expr=node.type)
            env[node].meta = dict(node.meta)

    def fetch(node):
        if node.op == "get_attr" and node not in env:
            env[node] = base.get_attr(node.target, node.type)
            env[node].meta = dict(node.meta)
            attributes[node.target] = _value(m if _has(m, node.target) else root_m, node.target)
    if not keep_original_order:
        for node in m.graph.nodes:
            fetch(node)
    for p in order:
        if keep_original_order:
            for node in p.inputs:
                fetch(node)
        outputs = list(p.outputs)
        result = tuple(p.environment[n] for n in outputs)
        several = len(outputs) != 1 or tuple_return
        if outputs:
            p.graph.output(result if several else result[0])
        attributes[p.submod_name] = GraphModule(p.targets, p.graph)
        call = base.call_module(p.submod_name, tuple(env[n] for n in p.inputs))
        for i, n in enumerate(outputs):
            env[n] = base.call_function(operator.getitem, (call, i)) if several else call
            env[n].meta = dict(n.meta)
    out = m.graph.output_node()
    for n in out.all_input_nodes:
        fetch(n)
    new = base.output(map_arg(out.args[0], lambda n: env[n]), out.type)
    new.meta = dict(out.meta)
    return GraphModule(attributes, base)


def _has(module, target):
    try:
        _value(module, target)
    except RuntimeError:
        return False
    return True


def split_module_simple(m, node_to_partition, *, partition_affix=None):
    """Like `split_module`, with a dictionary {node: partition name}."""
    return split_module(m, m, node_to_partition.__getitem__, partition_affix=partition_affix)
