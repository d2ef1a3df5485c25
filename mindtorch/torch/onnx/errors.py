"""torch.onnx.errors."""


class OnnxExporterWarning(UserWarning):
    """Warning about an export."""


class OnnxExporterError(RuntimeError):
    """Error raised when an export fails."""


class UnsupportedOperatorError(OnnxExporterError):
    """Error raised for an operator without a translation."""
