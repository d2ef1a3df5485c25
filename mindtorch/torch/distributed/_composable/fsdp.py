"""torch.distributed._composable.fsdp: older name of torch.distributed.fsdp's functions."""
from mindtorch.torch.distributed.fsdp import (CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy,  # noqa: F401
                                              fully_shard)
