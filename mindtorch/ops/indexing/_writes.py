"""In-place methods with a meaning of their own: fill_, zero_, copy_, index_put_, resize_, set_, ..."""
import numpy as np

from mindtorch.core import alias
from mindtorch.core.alias import title
from mindtorch.core.foreign import type_name
from mindtorch.core.grad_mode import mode
from mindtorch.core.layout import STRIDED, format_strides, strides_of, suggested
from mindtorch.core.table import op, resize
from mindtorch.core.tape import sequence, primitive
from mindtorch.core.tensor import Tensor, bump, replace_memory, wrap
from mindtorch.ops._checks import need_tensor
from mindtorch.ops.indexing._gather import Places, add_at, put_at
from mindtorch.ops._numbers import NUMBER, number_as
from mindtorch.ops.shapes._sizes import (check_nonnegative, check_rank, contiguous_strides, format_name, offset_of, on_storage, size_of,
                                  strided)
from mindtorch.ops.indexing._subscript import _bad_index, _result_shape
from mindtorch.backend.cpu.basic import cast_array
from mindtorch.ops.basic import cast, sum_to
from mindtorch.ops.shapes.views import broadcast_shape, reshape_


def _method(fn):
    setattr(Tensor, fn.__name__, fn)
    return fn


def _zeros(g):
    return wrap(np.zeros(g._sizes, g._stype))


# ------------------------------------------------------------------ fill_, zero_
_fill = primitive("fill", lambda a, value: np.full(a.shape, value, a.dtype), lambda c, g: _zeros(g), lambda c, g: sum_to(g, size=()), raw=True)
_zero = primitive("zero", lambda a: np.zeros(a.shape, a.dtype), lambda c, g: _zeros(g), raw=True)


def _fill_value(name, value, d):
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(f"{name} only supports 0-dimension value tensor but got tensor with {value.ndim} "
                               "dimensions.")
        return value if value._stype == d else cast(value, d)
    if not isinstance(value, NUMBER):
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({type_name(value)}), but "
                        "expected one of: "
                        "(Tensor value), (Number value)")
    return wrap(number_as(value, d))


@op(method=False)
def fill(input, value):
    """A tensor like input, full of `value` (a number or 0-dim tensor)."""
    need_tensor("fill", input)
    return _fill(input, _fill_value("fill_", value, input._stype))


@_method
def fill_(self, value):
    """Writes one value (a number or 0-dim tensor) to every element."""
    if not (mode.on and self._rg) and not isinstance(value, Tensor):
        value = _fill_value("fill_", value, self._stype)
        alias.check_inplace(self, False, True)
        self._a[...] = value._a
        bump(self)
        return self
    value = _fill_value("fill_", value, self._stype)
    if not (mode.on and (self._rg or value._rg)):
        alias.check_inplace(self, False)
        self._a[...] = value._a
        bump(self)
        return self
    alias.check_inplace(self, True)
    since = next(sequence)
    return alias.assign(self, _fill(self, value), since, (value,))


@_method
def zero_(self):
    """Writes 0 to every element."""
    alias.check_inplace(self, False, True)
    if not (mode.on and self._rg):
        self._a[...] = np.zeros((), self._stype)
        bump(self)
        return self
    since = next(sequence)
    return alias.assign(self, _zero(self), since)


# ------------------------------------------------------------------ copy_
_copy = primitive("copy", lambda a, src: _copied(a, src), lambda c, g: _zeros(g), lambda c, g: cast(g, c.dtypes[1]), raw=True)


def _copied(a, src):
    r = np.empty(a.shape, a.dtype)
    r[...] = src if src.dtype == a.dtype else cast_array(src, a.dtype)
    return r


@_method
def copy_(self, src=None, non_blocking=False, *, other=None):
    """Writes the elements of another tensor (broadcast, cast) into this one."""
    if src is None:
        src = other
    if not isinstance(src, Tensor):
        if not isinstance(src, (int, float, bool)):
            raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type_name(src)}")
        src = wrap(number_as(src, self._stype))
    grad = mode.on and (self._rg or src._rg)
    alias.check_inplace(self, grad, src is self)
    a, b = self._a, src._a
    if a.shape != b.shape:
        shape = broadcast_shape([a.shape, b.shape])
        if shape != a.shape:
            raise RuntimeError(f"output with shape {list(a.shape)} doesn't match the broadcast shape {list(shape)}")
    alias.check_overlap(self, (src,))
    if not grad:
        a[...] = b if b.dtype == a.dtype else cast_array(b, a.dtype)
        bump(self)
        return self
    since = next(sequence)
    return alias.assign(self, _copy(self, src), since, (src,))


@_method
def fill_diagonal_(self, fill_value, wrap=False):
    """Writes one value to the main diagonal (wrap: which starts again below it in tall matrices)."""
    a = self._a
    if a.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if a.ndim > 2 and len(set(a.shape)) != 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    part = _diagonal_view(self, 0)
    part.fill_(fill_value)
    if wrap and a.ndim == 2 and a.shape[0] > a.shape[1] + 1:
        for start in range(a.shape[1] + 1, a.shape[0], a.shape[1] + 1):
            _diagonal_view(self, start).fill_(fill_value)
    return self


def _diagonal_view(x, row):
    a = x._a
    if a.ndim == 2:
        return (x[row:] if row else x).diagonal()
    return _main_diagonal(x)


_main_diagonal = primitive("diagonal", lambda a: strided(a, (min(a.shape),), (sum(a.strides),)),
                           lambda c, g: _diagonal_back(g, shape=c.shapes[0]), view=True)


def _on_diagonal(g, *, shape):
    r = np.zeros(shape, g.dtype)
    strided(r, (min(shape),), (sum(r.strides),))[...] = g
    return r


_diagonal_back = primitive("diagonal_backward", _on_diagonal, lambda c, g: _main_diagonal(g), raw=True)


# ------------------------------------------------------------------ index_put
def _indices(x, indices):
    if isinstance(indices, Tensor) or not isinstance(indices, (tuple, list)):
        raise TypeError("index_put(): argument 'indices' (position 1) must be tuple of Tensors, not "
                        f"{type(indices).__name__}")
    for i, k in enumerate(indices):
        if not isinstance(k, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type_name(k)}")
    if len(indices) > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim} (got {len(indices)})")
    arrays, guards = [], []
    if not indices:
        raise RuntimeError("index_put needs at least one index tensor")
    for k in indices:
        a = k._a
        guards.append(k)
        if a.dtype == np.uint8:
            a = a.astype(bool)
        if a.dtype.kind == "b":
            at = len(arrays)
            if a.shape != x._sizes[at:at + a.ndim]:
                raise IndexError(f"The shape of the mask {list(a.shape)} at index 0 does not match the shape of the "
                                 "indexed tensor "
                                 f"{list(x._sizes)} at index {at}")
            arrays.extend(a.nonzero())
        elif a.dtype.name in ("int64", "int32"):
            arrays.append(a.astype(np.int64, copy=False))
        else:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    return tuple(arrays), guards


@op(inplace=True)
def index_put(input, indices, values, accumulate=False):
    """input[indices] = values for a tuple of index tensors (accumulate: values are added, also at repeated places)."""
    need_tensor("index_put", values, "values", 3)
    key, guards = _indices(input, indices)
    a, b = input._a, values._a
    if a.dtype != b.dtype:
        raise RuntimeError(f"Index put requires the source and destination dtypes match, got {title(a.dtype)} for the "
                           "destination and "
                           f"{title(b.dtype)} for the source.")
    shape = _result_shape(a, key)
    have = b.shape
    i = 0
    while len(have) - i > len(shape) and have[i] == 1:
        i += 1
    if i:
        have = have[i:]
        values = reshape_(values, have)
    lead = len(shape) - len(have)
    if lead < 0 or any(n != 1 and n != shape[lead + j] for j, n in enumerate(have)):
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(have)} cannot be broadcast to indexing "
                           f"result of shape {list(shape)}")
    put = add_at if accumulate else put_at
    try:
        return put(input, values, key=Places(key, guards), accumulate=bool(accumulate))
    except IndexError as e:
        raise _bad_index(a, key, e) from None


# ------------------------------------------------------------------ memory
#: (storage, dtype, offset, size, stride) -> array on the storage's memory; set by the facade, which has the storages
array_of_storage = None


@_method
def resize_(self, *sizes, size=None, memory_format=None):
    """Changes the tensor's size, keeping the elements that fit; new places hold zeros."""
    size = size_of("resize_", sizes if size is None else (size,))
    check_nonnegative(size)
    if mode.on and self._rg:
        raise RuntimeError("cannot resize variables that require grad")
    if size != self._sizes:
        resize(self, size)
    return self if memory_format is None else _restride(self, "resize_", format_name(memory_format))


def _restride(t, name, fmt):
    """Puts the strides of a memory format on a tensor's memory, whose elements stay where they are."""
    if fmt == "preserve":
        raise RuntimeError(f"{name}: unsupported memory format Preserve")
    a = t._a
    check_rank(a.shape, fmt)
    strides = format_strides(a.shape, fmt)
    if strides_of(a) != strides:
        STRIDED.odd = True
        replace_memory(t, on_storage(a, a.shape, tuple([s * a.itemsize for s in strides]), offset_of(a)))
        bump(t)
    return t


@_method
def resize_as_(self, the_template, *, memory_format=None):
    """Changes the tensor's size to that of another."""
    need_tensor("resize_as_", the_template, "the_template")
    self.resize_(the_template._sizes)
    if memory_format is None:
        return self
    fmt = format_name(memory_format)
    return _restride(self, "resize_as_", suggested(the_template._a) if fmt == "preserve" else fmt)


@_method
def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """Puts the tensor on another tensor's memory (all of it, or a strided part)."""
    if mode.on and self._rg and self._gnode is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if source is None:
        replace_memory(self, np.empty(0, self._stype))
        return self
    if not isinstance(source, Tensor):
        if array_of_storage is None or isinstance(source, (int, float, str, list, tuple)):
            raise TypeError(f"set_(): argument 'source' must be Tensor or Storage, not {type_name(source)}")
        replace_memory(self, array_of_storage(source, self.dtype, storage_offset, size, stride))
        return self
    if source._stype != self._stype:
        raise RuntimeError(f"Could not set tensor of type {title(source._stype)} to a tensor of type "
                           f"{title(self._stype)}")
    if size is None:
        replace_memory(self, source._a)
    else:
        if not source._contiguous:
            raise RuntimeError("set_(): a source tensor that is used as a storage has to be contiguous")
        size = size_of("set_", (size,))
        k = self._stype.itemsize
        stride = contiguous_strides(size) if stride is None else tuple(stride)
        try:
            a = strided(source._a, size, tuple([s * k for s in stride]), storage_offset * k)
        except ValueError:
            raise RuntimeError(f"set_(): size {list(size)} with strides {list(stride)} and offset {storage_offset} reaches beyond the source's "
                               "storage; here it does not grow") from None
        replace_memory(self, a)
    return self


# ------------------------------------------------------------------ another geometry, in place
def _geometry(name, view):
    """Tensor.<name>: the tensor itself becomes the view that `view(self, ...)` gives."""
    def method(self, *args, **kwargs):
        grad = mode.on and self._rg
        if grad:
            alias.check_inplace(self, True)
            if self._base is not None:
                raise NotImplementedError(f"'{name}' on a view that requires grad is not implemented for dtype "
                                          f"{self.dtype} on device "
                                          f"{self._dev}: use the out-of-place op")
        r = view(self, *args, **kwargs)
        replace_memory(self, r._a)
        bump(self)
        if grad:
            self._gnode, self._oi = r._gnode, r._oi
        return self

    method.__name__ = name
    method.__doc__ = f"In-place {name[:-1]}: changes the shape and strides of the tensor itself."
    setattr(Tensor, name, method)


for _name in ("transpose", "swapaxes", "swapdims", "t", "squeeze", "unsqueeze"):
    _geometry(_name + "_", getattr(Tensor, _name))
