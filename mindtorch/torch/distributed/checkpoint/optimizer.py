"""torch.distributed.checkpoint.optimizer: a name that refuses when it is used."""
from mindtorch.torch.distributed.checkpoint import load_sharded_optimizer_state_dict  # noqa: F401
