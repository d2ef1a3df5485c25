"""torch.distributed.rpc.api: names that refuse when they are used."""
import functools

from mindtorch.torch._refusing import refuse


def _require_initialized(func):
    """Decorator: the function refuses, as no RPC agent can be there."""
    @functools.wraps(func)
    def refusing(*args, **kwargs):
        raise NotImplementedError(f"{func.__name__} is not supported: torch.distributed.rpc.is_available() is False")
    return refusing


refuse(globals(), "one process runs the program, torch.distributed.is_available() is False", "_wait_all")
