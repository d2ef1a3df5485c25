"""Process groups: members, creation, lookup and destruction."""
import datetime
import hashlib
import os
import sys
import warnings

from mindtorch.backend.cpython import at_exit, not_at_exit
from mindtorch.backend.comm import mindspore as comm_native
from mindtorch.backend.mindspore import runtime
from mindtorch.backend.comm.transport import Transport
from mindtorch.backend.comm.store import PrefixStore, seconds
from mindtorch.backend.comm.tcpstore import TCPStore
from mindtorch.core.device import device as _device
from mindtorch.torch.distributed._engine_sockets import SocketEngine
from mindtorch.torch.distributed.constants import default_pg_nccl_timeout, default_pg_timeout
from mindtorch.torch.distributed.rendezvous import environment, rendezvous

NO_GROUP = "Default process group has not been initialized, please make sure to call init_process_group."

#: PyTorch's and MindSpore's backend names that are accepted. The transport that is used depends on
#: the device.
_KNOWN = ("gloo", "nccl", "hccl", "mccl", "mpi", "undefined")


class Backend(str):
    """Name of a backend, in lower case."""

    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL, HCCL, MCCL = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl", "hccl", "mccl"
    backend_list = ["undefined", "gloo", "nccl", "hccl", "mccl", "mpi"]
    default_device_backend_map = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}

    def __new__(cls, name):
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish: {name!r}")
        return str.__new__(cls, name.lower())

    @classmethod
    def register_backend(cls, name, func, extended_api=False, devices=None):
        """Unsupported: the only backends are those of MindSpore and mindtorch."""
        raise NotImplementedError(f"torch.distributed.Backend.register_backend is not supported (backend {name!r})")


class BackendConfig:
    """Backend of each device type, from 'gloo' (for all types), 'hccl' (for the accelerator if
    there is one) or 'cpu:gloo,npu:hccl'.

    It only records the scripts' choice: tensors of an unlisted device type can be transferred too.
    """

    def __init__(self, backend):
        self._of = {}
        if ":" in backend:
            for part in backend.lower().split(","):
                device, colon, name = part.partition(":")
                if not colon or not name:
                    raise ValueError(f"Invalid device:backend pairing: '{part}'. Expected format: 'device:backend'")
                if device in self._of:
                    raise ValueError(f"Duplicate device type {device} in backend string: {backend}")
                self._of[device] = Backend(name)
        else:
            there, name = _device.accelerator(), Backend(backend)
            for device in there if there and name in ("nccl", "hccl") else ("cpu", *(there or ("cuda",))):
                self._of[device] = name

    def get_device_backend_map(self):
        return dict(self._of)

    def names(self):
        return list(dict.fromkeys(self._of.values()))

    def __repr__(self):
        return ",".join(f"{d}:{b}" for d, b in self._of.items())


class _World:
    """This process's state about its groups."""

    def __init__(self):
        self.fabric = None
        self.default_pg = None
        self.groups = {}            # name -> ProcessGroup
        self.made = {}  # ranks -> number of groups created with these ranks
        self.count = 0
        self.inits = 0

    @property
    def pg_map(self):
        return {g: (g.backend_name, g.store) for g in self.groups.values()}

    @property
    def pg_names(self):
        return {g: g.group_name for g in self.groups.values()}

    @property
    def pg_group_ranks(self):
        return {g: {r: i for i, r in enumerate(g.ranks)} for g in self.groups.values()}

    @property
    def group_count(self):
        return self.count


world = _World()


class _GroupMeta(type):
    @property
    def WORLD(cls):
        return world.default_pg

    @WORLD.setter
    def WORLD(cls, pg):
        world.default_pg = pg


class group(metaclass=_GroupMeta):
    """Namespace of group.WORLD, the default process group (None before init_process_group)."""


class GroupMember(metaclass=_GroupMeta):
    """Namespace of WORLD and NON_GROUP_MEMBER, which `new_group` returns to processes outside the
    group."""

    NON_GROUP_MEMBER = -100


class ProcessGroup:
    """A subset of the processes of a job, created by init_process_group or new_group."""

    def __init__(self, ranks, engine, backend, name, desc, store, timeout, config=None):
        self.ranks, self._engine, self.backend_name = list(ranks), engine, Backend(backend)
        self.group_name, self.group_desc, self.store, self._timeout = name, desc, store, timeout
        self.config = config or BackendConfig(backend)
        self.bound_device_id = None
        self._rank = self.ranks.index(world.fabric.rank)
        self._sequence = 0

    def __repr__(self):
        return f"<torch.distributed.ProcessGroup {self.group_name} of ranks {self.ranks}>"

    def rank(self):
        """Returns this process's rank in the group."""
        return self._rank

    def size(self):
        """Returns the number of processes in the group."""
        return len(self.ranks)

    def name(self):
        """Returns the backend's name."""
        return str(self.backend_name)

    @property
    def timeout(self):
        """Time limit of an operation as a timedelta."""
        return self._timeout

    def set_timeout(self, timeout):
        """Sets the time limit of operations started from now on."""
        self._timeout = timeout
        self._engine.timeout = seconds(timeout)

    _set_default_timeout = set_timeout

    def abort(self):
        """Ends the group. Pending operations fail on all ranks."""
        self._engine.group.fail(f"rank {world.fabric.rank} has aborted the group")

    def shutdown(self):
        """Ends the group."""
        destroy_process_group(self)

    def _get_backend_name(self):
        return str(self.backend_name)

    def _get_backend(self, device):
        return self

    def __reduce__(self):
        raise TypeError("cannot pickle a ProcessGroup")

    def __deepcopy__(self, memo):
        return self


ProcessGroupGloo = ProcessGroup


def is_initialized():
    """True if init_process_group has been called."""
    return world.default_pg is not None


def default_group():
    """Returns the default process group. Raises ValueError if there is none."""
    if world.default_pg is None:
        raise ValueError(NO_GROUP)
    return world.default_pg


def of(group):
    """Returns the process group for an argument `group` (None: the default group)."""
    if group is None or group is _GroupMeta:
        return default_group()
    if group == GroupMember.NON_GROUP_MEMBER and not isinstance(group, ProcessGroup):
        raise ValueError("Invalid process group specified")
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"Invalid process group specified: {group!r}")
    return group


def is_member(group):
    """True if this process is a member of the group passed to a call."""
    return group is None or isinstance(group, ProcessGroup)


def get_rank(group=None):
    """Returns this process's rank in a group, or -1 if it is not a member."""
    if not is_member(group):
        return -1
    return of(group).rank()


def get_world_size(group=None):
    """Returns the number of processes in a group, or -1 if this process is not a member."""
    if not is_member(group):
        return -1
    return of(group).size()


def get_backend(group=None):
    """Returns the name of a group's backend."""
    if not is_member(group):
        raise ValueError("Invalid process group specified")
    return Backend(of(group).backend_name)


def get_backend_config(group=None):
    """Returns the backends by device type, e.g. 'cpu:gloo,cuda:gloo'."""
    return str(of(group).config)


def get_default_backend_for_device(device):
    """Returns the default backend for tensors of a device."""
    kind = _device.device(device).type
    return Backend.default_device_backend_map.get(kind, "gloo")


def get_process_group_ranks(group):
    """Returns the global ranks of a group's members in the order of their group ranks."""
    return list(of(group).ranks)


def get_global_rank(group, group_rank):
    """Returns the global rank of a group's member."""
    if group is GroupMember.WORLD:
        return group_rank
    ranks = of(group).ranks
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return ranks[group_rank]


def get_group_rank(group, global_rank):
    """Returns the group rank of a process from its global rank."""
    if group is GroupMember.WORLD:
        return global_rank
    ranks = of(group).ranks
    if global_rank not in ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return ranks.index(global_rank)


def get_node_local_rank(fallback_rank=None):
    """Returns the rank among the processes of this machine, as set by the launcher."""
    local = environment("LOCAL_RANK")
    if local is not None:
        return int(local)
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` "
                       "to work, assuming you are not running in a multi-device context and want the code to run locally "
                       "instead.")


def get_pg_count():
    """Returns the number of groups."""
    return len(world.groups)


def _timeout_of(timeout, backend):
    if timeout is None:
        return default_pg_nccl_timeout if backend in ("nccl", "hccl") else default_pg_timeout
    if not isinstance(timeout, datetime.timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    return timeout


def _check_backend(config):
    for name in config.names():
        if name in _KNOWN:
            continue
        if name in ("ucc", "xccl", "fake", "threaded"):
            raise NotImplementedError(f"torch.distributed backend {name!r} is not supported; gloo, nccl, hccl, mccl are")
        raise ValueError(f"Invalid backend: '{name}'")


def _over_mindspore():
    """True if collectives use MindSpore's communication: always on an accelerator, on the CPU only
    on request."""
    return runtime.target() != "CPU" or os.environ.get("MINDTORCH_CPU_COMM") == "mccl"


def _engine(fabric, key, ranks, timeout, label):
    """Returns the engine that transfers a group's data."""
    if _over_mindspore():
        from mindtorch.torch.distributed._engine_native import NativeEngine

        return NativeEngine(fabric, key, ranks, timeout, label)
    return SocketEngine(fabric, key, ranks, timeout, label)


def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="",
                       pg_options=None, device_id=None, _ranks=None):
    """Joins this process to a job and creates the default group.

    Ranks and the store come from `store`, or from `init_method`: env:// (the default; variables of
    torchrun, mpirun or msrun), tcp://host:port or file:///path. With any of gloo, nccl, hccl and
    mccl the transport depends on the tensor's device: HCCL on Ascend; sockets for host tensors, and
    for npu tensors on MindSpore's CPU target, which are copied to the host and back.
    """
    if world.default_pg is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if store is not None:
        if not world_size > 0:
            raise AssertionError("world_size must be positive if using store")
        if not rank >= 0:
            raise AssertionError("rank must be non-negative if using store")
    name = backend.lower() if backend else "gloo" if runtime.target() == "CPU" else "hccl"
    config = BackendConfig(name if backend or name == "gloo" else "cpu:gloo," + ",".join([f"{d}:hccl" for d in _device.accelerator()]))
    _check_backend(config)
    name = config.get_device_backend_map().get("cpu", config.names()[0]) if ":" in name else name
    timeout = _timeout_of(timeout, name)
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        # msrun runs the script once more as a scheduler and waits for it. No scheduler is needed.
        print("init_process_group: no scheduler is needed, this process ends", file=sys.stderr)
        raise SystemExit(0)
    if store is None:
        store, rank, world_size = next(rendezvous(init_method or "env://", rank, world_size, timeout=timeout))
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not in a world of {world_size} processes")
    world.inits += 1
    inner = PrefixStore(f"mindtorch/{group_name}{world.inits}", store)
    base = store
    while isinstance(base, PrefixStore):
        base = base.underlying_store
    host = (base.host, base.port) if isinstance(base, TCPStore) else None
    previous = inner.timeout
    inner.set_timeout(timeout)
    try:
        world.fabric = Transport(inner, "address", rank, world_size, seconds(timeout), host)
        if _over_mindspore() or name == "mccl":
            # With mccl on the CPU, MindSpore's communication is initialized for code that calls it
            # directly.
            comm_native.start(inner, rank, world_size, seconds(timeout), world.fabric.host)
    finally:
        inner.set_timeout(previous)
    world.default_pg = _add(range(world_size), timeout, name, "0", "default_pg", PrefixStore("default_pg", inner), config)
    if device_id is not None:
        world.default_pg.bound_device_id = _device.device(device_id)
    at_exit("connections of process groups")(_leave)


def _add(ranks, timeout, backend, name, desc, store, config=None):
    ranks = list(ranks)
    label = f"{name} ({desc})" if desc and desc != "undefined" else name
    engine = _engine(world.fabric, name, ranks, seconds(timeout), label)
    pg = ProcessGroup(ranks, engine, backend, name, desc, store, timeout, config)
    world.groups[name] = pg
    world.count += 1
    return pg


def _leave():
    """At interpreter exit: tells the other ranks that this process has left, so that they do not
    treat it as crashed."""
    if world.fabric is not None:
        world.fabric.close()


def destroy_process_group(group=None):
    """Destroys a group. Without an argument or with the default group, destroys all groups and this
    process's connections."""
    if not is_member(group):
        return
    pg = of(group)
    if group is None or pg is world.default_pg:
        if world.fabric is not None:
            world.fabric.close()
        world.fabric = world.default_pg = None
        world.groups.clear()
        world.made.clear()
        not_at_exit(_leave)
        return
    if pg.group_name not in world.groups:
        raise ValueError("Invalid process group specified")
    del world.groups[pg.group_name]
    pg._engine.close()


def new_group(ranks=None, timeout=None, backend=None, pg_options=None, use_local_synchronization=False, group_desc=None,
              device_id=None, sort_ranks=True):
    """Creates a group of the processes with the given global ranks.

    All processes of the job must call it in the same order, including non-members (with
    `use_local_synchronization` only the members). Non-members get GroupMember.NON_GROUP_MEMBER.
    """
    default = default_group()
    everybody = default.ranks
    name = Backend(backend) if backend else default.backend_name
    config = BackendConfig(name)
    _check_backend(config)
    timeout = default.timeout if timeout is None else _timeout_of(timeout, name)
    ranks = list(everybody) if ranks is None else (sorted(ranks) if sort_ranks else list(ranks))
    if len(ranks) > len(everybody):
        raise ValueError("the new group's world size should be less or equal to the world size set by init_process_group")
    if len(set(ranks)) != len(ranks):
        raise ValueError(f"the new group's ranks are not all different: {ranks}")
    for r in ranks:
        if r < 0 or r >= len(everybody):
            raise ValueError("The new group's rank should be within the world_size set by init_process_group")
    # A name on which the members agree without communication: a hash of the ranks and a count of
    # the groups with these ranks.
    made = tuple(ranks)
    world.made[made] = world.made.get(made, 0) + 1
    digest = hashlib.sha1(repr(made).encode()).hexdigest()[:12]
    group_name = f"{digest}_{world.made[made]}"
    if world.fabric.rank not in ranks:
        world.count += 1
        return GroupMember.NON_GROUP_MEMBER
    store = PrefixStore(group_name, default.store)
    pg = _add(ranks, timeout, name, group_name, group_desc or "undefined", store, config)
    if device_id is not None:
        pg.bound_device_id = _device.device(device_id)
    return pg


def new_subgroups(group_size=None, group=None, timeout=None, backend=None, pg_options=None, group_desc=None):
    """Creates groups of `group_size` consecutive ranks and returns (this process's group, all
    groups)."""
    parent = of(group)
    size = parent.size()
    if group_size is None:
        group_size = int(environment("LOCAL_WORLD_SIZE") or size)
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if size < group_size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by 'group_size={group_size}'")
    lists = [parent.ranks[i:i + group_size] for i in range(0, size, group_size)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(ranks_per_subgroup_list, timeout=None, backend=None, pg_options=None, group_desc=None):
    """Creates groups from non-overlapping lists of global ranks and returns (this process's group,
    all groups)."""
    if ranks_per_subgroup_list is None or not len(ranks_per_subgroup_list):
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    seen, mine, all_groups = {}, None, []
    for ranks in ranks_per_subgroup_list:
        for r in ranks:
            if r in seen:
                raise ValueError(f"Rank {r} has appeared in both subgroup {seen[r]} and {ranks}")
            seen[r] = ranks
    for ranks in ranks_per_subgroup_list:
        pg = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        all_groups.append(pg)
        if world.fabric.rank in ranks:
            mine = pg
    return mine, all_groups


def split_group(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, backend=None):
    """Splits a group by lists of its ranks. Returns this process's part, or None."""
    parent = of(parent_pg)
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    mine = None
    for part in split_ranks:
        if not part:
            raise ValueError("the split group cannot be empty")
        if len(part) > parent.size():
            raise ValueError("the split group's size should be less or equal to the world_size set by init_process_group")
        if len(set(part)) != len(part):
            raise ValueError("the split group cannot have duplicate ranks")
        pg = new_group([parent.ranks[r] for r in sorted(part)], timeout, backend or parent.backend_name, pg_options,
                       group_desc=group_desc)
        if isinstance(pg, ProcessGroup):
            mine = pg
    return mine


def warn_outside(name):
    """Issues PyTorch's warning for a process that calls a collective of a group of which it is not
    a member."""
    warnings.warn(f"Running {name} on global rank {world.fabric.rank if world.fabric else os.environ.get('RANK', -1)} which "
                  "does not belong to the given group.", stacklevel=4)
