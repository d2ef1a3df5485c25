"""Names of mindtorch 0.4 in `mindtorch.torch.tensor`: conversions between mindtorch tensors and
MindSpore's.

`torch.tensor` has to remain a function. So this module replaces itself in sys.modules by the
function, and sets its names as attributes of the function.
"""
import sys

from mindtorch.backend.mindspore.private import MSTensor
from mindtorch.core.device import device_dispatch
from mindtorch.core.tensor.tensor import Tensor, adopt, from_array
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
    """Converts MindSpore tensors (also nested in tuples, lists and dicts) to mindtorch tensors
    without copying."""
    return _map(x, adopt)


def _native(t):
    if Tensor not in type(t).__mro__:
        return t
    if t._handle is None:
        return from_array(t._array)
    r = device_dispatch.DEVICES[t._device.type].from_mindspore(t._handle)
    r._home = t._device  # MindSpore's tensors have no device attribute
    return r


def cast_to_ms_tensor(x):
    """Converts mindtorch tensors (also nested) to plain `mindspore.Tensor` without copying and
    without PyTorch-style autograd."""
    return _map(x, _native)


tensor.Tensor, tensor.tensor = Tensor, tensor
tensor.cast_to_adapter_tensor, tensor.cast_to_ms_tensor = cast_to_adapter_tensor, cast_to_ms_tensor
tensor.__spec__ = __spec__
sys.modules[__name__] = tensor
