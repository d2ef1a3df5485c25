"""Kernels of embedding and embedding_bag."""
import numpy as np

from mindtorch.backend.cpu import kernel, large
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.reduction import vector_norm

_I64, _U64 = np.dtype(np.int64), np.dtype(np.uint64)


def _out_of_range():
    return IndexError("index out of range in self")


def _check(index, rows):
    if index.size and (index.min() < 0 or index.max() >= rows):
        raise _out_of_range()


# ------------------------------------------------------------------ embedding
@kernel("embedding embedding_sparse")
def _lookup(w, index, *, padding, by_freq):
    r = large.copy_pad_grid().picked(w, index, 0, index.size * w[:1].nbytes)
    if r is not None:
        if r is False:
            raise _out_of_range()
        return r
    if index.size and index.min() < 0:
        raise _out_of_range()
    try:
        return w.take(index, axis=0)
    except IndexError:
        raise _out_of_range() from None


@quiet
def embedding_grad(g, index, count):
    """Adds the rows of g (K, D) into zeros (count, D) at `index`.

    256 rows of 128 into 1000 rows: add.at over single elements 44, over rows 168, scipy.sparse
    product 40, a loop 121, sort and reduceat 106, one-hot product 383. MindSpore's
    UnsortedSegmentSum takes 23, but its threads then spin for 6 ms and compete with OpenBLAS's: the
    next matrix products take twice as long.
    """
    d = g.shape[1]
    if g.size:
        out = np.zeros((count, d), g.dtype)
        if large.scan_gather().rows(2, out, index, 0, g):
            return out
    if d >= 384:
        # Row by row, 1024 rows of 1024 take 600 us; element by element 2500 us.
        out, add = np.zeros((count, d), g.dtype), np.add
        for i, row in zip(index.tolist(), g):
            line = out[i]
            add(line, row, line)
        return out
    out = np.zeros(count * d, g.dtype)
    np.add.at(out, (index[:, None] * d + np.arange(d)).reshape(-1), g.reshape(-1))
    return out.reshape(count, d)


@kernel("embedding_dense_backward")
def _lookup_grad(g, index, *, padding, by_freq, rows):
    flat = index.reshape(-1)
    g2 = np.ascontiguousarray(g).reshape(flat.size, g.shape[-1])
    if by_freq and flat.size:
        count = np.bincount(flat, minlength=rows)
        g2 = g2 / count[flat][:, None].astype(g.dtype)
    r = embedding_grad(g2, flat, rows)
    if padding >= 0:
        r[padding] = 0
    return r


@kernel("embedding_scale")
def _scale(index, *, padding, by_freq, rows, np_dtype):
    """Returns the weight of each looked-up row in the gradient.

    It is 0 for the padding index. With `by_freq`, it is 1 / (number of occurrences of the row).
    """
    scale = np.ones(index.shape + (1,), np.float32)
    if by_freq:
        scale /= np.bincount(index.reshape(-1), minlength=rows)[index][..., None]
    if padding >= 0:
        scale[index == padding] = 0
    return scale.astype(np_dtype)


@kernel("indices_not_equal")
def _indices_not_equal(index, *, value):
    return np.flatnonzero(index != value)


@kernel("embedding_renorm_")
def _renorm(w, index, *, max_norm, norm_type):
    """Scales the rows at `index` in place down to norm `max_norm` if they exceed it."""
    _check(index, w.shape[0])
    rows = np.unique(index)
    low = w.dtype.itemsize == 2
    r = w[rows].astype(np.float32) if low else w[rows]
    n = vector_norm(r, p=norm_type, axes=(1,), keepdim=False)
    long = n > max_norm
    if long.any():
        w[rows[long]] = (r[long] * (max_norm / (n[long] + 1e-7))[:, None].astype(r.dtype)).astype(w.dtype)
    return w


# ------------------------------------------------------------------ embedding_bag
@kernel("embedding_bag_indices")
def _bag_indices(index, offsets, *, rows, include_last, padding, divisor):
    """Computes the bags of an embedding_bag.

    Returns (indices without padding, the bag of each of them, the bag of every index, bag sizes,
    positions of the indices without padding, divisors). The positions are None if there is no
    padding index. The divisors are for means and have dtype `divisor`; they are None if `divisor`
    is. Without offsets every row is a bag. `include_last` is True if the last offset ends the last
    bag, and "open" if that offset exists but the last bag extends to the end.
    """
    # (a third of the time of min and max)
    inside = index.size and index.dtype == _I64 and (u := index.view(_U64)).item(u.argmax()) < rows
    for i in (index.min(), index.max()) if index.size and not inside else ():
        if not 0 <= i < rows:
            raise RuntimeError(f"embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {i}")
    if offsets is None and padding < 0:
        bags, each = index.shape
        bag, sizes, by = np.arange(bags).repeat(each), np.empty(bags, _I64), None if divisor is None else np.empty((bags, 1), divisor)
        sizes.fill(each)        # (np.full takes three times as long)
        if by is not None:
            by.fill(max(each, 1))
        return index.reshape(-1), bag, bag, sizes, None, by
    if offsets is None:
        off = np.arange(0, index.size, index.shape[1], dtype=_I64) if index.size else np.zeros(index.shape[0], _I64)
        index = index.reshape(-1)
    else:
        index, off = index.reshape(-1), offsets.astype(_I64)
    if off.size and off[0] != 0:
        raise RuntimeError("offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
                           "position 0. "
                           f"However, got {off[0]}")
    if off.size and off[-1] > index.size:
        raise RuntimeError(f"offsets[-1] can not be greater than input's length {index.size} but got offsets[-1] of "
                           f"{off[-1]}")
    if include_last:
        if not off.size:
            raise RuntimeError("include_last_offset: number of offset should be at least 1")
        ends, starts = off[1:], off[:-1]
        if include_last == "open" and starts.size:
            ends = np.append(ends[:-1], index.size)
    else:
        starts, ends = off, np.append(off[1:], index.size) if off.size else off
    bags = starts.size
    sizes = ends - starts
    if sizes.size and sizes.min() < 0:
        raise RuntimeError("embedding_bag: offsets must not decrease")
    bag = np.repeat(np.arange(bags), sizes)
    live = index[:bag.size]
    bag_live, there = bag, None
    if padding >= 0:
        there = np.flatnonzero(live != padding)
        live, bag_live = live[there], bag[there]
        sizes = np.bincount(bag_live, minlength=bags).astype(_I64) if bag_live.size else np.zeros(bags, _I64)
    by = None if divisor is None else np.maximum(sizes, 1).astype(divisor)[:, None]
    return live, bag_live, bag, sizes, there, by


def _starts(bag):
    """Returns where each nonempty bag begins in the ascending bag numbers."""
    return np.flatnonzero(np.concatenate(([True], bag[1:] != bag[:-1])))


def _alike(bag, each, bags):
    """True if the ascending bag numbers are those of `bags` bags of `each` rows."""
    want = np.arange(bags)
    return bool((bag[::each] == want).all() and (bag[each - 1::each] == want).all())


@kernel("embedding_bag_sum")
def _bag_sum(rows, bag, *, bags):
    """Sums rows (K, D) by bag number (ascending). Returns (bags, D)."""
    each, width = bag.size // max(1, bags), rows.shape[1]
    if each and bag.size == each * bags and width >= 32 and rows.dtype.kind == "f" and _alike(bag, each, bags):
        # 256 bags of 4 rows of 64 take 35 us, with reduceat 125 us. With 8 columns reduceat is
        # faster.
        return np.add.reduce(rows.reshape(bags, each, width), axis=1)
    r = np.zeros((bags, width), rows.dtype)
    if bag.size:
        starts = _starts(bag)
        r[bag[starts]] = np.add.reduceat(rows, starts, axis=0)
    return r


@kernel("embedding_bag_rows embedding_bag_rows_sparse")
@quiet
def _bag_rows(w, index, bag, samples, divisor, *, bags):
    """Sums the rows `index` of w by bag number (ascending). Returns (bags, D).

    Rows are multiplied by `samples`, and the sums are divided by `divisor` (bags, 1), unless these
    are None.
    """
    r = np.empty((bags, w.shape[1]), w.dtype)
    c_kernels = large.copy_pad_grid()
    if c_kernels.bags(c_kernels.SUMS, index, bag, samples, r, w, divisor):
        return r
    rows = w.take(index, 0)
    r = _bag_sum(rows if samples is None else rows * samples[:, None], bag, bags=bags)
    return r if divisor is None else r / divisor


@kernel("embedding_bag_rows_backward")
@quiet
def _bag_rows_grad(g, index, bag, samples, *, rows):
    r, c_kernels = np.zeros((rows, g.shape[1]), g.dtype), large.copy_pad_grid()
    if c_kernels.bags(c_kernels.BACK, index, bag, samples, r, g=g):
        return r
    each = g.take(bag, 0)
    return embedding_grad(each if samples is None else each * samples[:, None], index, rows)


@kernel("embedding_bag_dots")
@quiet
def _bag_dots(w, g, index, bag):
    """Returns the dot products of the rows w[index[k]] and g[bag[k]]."""
    r, c_kernels = np.empty(index.size, g.dtype), large.copy_pad_grid()
    if c_kernels.bags(c_kernels.DOTS, index, bag, None, r, w, g=g):
        return r
    return np.einsum("kd,kd->k", w.take(index, 0), g.take(bag, 0))


@kernel("pick_rows")
def _pick_rows(a, index):
    r = large.copy_pad_grid().picked(a, index, 0, index.size * a[:1].nbytes)
    if r is not None and r is not False:
        return r
    return a.take(index, 0)  # 1024 rows of 64 take 5 us, with a[index] 12 us


@kernel("put_rows")
def _put_rows(g, index, *, rows):
    return embedding_grad(np.ascontiguousarray(g), index, rows)


@kernel("embedding_bag_max")
@quiet
def _bag_max(rows, bag, *, bags):
    """Returns (maximum by bag and column, its row or -1)."""
    d = rows.shape[1]
    r = np.zeros((bags, d), rows.dtype)
    at = np.full((bags, d), -1, _I64)
    if bag.size:
        starts = _starts(bag)
        ends = np.append(starts[1:], bag.size)
        for s, e in zip(starts.tolist(), ends.tolist()):
            k = rows[s:e].argmax(axis=0)
            at[bag[s]] = k + s
            r[bag[s]] = rows[k + s, np.arange(d)]
    return r, at


@kernel("embedding_bag_max_backward")
def _bag_max_grad(g, at, *, count):
    r = np.zeros((count, g.shape[1]), g.dtype)
    b, c = np.nonzero(at >= 0)
    np.add.at(r, (at[b, c], c), g[b, c])
    return r


@kernel("embedding_bag_max_gather")
def _bag_max_pick(a, at):
    live = at >= 0
    return np.where(live, np.take_along_axis(a, np.where(live, at, 0), 0) if a.shape[0] else 0, 0).astype(a.dtype)


@kernel("embedding_bag_winners")
def _bag_winners(at, live):
    """Returns the indices of the rows with the maxima."""
    return np.where(at >= 0, live[np.maximum(at, 0)] if live.size else 0, 0)
