"""torch.distributed.distributed_c10d: process groups and collectives between processes."""
import enum
import os
import typing

from mindtorch.backend.comm.errors import (DistBackendError, DistError, DistNetworkError, DistStoreError,  # noqa: F401
                                           QueueEmptyError)
from mindtorch.backend.comm.store import FileStore, HashStore, PrefixStore, Store  # noqa: F401
from mindtorch.backend.comm.tcpstore import TCPStore  # noqa: F401
from mindtorch.core.device import device as _device
from mindtorch.core.tensor.sync import to_host
from mindtorch.torch.distributed import _collectives, _objects
from mindtorch.torch.distributed import _process_group as _groups
from mindtorch.torch.distributed._collectives import (P2POp, _all_gather_base, _coalescing_manager, _CoalescingManager,  # noqa: F401
                                                      _reduce_scatter_base, all_gather, all_gather_coalesced,
                                                      all_gather_into_tensor, all_gather_single, all_reduce, all_reduce_coalesced,
                                                      all_to_all, all_to_all_single, barrier, batch_isend_irecv, broadcast, gather,
                                                      irecv, isend, monitored_barrier, recv, reduce, reduce_scatter,
                                                      reduce_scatter_single, reduce_scatter_tensor, scatter, send)
from mindtorch.torch.distributed._objects import (all_gather_object, broadcast_object_list, gather_object,  # noqa: F401
                                                  recv_object_list, scatter_object_list, send_object_list)
from mindtorch.torch.distributed._process_group import (Backend, BackendConfig, GroupMember, ProcessGroup,  # noqa: F401
                                                        ProcessGroupGloo, destroy_process_group, get_backend, get_backend_config,
                                                        get_default_backend_for_device, get_global_rank, get_group_rank,
                                                        get_node_local_rank, get_pg_count, get_process_group_ranks, get_rank,
                                                        get_world_size, init_process_group, is_initialized, new_group,
                                                        new_subgroups, new_subgroups_by_enumeration, split_group)
from mindtorch.torch.distributed._reduce_op import ReduceOp, make_premul_sum, reduce_op  # noqa: F401
from mindtorch.torch.distributed._work import Work  # noqa: F401
from mindtorch.torch.distributed.constants import default_pg_nccl_timeout, default_pg_timeout  # noqa: F401
from mindtorch.torch.distributed.rendezvous import register_rendezvous_handler, rendezvous  # noqa: F401

_world, group = _groups.world, _groups.group
_make_nccl_premul_sum = make_premul_sum
GroupName = typing.NewType("GroupName", str)


class DebugLevel(enum.Enum):
    """Debug level set by TORCH_DISTRIBUTED_DEBUG."""

    OFF, INFO, DETAIL = range(3)


_level = None


def set_debug_level(level):
    """Sets the level that get_debug_level returns."""
    global _level
    _level = level


def set_debug_level_from_env():
    """Sets the level from TORCH_DISTRIBUTED_DEBUG."""
    text = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if text not in DebugLevel.__members__:
        raise RuntimeError("The value of TORCH_DISTRIBUTED_DEBUG must be one of OFF, INFO, DETAIL, not " + text)
    set_debug_level(DebugLevel[text])


def get_debug_level():
    """Returns the level. At every level, collectives are checked like at PyTorch's DETAIL."""
    if _level is None:
        set_debug_level_from_env()
    return _level


def is_backend_available(backend):
    """True if a backend's name is accepted on this device."""
    name = backend.lower()
    if name in ("nccl", "hccl"):
        return bool(_device.accelerator())
    return name in ("gloo", "mccl")


def is_gloo_available():
    """Returns True: collectives of CPU tensors are available under this name."""
    return True


def is_nccl_available():
    """True if there is an accelerator, whose collectives are available under this name too."""
    return is_backend_available("nccl")


def is_mpi_available():
    """Returns False: the MPI library is not used (but mpirun's variables are supported)."""
    return False


is_ucc_available = is_xccl_available = is_mpi_available


def is_torchelastic_launched():
    """True under torchrun, which sets TORCHELASTIC_RUN_ID."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def supports_complex(reduceOp):
    """True if a reduction accepts complex tensors."""
    return reduceOp not in (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def traffic():
    """Returns the bytes that this process has sent and received since init_process_group, including
    message signatures."""
    fabric = _world.fabric
    if fabric is None:
        raise ValueError(_groups.NO_GROUP)
    return {"sent": fabric.sent[0], "received": fabric.received[0]}


def record_comm(name):
    """Context manager that labels the collectives inside it with this name in a profile."""
    from mindtorch.torch.autograd.profiler import record_function

    return record_function(name)


# ---------------------------------------------------------------- names imported by scripts and libraries
_get_default_group = _groups.default_group
_rank_not_in_group = lambda group: not _groups.is_member(group)  # noqa: E731
_warn_not_in_group = _groups.warn_outside
_check_single_tensor = _collectives._check_tensor
_check_tensor_list = _collectives._check_list


def _get_default_store():
    return _groups.default_group().store


def _get_process_group_store(pg):
    return _groups.of(pg).store


def _get_process_group_name(pg):
    return pg.group_name if isinstance(pg, ProcessGroup) else "None"


def _get_pg_default_device(group=None):
    types = list(_groups.of(group).config.get_device_backend_map())
    return _device.device("cpu" if "cpu" in types else types[0])


_get_object_coll_device = _get_pg_default_device


def _get_group_size(group):
    return get_world_size(group)


def _group_or_default_group(group=None):
    return _groups.of(group)


def _resolve_process_group(group_name):
    """Returns the group with a name. Raises LookupError if there is none."""
    for pg in _world.groups.values():
        if pg.group_name == group_name:
            return pg
    raise LookupError(f"Could not resolve the process group registered under the name {group_name}")


def _find_pg_by_ranks_and_tag(tag, ranks):
    return next((pg for pg in _world.groups.values() if pg.ranks == sorted(ranks)), None)


def _find_or_create_pg_by_ranks_and_tag(tag, ranks, stride):
    return _find_pg_by_ranks_and_tag(tag, ranks) or new_group(ranks)


def _get_group_tag(pg):
    return ""


def _set_pg_timeout(timeout, group=None):
    """Sets the time limit of a group's operations, starting with the next one."""
    if timeout.total_seconds() <= 0:
        raise ValueError("the timeout must be positive")
    _groups.of(group).set_timeout(timeout)


def _abort_process_group(group=None):
    _groups.of(group).abort()
    destroy_process_group(group)


def _store_based_barrier(rank, store, group_name, rendezvous_count, timeout=default_pg_timeout, logging_interval=None):
    """Waits until `rendezvous_count` processes have reached this call on the same store."""
    key = f"store_based_barrier_key:{group_name}"
    if store.add(key, 1) == rendezvous_count:
        store.set(f"{key}:last_worker", "1")
    store.wait([f"{key}:last_worker"], timeout)


def _object_to_tensor(obj, device=None, group=None):
    from mindtorch.core.tensor.tensor import wrap_array
    import numpy as np

    raw = _objects._dump(obj)
    return wrap_array(raw), wrap_array(np.array([len(raw)], np.int64))


def _tensor_to_object(tensor, tensor_size, group=None):
    return _objects._load(to_host(tensor)[:int(tensor_size)])


def shrink_group(ranks_to_exclude, group=None, shrink_flags=0, pg_options=None):
    """Unsupported: create a new group of the remaining ranks."""
    raise NotImplementedError("torch.distributed.shrink_group is not supported: make a new group of the ranks that remain")


def _options(name, **defaults):
    def __init__(self, **kwargs):
        for key, value in {**defaults, **kwargs}.items():
            setattr(self, key, value)
    return type(name, (), {"__init__": __init__, "__module__": "torch.distributed", "__doc__": "Options of a collective."})


AllreduceOptions = _options("AllreduceOptions", reduceOp=ReduceOp.SUM, timeout=None)
AllreduceCoalescedOptions = _options("AllreduceCoalescedOptions", reduceOp=ReduceOp.SUM, timeout=None)
AllgatherOptions = _options("AllgatherOptions", timeout=None)
AllToAllOptions = _options("AllToAllOptions", timeout=None)
BarrierOptions = _options("BarrierOptions", device_ids=None, timeout=None)
BroadcastOptions = _options("BroadcastOptions", rootRank=0, rootTensor=0, timeout=None)
GatherOptions = _options("GatherOptions", rootRank=0, timeout=None)
ReduceOptions = _options("ReduceOptions", reduceOp=ReduceOp.SUM, rootRank=0, rootTensor=0, timeout=None)
ReduceScatterOptions = _options("ReduceScatterOptions", reduceOp=ReduceOp.SUM, timeout=None)
ScatterOptions = _options("ScatterOptions", rootRank=0, timeout=None)
