"""torch.distributed._tensor.experimental: older name of torch.distributed.tensor.experimental."""
from mindtorch.torch.distributed.tensor.experimental import context_parallel, implicit_replication, local_map, register_sharding  # noqa: F401
