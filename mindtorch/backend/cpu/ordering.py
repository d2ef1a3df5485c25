"""Kernels of sorting, searching and order statistics (median, k-th value, mode, quantiles)."""
import math

import numpy as np

from mindtorch.backend.cpu import kernel, large, selection
from mindtorch.backend.cpu.gather import flat_index, picked
from mindtorch.backend.cpu.sort import best, few, order, sort

_F32, _I64 = np.dtype(np.float32), np.dtype(np.int64)
_HUGE = 1 << 20  # axis length above which partitioning out candidates is faster than sorting
_FEW = 10  # maximum k for which repeated searches are faster than sorting


def _sortable(a):
    """Returns the array in a dtype that NumPy can sort (bfloat16 becomes float32)."""
    return a.astype(_F32) if a.dtype.kind == "V" else a


# ------------------------------------------------------------------ sort
def _pick(a, at, axis):
    if axis == a.ndim - 1 and a.size >= large.LEAST and a.flags.c_contiguous and at.shape == a.shape:
        # In pieces, because the flat indices take as much memory as `at`: for 2048x1024 float32 the
        # peak is 3.1 operands, in one piece 5.0.
        n, r = a.shape[-1], np.empty(a.shape, a.dtype)
        x, to, where = a.reshape(-1, n), r.reshape(-1, n), at.reshape(-1, n)

        def part(i, j):
            to[i:j] = np.take_along_axis(x[i:j], where[i:j], 1)
        if len(x) > 1:
            large.each_rows(len(x), n, part)
        else:
            x[0].take(where[0], out=to[0], mode="clip")
        return r
    return a.reshape(-1)[flat_index(at, axis, a.shape)].reshape(at.shape)


@kernel("sort")
def _sort(a, *, axis, descending):
    if a.ndim == 0:
        return a.copy(), np.zeros((), _I64)
    if (got := sort(a, axis, descending)) is not None:
        return got
    at = order(a, axis, descending)
    return _pick(a, at, axis), at


@kernel("argsort")
def _argsort(a, *, axis, descending):
    if a.ndim == 0:
        return np.zeros((), _I64)
    return np.ascontiguousarray(order(_sortable(a), axis, descending))


@kernel("sort_stable")
def _sort_stable(a, *, axis):
    at = np.argsort(a, axis=axis, kind="stable")
    return np.take_along_axis(a, at, axis), at


def _by_rows(a, axis, keepdim, do):
    """Returns the (values, indices) that do(array in C order) computes along its last axis, for any
    axis.

    Returns None if `do` returns None, or for a 0-d or empty array.
    """
    if not a.ndim or not a.size:
        return None
    if axis == a.ndim - 1:
        return do(a if a.flags.c_contiguous else np.ascontiguousarray(a))
    # with keepdim the axis is swapped with the last one, otherwise it moves to the end
    got = do(np.ascontiguousarray(a.swapaxes(axis, -1) if keepdim else a.transpose(*range(axis), *range(axis + 1, a.ndim), axis)))
    if got is None or not keepdim:
        return got
    return tuple([np.ascontiguousarray(x.swapaxes(axis, -1)) for x in got])


@kernel("topk")
def _topk(a, *, k, axis, largest, in_order):
    n = a.shape[axis] if a.ndim else 1
    if k and (got := _by_rows(a, axis, True, lambda x: large.scan_gather().top(x, k, largest, a.size > selection.MOST))) is not None:
        return got
    if not 0 < k < n and not (k == n > 1) or a.size > selection.MOST:
        return _top(a, k, axis, largest)
    # One element more than requested shows whether ties leave a choice. If so, the choice follows
    # PyTorch's selection algorithm.
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
    at = selection.resolve_ties(a, at, axis, same.any(-1), lambda x: selection.top(
        (np.negative if largest else np.positive)(selection.ranks(x)).tolist(), k, in_order))
    return _pick(a, at, axis), at


def _top(a, k, axis, largest):
    if a.ndim == 0:
        return (a.copy(), np.zeros((), _I64)) if k else (np.zeros(0, a.dtype), np.zeros(0, _I64))
    n = a.shape[axis]
    if (got := best(a, k, axis, largest)) is not None:
        return got
    if n > _HUGE and 0 < k < n // 64:
        # Select the candidates first and sort them by index: equal elements then keep that order.
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


# ------------------------------------------------------------------ unique
def _answer(dtype, values, inverse, counts):
    return values.astype(dtype, order="C", copy=False), inverse, counts


def _distinct(values, indices, shape, inverse, counts):
    """Returns (distinct values, inverse or None, counts or None) from sorted values and their
    sorting indices."""
    new = np.empty(values.size, bool)
    new[0] = True
    np.not_equal(values[1:], values[:-1], out=new[1:])
    # the sorted values are freed before the inverse is allocated
    n, values = values.size, values[new]
    to = None
    if inverse:
        to, before = np.empty(n, _I64), -1
        for i in range(0, n, large.PIECE):
            kinds = np.cumsum(new[i:i + large.PIECE])
            kinds += before
            to[indices[i:i + large.PIECE]] = kinds
            before = kinds[-1]
        to = to.reshape(shape)
    return values, to, np.diff(np.flatnonzero(new), append=n) if counts else None


def _distinct_bytes(a, inverse, counts):
    """Like `_distinct`, for 1-byte dtypes, by counting instead of sorting.

    8 million uint8 take 10 ms vs 170 ms by sorting (PyTorch 240 ms).
    """
    x = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    # As unsigned values in the same order: flipping the sign bit of int8 does that.
    turned = np.uint8(128 if a.dtype.kind == "i" else 0)
    count = np.zeros(256, _I64)
    for i in range(0, x.size, large.PIECE):
        count += np.bincount(x[i:i + large.PIECE] ^ turned, minlength=256)
    there = np.flatnonzero(count)
    to = None
    if inverse:
        kind, to = np.empty(256, _I64), np.empty(x.size, _I64)
        kind[there] = np.arange(there.size)

        def part(k):
            i = slice(k * large.PIECE, (k + 1) * large.PIECE)
            kind.take(x[i] ^ turned, out=to[i], mode="clip")
        large.each(-(-x.size // large.PIECE), part, x.size)
        to = to.reshape(a.shape)
    return (there.astype(np.uint8) ^ turned).view(a.dtype), to, count[there] if counts else None


@kernel("unique")
def _unique(a, *, inverse, counts):
    """Returns (distinct elements in order, inverse indices or None, counts or None)."""
    x = _sortable(a)
    if x.itemsize == 1 and x.size >= large.FEW:
        return _distinct_bytes(x, inverse, counts)
    if x.size >= large.FEW and large.scan_gather().orders(x.dtype, x.size):
        got = large.scan_gather().order(np.ascontiguousarray(x).reshape(1, -1), False)
        if got is not None:
            return _distinct(got[0][0], got[1][0], a.shape, inverse, counts)
    if inverse and x.size >= large.LEAST and x.dtype.kind in "fiu":
        # faster than NumPy's argsort and with less memory: 2 million float32 take 134 ms and 4.4
        # operands vs 620 ms and 8.3 operands
        at = order(flat := x.reshape(-1), 0, False)
        return _distinct(flat[at], at, a.shape, inverse, counts)
    got = np.unique(x.reshape(-1), return_inverse=inverse, return_counts=counts, equal_nan=False)
    got = list(got) if got.__class__ is tuple else [got]
    v = got.pop(0)
    return _answer(a.dtype, v, got.pop(0).reshape(a.shape) if inverse else None, got.pop() if counts else None)


@kernel("unique_dim")
def _unique_dim(a, *, axis, inverse, counts):
    """Like `_unique`, for slices along an axis."""
    x = _sortable(a)
    if x.size == 0:
        v, to, n = x, np.zeros(0, _I64), np.zeros(0, _I64)
    else:
        first, to, n = _unique_rows(_rows(np.moveaxis(x, axis, 0)))
        v = x.take(first, axis=axis)
    return _answer(a.dtype, v, to if inverse else None, n if counts else None)


def _unique_rows(rows):
    """Returns (index of one row per distinct row in lexicographic order, inverse, counts)."""
    by = np.lexsort(rows.T[::-1])
    s = rows[by]
    new = np.ones(len(s), bool)
    new[1:] = (s[1:] != s[:-1]).any(1)
    kind = np.cumsum(new) - 1
    inverse = np.empty(len(s), _I64)
    inverse[by] = kind
    return by[new], inverse, np.bincount(kind)


def _rows(a):
    """Flattens all dimensions but the first."""
    return a.reshape(len(a), math.prod(a.shape[1:]))


@kernel("unique_consecutive")
def _unique_consecutive(a, *, axis, inverse, counts):
    x = _sortable(a)
    if axis is None:
        rows = x.reshape(-1, 1)
    else:
        rows = _rows(np.moveaxis(x, axis, 0)) if x.ndim else x.reshape(1, 1)
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]).any(1)
    starts = np.flatnonzero(new)
    to = np.cumsum(new) - 1
    if axis is None:
        v, to = rows[starts, 0], to.reshape(x.shape)
    else:
        v = x.take(starts, axis=axis) if x.ndim else x
    n = np.diff(np.append(starts, len(rows)))
    return _answer(a.dtype, v, to if inverse else None, n if counts else None)


# ------------------------------------------------------------------ search
@kernel("searchsorted")
def _searchsorted(sequence, x, sorter, *, right, np_dtype, op):
    sequence, x = _sortable(sequence), _sortable(x)
    if sorter is not None:
        if sorter.size and (sorter.min() < 0 or sorter.max() >= sequence.shape[-1]):
            raise RuntimeError(f"torch.{op}(): sorter index out of range")
        sequence = np.take_along_axis(sequence, sorter, -1)
    if sequence.size and (r := large.scan_gather().searched(sequence, x, right)) is not None:
        return r if np_dtype == _I64 else r.astype(np_dtype)
    how = "right" if right else "left"
    if sequence.ndim == 1:
        r = np.asarray(np.searchsorted(sequence, x, how))
    else:
        r = np.empty(x.shape, _I64)
        lines = math.prod(x.shape[:-1])
        for s, v, o in zip(sequence.reshape(lines, -1 if sequence.size else 0),
                           *(y.reshape(lines, x.shape[-1]) for y in (x, r))):
            o[...] = np.searchsorted(s, v, how)
    return r.astype(np_dtype)


@kernel("isin")
def _isin(a, among, *, invert):
    a, among = _sortable(a), _sortable(among)
    d = np.result_type(a, among)
    # NumPy compares with so few elements one by one
    if d.kind != "f" or a.size < large.LEAST or among.size < 10 * a.size ** 0.145:
        return np.isin(a, among, invert=invert)
    # Search in pieces; NumPy sorts both arrays together. 2 million float32 in a hundred take 6.4 ms
    # vs 570 ms (PyTorch 109 ms).
    among, x = np.sort(among.reshape(-1).astype(d)), np.ascontiguousarray(a).reshape(-1)
    r = np.empty(a.size, bool)

    def part(k):
        i = slice(k * large.PIECE, (k + 1) * large.PIECE)
        y = x[i].astype(d, copy=False)
        at = np.searchsorted(among, y)
        (np.not_equal if invert else np.equal)(among.take(at, mode="clip"), y, out=r[i])
    large.each(-(-a.size // large.PIECE), part, a.size)
    return r.reshape(a.shape)


# ------------------------------------------------------------------ median
def _median_all(a, skip):
    x = a.reshape(-1)
    missing = x != x
    if missing.any():
        if not skip or missing.all():
            return np.array(np.nan, a.dtype)
        x = x[~missing]
    elif not x.size:
        return np.array(np.nan, a.dtype) if a.dtype.kind == "f" else np.array(np.iinfo(a.dtype).min, a.dtype)
    k = (x.size - 1) // 2
    return np.asarray(np.partition(x, k)[k])


def _median_dim(a, axis, keepdim, skip):
    if a.ndim == 0:
        return a.copy(), np.zeros((), _I64)
    n = a.shape[axis]
    along = large.scan_gather()
    if (got := _by_rows(a, axis, keepdim, lambda x: along.ranked(x, along.SKIPPING if skip else along.MEDIAN, 0, keepdim))) is not None:
        return got
    missing = (a != a) if a.dtype.kind == "f" else np.zeros((), bool)
    if not missing.any():
        k = (n - 1) // 2
        at = np.argpartition(a, k, axis=axis).take([k], axis=axis)
        v = np.take_along_axis(a, at, axis)
        equal = a == v
        if np.count_nonzero(equal) > at.size:
            # Pick the index that a stable sort would put there, like PyTorch's comparison by value
            # and index.
            nth = k - (a < v).sum(axis=axis, keepdims=True)
            at = (np.cumsum(equal, axis=axis) > nth).argmax(axis=axis)
            at = np.expand_dims(at, axis)
    else:
        # NaN sorts last, so the lower median of the other elements is at index (their count - 1) //
        # 2.
        by = np.argsort(a, axis=axis, kind="stable")
        there = n - missing.sum(axis=axis, keepdims=True)
        if skip:
            k = np.maximum((there - 1) // 2, 0)
        else:
            # The first NaN, if there is one.
            k = np.where(there < n, np.minimum(there, n - 1), (n - 1) // 2)
        at = np.take_along_axis(by, k, axis=axis)
        if skip:
            # A slice of only NaN has no order: use the index that the selection algorithm leaves
            # first.
            at = selection.resolve_ties(a, at, axis, (there == 0).squeeze(axis), lambda x: selection.nth([0] * x.size, 0))
    return picked(a, at, axis, keepdim)


def _median(name, skip):
    def full(a):
        return _median_all(a, skip)

    def along(a, *, axis, keepdim):
        return _median_dim(a, axis, keepdim, skip)
    kernel(name + "_all", full)
    kernel(name + "_dim", along)


_median("median", False)
_median("nanmedian", True)


# ------------------------------------------------------------------ kthvalue, mode
@kernel("kthvalue")
def _kth(a, *, k, axis, keepdim):
    if a.ndim == 0:
        return a.copy(), np.zeros((), _I64)
    if (got := _by_rows(a, axis, keepdim, lambda x: large.scan_gather().ranked(x, large.scan_gather().PLACE, k - 1, keepdim))) is not None:
        return got
    at = np.argpartition(a, k - 1, axis=axis).take([k - 1], axis=axis)
    v = np.take_along_axis(a, at, axis)
    unsure = ((a == v).sum(axis=axis) != 1)  # count 0: the value is NaN
    at = selection.resolve_ties(a, at, axis, unsure, lambda x: selection.quick_select(selection.ranks(x).tolist(), k - 1))
    return picked(a, at, axis, keepdim)


@kernel("mode")
def _mode(a, *, axis, keepdim):
    if a.ndim == 0:
        return a.copy(), np.zeros((), _I64)
    by = np.argsort(a, axis=axis, kind="stable")
    s = np.moveaxis(np.take_along_axis(a, by, axis), axis, -1)
    n = s.shape[-1]
    position = np.arange(n)
    fresh_run = np.ones(s.shape, bool)
    fresh_run[..., 1:] = s[..., 1:] != s[..., :-1]
    length = position - np.maximum.accumulate(np.where(fresh_run, position, 0), axis=-1)
    # The first index where the longest run is complete: the last occurrence of the smallest of the
    # most frequent values.
    k = np.moveaxis(length.argmax(-1)[..., None], -1, axis)
    at = np.take_along_axis(by, k, axis)
    # Up to 16 elements std::sort is stable, unless there is a NaN, which compares equal to
    # everything.
    unsure = length.max(-1) > 0 if n > 16 else np.zeros(s.shape[:-1], bool)
    if s.dtype.kind == "f":
        unsure = unsure | (s != s).any(-1)
    return picked(a, selection.resolve_ties(a, at, axis, unsure, lambda x: selection.mode(x.tolist())), axis, keepdim)


# ------------------------------------------------------------------ quantiles
@kernel("quantile_ranks")
def _quantile_ranks(v, q, *, axis, interpolation, skip, op):
    """Computes the ranks of the quantiles q among values that are sorted along an axis.

    The ranks replace that axis, one per quantile. Returns (lower index, upper index, fraction
    between them, last index). The last three are None if the mode needs no interpolation.
    """
    if ((q < 0) | (q > 1)).any():
        raise RuntimeError(f"{op}() q values must be in the range [0, 1]")
    n = v.shape[axis]
    missing = (v != v).sum(axis=axis, keepdims=True)
    qs = q.reshape([-1 if i == axis else 1 for i in range(v.ndim)])
    last = (np.maximum(n - missing - 1, 0) if skip else np.full_like(missing, n - 1)).astype(v.dtype)
    rank = qs * last
    if not skip:
        rank = np.where(missing > 0, last, rank)
    if interpolation == "lower":
        rank = np.floor(rank)
    elif interpolation == "higher":
        rank = np.ceil(rank)
    elif interpolation == "nearest":
        rank = np.rint(rank)
    low = rank.astype(_I64)
    if interpolation not in ("linear", "midpoint"):
        return low, None, None, None
    return low, np.ceil(rank).astype(_I64), rank - low.astype(v.dtype), last
