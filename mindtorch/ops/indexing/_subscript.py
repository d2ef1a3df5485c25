"""x[...] and x[...] = v in all forms that PyTorch supports.

Integers, slices, None and Ellipsis are basic items: together they are one NumPy index, which gives
a view. Index tensors, masks and lists are applied to that view. (NumPy itself treats integers as
index arrays if both are mixed, and orders the dimensions of the result differently.)
"""
import operator
import warnings

from mindtorch.core.tensor import inplace
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.tensor.dtypes import BOOL, I32, I64, NUMBER_TYPES
from mindtorch.core.dispatch.error_messages import is_pytorch_tensor, type_name
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.primitives import sequence
from mindtorch.core.tensor.tensor import Tensor, ndarray, is_tensor
from mindtorch.core.tensor.sync import array_of, tensor_from, to_host
from mindtorch.core.tensor.scalars import NUMBER, cast_scalar
from mindtorch.ops.basic import cast, move, new_full
from mindtorch.ops.indexing import _expanded
from mindtorch.ops.indexing._gather import index_at, mask_indices, put_at
from mindtorch.ops.indexing._masks import masked_fill_, masked_select_
from mindtorch.ops.indexing._basic_index import pick, pick_alias, pick_select, pick_unsqueeze
from mindtorch.ops.shapes.views import broadcast_shape, expand_to, reshape_

_BASIC = {int: 0, slice: 1, type(None): 2, type(Ellipsis): 3}
_PICKERS = (pick_select, pick, pick_unsqueeze, pick_alias)


def _basic_key(key):
    """Returns (NumPy index with an ellipsis, kind of its last item) for an index of basic items
    only, else None."""
    if key.__class__ is not tuple:
        kind = _BASIC.get(key.__class__)
        if kind is None or kind == 1 and key.step is not None and not _positive(key.step):
            return None
        return (key, ...) if kind != 3 else (...,), kind
    dots, last = False, 3
    for k in key:
        kind = _BASIC.get(k.__class__)
        if kind is None:
            return None
        if kind == 1:
            if k.step is not None and not _positive(k.step):
                return None
            last = 1
        elif kind == 3:
            if dots:
                return None
            dots = True
        else:
            last = kind
    return (key if dots else (*key, ...)), last


def _positive(step):
    if operator.index(step) <= 0:
        raise ValueError("slice step cannot be zero" if operator.index(step) == 0 else "step must be greater than zero")
    return True


def getitem(self, key):
    """Returns x[key]: a view for integers, slices, None and Ellipsis; a copy for index tensors,
    masks and lists."""
    basic = _basic_key(key)
    if basic is not None:
        return _PICKERS[basic[1]](self, key=basic[0])
    v, index = self, _single_tensor_key(self, key) if key.__class__ is Tensor else None
    if index is None:
        v, index = _prepare(self, key)
        if index is None:
            return v
    indices, dims, _, mask, _ = index
    return index_at(v, indices, dims) if mask is None else masked_select_(v, mask)


# ------------------------------------------------------------------ indices of any kind
def _as_tuple(key):
    """Returns the items of an index. A list with anything but scalars in it counts as a tuple
    (PyTorch's legacy rule)."""
    if key.__class__ is tuple:
        return key
    if isinstance(key, tuple):
        return tuple(key)
    if isinstance(key, list) and len(key) < 32 and any(
            k.__class__ is not int and (k is None or k is Ellipsis or isinstance(k, (slice, list, tuple, range, Tensor, ndarray))) for k in key):
        warnings.warn("Using a non-tuple sequence for multidimensional indexing is deprecated: use x[tuple(seq)] "
                      "instead of x[seq]",
                      stacklevel=4)
        return tuple(key)
    return (key,)


def _array_of(k):
    """Returns the index array of a list, tuple or range."""
    def plain(x):
        if x.__class__ is Tensor or is_tensor(x):
            return to_host(x).tolist()
        if isinstance(x, ndarray):
            return x.tolist()
        if isinstance(x, (list, tuple, range)):
            return [plain(y) for y in x]
        if isinstance(x, (bool, NUMBER_TYPES[1])):
            return bool(x)
        if isinstance(x, float):
            return x
        try:
            # `__index__` of a PyTorch tensor returns its only element, whatever its shape
            if is_pytorch_tensor(x):
                raise TypeError
            return operator.index(x)
        except TypeError:
            raise TypeError(f"new(): invalid data type '{type_name(x)}'") from None
    nested = k if all([x.__class__ is int for x in k]) else plain(k)
    try:
        a = array_of(nested)
    except ValueError:
        raise ValueError(f"expected sequence of equal lengths in an index, but got {k!r}") from None
    return a if a.size else a.astype(I64)


def index_on_device(k, x):
    """Returns an index tensor on the device of the tensor `x` that it indexes; an index on the host
    is moved there."""
    if k._handle is not None:
        if k._device != x._device:
            raise RuntimeError(f"indices should be either on cpu or on the same device as the indexed tensor ({x._device})")
    elif x._handle is not None and k._device.type == "cpu":
        return move(k, x._device)
    return k


_FIRST = (0,)


def _single_tensor_key(x, key):
    """Fast path of `_prepare` for a single int64 or bool tensor; returns None if the general path
    is needed."""
    if key._device is not x._device:
        key = index_on_device(key, x)
    d, n = key._np_dtype, key.ndim
    if not n or n > x.ndim and d is not I64 or not x.ndim:
        return None
    if d is I64:
        return (key,), _FIRST, (key,), None, False
    if d is not BOOL or key._sizes != x._sizes[:n]:
        return None
    if n == x.ndim:
        return (), (), (key,), key, True
    return mask_indices(key), _FIRST if n == 1 else tuple(range(n)), (key,), None, True


def _prepare(x, key):
    """Applies the basic items of an index. Returns (view of x, None or the remaining index).

    The remaining index is (index tensors, the dimensions of the view that they index, the tensors
    that they came from, the mask if it has the view's own shape, whether there is exactly one
    mask). For a mask of the view's own shape the index tensors are not computed.
    """
    items = _as_tuple(key)
    ndim = x.ndim
    parsed, specified, dots = [], 0, 0
    for k in items:
        c = k.__class__
        if c is int or c is slice:
            specified += 1
        elif k is None:
            pass
        elif k is Ellipsis:
            dots += 1
        elif c is bool:
            k = (new_full(x, size=(int(k),), value=0, np_dtype=I64), None, 0)
        else:
            guard = None
            if k.__class__ is Tensor or is_tensor(k):
                guard = t = k if k._device is x._device else index_on_device(k, x)
            elif isinstance(k, ndarray):
                t = tensor_from(k, x)
            elif isinstance(k, (list, tuple, range)):
                t = tensor_from(_array_of(k), x)
            elif isinstance(k, str) or is_pytorch_tensor(k):
                raise TypeError(f"new(): invalid data type '{type_name(k)}'")
            else:
                try:
                    k = operator.index(k)
                except TypeError:
                    raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables "
                                     "are valid "
                                     f"indices (got {type(k).__name__})") from None
                specified += 1
                parsed.append(k)
                continue
            d = t._np_dtype
            if d is I64 and t.ndim:
                k = (t, guard, -1)
                specified += 1
            elif d.kind == "b" or d.name == "uint8":
                if d.kind != "b":
                    warnings.warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
                                  "instead.", stacklevel=4)
                    t = cast(t, BOOL)
                if not t.ndim:
                    k = (mask_indices(t)[0], guard, 0)
                else:
                    k = (t, guard, t.ndim)
                    specified += t.ndim
            elif not t.ndim and d.kind in "iu":
                k = int(to_host(t))
                specified += 1
            elif d == I64 or d == I32:
                k = (cast(t, I64), guard, -1)
                specified += 1
            else:
                raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        parsed.append(k)
    if specified > ndim:
        if not ndim:
            # raises: too many indices for a 0-dim tensor
            return pick(x, key=(0, *[k for k in items if k.__class__ is slice], ...)), None
        raise IndexError(f"too many indices for tensor of dimension {ndim}")
    if dots > 1 and len(parsed) > dots:
        raise IndexError("an index can only have a single ellipsis ('...')")

    basic, indices, guards, at, mask = [], [], [], 0, None
    for k in parsed:
        if k.__class__ is tuple:
            t, guard, m = k
            if guard is not None:
                guards.append(guard)
            if m == 0:                       # a bool: a new dimension of size 1 or 0
                basic.append(None)
                indices.append(t)
            elif m < 0:
                basic.append(_ALL)
                indices.append(t)
                at += 1
            else:
                if t._sizes != x._sizes[at:at + m]:
                    j = next(i for i in range(m) if t._sizes[i] != x._sizes[at + i])
                    raise IndexError(f"The shape of the mask {list(t._sizes)} at index {j} does not match the shape of "
                                     "the indexed tensor "
                                     f"{list(x._sizes)} at index {at + j}")
                mask = t
                if len(parsed) == 1 and m == ndim:
                    return x, ((), (), guards, t, True)
                basic.extend([_ALL] * m)
                indices.extend(mask_indices(t))
                at += m
        elif k is Ellipsis:
            n = ndim - specified
            if dots > 1:
                dots, n = 1, ndim
            basic.extend([_ALL] * n)
            indices.extend([None] * n)
            at += n
        elif k is None:
            basic.append(None)
            indices.append(None)
        elif k.__class__ is slice:
            if k.step is not None:
                _positive(k.step)
            n = x._sizes[at]
            basic.append(_ALL if k.indices(n) == (0, n, 1) else k)
            indices.append(None)
            at += 1
        else:
            basic.append(k)
            at += 1
    v = x
    if any(k is not _ALL for k in basic):
        v = pick(x, key=(*basic, ...))
    dims = tuple([i for i, t in enumerate(indices) if t is not None])
    if not dims:
        return (pick_alias(x, key=...) if v is x else v), None
    only_mask = mask is not None and sum(k.__class__ is tuple for k in parsed) == 1
    return v, ([indices[i] for i in dims], dims, guards, None, only_mask)


_ALL = slice(None)


# ------------------------------------------------------------------ x[key] = value
def setitem(self, key, value):
    """Implements x[key] = value (a scalar or tensor, broadcast and cast) as an in-place write."""
    number = value.__class__ in _PLAIN
    if not number and not (value.__class__ is Tensor or is_tensor(value)):
        if not isinstance(value, NUMBER):
            raise TypeError(f"can't assign a {type_name(value)} to a torch.{scalar_type_name(self._np_dtype)}Tensor")
        number = True
    if number:
        if value.__class__ is int and not -2 ** 63 <= value < 2 ** 63:
            raise ValueError("Overflow when unpacking long long")
        value = cast_scalar(value, self._np_dtype)
    basic = _basic_key(key)
    if basic is not None:
        followed = dispatch_state.dual is not None and dispatch_state.dual(self, value)
        if not number and (value._requires_grad_ and mode.on or followed) and (self._handle is not None or value._handle is not None):
            value = move(value, self._device)
        if not (followed or mode.on and (self._requires_grad_ or value._requires_grad_)) and inplace.copy_at(self, basic[0], value, number):
            return
        v = _PICKERS[basic[1]](self, key=basic[0])
        if value is self and v._sizes == self._sizes and v.stride() == self.stride():
            v = self
        _assign_view(v, value, number)
        return
    v, index = self, _single_tensor_key(self, key) if key.__class__ is Tensor else None
    if index is None:
        v, index = _prepare(self, key)
    if index is None:
        _assign_view(v, value, number)
        return
    if not number and value._device is not self._device and (self._handle is not None or value._handle is not None):
        if value.ndim and value._device != self._device:
            raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {self._device} and {value._device}!")
        value = move(value, self._device)
    _assign_at(v, index, value)


_PLAIN = frozenset((bool, int, float, complex))


def _assign_view(v, value, number):
    want, have = v._sizes, value._sizes
    if have == want and not number:
        v.copy_(value)
        return
    if not have:
        if inplace.expanded_dims(v):
            inplace.check_inplace(v, False)  # raises; fill_ with a scalar accepts expanded tensors
        v.fill_(value)
        return
    short = inplace.trimmed(have, want)
    if short != have:
        value = reshape_(value, short)
    v.copy_(value if short == want else expand_to(value, want))


def _assign_at(v, index, value):
    indices, dims, guards, mask, only_mask = index
    d = v._np_dtype
    if only_mask and value._numel == 1:
        # One mask and one value: PyTorch fills, and casts the value.
        if value._np_dtype != d:
            value = cast(value, d)
        if value.ndim:
            value = reshape_(value, ())
        if not v._contiguous and inplace.expanded_dims(v):
            if mask is None:
                put(v, value, indices, dims, result_shape(v._sizes, indices, dims))
                _expanded.warn("masked_fill_")
            else:
                _expanded.warn("index_put_")
                v.masked_fill_(mask, value)
        elif mask is None:
            put(v, value, indices, dims, result_shape(v._sizes, indices, dims))
        elif mode.on and (v._requires_grad_ or value._requires_grad_) or dispatch_state.dual is not None and dispatch_state.dual(v, value):
            _assign_recorded(v, value, masked_fill_, (value, mask))
        else:
            inplace.check_inplace(v, False)
            inplace.fill_where(v, value, mask)
        return
    if mask is not None:
        indices, dims = mask_indices(mask), tuple(range(mask.ndim))
    shape = result_shape(v._sizes, indices, dims)
    have = value._sizes
    i = 0
    while i < len(have) and have[i] == 1:
        i += 1
    if i:
        value = reshape_(value, have[i:])
    inplace.assert_no_overlap(v, (value, *guards))
    put(v, value, indices, dims, shape)


def result_shape(size, indices, dims):
    """Returns the shape of a tensor of `size` indexed by tensors at `dims`; raises IndexError if
    they do not broadcast."""
    shape = indices[0]._sizes if len(dims) == 1 else _broadcast_index_sizes([i._sizes for i in indices])
    rest = [n for i, n in enumerate(size) if i not in dims]
    # dimensions of non-adjacent index tensors come first
    start = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    return (*rest[:start], *shape, *rest[start:])


def _broadcast_index_sizes(sizes):
    try:
        return broadcast_shape(sizes)
    except RuntimeError:
        raise IndexError("shape mismatch: indexing tensors could not be broadcast together with shapes "
                         f"{', '.join([str(list(s)) for s in sizes])}") from None


def put(v, value, indices, dims, shape):
    """Writes v[...] = value in place, for index tensors."""
    have = value._sizes
    lead = len(shape) - len(have)
    if lead < 0 or any(n != 1 and n != shape[lead + i] for i, n in enumerate(have)):
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(have)} cannot be broadcast to indexing "
                           "result of shape "
                           f"{list(shape)}")
    if value._np_dtype != v._np_dtype:
        raise RuntimeError(f"Index put requires the source and destination dtypes match, got {scalar_type_name(v._np_dtype)} for the "
                           "destination and "
                           f"{scalar_type_name(value._np_dtype)} for the source.")
    if not v._contiguous and inplace.expanded_dims(v):
        v, value, indices = _expanded.index_put(v, value, indices, dims, shape)
    if mode.on and (v._requires_grad_ or value._requires_grad_) or dispatch_state.dual is not None and dispatch_state.dual(v, value):
        _assign_recorded(v, value, put_at, (value, indices, dims))
    else:
        inplace.check_inplace(v, False)
        inplace.put(v, value, indices, dims)


def _assign_recorded(v, value, op, args):
    """Makes op(v, *args) the new value of `v`, as a differentiable in-place write."""
    inplace.check_inplace(v, True)
    since = next(sequence)
    inplace.assign(v, op(v, *args), since, (value,))


# the names that `__torch_function__` handlers expect
getitem.__name__, setitem.__name__ = "__getitem__", "__setitem__"
Tensor.__getitem__ = getitem
Tensor.__setitem__ = setitem


def _delitem(self, key):
    raise TypeError("Tensor does not support deleting items")


Tensor.__delitem__ = _delitem
