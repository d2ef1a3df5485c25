"""torch.distributed.fsdp: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.fsdp import fully_sharded_data_parallel as _fsdp
from mindtorch.torch.distributed.fsdp.fully_sharded_data_parallel import (BackwardPrefetch, ShardingStrategy,  # noqa: F401
                                                                         StateDictType)

globals().update({n: v for n, v in vars(_fsdp).items() if isinstance(v, type) and n not in globals()})
refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "fully_shard register_fsdp_forward_method share_comm_ctx",
       "FSDPModule MixedPrecisionPolicy OffloadPolicy CPUOffloadPolicy UnshardHandle")
