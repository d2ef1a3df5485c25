"""torch.fx.passes.utils.matcher_with_name_node_map_utils: matches whose nodes the pattern names."""
from mindtorch.torch.fx.node import Node
from mindtorch.torch.fx.passes.utils.matcher_utils import SubgraphMatcher

__all__ = ["SubgraphMatcherWithNameNodeMap"]


def _split_to_graph_and_name_node_map(gm):
    """(gm without its last result, that result: {name: node}), for a program that puts out (..., {name: value})."""
    output = gm.graph.output_node()
    *rest, names = output.args[0]
    if not isinstance(names, dict) or not all(isinstance(n, Node) for n in names.values()):
        raise AssertionError("the pattern must put out a dictionary of names and nodes as its last result")
    output.args = (tuple(rest),)
    gm.recompile()
    return gm, dict(names)


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """A SubgraphMatcher whose pattern puts out a dictionary {name: value} last: matches have `name_node_map`."""

    def __init__(self, pattern_gm, match_output=False, match_placeholder=False, remove_overlapping_matches=True, ignore_literals=False):
        pattern_gm, self.name_node_map = _split_to_graph_and_name_node_map(pattern_gm)
        super().__init__(pattern_gm.graph, match_output, match_placeholder, remove_overlapping_matches, ignore_literals)

    def match(self, graph, node_name_match=""):
        found = super().match(graph, node_name_match)
        for m in found:
            m.name_node_map.update((k, m.nodes_map[n]) for k, n in self.name_node_map.items())
        return found
