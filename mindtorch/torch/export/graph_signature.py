"""torch.export.graph_signature: what the inputs and outputs of an exported graph are."""
import dataclasses
import enum
from typing import Any

__all__ = ["ConstantArgument", "CustomObjArgument", "ExportBackwardSignature", "ExportGraphSignature", "InputKind", "InputSpec", "OutputKind",
           "OutputSpec", "SymBoolArgument", "SymFloatArgument", "SymIntArgument", "TensorArgument", "TokenArgument"]


@dataclasses.dataclass
class TensorArgument:
    """A tensor: the node's name."""

    name: str


@dataclasses.dataclass
class ConstantArgument:
    """A number, a string, None: its value stands in the graph."""

    name: str
    value: Any


class _Named:
    def __init__(self, name, *more):
        self.name = name


class TokenArgument(_Named):
    """Not made here: ops have no effect tokens."""


class SymIntArgument(_Named):
    """Not made here: numbers are constants."""


class SymFloatArgument(_Named):
    """Not made here: numbers are constants."""


class SymBoolArgument(_Named):
    """Not made here: numbers are constants."""


class CustomObjArgument(_Named):
    """Not made here: there are no script objects."""


class InputKind(enum.Enum):
    """What an input is."""

    USER_INPUT = 1
    PARAMETER = 2
    BUFFER = 3
    CONSTANT_TENSOR = 4
    CUSTOM_OBJ = 5
    TOKEN = 6


class OutputKind(enum.Enum):
    """What an output is."""

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
    """An input: its kind, its argument, and of what is not the user's the name in the module; whether a buffer is in the state_dict."""

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
    """An output: its kind, its argument, and what it is to be written to."""

    kind: OutputKind
    arg: Any
    target: Any = None

    def __str__(self):
        return f"{self.arg.name}: {self.kind.name}" + ("" if self.target is None else f" target={self.target!r}")


@dataclasses.dataclass
class ExportBackwardSignature:
    """Of joint graphs, which are not made here."""

    gradients_to_parameters: dict
    gradients_to_user_inputs: dict
    loss_output: str


@dataclasses.dataclass
class ExportGraphSignature:
    """Inputs in the order of the graph's placeholders, outputs in that of its result."""

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
        """Names of the buffers that are in no state_dict."""
        return tuple(s.target for s in self._inputs(InputKind.BUFFER) if s.persistent is False)

    @property
    def lifted_tensor_constants(self):
        """Names of other tensors that the code uses."""
        return tuple(s.target for s in self._inputs(InputKind.CONSTANT_TENSOR))

    @property
    def lifted_custom_objs(self):
        return ()

    @property
    def user_inputs(self):
        """Names of the inputs of the call; values of those that are constants."""
        return tuple(_shown(s.arg) for s in self._inputs(InputKind.USER_INPUT))

    @property
    def user_outputs(self):
        """Names of the outputs of the call; values of those that are constants."""
        return tuple(_shown(s.arg) for s in self.output_specs if s.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT))

    @property
    def inputs_to_parameters(self):
        """Names of placeholders -> names of parameters."""
        return {s.arg.name: s.target for s in self._inputs(InputKind.PARAMETER)}

    @property
    def inputs_to_buffers(self):
        """Names of placeholders -> names of buffers."""
        return {s.arg.name: s.target for s in self._inputs(InputKind.BUFFER)}

    @property
    def inputs_to_lifted_tensor_constants(self):
        """Names of placeholders -> names of constants."""
        return {s.arg.name: s.target for s in self._inputs(InputKind.CONSTANT_TENSOR)}

    @property
    def inputs_to_lifted_custom_objs(self):
        return {}

    @property
    def buffers_to_mutate(self):
        """Names of outputs -> names of the buffers that they are to be written to."""
        return self._outputs(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self):
        """The same for parameters."""
        return self._outputs(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self):
        """The same for inputs of the call."""
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
        """Another name for a node."""
        for s in (*self.input_specs, *self.output_specs):
            if s.arg.name == old:
                s.arg.name = new

    def get_replace_hook(self, replace_inputs=False):
        """A hook for graph modules that keeps the names of outputs (and inputs) right."""
        def replaced(old, new, user):
            if user.op == "output" or replace_inputs and user.op == "placeholder":
                self.replace_all_uses(old.name, new)
        return replaced

    def __str__(self):
        lines = ["", "# inputs", *map(str, self.input_specs), "", "# outputs", *map(str, self.output_specs), ""]
        return "\n".join(lines)


def _shown(arg):
    return arg.value if isinstance(arg, ConstantArgument) else arg.name
