"""torch.mps: Apple GPUs, which MindSpore does not support."""
from mindtorch.torch._refusing import refuse


def is_available():
    """Returns False."""
    return False


def device_count():
    """Returns 0: there is no such device."""
    return 0


def manual_seed(seed):
    """Does nothing, like PyTorch without an mps device."""


refuse(globals(), "there is no mps device behind MindSpore",
       "empty_cache synchronize current_allocated_memory driver_allocated_memory recommended_max_memory get_rng_state "
       "set_rng_state seed set_per_process_memory_fraction compile_shader", "Event")
