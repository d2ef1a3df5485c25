"""torch.fx.experimental.optimization: optimizes programs for inference."""
import copy

from mindtorch.torch.fx._symbolic_trace import symbolic_trace
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.graph_module import GraphModule
from mindtorch.torch.fx.interpreter import Transformer
from mindtorch.torch.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from mindtorch.torch.nn.modules.conv import Conv1d, Conv2d, Conv3d
from mindtorch.torch.nn.modules.dropout import Dropout
from mindtorch.torch.nn.modules.linear import Linear
from mindtorch.torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = ["matches_module_pattern", "replace_node_module", "fuse", "remove_dropout", "extract_subgraph"]

_PATTERNS = [((Conv1d, BatchNorm1d), fuse_conv_bn_eval), ((Conv2d, BatchNorm2d), fuse_conv_bn_eval), ((Conv3d, BatchNorm3d), fuse_conv_bn_eval),
             ((Linear, BatchNorm1d), fuse_linear_bn_eval)]


def matches_module_pattern(pattern, node, modules):
    """True if a node calls a module of the last class in `pattern` on the result of a module of the
    class before."""
    if not node.args:
        return False
    for cls, n in zip(pattern, (node.args[0], node)):
        if getattr(n, "op", None) != "call_module" or type(modules.get(n.target)) is not cls:
            return False
    return True


def replace_node_module(node, modules, new_module):
    """Replaces the module that a node calls."""
    parent, _, name = node.target.rpartition(".")
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model, inplace=False, no_trace=False):
    """Returns the GraphModule of a model in eval mode, with batch norms folded into the preceding
    convolutions (or linear layers)."""
    if not inplace:
        model = copy.deepcopy(model)
    gm = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(gm.named_modules())
    graph = copy.deepcopy(gm.graph)
    for pattern, fused in _PATTERNS:
        for node in graph.nodes:
            if not matches_module_pattern(pattern, node, modules) or len(node.args[0].users) > 1:
                continue
            first, norm = modules[node.args[0].target], modules[node.target]
            if not norm.track_running_stats:
                continue
            replace_node_module(node.args[0], modules, fused(first, norm))
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    return GraphModule(gm, graph)


def remove_dropout(model):
    """Returns the GraphModule of a model without its dropout modules."""
    gm = symbolic_trace(model)

    class Without(Transformer):
        def call_module(self, target, args, kwargs):
            if isinstance(self.submodules[target], Dropout):
                return args[0]
            return super().call_module(target, args, kwargs)
    return Without(gm).transform()


def extract_subgraph(orig_module, nodes, inputs, outputs):
    """Returns a GraphModule of these nodes of a program, given in topological order, from the
    values `inputs` to the values `outputs`."""
    graph, env = Graph(), {}
    for n in inputs:
        env[n] = graph.placeholder(n.name)
    for n in nodes:
        env[n] = graph.node_copy(n, lambda x: env[x])
    graph.output([env[n] for n in outputs])
    graph.lint()
    return GraphModule(orig_module, graph)
