"""What is known of the accelerator's memory.

On Ascend MindSpore tells it.  Its CPU target tells nothing: there the bytes under living tensors are counted when somebody asks, and the most that was
found by that counts as the peak, which is said once.
"""
import os
import warnings
from collections import OrderedDict

from mindtorch.backend.mindspore import runtime
from mindtorch.backend.mindspore.faults import in_bytes
from mindtorch.core import device as _device, devices
from mindtorch.core.memory import living
from mindtorch.core.tensor import Held, Tensor
from mindtorch.torch.cuda.streams import on_host, spot
from mindtorch.torch._device_storage import home, nbytes

__all__ = ["caching_allocator_alloc", "caching_allocator_delete", "empty_cache", "get_allocator_backend", "ipc_collect", "list_gpu_processes", "max_memory_allocated",
           "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved", "memory_stats", "memory_summary",
           "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats", "set_per_process_memory_fraction"]


class _Peak:
    seen = 0
    told = False


def _counted():
    """Bytes of the memory under the tensors that live on MindSpore's CPU target in the place of an accelerator."""
    found = {}
    for x in living():
        t = type(x)
        if (t is Held or Tensor in t.__mro__) and x._h is not None:
            found[id(home(x))] = nbytes(x)
    total = sum(found.values())
    _Peak.seen = max(_Peak.seen, total)
    return total


def _peak():
    _counted()
    if not _Peak.told:
        _Peak.told = True
        warnings.warn("on MindSpore's CPU target the peak of memory is not recorded: this is the most that calls of memory_allocated and the like have found",
                      stacklevel=4)
    return _Peak.seen


def memory_allocated(device=None):
    """Bytes held by tensors on the accelerator (0 without one)."""
    if not _device.accelerator():
        return 0
    spot(device, "memory_allocated")
    return _counted() if on_host() else runtime.ms.runtime.memory_allocated()


def max_memory_allocated(device=None):
    """The most bytes that tensors have held (0 without an accelerator)."""
    if not _device.accelerator():
        return 0
    spot(device, "max_memory_allocated")
    return _peak() if on_host() else runtime.ms.runtime.max_memory_allocated()


def memory_reserved(device=None):
    """Bytes that MindSpore has of the system for the accelerator's tensors (its CPU target keeps no more than they need)."""
    if not _device.accelerator():
        return 0
    spot(device, "memory_reserved")
    return _counted() if on_host() else runtime.ms.runtime.memory_reserved()


def max_memory_reserved(device=None):
    """The most bytes that MindSpore has had."""
    if not _device.accelerator():
        return 0
    spot(device, "max_memory_reserved")
    return _peak() if on_host() else runtime.ms.runtime.max_memory_reserved()


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device=None):
    """From now on the peaks are counted anew."""
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
    """Nothing accumulates in what is known."""
    if _device.accelerator():
        spot(device, "reset_accumulated_memory_stats")


def memory_stats(device=None):
    """What is known, under torch's names; what is not is not among the keys."""
    if not _device.accelerator():
        return OrderedDict()
    known = OrderedDict()
    for kind, now, most in (("allocated_bytes", memory_allocated, max_memory_allocated), ("reserved_bytes", memory_reserved, max_memory_reserved)):
        for pool in ("all",):
            known[f"{kind}.{pool}.current"] = now(device)
            known[f"{kind}.{pool}.peak"] = most(device)
    return known


def memory_stats_as_nested_dict(device=None):
    """`memory_stats` as dicts in dicts."""
    nested = {}
    for key, v in memory_stats(device).items():
        kind, pool, what = key.split(".")
        nested.setdefault(kind, {}).setdefault(pool, {})[what] = v
    return nested


def memory_summary(device=None, abbreviated=False):
    """A table of what is known."""
    d = spot(device, "memory_summary")
    if not on_host():
        return runtime.ms.runtime.memory_summary()
    rows = "\n".join(f"| {k:<32} | {v:>16} |" for k, v in memory_stats(d).items())
    line = "|" + "-" * 53 + "|"
    return f"{line}\n| Memory of {f'{d} (MindSpore CPU target), bytes':<41} |\n{line}\n{rows}\n{line}\n"


def mem_get_info(device=None):
    """(free, total) bytes: of the accelerator, or on MindSpore's CPU target of the host."""
    spot(device, "mem_get_info")
    p = properties()
    return p.free_memory, p.total_memory


@devices.alone
def empty_cache():
    """Gives memory that is kept for later back to the system (MindSpore's CPU target keeps none)."""
    if _device.accelerator() and not on_host():
        runtime.ms.runtime.empty_cache()


def ipc_collect():
    """Nothing to collect: memory is not shared between processes."""


def get_allocator_backend():
    """Whose memory pool it is."""
    return "mindspore"


def list_gpu_processes(device=None):
    raise NotImplementedError(f"torch.cuda.list_gpu_processes is not supported on device {spot(device, 'list_gpu_processes')}")


def set_per_process_memory_fraction(fraction, device=None):
    d = spot(device, "set_per_process_memory_fraction")
    raise NotImplementedError(f"torch.cuda.set_per_process_memory_fraction is not supported on device {d}: mindspore.runtime.set_memory limits it")


def caching_allocator_alloc(size, device=None, stream=None):
    raise NotImplementedError(f"torch.cuda.caching_allocator_alloc is not supported on device {spot(device, 'caching_allocator_alloc')}")


def caching_allocator_delete(mem_ptr):
    raise NotImplementedError("torch.cuda.caching_allocator_delete is not supported")


class _Properties:
    """What is known of an accelerator: name, total_memory, free_memory (bytes), multi_processor_count on the CPU target."""

    def __init__(self, **known):
        self.__dict__.update(known)

    def __getattr__(self, name):
        raise AttributeError(f"of device '{self.__dict__['name']}' only {', '.join(self.__dict__)} are known, and not '{name}'")

    def __repr__(self):
        return f"_NPUDeviceProperties({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"


@devices.alone
def properties(index=0):
    """What is known of an accelerator."""
    if on_host():
        page = os.sysconf("SC_PAGE_SIZE")
        return _Properties(name=name_of(index), total_memory=page * os.sysconf("SC_PHYS_PAGES"), free_memory=page * os.sysconf("SC_AVPHYS_PAGES"),
                           multi_processor_count=os.cpu_count())
    p = runtime.ms.hal.get_device_properties(index)
    return _Properties(name=p.name, total_memory=in_bytes(p.total_memory), free_memory=in_bytes(p.free_memory))


def name_of(index=0):
    """Name of an accelerator."""
    return "MindSpore CPU target" if on_host() else runtime.ms.hal.get_device_name(index)
