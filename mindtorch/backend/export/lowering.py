"""The parts of the lowerings used by other packages: the table of supported ops, and conversion of
a graph to an ONNX model."""
from mindtorch.backend.export import nn as lower_nn, ops as lower_ops, rnn as lower_rnn  # noqa: F401  (they fill the table)
from mindtorch.backend.export.rules import LOWERINGS, close, has_lowering
from mindtorch.backend.export.onnx import OPSETS, to_model

__all__ = ["LOWERINGS", "OPSETS", "close", "has_lowering", "to_model"]
