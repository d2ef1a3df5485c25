"""torch._C._nn: what torch.nn.functional is built on, which here is the same functions."""
from mindtorch.torch.nn import functional as _functional
from mindtorch.torch.nn.modules._to import parse_to as _parse


def _parse_to(*args, **kwargs):
    """(device, dtype, non_blocking, memory_format) out of the arguments of to()."""
    return _parse(args, kwargs)


def __getattr__(name):
    return getattr(_functional, name)
