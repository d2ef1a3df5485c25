"""torch.distributed._composable.fsdp: older names of torch.distributed.fsdp's functions."""
from mindtorch.torch.distributed._composable.fsdp.fully_shard import fully_shard, register_fsdp_forward_method  # noqa: F401
from mindtorch.torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy  # noqa: F401
