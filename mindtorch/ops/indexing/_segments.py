"""segment_reduce: reductions over stretches of one axis."""
import numpy as np

from mindtorch.backend.cpu.host import quiet
from mindtorch.core.alias import title
from mindtorch.core.promote import number_dtype
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor
from mindtorch.ops._checks import need_tensor
from mindtorch.ops._operands import no_derivative

_KINDS = {"sum": "sum", "mean": "mean", "max": "max", "amax": "max", "min": "min", "amin": "min", "prod": "prod"}
_UFUNC = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
_EMPTY = {"sum": 0.0, "mean": 0.0, "max": -np.inf, "min": np.inf, "prod": 1.0}


def _reduce(a, *, kind, at, ids, counts, initial):
    """a: (elements, rest); element at[i] belongs to segment ids[i]."""
    r = np.full((counts.size, a.shape[1]), _EMPTY[kind] if initial is None else initial, a.dtype)
    _UFUNC[kind].at(r, ids, a[at])
    if kind == "mean":
        empty = counts == 0
        r /= np.where(empty, 1, counts)[:, None].astype(a.dtype)
        if initial is None:
            r[empty] = np.nan
    return r


def _reduce_grad(g, a, out, *, kind, at, ids, counts, initial):
    r = np.zeros(a.shape, g.dtype)
    if kind == "sum":
        part = g[ids]
    elif kind == "mean":
        part = (g / np.maximum(counts, 1)[:, None].astype(g.dtype))[ids]
    elif kind == "prod":
        part = g[ids] * _others(a[at], ids, counts, initial)
    else:
        x, best = a[at], out[ids]
        hit = (x == best) | ((x != x) & (best != best))
        ties = np.zeros(out.shape, np.int64)
        np.add.at(ties, ids, hit)
        part = np.where(hit, (g / np.maximum(ties, 1))[ids], 0).astype(g.dtype)
    np.add.at(r, at, part)
    return r


def _others(x, ids, counts, initial):
    """For each element the product of the other ones of its segment: from the left times from the right."""
    left, right = np.ones_like(x), np.ones_like(x)
    for i in range(1, len(ids)):
        if ids[i] == ids[i - 1]:
            left[i] = left[i - 1] * x[i - 1]
    for i in range(len(ids) - 2, -1, -1):
        if ids[i] == ids[i + 1]:
            right[i] = right[i + 1] * x[i + 1]
    r = left * right
    return r if initial is None else r * x.dtype.type(initial)


_segment_grad = primitive("segment_reduce_backward", quiet(_reduce_grad), no_derivative("_segment_reduce_backward"), None, None)
segment_reduce_ = primitive("segment_reduce", quiet(_reduce), lambda c, g: _segment_grad(
    g, c.a, c.out, kind=c.kind, at=c.at, ids=c.ids, counts=c.counts, initial=c.initial))


def _starts_and_counts(data, lengths, offsets, axis, unsafe):
    """Arrays (batch, segments) of where each segment starts along the axis and how long it is."""
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    which, given = ("lengths", lengths) if lengths is not None else ("offsets", offsets)
    need_tensor("segment_reduce", given, which, 3)
    v = given._a
    if v.dtype.kind not in "iu":
        raise NotImplementedError(f"'segment_reduce' is not implemented for {which} of dtype {given.dtype} on device cpu")
    if data.ndim < v.ndim:
        raise RuntimeError(f"segment_reduce(): data has fewer dimensions ({data.ndim}) than {which} ({v.ndim})")
    if axis != v.ndim - 1:
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of {which} but got {axis}.")
    if v.shape[:-1] != data._sizes[:axis]:
        raise RuntimeError(f"segment_reduce(): {which} of shape {list(v.shape)} does not match data of shape "
                           f"{list(data._sizes)} in the dimensions before axis {axis}")
    v = v.reshape(-1, v.shape[-1]).astype(np.int64)
    n = data._sizes[axis]
    if lengths is None:
        starts, counts = v[:, :-1], np.diff(v, axis=1)
    else:
        if (v < 0).any():
            raise RuntimeError("lengths contains negative value!")
        starts, counts = np.cumsum(v, axis=1) - v, v
        if not unsafe and (v.sum(axis=1) != n).any():
            raise RuntimeError("segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when "
                               "!unsafe.")
    if (counts < 0).any() or (starts < 0).any() or (starts + counts > n).any():
        raise RuntimeError("segment_reduce(): a segment does not lie inside the data")
    return starts, counts


@op(out=True, method=False)
def segment_reduce(data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None):
    """Reduces stretches of data along `axis` ("sum", "mean", "max", "min", "prod"), given by their lengths or offsets.

    data (batch..., n, rest...) and lengths (batch..., segments) give (batch..., segments, rest...). Floating dtypes only.
    """
    need_tensor("segment_reduce", data, "data")
    a = data._a
    if reduce not in _KINDS:
        raise RuntimeError(f"Unsupported reduction: {reduce}")
    if a.dtype.kind not in "fV":
        raise NotImplementedError(f"\"_segment_reduce_cpu\" not implemented for '{title(a.dtype)}' on device cpu")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if initial is not None:
        initial = initial.item() if isinstance(initial, Tensor) else initial
        number_dtype(initial)
    axis = axis + a.ndim if axis < 0 else axis
    starts, counts = _starts_and_counts(data, lengths, offsets, axis, unsafe)
    batch, n, rest = a.shape[:axis], a.shape[axis], a.shape[axis + 1:]
    rows = np.arange(starts.shape[0])[:, None] * n + starts
    flat = counts.reshape(-1)
    ids = np.repeat(np.arange(flat.size), flat)
    at = np.repeat(rows.reshape(-1), flat) + np.arange(ids.size) - np.repeat(np.cumsum(flat) - flat, flat)
    width = int(np.prod(rest, dtype=np.int64))
    wide = data.reshape(starts.shape[0] * n, width)
    r = segment_reduce_(wide, kind=_KINDS[reduce], at=at, ids=ids, counts=flat, initial=initial)
    return r.reshape(*batch, counts.shape[1], *rest)
