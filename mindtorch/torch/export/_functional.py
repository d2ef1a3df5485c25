"""ExportedProgram.run_decompositions({}): a program without in-place ops. The values of modified
tensors become additional outputs."""
import copy
import dataclasses
import operator

import numpy as np

from mindtorch.core.autograd.grad_mode import no_grad
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch import _ops
from mindtorch.torch.export.exported_program import ExportedProgram, _functional as _made_functional, writes
from mindtorch.torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind, OutputSpec, TensorArgument
from mindtorch.torch.export._record import undone
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.interpreter import Interpreter
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.utils import _pytree as pytree

_MUTATIONS = {InputKind.BUFFER: OutputKind.BUFFER_MUTATION, InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
              InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION}
_OPERATORS = {getattr(operator, f"i{n}"): getattr(operator, f) for n, f in [(x, x) for x in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow",
              "lshift", "rshift", "xor", "matmul")] + [("and", "and_"), ("or", "or_")]}


class _Run(Interpreter):
    """Interpreter that records the tensors of all nodes."""

    def __init__(self, gm):
        super().__init__(gm, garbage_collect_values=False)
        self.seen = {}

    def run_node(self, n):
        r = self.seen[n] = super().run_node(n)
        return r


def _inputs(ep):
    """Returns tensors for the flat inputs: copies of the program's own tensors and of its example
    inputs."""
    leaves = iter(pytree.tree_leaves(ep.example_inputs))
    found = []
    for s in ep.graph_signature.input_specs:
        if s.kind is InputKind.USER_INPUT:
            x = next(leaves)
            found.append(x.detach().clone() if is_tensor(x) else x)
        else:
            found.append((ep.constants[s.target] if s.target in ep.constants else ep.state_dict[s.target]).detach().clone())
    return found


def _refuse(node, why):
    raise NotImplementedError(f"ExportedProgram.run_decompositions({{}}): {node} ({node.target}) has no functional form: {why}")


def _without_writing(node):
    """Returns the (op, target) that computes out of place the value which a node writes."""
    t = node.target
    if node.kwargs.get("inplace") or node.kwargs.get("out") is not None:
        _refuse(node, "it modifies a tensor through inplace= or out=")
    if t in _OPERATORS:
        return "call_function", _OPERATORS[t]
    if isinstance(t, _ops.OpOverload) and t.namespace == "aten" and t._opname.endswith("_"):
        packet = _ops.find_packet("aten", t._opname[:-1])
        if packet is not None and t._opname not in ("copy_", "fill_", "zero_", "index_put_", "bernoulli_", "resize_", "set_"):
            return "call_function", getattr(packet, t._overloadname)
    _refuse(node, "there is no out-of-place op for its value")


def functional(ep):
    """Returns the program without in-place ops. NotImplementedError if a view of a modified tensor
    is used later."""
    given = _inputs(ep)
    with no_grad(), undone([]):
        run = _Run(ep.graph_module)
        run.run(*given)
    nodes = list(ep.graph.nodes)
    order = {n: i for i, n in enumerate(nodes)}
    tensor = {n: t for n, t in run.seen.items() if is_tensor(t)}
    last = {n: max([order[u] for u in n.users], default=-1) for n in nodes}
    graph, env, placeholders = Graph(), {}, []

    def is_now(node, new):
        """Replaces a node's tensor, under all its names, by a new node from here on."""
        for m, t in tensor.items():
            if t is tensor[node] and m in env:
                env[m] = new

    def check_unaliased(node, writer):
        """Raises NotImplementedError if memory that `writer` modifies is used later through another
        view."""
        t = tensor[node]
        for m, other in tensor.items():
            if other is t or order[m] > order[writer]:
                continue
            if np.may_share_memory(other._array, t._array) and (last[m] > order[writer] or m.op == "placeholder"):
                _refuse(writer, f"it modifies memory that {m} views and that is used afterwards")
    for n in nodes:
        if n.op == "output":
            results = [env[v] if v in env else v for v in n.args[0]] if not any(isinstance(v, (list, dict)) for v in n.args[0]) else list(n.args[0])
            continue
        if n.op == "placeholder" or not writes(n) and not n.kwargs.get("inplace"):
            env[n] = graph.node_copy(n, lambda m: env[m])
            if n.op == "placeholder":
                placeholders.append(n)
            continue
        if getattr(n.target, "_opname", "") == "batch_norm" and n.args[5] is True:
            x, w, b, mean, var, _, momentum, eps = n.args[:8]
            for s in (mean, var):
                check_unaliased(s, n)
            f = _ops.namespace("aten")._native_batch_norm_legit_functional.default
            made = graph.create_node("call_function", f, tuple(env.get(a, a) for a in (x, w, b, mean, var)) + (True, momentum, eps),
                                     name="_native_batch_norm_legit_functional")
            parts = [graph.call_function(operator.getitem, (made, i)) for i in (0, 3, 4)]
            for p, of in zip(parts, (n, mean, var)):
                p.meta = copy.copy(of.meta)
            env[n] = parts[0]
            is_now(mean, parts[1])
            is_now(var, parts[2])
            continue
        if n.target is operator.setitem or not n.args or n.args[0] not in tensor:
            _refuse(n, "it modifies a part of a tensor")
        op, target = _without_writing(n)
        check_unaliased(n.args[0], n)
        new = graph.create_node(op, target, *(_mapped(a, env) for a in (n.args, n.kwargs)), name=getattr(target, "_opname", None))
        new.meta = copy.copy(n.meta)
        env[n] = new
        is_now(n.args[0], new)
    signature = ep.graph_signature
    changed = [(p, s) for p, s in zip(placeholders, signature.input_specs) if env[p].op != "placeholder"]
    outputs = [OutputSpec(_MUTATIONS[s.kind], TensorArgument(env[p].name), s.arg.name if s.kind is InputKind.USER_INPUT else s.target) for p, s in changed]
    for s, r in zip(signature.output_specs, results):
        outputs.append(dataclasses.replace(s, arg=TensorArgument(r.name)) if isinstance(s.arg, TensorArgument) else s)
    graph.output((*[env[p] for p, _ in changed], *results))
    made = ExportedProgram(Module(), graph, ExportGraphSignature(copy.deepcopy(signature.input_specs), outputs), ep.state_dict, ep.range_constraints,
                           ep.module_call_graph, ep.example_inputs, ep.constants, checks=ep._checks)
    _compare(ep, made, given)
    return made


def _mapped(x, env):
    from mindtorch.torch.fx.node import map_arg
    return map_arg(x, lambda m: env[m])


def _compare(ep, made, given):
    """Raises NotImplementedError unless both programs have equal results and equal side effects."""
    found = []
    for p in (ep, made):
        tensors = _inputs(p)
        with no_grad(), undone([]):
            results = list(p.graph_module(*tensors))
        for s in p.graph_signature.output_specs:
            if s.kind is OutputKind.USER_OUTPUT:
                break
            value = results.pop(0)
            i = next(i for i, q in enumerate(p.graph_signature.input_specs) if (q.arg.name if s.kind is OutputKind.USER_INPUT_MUTATION else q.target) == s.target)
            tensors[i] = value
        found.append([x for x in (*results, *tensors) if is_tensor(x)])
    for a, b in zip(*found, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype or not bool(((a == b) | (a != a) & (b != b)).all()):
            raise NotImplementedError("ExportedProgram.run_decompositions({}): the functional form does not reproduce the program's results (for example "
                                      "because an in-place op casts its result to another dtype)")


_made_functional.append(functional)
