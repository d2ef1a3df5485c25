"""torch.cuda: the accelerator that is actually present.

On MindSpore's CPU target there is none: `is_available()` is False and scripts take their CPU
branch. On Ascend, `cuda` is an alias of the NPU, for scripts that only support CUDA.
"""
import contextlib

from mindtorch.backend.mindspore import runtime
from mindtorch.backend.cpu.host import OutOfMemoryError  # noqa: F401
from mindtorch.core.device import device as _device, device_dispatch as _devices
from mindtorch.torch._refusing import refuse
from mindtorch.torch.cuda import amp, jiterator, memory, streams  # noqa: F401
from mindtorch.torch.cuda.memory import (empty_cache, get_allocator_backend, ipc_collect, list_gpu_processes, max_memory_allocated,  # noqa: F401
                                         max_memory_cached, max_memory_reserved, mem_get_info, memory_allocated, memory_cached, memory_reserved, memory_stats,
                                         memory_stats_as_nested_dict, memory_summary, reset_accumulated_memory_stats, reset_max_memory_allocated,
                                         reset_max_memory_cached, reset_peak_memory_stats, set_per_process_memory_fraction)
from mindtorch.torch.cuda.streams import Event, Stream, StreamContext, current_stream, default_stream, set_stream, stream, synchronize  # noqa: F401
from mindtorch.torch.cuda.streams import spot as _spot
from mindtorch.torch.cuda.random import (get_rng_state, get_rng_state_all, initial_seed, manual_seed, manual_seed_all, seed, seed_all,  # noqa: F401
                                         set_rng_state, set_rng_state_all)


def is_available():
    """True if MindSpore has an accelerator for tensors on 'cuda'."""
    return bool(_device.accelerator())


def device_count():
    """Returns the number of accelerators (0 without one)."""
    return _devices.DEVICES[_device.accelerator()[0]].count() if is_available() else 0


def is_initialized():
    return is_available()


def init():
    _need("init")


def _need(name):
    if not is_available():
        raise RuntimeError(f"torch.cuda.{name}: Found no NVIDIA driver on your system: MindSpore's device target is "
                           f"{runtime.target()}")


def current_device():
    """Returns the index of the current accelerator."""
    _need("current_device")
    return _devices.DEVICES[_device.accelerator()[0]].current()


def set_device(device):
    """Selects an accelerator by index. A negative index has no effect, as in PyTorch."""
    _need("set_device")
    if device.__class__ is int and device < 0:
        return
    d = _device.device(device)
    if d.type not in _device.accelerator():
        raise ValueError(f"Expected a {_device.accelerator()[0]} device, but got: {device}")
    index = current_device() if d.index is None else d.index
    if index >= device_count():
        raise RuntimeError(f"{d.type.upper()} error: invalid device ordinal: there is no device '{d}' (device count: {device_count()})")
    if index != current_device():
        _devices.DEVICES[d.type].select(index)
        if _device.get_default().type in _device.accelerator():
            _device.set_default(_device.get_default().type)


def get_device_name(device=None):
    """Returns the name of the accelerator."""
    return memory.name_of(_spot(device, "get_device_name").index)


def get_device_properties(device=None):
    """Returns name, total_memory and free_memory (bytes) of the accelerator. Other attributes are
    unavailable."""
    return memory.properties(_spot(device, "get_device_properties").index)


def get_device_capability(device=None):
    """Returns (0, 0): an NPU has no CUDA compute capability, so programs that require a minimum use
    their generic code path."""
    _spot(device, "get_device_capability")
    return 0, 0


def can_device_access_peer(device, peer_device):
    """Returns False: no kernel here accesses another accelerator's memory."""
    one, other = _spot(device, "can_device_access_peer"), _spot(peer_device, "can_device_access_peer")
    if one == other:
        raise RuntimeError(f"can_device_access_peer: device and peer_device are the same device, {one}")
    return False


def host_fallbacks():
    """Returns {primitive: number of times it ran on the host because the accelerator has no kernel
    for it}."""
    kinds = _device.accelerator()
    return {name: n for (kind, name), n in _devices.FALLBACKS.items() if kind in kinds}


def reset_host_fallbacks():
    """Resets the counts of `host_fallbacks`. Each primitive is warned about again."""
    kinds = _device.accelerator()
    for key in [k for k in _devices.FALLBACKS if k[0] in kinds]:
        del _devices.FALLBACKS[key]


def is_bf16_supported(including_emulation=True):
    return is_available()


def is_tf32_supported():
    """Returns False: TF32 exists only on CUDA."""
    return False


def get_arch_list():
    return []


def is_current_stream_capturing():
    return False


def nvtx_range_push(*args):
    """Does nothing: there is no CUDA profiler."""


class device(contextlib.ContextDecorator):
    """Context manager that selects an accelerator. Without one it only accepts None and -1, as in
    PyTorch."""

    def __init__(self, device):
        d = device
        if isinstance(d, str):
            d = _device.device(d)
        if isinstance(d, _device.device):
            d = -1 if d.type == "cpu" else d.index
        self.idx = -1 if d is None else d
        self.prev_idx = -1

    def __enter__(self):
        if self.idx >= 0:
            _need("device")
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *exc):
        if self.prev_idx >= 0:
            set_device(self.prev_idx)
        return False


class device_of(device):
    """Context manager that selects a tensor's accelerator. Does nothing for a tensor on another
    device."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.device.type in _device.accelerator() else -1)


def _legacy_type(name):
    def __new__(cls, *args, device=None, **kwargs):
        _need(name)
        from mindtorch import torch
        return getattr(torch, name)(*args, **kwargs).to("cuda" if device is None else device)

    def check(cls, x):
        from mindtorch import torch
        return isinstance(x, torch.Tensor) and x.is_cuda and x.type().rpartition(".")[2] == name
    kind = type("_LegacyMeta", (type,), {"__instancecheck__": check})
    return kind(name, (), {"__new__": __new__, "__module__": __name__, "__doc__": f"torch.{name} on the accelerator.", "dtype": None})


for _name in ("FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ShortTensor CharTensor ByteTensor BoolTensor").split():
    globals()[_name] = _legacy_type(_name)


refuse(globals(), "an NPU has no CUDA graphs, and MindSpore does not record its memory history",
       "make_graphed_callables memory_snapshot cudart caching_allocator_alloc caching_allocator_delete get_sync_debug_mode set_sync_debug_mode utilization "
       "temperature power_draw clock_rate memory_usage get_gencode_flags device_memory_used current_blas_handle current_solver_handle "
       "caching_allocator_enable caching_allocator_disabled change_current_allocator get_per_process_memory_fraction get_stream_from_external graph_pool_handle "
       "host_memory_stats host_memory_stats_as_nested_dict reset_accumulated_host_memory_stats reset_peak_host_memory_stats use_mem_pool check_error",
       "CUDAGraph graph ExternalStream MemPool CUDAPluggableAllocator GreenContext")


def __getattr__(name):
    if name in ("nvtx", "graphs", "_utils"):
        import importlib
        return importlib.import_module(f"mindtorch.torch.cuda.{name}")
    raise AttributeError(f"module 'torch.cuda' has no attribute '{name}'")
