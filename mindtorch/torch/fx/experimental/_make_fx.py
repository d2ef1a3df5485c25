"""torch.fx.experimental.proxy_tensor.make_fx: traces the operators that a function calls into an fx
graph."""
import inspect

from mindtorch.backend.graph import Value
from mindtorch.core.autograd import engine
from mindtorch.core.autograd.grad_mode import is_grad_enabled, no_grad
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.core.compile.tracing import active, trace
from mindtorch.torch.export import _aten
from mindtorch.torch.export._record import Recorder, _complete_functions, equal_values, tensors_in, undone
from mindtorch.torch.fx._codegen import _PyTreeCodeGen, _PyTreeInfo
from mindtorch.torch.fx._recorded import Writer, spelled
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.graph_module import GraphModule
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.utils import _pytree as pytree


def make_fx(f, args, decompositions):
    """Returns the GraphModule of f(*args). See proxy_tensor.make_fx."""
    if getattr(f, "functionalized", None) is not None:
        return _functional(f, args, decompositions)
    if active.tracer is not None:
        raise NotImplementedError("torch.fx.experimental.proxy_tensor.make_fx inside another trace is not supported")
    leaves, in_spec = pytree.tree_flatten(tuple(args))
    inputs = list({id(x): x for x in leaves if is_tensor(x)}.values())
    with no_grad():
        before = [t.detach().clone() for t in inputs]
    result = {"out": None}

    def call(tensors):
        flat, result["out"] = pytree.tree_flatten(f(*pytree.tree_unflatten(leaves, in_spec)))
        return flat
    with _complete_functions(), engine.checking(_no_backward):
        graph, out = trace(call, inputs, leaf=lambda name: True, call=lambda fn, xs: fn(xs), escaped=_escaped, kind=Recorder)
    build = _Build(f, graph, leaves, in_spec, result["out"], args)
    try:
        gm = build.module(_aten.aten, decompositions)
        _hold(gm, f, leaves, in_spec, inputs, before)
    except Exception:
        # Verification failed with aten names: record the calls as they were made.
        gm = build.module(spelled, decompositions)
        _hold(gm, f, leaves, in_spec, inputs, before)
    return gm


def _functional(f, args, decompositions):
    """Returns the graph of a torch.func.functionalize'd function, without in-place ops."""
    from mindtorch.torch.fx.experimental._functionalize import functional
    leaves, in_spec = pytree.tree_flatten(tuple(args))
    inputs = list({id(x): x for x in leaves if is_tensor(x)}.values())
    with no_grad():
        before = [t.detach().clone() for t in inputs]
    gm = make_fx(f.__wrapped__, args, decompositions)
    gm = functional(gm, [before[[x is t for t in inputs].index(True)] if is_tensor(x) else x for x in leaves], f.functionalized == "mutations_and_views")
    _hold(gm, f.__wrapped__, leaves, in_spec, inputs, before)
    return gm


def _escaped(name):
    raise RuntimeError(f"It appears that you're trying to get value out of a tracing tensor with {name}() - erroring out! It's likely that this is caused "
                       "by data-dependent control flow or similar.")


def _no_backward():
    """Raises NotImplementedError, because a recording would contain derivatives as constants."""
    if active.tracer is not None:
        raise NotImplementedError("torch.fx.experimental.proxy_tensor.make_fx of a function that computes derivatives is not supported: they are not "
                                  "recorded")


class _Build:
    """The recording and the inputs from which a graph is built."""

    def __init__(self, f, graph, leaves, in_spec, out_spec, args):
        self.f, self.graph, self.leaves, self.in_spec, self.out_spec = f, graph, leaves, in_spec, out_spec
        self.nested = not all(c.is_leaf() for c in in_spec.children_specs)
        self.names = _names(f, args)

    def module(self, spell, decompositions):
        """Returns the GraphModule. `spell` converts recorded calls to graph calls."""
        g, root, used = Graph(), Module(), {v for n in self.graph.nodes for v in n.values} | {v for v in self.graph.result if isinstance(v, Value)}
        w = Writer(g, _decomposed(spell, decompositions), used=used)
        values, seen = iter(self.graph.inputs), {}
        labels = iter(self._labels())
        for x in self.leaves:
            node = g.placeholder(next(labels))
            if is_tensor(x):
                v = seen[id(x)] if id(x) in seen else seen.setdefault(id(x), next(values))
                w.nodes.setdefault(v, node)
        counts = {"_param_constant": 0, "_tensor_constant": 0}

        def fetched(v):
            if v not in w.nodes and v.kind in ("constant", "parameter"):
                kind = "_param_constant" if getattr(v.tensor, "is_leaf", False) and type(v.tensor).__name__ == "Parameter" else "_tensor_constant"
                name = f"{kind}{counts[kind]}"
                counts[kind] += 1
                setattr(root, name, v.tensor)
                w.nodes[v] = g.get_attr(name)
        for n in self.graph.nodes:
            for v in n.values:
                fetched(v)
            w.call(n)
        for v in self.graph.result:
            if isinstance(v, Value):
                fetched(v)
        result = [w.nodes[v] if isinstance(v, Value) else v for v in self.graph.result]
        if self.nested or not (self.out_spec.is_leaf() or self.out_spec.type in (tuple, list) and all(c.is_leaf() for c in self.out_spec.children_specs)):
            g.output(result)
            g.set_codegen(_PyTreeCodeGen(_PyTreeInfo(list(self.names), self.in_spec, self.out_spec)))
        else:
            g.output(pytree.tree_unflatten(result, self.out_spec))
        next(reversed(g.nodes)).type = getattr(self.f, "__annotations__", {}).get("return")
        name = getattr(self.f, "__name__", type(self.f).__name__)
        return GraphModule(root, g, "GraphModule" if name == "<lambda>" else name)

    def _labels(self):
        for name, spec in zip(self.names, self.in_spec.children_specs):
            for i in range(spec.num_leaves):
                yield f"{name}_{i + 1}"


def _names(f, args):
    """Returns a name for each argument."""
    try:
        if isinstance(f, Module):
            raise TypeError
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [plain[i] if i < len(plain) else f"arg{i}" for i in range(len(args))]


def _decomposed(spell, table):
    """Wraps `spell` to raise NotImplementedError for operators in a decomposition table, because
    their components are not recorded."""
    if not table:
        return spell

    def found(call):
        op, target, args, kwargs = spell(call)
        if target in table or getattr(target, "_overloadpacket", None) in table:
            raise NotImplementedError(f"torch.fx.experimental.proxy_tensor.make_fx: {target} is in the decomposition table, but operators cannot be decomposed")
        return op, target, args, kwargs
    return found


def _hold(gm, f, leaves, in_spec, inputs, before):
    """Raises RuntimeError unless the graph reproduces the function's results and in-place changes,
    for the same and for other input values."""
    state = [*dict(gm.named_parameters()).values(), *dict(gm.named_buffers()).values()]
    for other in (False, True):
        found = []
        for run in (f, gm):
            with no_grad():
                copies = {id(t): _varied(b, other) for t, b in zip(inputs, before)}
            fresh = {i: t.requires_grad_() if o.requires_grad else t for (i, t), o in zip(copies.items(), inputs)}
            fresh = {i: t.clone() if t.requires_grad and is_grad_enabled() else t for i, t in fresh.items()}
            given = pytree.tree_unflatten([fresh[id(x)] if is_tensor(x) else x for x in leaves], in_spec)
            with undone(state):
                out = run(*given)
                found.append([t.detach().clone() for t in (*tensors_in(pytree.tree_leaves(out)), *fresh.values(), *state)])
        if len(found[0]) != len(found[1]) or any(a.shape != b.shape or a.dtype != b.dtype or not equal_values(a, b) for a, b in zip(*found)):
            raise RuntimeError("torch.fx.experimental.proxy_tensor.make_fx: the recorded graph does not reproduce the function's results (the function computes "
                               "outside of PyTorch ops, or branches on its inputs)")


def _varied(t, other):
    r = t.clone()
    return r * 0.75 + 0.125 if other and r.is_floating_point() else r
