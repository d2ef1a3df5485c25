"""torch.utils.dlpack: memory shared with other libraries (https://pytorch.org/docs/stable/dlpack.html)."""
from mindtorch.torch._functions import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
