"""Tensors out of Python data and arrays: tensor, as_tensor, from_numpy, ..."""
import warnings

import numpy as np

from mindtorch.backend.cpu import dlpack
from mindtorch.backend.cpu.host import quiet
from mindtorch.core import device as _device, dtypes, meta
from mindtorch.core import tensor as _tensor
from mindtorch.core.dtypes import C128, F32, F64, I64, as_np, bfloat16_np, of_np
from mindtorch.core.foreign import is_foreign
from mindtorch.core.promote import number_dtype, promote_types
from mindtorch.core.table import op
from mindtorch.core.tensor import Tensor, adopt, detached, set_requires_grad, wrap
from mindtorch.ops._numbers import number_as, number_of
from mindtorch.ops.shapes._sizes import copy_as
from mindtorch.backend.cpu.basic import cast_array
from mindtorch.ops.basic import cast, clone



# ------------------------------------------------------------------ common arguments of creation
def place(name, dtype, device, layout):
    """Checks device= and layout= of a creation function; NumPy dtype, or None if none was asked for."""
    if device is not None or _device.get_default() is not _device.cpu:
        d = _device.check(device)
        if d.type == "meta":
            meta.wake()
        elif d.type != "cpu":
            raise NotImplementedError(f"'{name}' is not implemented for dtype {dtype or 'float32'} on device {d}")
    if layout is not None and repr(layout) != "torch.strided":
        raise NotImplementedError(f"'{name}' is not implemented for layout {layout!r} on device cpu")
    return None if dtype is None else as_np(dtype)


def finish(a, requires_grad, device=None):
    """A new tensor on an array, on the device asked for (that `place` has checked)."""
    if device is not None or _device._default is not _device.cpu:
        if _device.check(device).type == "meta":
            return meta.on(a, requires_grad)
    t = wrap(a)
    if requires_grad:
        set_requires_grad(t, True)
    return t


# ------------------------------------------------------------------ numbers and nested sequences
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


def is_sequence(x):
    if isinstance(x, (Tensor, str, bytes)) or isinstance(x, np.ndarray) and not x.ndim or is_foreign(x):
        return False
    return isinstance(x, (list, tuple, np.ndarray)) or hasattr(x, "__len__") and hasattr(x, "__getitem__") and not isinstance(x, dict)


def _extent(data):
    """Shape that the first elements of nested sequences tell."""
    shape = []
    while is_sequence(data):
        n = len(data)
        shape.append(n)
        if len(shape) > 64:
            raise ValueError("too many dimensions in a nested sequence")
        if not n:
            break
        data = data[0]
    return shape, data


def _leaves(data, shape, dim, out):
    """All numbers of nested sequences in order; ValueError where they are ragged."""
    if dim == len(shape):
        if is_sequence(data):
            raise TypeError(f"'{type(data).__name__}' object cannot be interpreted as an integer")
        out.append(data)
        return
    if not is_sequence(data):
        raise TypeError("not a sequence")
    if len(data) != shape[dim]:
        raise ValueError(f"expected sequence of length {shape[dim]} at dim {dim} (got {len(data)})")
    for x in data:
        _leaves(x, shape, dim + 1, out)


def _leaf(x):
    """(value, NumPy dtype) of one element of a nested sequence."""
    if isinstance(x, Tensor):
        if x._numel != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return number_of("tensor", x), x._stype
    if is_foreign(x):
        return _leaf(wrap(array_of_foreign(x)))
    if isinstance(x, np.ndarray):
        raise TypeError("len() of unsized object")
    if isinstance(x, np.generic):
        of_np(x.dtype)
        return x.item(), x.dtype
    if isinstance(x, (bool, int, float, complex)):
        return x, number_dtype(x)
    if isinstance(x, str):
        raise ValueError("too many dimensions 'str'")
    if isinstance(x, bytes):
        raise TypeError("new(): invalid data type 'bytes'")
    if hasattr(x, "__index__") or hasattr(x, "__int__") and not hasattr(x, "__float__"):
        return int(x), I64
    if hasattr(x, "__float__"):
        return float(x), dtypes.default_np()
    raise RuntimeError(f"Could not infer dtype of {type(x).__name__}")


@quiet
def array_of(data, d=None):
    """Fresh array of a number or nested sequences by torch's rules; `d`: NumPy dtype asked for."""
    c = data.__class__
    if c in _PLAIN:
        if d is None:
            d = number_dtype(data)
            if c is int and not -2 ** 63 <= data < 2 ** 63:
                raise ValueError("Overflow when unpacking long long")
        return _element(data, d)
    if c is list or c is tuple:
        types = _leaf_types(data, set())
        if types and types <= _PLAIN:
            try:
                a = np.array(data)
            except ValueError:
                a = None              # ragged: the walk below finds where
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
    if isinstance(first, (str, bytes)):
        _leaf(first)
    leaves = []
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
    values = [v for v, _ in pairs]
    for v in values:
        if v.__class__ is int and not -2 ** 63 <= v < 2 ** 63 and natural.kind != "u":
            raise ValueError("Overflow when unpacking long long")
    wide = {"f": F64, "V": F64, "c": C128}.get(natural.kind, natural)
    return convert(np.array(values, wide).reshape(shape), natural if d is None else d)


def _element(value, d):
    if d.kind in "iub":
        if isinstance(value, complex):
            raise TypeError(f"int() argument must be a real number, not '{type(value).__name__}'")
        if d.kind == "b":
            return np.array(bool(value), d)
        return _ints(np.array(value), d)
    if isinstance(value, complex) and d.kind != "c":
        raise TypeError("must be real number, not complex")
    if d == bfloat16_np:
        return np.array(value, F32).astype(d)
    return np.array(value, d)


def _ints(a, d):
    """An array in an integer dtype; RuntimeError for values out of its range (unsigned types take the negatives of it)."""
    if a.dtype == d:
        return a
    info = np.iinfo(d)
    if a.size and a.dtype.kind != "b":
        low, high = a.min(), a.max()
        if not (float(low) >= (-int(info.max) if d.kind == "u" else int(info.min)) and float(high) <= float(info.max)):
            raise RuntimeError(f"value cannot be converted to type {d.name} without overflow")
    if a.dtype.kind == "f":
        a = a.astype(np.int64)
    return a.astype(d)


def convert(a, d):
    if a.dtype == d:
        return a
    if d.kind in "iu":
        if a.dtype.kind == "c":
            raise TypeError("int() argument must be a real number, not 'complex'")
        return _ints(a, d)
    if a.dtype.kind == "c" and d.kind in "fV":
        raise TypeError("must be real number, not complex")
    if d == bfloat16_np:
        return a.astype(F32).astype(d)
    return a.astype(d)


def usable(a):
    """An ndarray that a tensor can stand on; errors for dtypes, byte orders and strides that torch has not."""
    of_np(a.dtype)
    if a.size and a.ndim and min(a.strides) < 0:
        raise ValueError("At least one stride in the given numpy array is negative, and tensors with negative strides "
                         "are not currently "
                         "supported. (You can probably work around this by making a copy of your array  with "
                         "array.copy().)")
    return a


def storage_of_its_own(a):
    """`a`, or if it is a part of a larger array the same elements as memory that begins and ends with them.

    So that, as in torch, the storage of a tensor made of a slice is that slice, and saving it does not save the whole.
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
    # A memoryview between the two ends the chain of bases.
    memory = np.frombuffer(memoryview(flat), a.dtype)
    return np.ndarray(a.shape, a.dtype, memory, 0, a.strides)


@op(method=False)
def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """A new tensor with a copy of `data`: a number, nested sequences, an ndarray or a tensor."""
    d = place("tensor", dtype, device, None)
    if data.__class__ in _PLAIN or data.__class__ is list:
        return finish(array_of(data, d), requires_grad, device)
    if isinstance(data, Tensor):
        warnings.warn("To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
                      "sourceTensor.detach().clone().requires_grad_(True), rather than "
                      "torch.tensor(sourceTensor).", stacklevel=2)
        a = data._a
        return finish(copy_as(a) if d is None or d == a.dtype else cast_array(a, d), requires_grad, device)
    return finish(copied(data, d), requires_grad, device)


def array_of_foreign(x):
    """Values of a tensor of real PyTorch, for a copy: what it remembers of its making stays behind, as in torch.tensor(x)."""
    return dlpack.array_of(x.detach().resolve_conj().resolve_neg())


def copied(data, d):
    if isinstance(data, np.ndarray):
        a = usable(data)
        return np.array(a, order="C") if d is None or d == a.dtype else cast_array(a, d)
    if isinstance(data, np.generic):
        of_np(data.dtype)
        return np.array(data) if d is None else cast_array(np.asarray(data), d)
    if isinstance(data, _tensor.MSTensor):
        return copied(adopt(data)._a, d)
    if is_foreign(data):
        return copied(array_of_foreign(data), d)
    if not isinstance(data, (list, tuple)) and hasattr(data, "__array__"):
        return copied(np.asarray(data), d)
    return array_of(data, d)


@op(method=False)
def as_tensor(data, dtype=None, device=None):
    """`data` as a tensor, sharing the memory of tensors and ndarrays where dtype allows it."""
    d = place("as_tensor", dtype, device, None)
    if is_foreign(data) and data.requires_grad:
        raise RuntimeError("as_tensor() keeps a tensor's history, which cannot go from PyTorch to mindtorch; use tensor.detach(), or "
                           "tensor(), which copies")
    if isinstance(data, Tensor):
        r = data if d is None else cast(data, d)
        return r if device is None or _device.check(device) is r._dev else r.to(device)
    if isinstance(data, np.ndarray):
        a = usable(data)
        return finish(storage_of_its_own(a) if d is None or d == a.dtype else cast_array(a, d), False, device)
    return finish(copied(data, d), False, device)


@op(method=False)
def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False):
    """`obj` as a tensor, sharing its memory unless copy=True (copy=False: ValueError where that is impossible)."""
    d = place("asarray", dtype, device, None)
    if isinstance(obj, Tensor):
        t = obj if requires_grad or not obj._rg else detached(obj)
        r = t if d is None else cast(t, d)
        if r is t and copy:
            r = clone(t)
    elif isinstance(obj, np.ndarray) or hasattr(obj, "__dlpack__"):
        a = usable(obj if isinstance(obj, np.ndarray) else dlpack.array_of(obj.detach() if is_foreign(obj) else obj))
        share = (d is None or d == a.dtype) and not copy
        r = wrap(storage_of_its_own(a) if share else np.array(a) if d is None or d == a.dtype else cast_array(a, d))
        if copy is False and not share:
            raise ValueError(f"can't alias tensor with dtype '{of_np(a.dtype)}' into dtype '{of_np(d)}'.")
    elif hasattr(obj, "untyped"):            # a storage: its bytes
        a = obj.untyped()._bytes
        share = (d is None or d == a.dtype) and not copy
        r = wrap(a if share else np.array(a) if d is None or d == a.dtype else cast_array(a, d))
    elif isinstance(obj, (bytes, bytearray, memoryview)):
        r = frombuffer(obj, dtype=of_np(dtypes.default_np() if d is None else d))
        if copy:
            r = wrap(r._a.copy())
    else:
        if copy is False:
            raise ValueError(f"can't alias arbitrary sequence into a tensor: {type(obj).__name__}")
        r = wrap(copied(obj, d))
    if requires_grad and not r._rg:
        set_requires_grad(r, True)
    return r


@op(method=False)
def from_numpy(ndarray):
    """A tensor on an ndarray's memory."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    a = usable(ndarray)
    if not a.flags.writeable:
        warnings.warn("The given NumPy array is not writable: in-place writes to this tensor will be refused. Copy "
                      "the array to have a "
                      "tensor that can be written to.", stacklevel=2)
    return wrap(storage_of_its_own(a if a.__class__ is np.ndarray else a.view(np.ndarray)))


@op(method=False)
def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """A one-dimensional tensor on the memory of an object with the buffer protocol."""
    d = as_np(dtype)
    n = memoryview(buffer).nbytes
    if not n or not count:
        raise ValueError(f"both buffer length ({n}) and count ({count}) must not be 0")
    if offset < 0 or offset >= n:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({n} bytes) "
                         "minus 1")
    if count < 0 and (n - offset) % d.itemsize:
        raise ValueError(f"buffer length ({n - offset} bytes) after offset ({offset} bytes) must be a multiple of "
                         f"element size ({d.itemsize})")
    if count > 0 and offset + count * d.itemsize > n:
        raise ValueError(f"requested buffer length ({count} * {d.itemsize} bytes) after offset ({offset} bytes) must "
                         "not be greater than "
                         f"actual buffer length ({n} bytes)")
    a = np.frombuffer(buffer, np.uint8, count * d.itemsize if count > 0 else -1, offset).view(d)
    return finish(a, requires_grad, _device.cpu)


@op(method=False)
def scalar_tensor(s, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A 0-dim tensor of the default dtype (or the one asked for)."""
    d = place("scalar_tensor", dtype, device, layout)
    return finish(number_as(number_of("scalar_tensor", s, "s"), dtypes.default_np() if d is None else d), requires_grad, device)
