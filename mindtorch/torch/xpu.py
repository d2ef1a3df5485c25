"""torch.xpu: Intel GPUs; MindSpore has no such device."""
from mindtorch.torch._refusing import refuse


def is_available():
    """Returns False: there is no such device."""
    return False


def device_count():
    """Returns 0: there is no such device."""
    return 0


def is_initialized():
    """Returns False: there is no such device."""
    return False


def is_bf16_supported():
    """Returns False: there is no such device."""
    return False


def is_current_stream_capturing():
    """Returns False: nothing is captured."""
    return False


def manual_seed(seed):
    """Accepts and ignores the seed, like PyTorch without the device."""


manual_seed_all = manual_seed


def empty_cache():
    """Does nothing: there is no cache."""


refuse(globals(), "there is no xpu device behind MindSpore",
       "init current_device set_device synchronize get_device_name get_device_capability get_device_properties current_stream "
       "set_stream stream memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_stats "
       "mem_get_info reset_peak_memory_stats reset_accumulated_memory_stats get_rng_state set_rng_state get_rng_state_all "
       "set_rng_state_all seed seed_all initial_seed get_arch_list",
       "Event Stream StreamContext device device_of")
