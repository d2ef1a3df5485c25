"""Tensors and functions of real PyTorch, where that is loaded beside: what messages call them.

Neither library's functions take the other's tensors.  Both classes are called Tensor, so that a message has to say whose.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


_ADVICE = "PyTorch's functions take PyTorch's tensors only, and mindtorch's take mindtorch's."


def is_foreign(x: object) -> bool:
    """Whether `x` is a tensor of real PyTorch, or of a subclass of its Tensor."""
    return hasattr(type(x), "__torch_function__") and is_foreign_class(type(x))


def is_foreign_class(cls: type) -> bool:
    """Whether a class is real PyTorch's Tensor or a subclass of it."""
    for c in cls.__mro__:
        if c.__name__ == "TensorBase" and c.__module__ == "torch._C":
            return True
    return False


def type_name(x: object) -> str:
    """Name of an argument's type, for a message that says what was wanted instead."""
    if is_foreign(x):
        return f"{type(x).__name__} of PyTorch: {_ADVICE} mindtorch.torch.tensor(t) converts one"
    if type(x).__module__.partition(".")[0] == "torch":
        return f"{type(x).__name__} of PyTorch (mindtorch has its own)"
    return type(x).__name__


def refuse(args: Iterable[object]) -> None:
    """TypeError if a tensor of PyTorch is among the arguments (also in lists and tuples)."""
    for x in args:
        if isinstance(x, (list, tuple)):
            refuse(x)
        elif is_foreign(x):
            raise TypeError(f"mindtorch's function was called with a {type_name(x)}")


def refusal(func: Callable[..., Any]) -> str:
    """What to say of a function of another library that was given a tensor of this one."""
    owner = getattr(func, "__objclass__", None) or getattr(func, "__self__", None) or func
    module = getattr(func, "__module__", None) or getattr(owner, "__module__", None) or type(owner).__module__
    library = module.partition(".")[0]
    return (f"{getattr(func, '__name__', func)}() of {'PyTorch' if library == 'torch' else library} was called with a mindtorch.torch.Tensor: "
            f"{_ADVICE} PyTorch's torch.tensor(t.detach()) converts one, or call the function of mindtorch.torch")
