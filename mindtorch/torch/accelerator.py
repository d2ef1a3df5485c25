"""torch.accelerator: the accelerator of the process, independent of its type. With MindSpore it is
an Ascend NPU or none."""
import contextlib

from mindtorch.core.device import device as _device
from mindtorch.torch import cuda as _cuda

__all__ = ["current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count", "device_index",
           "empty_cache", "get_device_capability", "get_memory_info", "is_available", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
           "memory_reserved", "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats",
           "set_device_idx", "set_device_index", "set_stream", "synchronize"]


def is_available():
    """True if MindSpore's target is an accelerator."""
    return _cuda.is_available()


def current_accelerator(check_available=False):
    """Returns the torch.device of the accelerator's type, or None without one."""
    return _device.device(_device.accelerator()[0]) if is_available() else None


def device_count():
    """Returns the number of accelerators."""
    return _cuda.device_count()


def _need(name):
    if not is_available():
        raise RuntimeError(f"torch.accelerator.{name}: Cannot access accelerator device when none is available.")


def current_device_index():
    """Returns the index of the current accelerator. Raises RuntimeError without one."""
    _need("current_device_index")
    return _cuda.current_device()


current_device_idx = current_device_index


def set_device_index(device):
    """Selects an accelerator. Raises RuntimeError without one."""
    _need("set_device_index")
    _cuda.set_device(device)


set_device_idx = set_device_index


def synchronize(device=None):
    """Synchronizes with the accelerator. Raises RuntimeError without one."""
    _need("synchronize")
    _cuda.synchronize(device)


def current_stream(device=None):
    """Returns the current stream. Raises RuntimeError without an accelerator."""
    _need("current_stream")
    return _cuda.current_stream(device)


def set_stream(stream):
    """Sets the current stream. Raises RuntimeError without an accelerator."""
    _need("set_stream")
    _cuda.set_stream(stream)


@contextlib.contextmanager
def device_index(device):
    """Context manager that selects an accelerator; None leaves the selection unchanged."""
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
    return _cuda.memory_allocated(device_index)


def max_memory_allocated(device_index=None):
    return _cuda.max_memory_allocated(device_index)


def memory_reserved(device_index=None):
    return _cuda.memory_reserved(device_index)


def max_memory_reserved(device_index=None):
    return _cuda.max_memory_reserved(device_index)


def memory_stats(device_index=None):
    """Returns the available statistics under PyTorch's names (empty without an accelerator)."""
    return _cuda.memory_stats(device_index)


def reset_peak_memory_stats(device_index=None):
    _cuda.reset_peak_memory_stats(device_index)


def get_memory_info(device_index=None):
    """Returns (free, total) memory in bytes. Raises RuntimeError without an accelerator."""
    _need("get_memory_info")
    return _cuda.mem_get_info(device_index)


def get_device_capability(device=None):
    """Unsupported: MindSpore does not report the dtypes that an accelerator supports."""
    _need("get_device_capability")
    raise NotImplementedError("torch.accelerator.get_device_capability is not supported: MindSpore does not report accelerator capabilities")


reset_accumulated_memory_stats = reset_peak_memory_stats
