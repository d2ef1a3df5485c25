"""Parsing of sizes, strides and memory formats, shared by views, shape ops and creation ops."""
from operator import index

from mindtorch.backend.strides import check_rank, contiguous_strides, infer_size  # noqa: F401
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.core.tensor.sync import to_host


# ------------------------------------------------------------------ arguments
def size_of(name, args, arg="size"):
    """Returns a tuple of ints for sizes passed as f(2, 3), f((2, 3)), f([2, 3]), f(Size) or
    f(tensor, numpy int)."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    for n in args:
        if n.__class__ is not int:
            return tuple([int_of(name, n, arg, i) for i, n in enumerate(args)])
    return args if args.__class__ is tuple else tuple(args)


def int_of(name, n, arg="size", pos=None):
    """Returns an int for an int, a NumPy int or a one-element integer tensor. TypeError for
    anything else."""
    if n.__class__ is int:
        return n
    if n.__class__ is not bool:
        if n.__class__ is Tensor or is_tensor(n):
            if n._numel == 1 and (n._np_dtype.kind in "iu" or n._np_dtype.kind == "b" and arg not in ("size", "shape", "stride", "repeats")):
                return int(to_host(n).reshape(()))
        else:
            try:
                return index(n)
            except TypeError:
                pass
    if pos is None:
        raise TypeError(f"{name}(): argument '{arg}' must be int, not {type_name(n)}")
    raise TypeError(f"{name}(): argument '{arg}' must be tuple of ints, but found element of type {type_name(n)} "
                    f"at pos {pos}")


def ints_of(name, x, arg):
    """Returns a tuple of ints for an int or a sequence of ints."""
    if isinstance(x, (tuple, list)):
        return size_of(name, (x,), arg)
    return (int_of(name, x, arg),)


def count(size):
    n = 1
    for s in size:
        n *= s
    return n


def check_nonnegative(size):
    """Raises RuntimeError for a negative size of a new tensor."""
    for n in size:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(size)}")


def format_name(memory_format):
    """Converts PyTorch's memory_format objects to "preserve", "contiguous", "channels_last" or
    "channels_last_3d". None means "preserve"."""
    if memory_format is None:
        return "preserve"
    text = repr(memory_format)
    if text.startswith("torch."):
        text = text[6:]
        if text in ("preserve_format", "contiguous_format"):
            return text[:-7]
        if text in ("channels_last", "channels_last_3d"):
            return text
    raise TypeError(f"argument 'memory_format' must be torch.memory_format, not {type_name(memory_format)}")
