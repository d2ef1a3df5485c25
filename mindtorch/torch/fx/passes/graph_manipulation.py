"""torch.fx.passes.graph_manipulation: target replacement and memory use of a graph's values."""
from typing import NamedTuple

from mindtorch.torch.fx.passes.shape_prop import ShapeProp

__all__ = ["replace_target_nodes_with", "size_bytes", "get_size_of_all_nodes", "get_tensor_meta", "get_size_of_node"]


def replace_target_nodes_with(fx_module, old_op, old_target, new_op, new_target):
    """Replaces the op and target of every node with `old_op` and `old_target`."""
    for n in fx_module.graph.nodes:
        if n.op == old_op and n.target == old_target:
            n.op, n.target = new_op, new_target


class size_bytes(NamedTuple):
    """Bytes of a node's output, and of its output and parameters together."""

    output_size: int
    total_size: int


def get_size_of_all_nodes(fx_module, args=None):
    """Sets `size_bytes` on every node, after running the graph on `args` if they are passed."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for n in fx_module.graph.nodes:
        if n.op == "output":
            break
        n.size_bytes = get_size_of_node(fx_module, n)


def get_tensor_meta(node):
    """Returns the TensorMetadata of a node. RuntimeError if shape propagation has not run."""
    found = node.meta.get("tensor_meta")
    if not found:
        raise RuntimeError(f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run.")
    return found


def get_size_of_node(fx_module, node):
    """Returns the `size_bytes` of a node whose shape is known."""
    total = 0
    if node.op == "call_module":
        total = sum(p.numel() * p.element_size() for p in fx_module.get_submodule(node.target).parameters())
    meta = get_tensor_meta(node)
    count = 1
    for n in meta.shape:
        count *= n
    out = count * meta.dtype.itemsize
    return size_bytes(out, out + total)
