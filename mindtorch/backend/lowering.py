"""What other floors use of the lowerings: which ops there are, a graph as a Cell, a graph as an ONNX model."""
from mindtorch.backend import lower_nn, lower_ops, lower_rnn  # noqa: F401  (they fill the table)
from mindtorch.backend.lower import LOWERINGS, has_lowering
from mindtorch.backend.lower_native import close, to_cell
from mindtorch.backend.lower_onnx import OPSETS, to_model

__all__ = ["LOWERINGS", "OPSETS", "close", "has_lowering", "to_cell", "to_model"]
