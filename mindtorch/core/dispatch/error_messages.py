"""Error messages about real PyTorch's tensors, for processes that import both libraries.

Neither library's functions accept the other's tensors. Both classes are called Tensor, so a message
has to name the library.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


_ADVICE = "PyTorch's functions take PyTorch's tensors only, and mindtorch's take mindtorch's."


def is_pytorch_tensor(x: object) -> bool:
    """True if `x` is a tensor of real PyTorch, or of a subclass of its Tensor."""
    return hasattr(type(x), "__torch_function__") and is_pytorch_tensor_class(type(x))


def is_pytorch_tensor_class(cls: type) -> bool:
    """True if a class is real PyTorch's Tensor or a subclass of it."""
    for c in cls.__mro__:
        if c.__name__ == "TensorBase" and c.__module__ == "torch._C":
            return True
    return False


def type_name(x: object) -> str:
    """Returns the name of an argument's type, for an error message about the expected type."""
    if is_pytorch_tensor(x):
        return f"{type(x).__name__} of PyTorch: {_ADVICE} mindtorch.torch.tensor(t) converts one"
    if type(x).__module__.partition(".")[0] == "torch":
        return f"{type(x).__name__} of PyTorch (mindtorch has its own)"
    return type(x).__name__


def refuse(args: Iterable[object]) -> None:
    """Raises TypeError if a PyTorch tensor is among the arguments (also in lists and tuples)."""
    for x in args:
        if isinstance(x, (list, tuple)):
            refuse(x)
        elif is_pytorch_tensor(x):
            raise TypeError(f"mindtorch's function was called with a {type_name(x)}")


def refusal(func: Callable[..., Any]) -> str:
    """Returns the error for another library's function that received a mindtorch tensor."""
    owner = getattr(func, "__objclass__", None) or getattr(func, "__self__", None) or func
    module = getattr(func, "__module__", None) or getattr(owner, "__module__", None) or type(owner).__module__
    library = module.partition(".")[0]
    return (f"{getattr(func, '__name__', func)}() of {'PyTorch' if library == 'torch' else library} was called with a mindtorch.torch.Tensor: "
            f"{_ADVICE} PyTorch's torch.tensor(t.detach()) converts one, or call the function of mindtorch.torch")
