"""Sizes, strides and memory: what views, shapes and creation share."""
from operator import index

import numpy as np

from mindtorch.backend.cpu.copies import copy_c
from mindtorch.backend.cpu.host import address
from mindtorch.core.foreign import type_name
from mindtorch.core import layout
from mindtorch.core.layout import STRIDED, contiguous_strides, memory_order, strides_of as torch_strides  # noqa: F401
from mindtorch.core.tensor import Tensor

_ndarray = np.ndarray


# ------------------------------------------------------------------ arguments
def size_of(name, args, arg="size"):
    """Tuple of ints out of f(2, 3), f((2, 3)), f([2, 3]), f(Size), f(tensor, numpy int): however sizes are given."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    for n in args:
        if n.__class__ is not int:
            return tuple([int_of(name, n, arg, i) for i, n in enumerate(args)])
    return args if args.__class__ is tuple else tuple(args)


def int_of(name, n, arg="size", pos=None):
    """An int out of an int, a NumPy int or a one-element integer tensor; TypeError for anything else."""
    if n.__class__ is int:
        return n
    if n.__class__ is not bool:
        if isinstance(n, Tensor):
            a = n._a
            if a.size == 1 and a.dtype.kind in "iu":
                return int(a.reshape(()))
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
    """Tuple of ints out of an int or a sequence of them."""
    if isinstance(x, (tuple, list)):
        return size_of(name, (x,), arg)
    return (int_of(name, x, arg),)


def count(size):
    n = 1
    for s in size:
        n *= s
    return n


def infer_size(shape, numel):
    """The shape with its -1 filled in; RuntimeError if it cannot hold `numel` elements."""
    unknown, known = None, 1
    for i, n in enumerate(shape):
        if n == -1:
            if unknown is not None:
                raise RuntimeError("only one dimension can be inferred")
            unknown = i
        elif n < 0:
            raise RuntimeError(f"invalid shape dimension {n} at index {i} of shape {list(shape)}")
        else:
            known *= n
    if unknown is None:
        if known == numel:
            return shape
    elif known and numel % known == 0:
        return (*shape[:unknown], numel // known, *shape[unknown + 1:])
    elif not known and not numel:
        raise RuntimeError(f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified "
                           "dimension size "
                           "-1 can be any value and is ambiguous")
    raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")


def check_nonnegative(size):
    """RuntimeError for a negative extent of a new tensor."""
    for n in size:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(size)}")


def format_name(memory_format):
    """"preserve", "contiguous", "channels_last" or "channels_last_3d", out of torch's memory_format objects (None: preserve)."""
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


# ------------------------------------------------------------------ memory
def root(a):
    """The array that owns the memory `a` lies in (its storage)."""
    while a.base.__class__ is _ndarray:
        a = a.base
    return a


def flat_bytes(r):
    """A storage's memory as one row of bytes, sharing it."""
    if not r.flags.c_contiguous:
        r = r.transpose(sorted(range(r.ndim), key=lambda i: -r.strides[i]))
        if not r.flags.c_contiguous:
            raise NotImplementedError("as_strided: this tensor's memory came from an array with gaps, and has no "
                                      "storage of its own "
                                      "on device cpu; clone() it first")
    return r.reshape(-1).view(np.uint8)


def offset_of(a):
    """Bytes from the start of the storage to `a`'s first element."""
    return address(a) - address(flat_bytes(root(a))) if a.size else 0


def on_storage(a, shape, strides, offset, dtype=None):
    """Array of any shape, strides and offset (in bytes) on the storage that `a` lies in."""
    dtype = dtype or a.dtype
    r = flat_bytes(root(a))
    return np.empty(shape, dtype) if 0 in shape or not r.size else _ndarray(shape, dtype, r, offset, strides)


def strided(a, shape, strides, offset=0):
    """View of the memory `a` lies in: strides in bytes, offset in bytes from `a`'s first element.

    `np.lib.stride_tricks.as_strided` takes 2 us and hides the owner of the memory; this takes 0.2 us where `a` is contiguous
    and holds all of the view.
    """
    if a.flags.c_contiguous and a.size:
        try:
            return _ndarray(shape, a.dtype, a, offset, strides)
        except (ValueError, TypeError):
            pass        # reaches beyond `a` itself: look at the whole storage
    return on_storage(a, shape, strides, offset_of(a) + offset)


def empty_as(a, shape=None, dtype=None, fmt="preserve"):
    """Uninitialised array in the memory order of `a` (torch's empty_like), in C order or with the channels last."""
    if shape is None:
        shape = a.shape
    if dtype is None:
        dtype = a.dtype
    if fmt == "preserve":
        if a.flags.c_contiguous and not STRIDED.odd:
            return np.empty(shape, dtype)
        return layout.empty(shape, dtype, layout.like_strides(shape, torch_strides(a)))
    if fmt == "contiguous":
        return np.empty(shape, dtype)
    check_rank(shape, fmt)
    return layout.empty(shape, dtype, layout.format_strides(tuple(shape), fmt))


def check_rank(shape, fmt):
    """RuntimeError if a tensor of this shape cannot be in the memory format."""
    if fmt in layout.LAST and len(shape) != len(layout.LAST[fmt]):
        raise RuntimeError(f"required rank {len(layout.LAST[fmt])} tensor to use {fmt} format")


def copy_as(a, fmt="preserve"):
    """Copy of an array in a memory format."""
    if fmt == "contiguous" or fmt == "preserve" and a.flags.c_contiguous and not STRIDED.odd:
        return copy_c(a)
    r = empty_as(a, fmt=fmt)
    r[...] = a
    return r


def is_format(a, fmt):
    """True if the array is laid out in that memory format already."""
    if fmt in ("preserve", "contiguous"):
        return a.flags.c_contiguous
    order = layout.LAST[fmt]
    return a.ndim == len(order) and a.transpose(order).flags.c_contiguous


