"""torch.distributed.fsdp: parameters, gradients and optimizer state sharded over the ranks."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.fsdp._fully_shard import (CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy,  # noqa: F401
                                                           UnshardHandle, fully_shard, register_fsdp_forward_method, share_comm_ctx)
from mindtorch.torch.distributed.fsdp.fully_sharded_data_parallel import (BackwardPrefetch, CPUOffload, FlatParameter,  # noqa: F401
                                                                          FullOptimStateDictConfig, FullStateDictConfig,
                                                                          FullyShardedDataParallel, LocalOptimStateDictConfig,
                                                                          LocalStateDictConfig, MixedPrecision, OptimStateDictConfig,
                                                                          OptimStateKeyType, ShardedOptimStateDictConfig,
                                                                          ShardedStateDictConfig, ShardingStrategy, StateDictConfig,
                                                                          StateDictSettings, StateDictType)

refuse(globals(), "only 1-D meshes are supported", "", "DataParallelMeshDims")
