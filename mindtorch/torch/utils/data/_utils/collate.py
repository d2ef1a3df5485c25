"""Collation of samples into batches.

All of it works on NumPy memory, so that worker processes run no MindSpore op.
"""

import copy
import re
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence

import numpy as np

from mindtorch.core.device.device import cpu, get_default
from mindtorch.core.tensor.dtypes import of_np
from mindtorch.core.tensor.tensor import Tensor, wrap_array, is_tensor

np_str_obj_array_pattern = re.compile(r"[SaUO]")
default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)

# In a worker: returns shared memory for a batch of the given shape and dtype, or None if the batch
# is too small.
_allocate = None


def set_allocator(f):
    """Sets the allocator of stacked batches in workers: `f(shape, numpy dtype)` returns an array or
    None."""
    global _allocate
    _allocate = f


# ------------------------------------------------------------------ arrays
def _stack(arrays):
    """Stacks arrays of equal shape and dtype along a new first dimension; returns a tensor."""
    first = arrays[0]
    shape = (len(arrays), *first.shape)
    out = _allocate(shape, first.dtype) if _allocate is not None else None
    if out is None:
        out = np.empty(shape, first.dtype)
    if first.ndim:
        if first.size:
            np.concatenate(arrays, out=out.reshape(-1, *first.shape[1:]))
    else:
        for i, a in enumerate(arrays):
            out[i] = a
    return wrap_array(out)


def _as_tensor(a):
    """Wraps a sample's array in a tensor; copies it only where PyTorch cannot share it either."""
    dtype = of_np(a.dtype)
    if any(s < 0 for s in a.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not "
            "currently "
            "supported. (You can probably work around this by making a copy of your array with array.copy().)"
        )
    return wrap_array(a if a.flags.writeable and isinstance(a, np.ndarray) else np.array(a, dtype.np))


def _placed(t):
    """Moves a new tensor of scalars to the default device, like torch.tensor; in a worker process
    this is the CPU."""
    d = get_default()
    return t if d is cpu else t.to(d)


def _check_shapes(arrays):
    shape = arrays[0].shape
    for i, a in enumerate(arrays):
        if a.shape != shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and {list(a.shape)} "
                f"at entry {i}"
            )


def _general_stack(tensors):
    from mindtorch import torch

    return torch.stack(tensors)


def collate_tensor_fn(batch, *, collate_fn_map=None):
    """Stacks tensors of equal shape."""
    from mindtorch.core.autograd.grad_mode import mode

    if any([t._handle is not None for t in batch]):
        return _general_stack(batch)
    arrays = [t._array for t in batch]
    dtype = arrays[0].dtype
    if any(a.dtype != dtype for a in arrays) or mode.on and _allocate is None and any(t._requires_grad_ for t in batch):
        # This path promotes dtypes and records history for backward.
        return _general_stack(batch)
    _check_shapes(arrays)
    return _stack(arrays)


def collate_numpy_array_fn(batch, *, collate_fn_map=None):
    """Stacks arrays of equal shape."""
    elem = batch[0]
    if np_str_obj_array_pattern.search(elem.dtype.str) is not None:
        raise TypeError(default_collate_err_msg_format.format(elem.dtype))
    arrays = [np.asarray(a) for a in batch]
    for a in arrays:
        of_np(a.dtype)
    if any(a.dtype != arrays[0].dtype for a in arrays):
        return collate([_as_tensor(a) for a in arrays], collate_fn_map=collate_fn_map)
    _check_shapes(arrays)
    return _placed(_stack(arrays))


def collate_numpy_scalar_fn(batch, *, collate_fn_map=None):
    """Converts NumPy scalars to a 1-D tensor."""
    return _placed(_as_tensor(np.array(batch)))


def collate_float_fn(batch, *, collate_fn_map=None):
    """Converts Python floats to a 1-D float64 tensor."""
    return _placed(wrap_array(np.array(batch, np.float64)))


def collate_int_fn(batch, *, collate_fn_map=None):
    """Converts Python scalars to a 1-D tensor of the dtype of ``torch.tensor``.

    This is int64, bool, or the default float dtype for mixed types.
    """
    kinds = set(map(type, batch))
    if kinds == {bool}:
        return _placed(wrap_array(np.array(batch, np.bool_)))
    if kinds <= {int, bool}:
        try:
            numbers = wrap_array(np.array(batch, np.int64))
        except OverflowError:
            raise ValueError("Overflow when unpacking long long") from None
        return _placed(numbers)
    from mindtorch import torch

    return torch.tensor(batch)


def collate_str_fn(batch, *, collate_fn_map=None):
    """Returns strings unchanged, as a list."""
    return batch


#: Type -> function(batch, *, collate_fn_map); users may extend it.
default_collate_fn_map = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


# ------------------------------------------------------------------ containers
def _is_namedtuple(x):
    return isinstance(x, tuple) and hasattr(x, "_fields")


def _rebuild_mapping(elem, values, fallback):
    """Returns a mapping of `elem`'s type with `values`; `fallback(values)` if the class cannot be
    constructed this way."""
    try:
        if isinstance(elem, MutableMapping):
            clone = copy.copy(elem)
            clone.update(values)
            return clone
        return type(elem)(values)
    except TypeError:
        return fallback(values)


def _rebuild_sequence(elem, values):
    """Returns a sequence of `elem`'s type with `values`; a plain list if the class cannot be
    constructed this way."""
    try:
        if isinstance(elem, MutableSequence):
            clone = copy.copy(elem)
            for i, v in enumerate(values):
                clone[i] = v
            return clone
        return type(elem)(values)
    except TypeError:
        return values


def collate(batch, *, collate_fn_map=None):
    """Collates a list of samples to a batch with the functions of `collate_fn_map`, recursively
    through containers."""
    elem = batch[0]
    kind = type(elem)
    if collate_fn_map is not None:
        found = collate_fn_map.get(kind)
        if found is None:
            found = next((f for t, f in collate_fn_map.items() if isinstance(elem, t)), None)
        if found is not None:
            return found(batch, collate_fn_map=collate_fn_map)
    if isinstance(elem, Mapping):
        return _rebuild_mapping(
            elem, {k: collate([d[k] for d in batch], collate_fn_map=collate_fn_map) for k in elem}, dict
        )
    if _is_namedtuple(elem):
        return kind(*[collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)])
    if isinstance(elem, Sequence):
        samples = list(batch)
        if any(len(s) != len(elem) for s in samples):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*samples)]
        return columns if isinstance(elem, tuple) else _rebuild_sequence(elem, columns)
    raise TypeError(default_collate_err_msg_format.format(kind))


def default_collate(batch):
    """Collates samples: stacks tensors, arrays and scalars, lists strings, and batches containers
    element by element."""
    return collate(batch, collate_fn_map=default_collate_fn_map)


def default_convert(data):
    """Converts arrays and NumPy scalars in a sample to tensors; other values are unchanged (tuples
    become lists)."""
    if is_tensor(data):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        a = np.asarray(data)
        return data if np_str_obj_array_pattern.search(a.dtype.str) else _as_tensor(a)
    if isinstance(data, Mapping):
        return _rebuild_mapping(data, {k: default_convert(v) for k, v in data.items()}, dict)
    if _is_namedtuple(data):
        return type(data)(*[default_convert(d) for d in data])
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _rebuild_sequence(data, [default_convert(d) for d in data])
    return data


__all__ = ["default_collate", "default_convert", "collate", "default_collate_fn_map", "set_allocator"]
