"""Checks that raise with a message: torch._assert, torch._check and similar functions."""
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch._function_protocol import overrides as _overrides
from mindtorch.torch.cuda.streams import Event, Stream  # noqa: F401
from mindtorch.torch._refusing import refuse

#: how torch.compile handles the functions of this module (see
#: `mindtorch/torch/_dynamo/_capture.py`)
CAPTURE = "followed"


def _assert(condition, message):
    """Raises AssertionError(message) unless the condition holds."""
    if type(condition) is not bool and _overrides(condition):
        from mindtorch.torch import overrides
        return overrides.handle_torch_function(_assert, (condition,), condition, message)
    if not condition:
        raise AssertionError(message)


_assert.__module__ = "mindtorch.torch"


def _assert_async(input, assert_msg=None):
    """Raises RuntimeError if a one-element tensor is zero."""
    if not input.is_nonzero():
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _raise(kind, cond, message):
    if not isinstance(cond, bool):
        if is_tensor(cond):
            raise TypeError("cond must be a bool, but got a Tensor: torch._check_tensor_all() is for tensors")
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        text = "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an enhancement "\
               "request to PyTorch.)"
    elif not callable(message):
        raise TypeError("message must be a callable")
    else:
        text = str(message())
    raise kind(text)


def _check(cond, message=None):
    """Raises RuntimeError(message()) unless cond is True."""
    _raise(RuntimeError, cond, message)


def _check_is_size(i, message=None, *, max=None):
    """Raises RuntimeError unless 0 <= i <= max."""
    _raise(RuntimeError, i >= 0 and (max is None or i <= max), message)


def _check_index(cond, message=None):
    """Raises IndexError(message()) unless cond is True."""
    _raise(IndexError, cond, message)


def _check_value(cond, message=None):
    """Raises ValueError(message()) unless cond is True."""
    _raise(ValueError, cond, message)


def _check_type(cond, message=None):
    """Raises TypeError(message()) unless cond is True."""
    _raise(TypeError, cond, message)


def _check_not_implemented(cond, message=None):
    """Raises NotImplementedError(message()) unless cond is True."""
    _raise(NotImplementedError, cond, message)


def _check_with(error_type, cond, message):
    """Raises error_type(message()) unless cond is True."""
    if not issubclass(error_type, Exception) or issubclass(error_type, Warning):
        raise AssertionError(f"error_type must be a subclass of Exception but not Warning, got {error_type}")
    _raise(error_type, cond, message)


def _check_tensor_all_with(error_type, cond, message=None):
    """Raises error_type(message()) unless all elements of a bool tensor are True."""
    if not is_tensor(cond):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond._np_dtype.kind != "b":
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, bool(cond.all()), message)


def _check_tensor_all(cond, message=None):
    """Raises RuntimeError(message()) unless all elements of a bool tensor are True."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _shape_as_tensor(self):
    """Returns the shape as an int64 tensor on the cpu."""
    from mindtorch.torch import tensor
    return tensor(list(self.shape), device="cpu")


refuse(globals(), "there is no native torch module", "", "ScriptModule PyTorchFileReader PyTorchFileWriter TensorType")
