"""torch.linalg: linear algebra (https://pytorch.org/docs/stable/linalg.html), filled from the op
registry."""
from mindtorch.ops.linalg.solve import LinAlgError  # noqa: F401
from mindtorch.torch import _namespace

_namespace.fill(globals(), "linalg")
__all__ = [_n for _n in globals() if not _n.startswith("_")]
