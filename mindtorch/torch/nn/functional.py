"""torch.nn.functional (https://pytorch.org/docs/stable/nn.functional.html), filled from the op table."""
import mindtorch.ops  # noqa: F401
from mindtorch.torch import _namespace

_namespace.fill(globals(), "nn.functional")
