"""torch.compile(backend=callable): passes a captured graph to the callable as a
torch.fx.GraphModule and replays the callable's result.

As in PyTorch, the module has no state: parameters, buffers and other tensors that the code reaches
become inputs, mixed with the passed tensors in the order of first use. The callable sees the calls
exactly as the code made them.
"""
import functools
import inspect
import logging
import re

from mindtorch.backend.graph import mapped, values_in
from mindtorch.core.dispatch import autocast as _autocast
from mindtorch.core.device import rng as _rng
from mindtorch.core.autograd.grad_mode import mode, no_grad
from mindtorch.core.device.rng import Generator
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch import random as _random
from mindtorch.torch._dynamo import _capture, _guards, config
from mindtorch.torch._dynamo.exc import BackendCompilerFailed
from mindtorch.torch.fx._recorded import Writer, example_tensor
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.graph_module import GraphModule
from mindtorch.torch.nn.modules.module import Module


def is_callable(options):
    """True if the options select a callable backend."""
    return not isinstance(options["backend"], str)


# ------------------------------------------------------------------ the graph
def _word(text):
    return re.sub(r"\W", "_", text)


def _argument_names(fn, args, kwargs):
    """Returns names for the tensors among the arguments, in the order of Spec: L_x_, L_batch_0_."""
    try:
        parameters = inspect.signature(fn).parameters.values()
        star = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
        order = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        star, order = "args", []
    found = []

    def walk(x, path):
        if is_tensor(x):
            found.append(f"L_{_word(path)}_")
            return
        parts = _guards.parts(x)
        if parts is None:
            return
        keys = [str(k) for k in dict.keys(x)] if isinstance(x, dict) else range(len(parts))
        for k, i in zip(keys, parts):
            walk(i, f"{path}_{k}")
    for i, a in enumerate(args):
        walk(a, order[i] if i < len(order) else f"{star}_{i - len(order)}")
    for k, a in kwargs.items():
        walk(a, k)
    return found


def _state_names(fn, rec):
    """Returns {id of a tensor: name} for the parameters and buffers of the reachable modules, such
    as L_self_modules_fc_parameters_weight_."""
    found = {}
    owner = getattr(fn, "mod", None) or getattr(fn, "__self__", None)
    modules = [(owner, "self")] if isinstance(owner, Module) else []
    modules += [(m, type(m).__name__) for m in rec.after.seen.values() if isinstance(m, Module)]
    for root, name in modules:
        for path, m in root.named_modules():
            prefix = "".join([f"_modules_{p}" for p in path.split(".")]) if path else ""
            for kind in ("parameters", "buffers"):
                for n, t in vars(m)[f"_{kind}"].items():
                    if t is not None:
                        found.setdefault(id(t), f"L_{_word(name + prefix)}_{kind}_{_word(n)}_")
    return found


def graph_module(graph, rec, fn, args, kwargs, entry_modes):
    """Returns (GraphModule, Values of its inputs in order, Values of its outputs)."""
    used = []
    for n in graph.nodes:
        used += n.values
    made = {v for n in graph.nodes for v in n.outputs if v.kind == "node"}
    inputs = [v for v in dict.fromkeys(used) if v not in made]
    outputs = [v for v in dict.fromkeys(values_in(graph.result)) if v.kind == "node"]
    names = dict(zip([v for v in graph.inputs], _argument_names(getattr(getattr(fn, "mod", None), "forward", fn), args, kwargs)))
    state = _state_names(fn, rec)
    tensors = rec.tensors()
    g = Graph()

    def noted(node, value):
        t = tensors.get(value)
        if t is not None and t._handle is None:
            node.meta["example_value"] = example_tensor(tuple(t.shape), t.dtype, t.requires_grad, t._array.strides)
    w = Writer(g, seen=noted, used={*used, *outputs})
    for i, v in enumerate(inputs):
        t = tensors[v]
        name = names.get(v) or state.get(id(t)) or f"L_captured_{i}_"
        w.put(v, g.create_node("placeholder", name, name=name.lower(), type_expr=type(t)))
    w.begin(entry_modes)
    for n in graph.nodes:
        w.call(n)
    w.end()
    g.output(tuple(w.nodes[v] for v in outputs))
    return GraphModule(Module(), g), inputs, outputs


class Program:
    """Replays a captured graph with the callable that the backend returned."""

    def __init__(self, graph, compiled, inputs, outputs, gm, state):
        self.state, self.compiled, self.outputs, self.source = state, compiled, outputs, gm.code
        at = {v: i for i, v in enumerate(graph.inputs)}
        self.feed = [(at.get(v), v.tensor) for v in inputs]
        self.given, self.result = graph.inputs, graph.result

    def run(self, *tensors):
        """Returns the result of the captured call for these tensors."""
        before = mode.on, mode.inference, (_autocast.state.to, _autocast.state.there)
        state = self.state
        # modules inside are not parts of an outer callable with a graph break
        within, state.within = state.within, None
        try:
            outs = self.compiled(*[t if i is None else tensors[i] for i, t in self.feed])
        finally:
            state.within = within
            mode.on, mode.inference = before[:2]
            if (_autocast.state.to, _autocast.state.there) != before[2]:
                _autocast.switch(before[2])
        if is_tensor(outs):
            outs = (outs,)
        outs = tuple(outs) if outs is not None else ()
        if len(outs) != len(self.outputs):
            raise RuntimeError(f"the callable that the backend returned produced {len(outs)} values, but the graph has {len(self.outputs)} outputs")
        known = dict(zip(self.outputs, outs))
        known.update(zip(self.given, tensors))
        return mapped(self.result, lambda v: known[v] if v in known else v.tensor)


def compiled(graph, rec, fn, args, kwargs, options, entry_modes, state):
    """Returns the Program of a captured graph.

    None if the graph has no ops, or if the backend raised and config.suppress_errors is set.

        state  thread state of compiled callables (eval_frame.py)
    """
    if not graph.nodes:
        return None
    backend = options["backend"]
    gm, inputs, outputs = graph_module(graph, rec, fn, args, kwargs, entry_modes)
    tensors = rec.tensors()
    more = {k: options[k] for k in ("mode", "options") if options.get(k) and options[k] != "default"}
    within, state.within = state.within, None
    try:
        made = backend(gm, [tensors[v] for v in inputs], **more)
        if not callable(made):
            raise AssertionError("compiler_fn did not return callable")
    except Exception as e:
        if config.suppress_errors:
            return None
        raise BackendCompilerFailed(backend, e) from e
    finally:
        state.within = within
    return Program(graph, made, inputs, outputs, gm, state)


# ------------------------------------------------------------------ the first call
class Before:
    """Saves what a call may modify. The call is captured by running it, then undone and re-executed
    by the backend's result.

    `undo` returns True if everything was restored; else the captured call's own result is used.
    """

    def __init__(self, roots, codes, inputs):
        reached = _capture._walk(roots, None, codes).tensors.values()
        self.tensors = []
        with no_grad():
            for t in {id(t): t for t in (*reached, *inputs)}.values():
                self.tensors.append((t, t._version, t.grad_fn if t._requires_grad_ else None, t._requires_grad_, t.detach().clone()))
        self.generator, self.rng_states = _random.get_rng_state(), _rng.device_states()

    def undo(self, rec):
        """Restores tensor values and the generators' state. False if that is not possible."""
        written = [e for e in self.tensors if e[0]._version != e[1]]
        for t, _, history, requires_grad, _ in written:
            if t._requires_grad_ is not requires_grad or t._requires_grad_ and t.grad_fn is not history:
                return False
        if any(isinstance(x, Generator) for n in rec.graph.nodes for x in (*n.args, *n.kwargs.values())):
            return False
        with no_grad():
            for t, _, _, _, was in written:
                t.detach().copy_(was)
        _random.set_rng_state(self.generator)
        _rng.set_device_states(self.rng_states)
        return True


@functools.cache
def note(label):
    """Logs once that the first call ran eagerly."""
    logging.getLogger("torch._dynamo").warning("%s: the first call ran eagerly instead of through the backend's callable, because it modifies tensors with autograd "
                "history in place or uses an explicit random generator", label)
