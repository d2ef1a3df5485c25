"""torch.distributed.algorithms."""
from mindtorch.torch.distributed.algorithms.join import Join, Joinable, JoinHook  # noqa: F401
