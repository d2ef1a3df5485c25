"""torch.distributed.rpc: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.rpc import api  # noqa: F401


def is_available():
    """False."""
    return False


refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "init_rpc shutdown rpc_sync rpc_async remote get_worker_info", "RRef TensorPipeRpcBackendOptions WorkerInfo")
