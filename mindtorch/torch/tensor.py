"""What mindtorch 0.4 has under `mindtorch.torch.tensor`: conversions between facade tensors and MindSpore's own.

`torch.tensor` is a function.  That it stays, its module does not take its place: the function has what is looked for here.
"""
import sys

from mindtorch.backend.mindspore.private import MSTensor
from mindtorch.core import devices
from mindtorch.core.tensor import Tensor, adopt, from_array
from mindtorch.torch import tensor


def _map(x, fn):
    if isinstance(x, MSTensor):
        return fn(x)
    if isinstance(x, dict):
        return type(x)((k, _map(v, fn)) for k, v in x.items())
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_map(v, fn) for v in x))
    if isinstance(x, (list, tuple)):
        return type(x)(_map(v, fn) for v in x)
    return x


def cast_to_adapter_tensor(x):
    """MindSpore tensors (also nested in tuples, lists and dicts) as facade tensors on the same memory."""
    return _map(x, adopt)


def _native(t):
    if Tensor not in type(t).__mro__:
        return t
    if t._h is None:
        return from_array(t._a)
    r = devices.DEVICES[t._dev.type].taken(t._h)
    r._home = t._dev            # (MindSpore's tensors have no device of their own)
    return r


def cast_to_ms_tensor(x):
    """Facade tensors (also nested) as plain `mindspore.Tensor` on the same memory, outside of torch-style autograd."""
    return _map(x, _native)


tensor.Tensor, tensor.tensor = Tensor, tensor
tensor.cast_to_adapter_tensor, tensor.cast_to_ms_tensor = cast_to_adapter_tensor, cast_to_ms_tensor
tensor.__spec__ = __spec__
sys.modules[__name__] = tensor
