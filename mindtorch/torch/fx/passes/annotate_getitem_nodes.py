"""torch.fx.passes.annotate_getitem_nodes: types for elements read from typed tuples and lists."""
import operator
import typing

__all__ = ["annotate_getitem_nodes"]


def annotate_getitem_nodes(graph):
    """Sets the type of each `x[i]` node to the element type that the type of `x` declares."""
    for node in graph.nodes:
        if node.target is not operator.getitem or getattr(node.args[0], "type", None) is None:
            continue
        held, index = node.args[0].type, node.args[1]
        origin, inner = typing.get_origin(held), typing.get_args(held)
        if origin is tuple:
            if inner[-1:] == (...,):
                node.type = inner[0]
            elif isinstance(index, int) and -len(inner) <= index < len(inner):
                node.type = inner[index]
        elif origin is list:
            node.type = inner[0]
        elif isinstance(held, type) and issubclass(held, tuple) and hasattr(held, "_fields") and isinstance(index, int):
            node.type = held.__annotations__.get(held._fields[index])
