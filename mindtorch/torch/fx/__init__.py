"""torch.fx: programs as graphs (https://pytorch.org/docs/stable/fx.html)."""
from mindtorch.torch.fx import immutable_collections, node, proxy, graph, graph_module, traceback  # noqa: F401
from mindtorch.torch.fx._submodules import on_demand as _on_demand
from mindtorch.torch.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap  # noqa: F401
from mindtorch.torch.fx.graph import CodeGen, Graph  # noqa: F401
from mindtorch.torch.fx.graph_module import GraphModule  # noqa: F401
from mindtorch.torch.fx.interpreter import Interpreter, Transformer  # noqa: F401
from mindtorch.torch.fx.node import Node, has_side_effect, map_arg  # noqa: F401
from mindtorch.torch.fx.proxy import Proxy  # noqa: F401
from mindtorch.torch.fx.subgraph_rewriter import replace_pattern  # noqa: F401
from mindtorch.torch.fx import _symbolic_trace, interpreter, passes, subgraph_rewriter  # noqa: E402,F401

__getattr__ = _on_demand(globals())
