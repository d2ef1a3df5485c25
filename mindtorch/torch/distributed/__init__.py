"""torch.distributed: collectives between the processes of a job."""
import sys

from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed import constants, distributed_c10d, rendezvous as _rendezvous  # noqa: F401
from mindtorch.torch.distributed._grad_bucket import BuiltinCommHookType, GradBucket  # noqa: F401
from mindtorch.torch.distributed.distributed_c10d import *  # noqa: F401,F403
from mindtorch.torch.distributed.distributed_c10d import (_all_gather_base, _coalescing_manager, _CoalescingManager,  # noqa: F401
                                                          _get_process_group_name, _make_nccl_premul_sum, _rank_not_in_group,
                                                          _reduce_scatter_base)
from mindtorch.torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: F401
from mindtorch.torch.distributed.rendezvous import register_rendezvous_handler, rendezvous  # noqa: F401


def is_available():
    """Returns True."""
    return True


def breakpoint(rank=0, skip=0, timeout_s=3600):
    """Runs pdb on one rank while the others wait."""
    import datetime
    import pdb

    if get_rank() == rank:  # noqa: F405
        pdb.Pdb().set_trace(sys._getframe().f_back)
    timeout = datetime.timedelta(seconds=timeout_s)
    barrier(timeout=timeout)  # noqa: F405


refuse(globals(), "MindSpore's communication has no equivalent", "", "ProcessGroupNCCL")
