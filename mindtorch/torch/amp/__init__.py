"""torch.amp: gradient scaling and autocast (https://pytorch.org/docs/stable/amp.html)."""
from mindtorch.torch.amp.autocast_mode import (autocast, custom_bwd, custom_fwd, is_autocast_available)  # noqa: F401
from mindtorch.torch.amp.grad_scaler import GradScaler  # noqa: F401
from mindtorch.torch.amp import autocast_mode, grad_scaler  # noqa: F401



def auto_mixed_precision(network, amp_level="auto"):
    """mindtorch 0.4's name of `mindspore.amp.auto_mixed_precision`.

    Its module returns facade tensors here (docs/mindspore-style.md). Raises ValueError for an
    unknown level.
    """
    from mindtorch.backend.mindspore.runtime import ms
    return ms.amp.auto_mixed_precision(network, amp_level)


__all__ = ["autocast", "GradScaler", "custom_fwd", "custom_bwd", "is_autocast_available"]
