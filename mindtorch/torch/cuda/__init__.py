"""torch.cuda: honest answers about an accelerator.

On MindSpore's CPU target there is none, so `is_available()` is False and scripts take their CPU branch.  On Ascend the
NPU answers to the name `cuda`, for scripts that know no other.
"""
import contextlib

from mindtorch.backend.mindspore import runtime
from mindtorch.backend.cpu.host import OutOfMemoryError  # noqa: F401
from mindtorch.core import device as _device
from mindtorch.torch._refusing import refuse
from mindtorch.torch.cuda import amp  # noqa: F401


def is_available():
    """True if MindSpore has an accelerator that tensors on 'cuda' can live on."""
    return bool(_device.accelerator())


def device_count():
    """Number of accelerators."""
    return runtime.ms.hal.device_count() if is_available() else 0


def is_initialized():
    return is_available()


def init():
    _need("init")


def _need(name):
    if not is_available():
        raise RuntimeError(f"torch.cuda.{name}: Found no NVIDIA driver on your system: MindSpore's device target is "
                           f"{runtime.target()}")


def current_device():
    """Index of the current accelerator."""
    _need("current_device")
    return runtime.ms.get_context("device_id")


def set_device(device):
    """Selects an accelerator by index."""
    _need("set_device")
    runtime.ms.set_device(runtime.target(), _device.device(device).index or 0 if not isinstance(device, int) else device)


def get_device_name(device=None):
    _need("get_device_name")
    return runtime.ms.hal.get_device_name(0)


def get_device_properties(device=None):
    _need("get_device_properties")
    return runtime.ms.hal.get_device_properties(0)


def get_device_capability(device=None):
    _need("get_device_capability")
    return runtime.ms.hal.get_device_capability(0)


def synchronize(device=None):
    """Waits for the accelerator; needs one."""
    _need("synchronize")
    runtime.ms.runtime.synchronize()


def empty_cache():
    """Frees cached memory; nothing is cached without an accelerator."""
    if is_available():
        runtime.ms.runtime.empty_cache()


def ipc_collect():
    """Nothing to collect."""


def memory_allocated(device=None):
    """Bytes held by tensors on the accelerator (0 without one)."""
    return runtime.ms.runtime.memory_allocated() if is_available() else 0


def max_memory_allocated(device=None):
    return runtime.ms.runtime.max_memory_allocated() if is_available() else 0


def memory_reserved(device=None):
    return runtime.ms.runtime.memory_reserved() if is_available() else 0


def max_memory_reserved(device=None):
    return runtime.ms.runtime.max_memory_reserved() if is_available() else 0


def reset_peak_memory_stats(device=None):
    if is_available():
        runtime.ms.runtime.reset_peak_memory_stats()


reset_max_memory_allocated = reset_peak_memory_stats


def manual_seed(seed):
    """Seeds the accelerator's generator; ignored without one, as in torch."""
    if is_available():
        runtime.ms.manual_seed(seed)


manual_seed_all = manual_seed


def seed():
    """Ignored without an accelerator."""


seed_all = seed


def get_rng_state_all():
    """States of all accelerators' generators."""
    return []


def set_rng_state_all(new_states):
    for _ in new_states:
        _need("set_rng_state_all")


def get_rng_state(device="cuda"):
    _need("get_rng_state")
    raise NotImplementedError(f"torch.cuda.get_rng_state is not supported on device {device}")


def is_bf16_supported(including_emulation=True):
    return is_available()


def get_arch_list():
    return []


def is_current_stream_capturing():
    return False


def nvtx_range_push(*args):
    """Ignored: there is no CUDA profiler."""


class device(contextlib.ContextDecorator):
    """Context manager that selects an accelerator; without one it accepts None and -1 only, as torch does."""

    def __init__(self, device):
        self.idx = device

    def __enter__(self):
        if self.idx not in (None, -1) and not (isinstance(self.idx, _device.device) and self.idx.type == "cpu"):
            _need("device")

    def __exit__(self, *exc):
        return False


class Stream:
    """An accelerator's queue; needs an accelerator."""

    def __new__(cls, *args, **kwargs):
        _need("Stream")
        raise NotImplementedError("torch.cuda.Stream is not supported; MindSpore orders its own queue")


class Event(Stream):
    """A mark in an accelerator's queue; needs an accelerator."""


def current_stream(device=None):
    _need("current_stream")
    raise NotImplementedError("torch.cuda.current_stream is not supported")


@contextlib.contextmanager
def stream(stream):
    """Accepts None."""
    if stream is not None:
        _need("stream")
    yield


def mem_get_info(device=None):
    """(free, total) bytes of an accelerator; needs one."""
    _need("mem_get_info")
    raise NotImplementedError("torch.cuda.mem_get_info is not supported")


def memory_summary(device=None, abbreviated=False):
    """Table of the accelerator's memory; needs one."""
    _need("memory_summary")
    return runtime.ms.runtime.memory_summary()


refuse(globals(), "there are no CUDA graphs or streams behind MindSpore",
       "make_graphed_callables default_stream set_stream memory_snapshot memory_stats_as_nested_dict",
       "CUDAGraph graph StreamContext ExternalStream FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor "
       "ShortTensor CharTensor ByteTensor BoolTensor")
