"""x[...] and x[...] = v in all of torch's forms.

Integers, slices, None and Ellipsis are basic: one NumPy index gives a view.  Index tensors, masks and lists come after, on
that view.  (NumPy itself counts integers among the index arrays where both are mixed, and places the result's dimensions
otherwise.)
"""
import operator
import warnings

import numpy as np

from mindtorch.backend.cpu.pointwise import fill_where
from mindtorch.core import alias
from mindtorch.core.alias import title
from mindtorch.core.foreign import is_foreign, type_name
from mindtorch.core.grad_mode import mode
from mindtorch.core.tape import sequence
from mindtorch.core.tensor import Tensor, bump, wrap
from mindtorch.ops.indexing._gather import Places, index_at, put_at
from mindtorch.ops._numbers import NUMBER, number_as
from mindtorch.ops.indexing._region import pick, pick_alias, pick_select, pick_unsqueeze
from mindtorch.backend.cpu.basic import cast_array
from mindtorch.ops.basic import cast
from mindtorch.ops.indexing._masks import masked_fill_, masked_select_
from mindtorch.ops.shapes.views import expand_to, reshape_

_BASIC = {int: 0, slice: 1, type(None): 2, type(Ellipsis): 3}
_PICKERS = (pick_select, pick, pick_unsqueeze, pick_alias)


def _basic_key(key):
    """(NumPy index with an ellipsis in it, kind of its last item) of an index made of basic items alone, else None."""
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
    """x[key]: a view for integers, slices, None and Ellipsis; a copy for index tensors, masks and lists."""
    basic = _basic_key(key)
    if basic is not None:
        try:
            return _PICKERS[basic[1]](self, key=basic[0])
        except IndexError as e:
            raise _bad_index(self._a, key, e) from None
    v, index = _prepare(self, key)
    if index is None:
        return v
    return _look_up(v, index)


def _bad_index(a, key, e):
    """torch's words for an index that NumPy refused."""
    if not a.ndim:
        if isinstance(key, slice) or isinstance(key, tuple) and any(isinstance(k, slice) for k in key):
            return IndexError("slice() cannot be applied to a 0-dim tensor.")
        return IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in "
                          "C++ to convert a "
                          "0-dim tensor to a number")
    text = str(e)
    if text.startswith("too many indices"):
        return IndexError(f"too many indices for tensor of dimension {a.ndim}")
    return IndexError(text.replace("axis", "dimension").replace("indexing arrays", "indexing tensors"))


def _look_up(v, index):
    key, guards, mask, _ = index
    try:
        if mask is not None:
            return masked_select_(v, mask=Places(mask, guards))
        return index_at(v, key=Places(key, guards))
    except IndexError as e:
        raise _bad_index(v._a, key, e) from None


# ------------------------------------------------------------------ indices of any kind
def _as_tuple(key):
    """The items of an index; a list that holds anything but numbers counts as a tuple (torch's old custom)."""
    if key.__class__ is tuple:
        return key
    if isinstance(key, tuple):
        return tuple(key)
    if isinstance(key, list) and len(key) < 32 and any(
            k is None or k is Ellipsis or isinstance(k, (slice, list, tuple, range, Tensor, np.ndarray)) for k in key):
        warnings.warn("Using a non-tuple sequence for multidimensional indexing is deprecated: use x[tuple(seq)] "
                      "instead of x[seq]",
                      stacklevel=4)
        return tuple(key)
    return (key,)


def _array_of(k):
    """Index array of a list, tuple or range."""
    def plain(x):
        if isinstance(x, Tensor):
            return x._a.tolist()
        if isinstance(x, np.ndarray):
            return x.tolist()
        if isinstance(x, (list, tuple, range)):
            return [plain(y) for y in x]
        if isinstance(x, (bool, np.bool_)):
            return bool(x)
        if isinstance(x, float):
            return x
        try:
            if is_foreign(x):            # an index that PyTorch's tensor gives is its only element, whatever its shape
                raise TypeError
            return operator.index(x)
        except TypeError:
            raise TypeError(f"new(): invalid data type '{type_name(x)}'") from None
    values = plain(k)
    try:
        a = np.array(values)
    except ValueError:
        raise ValueError(f"expected sequence of equal lengths in an index, but got {k!r}") from None
    if not a.size:
        a = a.astype(np.int64)
    return a


def _prepare(x, key):
    """(view of x with the basic items applied, None or what is left).

    What is left: (index arrays, tensors they came from, the mask if it is of the view's own shape, is there just one mask).
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
            k = (np.zeros(int(k), np.int64), None, 0)
        else:
            guard = None
            if isinstance(k, Tensor):
                guard, a = k, k._a
            elif isinstance(k, np.ndarray):
                a = k
            elif isinstance(k, (list, tuple, range)):
                a = _array_of(k)
            elif isinstance(k, str) or is_foreign(k):
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
            kind = a.dtype.kind
            if kind == "b" or a.dtype == np.uint8:
                if kind != "b":
                    warnings.warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
                                  "instead.", stacklevel=4)
                    a = a.astype(bool)
                if not a.ndim:
                    k = (np.zeros(int(a), np.int64), guard, 0)
                else:
                    k = (a, guard, a.ndim)
                    specified += a.ndim
            elif not a.ndim and kind in "iu":
                k = int(a)
                specified += 1
            elif a.dtype == np.int64 or a.dtype == np.int32:
                k = (a.astype(np.int64, copy=False), guard, -1)
                specified += 1
            else:
                raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        parsed.append(k)
    if specified > ndim:
        if not ndim:
            raise _bad_index(x._a, key, IndexError())
        raise IndexError(f"too many indices for tensor of dimension {ndim}")
    if dots > 1 and len(parsed) > dots:
        raise IndexError("an index can only have a single ellipsis ('...')")

    basic, arrays, guards, at, mask = [], [], [], 0, None
    for k in parsed:
        if k.__class__ is tuple:
            a, guard, m = k
            if guard is not None:
                guards.append(guard)
            if m == 0:                       # a bool: a new dimension of size 1 or 0
                basic.append(None)
                arrays.append(a)
            elif m < 0:
                basic.append(_ALL)
                arrays.append(a)
                at += 1
            else:
                if a.shape != x._sizes[at:at + m]:
                    j = next(i for i in range(m) if a.shape[i] != x._sizes[at + i])
                    raise IndexError(f"The shape of the mask {list(a.shape)} at index {j} does not match the shape of "
                                     "the indexed tensor "
                                     f"{list(x._sizes)} at index {at + j}")
                mask = a
                basic.extend([_ALL] * m)
                arrays.extend(a.nonzero())
                at += m
        elif k is Ellipsis:
            n = ndim - specified
            if dots > 1:
                dots, n = 1, ndim
            basic.extend([_ALL] * n)
            arrays.extend([None] * n)
            at += n
        elif k is None:
            basic.append(None)
            arrays.append(None)
        elif k.__class__ is slice:
            if k.step is not None:
                _positive(k.step)
            n = x._sizes[at]
            basic.append(_ALL if k.indices(n) == (0, n, 1) else k)
            arrays.append(None)
            at += 1
        else:
            basic.append(k)
            at += 1
    v = x
    if any(k is not _ALL for k in basic):
        try:
            v = pick(x, key=(*basic, ...))
        except IndexError as e:
            raise _bad_index(x._a, key, e) from None
    while arrays and arrays[-1] is None:
        arrays.pop()
    if not arrays:
        return (pick_alias(x, key=...) if v is x else v), None
    whole = mask is not None and len(parsed) == 1 and mask.ndim == ndim
    only_mask = mask is not None and sum(k.__class__ is tuple for k in parsed) == 1
    return v, (tuple([_ALL if a is None else a for a in arrays]), guards, mask if whole else None, only_mask)


_ALL = slice(None)


# ------------------------------------------------------------------ x[key] = value
def setitem(self, key, value):
    """x[key] = value (a number or tensor, broadcast and cast), through the alias layer."""
    number = value.__class__ in _PLAIN
    if not number and not isinstance(value, Tensor):
        if not isinstance(value, NUMBER):
            raise TypeError(f"can't assign a {type_name(value)} to a torch.{title(self._stype)}Tensor")
        number = True
    if number:
        if value.__class__ is int and not -2 ** 63 <= value < 2 ** 63:
            raise ValueError("Overflow when unpacking long long")
        value = wrap(number_as(value, self._stype))
    basic = _basic_key(key)
    if basic is not None and not (mode.on and (self._rg or value._rg)):
        a, b = self._a, value._a
        try:
            part = a[basic[0]]
        except IndexError as e:
            raise _bad_index(a, key, e) from None
        if part.flags.c_contiguous and part.flags.writeable and not self._inference and (number or not np.may_share_memory(part, b)):
            if b.ndim > part.ndim or b.dtype is not a.dtype:
                b = _fitted(value, part.shape, a.dtype)
            try:
                part[...] = b
            except ValueError:
                raise _too_large(value._sizes, part.shape) from None
            bump(self)
            return
    if basic is not None:
        try:
            v = _PICKERS[basic[1]](self, key=basic[0])
        except IndexError as e:
            raise _bad_index(self._a, key, e) from None
        if value is self and v._sizes == self._sizes and v._a.strides == self._a.strides:
            v = self
        _assign_view(v, value, number)
        return
    if not value.ndim and isinstance(key, Tensor) and key._stype.kind == "b" and key.ndim and key._sizes == self._sizes:
        # One mask and one number: the places need not be found.
        _assign_at(self, (None, (key,), key._a, True), value)
        return
    v, index = _prepare(self, key)
    if index is None:
        _assign_view(v, value, number)
    else:
        _assign_at(v, index, value)


_PLAIN = frozenset((bool, int, float, complex))


def _fitted(value, shape, dtype):
    """The value's array without surplus leading dimensions of size 1, in `dtype`."""
    b = value._a
    b = b.reshape(_trimmed(b.shape, len(shape), shape))
    return b if b.dtype == dtype else cast_array(b, dtype)


def _trimmed(have, ndim, shape):
    i = 0
    while len(have) - i > ndim and have[i] == 1:
        i += 1
    if len(have) - i > ndim:
        raise RuntimeError(f"expand(torch.Tensor{{{list(have)}}}, size={list(shape)}): the number of sizes provided "
                           f"({ndim}) must be greater "
                           f"or equal to the number of dimensions in the tensor ({len(have)})")
    return have[i:]


def _too_large(have, want):
    lead = len(want) - len(have)
    for i, n in enumerate(have):
        if n != 1 and n != want[lead + i]:
            return RuntimeError(f"The expanded size of the tensor ({want[lead + i]}) must match the existing size "
                                f"({n}) at non-singleton "
                                f"dimension {lead + i}.  Target sizes: {list(want)}.  Tensor sizes: {list(have)}")
    return RuntimeError(f"a value of shape {list(have)} cannot be written to a region of shape {list(want)}")


def _assign_view(v, value, number):
    a, b = v._a, value._a
    if b.shape == a.shape and not number:
        v.copy_(value)
        return
    if not b.ndim:
        v.fill_(value)
        return
    have = _trimmed(b.shape, a.ndim, a.shape)
    if have != b.shape:
        value = reshape_(value, have)
    v.copy_(value if have == a.shape else expand_to(value, a.shape))


def _assign_at(v, index, value):
    key, guards, mask, only_mask = index
    a, b = v._a, value._a
    if only_mask and b.size == 1:
        # One mask and one value: torch fills, casting the value.
        if b.dtype != a.dtype:
            value = cast(value, a.dtype)
        if b.ndim:
            value = reshape_(value, ())
        if mask is not None:
            put_inplace(v, value, lambda x: masked_fill_(x, value, mask=Places(mask, guards)), lambda: fill_where(a, value._a, mask))
        else:
            put(v, value, key, guards, _result_shape(a, key))
        return
    if b.dtype != a.dtype:
        raise RuntimeError(f"Index put requires the source and destination dtypes match, got {title(a.dtype)} for the "
                           "destination and "
                           f"{title(b.dtype)} for the source.")
    shape = _result_shape(a, key)
    have = b.shape
    i = 0
    while i < len(have) and have[i] == 1:
        i += 1
    if i:
        value = reshape_(value, have[i:])
    alias.check_apart(v, (value, *guards))
    put(v, value, key, guards, shape)


def _result_shape(a, key):
    """Shape of a[key] for index arrays and full slices; IndexError if the arrays do not fit each other."""
    at = [i for i, k in enumerate(key) if k.__class__ is not slice]
    try:
        shape = key[at[0]].shape if len(at) == 1 else np.broadcast(*[key[i] for i in at]).shape
    except ValueError:
        shapes = ", ".join(str(list(key[i].shape)) for i in at)
        raise IndexError("shape mismatch: indexing tensors could not be broadcast together with shapes "
                         f"{shapes}") from None
    rest = [n for i, n in enumerate(a.shape) if i >= len(key) or key[i].__class__ is slice]
    start = at[0] if at == list(range(at[0], at[-1] + 1)) else 0       # arrays apart from each other: their dimensions come first
    return (*rest[:start], *shape, *rest[start:])


def put(v, value, key, guards, shape):
    """v[key] = value for index arrays, in place."""
    have = value._sizes
    lead = len(shape) - len(have)
    if lead < 0 or any(n != 1 and n != shape[lead + i] for i, n in enumerate(have)):
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(have)} cannot be broadcast to indexing "
                           "result of shape "
                           f"{list(shape)}")

    def direct():
        try:
            v._a[key] = value._a
        except IndexError as e:
            raise _bad_index(v._a, key, e) from None

    put_inplace(v, value, lambda x: put_at(x, value, key=Places(key, guards), accumulate=False), direct)


def put_inplace(v, value, op, direct):
    """A write to `v`: `direct()` on the memory where no gradient is recorded, else the primitive `op` through the alias layer."""
    if not (mode.on and (v._rg or value._rg)):
        alias.check_inplace(v, False)
        direct()
        bump(v)
        return
    alias.check_inplace(v, True)
    since = next(sequence)
    alias.assign(v, op(v), since, (value,))


getitem.__name__, setitem.__name__ = "__getitem__", "__setitem__"       # as handlers of __torch_function__ know them
Tensor.__getitem__ = getitem
Tensor.__setitem__ = setitem
