"""torch.distributed._composable."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.fsdp import fully_shard  # noqa: F401

refuse(globals(), "use DistributedDataParallel, fully_shard and torch.utils.checkpoint", "checkpoint replicate contract", "")
