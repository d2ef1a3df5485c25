"""Communication hooks for looking into DistributedDataParallel."""
from mindtorch.torch.futures import Future

__all__ = ["noop_hook"]


def noop_hook(_, bucket):
    """No communication: every process keeps its own gradients (to measure what communication costs)."""
    future = Future()
    future.set_result(bucket.buffer())
    return future
