"""Sparse COO tensors: shapes, indexing, joining."""
from mindtorch.core.tensor.dtypes import I64, NUMBER_TYPES, as_np
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.type_promotion import promote_types
from mindtorch.core.tensor.sparse import SparseTensor, sparse_of
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.ops._checks import wrap_dim
from mindtorch.ops.basic import cast
from mindtorch.ops.sparse import _at, _gather, _implements, _method, _empty_coo, _picked, _raise_unsupported, _rows, is_sparse, no_memory_format


# ------------------------------------------------------------------ shapes
@_implements("transpose")
def _transpose(input, dim0, dim1):
    """Swaps two sparse or two dense dims."""
    n, ndim = input.sparse_dim(), input.dim()
    i, j = wrap_dim("transpose", dim0, ndim), wrap_dim("transpose", dim1, ndim)
    if (i < n) != (j < n) or i >= n and i != j and not is_sparse(input):
        raise RuntimeError(f"sparse transpose: transposed dimensions must be sparse Got sparse_dim: {n}, d0: {i}, d1: {j}")
    size = list(input._sp_size)
    size[i], size[j] = size[j], size[i]
    if i >= n:
        return sparse_of(input._coo_idx, input._sp_values.transpose(i - n + 1, j - n + 1), size, input._coo_unique)
    order = list(range(n))
    order[i], order[j] = order[j], order[i]
    return sparse_of(_rows(input._coo_idx, dims=tuple(order)), input._sp_values, size, input._coo_unique and i == j)


@_implements("t")
def _t(input):
    """Transposes a matrix."""
    if input.dim() > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.dim()}D")
    return _transpose(input, 0, 1) if input.dim() == 2 else input


@_implements("permute")
def _permute(input, *dims):
    """Permutes sparse dims among themselves and dense dims among themselves."""
    dims = dims[0] if len(dims) == 1 and isinstance(dims[0], (list, tuple)) else dims
    ndim, n = input.dim(), input.sparse_dim()
    if len(dims) != ndim:
        raise RuntimeError("permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of "
                           f"dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = {len(dims)}")
    order = [wrap_dim("permute", d, ndim) for d in dims]
    if len(set(order)) != ndim:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    if any([d >= n for d in order[:n]]):
        raise RuntimeError("permute(sparse_coo): transpositions between sparse and dense dimensions are not allowed.Only transpositions within sparse and "
                           "dense dimensions are supported.")
    v = input._sp_values if order[n:] == list(range(n, ndim)) else input._sp_values.permute(0, *[d - n + 1 for d in order[n:]])
    stays = order[:n] == list(range(n))
    idx = input._coo_idx if stays else _rows(input._coo_idx, dims=tuple(order[:n]))
    return sparse_of(idx, v, [input._sp_size[d] for d in order], input._coo_unique and stays)


@_implements("movedim", "moveaxis")
def _movedim(input, source, destination):
    """Moves dims to other positions."""
    ndim = input.dim()
    src, dst = [[wrap_dim("movedim", d, ndim) for d in (x if isinstance(x, (list, tuple)) else (x,))] for x in (source, destination)]
    rest = iter([d for d in range(ndim) if d not in src])
    return _permute(input, [src[dst.index(i)] if i in dst else next(rest) for i in range(ndim)])


@_implements("adjoint")
def _adjoint(input):
    """Returns the conjugate transpose."""
    return _transpose(input, -2, -1).conj()


SparseTensor.T = property(_t)
SparseTensor.mT = property(lambda self: _transpose(self, -2, -1))
SparseTensor.H = SparseTensor.mH = property(_adjoint)
for _name in ("swapaxes", "swapdims"):
    _implements(_name)(_transpose)


@_implements("unsqueeze")
def _unsqueeze(input, dim):
    """Inserts a dim of size 1. It is sparse up to the position directly after the last sparse dim,
    and dense beyond."""
    ndim, n = input.dim(), input.sparse_dim()
    i = wrap_dim("unsqueeze", dim, ndim + 1)
    size = (*input._sp_size[:i], 1, *input._sp_size[i:])
    if i > n:
        return sparse_of(input._coo_idx, input._sp_values.unsqueeze(i - n + 1), size, input._coo_unique)
    zero = _filled(1, input._nnz(), 0, input._coo_idx)
    return sparse_of(OPS["cat"].fn([input._coo_idx[:i], zero, input._coo_idx[i:]], 0), input._sp_values, size, input._coo_unique)


def _filled(rows, count, value, like):
    return OPS["full"].fn((rows, count), value, dtype=like.dtype, device=like._device)


@_implements("cat", "concat", "concatenate")
def _cat(tensors, dim=0):
    """Concatenates sparse tensors."""
    tensors = list(tensors)
    for k, t in enumerate(tensors):
        if not is_sparse(t):
            raise RuntimeError(f"Concatenating sparse tensors, but a dense tensor was found at position {k}.")
    first = tensors[0]
    i, n = wrap_dim("cat", dim, first.dim()), first.sparse_dim()
    for k, t in enumerate(tensors):
        if t.sparse_dim() != n or t.dense_dim() != first.dense_dim():
            raise RuntimeError(f"All tensors must have the same sparse_dim and dense_dim: {n}, {first.dense_dim()}, but tensor at position {k} has "
                               f"{t.sparse_dim()}, {t.dense_dim()}")
        if [x for d, x in enumerate(t.shape) if d != i] != [x for d, x in enumerate(first.shape) if d != i]:
            raise RuntimeError(f"All tensors must have the same shape: {list(first.shape)} (except in the concatenating dimension), but found shape: "
                               f"{list(t.shape)} at position {k}")
    cat = OPS["cat"].fn
    d = first._sp_values._np_dtype
    for t in tensors[1:]:
        d = promote_types(d, t._sp_values._np_dtype)
    size = list(first.shape)
    size[i] = sum([t.shape[i] for t in tensors])
    idx, values, at = [], [], 0
    for t in tensors:
        if i < n:
            idx.append(t._coo_idx if not at else cat([t._coo_idx[:i], t._coo_idx[i:i + 1] + at, t._coo_idx[i + 1:]], 0))
            values.append(cast(t._sp_values, d))
        else:
            v = cast(t._sp_values, d)
            before, behind = list(v.shape), list(v.shape)
            before[i - n + 1], behind[i - n + 1] = at, size[i] - at - v.shape[i - n + 1]
            idx.append(t._coo_idx)
            values.append(cat([v.new_zeros(before), v, v.new_zeros(behind)], i - n + 1))
        at += t.shape[i]
    return sparse_of(cat(idx, 1), cat(values, 0), size)


@_implements("stack")
def _stack(tensors, dim=0):
    """Stacks sparse tensors along a new dim."""
    tensors = list(tensors)
    for t in tensors:
        if tuple(t.shape) != tuple(tensors[0].shape):
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(tensors[0].shape)} at entry 0 and {list(t.shape)}")
    i = wrap_dim("stack", dim, tensors[0].dim() + 1)
    return _cat([_unsqueeze(t, i) if is_sparse(t) else t for t in tensors], i)


_implements("vstack", "row_stack")(lambda tensors: _cat(tensors, 0))
_implements("hstack")(lambda tensors: _cat(tensors, 0 if tensors[0].dim() == 1 else 1))


@_implements("select")
def select(self, dim, index):
    """Returns the tensor at one index of `dim`, without that dim."""
    i, n = wrap_dim("select", dim, self.dim()), self.sparse_dim()
    extent = self._sp_size[i]
    if not -extent <= index < extent:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(self._sp_size)} at dimension {i}")
    index %= extent
    size = self._sp_size[:i] + self._sp_size[i + 1:]
    if i >= n:
        return sparse_of(self._coo_idx, self._sp_values.select(i - n + 1, index), size, self._coo_unique)
    at = _at(self._coo_idx, dim=i, index=index)
    values = _gather(self._sp_values, at)
    if n == 1:
        return values.sum(0)
    return sparse_of(_rows(self._coo_idx, dims=tuple(d for d in range(n) if d != i)).index_select(1, at), values, size, self._coo_unique or at._numel < 2)


@_implements("unbind")
def _unbind(input, dim=0):
    """Returns the tensors at each index of a dim."""
    return tuple([select(input, dim, i) for i in range(input.shape[wrap_dim("unbind", dim, input.dim())])])


SparseTensor.__iter__ = lambda self: iter(_unbind(self))


@_implements("index_select")
def _index_select(input, dim, index):
    """Returns the tensor at several indices of a dim, in their order and with repetitions."""
    i, n = wrap_dim("index_select", dim, input.dim()), input.sparse_dim()
    if index.dim() > 1 or index._np_dtype.kind not in "iu":
        raise IndexError(f"index_select() argument index must be 1-D long-tensor, but got {index.dim()}-D {index.dtype}") if index.dim() > 1 else RuntimeError(
            f"index_select() argument index must be of integer dtype, not {index.dtype}")
    index = cast(index.reshape(-1), I64)
    size = list(input._sp_size)
    extent, size[i] = size[i], index._numel
    if i >= n:
        return sparse_of(input._coo_idx, input._sp_values.index_select(i - n + 1, index), size, input._coo_unique)
    elements, positions = _picked(input._coo_idx, index, dim=i, extent=extent)
    idx = input._coo_idx.index_select(1, elements)
    idx = OPS["cat"].fn([idx[:i], positions.reshape(1, -1), idx[i + 1:]], 0)
    return sparse_of(idx, _gather(input._sp_values, elements), size, False)


@_implements("narrow_copy")
def _narrow_copy(input, dim, start, length):
    """Returns `length` elements of a dim, beginning at `start`."""
    i = wrap_dim("narrow_copy", dim, input.dim())
    extent = input.shape[i]
    start = start + extent if start < 0 else start
    if start < 0 or length < 0 or start + length > extent:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({extent}).")
    return _index_select(input, i, OPS["arange"].fn(start, start + length, device=input.device))


@_method
def __getitem__(self, key):
    keys = key if isinstance(key, tuple) else (key,)
    indexed_dims = sum([k is not None and k is not Ellipsis for k in keys])
    r, d = self, 0
    for k in keys:
        if k is Ellipsis:
            d += self.dim() - indexed_dims
        elif k is None:
            r, d = r.unsqueeze(d), d + 1
        elif isinstance(k, slice) and k == slice(None):
            d += 1
        elif isinstance(k, (int, NUMBER_TYPES[0])) and hasattr(k, "__index__") and not isinstance(k, bool):
            r = r.select(d, int(k))
        else:
            _raise_unsupported("indexing with anything but integers, None, ... and :", self)
    return r


@_implements("t_")
def _t_(self):
    return _set_contents(self, _t(self))


@_implements("transpose_", "swapaxes_", "swapdims_")
def _transpose_in_place(self, dim0, dim1):
    return _set_contents(self, _transpose(self, dim0, dim1))


def _set_contents(self, r):
    if mode.on and self._sp_values._requires_grad_ and self.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    self._coo_idx, self._sp_values, self._sp_size, self._coo_unique = r._coo_idx, r._sp_values, r._sp_size, r._coo_unique
    return self


# ------------------------------------------------------------------ sizes
def _dims_differ(size, sparse_dim, dense_dim):
    return RuntimeError(f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {sparse_dim}, "
                        f"dense_dim = {dense_dim}")


@_implements("sparse_resize_")
def _sparse_resize(self, size, sparse_dim, dense_dim):
    """Resizes the tensor and keeps its elements. RuntimeError if they would not fit."""
    size = tuple([int(n) for n in size])
    if sparse_dim + dense_dim != len(size):
        raise _dims_differ(size, sparse_dim, dense_dim)
    n = self.sparse_dim()
    if self._nnz():
        if (sparse_dim, dense_dim) != (n, self.dense_dim()):
            raise RuntimeError("changing the number of sparse or dense dimensions on a non-empty sparse tensor is not supported")
        if any([a < b for a, b in zip(size, self.shape)]):
            raise RuntimeError("shrinking the size of sparse or dense dimensions on a non-empty sparse tensor is not supported")
        v = self._sp_values
        if size[n:] != tuple(self.shape[n:]):
            padded = v.new_zeros((v.shape[0], *size[n:]))
            padded[(slice(None), *[slice(0, k) for k in self.shape[n:]])] = v
            v = padded
        return _set_contents(self, sparse_of(self._coo_idx, v, size, self._coo_unique))
    return _set_contents(self, _empty_coo(size, sparse_dim, self._sp_values._np_dtype))


@_implements("sparse_resize_and_clear_")
def _sparse_resize_and_clear(self, size, sparse_dim, dense_dim):
    """Resizes the tensor and removes its elements."""
    size = tuple([int(n) for n in size])
    if sparse_dim + dense_dim != len(size):
        raise _dims_differ(size, sparse_dim, dense_dim)
    return _set_contents(self, _empty_coo(size, sparse_dim, self._sp_values._np_dtype))


@_implements("resize_as_sparse_")
def _resize_as(self, the_template):
    """Resizes the tensor to the size of another sparse tensor."""
    return _sparse_resize(self, the_template.shape, the_template.sparse_dim(), the_template.dense_dim())


@_implements("zeros_like", "empty_like")
def _zeros_like(input, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None):
    """Returns a tensor of the same size without elements."""
    no_memory_format(memory_format)
    if layout is not None and str(layout) == "torch.strided":
        return OPS["zeros"].fn(tuple(input.shape), dtype=dtype or input.dtype, device=device or input.device, requires_grad=requires_grad)
    if layout is not None and str(layout) != "torch.sparse_coo":
        _raise_unsupported(f"zeros_like with layout {layout}", input)
    r = _empty_coo(tuple(input.shape), input.sparse_dim(), input._sp_values._np_dtype if dtype is None else as_np(dtype))
    r = r.to(device or input.device)
    return r.requires_grad_() if requires_grad else r


@_implements("new_zeros", "new_empty")
def _new_zeros(self, *size, dtype=None, device=None, layout=None, pin_memory=False, requires_grad=False):
    size = size[0] if len(size) == 1 and isinstance(size[0], (list, tuple)) else size
    r = _empty_coo(tuple([int(n) for n in size]), len(size), self._sp_values._np_dtype if dtype is None else as_np(dtype)).to(device or self.device)
    return r.requires_grad_() if requires_grad else r


def _no_shape(name):
    def fn(input, *args, **kwargs):
        raise RuntimeError(f"{name} is not implemented for sparse tensors")
    fn.__name__ = name
    _implements(name)(fn)


_no_shape("reshape")
_no_shape("flatten")


@_implements("expand", "repeat", "broadcast_to", "expand_as")
def _expand(input, *args, **kwargs):
    raise RuntimeError("expand is unsupported for Sparse tensors")


_method(lambda self, dim=None: (0,) * self.dim() if dim is None else 0, "stride")
_method(lambda self: 0, "storage_offset")
