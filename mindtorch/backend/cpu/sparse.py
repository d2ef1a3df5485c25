"""Kernels on coordinates of sparse COO tensors: int64 arrays (sparse dims, elements)."""
import numpy as np

from mindtorch.backend.cpu import kernel

_I64 = np.dtype(np.int64)


# ------------------------------------------------------------------ coordinates and positions
@kernel("coo_keys")
def _keys(idx, *, sizes):
    """Positions of coordinates in an array of these sizes, flattened."""
    keys = np.zeros(idx.shape[1], _I64)
    for row, n in zip(idx, sizes):
        keys *= n
        keys += row
    return keys


@kernel("coo_merged")
def _merged(idx, *, sizes):
    """(the coordinates there are, once and in order; which of them each element has)."""
    keys, at = np.unique(_keys(idx, sizes=sizes), return_inverse=True)
    r = np.empty((len(sizes), keys.size), _I64)
    for i in range(len(sizes) - 1, -1, -1):
        keys, r[i] = np.divmod(keys, max(sizes[i], 1))
    return r, at.reshape(-1)


@kernel("coo_rows")
def _rows(idx, *, dims):
    """The coordinates in some dimensions."""
    return np.ascontiguousarray(idx[list(dims)])


@kernel("coo_at")
def _at(idx, *, dim, index):
    """Which elements lie at an index of a dimension."""
    return np.flatnonzero(idx[dim] == index)


@kernel("coo_unique")
def _unique(keys):
    """(the positions there are, in order; which of them each element has)."""
    found, at = np.unique(keys, return_inverse=True)
    return found, at.reshape(-1)


@kernel("coo_common")
def _common(a, b):
    """Positions, each there once, that two tensors share: (where they are in a, in b)."""
    _, i, j = np.intersect1d(a, b, assume_unique=True, return_indices=True)
    return i, j


@kernel("coo_paired")
def _paired(a, b):
    """Two lists of positions walked through side by side, the smaller one first, equal ones together.

    (For each place of the result one element of a + b that has it; the place of each element of a + b.)
    """
    left, right, n, m = a.tolist(), b.tolist(), a.size, b.size
    first, at = [], [0] * (n + m)
    i = j = 0
    while i < n or j < m:
        from_a = j >= m or i < n and left[i] <= right[j]
        from_b = i >= n or j < m and right[j] <= left[i]
        place = len(first)
        first.append(i if from_a else n + j)
        if from_a:
            at[i] = place
            i += 1
        if from_b:
            at[n + j] = place
            j += 1
    return np.array(first, _I64), np.array(at, _I64)


# ------------------------------------------------------------------ construction
def _check(idx, size):
    for d, (row, n) in enumerate(zip(idx, size)):
        if row.size:
            if row.min() < 0:
                raise RuntimeError(f"found negative index {row.min()} for dim {d}")
            if row.max() >= n:
                raise RuntimeError(f"size is inconsistent with indices: for dim {d}, size is {n} but found index {row.max()}")


@kernel("coo_extents")
def _extents(idx):
    """The smallest sizes that hold the coordinates."""
    idx = idx.astype(_I64)
    size = idx.max(axis=1) + 1
    if idx.size and idx.min() < 0:
        _check(idx, size)
    return size


@kernel("coo_indices")
def _indices(idx, *, size):
    """A copy of coordinates that lie inside the size."""
    idx = np.array(idx, _I64, order="C")
    _check(idx, size)
    return idx


@kernel("coo_nonzero")
def _nonzero(a, *, sparse_dim):
    """Where a dense tensor has elements, or blocks of the trailing dimensions, that are not zero."""
    hit = a != 0
    if sparse_dim < a.ndim:
        hit = hit.any(axis=tuple(range(sparse_dim, a.ndim)))
    return np.array(np.nonzero(hit), _I64) if a.ndim else np.empty((0, int(hit)), _I64)


# ------------------------------------------------------------------ values
@kernel("coo_any")
def _any(a, at, *, count):
    """Bools added up by position."""
    r = np.zeros((count, *a.shape[1:]), a.dtype)
    np.logical_or.at(r, at, a)
    return r


@kernel("coo_group_max")
def _group_max(a, group, *, count):
    """To each element the largest of its group."""
    top = np.full((count, *a.shape[1:]), -np.inf, a.dtype)
    np.maximum.at(top, group, a)
    return top[group]


@kernel("coo_matmul")
def _matmul(a, b):
    """Coordinates of two matrices, b's in order: (which elements of a and of b are to be multiplied, where the products belong)."""
    starts = np.searchsorted(b[0], a[1], "left")
    counts = np.searchsorted(b[0], a[1], "right") - starts
    i = np.repeat(np.arange(counts.size), counts)
    j = np.arange(i.size) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(starts, counts)
    return i, j, np.stack((a[0][i], b[1][j])).reshape(2, -1)


@kernel("coo_add_")
def _add_(a, idx, v, *, alpha):
    """a += alpha * the sparse tensor, each of whose places is there once."""
    place = tuple(idx)
    old = a[place]
    if a.dtype.kind == "V":
        old = old.astype(np.float32)
    if v.dtype.kind == "V":
        v = v.astype(np.float32)
    a[place] = (old + v * type(v.reshape(-1)[:1].sum())(alpha)).astype(a.dtype)
