"""torch.fx.passes.dialect.common.cse_pass: common subexpression elimination."""
from mindtorch.core.dispatch.op_schema import tagged
from mindtorch.torch import _ops
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.graph_module import GraphModule
from mindtorch.torch.fx.node import Node, _has_effect, map_arg
from mindtorch.torch.fx.passes.infra.pass_base import PassBase, PassResult

__all__ = ["CSEPass", "get_CSE_banned_ops"]

# The ops with the tag "nondeterministic_seeded", and aten operators that are in-place methods here.
_RANDOM = [*[n.removeprefix("nn.functional.") for n in tagged("nondeterministic_seeded")], *"_fused_dropout cauchy exponential geometric log_normal uniform".split()]
_WRITES = """add_ bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_""".split()


def get_CSE_banned_ops():
    """Returns the ops that return a different result on each call and must never be merged."""
    found = (_ops.find_packet("aten", n) for n in (*_RANDOM, *_WRITES))
    return {p for p in found if p is not None}


def _key(x):
    """Returns a hashable key that is equal for equal arguments. TypeError for unhashable arguments.
    """
    if isinstance(x, (list, tuple)):
        return isinstance(x, tuple), tuple(map(_key, x))
    if isinstance(x, dict):
        return "dict", tuple((k, _key(v)) for k, v in sorted(x.items(), key=lambda i: str(i[0])))
    if isinstance(x, slice):
        return "slice", _key(x.start), _key(x.stop), _key(x.step)
    if isinstance(x, Node):
        return "node", id(x)
    hash(x)
    return type(x), repr(x) if isinstance(x, float) else x  # (0.0 and -0.0 must differ)


def _writes(node):
    """True if a node modifies one of its inputs in place. Values read before it cannot be reused
    after it."""
    if node.op == "call_method":
        return node.target.endswith("_") and not node.target.endswith("__") or node.target == "__setitem__"
    if node.kwargs.get("out") is not None or node.kwargs.get("inplace"):
        return True
    name = getattr(node.target, "_opname", getattr(node.target, "__name__", ""))
    return name.endswith("_") and not name.endswith("__") or name in ("setitem", "delitem") or (
        name[:1] == "i" and getattr(node.target, "__module__", "") == "_operator" and name[1:] in _INPLACE)


_INPLACE = frozenset("add sub mul truediv floordiv mod pow matmul lshift rshift and or xor concat".split())


class CSEPass(PassBase):
    """Merges nodes that call the same function with the same arguments.

    `banned_ops` are op packets or overloads whose calls are never merged. Ops of
    `get_CSE_banned_ops` and functions with side effects are never merged.
    """

    def __init__(self, banned_ops=None):
        self.banned_ops = set() if banned_ops is None else set(banned_ops)

    def _stays(self, n):
        if n.op != "call_function":
            return True
        return (n.target in self.banned_ops or getattr(n.target, "_overloadpacket", None) in self.banned_ops or _has_effect(n.target)
                or n.kwargs.get("out") is not None or getattr(n.target, "__name__", "") in _RANDOM)

    def call(self, graph_module):
        """Returns a PassResult with a new GraphModule."""
        graph, env, known = Graph(), {}, {}
        changed = False
        graph._codegen = graph_module.graph._codegen
        for n in graph_module.graph.nodes:
            if n.op == "output":
                new = graph.node_copy(n, lambda x: env[x])
                continue
            key = None
            if n.op == "call_module" or _writes(n):
                known.clear()
            elif not self._stays(n):
                try:
                    key = n.target, _key(map_arg(n.args, lambda x: env[x])), _key(map_arg(n.kwargs, lambda x: env[x]))
                except TypeError:
                    key = None
            if key is not None and key in known:
                env[n] = known[key]
                changed = True
                continue
            env[n] = new = graph.node_copy(n, lambda x: env[x])
            if key is not None:
                known[key] = new
        return PassResult(GraphModule(graph_module, graph), changed)
