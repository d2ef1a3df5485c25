"""Lookups: embedding, embedding_bag, one_hot."""
import numpy as np

from mindtorch.backend.cpu import heavy as cpu
from mindtorch.backend.cpu.host import quiet
from mindtorch.core.dtypes import I64
from mindtorch.core.sparse import sparse_of
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import bump, wrap
from mindtorch.ops.nn._fused import tensor_arg, title


# ------------------------------------------------------------------ embedding


def _lookup(w, *, index, padding, by_freq):
    return w.take(index, axis=0)


def _lookup_grad(g, *, index, padding, by_freq, rows):
    flat = index.reshape(-1)
    g2 = np.ascontiguousarray(g).reshape(flat.size, g.shape[-1])
    if by_freq and flat.size:
        count = np.bincount(flat, minlength=rows)
        g2 = g2 / count[flat][:, None].astype(g.dtype)
    r = cpu.embedding_grad(g2, flat, rows)
    if padding >= 0:
        r[padding] = 0
    return r


def _lookup_again(c, g):
    # The gradient's gradient: a lookup whose padding row gives nought.
    r = lookup_(g, index=c.index, padding=-1, by_freq=False)
    if c.padding >= 0 or c.by_freq:
        scale = np.ones(c.index.shape + (1,), np.float32)
        if c.by_freq:
            scale /= np.bincount(c.index.reshape(-1), minlength=c.rows)[c.index][..., None]
        if c.padding >= 0:
            scale[c.index == c.padding] = 0
        r = r * wrap(scale.astype(r._stype))
    return r


lookup_ = primitive("embedding", _lookup,
                    lambda c, g: lookup_grad_(g, index=c.index, padding=c.padding, by_freq=c.by_freq, rows=c.shapes[0][0]),
                    raw=True)
#: The same lookup, whose gradient is a sparse tensor.
sparse_lookup_ = primitive("embedding", _lookup, lambda c, g: _sparse_rows(c, g, c.shapes[0]), raw=True)
lookup_grad_ = primitive("embedding_dense_backward", _lookup_grad, lambda c, g: _lookup_again(c, g),
                         saves=("index", "padding", "by_freq", "rows"))



def _sparse_rows(c, g, size):
    """The gradient's rows, at the rows that were looked up."""
    if c.by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    index = c.index.reshape(-1)
    rows = g.reshape(index.size, size[1])
    if c.padding >= 0:
        there = np.flatnonzero(index != c.padding)
        index, rows = index[there], rows.index_select(0, wrap(there))
    return sparse_of(index.reshape(1, -1), rows, size)


_CLASSES = {"float32": "torch.FloatTensor", "float64": "torch.DoubleTensor", "float16": "torch.HalfTensor",
            "int16": "torch.ShortTensor", "int8": "torch.CharTensor", "uint8": "torch.ByteTensor", "bool": "CPUBoolType"}


def _index(name, indices, rows):
    """int64 indices, all within `rows`."""
    a = indices._a
    if a.dtype != I64:
        if a.dtype != np.int32:
            raise RuntimeError("Expected tensor for argument #1 'indices' to have one of the following scalar types: "
                               "Long, Int; but "
                               f"got {_CLASSES.get(a.dtype.name, title(a))} instead (while checking arguments for "
                               f"{name})")
        a = a.astype(I64)
    else:
        a = a.copy()          # backward needs them as they are now
    if a.size and (a.min() < 0 or a.max() >= rows):
        raise IndexError("index out of range in self")
    return a


def _embedding(input, weight, padding, by_freq, sparse):
    tensor_arg("embedding", "indices", input)
    tensor_arg("embedding", "weight", weight)
    w = weight._a
    if w.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    find = sparse_lookup_ if sparse else lookup_
    return find(weight, index=_index("embedding", input, w.shape[0]), padding=padding, by_freq=by_freq)


def renorm(weight, index, max_norm, norm_type):
    """Scales the rows at `index` down in place to norm `max_norm` where they are longer."""
    rows = np.unique(index)
    w = weight._a
    low = w.dtype.itemsize == 2
    r = w[rows].astype(np.float32) if low else w[rows]
    n = np.linalg.norm(r, norm_type, axis=1)
    long = n > max_norm
    if long.any():
        w[rows[long]] = (r[long] * (max_norm / (n[long] + 1e-7))[:, None].astype(r.dtype)).astype(w.dtype)
        bump(weight)


@op(ns="nn.functional", method=False)
def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Rows of `weight` at `input`: (*) -> (*, D); the row `padding_idx` gets no gradient."""
    tensor_arg("embedding", "weight", weight, 2)
    if padding_idx is None:
        padding = -1
    else:
        n = weight._sizes[0]
        assert -n <= padding_idx < n, "Padding_idx must be within num_embeddings"
        padding = padding_idx + n if padding_idx < 0 else padding_idx
    if max_norm is not None:
        renorm(weight, _index("embedding_renorm_", input, weight._sizes[0]), max_norm, norm_type)
    return _embedding(input, weight, padding, scale_grad_by_freq, sparse)


@op(method=False, name="embedding")
def _torch_embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    """embedding in the argument order of torch.embedding."""
    return _embedding(indices, weight, padding_idx, scale_grad_by_freq, sparse)


@op(method=False, name="embedding_renorm_")
def embedding_renorm_(input, indices, max_norm, norm_type):
    """Scales the rows of `input` at `indices` down in place."""
    renorm(input, _index("embedding_renorm_", indices, input._sizes[0]), max_norm, norm_type)
    return input


@op(ns="nn.functional", method=False)
def one_hot(input, num_classes=-1):
    """1 at each class number's place: (*) int64 -> (*, num_classes) int64."""
    tensor_arg("one_hot", "input", input)
    a = input._a
    if a.dtype != I64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if not a.size:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty input.")
        return wrap(np.zeros(a.shape + (num_classes,), I64))
    if a.min() < 0:
        raise RuntimeError("Class values must be non-negative.")
    top = int(a.max()) + 1
    if num_classes == -1:
        num_classes = top
    elif num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    elif top > num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    r = np.zeros((a.size, num_classes), I64)
    r[np.arange(a.size), a.reshape(-1)] = 1
    return wrap(r.reshape(a.shape + (num_classes,)))


# ------------------------------------------------------------------ embedding_bag
def _bag_sum(rows, *, bag, bags):
    """Rows (K, D) added up by bag number (ascending): (bags, D)."""
    r = np.zeros((bags, rows.shape[1]), rows.dtype)
    if bag.size:
        starts = np.flatnonzero(np.concatenate(([True], bag[1:] != bag[:-1])))
        r[bag[starts]] = np.add.reduceat(rows, starts, axis=0)
    return r


bag_sum_ = primitive("embedding_bag", _bag_sum, lambda c, g: _pick_rows(g, index=c.bag), node="EmbeddingBagBackward0")
_pick_rows = primitive("pick_rows", lambda a, *, index: a[index], lambda c, g: _put_rows(g, index=c.index, rows=c.shapes[0][0]),
                       raw=True)


def _put(g, *, index, rows):
    return cpu.embedding_grad(np.ascontiguousarray(g), index, rows)


_put_rows = primitive("put_rows", _put, lambda c, g: _pick_rows(g, index=c.index))


def _bag_max(rows, *, bag, bags, ctx):
    """Largest element by bag and column."""
    d = rows.shape[1]
    r = np.zeros((bags, d), rows.dtype)
    at = np.full((bags, d), -1, I64)
    if bag.size:
        starts = np.flatnonzero(np.concatenate(([True], bag[1:] != bag[:-1])))
        ends = np.append(starts[1:], bag.size)
        for s, e in zip(starts.tolist(), ends.tolist()):
            k = rows[s:e].argmax(axis=0)
            at[bag[s]] = k + s
            r[bag[s]] = rows[k + s, np.arange(d)]
    ctx["at"] = at
    return r


def _bag_max_grad(g, *, at, count):
    r = np.zeros((count, g.shape[1]), g.dtype)
    b, c = np.nonzero(at >= 0)
    np.add.at(r, (at[b, c], c), g[b, c])
    return r


def _bag_max_pick(a, *, at, count):
    live = at >= 0
    return np.where(live, np.take_along_axis(a, np.where(live, at, 0), 0) if a.shape[0] else 0, 0).astype(a.dtype)


bag_max_ = primitive("embedding_bag", quiet(_bag_max),
                     lambda c, g: _bag_max_back(g, at=c.ctx["at"], count=c.shapes[0][0]), node="EmbeddingBagBackward0")
_bag_max_back = primitive("embedding_bag_backward", _bag_max_grad, lambda c, g: _bag_max_gather(g, at=c.at, count=c.count))
_bag_max_gather = primitive("embedding_bag_gather", _bag_max_pick, lambda c, g: _bag_max_back(g, at=c.at, count=c.count))

_MODES = ("sum", "mean", "max")


def _bags(weight, indices, offsets, by_freq, mode, samples, include_last, padding, sparse):
    """(result, offset2bag, bag_size, max_indices) as torch.embedding_bag gives them."""
    w = weight._a
    index = _index("embedding_bag", indices, w.shape[0]).reshape(-1)
    off = offsets._a
    if off.dtype.kind not in "iu":
        raise RuntimeError("expected offsets to be integers")
    off = off.astype(I64)
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
    else:
        starts, ends = off, np.append(off[1:], index.size) if off.size else off
    bags = starts.size
    sizes = ends - starts
    bag = np.repeat(np.arange(bags), sizes)
    index = index[:bag.size]
    keep = None
    live = index
    if padding >= 0:
        keep = np.flatnonzero(index != padding)
        live, bag_live = index[keep], bag[keep]
        sizes = np.bincount(bag_live, minlength=bags).astype(I64) if bag_live.size else np.zeros(bags, I64)
    else:
        bag_live = bag
    rows = (sparse_lookup_ if sparse else lookup_)(weight, index=live, padding=padding, by_freq=by_freq)
    ctx = {}
    if mode == "max":
        y = bag_max_(rows, bag=bag_live, bags=bags, ctx=ctx)
    else:
        if samples is not None:
            s = samples.reshape(-1)
            if keep is not None:
                s = s.index_select(0, wrap(keep))
            rows = rows * s.unsqueeze(1)
        y = bag_sum_(rows, bag=bag_live, bags=bags)
        if mode == "mean":
            y = y / wrap(np.maximum(sizes, 1).astype(w.dtype if w.dtype.kind == "f" else np.float32)).unsqueeze(1)
            if y._stype != w.dtype:
                y = y.to(weight.dtype)
    return y, bag, sizes, ctx.get("at"), live


@op(ns="nn.functional", method=False)
def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False,
                  per_sample_weights=None, include_last_offset=False, padding_idx=None):
    """Sums, means or maxima of bags of rows of `weight`: (B, N) indices, or (K,) with offsets (B,) -> (B, D)."""
    tensor_arg("embedding_bag", "input", input)
    tensor_arg("embedding_bag", "weight", weight, 2)
    if weight._stype.kind in "iub" and input._stype.kind in "f":
        input, weight = weight, input
    if per_sample_weights is not None and per_sample_weights._sizes != input._sizes:
        raise ValueError(f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must "
                         "have the same "
                         f"shape as the input ({input.shape})")
    a = input._a
    if a.ndim == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch of "
                             "fixed length "
                             f"sequences. However, found offsets of type {type(offsets)}")
        offsets = wrap(np.arange(0, a.size, a.shape[1], dtype=I64) if a.size else np.zeros(a.shape[0], I64))
    elif a.ndim == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.ndim != 1:
            raise ValueError("offsets has to be a 1D Tensor")
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {a.ndim}")
    if mode not in _MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and (scale_grad_by_freq or sparse):
        raise ValueError("max mode does not support " + ("scaling the gradient by the frequency" if scale_grad_by_freq else
                                                         "sparse weights"))
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. per_sample_weights is only "
                                  "supported for "
                                  f"mode='sum' (got mode='{mode}'). Please open a feature request on GitHub.")
    n = weight._sizes[0]
    padding = -1
    if padding_idx is not None:
        if not -n <= padding_idx < n:
            raise RuntimeError("padding_idx must be within the number of embeddings, -"
                               f"{n} through {n - 1}, but got {padding_idx}")
        padding = padding_idx % n
    if max_norm is not None:
        renorm(weight, _index("embedding_renorm_", input, n), max_norm, norm_type)
    return _bags(weight, input, offsets, scale_grad_by_freq, mode, per_sample_weights, include_last_offset, padding, sparse)[0]


@op(method=False, name="embedding_bag")
def _torch_embedding_bag(weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None,
                         include_last_offset=False, padding_idx=None):
    """embedding_bag in torch.embedding_bag's argument order: (result, offset2bag, bag_size, max_indices)."""
    n = weight._sizes[0]
    padding = -1 if padding_idx is None else padding_idx % n
    y, bag, sizes, at, live = _bags(weight, indices, offsets, scale_grad_by_freq, _MODES[mode], per_sample_weights,
                                    include_last_offset, padding, sparse)
    if mode == 2:
        where = np.where(at >= 0, live[np.maximum(at, 0)] if live.size else 0, 0)
        return y, wrap(bag), wrap(sizes), wrap(where)
    if mode == 0:
        return y, wrap(np.zeros(0, I64)), wrap(np.zeros(sizes.size, I64)), wrap(np.zeros(sizes.size, I64))
    return y, wrap(bag), wrap(sizes), wrap(sizes.copy())
