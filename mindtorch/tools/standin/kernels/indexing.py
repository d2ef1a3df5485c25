"""Reads and writes by index, by coordinates and by mask."""
from mindtorch.tools.standin.kernels._engine import F, torch
from mindtorch.tools.standin.kernels._results import upcast
from mindtorch.tools.standin.kernels._table import Sized, gradients, kernel


# ---- a list of index tensors, one for each dimension
def _key(self, indices, empty):
    """Returns the indexing key. An empty tensor stands for a dimension without index, unless the
    selection is empty."""
    return tuple(slice(None) if i is None or i.numel() == 0 and not empty else i if i.dtype == torch.bool else i.long() for i in indices)


def _index(self, indices, out):
    return self[_key(self, indices, out.numel() == 0)]


def _index_put(self, indices, values, accumulate):
    positions = torch.arange(self.numel()).reshape(self.shape)[_key(self, indices, values.numel() == 0)]
    values = values.to(self.dtype).expand(positions.shape).reshape(-1)
    return self.reshape(-1).index_put((positions.reshape(-1),), values, accumulate=accumulate).reshape(self.shape)


kernel("Index", "self, indices:tensors, out!")(_index)
kernel("IndexPutImpl", "self!, indices:tensors, values, accumulate:bool, unsafe:bool")(
    lambda self, indices, values, accumulate, unsafe: _index_put(self, indices, values, accumulate))


# ---- one dimension, the same index for all slices
def _as_int64(index):
    """Returns indices, passed as a list or as a tensor of any integer dtype, as an int64 tensor."""
    return index.long() if isinstance(index, torch.Tensor) else torch.tensor(index or [], dtype=torch.int64)


def _index_fill(self, dim, index, value):
    return self.index_fill(dim, _as_int64(index), value)


kernel("IndexSelect", "self, dim:int, index, out!")(lambda self, dim, index, out: self.index_select(dim, index.reshape(-1)))
kernel("IndexAdd", "self, dim:int, index, source, alpha:scalar, out!")(
    lambda self, dim, index, source, alpha, out: self.index_add(dim, index.reshape(-1), source.to(self.dtype), alpha=alpha))
kernel("IndexCopy", "self, dim:int, index, source, out!")(
    lambda self, dim, index, source, out: self.index_copy(dim, _as_int64(index), source))
kernel("InplaceIndexCopy", "self!, dim:int, index, source")(lambda self, dim, index, source: self.index_copy(dim, _as_int64(index), source))
kernel("IndexFillTensor", "self, dim:int, index:ints, value:scalar, out!")(lambda self, dim, index, value, out: _index_fill(self, dim, index, value))
kernel("InplaceIndexFillTensor", "self!, dim:int, index:ints, value:scalar")(_index_fill)

def _cache(self, index, updates, dim):
    """Writes each example's updates into its part of a cache, from its own offset on."""
    result = self.clone()
    for k, start in enumerate(index.tolist()):
        result[k:k + 1].narrow(dim, start, updates.shape[dim]).copy_(updates[k:k + 1])
    return result


kernel("InplaceScatterUpdate", "self!, index, updates, dim:int")(_cache)

# ---- one dimension, an index for each element
def _scatter(self, dim, index, source, reduce):
    """Scatters a scalar or a tensor. `reduce`: 0 writes, 1 adds, 2 multiplies."""
    index = index.long()
    if reduce == 0:
        return self.scatter(dim, index, source.to(self.dtype) if isinstance(source, torch.Tensor) else source)
    source = source.to(self.dtype) if isinstance(source, torch.Tensor) else torch.full(index.shape, source, dtype=self.dtype)
    return self.scatter_reduce(dim, index, source, {1: "sum", 2: "prod"}[reduce])


kernel("Gather", "self, dim:int, index, out!")(lambda self, dim, index, out: self.gather(dim, index.long()))
kernel("Scatter", "self, dim:int, index, source, reduce:int, out!")(
    lambda self, dim, index, source, reduce, out: _scatter(self, dim, index, source, reduce))
kernel("ScatterValue", "self, dim:int, index, value:scalar, reduce:int, out!")(
    lambda self, dim, index, value, reduce, out: _scatter(self, dim, index, value, reduce))
kernel("InplaceScatter", "self!, dim:int, index, source, reduce:int")(_scatter)
kernel("InplaceScatterValue", "self!, dim:int, index, value:scalar, reduce:int")(_scatter)
kernel("ScatterAdd", "self, dim:int, index, source, out!")(lambda self, dim, index, source, out: self.scatter_add(dim, index.long(), source))


# ---- flat indices, and indices as rows of coordinates
def _rows(indices, sizes):
    """Converts rows of coordinates of the first dimensions to flat indices."""
    flat = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for k in range(indices.shape[-1]):
        flat = flat * sizes[k] + indices[..., k].long()
    return flat


def _gather_rows(self, indices, negative, out):
    n = indices.shape[-1]
    indices = torch.where(indices < 0, indices + torch.tensor(self.shape[:n]), indices) if negative else indices
    return self.reshape([-1, *self.shape[n:]])[_rows(indices, self.shape)]


def _scatter_rows(self, indices, updates, add):
    n = indices.shape[-1]
    rows = self.reshape([-1, *self.shape[n:]])
    found, updates = _rows(indices, self.shape).reshape(-1), updates.to(self.dtype).reshape([-1, *self.shape[n:]])
    return (rows.index_add(0, found, updates) if add else rows.index_copy(0, found, updates)).reshape(self.shape)


kernel("Take", "self, index, out!")(lambda self, index, out: self.take(index.long()))
kernel("InplacePut", "self!, index, source, accumulate:bool")(lambda self, index, source, accumulate: self.put(index.long(), source, accumulate))
kernel("GatherNd", "self, indices, negative:bool, out!")(_gather_rows)
kernel("TfScatterAdd", "self!, indices, updates")(lambda self, indices, updates: _scatter_rows(self, indices, updates, True))


# ---- masks
kernel("SelectV2", "condition, self, other, out!")(lambda condition, self, other, out: torch.where(condition.bool(), self, other))


def _fill(self, mask, value):
    return self.masked_fill(mask.bool(), value)


kernel("InplaceMaskedFillScalar", "self!, mask, value:scalar")(_fill)
kernel("InplaceMaskedFillTensor", "self!, mask, value")(lambda self, mask, value: _fill(self, mask, value.reshape([]).to(self.dtype)))
kernel("InplaceMaskedScatter", "self!, mask, source")(lambda self, mask, source: self.masked_scatter(mask.bool(), source))
kernel("MaskedSelect", "self, mask, out!")(lambda self, mask, out: Sized(self.masked_select(mask.bool())))
kernel("Nonzero", "self, out!")(lambda self, out: Sized(self.nonzero()))
kernel("NonzeroV2", "self, out!")(lambda self, out: Sized(self.nonzero().t()))


# ---- embeddings, one-hot
def _embedding_gradient(grad, indices, rows, padding, by_frequency, out):
    """Returns an embedding's gradient. `padding` is out of range if no row is excluded."""
    grad = upcast(grad)
    table = torch.zeros([rows, grad.shape[-1]], dtype=grad.dtype)
    padding = padding if 0 <= padding < rows else None
    return gradients(lambda t: F.embedding(indices.long(), t, padding, scale_grad_by_freq=by_frequency), grad, table)[0]


def _renormed(self, indices, longest, order):
    result = self.clone()
    F.embedding(indices.long().reshape(-1), result, max_norm=longest, norm_type=order)
    return result


def _one_hot(self, classes, on, off, axis, out):
    at = axis if axis >= 0 else self.dim()
    class_indices = torch.arange(classes).reshape([classes] + [1] * (self.dim() - at))
    return torch.where(self.unsqueeze(at) == class_indices, on.reshape([]), off.reshape([]))


kernel("Embedding", "weight, indices, out!")(lambda weight, indices, out: weight[indices.long()])
kernel("EmbeddingDenseBackward", "grad, indices, rows:int, padding:int, by_frequency:bool, out!")(_embedding_gradient)
kernel("EmbeddingRenorm", "self!, indices, longest:double, order:double")(_renormed)
kernel("OneHot", "self, classes:int, on, off, axis:int, out!")(_one_hot)
