"""Communication hooks of DistributedDataParallel by name."""
import enum
from functools import partial

from mindtorch.torch.distributed.algorithms.ddp_comm_hooks import (debugging_hooks, default_hooks,  # noqa: F401
                                                                   post_localSGD_hook, powerSGD_hook)

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]


def _plain(hook, model, state):
    model.register_comm_hook(state, hook)


def _refused(model, state, name):
    raise NotImplementedError(f"the communication hook {name} is not supported: use ALLREDUCE, FP16_COMPRESS or BF16_COMPRESS")


class DDPCommHookType(enum.Enum):
    """Hooks that `register_ddp_comm_hook` accepts."""

    ALLREDUCE = partial(_plain, default_hooks.allreduce_hook)
    FP16_COMPRESS = partial(_plain, default_hooks.fp16_compress_hook)
    BF16_COMPRESS = partial(_plain, default_hooks.bf16_compress_hook)
    QUANTIZE_PER_TENSOR = partial(_refused, name="QUANTIZE_PER_TENSOR")
    QUANTIZE_PER_CHANNEL = partial(_refused, name="QUANTIZE_PER_CHANNEL")
    POWER_SGD = partial(_refused, name="POWER_SGD")
    POWER_SGD_RANK2 = partial(_refused, name="POWER_SGD_RANK2")
    BATCHED_POWER_SGD = partial(_refused, name="BATCHED_POWER_SGD")
    BATCHED_POWER_SGD_RANK2 = partial(_refused, name="BATCHED_POWER_SGD_RANK2")
    NOOP = partial(_plain, debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type, model, state=None):
    """Registers the hook with a DistributedDataParallel."""
    comm_hook_type.value(model, state)
