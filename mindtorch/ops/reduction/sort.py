"""Sorting and searching: sort, topk, unique, searchsorted, isin."""
import math

import numpy as np

from mindtorch.backend.cpu import selection
from mindtorch.backend.cpu.sort import few, order
from mindtorch.core.alias import title
from mindtorch.core.dtypes import F32, I64
from mindtorch.core.promote import number_dtype
from mindtorch.core.return_types import struct
from mindtorch.core.table import fresh, op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor
from mindtorch.ops.reduction._along import flat_index, put_at
from mindtorch.ops._checks import need_tensor, unsupported, wrap_dim

_HUGE = 1 << 20         # from here on picking candidates is faster than sorting
_FEW = 10               # up to so many, so is looking for one after another


# ------------------------------------------------------------------ sort
def _pick(a, at, axis):
    return a.reshape(-1)[flat_index(at, axis, a.shape)].reshape(at.shape)


def _sort_kernel(a, *, axis, descending):
    if a.ndim == 0:
        return a.copy(), np.zeros((), I64)
    at = order(a, axis, descending)
    return _pick(a, at, axis), at


def _place(g, at, axis, shape):
    return put_at(g, index=at, axis=axis, keepdim=True, shape=shape, repeated=False)


_sort = primitive("sort", _sort_kernel, lambda c, g: _place(g[0], c.out1._a, c.axis, c.shapes[0]), nondiff=(1,))
_Sort, _Topk = struct("sort", "values indices"), struct("topk", "values indices")


def _sortable(name, input):
    need_tensor(name, input)
    if input._stype.kind == "c":
        raise RuntimeError(f"{name.capitalize()} does not support complex dtypes on CPU")


@op(out=True)
def sort(input, dim=-1, descending=False, *, stable=False):
    """(values, indices) in order along `dim`; equal elements keep their order, nan counts as the largest."""
    _sortable("sort", input)
    return _Sort(*_sort(input, axis=wrap_dim("sort", dim, input.ndim), descending=bool(descending)))


@op(out=True)
def argsort(input, dim=-1, descending=False, *, stable=False):
    """Indices that sort along `dim`."""
    _sortable("sort", input)
    a = input._a
    axis = wrap_dim("argsort", dim, a.ndim)
    if a.ndim == 0:
        return fresh(np.zeros((), I64))
    return fresh(np.ascontiguousarray(order(a.astype(F32) if a.dtype.kind == "V" else a, axis, descending)))


@op(out=True)
def msort(input):
    """Values in order along the first dimension."""
    return sort(input, 0)[0]


def _topk_kernel(a, *, k, axis, largest, in_order):
    n = a.shape[axis] if a.ndim else 1
    if not 0 < k < n and not (k == n > 1) or a.size > selection.MOST:
        return _top(a, k, axis, largest)
    # With one more than is wanted it shows whether equal elements leave a choice: then it is as torch's search makes it.
    m = min(k + 1, n)
    v, at = _top(a, m, axis, largest)
    w = v if axis == a.ndim - 1 else np.moveaxis(v, axis, -1)
    same = w[..., 1:] == w[..., :-1]
    if a.dtype.kind == "f":
        nan = w != w
        if nan.any():
            same |= nan[..., 1:] & nan[..., :-1]
    if m > k:
        cut = (slice(None),) * axis + (slice(k),)
        v, at = np.ascontiguousarray(v[cut]), np.ascontiguousarray(at[cut])
    if not same.any():
        return v, at
    at = selection.settle(a, at, axis, same.any(-1), lambda x: selection.top(
        (np.negative if largest else np.positive)(selection.ranks(x)).tolist(), k, in_order))
    return _pick(a, at, axis), at


def _top(a, k, axis, largest):
    if a.ndim == 0:
        return (a.copy(), np.zeros((), I64)) if k else (np.zeros(0, a.dtype), np.zeros(0, I64))
    n = a.shape[axis]
    if n > _HUGE and 0 < k < n // 64:
        # The candidates first, put in the order of their indices, which equal ones keep.
        part = np.argpartition(a, n - k if largest else k - 1, axis=axis)
        part = np.sort(part.take(np.arange(n - k, n) if largest else np.arange(k), axis=axis), axis=axis)
        v = _pick(a, part, axis)
        o = order(v, axis, largest)
        return _pick(v, o, axis), _pick(part, o, axis)
    if 0 < k <= _FEW and axis == a.ndim - 1 and a.size >= 2048 and n >= 64 and a.dtype.kind in "fi":
        got = few(np.ascontiguousarray(a).reshape(-1, n), k, largest)
        if got is not None:
            return tuple([x.reshape(a.shape[:-1] + (k,)) for x in got])
    at = np.ascontiguousarray(order(a, axis, largest).take(np.arange(k), axis=axis))
    return _pick(a, at, axis), at


_topk = primitive("topk", _topk_kernel, lambda c, g: _place(g[0], c.out1._a, c.axis, c.shapes[0]), nondiff=(1,))


@op(out=True)
def topk(input, k, dim=-1, largest=True, sorted=True):
    """(values, indices) of the k largest (smallest) elements along `dim`."""
    need_tensor("topk", input)
    a = input._a
    if a.dtype.kind in "bc":
        raise RuntimeError(f"topk does not support {'bool' if a.dtype.kind == 'b' else 'complex'} dtypes on CPU")
    axis = wrap_dim("topk", dim, a.ndim)
    k = int(k)
    if not 0 <= k <= (a.shape[axis] if a.ndim else 1):
        raise RuntimeError("selected index k out of range")
    return _Topk(*_topk(input, k=k, axis=axis, largest=bool(largest), in_order=bool(sorted)))


# ------------------------------------------------------------------ unique
def _host(name, input):
    """Array of a tensor of real numbers, in a dtype that NumPy sorts."""
    need_tensor(name, input)
    a = input._a
    if a.dtype.kind == "c":
        raise unsupported(name, a.dtype)
    return a.astype(F32) if a.dtype.kind == "V" else a


def _answer(values, inverse, counts, dtype):
    out = [fresh(values.astype(dtype, order="C", copy=False))]
    out += [fresh(x) for x in (inverse, counts) if x is not None]
    return out[0] if len(out) == 1 else tuple(out)


@op
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """Distinct elements in order, or distinct slices along `dim`; on request also inverse indices and counts."""
    a = _host("unique", input)
    if dim is None or a.ndim == 0:
        got = np.unique(a.reshape(-1), return_inverse=return_inverse, return_counts=return_counts, equal_nan=False)
        got = list(got) if got.__class__ is tuple else [got]
        v = got.pop(0)
        inverse = got.pop(0).reshape(a.shape) if return_inverse else None
        n = got.pop() if return_counts else None
    else:
        axis = wrap_dim("unique", dim, a.ndim)
        rows = np.moveaxis(a, axis, 0)
        _no_other_zeros(rows.shape)
        if rows.size == 0:
            v, inverse, n = a, np.zeros(0, I64), np.zeros(0, I64)
        else:
            first, inverse, n = _unique_rows(_rows(rows))
            v = a.take(first, axis=axis)
    return _answer(v, inverse if return_inverse else None, n if return_counts else None, input._stype)


def _no_other_zeros(shape):
    """RuntimeError if there is nothing to compare in the slices along the first dimension."""
    if shape.count(0) > 1:
        raise RuntimeError("Number of zero sized dimensions is more than one, so unique cannot be applied ")
    if 0 in shape[1:]:
        raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")


def _unique_rows(rows):
    """Index of one row per kind (in lexicographic order), kind of each row, number of each."""
    by = np.lexsort(rows.T[::-1])
    s = rows[by]
    new = np.ones(len(s), bool)
    new[1:] = (s[1:] != s[:-1]).any(1)
    kind = np.cumsum(new) - 1
    inverse = np.empty(len(s), I64)
    inverse[by] = kind
    return by[new], inverse, np.bincount(kind)


def _rows(a):
    """(n, everything else)"""
    return a.reshape(len(a), math.prod(a.shape[1:]))


@op
def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The first of each run of equal elements, or of equal slices along `dim`."""
    a = _host("unique_consecutive", input)
    if dim is None:
        rows, axis = a.reshape(-1, 1), None
    else:
        axis = wrap_dim("unique_consecutive", dim, a.ndim)
        _no_other_zeros(a.shape[axis:axis + 1] + a.shape[:axis] + a.shape[axis + 1:])
        rows = _rows(np.moveaxis(a, axis, 0)) if a.ndim else a.reshape(1, 1)
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]).any(1)
    starts = np.flatnonzero(new)
    inverse = np.cumsum(new) - 1
    if axis is None:
        v, inverse = rows[starts, 0], inverse.reshape(a.shape)
    else:
        v = a.take(starts, axis=axis) if a.ndim else a
    counts = np.diff(np.append(starts, len(rows)))
    return _answer(v, inverse if return_inverse else None, counts if return_counts else None, input._stype)


# ------------------------------------------------------------------ search
def _search(name, sequence, x, out_int32, right, side, sorter):
    if side is not None:
        if side not in ("left", "right"):
            raise RuntimeError(f"torch.{name}(): side can only be 'left' or 'right' but got {side}")
        if side == "left" and right:
            raise RuntimeError(f"torch.{name}(): side and right can't be set to opposites, got side of left while "
                               f"right was True")
    right = right or side == "right"
    if sorter is not None:
        if sorter.shape != sequence.shape:
            raise RuntimeError(f"torch.{name}(): boundary and sorter must have the same size, but got boundary tensor "
                               f"{list(sequence.shape)} and got sorter tensor {list(sorter.shape)}")
        if sorter.dtype != I64:
            raise RuntimeError(f"torch.{name}(): sorter must be a tensor of long dtype but got dtype "
                               f"{title(sorter.dtype)}")
        if sorter.size and (sorter.min() < 0 or sorter.max() >= sequence.shape[-1]):
            raise RuntimeError(f"torch.{name}(): sorter index out of range")
        sequence = np.take_along_axis(sequence, sorter, -1)
    how = "right" if right else "left"
    if sequence.ndim == 1:
        r = np.asarray(np.searchsorted(sequence, x, how))
    else:
        r = np.empty(x.shape, I64)
        lines = math.prod(x.shape[:-1])
        for s, v, o in zip(sequence.reshape(lines, -1 if sequence.size else 0),
                           *(y.reshape(lines, x.shape[-1]) for y in (x, r))):
            o[...] = np.searchsorted(s, v, how)
    return fresh(r.astype(np.int32 if out_int32 else I64))


def _numbers(name, x):
    if isinstance(x, Tensor):
        return _host(name, x)
    return np.array(x, number_dtype(x))


@op(method=False, out=True)
def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    """Where the values of `input` belong in a sequence that is sorted along its last dimension."""
    s = _host("searchsorted", sorted_sequence)
    x = _numbers("searchsorted", input)
    if s.ndim != 1:
        if x.ndim == 0:
            raise RuntimeError("torch.searchsorted(): input value can be a scalar only when boundaries tensor "
                               "dimension is 1, but "
                               f"we got boundaries tensor dim({s.ndim}) and input value's dim(0) numel(1)")
        if x.shape[:-1] != s.shape[:-1]:
            raise RuntimeError("torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
                               "dimensions of "
                               "boundaries tensor and input value tensor must match, but we got boundaries tensor "
                               f"{list(s.shape)} and input value tensor {list(x.shape)}")
    return _search("searchsorted", s, x, out_int32, right, side,
                   None if sorter is None else _host("searchsorted", sorter))


@op(method=False, out=True)
def bucketize(input, boundaries, *, out_int32=False, right=False):
    """Number of the bucket between the sorted 1-d boundaries that each value falls into."""
    b = _host("bucketize", boundaries)
    if b.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({b.ndim})")
    return _search("bucketize", b, _numbers("bucketize", input), out_int32, right, None, None)


@op(method=False, out=True)
def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """True where an element is among the test elements; either may be a number."""
    if not isinstance(elements, Tensor) and not isinstance(test_elements, Tensor):
        raise TypeError("isin(): elements or test_elements must be a Tensor")
    for x in (elements, test_elements):
        if isinstance(x, Tensor) and x._stype.kind in "bc":
            raise unsupported("isin", x._stype)
    return fresh(np.asarray(np.isin(_numbers("isin", elements), _numbers("isin", test_elements), invert=invert)))
