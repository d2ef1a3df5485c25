"""torch.profiler.profiler."""
from mindtorch.torch.profiler import (ProfilerAction, profile, schedule, supported_activities,  # noqa: F401
                                      tensorboard_trace_handler)
