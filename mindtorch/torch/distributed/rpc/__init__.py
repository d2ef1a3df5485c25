"""torch.distributed.rpc: names that can be imported and raise NotImplementedError when used."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.rpc import api  # noqa: F401


def is_available():
    """Returns False."""
    return False


refuse(globals(), "torch.distributed.rpc.is_available() is False",
       "init_rpc shutdown rpc_sync rpc_async remote get_worker_info", "RRef TensorPipeRpcBackendOptions WorkerInfo")
