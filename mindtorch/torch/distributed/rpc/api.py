"""torch.distributed.rpc.api: names that can be imported and raise NotImplementedError when used."""
import functools

from mindtorch.torch._refusing import refuse


def _require_initialized(func):
    """Decorator: the function raises NotImplementedError, because there is no RPC agent."""
    @functools.wraps(func)
    def refusing(*args, **kwargs):
        raise NotImplementedError(f"{func.__name__} is not supported: torch.distributed.rpc.is_available() is False")
    return refusing


refuse(globals(), "torch.distributed.rpc.is_available() is False", "_wait_all")
