"""torch.fx.subgraph_rewriter: one piece of program put in the place of another."""
from typing import NamedTuple

from mindtorch.torch.fx._symbolic_trace import symbolic_trace
from mindtorch.torch.fx.graph_module import GraphModule, _copy_attr
from mindtorch.torch.fx.node import Node

__all__ = ["Match", "replace_pattern"]


class Match(NamedTuple):
    """Where a pattern was found: its last node, and the program's node for each of the pattern's."""

    anchor: Node
    nodes_map: dict


def _graph(x):
    return x.graph if isinstance(x, GraphModule) else symbolic_trace(x).graph


def _matches(pattern, node, found):
    """Whether the program's value `node` is the pattern's value `pattern`; fills `found`."""
    if not isinstance(pattern, Node) or not isinstance(node, Node):
        if isinstance(pattern, (list, tuple)) and type(pattern) is type(node):
            return len(pattern) == len(node) and all(_matches(p, n, found) for p, n in zip(pattern, node))
        if isinstance(pattern, dict) and isinstance(node, dict):
            return pattern.keys() == node.keys() and all(_matches(pattern[k], node[k], found) for k in pattern)
        return not isinstance(pattern, Node) and not isinstance(node, Node) and type(pattern) is type(node) and pattern == node
    if pattern in found:
        return found[pattern] is node
    if pattern.op == "placeholder":
        found[pattern] = node
        return True
    if pattern.op != node.op or pattern.target != node.target or node in found.values():
        return False
    found[pattern] = node
    return _matches(pattern.args, node.args, found) and _matches(pattern.kwargs, node.kwargs, found)


def replace_pattern(gm, pattern, replacement):
    """Replaces every piece of gm's graph that computes what `pattern` does by `replacement`; gives the Matches.

    pattern and replacement are functions or GraphModules of the same inputs.  Inner values of a piece must not be used outside it.
    """
    graph = gm.graph
    sought, new = _graph(pattern), _graph(replacement)
    result = sought.output_node().args[0]
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    if not all(isinstance(o, Node) for o in outputs):
        raise RuntimeError("replace_pattern: the pattern's results must be computed by it")
    inputs, fresh = sought.find_nodes(op="placeholder"), new.find_nodes(op="placeholder")
    if len(inputs) != len(fresh):
        raise RuntimeError("replace_pattern: pattern and replacement must take the same inputs")
    matches, taken, renamed = [], set(), {}
    for node in list(graph.nodes):
        found = {}
        if node.op in ("placeholder", "output") or not _matches(outputs[-1], node, found):
            continue
        if len(outputs) > 1 and not _find_others(outputs[:-1], graph, found):
            continue
        inner = {n for p, n in found.items() if p.op != "placeholder"}
        ends = {found[o] for o in outputs}
        if inner & taken or any(u not in inner for n in inner - ends for u in n.users):
            continue
        taken |= inner
        matches.append(Match(node, found))
    for m in matches:
        where = {f: renamed.get(m.nodes_map[p], m.nodes_map[p]) for p, f in zip(inputs, fresh) if p in m.nodes_map}
        with graph.inserting_before(m.anchor):
            put = graph.graph_copy(new, where)
        put = list(put) if isinstance(put, (tuple, list)) else [put]
        for o, n in zip(outputs, put):
            old = m.nodes_map[o]
            old.replace_all_uses_with(n)
            renamed[old] = n
        inner = {n for p, n in m.nodes_map.items() if p.op != "placeholder"}
        for n in reversed(list(graph.nodes)):
            if n in inner and not n.users:
                graph.erase_node(n)
    if isinstance(replacement, GraphModule):
        for n in new.nodes:
            if n.op in ("get_attr", "call_module"):
                _copy_attr(replacement, gm, n.target)
    gm.recompile()
    return matches


def _find_others(outputs, graph, found):
    for o in outputs:
        if o in found:
            continue
        for n in graph.nodes:
            trial = dict(found)
            if n.op not in ("placeholder", "output") and _matches(o, n, trial):
                found.update(trial)
                break
        else:
            return False
    return True
