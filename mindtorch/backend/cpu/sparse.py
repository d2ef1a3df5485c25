"""Kernels of sparse tensors; the coordinates of COO are int64 arrays (sparse dims, elements)."""
import math

import numpy as np

from mindtorch.backend.cpu import kernel, large
from mindtorch.backend.cpu.host import quiet

_I64 = np.dtype(np.int64)


# ------------------------------------------------------------------ coordinates and positions
@kernel("coo_keys")
def _keys(idx, *, sizes):
    """Returns the flat positions of coordinates in an array of these sizes."""
    keys = np.zeros(idx.shape[1], _I64)
    for row, n in zip(idx, sizes):
        keys *= n
        keys += row
    return keys


def _counted(x, n):
    """Sorts integers below n. Returns (start of each value in the sorted order, sorting indices).

    This is a counting sort: a row with all the elements is converted to columns.
    """
    from scipy.sparse import csr_array
    turned = csr_array((np.arange(x.size), x, np.array([0, x.size])), shape=(1, n)).tocsc()
    return turned.indptr.astype(_I64, copy=False), turned.data.astype(_I64, copy=False)


def _distinct(keys, order=None):
    """Returns (index of the first of each distinct key, in order; index of the distinct key of each
    element).

    100,000 keys take 7 ms (np.unique 10 ms), and 0.9 ms if they are in order (9 ms). Twice as many,
    in two halves that are each in order, take 3 ms (18 ms).
    """
    if keys.size < 2:
        return np.arange(keys.size), np.zeros(keys.size, _I64)
    if order is None:
        order = np.argsort(keys, kind="stable")
    there = keys[order]
    new = np.empty(keys.size, bool)
    new[0] = True
    np.not_equal(there[1:], there[:-1], out=new[1:])
    at = np.empty(keys.size, _I64)
    at[order] = np.cumsum(new) - 1
    return order[new], at


@kernel("coo_merged")
def _merged(idx, *, sizes):
    """Returns (distinct coordinates in order; for each element the index of its own)."""
    keys, order = _keys(idx, sizes=sizes), None
    if len(sizes) == 2 and keys.size > 1000 and max(sizes) < 4 * keys.size and np.count_nonzero(keys[1:] < keys[:-1]) > 16:
        order = _counted(idx[1], sizes[1])[1]
        order = order[_counted(idx[0][order], sizes[0])[1]]
    first, at = _distinct(keys, order)
    return np.ascontiguousarray(idx[:, first]), at


@kernel("coo_rows")
def _rows(idx, *, dims):
    """Returns the coordinates in some dimensions."""
    return np.ascontiguousarray(idx[list(dims)])


@kernel("coo_at")
def _at(idx, *, dim, index):
    """Returns the elements at an index of a dimension."""
    return np.flatnonzero(idx[dim] == index)


@kernel("coo_picked")
def _picked(idx, index, *, dim, extent):
    """Returns (elements at indices of a dimension, one index after the other; position in `index`
    of each)."""
    if index.size and (index.min() < -extent or index.max() >= extent):
        found = index.min() if index.min() < -extent else index.max()
        raise IndexError(f"index_select(): index contains {found} that is out of range for a dimension of {extent}")
    index = np.where(index < 0, index + extent, index)
    order = np.argsort(idx[dim], kind="stable")
    there = idx[dim][order]
    starts = np.searchsorted(there, index, "left")
    counts = np.searchsorted(there, index, "right") - starts
    source = np.repeat(np.arange(index.size), counts)
    return order[np.arange(source.size) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(starts, counts)], source


@kernel("coo_unique")
def _unique(keys):
    """Returns (distinct positions in order; index of the distinct position of each element)."""
    first, at = _distinct(keys)
    return keys[first], at


@kernel("coo_common")
def _common(a, b):
    """Returns the positions that two tensors share as (indices in a, indices in b). a and b have no
    duplicates."""
    _, i, j = np.intersect1d(a, b, assume_unique=True, return_indices=True)
    return i, j


@kernel("coo_paired")
def _paired(a, b):
    """Merges two lists of positions in one traversal, the smaller one first, equal ones together.

    Returns (one element of a + b for each position of the result; position in the result of each
    element of a + b).
    """
    left, right, n, m = a.tolist(), b.tolist(), a.size, b.size
    first, at = [], [0] * (n + m)
    i = j = 0
    while i < n or j < m:
        from_a = j >= m or i < n and left[i] <= right[j]
        from_b = i >= n or j < m and right[j] <= left[i]
        slot = len(first)
        first.append(i if from_a else n + j)
        if from_a:
            at[i] = slot
            i += 1
        if from_b:
            at[n + j] = slot
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
    """Returns the smallest sizes that hold the coordinates."""
    idx = idx.astype(_I64)
    size = idx.max(axis=1) + 1
    if idx.size and idx.min() < 0:
        _check(idx, size)
    return size


@kernel("coo_indices")
def _indices(idx, *, size):
    """Returns a copy of the coordinates. Raises RuntimeError if they are outside `size`."""
    idx = np.array(idx, _I64, order="C")
    _check(idx, size)
    return idx


@kernel("coo_nonzero")
def _nonzero(a, *, sparse_dim):
    """Returns the coordinates of nonzero elements, or of nonzero blocks of the trailing dimensions,
    of a dense tensor."""
    hit = a != 0
    if sparse_dim < a.ndim:
        hit = hit.any(axis=tuple(range(sparse_dim, a.ndim)))
    return np.array(np.nonzero(hit), _I64) if a.ndim else np.empty((0, int(hit)), _I64)


# ------------------------------------------------------------------ values
@kernel("coo_any")
def _any(a, at, *, count):
    """Combines bools at the same position by logical or."""
    r = np.zeros((count, *a.shape[1:]), a.dtype)
    np.logical_or.at(r, at, a)
    return r


@kernel("coo_group_max")
def _group_max(a, group, *, count):
    """Returns for each element the maximum of its group."""
    top = np.full((count, *a.shape[1:]), -np.inf, a.dtype)
    np.maximum.at(top, group, a)
    return top[group]


@kernel("coo_add_")
def _add_(a, idx, v, *, alpha, once):
    """Computes a += alpha * the sparse tensor.

    `once`: no coordinates repeat. Otherwise repeated elements are added one after another.
    """
    if a.dtype.kind == "f" and a.size and a.flags.c_contiguous and v.flags.c_contiguous:
        # One multiply-add per term, as in PyTorch. 1024 rows of 64 with repeats take 14 us, by
        # unique positions 190 us (PyTorch 45 us).
        sizes = a.shape[:len(idx)]
        rows = np.ascontiguousarray(idx[0]) if len(sizes) == 1 else _keys(idx, sizes=sizes)
        if large.scan_gather().add_to_rows(a.reshape(math.prod(sizes), -1), rows, v, float(alpha)):
            return
    alpha = type(v.reshape(-1)[:1].sum())(alpha) if v.dtype.kind != "V" else np.float32(alpha)
    if once:
        _add_distinct(a, idx, v, alpha)
    elif a.dtype == np.float32:
        # The first elements of all positions, then the second ones, and so on: no position repeats
        # within a turn.
        keys = _keys(idx, sizes=a.shape[:len(idx)])
        order = np.argsort(keys, kind="stable")
        line = np.arange(keys.size)
        turn = line - np.maximum.accumulate(np.where(np.diff(keys[order], prepend=-1) != 0, line, 0))
        by_turn = order[np.argsort(turn, kind="stable")]
        for part in np.split(by_turn, np.cumsum(np.bincount(turn))[:-1]) if keys.size else ():
            _add_distinct(a, idx[:, part], v[part], alpha)
    else:
        np.add.at(a, tuple(idx), v * alpha)


def _add_distinct(a, idx, v, alpha):
    """Like `_add_`, for coordinates that do not repeat. float32 is rounded once, as with a
    multiply-add."""
    index = tuple(idx)
    # 1000 rows of 64: 8 us, by a[place] 17 us
    old = a.take(idx[0], axis=0) if len(idx) == 1 else a[index]
    if a.dtype.kind == "V":
        old = old.astype(np.float32)
    if v.dtype.kind == "V":
        v = v.astype(np.float32)
    if a.dtype == np.float32:
        old, v, alpha = old.astype(np.float64), v.astype(np.float64), np.float64(alpha)
    a[index] = (old + v * alpha).astype(a.dtype, copy=False)


# ------------------------------------------------------------------ compressed layouts
@kernel("compressed_to_coo_indices")
def _places(ptr, ind, *, columns, block):
    """Returns (coordinates (batch dims + 2, n) of the elements; whether they are unique and in
    order).

    The elements of a block follow one another.
    """
    batch, nnz = ind.shape[:-1], ind.shape[-1]
    n = int(np.prod(batch, dtype=int))
    ptr, ind = ptr.reshape(n, -1), ind.reshape(n, nnz)
    line = np.arange(ptr.shape[1] - 1)
    major = np.repeat(line if n == 1 else np.tile(line, n), np.diff(ptr, axis=1).reshape(-1))
    minor = ind.reshape(-1).astype(_I64, copy=False)
    idx = [*np.unravel_index(np.repeat(np.arange(n), nnz), batch)] if batch else []
    b0, b1 = block
    rows = [minor, major] if columns else [major, minor]
    if (b0, b1) != (1, 1):
        inner = np.arange(b0 * b1)
        idx = [np.repeat(i, b0 * b1) for i in idx]
        rows = [(rows[0][:, None] * b0 + inner // b1).reshape(-1), (rows[1][:, None] * b1 + inner % b1).reshape(-1)]
    indices = np.array([*idx, *rows], _I64).reshape(len(batch) + 2, -1)
    ordered = not columns and (b0, b1) == (1, 1)
    if ordered:
        # falls are few: at most one per row if all is in order
        falls = np.flatnonzero(minor[1:] <= minor[:-1])
        ordered = bool(((major[falls + 1] != major[falls]) | ((falls + 1) % max(nnz, 1) == 0)).all())
    return indices, np.array(ordered)


@kernel("compressed_packed")
def _packed(idx, *, batch, major, columns):
    """Packs unique coordinates (batch dims + 2, n) by the rows or columns of each matrix.

    Returns (start of each row or column; the other coordinate; sorting indices, empty if the
    coordinates are already sorted).
    """
    n = int(np.prod(batch, dtype=int))
    outer, inner = (idx[-1], idx[-2]) if columns else (idx[-2], idx[-1])
    line = np.ravel_multi_index(tuple(idx[:-2]), batch) * major + outer if len(batch) else outer
    order = np.empty(0, _I64)
    falls = np.flatnonzero(inner[1:] <= inner[:-1])
    if not ((line[1:] >= line[:-1]).all() and (line[falls + 1] > line[falls]).all()):
        order = np.lexsort((inner, line))
        inner = inner[order]
    counts = np.bincount(line, minlength=n * major).reshape(n, major)
    per = counts.sum(axis=1)
    if n and (per != per[0]).any():
        raise RuntimeError("Expect the same number of specified elements per batch.")
    ptr = np.zeros((n, major + 1), _I64)
    np.cumsum(counts, axis=1, out=ptr[:, 1:])
    return ptr.reshape(*batch, major + 1), np.ascontiguousarray(inner).reshape(*batch, int(per[0]) if n else 0), order


@kernel("compressed_invariants")
def _invariants(ptr, ind, *, minor, names, sorted):
    """Raises RuntimeError if the index arrays are inconsistent.

    `sorted`: also if the indices are not in order or repeat.
    """
    nnz = ind.shape[-1]
    p, i = ptr.reshape(-1, ptr.shape[-1]), ind.reshape(-1, nnz) if nnz else np.zeros((0, 0), _I64)
    extent = "nrows" if names[1] == "row" else "ncols"
    if (p[:, 0] != 0).any():
        raise RuntimeError(f"`{names[0]}_indices[..., 0] == 0` is not satisfied.")
    if (p[:, -1] != nnz).any():
        raise RuntimeError(f"`{names[0]}_indices[..., -1] == nnz` is not satisfied.")
    if (np.diff(p, axis=1) < 0).any() or (np.diff(p, axis=1) > minor).any() and sorted:
        raise RuntimeError(f"`0 <= {names[0]}_indices[..., 1:] - {names[0]}_indices[..., :-1] <= {extent}` is not satisfied.")
    if i.size and (i.min() < 0 or i.max() >= minor):
        raise RuntimeError(f"`0 <= {names[1]}_indices < {extent}` is not satisfied.")
    if sorted and nnz > 1:
        for line, at in zip(p, i):
            first = np.zeros(nnz + 1, bool)
            first[line] = True
            if not ((np.diff(at) > 0) | first[1:-1]).all():
                raise RuntimeError(f"`{names[1]}_indices[..., {names[0]}_indices[..., i - 1]:{names[0]}_indices[..., i]] for all i = 1, ..., "
                                   f"{'ncols' if extent == 'nrows' else 'nrows'} are sorted and distinct along the last dimension values` is not satisfied.")
    return np.zeros(0, _I64)


# ------------------------------------------------------------------ products
@kernel("coo_by_rows")
def _by_rows(idx, *, rows):
    """Sorts the coordinates of a matrix by rows.

    Returns (start of each row; columns; sorting indices, empty if the coordinates are already
    sorted).
    """
    row, col = idx
    if row.size < 2 or (row[1:] >= row[:-1]).all():
        ptr = np.zeros(rows + 1, _I64)
        np.cumsum(np.bincount(row, minlength=rows), out=ptr[1:])
        return ptr, np.ascontiguousarray(col), np.empty(0, _I64)
    ptr, order = _counted(row, rows)
    return ptr, col[order], order


@kernel("sparse_mm")
@quiet
def _product(v, ptr, ind, b, *, rows, ta):
    """Multiplies the matrix (its transpose, of `rows` rows, if `ta`) by a dense one.

    10,000 x 10,000 with 100,000 elements, times 128 columns, float32, one thread, ms of CPU time
    (PyTorch 2.13): CSR 2.9 (2.8), COO 2.9 (4.8), dense @ CSR 3.5 (18.6), COO with the dense
    operand's gradient 7.5 (12.8), CSR with the gradient of its values 10.8 (650). This is scipy's
    kernel; np.add.reduceat of the gathered rows takes 134 ms, np.add.at 115 ms.
    """
    from scipy.sparse import csc_array, csr_array
    if v.dtype.kind == "b":
        raise NotImplementedError("\"addmm_sparse_dense\" not implemented for 'Bool' on device cpu")
    if ta:
        return np.ascontiguousarray(csc_array((v, ind, ptr), shape=(rows, b.shape[0])) @ b)
    return np.ascontiguousarray(csr_array((v, ind, ptr), shape=(ptr.size - 1, b.shape[0])) @ b)


_PIECE = 1 << 17  # elements that are gathered at a time, so that they stay in the cache


@kernel("sparse_dots")
@quiet
def _dots(a, b, ptr, ind):
    """Returns for each element of the matrix the dot product of its row of `a` and its column's row
    of `b`."""
    row = np.repeat(np.arange(ptr.size - 1), np.diff(ptr))
    r = np.empty(ind.size, a.dtype)
    step = max(_PIECE // max(a.shape[1], 1), 1)
    for i in range(0, ind.size, step):
        np.einsum("kf,kf->k", a.take(row[i:i + step], axis=0), b.take(ind[i:i + step], axis=0), out=r[i:i + step])
    return r


@kernel("sparse_top")
@quiet
def _top(v, ptr, ind, b, *, largest):
    """Returns for each row and column of the product the element with the largest (smallest) term.

    It is the first of several, and -1 where there is none.
    """
    if v.dtype.kind == "V" or v.dtype.itemsize == 2:
        v, b = v.astype(np.float32), b.astype(np.float32)
    # The first element of each row, then the second ones, and so on, longest rows first and some
    # rows at a time. 10,000 rows of 10 elements with 128 columns take 45 ms; all rows at once 90
    # ms, np.maximum.reduceat and a search for its result 230 ms.
    counts = np.diff(ptr)
    order = np.argsort(-counts, kind="stable")
    starts, lengths = ptr[:-1][order], counts[order]
    nans = b.dtype.kind in "fc" and not (np.isfinite(v).all() and np.isfinite(b).all())
    r = np.full((order.size, b.shape[1]), -1, _I64)
    pick, step = np.maximum if largest else np.minimum, 512
    for lo in range(0, order.size, step):
        first, here = starts[lo:lo + step], lengths[lo:lo + step]
        best = at = None
        # number of rows with more than 0, 1, ... elements
        with_more = np.searchsorted(-here, -np.arange(here[0]), "left")
        for k, m in enumerate(with_more.tolist()):
            e = first[:m] + k
            terms = b.take(ind[e], axis=0)
            terms *= v[e, None]
            if best is None:
                best, at = terms, np.zeros(terms.shape, np.int32)
                continue
            better = terms > best[:m] if largest else terms < best[:m]
            if nans:
                better |= np.isnan(terms) & ~np.isnan(best[:m])
            pick(best[:m], terms, out=best[:m])
            np.putmask(at[:m], better, k)
        if at is not None:
            r[order[lo:lo + len(at)]] = at + first[:len(at), None]
    return r


@kernel("sparse_matmul")
@quiet
def _sparse_product(va, pa, ia, vb, pb, ib, *, cols):
    """Multiplies two matrices by rows. Returns (values, start of each row, columns), in order."""
    from scipy.sparse import csr_array
    if va.dtype.kind == "b":
        raise NotImplementedError("the product of sparse tensors is not implemented for dtype torch.bool on device cpu")
    sizes = (pa.size - 1, pb.size - 1), (pb.size - 1, cols)
    r = csr_array((va, ia, pa), shape=sizes[0]) @ csr_array((vb, ib, pb), shape=sizes[1])
    # scipy omits elements whose terms cancel out; PyTorch does not.
    there = csr_array((np.ones(va.size, bool), ia, pa), shape=sizes[0]) @ csr_array((np.ones(vb.size, bool), ib, pb), shape=sizes[1])
    r.sort_indices()
    ptr, ind, v = [x.astype(_I64, copy=False) for x in (r.indptr, r.indices)] + [r.data]
    if there.nnz != r.nnz:
        there.sort_indices()
        lines = [np.repeat(np.arange(sizes[0][0]), np.diff(x.indptr)) * cols + x.indices for x in (there, r)]
        v = np.zeros(there.nnz, r.data.dtype)
        v[np.searchsorted(*lines)] = r.data
        ptr, ind = there.indptr.astype(_I64, copy=False), there.indices.astype(_I64, copy=False)
    return v, ptr, ind


@kernel("sparse_terms")
def _terms(pa, ia, pb, ib, pc, ic, *, cols):
    """Returns the terms of a product of two matrices by rows.

    They are (element of the first, element of the second, element of the product). The product is
    in order.
    """
    counts = np.diff(pb)[ia]
    i = np.repeat(np.arange(ia.size), counts)
    j = np.arange(i.size) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(pb[:-1][ia], counts)
    row = np.repeat(np.arange(pa.size - 1), np.diff(pa))
    line = np.repeat(np.arange(pc.size - 1), np.diff(pc))
    return i, j, np.searchsorted(line * cols + ic, row[i] * cols + ib[j])
