"""torch.mtia: Meta's accelerator, which MindSpore does not support."""
from mindtorch.torch._refusing import refuse


def is_available():
    """Returns False."""
    return False


def device_count():
    """Returns 0: there is no such device."""
    return 0


def is_initialized():
    """Returns False."""
    return False


refuse(globals(), "there is no mtia device behind MindSpore",
       "init synchronize current_device set_device current_stream default_stream set_stream stream memory_stats "
       "get_device_capability empty_cache get_rng_state set_rng_state", "Event Stream device")
