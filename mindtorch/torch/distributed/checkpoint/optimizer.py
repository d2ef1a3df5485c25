"""torch.distributed.checkpoint.optimizer: a placeholder that raises NotImplementedError."""
from mindtorch.torch.distributed.checkpoint import load_sharded_optimizer_state_dict  # noqa: F401
