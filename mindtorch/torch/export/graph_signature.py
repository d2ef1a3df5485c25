"""torch.export.graph_signature: the kinds of the inputs and outputs of an exported graph."""
import dataclasses
import enum
from typing import Any

__all__ = ["ConstantArgument", "CustomObjArgument", "ExportBackwardSignature", "ExportGraphSignature", "InputKind", "InputSpec", "OutputKind",
           "OutputSpec", "SymBoolArgument", "SymFloatArgument", "SymIntArgument", "TensorArgument", "TokenArgument"]


@dataclasses.dataclass
class TensorArgument:
    """A tensor, as the name of its node."""

    name: str


@dataclasses.dataclass
class ConstantArgument:
    """A Python scalar, string or None. Its value is part of the graph."""

    name: str
    value: Any


class _Named:
    def __init__(self, name, *more):
        self.name = name


class TokenArgument(_Named):
    """Never created: ops have no effect tokens."""


class SymIntArgument(_Named):
    """Never created: Python scalars are constants."""


class SymFloatArgument(_Named):
    """Never created: Python scalars are constants."""


class SymBoolArgument(_Named):
    """Never created: Python scalars are constants."""


class CustomObjArgument(_Named):
    """Never created: there are no script objects."""


class InputKind(enum.Enum):
    """The kind of an input."""

    USER_INPUT = 1
    PARAMETER = 2
    BUFFER = 3
    CONSTANT_TENSOR = 4
    CUSTOM_OBJ = 5
    TOKEN = 6


class OutputKind(enum.Enum):
    """The kind of an output."""

    USER_OUTPUT = 1
    LOSS_OUTPUT = 2
    BUFFER_MUTATION = 3
    PARAMETER_MUTATION = 4
    GRADIENT_TO_PARAMETER = 5
    GRADIENT_TO_USER_INPUT = 6
    USER_INPUT_MUTATION = 7
    TOKEN = 8


@dataclasses.dataclass
class InputSpec:
    """An input: its kind and argument, its name in the module unless it is a user input, and
    whether a buffer is in the state_dict."""

    kind: InputKind
    arg: Any
    target: Any = None
    persistent: Any = None

    def __post_init__(self):
        if self.kind is InputKind.BUFFER and self.persistent is None:
            raise AssertionError("Failed to specify persistent flag on BUFFER.")

    def __str__(self):
        text = f"{self.arg.name}: {self.kind.name}"
        text += "" if self.target is None else f" target={self.target!r}"
        return text + ("" if self.persistent is None else f" persistent={self.persistent}")


@dataclasses.dataclass
class OutputSpec:
    """An output: its kind, its argument, and the name of the tensor to update with it."""

    kind: OutputKind
    arg: Any
    target: Any = None

    def __str__(self):
        return f"{self.arg.name}: {self.kind.name}" + ("" if self.target is None else f" target={self.target!r}")


@dataclasses.dataclass
class ExportBackwardSignature:
    """Signature of joint forward-backward graphs, which are never created."""

    gradients_to_parameters: dict
    gradients_to_user_inputs: dict
    loss_output: str


@dataclasses.dataclass
class ExportGraphSignature:
    """Inputs in the order of the graph's placeholders, outputs in the order of its results."""

    input_specs: list
    output_specs: list

    def _inputs(self, kind):
        return [s for s in self.input_specs if s.kind is kind]

    def _outputs(self, kind):
        return {s.arg.name: s.target for s in self.output_specs if s.kind is kind}

    @property
    def parameters(self):
        """Names of the parameters."""
        return tuple(s.target for s in self._inputs(InputKind.PARAMETER))

    @property
    def buffers(self):
        """Names of the buffers."""
        return tuple(s.target for s in self._inputs(InputKind.BUFFER))

    @property
    def non_persistent_buffers(self):
        """Names of the buffers that are not in the state_dict."""
        return tuple(s.target for s in self._inputs(InputKind.BUFFER) if s.persistent is False)

    @property
    def lifted_tensor_constants(self):
        """Names of the other tensors that the code uses."""
        return tuple(s.target for s in self._inputs(InputKind.CONSTANT_TENSOR))

    @property
    def lifted_custom_objs(self):
        return ()

    @property
    def user_inputs(self):
        """Names of the inputs of the call, or values of constant inputs."""
        return tuple(_shown(s.arg) for s in self._inputs(InputKind.USER_INPUT))

    @property
    def user_outputs(self):
        """Names of the outputs of the call, or values of constant outputs."""
        return tuple(_shown(s.arg) for s in self.output_specs if s.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT))

    @property
    def inputs_to_parameters(self):
        """{placeholder name: parameter name}"""
        return {s.arg.name: s.target for s in self._inputs(InputKind.PARAMETER)}

    @property
    def inputs_to_buffers(self):
        """{placeholder name: buffer name}"""
        return {s.arg.name: s.target for s in self._inputs(InputKind.BUFFER)}

    @property
    def inputs_to_lifted_tensor_constants(self):
        """{placeholder name: constant name}"""
        return {s.arg.name: s.target for s in self._inputs(InputKind.CONSTANT_TENSOR)}

    @property
    def inputs_to_lifted_custom_objs(self):
        return {}

    @property
    def buffers_to_mutate(self):
        """{output name: name of the buffer to update with it}"""
        return self._outputs(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self):
        """{output name: name of the parameter to update with it}"""
        return self._outputs(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self):
        """{output name: name of the call input to update with it}"""
        return self._outputs(OutputKind.USER_INPUT_MUTATION)

    @property
    def backward_signature(self):
        return None

    @property
    def assertion_dep_token(self):
        return None

    @property
    def input_tokens(self):
        return ()

    @property
    def output_tokens(self):
        return ()

    def replace_all_uses(self, old, new):
        """Renames a node."""
        for s in (*self.input_specs, *self.output_specs):
            if s.arg.name == old:
                s.arg.name = new

    def get_replace_hook(self, replace_inputs=False):
        """Returns a hook for graph modules that keeps the names of outputs (and inputs) up to date.
        """
        def replaced(old, new, user):
            if user.op == "output" or replace_inputs and user.op == "placeholder":
                self.replace_all_uses(old.name, new)
        return replaced

    def __str__(self):
        lines = ["", "# inputs", *map(str, self.input_specs), "", "# outputs", *map(str, self.output_specs), ""]
        return "\n".join(lines)


def _shown(arg):
    return arg.value if isinstance(arg, ConstantArgument) else arg.name
