"""torch.distributed._composable.fsdp.fully_shard: older names of torch.distributed.fsdp's
functions."""
from mindtorch.torch.distributed.fsdp import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method  # noqa: F401
