"""torch.accelerator: the one accelerator of the process, whatever its kind; on MindSpore that is an Ascend NPU or none."""
import contextlib

from mindtorch.core import device as _device
from mindtorch.torch import cuda as _cuda

__all__ = ["current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count", "device_index",
           "empty_cache", "is_available", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
           "memory_reserved", "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats",
           "set_device_idx", "set_device_index", "set_stream", "synchronize"]


def is_available():
    """True if MindSpore's target is an accelerator."""
    return _cuda.is_available()


def current_accelerator(check_available=False):
    """torch.device of the accelerator's type; None without one."""
    return _device.device(_device.accelerator()) if is_available() else None


def device_count():
    """Number of accelerators."""
    return _cuda.device_count()


def _need(name):
    if not is_available():
        raise RuntimeError(f"torch.accelerator.{name}: Cannot access accelerator device when none is available.")


def current_device_index():
    """Index of the accelerator in use; RuntimeError without one."""
    _need("current_device_index")
    return _cuda.current_device()


current_device_idx = current_device_index


def set_device_index(device):
    """Selects an accelerator; RuntimeError without one."""
    _need("set_device_index")
    _cuda.set_device(device)


set_device_idx = set_device_index


def synchronize(device=None):
    """Waits for the accelerator; RuntimeError without one."""
    _need("synchronize")
    _cuda.synchronize(device)


def current_stream(device=None):
    """RuntimeError without an accelerator."""
    _need("current_stream")
    return _cuda.current_stream(device)


def set_stream(stream):
    """RuntimeError without an accelerator."""
    _need("set_stream")
    raise NotImplementedError("torch.accelerator.set_stream is not supported; MindSpore orders its own queue")


@contextlib.contextmanager
def device_index(device):
    """Context manager that selects an accelerator; None leaves things as they are."""
    if device is None:
        yield
        return
    before = current_device_index()
    set_device_index(device)
    try:
        yield
    finally:
        set_device_index(before)


def empty_cache():
    """Frees cached memory of the accelerator."""
    _cuda.empty_cache()


def memory_allocated(device_index=None):
    return _cuda.memory_allocated()


def max_memory_allocated(device_index=None):
    return _cuda.max_memory_allocated()


def memory_reserved(device_index=None):
    return _cuda.memory_reserved()


def max_memory_reserved(device_index=None):
    return _cuda.max_memory_reserved()


def memory_stats(device_index=None):
    """Empty: only totals are known."""
    return {}


def reset_peak_memory_stats(device_index=None):
    _cuda.reset_peak_memory_stats()


reset_accumulated_memory_stats = reset_peak_memory_stats
