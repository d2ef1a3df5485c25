"""torch.distributed: there is one process; what needs more refuses when it is used."""
import enum
import os

from mindtorch.torch._refusing import refuse


def is_available():
    """False: collectives between processes are not offered."""
    return False


def is_initialized():
    """False."""
    return False


is_nccl_available = is_gloo_available = is_mpi_available = is_ucc_available = is_xccl_available = is_available
def is_backend_available(backend):
    """False."""
    return False


def is_torchelastic_launched():
    """True under torchrun, which sets TORCHELASTIC_RUN_ID."""
    return "TORCHELASTIC_RUN_ID" in os.environ


class ReduceOp(enum.IntEnum):
    """Reductions of a collective."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


reduce_op = ReduceOp


class group:
    """The default group: None, as no group is there."""

    WORLD = None


class GroupMember:
    """Markers of groups that a process is in or not in."""

    WORLD = None
    NON_GROUP_MEMBER = -100


class Backend(str):
    """Name of a backend."""

    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl"


class DistError(RuntimeError):
    """An error of a collective."""


DistBackendError = DistNetworkError = DistStoreError = DistError

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "init_process_group destroy_process_group get_rank get_world_size get_backend get_backend_config get_process_group_ranks "
       "get_global_rank get_group_rank get_node_local_rank get_default_backend_for_device new_group new_subgroups "
       "new_subgroups_by_enumeration split_group barrier monitored_barrier broadcast broadcast_object_list send_object_list "
       "recv_object_list all_reduce all_reduce_coalesced all_gather all_gather_object all_gather_into_tensor all_gather_coalesced "
       "all_to_all all_to_all_single gather gather_object scatter scatter_object_list reduce reduce_scatter reduce_scatter_tensor "
       "send recv isend irecv batch_isend_irecv init_device_mesh supports_complex breakpoint get_debug_level",
       "ProcessGroup ProcessGroupGloo ProcessGroupNCCL Work Store TCPStore FileStore HashStore PrefixStore P2POp DeviceMesh")
