"""torch._dynamo.utils."""
from mindtorch.torch._refusing import refuse


def is_compile_supported(device_type):
    """False: there is no compiler."""
    return False


refuse(globals(), "there is no compiler", "compile_times counters_summary same")
