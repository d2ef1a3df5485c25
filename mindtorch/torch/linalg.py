"""torch.linalg: linear algebra (https://pytorch.org/docs/stable/linalg.html), filled from the op table."""
from mindtorch.ops._linalg_common import LinAlgError  # noqa: F401
from mindtorch.torch import _namespace

__all__ = ["LinAlgError"] + _namespace.fill(globals(), "linalg")
