"""torch.fx.passes.infra.partitioner: the largest subgraphs that an accelerator supports."""
from mindtorch.torch.fx.node import qualified_name
from mindtorch.torch.fx.passes.utils.fuser_utils import comes_back, fuse_by_partitions

__all__ = ["Partition", "CapabilityBasedPartitioner"]


class Partition:
    """A collection of nodes."""

    def __init__(self, id=None, nodes=None, node_orders=None):
        self.id = id
        nodes = list(nodes or ())
        self.nodes = dict(zip(nodes, node_orders or [None] * len(nodes)))

    def __repr__(self):
        return str(self.nodes)

    def add_node(self, node, node_order=None):
        self.nodes[node] = node_order

    def remove_node(self, node):
        del self.nodes[node]

    def size(self):
        return len(self.nodes)


class CapabilityBasedPartitioner:
    """Partitions the nodes that an OperatorSupportBase supports, without cyclic dependencies.

    Args:
        allows_single_node_partition: also keep partitions with a single compute node.
        non_compute_ops: names of functions that do not count as compute nodes.
        allowed_single_node_partition_ops: names of functions that may form a partition alone.
        skip_horizontal_fusion: do not merge partitions that do not use each other's values.
    """

    def __init__(self, graph_module, operator_support, allows_single_node_partition=False, non_compute_ops=None, allowed_single_node_partition_ops=None,
                 skip_horizontal_fusion=False):
        self.graph_module, self.operator_support, self.allows_single_node_partition = graph_module, operator_support, allows_single_node_partition
        self.non_compute_ops, self.allowed_single_node_partition_ops = list(non_compute_ops or ()), list(allowed_single_node_partition_ops or ())
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def _is_node_supported(self, node):
        return self.operator_support.is_node_supported(dict(self.graph_module.named_modules()), node)

    def propose_partitions(self):
        """Returns the Partitions; those at the end of the graph come first."""
        nodes = list(self.graph_module.graph.nodes)
        order = {n: i for i, n in enumerate(nodes)}
        modules = dict(self.graph_module.named_modules())
        part, parts = {}, {}

        def may_merge(ids):
            # A path that reaches a node of a partition continues from all of its nodes.
            return not comes_back({n for i in ids for n in parts[i].nodes}, lambda n: [v for m in parts[part[n]].nodes for v in m.users] if n in part else ())

        def merge(ids):
            keep, *others = ids
            for i in others:
                if i != keep and i in parts and keep in parts and may_merge((keep, i)):
                    for n in parts[i].nodes:
                        parts[keep].nodes[n] = order[n]
                        part[n] = keep
                    del parts[i]
        count = 0
        for n in reversed(nodes):
            if n.op in ("placeholder", "output", "get_attr") or not self.operator_support.is_node_supported(modules, n):
                continue
            parts[count] = Partition(count, [n], [order[n]])
            part[n] = count
            merge([*dict.fromkeys((count, *(part[u] for u in n.users if u in part)))])
            count += 1
        if not self.skip_horizontal_fusion:
            every = list(parts)
            for i, a in enumerate(every):
                if a in parts:
                    merge([a, *every[i + 1:]])
        for p in list(parts.values()):
            if not self._counts(p):
                del parts[p.id]
        return [p for p in parts.values() if p.size()]

    def _counts(self, p):
        if self.allows_single_node_partition:
            return True
        names = [_name(n) for n in p.nodes]
        computing = [n for n in names if n not in self.non_compute_ops and n != "_operator.getitem"]
        return len(computing) > 1 or any(n in self.allowed_single_node_partition_ops for n in names)

    def fuse_partitions(self, partitions, prefix="fused_"):
        """Returns the GraphModule with each partition as a submodule."""
        return fuse_by_partitions(self.graph_module, [p.nodes for p in partitions], prefix=prefix)

    def remove_bookend_non_compute_ops(self, partitions):
        """Removes non-compute nodes from the beginning and end of each partition."""
        for p in partitions:
            changed = True
            while changed:
                changed = False
                for n in list(p.nodes):
                    if _name(n) in self.non_compute_ops and (not any(u in p.nodes for u in n.users) or not any(m in p.nodes for m in n.all_input_nodes)):
                        p.remove_node(n)
                        changed = True

    def partition_and_fuse(self, prefix="fused_"):
        """Calls `propose_partitions`, then `fuse_partitions`."""
        return self.fuse_partitions(self.propose_partitions(), prefix=prefix)


def _name(node):
    return qualified_name(node.target) if node.op == "call_function" else str(node.target)
