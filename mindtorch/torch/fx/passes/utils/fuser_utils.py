"""torch.fx.passes.utils.fuser_utils: moves nodes of a graph into a submodule."""
import operator

from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.passes.tools_common import stable_topological_sort
from mindtorch.torch.fx.passes.utils.common import lift_subgraph_as_module

__all__ = ["topo_sort", "validate_partition", "fuse_as_graphmodule", "insert_subgm", "erase_nodes", "fuse_by_partitions"]


def topo_sort(nodes):
    """Returns the nodes in the order of their graph, which is topological."""
    place = {n: i for i, n in enumerate(nodes[0].graph.nodes)} if nodes else {}
    return sorted(nodes, key=place.__getitem__)


def comes_back(inner, along=lambda n: ()):
    """True if a path leaves the nodes `inner` and comes back to them, i.e. fusing them makes a
    cycle.

    `along(n)` returns additional nodes that are reached whenever `n` is.
    """
    seen, todo = set(), [u for n in inner for u in n.users if u not in inner]
    while todo:
        n = todo.pop()
        if n in inner:
            return True
        if n not in seen:
            seen.add(n)
            todo += (*n.users, *along(n))
    return False


def validate_partition(partition):
    """True if the nodes can be fused: none depends on another through nodes outside the partition.
    """
    return not comes_back(set(partition))


def fuse_as_graphmodule(gm, nodes, module_name, partition_lookup_table=None, *, always_return_tuple=False):
    """Returns (GraphModule, inputs, outputs) for `nodes`, which must be in topological order.

    Inputs and outputs are nodes of `gm`.
    """
    for n in nodes:
        if n.graph.owning_module is not gm:
            raise AssertionError(f"{n} doesn't belong to passed in graph module {gm._get_name()}")
        if n._erased:
            raise AssertionError(f"{n} has been removed from owning graph")
    inner = set(nodes) if partition_lookup_table is None else set(partition_lookup_table)
    if not validate_partition(list(inner)):
        raise AssertionError("Invalid partition, found dependency cycles")
    graph, inputs, env = Graph(), {}, {}

    def argument(n):
        if n.op == "get_attr" and n not in env:
            env[n] = graph.node_copy(n)
        elif n not in inner and n not in inputs:
            inputs[n] = graph.placeholder(n.name, n.type)
            inputs[n].meta = dict(n.meta)
        return inputs[n] if n in inputs else env[n]
    for n in nodes:
        env[n] = graph.node_copy(n, argument)
    outputs = [n for n in nodes if any(u not in inner for u in n.users)]
    results = tuple(env[n] for n in outputs)
    graph.output(results if always_return_tuple or len(results) != 1 else results[0])
    graph.lint()
    fused, _ = lift_subgraph_as_module(gm, graph, comp_name="", class_name=module_name)
    return fused, tuple(inputs), tuple(outputs)


def insert_subgm(gm, sub_gm, orig_inputs, orig_outputs, insertion_point=None):
    """Inserts a call of `sub_gm` into `gm` (before `insertion_point`), replaces the uses of
    `orig_outputs` with its results, and returns `gm`."""
    name = type(sub_gm).__name__
    gm.add_submodule(name, sub_gm)
    several = len(orig_outputs) != 1 or isinstance(sub_gm.graph.output_node().args[0], tuple)
    with gm.graph.inserting_before(insertion_point) if insertion_point is not None else gm.graph.inserting_after(_latest(gm, orig_inputs)):
        call = gm.graph.call_module(name, tuple(orig_inputs))
    if not several:
        orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
        return gm
    with gm.graph.inserting_after(call):
        for i, n in enumerate(orig_outputs):
            n.replace_all_uses_with(gm.graph.call_function(operator.getitem, (call, i)), propagate_meta=True)
    call.meta["val"] = tuple(n.meta.get("val") for n in orig_outputs)
    return gm


def _latest(gm, nodes):
    """Returns the last of these nodes in `gm`'s order, or the last placeholder if that comes later.
    """
    found = None
    for n in gm.graph.nodes:
        if n in nodes or n.op == "placeholder":
            found = n
    return found


def erase_nodes(gm, nodes):
    """Erases unused nodes, which must be in topological order."""
    for n in reversed(nodes):
        gm.graph.erase_node(n)


def fuse_by_partitions(gm, partitions, prefix="fused_", always_return_tuple=False):
    """Replaces each collection of nodes with a submodule and returns `gm`."""
    for i, nodes in enumerate(partitions):
        ordered = topo_sort(list(nodes))
        sub, inputs, outputs = fuse_as_graphmodule(gm, ordered, f"{prefix}{i}", dict.fromkeys(nodes), always_return_tuple=always_return_tuple)
        last = _latest(gm, ordered)
        insert_subgm(gm, sub, inputs, outputs, last.next)
        erase_nodes(gm, ordered)
    stable_topological_sort(gm)
    gm.graph.lint()
    gm.recompile()
    return gm
