"""torch.fx.subgraph_rewriter: replaces matches of a pattern in a graph."""
import dataclasses
from typing import Any, NamedTuple

from mindtorch.torch.fx._symbolic_trace import symbolic_trace
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.graph_module import GraphModule, _assign_attr
from mindtorch.torch.fx.node import Node, map_arg
from mindtorch.torch.nn.modules.module import Module

__all__ = ["Match", "replace_pattern", "replace_pattern_with_filters", "ReplacedPatterns"]


class Match(NamedTuple):
    """A match of a pattern: its last node, and the map from pattern nodes to graph nodes."""

    anchor: Node
    nodes_map: dict


@dataclasses.dataclass
class ReplacedPatterns:
    """A Match and the nodes that replaced it."""

    anchor: Node
    nodes_map: dict
    replacements: list


def _graph(x):
    return x if isinstance(x, Graph) else x.graph if isinstance(x, GraphModule) else symbolic_trace(x).graph


def _fetch(module, target):
    """Returns the attribute of a module with a dotted name, or None."""
    for part in target.split("."):
        module = getattr(module, part, None)
        if module is None:
            return None
    return module


def _replace_attributes(gm, replacement):
    """Copies the attributes that the new nodes need to `gm`, and deletes unused submodules."""
    gm.delete_all_unused_submodules()
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr") or _fetch(gm, node.target) is not None:
            continue
        value = _fetch(replacement, node.target)
        if value is None:
            raise RuntimeError(f'Attempted to create a "{node.op}" node during subgraph rewriting with target {node.target}, but the referenced '
                               "attribute does not exist in the replacement module")
        _assign_attr(value, gm, node.target)


def replace_pattern(gm, pattern, replacement):
    """Replaces every match of `pattern` in `gm`'s graph with `replacement` and returns the Matches.

    `pattern` and `replacement` are functions, modules or GraphModules with the same inputs.
    Internal values of a match must not be used outside it.
    """
    return [Match(m.anchor, m.nodes_map) for m in _replace(gm, pattern, replacement)]


def replace_pattern_with_filters(gm, pattern, replacement=None, match_filters=None, ignore_literals=False, replacement_callback=None, node_name_match=""):
    """Like `replace_pattern`, for the matches that all filters accept. Returns ReplacedPatterns.

    Args:
        match_filters: functions (InternalMatch, graph of `gm`, pattern graph) -> bool.
        replacement_callback: function of the same arguments; returns the replacement Graph.
    """
    return _replace(gm, pattern, replacement, match_filters, ignore_literals, replacement_callback, node_name_match)


def _replace(gm, pattern, replacement, match_filters=None, ignore_literals=False, callback=None, name=""):
    from mindtorch.torch.fx.passes.utils.matcher_utils import SubgraphMatcher
    graph, sought = gm.graph, _graph(pattern)
    matcher = SubgraphMatcher(sought, match_output=False, match_placeholder=False, remove_overlapping_matches=True, ignore_literals=ignore_literals)
    matches = [m for m in matcher.match(graph, node_name_match=name) if all(f(m, graph, sought) for f in match_filters or ())]
    if replacement is None and callback is None:
        raise AssertionError("Must provide either replacement GraphModule or replacement_callback")
    common = _graph(replacement) if replacement is not None and callback is None else None
    changed, done = {}, []
    for m in matches:
        new = common if common is not None else callback(m, graph, sought)
        fresh = new.find_nodes(op="placeholder")
        if len(m.placeholder_nodes) != len(fresh):
            raise AssertionError(f"the pattern has {len(m.placeholder_nodes)} inputs, its replacement {len(fresh)}")
        where = {f: _now(changed, n) for f, n in zip(fresh, m.placeholder_nodes)}
        inner = {n for p, n in m.nodes_map.items() if p.op != "placeholder"}
        with graph.inserting_before(_place(graph, m, inner)):
            out = graph.graph_copy(new, where)
        out = [out] if isinstance(out, Node) or not isinstance(out, (tuple, list)) else list(out)
        if len(out) != len(m.returning_nodes):
            raise AssertionError(f"the pattern has {len(m.returning_nodes)} results, its replacement {len(out)}")
        for old, value in zip(m.returning_nodes, out):
            if isinstance(value, Node):
                old.replace_all_uses_with(value)
            else:
                for user in list(old.users):
                    user._set(*(map_arg(a, lambda n, old=old, value=value: value if n is old else n) for a in (user.args, user.kwargs)))
            changed[old] = value
        for p in reversed(list(sought.nodes)):
            n = m.nodes_map.get(p)
            if p.op not in ("placeholder", "output") and isinstance(n, Node) and not n.users and not n._erased:
                graph.erase_node(n)
        done.append(ReplacedPatterns(m.anchors[0], m.nodes_map, [n for f, n in where.items() if f.op != "placeholder"]))
    gm.recompile()
    if isinstance(replacement, Module):
        _replace_attributes(gm, replacement)
    return done


def _now(changed: dict, n: Any):
    """Returns the current replacement of a node."""
    while isinstance(n, Node) and n in changed:
        n = changed[n]
    return n


def _place(graph, m, inner):
    """Returns the node before which the replacement is inserted: the first user of a result, else
    the node after the match."""
    users = {u for n in m.returning_nodes for u in n.users if u not in inner}
    last = None
    for n in graph.nodes:
        if n in users:
            return n
        if n in inner:
            last = n
    return last.next
