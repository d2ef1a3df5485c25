"""torch.onnx (https://pytorch.org/docs/stable/onnx.html): export through the `onnx` package.

The remaining public names raise NotImplementedError when called.
"""
import enum

from mindtorch.torch._refusing import refuse
from mindtorch.torch.onnx import errors, symbolic_helper, symbolic_opset11  # noqa: F401
from mindtorch.torch.onnx._export import ONNXProgram, export, is_in_onnx_export
from mindtorch.torch.onnx.errors import OnnxExporterError

__all__ = ["export", "is_in_onnx_export", "ONNXProgram", "OnnxExporterError", "errors"]

producer_name, producer_version = "pytorch", "2.13.0"
_symbolics = {}


class TrainingMode(enum.Enum):
    """Mode in which a model is exported: evaluation, unchanged, or training."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    """Operator formats; only ONNX is supported."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def register_custom_op_symbolic(symbolic_name, symbolic_fn, opset_version):
    """Stores a symbolic function for an operator; raises ValueError if the name is not
    "domain::name"."""
    domain, _, name = symbolic_name.partition("::")
    if not domain or not name:
        raise ValueError(f"Failed to register operator {symbolic_name}. The symbolic name must match the format domain::name")
    _symbolics[symbolic_name, opset_version] = symbolic_fn


refuse(globals(), "torch.onnx.export traces the model and lowers the recorded ops (docs/export.md)",
       "dynamo_export unregister_custom_op_symbolic select_model_mode_for_export", "ExportOptions JitScalarType")
