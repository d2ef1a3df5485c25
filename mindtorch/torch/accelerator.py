"""torch.accelerator: the one accelerator of the process, whatever its kind; on MindSpore that is an Ascend NPU or none."""
import contextlib

from mindtorch.core import device as _device
from mindtorch.torch import cuda as _cuda

__all__ = ["current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count", "device_index",
           "empty_cache", "get_device_capability", "get_memory_info", "is_available", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
           "memory_reserved", "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats",
           "set_device_idx", "set_device_index", "set_stream", "synchronize"]


def is_available():
    """True if MindSpore's target is an accelerator."""
    return _cuda.is_available()


def current_accelerator(check_available=False):
    """torch.device of the accelerator's type; None without one."""
    return _device.device(_device.accelerator()[0]) if is_available() else None


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
    """The stream in use; RuntimeError without an accelerator."""
    _need("current_stream")
    return _cuda.current_stream(device)


def set_stream(stream):
    """Makes a stream the current one; RuntimeError without an accelerator."""
    _need("set_stream")
    _cuda.set_stream(stream)


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
    return _cuda.memory_allocated(device_index)


def max_memory_allocated(device_index=None):
    return _cuda.max_memory_allocated(device_index)


def memory_reserved(device_index=None):
    return _cuda.memory_reserved(device_index)


def max_memory_reserved(device_index=None):
    return _cuda.max_memory_reserved(device_index)


def memory_stats(device_index=None):
    """What is known, under torch's names (empty without an accelerator)."""
    return _cuda.memory_stats(device_index)


def reset_peak_memory_stats(device_index=None):
    _cuda.reset_peak_memory_stats(device_index)


def get_memory_info(device_index=None):
    """(free, total) bytes; RuntimeError without an accelerator."""
    _need("get_memory_info")
    return _cuda.mem_get_info(device_index)


def get_device_capability(device=None):
    """Refused: MindSpore does not tell which dtypes an accelerator computes in."""
    _need("get_device_capability")
    raise NotImplementedError("torch.accelerator.get_device_capability is not supported: MindSpore does not tell what an accelerator is capable of")


reset_accumulated_memory_stats = reset_peak_memory_stats
