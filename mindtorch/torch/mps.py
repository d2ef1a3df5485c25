"""torch.mps: Apple's GPUs; there are none behind MindSpore."""
from mindtorch.torch._refusing import refuse


def is_available():
    """False."""
    return False


def device_count():
    """0: there is no such device."""
    return 0


def manual_seed(seed):
    """Accepted and ignored, as torch does without the device."""


refuse(globals(), "there is no mps device behind MindSpore",
       "empty_cache synchronize current_allocated_memory driver_allocated_memory recommended_max_memory get_rng_state "
       "set_rng_state seed set_per_process_memory_fraction compile_shader", "Event")
