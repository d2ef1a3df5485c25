"""torch.signal.windows: window functions, filled from the op table."""
from mindtorch.torch import _namespace

_namespace.fill(globals(), "signal.windows")
__all__ = [_n for _n in globals() if not _n.startswith("_")]
