"""torch.fx.interpreter: runs a Graph node by node
(https://pytorch.org/docs/stable/fx.html#torch.fx.Interpreter)."""
import inspect

from mindtorch.torch.fx import traceback as fx_traceback
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.graph_module import GraphModule
from mindtorch.torch.fx.node import map_aggregate, map_arg
from mindtorch.torch.fx.proxy import Proxy
from mindtorch.torch.fx._symbolic_trace import Tracer

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a GraphModule node by node. Override `run_node`, or the method of a node kind, to
    observe or change the execution."""

    def __init__(self, module, garbage_collect_values=True, graph=None):
        self.module, self.submodules = module, dict(module.named_modules())
        self.graph = module.graph if graph is None else graph
        self.env, self.args_iter, self.name = {}, None, "Interpreter"
        self.garbage_collect_values, self.extra_traceback = garbage_collect_values, True
        self.user_to_last_uses = {}
        if garbage_collect_values:
            seen = set()
            for node in reversed(self.graph.nodes):
                for n in node.all_input_nodes:
                    if n not in seen:
                        seen.add(n)
                        self.user_to_last_uses.setdefault(node, []).append(n)

    def run(self, *args, initial_env=None, enable_io_processing=True):
        """Runs the program on these inputs and returns its result. `initial_env` provides values of
        nodes that are not computed."""
        self.env = {} if initial_env is None else initial_env
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as e:
                if self.extra_traceback:
                    text = f"While executing {node.format_node()}"
                    text = f"{e.args[0]}\n\n{text}" if e.args else text
                    e.args = (text, *e.args[1:])
                raise
            for n in self.user_to_last_uses.get(node, ()):
                del self.env[n]
            if node.op == "output":
                out = self.env[node]
                return self.graph.process_outputs(out) if enable_io_processing else out
        return None

    def run_node(self, n):
        """Computes the value of one node."""
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    def _set_current_node(self, node):
        return fx_traceback.set_current_meta(node, f"Interpreter_{type(self).__name__}")

    def placeholder(self, target, args, kwargs):
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(f"Expected positional argument for parameter {target}, but one was not passed in!") from None

    def get_attr(self, target, args, kwargs):
        return self.fetch_attr(target)

    def call_function(self, target, args, kwargs):
        return target(*args, **kwargs)

    def call_method(self, target, args, kwargs):
        self_obj, *rest = args
        return getattr(self_obj, target)(*rest, **kwargs)

    def call_module(self, target, args, kwargs):
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target, args, kwargs):
        return args[0]

    def fetch_attr(self, target):
        """Returns the module's attribute with a dotted name."""
        at = self.module
        parts = target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(at, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[:i + 1])}")
            at = getattr(at, part)
        return at

    def fetch_args_kwargs_from_env(self, n):
        """Returns a node's arguments with nodes replaced by their values."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args, n):
        def value(arg):
            if arg not in self.env:
                raise RuntimeError(f"Node {n} referenced nonexistent value {arg}! Run Graph.lint() to diagnose such issues")
            return self.env[arg]
        return map_arg(args, value)

    def boxed_run(self, args_list):
        """Runs the program on a list of inputs, which is emptied first."""
        args = list(args_list)
        args_list.clear()
        return self.run(*args)


class _TransformerTracer(Tracer):
    def __init__(self, graph, root):
        super().__init__()
        self.graph, self.root, self.tensor_attrs = graph, root, {}
        self._tracing = False

    def is_leaf_module(self, m, module_qualified_name):
        return True


class Transformer(Interpreter):
    """Runs a program on proxies. Override methods to make `transform()` return a different program.
    """

    def __init__(self, module):
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _TransformerTracer(self.new_graph, module)

    def placeholder(self, target, args, kwargs):
        default = next(iter(args)) if args else inspect.Signature.empty
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    def get_attr(self, target, args, kwargs):
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target, args, kwargs):
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target, args, kwargs):
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self):
        """Returns the new GraphModule."""
        with fx_traceback.preserve_node_meta():
            result = self.run(enable_io_processing=False)
        if result is not None:
            out = self.new_graph.output(map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a))
            old = self.graph.output_node()
            out.type, out.meta = old.type, dict(old.meta)
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)
