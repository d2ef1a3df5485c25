"""torch.export.exported_program: a program as a graph with its signature and weights."""
import copy
import dataclasses
from typing import Any

from mindtorch.core.tensor.tensor import Parameter, is_tensor
from mindtorch.torch.export.graph_signature import InputKind, OutputKind
from mindtorch.torch.fx.graph import CodeGen, Graph
from mindtorch.torch.fx.graph_module import GraphModule, _assign_attr
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.utils import _pytree as pytree

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "default_decompositions"]


@dataclasses.dataclass
class ModuleCallSignature:
    """Inputs and outputs of a module call, and their structure."""

    inputs: list
    outputs: list
    in_spec: Any
    out_spec: Any
    forward_arg_names: Any = None


@dataclasses.dataclass
class ModuleCallEntry:
    """A module of the program and the signature of its call."""

    fqn: str
    signature: Any = None


@dataclasses.dataclass
class CallSpec:
    """Structure of the arguments, as (args, kwargs), and of the result."""

    in_spec: Any
    out_spec: Any


def default_decompositions():
    """Not supported: ops are not decomposed."""
    raise NotImplementedError("torch.export.default_decompositions is not supported: ops are not decomposed into core ATen")


class _Nested(CodeGen):
    """Generates the code of a function with nested inputs from a graph with flat inputs."""

    def gen_fn_def(self, free_vars, maybe_return_annotation, *, expanded_def=False):
        names = [v.partition(" ")[0].partition(":")[0] for v in free_vars if v != "self"]
        taken_apart = "".join(n + ", " for n in names)
        return f"def {self._func_name}(self, *args, **kwargs):\n    {taken_apart or '_ '}= self._flat_inputs(args, kwargs)"

    def __deepcopy__(self, memo):
        return _Nested()

    def generate_output(self, output_args, *, descs=None):
        return f"return self._nested({self._text(output_args)})"


class _Unlifted(GraphModule):
    """The result of `ExportedProgram.module()`. Takes the same arguments as the original module and
    checks them."""

    def _flat_inputs(self, args, kwargs):
        spec, checks = self._in_spec, self._checks
        keys = spec.child(1).context
        if set(kwargs) != set(keys):
            raise ValueError(f"Ran into a kwarg keyword mismatch: Got the following keywords {list(kwargs)} but expected {list(keys)}")
        flat, given = pytree.tree_flatten((tuple(args), {k: kwargs[k] for k in keys}))
        if given != spec:
            raise ValueError(f"Trying to flatten user inputs with exported input tree spec: \n{spec}\nbut actually got inputs with tree spec of: \n{given}")
        check(flat, checks)
        return flat

    def _nested(self, flat):
        return pytree.tree_unflatten(flat, self._out_spec)

    def train(self, mode=True):
        """Not supported: a program has a fixed mode."""
        raise NotImplementedError("Calling train() is not supported yet.")

    def eval(self):
        """Not supported: a program has a fixed mode."""
        raise NotImplementedError("Calling eval() is not supported yet.")

    def __reduce__(self):
        raise NotImplementedError("a module of an exported program cannot be pickled: use torch.export.save(exported_program, file)")

    def __reduce_ex__(self, protocol):
        return self.__reduce__()


def check(flat, checks):
    """Raises AssertionError if inputs do not match those for which the program was exported.

      checks   [(path, value)] of constants and [(path, [size or (name, low, high)])] of tensors,
               in the order of the inputs
    """
    known = {}
    for x, (path, wanted) in zip(flat, checks):
        if isinstance(wanted, list):
            if not is_tensor(x):
                raise AssertionError(f"Guard failed: {path} is a tensor (got {type(x).__name__})")
            if x.ndim != len(wanted):
                raise AssertionError(f"Guard failed: {path}.ndim == {len(wanted)}")
            for axis, (n, w) in enumerate(zip(x.shape, wanted)):
                if isinstance(w, tuple):
                    name, low, high = w
                    # PyTorch accepts sizes 0 and 1 even if the range begins at 2
                    if low is not None and n < low and low > 2:
                        raise AssertionError(f"Guard failed: {path}.size()[{axis}] >= {low}")
                    if high is not None and n > high:
                        raise AssertionError(f"Guard failed: {path}.size()[{axis}] <= {high}")
                    where = known.setdefault(name, (n, f"{path}.size()[{axis}]"))
                    if where[0] != n:
                        raise AssertionError(f"Guard failed: {where[1]} == {path}.size()[{axis}]")
                elif n != w:
                    raise AssertionError(f"Guard failed: {path}.size()[{axis}] == {w}")
        elif not (x is wanted[0] or type(x) is type(wanted[0]) and x == wanted[0]):
            raise AssertionError(f"Guard failed: {path} == {wanted[0]!r}")


class ExportedProgram:
    """An exported program. `graph_module` takes parameters, buffers, constants and user inputs as
    flat arguments. Call the program through `module()`."""

    def __init__(self, root, graph, graph_signature, state_dict, range_constraints, module_call_graph, example_inputs=None, constants=None, *,
                 checks=(), verifiers=None):
        graph._codegen = CodeGen()
        self._graph_module = GraphModule(root, graph)
        self._graph_signature, self._state_dict, self._constants = graph_signature, state_dict, constants or {}
        self._range_constraints, self._module_call_graph, self._example_inputs = range_constraints, module_call_graph, example_inputs
        self._checks = list(checks)

    # ---- components
    @property
    def graph_module(self):
        """The graph as a module with flat inputs and no state."""
        return self._graph_module

    @property
    def graph(self):
        """The torch.fx.Graph."""
        return self._graph_module.graph

    @property
    def graph_signature(self):
        """Kinds and names of the graph's inputs and outputs."""
        return self._graph_signature

    @property
    def state_dict(self):
        """Parameters and persistent buffers by name. These are the module's own tensors."""
        return self._state_dict

    @property
    def constants(self):
        """Other tensors of the program by name: attributes, tensors made in the code, and
        non-persistent buffers."""
        return self._constants

    tensor_constants = constants

    @property
    def range_constraints(self):
        """{name of a dynamic dimension: Range}"""
        return self._range_constraints

    @property
    def module_call_graph(self):
        """The modules of the program. The entry of the outermost one has the structure of arguments
        and result."""
        return self._module_call_graph

    @property
    def example_inputs(self):
        """The example (args, kwargs) of the export."""
        return self._example_inputs

    @property
    def call_spec(self):
        """Structure of arguments and result."""
        s = self._module_call_graph[0].signature
        return CallSpec(s.in_spec, s.out_spec)

    @property
    def dialect(self):
        return "TRAINING"

    @property
    def verifier(self):
        raise NotImplementedError("ExportedProgram.verifier is not supported: use `validate()` to check the graph")

    verifiers = verifier

    def named_parameters(self):
        """Yields (name, parameter)."""
        for name in self._graph_signature.parameters:
            yield name, self._state_dict[name]

    def parameters(self):
        """Yields the parameters."""
        for _, p in self.named_parameters():
            yield p

    def named_buffers(self):
        """Yields (name, buffer)."""
        hidden = set(self._graph_signature.non_persistent_buffers)
        for name in self._graph_signature.buffers:
            yield name, (self._constants if name in hidden else self._state_dict)[name]

    def buffers(self):
        """Yields the buffers."""
        for _, b in self.named_buffers():
            yield b

    # ---- use
    def __call__(self, *args, **kwargs):
        raise RuntimeError("Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.")

    def module(self, check_guards=True):
        """Returns a module that computes the program on the program's tensors. It is called like
        the exported module and has its gradients.

        AssertionError ("Guard failed") for other sizes or constants than those of the export.
        ValueError for arguments with another structure.
        """
        state = {}
        signature = self._graph_signature
        hidden = {*signature.non_persistent_buffers, *signature.lifted_tensor_constants}
        for s in signature.input_specs:
            if s.kind is not InputKind.USER_INPUT:
                state[s.target] = (self._constants if s.target in hidden else self._state_dict)[s.target]
        for name in self._state_dict:
            state.setdefault(name, self._state_dict[name])
        empty = Graph()
        empty.output(None)
        gm = _Unlifted(Module(), empty, "GraphModule")
        for name in (*self._state_dict, *[n for n in state if n not in self._state_dict]):
            _put(gm, name, state[name], name not in hidden)
        graph, nodes = Graph(), {}
        specs = iter(signature.input_specs)
        for n in self.graph.nodes:
            if n.op == "output":
                values = n.args[0]
                for v, s in zip(values, signature.output_specs):
                    if s.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION):
                        to = nodes[next(m for m, i in zip(self.graph.nodes, signature.input_specs) if (
                            i.arg.name if s.kind is OutputKind.USER_INPUT_MUTATION else i.target) == s.target)]
                        graph.call_method("copy_", (to, nodes[v]))
                kept = [v for v, s in zip(values, signature.output_specs) if s.kind is OutputKind.USER_OUTPUT]
                graph.output(tuple(nodes.get(v, v) if not isinstance(v, (bool, int, float)) else v for v in kept))
                continue
            spec = next(specs) if n.op == "placeholder" else None
            if spec is not None and spec.kind is not InputKind.USER_INPUT:
                if n.users or any(o.target == spec.target for o in signature.output_specs):
                    nodes[n] = graph.create_node("get_attr", spec.target, name=spec.target.replace(".", "_"))
                    nodes[n].meta = copy.copy(n.meta)
                continue
            nodes[n] = graph.node_copy(n, lambda x: nodes[x])
        graph._codegen = _Nested()
        call = self.call_spec
        gm.__dict__.update(_in_spec=call.in_spec, _out_spec=call.out_spec, _checks=self._checks if check_guards else [])
        gm.graph = graph
        return gm

    def run_decompositions(self, decomp_table=None, decompose_custom_triton_ops=False):
        """Decomposes ops. With an empty table, returns the functional form of the program, without
        in-place ops.

        The tensors that the program modifies (running statistics, inputs) become its first outputs,
        listed in the signature (`buffers_to_mutate`). NotImplementedError for a table (None selects
        PyTorch's own table, for core ATen), and for in-place ops on views and parts of tensors.
        """
        if decomp_table is None or len(decomp_table):
            raise NotImplementedError("ExportedProgram.run_decompositions is not supported: ops are not decomposed into core ATen (pass {} for the "
                                      "functional form)")
        return _functional[0](self)

    def validate(self):
        """Raises RuntimeError unless the graph is valid."""
        self.graph.lint()

    _validate = validate

    def __str__(self):
        text = self._graph_module.print_readable(print_output=False).replace("\n", "\n    ")
        return f"ExportedProgram:\n    {text}\nGraph signature: {self._graph_signature}\nRange constraints: {self._range_constraints}\n"

    __repr__ = object.__repr__


# makes a program functional; set by `_functional.py`, which imports this module
_functional: list = []


def _put(root, name, value, persistent):
    """Registers a parameter or buffer under a dotted name."""
    if is_tensor(value, Parameter):
        _assign_attr(value, root, name)
        return
    *path, last = name.split(".")
    for part in path:
        if not hasattr(root, part):
            root.add_module(part, Module())
        root = getattr(root, part)
    root.register_buffer(last, value, persistent=persistent)


def writes(node):
    """True if a node modifies an argument in place: by its function's name, or as training batch
    norm or instance norm with running statistics."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "_opname", None) or getattr(node.target, "__name__", "")
    if name in ("batch_norm", "instance_norm"):
        statistics = node.args[3:4] if hasattr(node.target, "_opname") else (*node.args[1:2], node.kwargs.get("running_mean"))
        return any(s is not None for s in statistics) and (len(node.args) <= 5 or node.args[5] is not False)
    return node.op.startswith("call_") and (name.endswith("_") and name[:1] != "_" or name in ("setitem", "__setitem__") or name[:1] == "i" and name[1:] in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul"))
