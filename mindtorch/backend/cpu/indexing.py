"""Gathering and scattering: gather, scatter, index_*, take, nonzero, indexing with arrays.

Indices are converted to linear indices into the flattened tensor: `np.add.at` over one-dimensional
arrays takes less than 1 ns per element, over other arrays 5-50 times as long.

`check` is True if indices may be out of range. Indices that a gradient uses have already been
checked.
"""
import numpy as np

from mindtorch.backend.cpu import kernel, large
from mindtorch.backend.cpu.copies import given, writable_copy, owning

_I64, _U64 = np.dtype(np.int64), np.dtype(np.uint64)
_ALL = slice(None)
GATHER, PUT, ADD = range(3)  # as in `backend/c_kernels/scan_gather.py`


def _moved(what, a, i, dim, line):
    """True if C moved the elements by an index; C checks the indices itself.

    False if an index is out of range (some elements have been moved by then), None if there is no
    C. 16x16 takes 2.3 us, in NumPy 7 to 20 us.
    """
    return large.scan_gather().move(what, a, i, dim, line) if a.ndim and i.ndim else None


# ------------------------------------------------------------------ linear indices
def positions(shape, index, dim):
    """Returns the linear indices, into a tensor of `shape`, of the elements that gather(dim, index)
    selects.

    `index` replaces the coordinate along `dim`.
    """
    if not shape:
        return np.zeros(index.shape, _I64)
    step, out = 1, None
    for ax in range(len(shape) - 1, -1, -1):
        if ax == dim:
            part = index * step if step != 1 else index
        else:
            n = index.shape[ax]
            if n == 1:
                step *= shape[ax]
                continue
            part = np.arange(0, n * step, step, dtype=_I64).reshape((n,) + (1,) * (len(shape) - 1 - ax))
        out = part if out is None else out + part
        step *= shape[ax]
    return out if out.shape == index.shape else np.broadcast_to(out, index.shape)


def row_positions(shape, index, dim):
    """Returns the linear indices of the slices `index` (1-D) along `dim`, in the order of
    index_select's result."""
    inner = 1
    for n in shape[dim + 1:]:
        inner *= n
    outer = 1
    for n in shape[:dim]:
        outer *= n
    pos = index * inner if inner != 1 else index
    if inner != 1:
        pos = (pos[:, None] + np.arange(inner)).reshape(-1)
    if outer != 1:
        pos = (np.arange(outer)[:, None] * (shape[dim] * inner) + pos).reshape(-1)
    return pos


def accumulate(flat, pos, values, how="sum"):
    """Updates flat[pos] = how(flat[pos], values), one element after another."""
    pos, values = pos.reshape(-1), values.reshape(-1)
    if flat.dtype.kind == "b":
        {"sum": np.logical_or, "amax": np.logical_or, "prod": np.logical_and, "amin": np.logical_and}[how].at(flat, pos, values)
    elif how in ("amax", "amin") and flat.dtype.kind == "f":
        ({"amax": np.maximum, "amin": np.minimum}[how]).at(flat, pos, values)
    else:
        {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}[how].at(flat, pos, values)


_LONG = 384  # elements of a row from which adding row by row is faster


def add_rows_at(r, src, index, dim):
    """Adds r[..., index, ...] += src along `dim`, one slice after another. r and src are
    C-contiguous.

    1024 rows of 1024 into 1024 take 2500 us element by element, 600 us row by row (PyTorch 340 us);
    rows of 128 take 170 and 500 us.
    """
    if not src.size or large.scan_gather().rows(ADD, r, index if index.ndim == 1 else index.reshape(-1), dim, src):
        return
    inner = 1
    for n in r.shape[dim + 1:]:
        inner *= n
    if inner < _LONG or r.dtype.kind == "b":
        accumulate(r.reshape(-1), row_positions(r.shape, index, dim), src)
        return
    index = index.reshape(-1).tolist()
    to, of = r.reshape(-1, r.shape[dim], inner), src.reshape(-1, len(index), inner)
    add = np.add
    for block, rows in zip(to, of):
        for i, row in zip(index, rows):
            line = block[i]
            add(line, row, line)


def check_bounds(index, n, dim, negative=True, kind=IndexError, prefix=""):
    """Raises `kind` for an int64 index that is out of range for a dimension of size n."""
    if not index.size:
        return
    # argmax takes 0.15 us, max 0.8 us. As unsigned integers, negative indices are the largest.
    u = index.view(_U64)
    if u.item(u.argmax()) < n:
        return
    low = -n if negative else 0
    if not negative or index.min() < low or index.max() >= n:
        bad = index[(index >= n) | (index < low)]
        if not n and kind is IndexError:
            raise kind("index is out of bounds for dimension with size 0")
        raise kind(f"{prefix}index {int(bad.reshape(-1)[0])} is out of bounds for dimension {dim} with size {n}")


def _along(dim, item):
    """Returns the NumPy index that applies `item` to dimension `dim`."""
    return (_ALL,) * dim + (item, ...)


# ------------------------------------------------------------------ gather and scatter
def by_rows(a, i, dim, do):
    """Calls do(flat, linear indices into it, i[s:t], s, t) for pieces of a large index.

    `flat` is the piece's part of the contiguous array a. The linear indices stay in the cache:
    gather of 1000x1000 along the last dimension takes 1.5 ms, with all linear indices at once 2.0
    ms (PyTorch 0.5 ms).
    """
    def part(s, t):
        block = a if dim == 0 else a[s:t]
        do(block.reshape(-1), positions(block.shape, i[s:t], dim), i[s:t], s, t)
    large.each_rows(len(i), i.size // len(i), part)


def _corner(src, shape):
    """Returns the part of a source that an index of `shape` uses."""
    return src[tuple([slice(0, n) for n in shape])] if src.ndim == len(shape) else src.reshape(shape)


@kernel("gather")
def _gather(a, i, *, dim, check):
    r = np.empty(i.shape, a.dtype)
    if _moved(GATHER, a, i, dim, r):
        return r
    if check:
        check_bounds(i, a.shape[dim] if a.ndim else 1, dim, False, RuntimeError)
    if not a.ndim or not i.ndim:
        return a.reshape(-1)[np.zeros(i.shape, _I64)] if i.ndim or not a.ndim else a.reshape(-1)[i]
    if a.flags.c_contiguous:
        if i.size < large.LEAST:
            return a.reshape(-1).take(positions(a.shape, i, dim))
        by_rows(a, i, dim, lambda rows, at, part, s, t: rows.take(at, out=r[s:t], mode="clip"))
        return r
    cut = a[tuple([_ALL if ax == dim else slice(0, n) for ax, n in enumerate(i.shape)])]
    return np.take_along_axis(cut, i, dim)


@kernel("gather_backward")
def _gather_backward(g, i, *, size, dim):
    r = np.zeros(size, g.dtype)
    if not _moved(ADD, r, i, dim, g):
        accumulate(r.reshape(-1), positions(size, i, dim), np.ascontiguousarray(g))
    return r


def _check_given(a, i, dim, check):
    """Checks an index before an in-place op modifies memory that other code can see."""
    if check and given.array is a:
        check_bounds(i, a.shape[dim] if a.ndim else 1, dim, False, RuntimeError)


@kernel("scatter_add")
@owning
def _scatter_add(a, src, i, *, dim, check):
    _check_given(a, i, dim, check)
    r = writable_copy(a)
    done = _moved(ADD, r, i, dim, src)
    if done:
        return r
    if check:
        check_bounds(i, a.shape[dim] if a.ndim else 1, dim, False, RuntimeError)
    src = np.broadcast_to(src[tuple([slice(0, n) for n in i.shape])] if src.ndim == i.ndim else src, i.shape)
    if done is False:
        r = a.copy()
    accumulate(r.reshape(-1), positions(a.shape, i, dim), np.ascontiguousarray(src))
    return r


@kernel("scatter")
@owning
def _scatter(a, src, i, *, dim, check):
    _check_given(a, i, dim, check)
    r = writable_copy(a)
    if _moved(PUT, r, i, dim, src):
        return r
    if check:  # elements written so far are written again, or `r` is a discarded copy
        check_bounds(i, a.shape[dim] if a.ndim else 1, dim, False, RuntimeError)
    if dim and i.ndim and i.size >= large.LEAST:
        v = _corner(src, i.shape) if src.ndim else None

        def do(flat, at, part, s, t):
            flat[at] = src if v is None else v[s:t]
        by_rows(r, i, dim, do)
        return r
    r.reshape(-1)[positions(a.shape, i, dim)] = _corner(src, i.shape) if src.ndim else src
    return r


@kernel("scatter_multiply")
def _scatter_multiply(a, src, i, *, dim):
    check_bounds(i, a.shape[dim] if a.ndim else 1, dim, False, RuntimeError)
    r = a.copy()
    src = np.broadcast_to(_corner(src, i.shape) if src.ndim else src, i.shape)
    accumulate(r.reshape(-1), positions(r.shape, i, dim), np.ascontiguousarray(src), "prod")
    return r


def _extreme(d, how):
    if d.kind == "f":
        return np.inf if how == "amin" else -np.inf
    if d.kind == "b":
        return how == "amin"
    return np.iinfo(d).max if how == "amin" else np.iinfo(d).min


@kernel("scatter_reduce")
@owning
def _scatter_reduce(a, src, i, *, dim, how, include_self, check):
    if check:
        check_bounds(i, a.shape[dim] if a.ndim else 1, dim, False, RuntimeError)
    r = writable_copy(a)
    flat, pos = r.reshape(-1), positions(a.shape, i, dim)
    src = np.ascontiguousarray(_corner(src, i.shape))
    kind = a.dtype.kind
    if not include_self:
        start = {"sum": 0, "mean": 0, "prod": 1}.get(how)
        flat[pos] = _extreme(a.dtype, how) if start is None else start
    accumulate(flat, pos, src, "sum" if how == "mean" else how)
    if how == "mean":
        n = _counted(flat, pos, include_self).reshape(r.shape)
        if kind in "iu":
            return np.floor_divide(r, n.astype(r.dtype))
        r = r / n.astype(r.dtype if kind == "f" else r.real.dtype)
        return r.astype(a.dtype, copy=False)
    return r


def _counted(flat, pos, include_self):
    """Returns how many values each element has received, at least 1."""
    n = np.full(flat.shape, 1 if include_self else 0, _I64)
    np.add.at(n, pos.reshape(-1), np.ones(pos.size, _I64))
    return np.maximum(n, 1)


@kernel("scatter_count")
def _scatter_count(g, i, *, dim, include_self):
    """Returns how many values scatter_reduce combines for each element, in g's shape and dtype."""
    return _counted(g.reshape(-1), positions(g.shape, i, dim), include_self).reshape(g.shape).astype(g.dtype)


# ------------------------------------------------------------------ index_select, index_add, ...
@kernel("index_select")
def _index_select(a, i, *, dim, check):
    if a.ndim and dim == a.ndim - 1 and i.ndim and a.flags.c_contiguous:
        r = np.empty((*a.shape[:dim], i.size), a.dtype)
        if large.scan_gather().rows(GATHER, a, i, dim, r):  # (checks the indices itself)
            return r
    if a.ndim and a.size and i.ndim:
        r = large.copy_pad_grid().picked(a, i, dim, a.nbytes // a.shape[dim] * i.size)
        if r is not None and r is not False:
            return r
    if check and i.size:
        u = i.view(_U64)
        if u.item(u.argmax()) >= (a.shape[dim] if a.ndim else 1):
            raise IndexError("index out of range in self")
    if not a.ndim:
        return a.copy()
    if not i.ndim:
        i = i.reshape(1)
    return a.take(i, dim)  # copies entire rows


@kernel("index_select_backward")
def _index_select_backward(g, i, *, size, dim):
    if not size:
        return g.reshape(())
    r = np.zeros(size, g.dtype)
    add_rows_at(r, np.ascontiguousarray(g), i if i.ndim else i.reshape(1), dim)
    return r


@kernel("index_add")
@owning
def _index_add(a, src, i, *, dim, alpha):
    if alpha != 1:
        src = (src * np.array(alpha, src.dtype)).astype(src.dtype, copy=False)
    _check_given(a, i, dim, True)
    r = writable_copy(a)
    if a.ndim and i.ndim and large.scan_gather().rows(ADD, r, i, dim, np.ascontiguousarray(src)):
        return r
    check_bounds(i, a.shape[dim] if a.ndim else 1, dim, False, RuntimeError)
    if not a.ndim:
        return r + src.reshape(()) if r.dtype.kind != "b" else r | src.reshape(())
    add_rows_at(r, np.ascontiguousarray(src), i.reshape(-1), dim)
    return r


@kernel("index_copy")
@owning
def _index_copy(a, src, i, *, dim):
    check_bounds(i, a.shape[dim] if a.ndim else 1, dim, False, IndexError, "index_copy_(): ")
    r = writable_copy(a)
    if not a.ndim:
        return src.reshape(()).copy() if i.size else r
    r[_along(dim, i.reshape(-1))] = src
    return r


@kernel("index_fill")
@owning
def _index_fill(a, value, i, *, dim, check):
    if check:
        check_bounds(i, a.shape[dim] if a.ndim else 1, dim)
    r = writable_copy(a)
    if not a.ndim:
        return value.reshape(()).copy() if i.size else r
    r[_along(dim, i.reshape(-1))] = value
    return r


@kernel("unique_indices")
def _unique_indices(i, *, n):
    """Returns the distinct indices of a dimension of size n, none negative."""
    return np.unique(np.where(i < 0, i + n, i))


@kernel("index_rows")
def _index_rows(i, *, n, size, dim):
    """Converts a 1-D index into a dimension of size n to an index for scatter, of the source's
    shape `size`."""
    check_bounds(i, n, dim, False, RuntimeError)
    shape = [1] * max(len(size), 1)
    shape[dim] = i.size
    return np.broadcast_to(i.reshape(shape if size else ()), size).copy()


# ------------------------------------------------------------------ take and put
def _check_flat(name, i, n):
    """Checks indices into a flattened tensor of n elements. True if any is negative.

    Raises IndexError for an index out of range.
    """
    if not i.size:
        return False
    if not n:
        raise IndexError(f"{name}(): tried to take from an empty tensor")
    low = i.min()
    if low < -n or i.max() >= n:
        bad = i[(i >= n) | (i < -n)].reshape(-1)[0]
        raise IndexError(f"out of range: tried to access index {int(bad)} on a tensor of {n} elements.")
    return low < 0


@kernel("take")
def _take(a, i, *, check):
    if check:
        _check_flat("take", i, a.size)
    return a.reshape(-1).take(i) if i.size else np.empty(i.shape, a.dtype)


@kernel("take_backward")
def _take_backward(g, i, *, size):
    r = np.zeros(size, g.dtype)
    accumulate(r.reshape(-1), i, np.ascontiguousarray(g))
    return r


@kernel("put_indices")
def _put_indices(i, *, n):
    """Returns indices into a flattened tensor of n elements as a 1-D array, none negative."""
    i = i.reshape(-1)
    return np.where(i < 0, i + n, i) if _check_flat("put_", i, n) else i.copy()


@kernel("take_along_indices")
def _take_along_indices(i, *, n, size):
    """Returns indices into a dimension of size n, broadcast to `size`, none negative."""
    if i.shape != size:
        i = np.broadcast_to(i, size)
    # 256x256: 20 us, with remainders 130 us
    if not n or not i.size or (u := i.view(_U64)).item(u.argmax()) < n:
        return i.copy()
    return i % n


# ------------------------------------------------------------------ indexing with arrays
def worded(ndim, key, e):
    """Returns PyTorch's error for an index that NumPy rejected. `key` is a tuple."""
    if not ndim:
        if any([k.__class__ is slice for k in key]):
            return IndexError("slice() cannot be applied to a 0-dim tensor.")
        return IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in "
                          "C++ to convert a "
                          "0-dim tensor to a number")
    text = str(e)
    if text.startswith("too many indices"):
        return IndexError(f"too many indices for tensor of dimension {ndim}")
    return IndexError(text.replace("axis", "dimension").replace("indexing arrays", "indexing tensors"))


def key_of(indices, dims):
    """Returns a NumPy index with the arrays at the given dims (ascending), full slices before and
    between them."""
    if len(dims) == dims[-1] + 1:
        return tuple(indices)
    key = [_ALL] * (dims[-1] + 1)
    for d, i in zip(dims, indices):
        key[d] = i
    return tuple(key)


def _index(a, *indices, dims):
    try:
        if dims == (0,) and a.flags.c_contiguous:
            return a.take(indices[0], 0)
        if len(dims) == 1 and a.flags.c_contiguous and a.size:
            # 1024x1024 columns of float32 take 1.9 ms in NumPy, 0.7 ms in C.
            i, d = indices[0], dims[0]
            n, many = a.shape[d], a.size // a.shape[d] * i.size
            if many >= large.FEW:
                j = np.where(i < 0, i + n, i) if i.min() < 0 else i
                r = np.empty((*a.shape[:d], *i.shape, *a.shape[d + 1:]), a.dtype)
                if large.scan_gather().rows(GATHER, a, j.reshape(-1), d, r):
                    return r
        r = a[key_of(indices, dims)]
    except IndexError as e:
        if 0 in [a.shape[d] for d in dims]:
            raise IndexError("index is out of bounds for dimension with size 0") from None
        raise worded(a.ndim, (), e) from None
    if a.flags.c_contiguous and not r.flags.c_contiguous:
        return np.ascontiguousarray(r)
    return r


def _index_backward(g, *indices, size, dims):
    return _added(lambda: np.zeros(size, g.dtype), indices, dims, g)


def _added(fresh, indices, dims, values):
    """Returns fresh() with `values` added at `indices`."""
    r, i, d = fresh(), indices[0], dims[0]
    if len(dims) == 1 == i.ndim and values.shape == r.shape[:d] + i.shape + r.shape[d + 1:]:
        done = large.scan_gather().rows(ADD, r, i, d, np.ascontiguousarray(values))
        if done:
            return r
        if done is False:  # an index is negative or out of range
            r = fresh()
    _add_at(r, indices, dims, values)
    return r


def _add_at(r, indices, dims, values):
    """Adds r[indices] += values; values at repeated indices are summed."""
    try:
        if len(dims) == dims[-1] + 1 and r.flags.c_contiguous:
            # All index arrays come first: compute linear indices of the indexed blocks in the flat
            # tensor.
            inner = 1
            for n in r.shape[len(dims):]:
                inner *= n
            pos = None
            for d, (i, n) in enumerate(zip(indices, r.shape)):
                check_bounds(i, n, d)
                i = np.where(i < 0, i + n, i) if i.size and i.min() < 0 else i
                pos = i if pos is None else pos * n + i
            shape = pos.shape + r.shape[len(dims):]
            full = np.ascontiguousarray(values if values.shape == shape else np.broadcast_to(values, shape))
            if full.size and large.scan_gather().rows(ADD, r.reshape(-1, inner), pos.reshape(-1), 0, full.reshape(-1, inner)):
                return
            if inner != 1:
                pos = pos.reshape(-1, 1) * inner + np.arange(inner)
            accumulate(r.reshape(-1), pos, full)
        elif len(dims) == 1 and r.flags.c_contiguous and r.dtype.kind != "b":
            i, d = indices[0], dims[0]
            check_bounds(i, r.shape[d], d)
            i = np.where(i < 0, i + r.shape[d], i) if i.size and i.min() < 0 else i
            shape = r.shape[:d] + i.shape + r.shape[d + 1:]
            full = np.ascontiguousarray(values if values.shape == shape else np.broadcast_to(values, shape))
            add_rows_at(r, full if i.ndim == 1 else full.reshape(r.shape[:d] + (i.size,) + r.shape[d + 1:]), i.reshape(-1), d)
        elif r.dtype.kind == "b":
            np.logical_or.at(r, key_of(indices, dims), values)
        else:
            np.add.at(r, key_of(indices, dims), values)
    except IndexError as e:
        raise worded(r.ndim, (), e) from None


@owning
def _index_put(a, values, *indices, dims):
    r = writable_copy(a)
    put(r, values, *indices, dims=dims)
    return r


@kernel("put")
def put(a, values, *indices, dims):
    """Assigns a[indices] = values."""
    try:
        a[key_of(indices, dims)] = values
    except IndexError as e:
        raise worded(a.ndim, (), e) from None


def _index_put_add(a, values, *indices, dims):
    return _added(a.copy, indices, dims, values)


# Register one kernel of each kind per number of index arrays (NumPy has at most 32 dimensions).
for _n in range(1, 33):
    kernel(f"index_{_n}", _index)
    kernel(f"index_backward_{_n}", _index_backward)
    kernel(f"index_put_{_n}", _index_put)
    kernel(f"index_put_add_{_n}", _index_put_add)


# ------------------------------------------------------------------ nonzero
def _where(a):
    if a.dtype.kind == "V":
        a = a.astype(np.float32)
    return (a.reshape(1) if not a.ndim else a).nonzero()


def _found(a, apart=False):
    """Calls `along.nonzero` with an array of any dtype.

    For 65536 bools, half of them True, NumPy takes 1.4 times PyTorch's time, and as long again to
    combine the rows.
    """
    return large.scan_gather().nonzero(a if a.dtype.kind == "b" else (a.astype(np.float32) if a.dtype.kind == "V" else a).astype(np.bool_), apart)


@kernel("nonzero")
def _nonzero(a):
    # PyTorch's result is the transpose of an array with one row per dimension.
    if (r := _found(a, True)) is not None:
        return r.T if r.size else _none_found(a.ndim)
    where = _where(a)
    if not where[0].size:
        return _none_found(a.ndim)
    return np.stack(where).T if a.ndim else np.zeros((where[0].size, 0), _I64)


def _none_found(ndim):
    """Returns the transpose of rows without elements. All rows have the same address (stride 0)."""
    return np.ndarray((0, ndim), _I64, np.empty(1, _I64), 0, (8, 0))


@kernel("nonzero_tuple mask_indices")
def _mask_indices(mask):
    """Like `_nonzero`, with one contiguous array per dimension."""
    if (r := _found(mask, True)) is not None:
        return tuple(r)
    where = _where(mask)
    return where if len(where) == 1 else tuple([np.ascontiguousarray(i) for i in where])


@kernel("nonzero_static")
def _nonzero_static(a, *, size, fill_value):
    rows = _nonzero(a)
    out = np.full((size, rows.shape[1]), fill_value, _I64)
    n = min(size, rows.shape[0])
    out[:n] = rows[:n]
    return out


@kernel("unravel_index")
def _unravel_index(a, *, size):
    out = []
    for n in reversed(size):
        out.append(np.asarray(a % n))
        a = np.asarray(a // n)
    return tuple(reversed(out))


def classes_of(a, num_classes):
    """Returns the number of classes of one_hot: `num_classes`, or for -1 the largest class + 1.

    Raises RuntimeError for classes out of range.
    """
    if a.min() < 0:
        raise RuntimeError("Class values must be non-negative.")
    top = int(a.max()) + 1
    if num_classes == -1:
        return top
    if num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    if top > num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return num_classes


@kernel("one_hot")
def _one_hot(a, *, num_classes):
    num_classes = classes_of(a, num_classes)
    r = np.zeros((a.size, num_classes), _I64)
    r[np.arange(a.size), a.reshape(-1)] = 1
    return r.reshape(*a.shape, num_classes)
