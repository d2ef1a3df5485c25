"""torch.utils._python_dispatch: modes that intercept ops, and helpers for tensor subclasses with
__torch_dispatch__.

The ops are those of torch/_dispatch_protocol.py, which describes the differences from PyTorch.
"""
import contextlib
from typing import Protocol, runtime_checkable

from mindtorch.core.tensor import inplace
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.torch import _aten_calls, _dispatch_protocol as _protocol
from mindtorch.torch._function_protocol import StackedMode
from mindtorch.torch.utils._pytree import tree_flatten

__all__ = ["TorchDispatchMode", "BaseTorchDispatchMode", "TensorWithFlatten", "is_traceable_wrapper_subclass", "is_traceable_wrapper_subclass_type",
           "return_and_correct_aliasing", "transform_subclass"]


class TorchDispatchMode(StackedMode):
    """Context manager whose __torch_dispatch__(func, types, args, kwargs) intercepts every op in
    the block, including backward.

    `func` is an overload of torch.ops.aten; `types` are the classes of the operands with
    __torch_dispatch__. Inside the handler the mode is off and nothing is recorded for backward.
    func(*args, **kwargs) continues with the next mode. A subclass may be entered several times.
    """

    _protocol = _protocol

    def __init__(self, _dispatch_key=None):
        pass

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError

    @classmethod
    def is_infra_mode(cls):
        return False


class BaseTorchDispatchMode(TorchDispatchMode):
    """Mode that calls the op unchanged."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode():
    """Returns the innermost active mode; None if there is none."""
    modes = _protocol.state.modes
    return modes[-1] if modes else None


def _get_current_dispatch_mode_stack():
    """Returns the active modes, innermost last."""
    return list(_protocol.state.modes)


def is_in_torch_dispatch_mode(include_infra_modes=True):
    """True if a mode is active."""
    return bool(_protocol.state.modes)


@contextlib.contextmanager
def _disable_current_modes():
    """Context manager that disables all modes; returns the modes that were active."""
    before = _protocol.state.modes
    _protocol.state.modes = ()
    try:
        yield list(before)
    finally:
        _protocol.state.modes = before


@contextlib.contextmanager
def _pop_mode_temporarily(k=None):
    """Context manager that disables the innermost mode; returns that mode."""
    before = _protocol.state.modes
    _protocol.state.modes = before[:-1]
    try:
        yield before[-1]
    finally:
        _protocol.state.modes = before


@runtime_checkable
class TensorWithFlatten(Protocol):
    """Protocol of a tensor subclass that can be flattened to tensors and unflattened again."""

    def __tensor_flatten__(self):
        """Returns (names of the tensor attributes, all other state)."""

    @staticmethod
    def __tensor_unflatten__(inner_tensors, flatten_spec, outer_size, outer_stride):
        """Rebuilds the tensor from `inner_tensors`, keyed by name, and the other state."""


def is_traceable_wrapper_subclass(t):
    """True for a tensor subclass that implements flatten and unflatten."""
    return is_tensor(t) and type(t) is not Tensor and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def is_traceable_wrapper_subclass_type(t):
    """Like `is_traceable_wrapper_subclass`, for a class."""
    return isinstance(t, type) and issubclass(t, Tensor) and t is not Tensor and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def transform_subclass(t, callback, outer_size=None, outer_stride=None):
    """Returns a subclass instance like t whose inner tensors are callback(name, tensor)."""
    names, context = t.__tensor_flatten__()
    inner = {name: callback(name, getattr(t, name)) for name in names}
    size = t.size() if outer_size is None else outer_size
    stride = t.stride() if outer_stride is None else outer_stride
    made = type(t).__tensor_unflatten__(inner, context, size, stride)
    if made.shape != size:
        raise AssertionError(f"Expected return value from {type(t)}__tensor_unflatten__() to have shape equal to {tuple(size)}, but got: {tuple(made.shape)}")
    if made.stride() != tuple(stride):
        raise AssertionError(f"Expected return value from {type(t)}__tensor_unflatten__() to have strides equal to {tuple(stride)}, but got: {made.stride()}")
    return made


def return_and_correct_aliasing(func, args, kwargs, out):
    """Returns the value that a subclass's __torch_dispatch__ has to return for the result `out` of
    its inner tensors.

    An in-place op returns the modified operand, and an op with out= returns that tensor. A view op
    returns `out` with the version counter of the base.
    """
    name, kwargs = func._overloadpacket._name, kwargs or {}
    view = func.prim.view if isinstance(func, _aten_calls.Primitive) else name in _aten_calls.VIEWS
    if kwargs.get("out") is not None and name[-1] != "_":
        return kwargs["out"]
    if name[-1:] == "_" and name[-2:] != "__" and args and is_tensor(args[0]):
        return args[0]
    if view and args and is_tensor(args[0]):
        counter = inplace.version_counter(args[0])
        for t in tree_flatten(out)[0]:
            if is_tensor(t) and t is not args[0]:
                t._version_counter = counter
    return out

