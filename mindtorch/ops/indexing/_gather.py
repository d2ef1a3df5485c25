"""Kernels and primitives behind gathering and scattering.

Places are turned into positions in the flattened tensor: `np.add.at` over one-dimensional arrays takes under 1 ns an
element, over anything else 5-50 times that.
"""
import numpy as np

from mindtorch.backend.cpu import large
from mindtorch.core.dtypes import I64, U64
from mindtorch.core.tape import primitive
from mindtorch.ops.indexing._region import along
from mindtorch.core.layout import empty, memory_order, ordered_strides



# ------------------------------------------------------------------ positions
def positions(shape, index, dim):
    """Flat positions in a tensor of `shape` of what gather(dim, index) picks: index replaces the coordinate of `dim`."""
    if not shape:
        return np.zeros(index.shape, I64)
    step, out = 1, None
    for ax in range(len(shape) - 1, -1, -1):
        if ax == dim:
            part = index * step if step != 1 else index
        else:
            n = index.shape[ax]
            if n == 1:
                step *= shape[ax]
                continue
            part = np.arange(0, n * step, step, dtype=I64).reshape((n,) + (1,) * (len(shape) - 1 - ax))
        out = part if out is None else out + part
        step *= shape[ax]
    return out if out.shape == index.shape else np.broadcast_to(out, index.shape)


def row_positions(shape, index, dim):
    """Flat positions of the places `index` (one-dimensional) of dimension `dim`, in the order of index_select's result."""
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
    """flat[pos] = how(flat[pos], values), one element after another."""
    pos, values = pos.reshape(-1), values.reshape(-1)
    if flat.dtype.kind == "b":
        {"sum": np.logical_or, "amax": np.logical_or, "prod": np.logical_and, "amin": np.logical_and}[how].at(flat, pos, values)
    elif how in ("amax", "amin") and flat.dtype.kind == "f":
        ({"amax": np.maximum, "amin": np.minimum}[how]).at(flat, pos, values)
    else:
        {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}[how].at(flat, pos, values)


_LONG = 384             # elements of a row from which on adding row after row is faster


def add_rows_at(r, src, index, dim):
    """r[..., index, ...] += src along `dim`, one after another; r and src C-contiguous.

    1024 rows of 1024 into 1024: element by element 2500 us, row after row 600 (torch 340); rows of 128: 170 and 500.
    """
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


def bounds_error(index, n, dim, negative=True, kind=IndexError, prefix=""):
    """The error for the first index outside a dimension of n places, or None."""
    low = -n if negative else 0
    bad = index[(index >= n) | (index < low)]
    if bad.size:
        return kind(f"{prefix}index {int(bad.reshape(-1)[0])} is out of bounds for dimension {dim} with size {n}")
    return None


def check_bounds(index, n, dim, negative=True, kind=IndexError, prefix=""):
    """Raises the error for an int64 index outside a dimension of n places."""
    if not index.size:
        return
    # argmax takes 0.15 us where max takes 0.8; as unsigned numbers, negative indices are the largest.
    u = index.view(U64)
    if u.item(u.argmax()) < n:
        return
    if not negative or index.min() < -n or index.max() >= n:
        raise bounds_error(index, n, dim, negative, kind, prefix)


# ------------------------------------------------------------------ gather and scatter_add
class Places:
    """Index arrays kept for backward: an error if one of them has been written to since."""

    __slots__ = ("value", "guards")

    def __init__(self, value, tensors):
        self.value = value
        self.guards = [(t, t._ver, 0 if t._ver is None else t._ver.v) for t in tensors]

    def get(self):
        for t, _, at in self.guards:
            now = t._ver
            if (0 if now is None else now.v) != at:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    "an index "
                    f"tensor of shape {list(t._sizes)} is at version {now.v}; expected version {at} instead. Hint: "
                    "enable "
                    "anomaly detection to find the operation that failed to compute its gradient, with "
                    "torch.autograd.set_detect_anomaly(True).")
        return self.value


def _flat(a):
    return a.reshape(-1)


def by_rows(a, i, dim, do):
    """do(flat, positions in it, i[s:t], s, t) for pieces of a large index, each with its part of the contiguous array a.

    The positions stay in the cache: gather of 1000x1000 along the last dimension 1.5 ms, with all positions at once 2.0 (torch 0.5).
    """
    def part(s, t):
        block = a if dim == 0 else a[s:t]
        do(block.reshape(-1), positions(block.shape, i[s:t], dim), i[s:t], s, t)
    large.each_rows(len(i), i.size // len(i), part)


def _gather(a, *, index, dim):
    i = index.get()
    if not a.ndim or not i.ndim:
        return _flat(a)[np.zeros(i.shape, I64)] if i.ndim or not a.ndim else _flat(a)[i]
    if a.flags.c_contiguous:
        if i.size < large.LEAST:
            return _flat(a).take(positions(a.shape, i, dim))
        r = np.empty(i.shape, a.dtype)
        by_rows(a, i, dim, lambda rows, at, part, s, t: rows.take(at, out=r[s:t], mode="clip"))
        return r
    cut = a[tuple([slice(None) if ax == dim else slice(0, n) for ax, n in enumerate(i.shape)])]
    return np.take_along_axis(cut, i.astype(I64, copy=False), dim)


def _scatter_add(a, src, *, index, dim):
    r = np.array(a, order="C")
    i = index.get()
    src = src[tuple([slice(0, n) for n in i.shape])] if src.ndim == i.ndim else src
    accumulate(_flat(r), positions(a.shape, i, dim), np.ascontiguousarray(np.broadcast_to(src, i.shape)))
    return r


def _gather_backward(g, *, shape, index, dim):
    r = np.zeros(shape, g.dtype)
    accumulate(_flat(r), positions(shape, index.get(), dim), np.ascontiguousarray(g))
    return r


gather_ = primitive("gather", _gather, lambda c, g: gather_back(g, shape=c.shapes[0], index=c.index, dim=c.dim), raw=True)
#: zeros of `shape` with g added at the places that gather picked
gather_back = primitive("gather_backward", _gather_backward, lambda c, g: gather_(g, index=c.index, dim=c.dim))
#: a copy of `a` with src added where index says; src may be larger than index
scatter_add_ = primitive("scatter_add", _scatter_add, lambda c, g: g,
                         lambda c, g: _within(gather_(g, index=c.index, dim=c.dim), c.shapes[1]))


def _within(g, shape):
    """Gradient of the used corner of a source: zeros elsewhere."""
    from mindtorch.ops.indexing._region import place
    if g._sizes == shape:
        return g
    return place(g, shape=shape, key=tuple([slice(0, n) for n in g._sizes]))


# ------------------------------------------------------------------ index_select and index_add
def _index_select(a, *, index, dim):
    i = index.get()
    if not a.ndim:
        return a.copy()
    return a.take(i, dim)


def _index_add(a, src, *, index, dim, alpha):
    r = np.array(a, order="C")
    if alpha != 1:
        src = (src * np.array(alpha, src.dtype)).astype(src.dtype, copy=False)
    if not a.ndim:
        return r + src.reshape(()) if r.dtype.kind != "b" else r | src.reshape(())
    add_rows_at(r, np.ascontiguousarray(src), index.get(), dim)
    return r


def _index_select_backward(g, *, shape, index, dim):
    if not shape:
        return g.reshape(())
    r = np.zeros(shape, g.dtype)
    add_rows_at(r, np.ascontiguousarray(g), index.get(), dim)
    return r


select_rows = primitive("index_select", _index_select, lambda c, g: rows_back(g, shape=c.shapes[0], index=c.index, dim=c.dim), raw=True)
#: zeros of `shape` with g added at the places that index_select picked
rows_back = primitive("index_select_backward", _index_select_backward, lambda c, g: _rows_of(g, c.index, c.dim, c.shapes[0]))


def _rows_of(g, index, dim, shape):
    from mindtorch.ops.shapes.views import reshape_
    return reshape_(select_rows(g, index=index, dim=dim), shape)


def _scaled(g, alpha):
    return g if alpha == 1 else g * (alpha.conjugate() if isinstance(alpha, complex) else alpha)


add_rows = primitive("index_add", _index_add, lambda c, g: g,
                     lambda c, g: _scaled(_rows_of(g, c.index, c.dim, c.shapes[1]), c.alpha))


def _copy_rows(a, src, *, index, dim):
    r = np.array(a, order="C")
    if not a.ndim:
        return src.reshape(()).copy() if index.get().size else r
    r[along(dim, index.get())] = src
    return r


def _fill_rows(a, value, *, index, dim):
    r = np.array(a, order="C")
    i = index.get()
    if not a.ndim:
        return value.reshape(()).copy() if i.size else r
    r[along(dim, i)] = value
    return r


copy_rows = primitive("index_copy", _copy_rows, lambda c, g: _zero_rows(g, c.index, c.dim),
                      lambda c, g: _rows_of(g, c.index, c.dim, c.shapes[1]), raw=True)
fill_rows = primitive("index_fill", _fill_rows, lambda c, g: _zero_rows(g, c.index, c.dim),
                      lambda c, g: select_rows(g, index=_once(c.index), dim=c.dim), raw=True)


def _once(places):
    """Each place once: a value written to one twice has an effect only once."""
    return Places(np.unique(places.get()), ())


def _zero_rows(g, index, dim):
    from mindtorch.core.tensor import wrap
    return fill_rows(g, wrap(np.zeros((), g._stype)), index=index, dim=dim)


# ------------------------------------------------------------------ indexing with arrays
def _index(a, *, key):
    k = key.get()
    if len(k) == 1 and k[0].dtype.kind != "b":
        if a.flags.c_contiguous:
            return a.take(k[0], 0)
    r = a[k]
    if a.flags.c_contiguous:
        return r if r.flags.c_contiguous else np.ascontiguousarray(r)
    return _laid_out(r, a, k)


def _laid_out(r, a, k):
    """The result of indexing a tensor that is not contiguous, in the memory order that torch gives it."""
    at = [i for i, x in enumerate(k) if x.__class__ is not slice]
    n = max(x.ndim for x in k if x.__class__ is not slice)
    if any(x.__class__ is not slice and x.dtype.kind == "b" for x in k):
        return np.ascontiguousarray(r)
    rest = [s for i, s in enumerate(a.strides) if i >= len(k) or k[i].__class__ is slice]
    apart = at != list(range(at[0], at[-1] + 1))
    start = 0 if apart else at[0]
    src = rest[:start] + [0] * n + rest[start:]
    indices = []
    for i in at:
        x = np.broadcast_to(k[i], np.broadcast_shapes(*[k[j].shape for j in at]))
        indices.append([0] * start + list(x.strides) + [0] * (len(rest) - start))
    out = empty(r.shape, r.dtype, ordered_strides(r.shape, memory_order(r.shape, (src, *indices))[::-1]))
    out[...] = r
    return out


def _index_back(g, *, shape, key):
    r = np.zeros(shape, g.dtype)
    _put_at(r, key.get(), g, True)
    return r


def _put_at(r, k, values, add):
    """r[k] = values, or r[k] += values with places that occur several times added up."""
    if not add or len(k) == 1 and k[0].__class__ is not slice and k[0].dtype.kind == "b":
        r[k] = values if not add else r[k] + values
        return
    arrays = [i for i in k if i.__class__ is not slice and i is not Ellipsis]
    if all(i.__class__ is np.ndarray and i.dtype.kind in "iu" for i in k) and r.flags.c_contiguous:
        # All arrays in front: positions of the indexed blocks in the flat tensor.
        inner = 1
        for n in r.shape[len(k):]:
            inner *= n
        pos = None
        for d, (i, n) in enumerate(zip(arrays, r.shape)):
            check_bounds(i, n, d)
            i = np.where(i < 0, i + n, i) if i.size and i.min() < 0 else i
            pos = i.astype(I64, copy=False) if pos is None else pos * n + i
        full = np.broadcast_to(values, pos.shape + r.shape[len(k):])
        if inner != 1:
            pos = pos.reshape(-1, 1) * inner + np.arange(inner)
        accumulate(_flat(r), pos, np.ascontiguousarray(full))
    elif r.dtype.kind == "b":
        np.logical_or.at(r, k, values)
    else:
        np.add.at(r, k, values)


def _index_put(a, values, *, key, accumulate):
    r = np.array(a, order="C")
    _put_at(r, key.get(), values, accumulate)
    return r


def _index_put_self(c, g):
    if c.accumulate:
        return g
    from mindtorch.core.tensor import wrap
    return put_at(g, wrap(np.zeros((), g._stype)), key=c.key, accumulate=False)


index_at = primitive("index", _index, lambda c, g: index_back(g, shape=c.shapes[0], key=c.key), raw=True)
#: zeros of `shape` with g added at the places that index_at picked
index_back = primitive("index_backward", _index_back, lambda c, g: index_at(g, key=c.key))
put_at = primitive("index_put", _index_put, _index_put_self, lambda c, g: index_at(g, key=c.key), raw=True)
#: the same where values are added: float16 sums are made in float32
add_at = primitive("index_put", _index_put, _index_put_self, lambda c, g: index_at(g, key=c.key))
