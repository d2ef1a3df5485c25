"""torch.autograd.profiler_util: events and statistics of profilers."""
from mindtorch.torch.autograd.profiler import EventList, FunctionEvent, FunctionEventAvg, Interval, Kernel, _bytes, _text  # noqa: F401

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel"]

_format_time, _format_memory = _text, _bytes


def _format_time_share(time_us, total_time_us):
    """Formats a fraction of a time as a percentage."""
    return f"{time_us * 100 / total_time_us if total_time_us else 0:.2f}%"
