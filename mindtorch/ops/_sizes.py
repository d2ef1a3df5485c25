"""Sizes, strides and memory: what views, shapes and creation share."""
from operator import index

import numpy as np

from mindtorch.backend.copies import copy_c
from mindtorch.backend.host import address
from mindtorch.core.foreign import type_name
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


def torch_strides(a):
    """Strides in elements as torch gives them (NumPy leaves those of one-element and empty dimensions undefined)."""
    if a.flags.c_contiguous:
        return contiguous_strides(a.shape)
    return tuple(s // a.itemsize for s in a.strides)


def contiguous_strides(shape):
    out, n = [], 1
    for s in reversed(shape):
        out.append(n)
        n *= s or 1
    return tuple(reversed(out))


def memory_order(shape, strides):
    """Dimensions from the innermost outwards as torch's loops order a result's, given the operands' strides.

    An insertion sort by the first operand that tells two dimensions apart; a stride of 0 tells nothing.
    """
    perm = list(range(len(shape)))[::-1]
    for i in range(1, len(perm)):
        one = i
        for zero in range(i - 1, -1, -1):
            swap = _should_swap(perm[zero], perm[one], shape, strides)
            if swap > 0:
                perm[zero], perm[one] = perm[one], perm[zero]
                one = zero
            elif swap < 0:
                break
    return perm


def _should_swap(d0, d1, shape, strides):
    for st in strides:
        s0, s1 = st[d0], st[d1]
        if s0 == 0 or s1 == 0:
            continue
        if s0 != s1:
            return -1 if s0 < s1 else 1
        if shape[d0] > shape[d1]:
            return 1
    return 0


def empty_in_order(shape, dtype, perm):
    """Uninitialised array whose dimensions lie in memory in the order `perm`, innermost first."""
    if perm == list(range(len(shape)))[::-1]:
        return np.empty(shape, dtype)
    outer = perm[::-1]
    return np.empty([shape[i] for i in outer], dtype).transpose(sorted(range(len(outer)), key=outer.__getitem__))


_LAST = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}
_BACK = {"channels_last": (0, 3, 1, 2), "channels_last_3d": (0, 4, 1, 2, 3)}


def empty_as(a, shape=None, dtype=None, fmt="preserve"):
    """Uninitialised array in the memory order of `a` (torch's empty_like), in C order or with the channels last."""
    if shape is None:
        shape = a.shape
    if dtype is None:
        dtype = a.dtype
    if fmt == "preserve":
        if a.flags.c_contiguous:
            return np.empty(shape, dtype)
        return empty_in_order(shape, dtype, memory_order(shape, (a.strides,)))
    if fmt == "contiguous":
        return np.empty(shape, dtype)
    order = _LAST[fmt]
    if len(shape) != len(order):
        raise RuntimeError(f"required rank {len(order)} tensor to use {fmt} format")
    return np.empty([shape[i] for i in order], dtype).transpose(_BACK[fmt])


def copy_as(a, fmt="preserve"):
    """Copy of an array in a memory format."""
    if fmt == "contiguous" or a.flags.c_contiguous and fmt == "preserve":
        return copy_c(a)
    r = empty_as(a, fmt=fmt)
    r[...] = a
    return r


def is_format(a, fmt):
    """True if the array is laid out in that memory format already."""
    if fmt in ("preserve", "contiguous"):
        return a.flags.c_contiguous
    order = _LAST[fmt]
    return a.ndim == len(order) and a.transpose(order).flags.c_contiguous


