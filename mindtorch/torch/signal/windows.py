"""torch.signal.windows: window functions, filled from the op table."""
from mindtorch.torch import _namespace

__all__ = _namespace.fill(globals(), "signal.windows")
