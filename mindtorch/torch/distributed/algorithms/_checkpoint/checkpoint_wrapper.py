"""torch.distributed.algorithms._checkpoint.checkpoint_wrapper: names that refuse when they are used."""
import enum

from mindtorch.torch._refusing import refuse


class CheckpointImpl(enum.Enum):
    """Which kind of activation checkpoint."""

    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "checkpoint_wrapper apply_activation_checkpointing offload_wrapper", "CheckpointWrapper OffloadWrapper")
