"""torch.distributed.fsdp.fully_sharded_data_parallel: names that refuse when they are used."""
import enum

from mindtorch.torch._refusing import refuse


class ShardingStrategy(enum.Enum):
    """What is spread over processes."""

    FULL_SHARD = 1
    SHARD_GRAD_OP = 2
    NO_SHARD = 3
    HYBRID_SHARD = 4
    _HYBRID_SHARD_ZERO2 = 5


class BackwardPrefetch(enum.Enum):
    """When parameters are gathered for backward."""

    BACKWARD_PRE = 1
    BACKWARD_POST = 2


class StateDictType(enum.Enum):
    """Form of a state_dict."""

    FULL_STATE_DICT = 1
    LOCAL_STATE_DICT = 2
    SHARDED_STATE_DICT = 3


refuse(globals(), "one process runs the program, torch.distributed.is_available() is False", "",
       "FullyShardedDataParallel CPUOffload MixedPrecision FullStateDictConfig LocalStateDictConfig ShardedStateDictConfig "
       "StateDictConfig StateDictSettings OptimStateDictConfig FullOptimStateDictConfig ShardedOptimStateDictConfig "
       "LocalOptimStateDictConfig FlatParameter OptimStateKeyType")
