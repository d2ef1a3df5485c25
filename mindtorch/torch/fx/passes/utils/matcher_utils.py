"""torch.fx.passes.utils.matcher_utils: finds matches of a pattern in a graph."""
import dataclasses

from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.fx.node import Node

__all__ = ["SubgraphMatcher", "InternalMatch"]

_CONTAINERS = (list, tuple)


@dataclasses.dataclass
class InternalMatch:
    """One match of a pattern.

    Args:
        anchors: nodes of the graph that match the pattern's final nodes.
        nodes_map: {pattern node: graph node, or the literal that a placeholder matched}.
        placeholder_nodes: the matches of the pattern's inputs, in their order.
        returning_nodes: the matches of the pattern's outputs.
        name_node_map: {name given by the pattern: node} (SubgraphMatcherWithNameNodeMap).
    """

    anchors: list
    nodes_map: dict = dataclasses.field(default_factory=dict)
    placeholder_nodes: list = dataclasses.field(default_factory=list)
    returning_nodes: list = dataclasses.field(default_factory=list)
    name_node_map: dict = dataclasses.field(default_factory=dict)

    def __copy__(self):
        return InternalMatch(list(self.anchors), dict(self.nodes_map), list(self.placeholder_nodes), list(self.returning_nodes), dict(self.name_node_map))


def _attribute(node):
    """Returns the value of a get_attr node, or the node itself if its graph has no owning module.
    """
    at = node.graph.owning_module
    if at is None:
        return node
    for part in node.target.split("."):
        if not hasattr(at, part):
            raise RuntimeError(f"Node referenced nonexistent attribute {node.target}")
        at = getattr(at, part)
    return at


def _spread(a, b):
    """True if one is an int and the other a list of that int: the default 0 equals [0, 0]."""
    if type(a) is int:
        a, b = b, a
    return type(b) is int and isinstance(a, _CONTAINERS) and len(a) > 0 and all(type(x) is int and x == b for x in a)


class SubgraphMatcher:
    """Finds the matches of a pattern in graphs.

    Args:
        pattern: a Graph.
        match_output: the graph's output must match the pattern's output.
        match_placeholder: pattern placeholders match only placeholders, not any value.
        remove_overlapping_matches: of matches that share nodes, keep the first.
        ignore_literals: constants in the arguments need not be equal.
    """

    def __init__(self, pattern, match_output=False, match_placeholder=False, remove_overlapping_matches=True, ignore_literals=False):
        self.pattern, self.match_output, self.match_placeholder = pattern, match_output, match_placeholder
        self.remove_overlapping_matches, self.ignore_literals = remove_overlapping_matches, ignore_literals
        nodes = list(pattern.nodes)
        if not nodes:
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for n in nodes:
            if n.op != "output" and n.op != "placeholder" and not n.users:
                raise AssertionError("SubgraphMatcher cannot be initialized with an pattern with dead code")
        self.pattern_placeholder_nodes = [n for n in nodes if n.op == "placeholder"]
        output = pattern.output_node()
        self.pattern_returning_nodes = list(output.all_input_nodes)
        self.pattern_anchors = [output] if match_output else [n for n in self.pattern_returning_nodes if len(n.users) == 1]

    # ---- comparing nodes and arguments
    def _match_attributes(self, pn, gn):
        a, b = _attribute(pn), _attribute(gn)
        if isinstance(a, Node) or isinstance(b, Node):
            return pn.target == gn.target
        return is_tensor(b) if is_tensor(a) else a is b or type(a) is type(b) and a == b

    def _nodes_are_equal(self, pn, gn, node_name_match=""):
        if node_name_match and node_name_match in gn.name and pn.op not in ("placeholder", "output"):
            return True
        if not self.match_placeholder and pn.op == "placeholder":
            return True
        if pn.op != gn.op:
            return False
        if pn.op in ("placeholder", "output"):
            return True
        return self._match_attributes(pn, gn) if pn.op == "get_attr" else pn.target == gn.target

    def _match_literals(self, pn, gn, match):
        if isinstance(pn, Node):
            if pn.op != "placeholder":
                return False
            if pn in match.nodes_map:
                found = match.nodes_map[pn]
                return type(found) is type(gn) and found == gn
            match.nodes_map[pn] = gn
            return True
        return self.ignore_literals or not isinstance(gn, Node) and type(gn) is type(pn) and gn == pn

    def _match_values(self, p, g, match, name):
        """True if two arguments match; containers are compared recursively."""
        if isinstance(p, Node) and isinstance(g, Node):
            return self._match_nodes(p, g, match, name)
        if isinstance(p, _CONTAINERS) and isinstance(g, _CONTAINERS):
            return isinstance(p, tuple) == isinstance(g, tuple) and len(p) == len(g) and all(self._match_values(a, b, match, name) for a, b in zip(p, g))
        if isinstance(p, dict) and isinstance(g, dict):
            return p.keys() == g.keys() and all(self._match_values(p[k], g[k], match, name) for k in p)
        if isinstance(p, slice) and isinstance(g, slice):
            return all(self._match_values(getattr(p, k), getattr(g, k), match, name) for k in ("start", "stop", "step"))
        return self._match_literals(p, g, match)

    def _match_arguments(self, pn, gn, match, name):
        if len(pn.args) == len(gn.args) and pn.kwargs.keys() == gn.kwargs.keys():
            return self._match_values(pn.args, gn.args, match, name) and self._match_values(pn.kwargs, gn.kwargs, match, name)
        # One call passes an argument by name, or by default, that the other passes by position.
        if pn.op != "call_function":
            return False
        a, b = pn.normalized_arguments(None, normalize_to_only_use_kwargs=True), gn.normalized_arguments(None, normalize_to_only_use_kwargs=True)
        return a is not None and b is not None and a.kwargs.keys() == b.kwargs.keys() and all(
            _spread(a.kwargs[k], b.kwargs[k]) or self._match_values(a.kwargs[k], b.kwargs[k], match, name) for k in a.kwargs)

    def _match_nodes(self, pn, gn, match, node_name_match=""):
        if pn in match.nodes_map:
            return match.nodes_map[pn] is gn
        if gn in match.nodes_map.values() and pn.op != "placeholder":
            return False
        if not self._nodes_are_equal(pn, gn, node_name_match):
            return False
        before = dict(match.nodes_map)
        match.nodes_map[pn] = gn
        if pn.op == "placeholder":
            return True
        if self._match_arguments(pn, gn, match, node_name_match):
            return True
        match.nodes_map.clear()
        match.nodes_map.update(before)
        return False

    def _is_contained(self, nodes_map):
        """True if no internal value of a match is used outside it."""
        inner = {g: p for p, g in nodes_map.items() if p.op != "placeholder" and isinstance(g, Node)}
        returned = set(self.pattern_returning_nodes)
        return all(u in inner for g, p in inner.items() if p.op not in ("output", "get_attr") and p not in returned for u in g.users)

    def _remove_overlapping_matches(self, matches):
        kept, used = [], set()
        for m in matches:
            nodes = {g for p, g in m.nodes_map.items() if p.op not in ("placeholder", "output", "get_attr") and isinstance(g, Node)}
            if not nodes & used:
                kept.append(m)
                used |= nodes
        return kept

    def match(self, graph, node_name_match=""):
        """Returns the InternalMatches in a Graph, in its order."""
        candidates = [[g for g in graph.nodes if self._nodes_are_equal(p, g, node_name_match)] for p in self.pattern_anchors]
        found = []

        def extend(i, match):
            if i == len(self.pattern_anchors):
                found.append(match)
                return
            p = self.pattern_anchors[i]
            for g in [match.nodes_map[p]] if p in match.nodes_map else candidates[i]:
                trial = match.__copy__()
                if self._match_nodes(p, g, trial, node_name_match):
                    trial.anchors.append(g)
                    extend(i + 1, trial)
        extend(0, InternalMatch([]))
        found = [m for m in found if m.anchors and self._is_contained(m.nodes_map)]
        for m in found:
            m.placeholder_nodes = [m.nodes_map[p] for p in self.pattern_placeholder_nodes if p in m.nodes_map]
            m.returning_nodes = [m.nodes_map[p] for p in self.pattern_returning_nodes]
        return self._remove_overlapping_matches(found) if self.remove_overlapping_matches else found
