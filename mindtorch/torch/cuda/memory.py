"""Memory statistics of the accelerator.

On Ascend MindSpore reports them. Its CPU target reports none: there the bytes of the live tensors'
memory are counted on each query, and the largest count counts as the peak (with one warning).
"""
import os
import warnings
from collections import OrderedDict

from mindtorch.backend.mindspore import runtime
from mindtorch.backend.mindspore.errors import in_bytes
from mindtorch.core.device import device as _device, device_dispatch
from mindtorch.core.tensor.storage_impl import living
from mindtorch.core.tensor.tensor import SavedArray, Tensor
from mindtorch.torch.cuda.streams import on_host, spot
from mindtorch.torch._device_storage import home, nbytes

__all__ = ["caching_allocator_alloc", "caching_allocator_delete", "empty_cache", "get_allocator_backend", "ipc_collect", "list_gpu_processes", "max_memory_allocated",
           "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved", "memory_stats", "memory_summary",
           "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats", "set_per_process_memory_fraction"]


class _Peak:
    seen = 0
    told = False


def _counted():
    """Returns the bytes of memory of the live tensors that are on MindSpore's CPU target instead of
    an accelerator."""
    found = {}
    for x in living():
        t = type(x)
        if (t is SavedArray or Tensor in t.__mro__) and x._handle is not None:
            found[id(home(x))] = nbytes(x)
    total = sum(found.values())
    _Peak.seen = max(_Peak.seen, total)
    return total


def _peak():
    _counted()
    if not _Peak.told:
        _Peak.told = True
        warnings.warn("MindSpore's CPU target does not record peak memory: this is the maximum found by calls of memory_allocated and similar functions",
                      stacklevel=4)
    return _Peak.seen


def memory_allocated(device=None):
    """Returns the bytes occupied by tensors on the accelerator (0 without one)."""
    if not _device.accelerator():
        return 0
    spot(device, "memory_allocated")
    return _counted() if on_host() else runtime.ms.runtime.memory_allocated()


def max_memory_allocated(device=None):
    """Returns the peak of the bytes occupied by tensors (0 without an accelerator)."""
    if not _device.accelerator():
        return 0
    spot(device, "max_memory_allocated")
    return _peak() if on_host() else runtime.ms.runtime.max_memory_allocated()


def memory_reserved(device=None):
    """Returns the bytes that MindSpore has reserved for the accelerator's tensors (its CPU target
    reserves no more than they need)."""
    if not _device.accelerator():
        return 0
    spot(device, "memory_reserved")
    return _counted() if on_host() else runtime.ms.runtime.memory_reserved()


def max_memory_reserved(device=None):
    """Returns the peak of the bytes that MindSpore has reserved."""
    if not _device.accelerator():
        return 0
    spot(device, "max_memory_reserved")
    return _peak() if on_host() else runtime.ms.runtime.max_memory_reserved()


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device=None):
    """Resets the peak statistics."""
    if not _device.accelerator():
        return
    spot(device, "reset_peak_memory_stats")
    if on_host():
        _Peak.seen = 0
        _counted()
    else:
        runtime.ms.runtime.reset_peak_memory_stats()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device=None):
    """Does nothing: no available statistic accumulates."""
    if _device.accelerator():
        spot(device, "reset_accumulated_memory_stats")


def memory_stats(device=None):
    """Returns the available statistics under PyTorch's names and omits the others."""
    if not _device.accelerator():
        return OrderedDict()
    known = OrderedDict()
    for kind, now, most in (("allocated_bytes", memory_allocated, max_memory_allocated), ("reserved_bytes", memory_reserved, max_memory_reserved)):
        for pool in ("all",):
            known[f"{kind}.{pool}.current"] = now(device)
            known[f"{kind}.{pool}.peak"] = most(device)
    return known


def memory_stats_as_nested_dict(device=None):
    """Returns `memory_stats` as nested dicts."""
    nested = {}
    for key, v in memory_stats(device).items():
        kind, pool, what = key.split(".")
        nested.setdefault(kind, {}).setdefault(pool, {})[what] = v
    return nested


def memory_summary(device=None, abbreviated=False):
    """Returns a table of the available statistics."""
    d = spot(device, "memory_summary")
    if not on_host():
        return runtime.ms.runtime.memory_summary()
    rows = "\n".join(f"| {k:<32} | {v:>16} |" for k, v in memory_stats(d).items())
    line = "|" + "-" * 53 + "|"
    return f"{line}\n| Memory of {f'{d} (MindSpore CPU target), bytes':<41} |\n{line}\n{rows}\n{line}\n"


def mem_get_info(device=None):
    """Returns (free, total) memory in bytes: of the accelerator, or of the host on MindSpore's CPU
    target."""
    spot(device, "mem_get_info")
    p = properties()
    return p.free_memory, p.total_memory


@device_dispatch.device_lock
def empty_cache():
    """Returns cached memory to the system (MindSpore's CPU target caches none)."""
    if _device.accelerator() and not on_host():
        runtime.ms.runtime.empty_cache()


def ipc_collect():
    """Does nothing: memory is not shared between processes."""


def get_allocator_backend():
    """Returns the name of the allocator."""
    return "mindspore"


def list_gpu_processes(device=None):
    raise NotImplementedError(f"torch.cuda.list_gpu_processes is not supported on device {spot(device, 'list_gpu_processes')}")


def set_per_process_memory_fraction(fraction, device=None):
    d = spot(device, "set_per_process_memory_fraction")
    raise NotImplementedError(f"torch.cuda.set_per_process_memory_fraction is not supported on device {d}: use mindspore.runtime.set_memory")


def caching_allocator_alloc(size, device=None, stream=None):
    raise NotImplementedError(f"torch.cuda.caching_allocator_alloc is not supported on device {spot(device, 'caching_allocator_alloc')}")


def caching_allocator_delete(mem_ptr):
    raise NotImplementedError("torch.cuda.caching_allocator_delete is not supported")


class _Properties:
    """Available properties of an accelerator: name, total_memory, free_memory (bytes) and, on the
    CPU target, multi_processor_count."""

    def __init__(self, **known):
        self.__dict__.update(known)

    def __getattr__(self, name):
        raise AttributeError(f"the properties of device '{self.__dict__['name']}' are {', '.join(self.__dict__)}; '{name}' is unavailable")

    def __repr__(self):
        return f"_NPUDeviceProperties({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"


@device_dispatch.device_lock
def properties(index=0):
    """Returns the available properties of an accelerator."""
    if on_host():
        page = os.sysconf("SC_PAGE_SIZE")
        return _Properties(name=name_of(index), total_memory=page * os.sysconf("SC_PHYS_PAGES"), free_memory=page * os.sysconf("SC_AVPHYS_PAGES"),
                           multi_processor_count=os.cpu_count())
    p = runtime.ms.hal.get_device_properties(index)
    return _Properties(name=p.name, total_memory=in_bytes(p.total_memory), free_memory=in_bytes(p.free_memory))


def name_of(index=0):
    """Returns the name of an accelerator."""
    return "MindSpore CPU target" if on_host() else runtime.ms.hal.get_device_name(index)
