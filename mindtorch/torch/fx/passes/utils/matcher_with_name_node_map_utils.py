"""torch.fx.passes.utils.matcher_with_name_node_map_utils: matches with nodes named by the pattern.
"""
from mindtorch.torch.fx.node import Node
from mindtorch.torch.fx.passes.utils.matcher_utils import SubgraphMatcher

__all__ = ["SubgraphMatcherWithNameNodeMap"]


def _split_to_graph_and_name_node_map(gm):
    """Removes the last output of `gm`, which must be a dictionary {name: node}, and returns both.
    """
    output = gm.graph.output_node()
    *rest, names = output.args[0]
    if not isinstance(names, dict) or not all(isinstance(n, Node) for n in names.values()):
        raise AssertionError("the last output of the pattern must be a dictionary {name: node}")
    output.args = (tuple(rest),)
    gm.recompile()
    return gm, dict(names)


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """A SubgraphMatcher for patterns whose last output is a dictionary {name: value}.

    Its matches have a `name_node_map`.
    """

    def __init__(self, pattern_gm, match_output=False, match_placeholder=False, remove_overlapping_matches=True, ignore_literals=False):
        pattern_gm, self.name_node_map = _split_to_graph_and_name_node_map(pattern_gm)
        super().__init__(pattern_gm.graph, match_output, match_placeholder, remove_overlapping_matches, ignore_literals)

    def match(self, graph, node_name_match=""):
        found = super().match(graph, node_name_match)
        for m in found:
            m.name_node_map.update((k, m.nodes_map[n]) for k, n in self.name_node_map.items())
        return found
