"""torch.utils._mode_utils: leaving __torch_dispatch__ out."""
from mindtorch.torch._dispatch_protocol import disabled as no_dispatch  # noqa: F401
