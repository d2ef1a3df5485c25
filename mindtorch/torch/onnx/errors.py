"""torch.onnx.errors."""


class OnnxExporterWarning(UserWarning):
    """Something about an export."""


class OnnxExporterError(RuntimeError):
    """An export failed."""


class UnsupportedOperatorError(OnnxExporterError):
    """An operator has no translation."""
