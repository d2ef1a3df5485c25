"""torch.distributed.fsdp.api: options of FullyShardedDataParallel."""
from mindtorch.torch.distributed.fsdp.fully_sharded_data_parallel import (BackwardPrefetch, CPUOffload,  # noqa: F401
                                                                          FullOptimStateDictConfig, FullStateDictConfig,
                                                                          LocalOptimStateDictConfig, LocalStateDictConfig,
                                                                          MixedPrecision, OptimStateDictConfig,
                                                                          ShardedOptimStateDictConfig, ShardedStateDictConfig,
                                                                          ShardingStrategy, StateDictConfig, StateDictSettings,
                                                                          StateDictType)
