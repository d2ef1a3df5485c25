"""torch.utils._mode_utils: bypasses __torch_dispatch__."""
from mindtorch.torch._dispatch_protocol import disabled as no_dispatch  # noqa: F401
