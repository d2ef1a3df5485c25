"""Host arrays from user data: scalars, nested sequences, arrays, buffers, other libraries' tensors.

Only this module depends on the types of such data. `tensor_from` in core/tensor/sync.py creates tensors
from the arrays.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from mindtorch.backend.cpu import dlpack
from mindtorch.backend.cpu.basic import cast_array
from mindtorch.backend.cpu.creation import convert, to_ints
from mindtorch.backend.cpu.half import upcast
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.interface import Array, NpDtype
from mindtorch.core.tensor import dtypes, tensor as _tensor
from mindtorch.core.device.device_dispatch import to_host
from mindtorch.core.tensor.dtypes import C128, F32, F64, I64, bfloat16_np, of_np
from mindtorch.core.dispatch.error_messages import is_pytorch_tensor
from mindtorch.core.dispatch.type_promotion import number_dtype, promote_types
from mindtorch.core.tensor.tensor import Tensor, adopt, wrap_array, is_tensor


#: The storage classes, which the facade defines and registers here.
STORAGES: set[type] = set()


# ------------------------------------------------------------------ scalars and nested sequences
_PLAIN = frozenset((int, float, bool, complex))


def _leaf_types(data, types):
    found = set(map(type, data))
    if list in found or tuple in found:
        for x in data:
            c = x.__class__
            if c is list or c is tuple:
                _leaf_types(x, types)
            else:
                types.add(c)
    else:
        types |= found
    return types


def is_sequence(x: object) -> bool:
    if isinstance(x, (Tensor, str, bytes)) or isinstance(x, np.ndarray) and not x.ndim or is_pytorch_tensor(x):
        return False
    return isinstance(x, (list, tuple, np.ndarray)) or hasattr(x, "__len__") and hasattr(x, "__getitem__") and not isinstance(x, dict)


def _extent(data):
    """Returns the shape given by the first elements of nested sequences, and the first leaf."""
    shape = []
    while is_sequence(data):
        n = len(data)
        shape.append(n)
        if len(shape) > 64:
            raise ValueError("too many dimensions in a nested sequence")
        if not n:
            break
        try:
            data = data[0]
        except Exception:
            raise ValueError(f"could not determine the shape of object type '{type(data).__name__}'") from None
    return shape, data


def _leaves(data, shape, dim, out):
    """Appends all elements of nested sequences to `out` in order; ValueError if they are ragged."""
    if dim == len(shape):
        if is_sequence(data):
            raise TypeError(f"'{type(data).__name__}' object cannot be interpreted as an integer")
        out.append(data)
        return
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if not is_sequence(data):
        raise TypeError("not a sequence")
    if len(data) != shape[dim]:
        raise ValueError(f"expected sequence of length {shape[dim]} at dim {dim} (got {len(data)})")
    for x in data:
        _leaves(x, shape, dim + 1, out)


def _leaf(x):
    """Returns (value, NumPy dtype) of one element of a nested sequence."""
    if is_tensor(x):
        if x._numel != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        a = to_host(x)
        return (upcast(a) if a.dtype == bfloat16_np else a).reshape(()).item(), a.dtype
    if is_pytorch_tensor(x):
        return _leaf(wrap_array(array_of_pytorch(x)))
    # an ndarray here is 0-dim, because other arrays count as sequences
    if isinstance(x, (np.generic, np.ndarray)):
        of_np(x.dtype)
        return x.item(), x.dtype
    if isinstance(x, (bool, int, float, complex)):
        return x, number_dtype(x)
    if isinstance(x, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(x).__name__}'")
    if hasattr(x, "__index__") or hasattr(x, "__int__") and not hasattr(x, "__float__"):
        return int(x), I64
    if hasattr(x, "__float__"):
        return float(x), dtypes.default_np()
    raise RuntimeError(f"Could not infer dtype of {type(x).__name__}")


@quiet
def array_of(data: Any, d: NpDtype | None = None) -> Array:
    """Returns a new array for a scalar or nested sequences, by PyTorch's rules.

    `d` is the requested NumPy dtype.
    """
    c = data.__class__
    if c in _PLAIN:
        if d is None:
            d = number_dtype(data)
            if c is int and not -2 ** 63 <= data < 2 ** 63:
                raise ValueError("Overflow when unpacking long long")
        return _element(data, d)
    if c is list or c is tuple:
        try:
            types = _leaf_types(data, set())
        except RecursionError:
            raise TypeError("new(): self-referential lists are incompatible") from None
        if types and types <= _PLAIN:
            try:
                a = np.array(data)
            except ValueError:
                a = None  # ragged: `_leaves` below raises the error
            if a is not None and a.dtype.kind in "bifc":
                natural = a.dtype
                if natural.kind == "f":
                    natural = dtypes.default_np()
                elif natural.kind == "c":
                    natural = dtypes.default_complex_np()
                return convert(a, natural if d is None else d)
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    shape, first = _extent(data)
    if not shape:
        value, natural = _leaf(data)
        return _element(value, natural if d is None else d)
    if 0 in shape:
        return np.empty(shape, dtypes.default_np() if d is None else d)
    if isinstance(first, str):
        raise ValueError("too many dimensions 'str'")
    if isinstance(first, np.ndarray):
        raise TypeError("len() of unsized object")
    leaves: list[Any] = []
    _leaves(data, shape, 0, leaves)
    try:
        pairs = [_leaf(x) for x in leaves]
    except RuntimeError:
        if d is None:
            raise
        bad = next(x for x in leaves if not hasattr(x, "__index__") and not hasattr(x, "__float__"))
        raise TypeError(f"must be real number, not {type(bad).__name__}") from None
    natural = pairs[0][1]
    for _, n in pairs:
        natural = promote_types(natural, n)
    leaves = [v for v, _ in pairs]
    parse_dtype = {"f": F64, "V": F64, "c": C128}.get(natural.kind, natural)
    for v in leaves:
        if v.__class__ is int and not -2 ** 63 <= v < 2 ** 63 and natural.kind in "bi":
            to = natural if d is None else d
            if to.kind in "iu" and not (to.name == "uint64" and 0 <= v < 2 ** 64):
                raise ValueError("Overflow when unpacking long long")
            parse_dtype = to if to.kind in "iu" else F64
    return convert(np.array(leaves, parse_dtype).reshape(shape), natural if d is None else d)


def _element(value, d):
    if d.kind in "iub":
        if isinstance(value, complex):
            raise TypeError(f"int() argument must be a real number, not '{type(value).__name__}'")
        if d.kind == "b":
            return np.array(bool(value), d)
        return to_ints(np.array(value), d)
    if isinstance(value, complex) and d.kind != "c":
        raise TypeError("must be real number, not complex")
    if d == bfloat16_np:
        return np.array(value, F32).astype(d)
    return np.array(value, d)


def usable(a: Array) -> Array:
    """Returns `a` if it can back a tensor.

    Raises for dtypes, byte orders and strides that PyTorch does not support.
    """
    of_np(a.dtype)
    if a.size and a.ndim and min(a.strides) < 0:
        raise ValueError("At least one stride in the given numpy array is negative, and tensors with negative strides "
                         "are not currently "
                         "supported. (You can probably work around this by making a copy of your array  with "
                         "array.copy().)")
    return a


def compact_storage(a: Array) -> Array:
    """Returns an array with the elements of `a` on a buffer that covers only them.

    This is `a` itself unless it is part of a larger array. As in PyTorch, the storage of a tensor
    created from a slice is then that slice, and saving it does not save the whole array.
    """
    base = a.base
    if base is None or base.__class__ is not np.ndarray or base.nbytes == a.nbytes or a.dtype.kind == "V":
        return a
    if not a.size:
        return np.empty(a.shape, a.dtype)
    if a.flags.c_contiguous:
        flat = a.reshape(-1)
    else:
        span = sum((n - 1) * s for n, s in zip(a.shape, a.strides)) // a.itemsize + 1
        flat = np.lib.stride_tricks.as_strided(a, (span,), (a.itemsize,))
    # A memoryview in between cuts the chain of bases.
    memory = np.frombuffer(memoryview(flat), a.dtype)        # type: ignore[arg-type]
    return np.ndarray(a.shape, a.dtype, memory, 0, a.strides)


def array_of_pytorch(x: Any) -> Array:
    """Returns the values of a PyTorch tensor, to be copied.

    Its history is dropped, as in torch.tensor(x).
    """
    return dlpack.array_of(x.detach().resolve_conj().resolve_neg())


def copied(data: Any, d: NpDtype | None) -> Array:
    """Returns a new array for anything that torch.tensor accepts, except our tensors.

    `d` is the requested NumPy dtype.
    """
    if isinstance(data, np.ndarray):
        a = usable(data)
        return np.array(a, order="C") if d is None or d == a.dtype else cast_array(a, d)
    if isinstance(data, np.generic):
        of_np(data.dtype)
        return np.array(data) if d is None else cast_array(np.asarray(data), d)
    if isinstance(data, _tensor.MSTensor):
        return copied(to_host(adopt(data)), d)
    if is_pytorch_tensor(data):
        return copied(array_of_pytorch(data), d)
    if not isinstance(data, (list, tuple)) and hasattr(data, "__array__"):
        return copied(np.asarray(data), d)
    return array_of(data, d)


# ------------------------------------------------------------------ shared memory
def is_array(x: object) -> bool:
    """True if this is a host array."""
    return isinstance(x, np.ndarray)


def is_array_scalar(x: object) -> bool:
    """True if this is an element of a host array."""
    return isinstance(x, np.generic)


def in_type(a: Array, d: NpDtype | None) -> Array:
    """Copies an array, in dtype `d` (None: its own dtype)."""
    return np.array(a) if d is None or d == a.dtype else cast_array(a, d)


def backing_array(a: Array, d: NpDtype | None) -> Array:
    """Returns an array that backs a tensor.

    This is `a` itself, as its own storage, if it has dtype `d`; else a copy.
    """
    a = usable(a)
    return compact_storage(a) if d is None or d == a.dtype else cast_array(a, d)


def shared(x: Any) -> Array:
    """Returns a usable array on the memory of an array or of any object that exports DLPack."""
    return usable(x if isinstance(x, np.ndarray) else dlpack.array_of(x.detach() if is_pytorch_tensor(x) else x))


def plain(a: Array) -> Array:
    """Returns an array without its subclass, as its own storage."""
    return compact_storage(a if a.__class__ is np.ndarray else a.view(np.ndarray))


def on_buffer(buffer: Any, count: int, offset: int, d: NpDtype) -> Array:
    """Returns an array on the memory of an object with the buffer protocol.

    `count` is the number of elements, or -1 for all elements after `offset` bytes.
    """
    return np.frombuffer(buffer, np.uint8, count * d.itemsize if count > 0 else -1, offset).view(d)
