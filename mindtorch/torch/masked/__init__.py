"""torch.masked: ops that skip masked elements (https://pytorch.org/docs/stable/masked.html), filled
from the op registry."""
from mindtorch.ops.masked import identity_of as _reduction_identity  # noqa: F401
from mindtorch.torch import _namespace
from mindtorch.torch.masked.maskedtensor import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

__all__ = sorted(_namespace.fill(globals(), "masked")) + ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]
