"""torch.special (https://pytorch.org/docs/stable/special.html), filled from the op table."""
from mindtorch.torch import _namespace

__all__ = sorted(_namespace.fill(globals(), "special"))
