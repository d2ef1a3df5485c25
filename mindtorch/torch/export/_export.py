"""Implementation of torch.export.export."""
import builtins
import contextlib
import inspect
import logging
import operator

from mindtorch.backend.graph import Value
from mindtorch.core.autograd.grad_mode import is_grad_enabled, mode, no_grad
from mindtorch.core.dispatch import autocast
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch import _ops
from mindtorch.torch.export import _aten
from mindtorch.torch.export._record import equal_values, record, resized, tensors_in, undone
from mindtorch.torch.export.dynamic_shapes import Dim, Range, free_sizes, named_arguments
from mindtorch.torch.export.exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from mindtorch.torch.export.graph_signature import (ConstantArgument, ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec,
                                                    TensorArgument)
from mindtorch.torch._dynamo.exc import UserError
from mindtorch.torch.fx._recorded import Writer, spelled, example_tensor
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.interpreter import Interpreter
from mindtorch.torch.fx.passes.shape_prop import TensorMetadata
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.utils import _pytree as pytree

log = logging.getLogger("torch.export")
_CONSTANTS = (type(None), bool, int, float, complex, str)


def export(mod, args, kwargs=None, *, dynamic_shapes=None, strict=False, preserve_module_call_signature=(), prefer_deferred_runtime_asserts_over_guards=False):
    """Returns the ExportedProgram of mod(*args, **kwargs). See torch.export.export."""
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise UserError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    if preserve_module_call_signature:
        raise NotImplementedError("torch.export.export(preserve_module_call_signature=...) is not supported: a program is one flat graph")
    kwargs = dict(kwargs or {})
    leaves, in_spec = pytree.tree_flatten((args, kwargs))
    for x in leaves:
        if not is_tensor(x) and not isinstance(x, _CONSTANTS) and not _is_setting(x):
            raise UserError(f"Unsupported input type {type(x)}. Export only supports pytree containers of basic types (Tensor, int, float, ...) as input. "
                            "To register a custom dataclass, use torch.export.register_dataclass. To register a custom container type, use "
                            "torch.utils._pytree.register_pytree_node.")
    # The same tensor passed twice counts as two inputs.
    given, seen = [], set()
    for x in leaves:
        if is_tensor(x):
            if id(x) in seen:
                x = x.detach().requires_grad_(x.requires_grad) if x.is_floating_point() else x.detach()
            seen.add(id(x))
        given.append(x)
    a, k = pytree.tree_unflatten(given, in_spec)
    arguments = named_arguments(mod.forward, a, k)
    paths = _paths(arguments, given, _rest(mod.forward))
    inputs = [x for x in given if is_tensor(x)]
    wanted = free_sizes(arguments, dynamic_shapes, {id(t): i for i, t in enumerate(inputs)})
    parameters = dict(mod.named_parameters(remove_duplicate=False))
    buffers = dict(mod.named_buffers(remove_duplicate=False))
    names = {id(t): n for n, t in (*parameters.items(), *buffers.items())}

    specs = {}

    def call(tensors):
        it = iter(tensors)
        a, k = pytree.tree_unflatten([next(it) if is_tensor(x) else x for x in given], in_spec)
        flat, specs["out"] = pytree.tree_flatten(mod(*a, **k))
        return flat
    state = {id(t): t for t in (*parameters.values(), *buffers.values(), *inputs)}.values()
    modes = mode.on, mode.inference, autocast.state.to, autocast.state.there
    with undone(state):
        graph, out, free, frees = record(call, inputs, names, wanted, strict)
    flat_out, out_spec = graph.result, specs["out"]
    for x in flat_out:
        if not isinstance(x, (Value, *_CONSTANTS)) and not _is_setting(x):
            raise UserError(f"It looks like one of the outputs with type `{type(x)}` is not supported or pytree-flattenable. Exported graphs outputs can only "
                            "contain the following types: tensors, numbers, strings and None, in registered containers")
    build = _Build(mod, graph, parameters, buffers, given, paths, flat_out, in_spec, out_spec, free, modes, (args, kwargs), list(arguments), frees)
    literal: set = set()  # ops that keep the function that was called

    def spell(call):
        return spelled(call) if call.op in literal else _aten.aten(call)
    while True:
        program = None
        try:
            program = build.program(spell)
            _hold(program, call, inputs, given, free, state)
            return program
        except Exception as e:
            every = {n.op for n in graph.nodes}
            if every <= literal:
                raise
            found = program is not None and _culprits(program, build.calls, inputs) - literal or every
            log.info("the program of %s has calls of %s as they were made: under aten's name it does not hold (%s)", type(mod).__name__,
                     ", ".join(sorted(found)), e)
            literal |= found


def _is_setting(x):
    return type(x).__name__ in ("dtype", "device", "layout", "memory_format") and type(x).__module__.startswith(("mindtorch", "torch"))


def _rest(fn):
    """Returns the name of a function's **kwargs parameter, or None."""
    return next((p.name for p in inspect.signature(fn).parameters.values() if p.kind is p.VAR_KEYWORD), None)


def _paths(arguments, leaves, rest_name):
    """Returns [(placeholder name, path for messages)] of the leaves of the arguments, in order."""
    found = {}

    def walk(x, name, path):
        if not is_tensor(x):
            if isinstance(x, dict):
                for k, v in x.items():
                    walk(v, f"{name}_{k}", f"{path}[{k!r}]")
                return
            if isinstance(x, (tuple, list)) and not hasattr(x, "is_leaf"):
                for i, v in enumerate(x):
                    walk(v, f"{name}_{i}", f"{path}[{i}]")
                return
        flat.append((x, name, path))
    flat = []
    for n, v in arguments.items():
        for k, i in v.items() if n == rest_name else [(n, v)]:
            walk(i, k, k)
    for x, name, path in flat:
        if is_tensor(x):
            found[id(x)] = name, path
    rest = [(n, p) for x, n, p in flat if not is_tensor(x)]
    if sum(not is_tensor(x) for x in leaves) != len(rest):
        rest = [(f"arg_{i}", f"arg_{i}") for i in range(len(leaves))]
    rest = iter(rest)
    return [found.get(id(x), (f"arg_{i}", f"arg_{i}")) if is_tensor(x) else next(rest) for i, x in enumerate(leaves)]


def _attributes(mod):
    """Returns {id of a tensor: name} of the tensors that are plain attributes of modules."""
    found = {}
    for path, m in mod.named_modules():
        for k, v in vars(m).items():
            if is_tensor(v) and k[:1] != "_":
                found.setdefault(id(v), f"{path}.{k}" if path else k)
    return found


class _Build:
    """Collected parts of a program: module, graph, tensors, inputs and outputs."""

    def __init__(self, *parts):
        (self.mod, self.graph, self.parameters, self.buffers, self.given, self.paths, self.out, self.in_spec, self.out_spec, self.free, self.modes,
         self.example, self.argument_names, self.frees) = parts

    def program(self, spell):
        """Builds the ExportedProgram. `spell` converts recorded calls to graph calls."""
        mod, graph = self.mod, self.graph
        g = Graph()
        sizes = {}

        def length(i):
            if i not in sizes:
                number, axis = self.frees[i].places[0]
                sizes[i] = g.create_node("call_function", _ops.namespace("aten").sym_size.int, (w.nodes[graph.inputs[number]], axis), name="sym_size_int")
                sizes[i].meta["val"] = self.frees[i].base
            return sizes[i]

        def size(s):
            if s.terms not in sizes:
                total = None
                for c, dims in s.terms:
                    n = None
                    for i in dims:
                        n = length(i) if n is None else g.call_function(operator.mul, (n, length(i)))
                    n = c if n is None else n if c == 1 else g.call_function(operator.mul, (n, c))
                    total = n if total is None else g.call_function(operator.add, (total, n))
                sizes[s.terms] = total
            return sizes[s.terms]

        def noted(node, value):
            if value is not None:
                _note(node, value)
        used = {v for n in graph.nodes for v in n.values} | {v for v in self.out if isinstance(v, Value)}
        w = Writer(g, spell, size, noted, used)
        specs, constants, saved = [], {}, mod.state_dict(keep_vars=True)
        state = {n: t for n, t in (*self.parameters.items(), *self.buffers.items()) if n in saved}
        of = {p.name: p for p in graph.parameters}
        for prefix, kind, found in (("p_", InputKind.PARAMETER, self.parameters), ("b_", InputKind.BUFFER, self.buffers)):
            for name, t in found.items():
                node = g.create_node("placeholder", prefix + _word(name))
                node.target = node.name
                keep = kind is InputKind.PARAMETER or name in state
                specs.append(InputSpec(kind, TensorArgument(node.name), name, None if kind is InputKind.PARAMETER else keep))
                _note_tensor(node, t)
                if name in of:
                    w.nodes[of[name]] = node
                if not keep:
                    constants[name] = t
        attributes = _attributes(mod)
        lifted = [v for v in dict.fromkeys(v for n in graph.nodes for v in n.values) if v.kind == "constant"]
        lifted += [v for v in dict.fromkeys(self.out) if isinstance(v, Value) and v.kind == "constant" and v not in lifted]
        count = 0
        for v in lifted:
            name = attributes.get(id(v.tensor))
            if name is None:
                name, count = f"lifted_tensor_{count}", count + 1
            node = g.create_node("placeholder", "c_" + _word(name))
            node.target = node.name
            specs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), name))
            constants[name] = v.tensor
            _note_tensor(node, v.tensor)
            w.nodes[v] = node
        values, checks = iter(graph.inputs), []
        number = 0
        for x, (name, path) in zip(self.given, self.paths):
            node = g.create_node("placeholder", name)
            if hasattr(builtins, name) and name not in g._namespace._used:
                g._namespace._used.add(name)
                # as in PyTorch, an argument may be named like a builtin, such as `input`
                node.name = name
            node.target = node.name
            if is_tensor(x):
                v = next(values)
                w.nodes[v] = node
                _note_tensor(node, x)
                specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name)))
                checks.append((path, [self._size(number, axis, n) for axis, n in enumerate(x.shape)]))
                number += 1
            else:
                node.meta["val"] = x
                specs.append(InputSpec(InputKind.USER_INPUT, ConstantArgument(node.name, x)))
                checks.append((path, (x,)))
        w.begin(self.modes)
        self.calls = {w.call(n).name: n.op for n in graph.nodes}
        w.end()
        results = [w.nodes[v] if isinstance(v, Value) else v for v in self.out]
        g.output(tuple(results))
        outputs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(r.name) if isinstance(v, Value) else ConstantArgument("", r))
                   for r, v in zip(results, self.out)]
        ranges = {name: Range(*_bounds(d)) for name, d in self.free.values()}
        entries = [ModuleCallEntry("", ModuleCallSignature([], [], self.in_spec, self.out_spec, self.argument_names))]
        entries += [ModuleCallEntry(n) for n, _ in mod.named_modules() if n]
        return ExportedProgram(Module(), g, ExportGraphSignature(specs, outputs), state, ranges, entries, self.example, constants, checks=checks)

    def _size(self, number, axis, n):
        found = self.free.get((number, axis))
        return n if found is None else (found[0], *_bounds(found[1]))


def _word(name):
    # PyTorch removes a leading "self_" as the module's own name.
    return name.replace(".", "_").removeprefix("self_")


def _bounds(d):
    low = d.min if d.min is not None else 0 if isinstance(d, Dim) else 2
    return low, d.max


def _note(node, value):
    from mindtorch.core.tensor.dtypes import NAMES
    shape = tuple(getattr(s, "example", s) for s in value.shape)
    node.meta["val"] = example_tensor(shape, NAMES[value.dtype])
    node.meta["tensor_meta"] = _about(node.meta["val"])


def _note_tensor(node, t):
    node.meta["val"] = example_tensor(tuple(t.shape), t.dtype, t.requires_grad)
    node.meta["tensor_meta"] = _about(t)


def _about(t):
    return TensorMetadata(t.shape, t.dtype, t.requires_grad, t.stride(), None, False, {})


# ------------------------------------------------------------------ verification
def _hold(program, call, inputs, given, free, state):
    """Raises RuntimeError unless the program reproduces the module: equal values, requires_grad
    flags and in-place changes, for every size tried."""
    m = program.module(check_guards=False)
    in_spec = program.call_spec.in_spec
    trials, several = [inputs], inputs
    for name in dict.fromkeys(n for n, _ in free.values()):
        axes = [p for p, (n, _) in free.items() if n == name]
        low, high = _bounds(free[axes[0]][1])
        n = inputs[axes[0][0]].shape[axes[0][1]] + 1
        if high is None or n <= high:
            trials.append(resized(inputs, axes, n))
            several = resized(several, axes, n)
    if len(trials) > 2:
        trials.append(several)
    for tensors in trials:
        results = []
        for run in (call, lambda xs: m(*_nested(xs, given, in_spec)[0], **_nested(xs, given, in_spec)[1])):
            with no_grad():
                copies = [t.clone() for t in tensors]
            fresh = [c.requires_grad_(t.requires_grad) if t.is_floating_point() else c for c, t in zip(copies, tensors)]
            # a leaf cannot be modified in place
            fresh = [t.clone() if t.requires_grad and is_grad_enabled() else t for t in fresh]
            with undone(state):
                out = run(fresh)
                results.append([(t.detach().clone(), t.requires_grad) for t in (*tensors_in(pytree.tree_leaves(out)), *fresh)]
                               + [(t.detach().clone(), False) for t in state])
        if len(results[0]) != len(results[1]):
            raise RuntimeError("torch.export: the program returns a different number of tensors than the module")
        for (a, ra), (b, rb) in zip(*results):
            if a.shape != b.shape or a.dtype != b.dtype or ra != rb or not equal_values(a, b):
                raise RuntimeError("torch.export: the program does not reproduce the module's results. Probably the module computes outside of PyTorch ops, uses "
                                   "random numbers of other libraries, changes Python state at each call, or disables gradients manually")


def _culprits(program, calls, inputs):
    """Returns {name of the op} at which the program raises, or an empty set."""
    class Run(Interpreter):
        def run_node(self, n):
            try:
                return super().run_node(n)
            except Exception:
                found.add(n.name)
                raise
    found, it, flat = set(), iter(inputs), []
    for s in program.graph_signature.input_specs:
        if s.kind is not InputKind.USER_INPUT:
            flat.append((program.constants[s.target] if s.target in program.constants else program.state_dict[s.target]).detach().clone())
        else:
            flat.append(s.arg.value if isinstance(s.arg, ConstantArgument) else next(it).detach().clone())
    # only locates the failing op: the caller already has the error
    with no_grad(), undone([]), contextlib.suppress(Exception):
        Run(program.graph_module).run(*flat)
    return {calls[n] for n in found if n in calls}


def _nested(tensors, given, in_spec):
    it = iter(tensors)
    return pytree.tree_unflatten([next(it) if is_tensor(x) else x for x in given], in_spec)
