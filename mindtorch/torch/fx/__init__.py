"""torch.fx: `wrap` is accepted; capturing a module as a graph is not supported."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.fx import proxy  # noqa: F401
from mindtorch.torch.fx.graph_module import GraphModule  # noqa: F401
from mindtorch.torch.fx.node import Node, has_side_effect, map_arg  # noqa: F401
from mindtorch.torch.fx.proxy import Proxy  # noqa: F401

_wrapped = set()


def wrap(fn_or_name):
    """Marks a function (or its name) as a leaf of graphs; gives it back."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    _wrapped.add(fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__)
    return fn_or_name


refuse(globals(), "modules are not captured as graphs; they run eagerly", "symbolic_trace replace_pattern",
       "Tracer Graph CodeGen Interpreter Transformer ProxyableClassMeta")
