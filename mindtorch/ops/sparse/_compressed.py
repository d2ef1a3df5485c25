"""Compressed sparse tensors (CSR, CSC, BSR, BSC): construction, conversion, parts, copies, shapes.

Computations with them are in `mindtorch/ops/sparse/_compressed_ops.py`.
"""
import math

from mindtorch.core.device import device as _device
from mindtorch.core.tensor import dtypes
from mindtorch.core.tensor.dtypes import NUMBER_TYPES, as_np
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.sparse import CompressedTensor, Sparse, SparseUse, compressed, compressed_of, sparse_of
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import Parameter, Tensor, detached, is_tensor
from mindtorch.core.tensor.sync import to_host as host_values
from mindtorch.ops._checks import wrap_dim
from mindtorch.ops.basic import cast, clone, move
from mindtorch.ops.sparse import (_add_up, _gather, _invariants, _keys, _merged, _nonzero, _packed, _compressed_to_coo_indices, coalesce, is_sparse,
                                  to_dense as _coo_to_dense)
from mindtorch.ops.sparse._coo import _without_dtype, copied, shifted, viewed

FLIPPED = {"csr": "csc", "csc": "csr", "bsr": "bsc", "bsc": "bsr"}
TITLES = {"coo": "Sparse", "csr": "SparseCsr", "csc": "SparseCsc", "bsr": "SparseBsr", "bsc": "SparseBsc"}


def _method(fn, name=None):
    setattr(CompressedTensor, name or fn.__name__, fn)
    return fn


def _implements(*names):
    """Decorator: registers the function as the implementation of these ops for compressed operands,
    and as a method of compressed tensors."""
    def deco(fn):
        for n in names:
            compressed[n] = fn
            if "." not in n:
                setattr(CompressedTensor, n, fn)
        return fn
    return deco


def layout_name(x):
    """Returns PyTorch's name of a tensor's layout."""
    return TITLES[x._kind] if isinstance(x, Sparse) else "Strided"


def by_columns(kind):
    return kind in ("csc", "bsc")


def blocks(x):
    """Returns the block size, or () for layouts without blocks."""
    if x._kind not in ("bsr", "bsc"):
        return ()
    n = x._sp_ind.ndim
    return tuple(x._sp_values.shape[n:n + 2])


def parts(x):
    """Returns (sizes of the batch, of the matrix, of the dense dims)."""
    n, size = x._sp_ptr.ndim - 1, tuple(x._sp_size)
    return size[:n], size[n:n + 2], size[n + 2:]


# ------------------------------------------------------------------ construction
def construct(kind, name, ptr, ind, values, size, dtype, device, requires_grad, check):
    """Creates a compressed tensor from user-supplied parts. RuntimeError if they do not match."""
    tensor = OPS["tensor"].fn
    ptr, ind, values = [x if is_tensor(x) else tensor(x) for x in (ptr, ind, values)]
    # empty lists become float tensors
    ptr, ind = [x.long() if not x._numel and x._np_dtype.kind == "f" else x for x in (ptr, ind)]
    on = values._device if device is None else _device.check(device)
    ptr, ind, values = move(ptr, on), move(ind, on), move(values, on)
    rows, cols = ("ccol", "row") if by_columns(kind) else ("crow", "col")
    for x in (ptr, ind):
        if x._np_dtype.name not in ("int32", "int64"):
            raise RuntimeError(f"{rows}_indices and {cols}_indices must be an int32 or int64 type, but got: {x.dtype}")
    if ptr._np_dtype != ind._np_dtype:
        raise RuntimeError(f"{rows}_indices and {cols}_indices must have the same dtype, but got {ptr.dtype} and {ind.dtype}")
    block = 2 if kind in ("bsr", "bsc") else 0
    if ptr.ndim < 1 or ptr.ndim != ind.ndim or values.ndim < ind.ndim + block:
        raise RuntimeError(f"{name}: {rows}_indices and {cols}_indices must have the batch dimensions and one more, and values at least those"
                           f"{' and two block dimensions' if block else ''}, but got {ptr.ndim}, {ind.ndim} and {values.ndim} dimensions")
    nb = ptr.ndim - 1
    batch = tuple(ptr.shape[:-1])
    if tuple(ind.shape[:-1]) != batch or tuple(values.shape[:nb]) != batch or values.shape[nb] != ind.shape[-1]:
        raise RuntimeError(f"{name}: {cols}_indices ({list(ind.shape)}), values ({list(values.shape)}) and {rows}_indices ({list(ptr.shape)}) must have "
                           "the same batch dimensions and number of elements")
    b = tuple(values.shape[nb + 1:nb + 1 + block]) or (1, 1)
    dense = tuple(values.shape[nb + 1 + block:])
    major = ptr.shape[-1] - 1
    if major < 0:
        raise RuntimeError(f"{name}: {rows}_indices must have (number of {rows[1:]}s + 1) elements, but is empty")
    if size is None:
        minor = int(ind.max()) + 1 if ind._numel else 0
        r, c = (minor, major) if by_columns(kind) else (major, minor)
        size = (*batch, r * b[0], c * b[1], *dense)
    size = tuple([int(n) for n in size])
    if any([n < 0 for n in size]):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(size)}")
    if len(size) != nb + 2 + len(dense) or size[:nb] != batch or size[nb + 2:] != dense:
        raise RuntimeError(f"{name}: size {list(size)} must consist of the batch dimensions {list(batch)}, two matrix dimensions and the dense "
f"dimensions {list(dense)}")
    r, c = size[nb], size[nb + 1]
    if r % b[0] or c % b[1]:
        raise RuntimeError(f"{name}: tensor sparse size ({r}, {c}) must be divisible by given blocksize ({b[0]}, {b[1]})")
    r, c = r // b[0], c // b[1]
    if (c if by_columns(kind) else r) != major:
        raise RuntimeError(f"{rows}_indices.shape[-1] must be equal to the number of {'columns' if by_columns(kind) else 'rows'} + 1, "
                           f"but got {major + 1} with size {list(size)}")
    _invariants(ptr, ind, minor=r if by_columns(kind) else c, names=(rows, cols), sorted=bool(check))
    values = values if dtype is None else cast(values, as_np(dtype))
    r = compressed_of(kind, ptr, ind, values.detach().clone() if requires_grad else values, size)
    return r.requires_grad_() if requires_grad else r


# ------------------------------------------------------------------ conversion
def pack(kind, idx, values, size, nb, block=()):
    """Packs unique coordinates (batch dims + 2, n) and values (n, dense dims...) into a compressed
    tensor."""
    batch, (r, c), dense = tuple(size[:nb]), size[nb:nb + 2], tuple(size[nb + 2:])
    if block:
        b0, b1 = block
        if r % b0 or c % b1:
            raise RuntimeError(f"dense_to_sparse_{kind}: tensor sparse size ({r},{c}) must be divisible by given blocksize ({b0},{b1})")
        row, col = idx[nb], idx[nb + 1]
        stack = OPS["stack"].fn
        outer, inner = [row // b0, col // b1], (row % b0) * b1 + col % b1
        idx, at = _merged(stack([*idx[:nb].unbind(0), *outer]), sizes=(*batch, r // b0, c // b1))
        count = idx._sizes[1]
        values = _add_up(values, at * (b0 * b1) + inner, count * b0 * b1).reshape(count, b0, b1, *dense)
        r, c = r // b0, c // b1
    ptr, ind, order = _packed(idx, batch=batch, major=c if by_columns(kind) else r, columns=by_columns(kind))
    if order._numel:
        values = _gather(values, order)
    return compressed_of(kind, ptr, ind, values.reshape(*batch, ind.shape[-1], *block, *dense), size)


def convert(x, kind, blocksize, dense_dim):
    """Converts a tensor of any layout to a compressed one."""
    need = kind in ("bsr", "bsc")
    if blocksize is None and need:
        raise RuntimeError(f"dense_to_sparse: conversion from {layout_name(x)} to {TITLES[kind]} without blocksize argument given is not supported")
    if blocksize is not None and not need:
        raise RuntimeError(f"dense_to_sparse: conversion from {layout_name(x)} to {TITLES[kind]} with blocksize argument given is not supported")
    block = () if not need else tuple([int(n) for n in (blocksize if isinstance(blocksize, (list, tuple)) else (blocksize, blocksize))])
    if need and (len(block) != 2 or block[0] <= 0 or block[1] <= 0):
        raise RuntimeError(f"dense_to_sparse_{kind}: blocksize must be two positive numbers, but got {list(block)}")
    if isinstance(x, CompressedTensor):
        if dense_dim is not None and dense_dim != x.dense_dim():
            raise RuntimeError(f"to_sparse_{kind}: conversion from {layout_name(x)} with dense_dim argument given is not supported")
        if x._kind == kind:
            if block != blocks(x):
                raise RuntimeError(f"to_sparse_{kind}: conversion from {layout_name(x)} to {TITLES[kind]} with blocksize changed from {list(blocks(x))} to "
                                   f"{list(block)} is not supported")
            return x
        if blocks(x) and block != blocks(x):
            raise RuntimeError(f"sparse_compressed_to_sparse_{kind}: expected SparseCsr or SparseCsc layout but got {layout_name(x)}")
        s = to_coo(x, blockwise=bool(block) and blocks(x) == block)
        batch, _, _ = parts(x)
        if block and blocks(x) == block:
            r, c = x.shape[len(batch)] // block[0], x.shape[len(batch) + 1] // block[1]
            ptr, ind, order = _packed(s._coo_idx, batch=batch, major=c if by_columns(kind) else r, columns=by_columns(kind))
            v = s._sp_values if not order._numel else _gather(s._sp_values, order)
            return compressed_of(kind, ptr, ind, v.reshape(*batch, ind.shape[-1], *v.shape[1:]), x.shape)
        return pack(kind, s._coo_idx, s._sp_values, tuple(x.shape), len(batch), block)
    if is_sparse(x):
        if x.sparse_dim() != 2 or dense_dim is not None and dense_dim != x.dense_dim():
            raise RuntimeError(f"to_sparse_{kind}: conversion from Sparse to {TITLES[kind]} for input tensors with sparse_dim()!=2 is not supported")
        s = coalesce(x)
        return pack(kind, s._coo_idx, s._sp_values, tuple(s.shape), 0, block)
    n = int(dense_dim or 0)
    if x.ndim < 2:
        raise RuntimeError(f"to_sparse_{kind}: expected a tensor of at least 2 dimensions, but got {x.ndim}")
    if not 0 <= n <= x.ndim - 2:
        raise RuntimeError(f"dense_to_sparse_{kind}: dense_dim argument must be in [0,{x.ndim - 2}] range, but {n} is given")
    size = tuple(x.shape)
    idx = _nonzero(x, sparse_dim=x.ndim - n)
    values = _gather(x.reshape(math.prod(size[:x.ndim - n]), *size[x.ndim - n:]), _keys(idx, sizes=size[:x.ndim - n]))
    return pack(kind, idx, values, size, x.ndim - n - 2, block)


def to_coo(x, blockwise=False):
    """Converts to COO, including the zeros within blocks. blockwise: the elements are the blocks,
    as dense dims."""
    batch, (r, c), dense = parts(x)
    block = blocks(x)
    b = (1, 1) if blockwise or not block else block
    idx, sorted_ = _compressed_to_coo_indices(x._sp_ptr, x._sp_ind, columns=by_columns(x._kind), block=b)
    v = x._sp_values
    if blockwise:
        size = (*batch, r // block[0], c // block[1], *block, *dense)
        return sparse_of(idx, v.reshape(math.prod(v.shape[:len(batch) + 1]), *block, *dense), size, False)
    s = sparse_of(idx, v.reshape(idx._sizes[1], *dense), x._sp_size, bool(host_values(sorted_)))
    return coalesce(s)


@_method
def to_dense(self, dtype=None, *, masked_grad=None):
    """Converts the tensor to a strided one."""
    if dtype is not None:
        raise RuntimeError("dtype argument is not supported by sparse_csr_to_dense")
    return _coo_to_dense(to_coo(self))


def masked(x, mask):
    """Returns the elements of a tensor at the indices of a compressed one."""
    if not isinstance(mask, CompressedTensor):
        raise RuntimeError(f"sparse_mask_sparse_compressed expects mask to have sparse compressed layout, got {layout_name(mask)}")
    if tuple(x.shape) != tuple(mask.shape):
        raise RuntimeError(f"sparse_mask(): operands have incompatible sizes; self has size {list(x.shape)} but mask has size {list(mask.shape)}")
    if x is mask:
        return x
    batch, (r, c), dense = parts(mask)
    block = blocks(mask)
    idx, _ = _compressed_to_coo_indices(mask._sp_ptr, mask._sp_ind, columns=by_columns(mask._kind), block=block or (1, 1))
    pattern = sparse_of(idx, OPS["ones"].fn((idx._sizes[1], *dense), device=mask.device), mask._sp_size, False)
    x = x.to_dense() if isinstance(x, Sparse) else x
    v = x.sparse_mask(pattern)._sp_values
    return mask._with_values(v.reshape(*mask._sp_values.shape))


# ------------------------------------------------------------------ parts, for users
def _part(name, attribute, columns):
    def method(self):
        if by_columns(self._kind) is not columns:
            raise RuntimeError(f"{name} expected sparse {'column' if columns else 'row'} compressed tensor layout but got {layout_name(self)}")
        return detached(getattr(self, attribute))
    method.__name__ = name
    _method(method)


_part("crow_indices", "_sp_ptr", False)
_part("col_indices", "_sp_ind", False)
_part("ccol_indices", "_sp_ptr", True)
_part("row_indices", "_sp_ind", True)
_method(lambda self: viewed(self._sp_values), "values")
_method(lambda self: detached(self._sp_values), "_values")
_method(lambda self: self._sp_ind.shape[-1], "_nnz")
_method(lambda self: 2, "sparse_dim")
_method(lambda self: len(parts(self)[2]), "dense_dim")
for _name in ("indices", "is_coalesced", "coalesce"):
    def _no(self, _name=_name):
        raise RuntimeError(f"{_name} expected sparse coordinate tensor layout but got {layout_name(self)}")
    _method(_no, _name)


@_method
def size(self, dim=None):
    """Returns the shape, or the size of one dim."""
    return self._sp_size if dim is None else self._sp_size[wrap_dim("size", dim, len(self._sp_size))]


_method(lambda self: len(self._sp_size), "dim")
CompressedTensor.ndimension = CompressedTensor.dim
_method(lambda self: math.prod(self._sp_size), "numel")
CompressedTensor.nelement = CompressedTensor.numel
_method(lambda self: self._sp_values._np_dtype.itemsize, "element_size")
_method(lambda self: self._sp_values._np_dtype.kind in "fV", "is_floating_point")
_method(lambda self: self._sp_values._np_dtype.kind == "c", "is_complex")
_method(lambda self: self._sp_values.is_signed(), "is_signed")
_method(lambda self: self._sp_size[0], "__len__")
_method(lambda self: self._sp_values.get_device(), "get_device")
_implements("is_same_size")(lambda input, other: tuple(input.shape) == tuple(other.shape))
CompressedTensor.itemsize = property(lambda self: self._sp_values._np_dtype.itemsize)


def _no_memory(name, what):
    def method(self, *args, **kwargs):
        x = next(t for t in self if isinstance(t, CompressedTensor)) if self.__class__ in (list, tuple) else self
        raise RuntimeError(f"Sparse {x._kind.upper()} tensors do not have {what}")
    method.__name__ = name
    _implements(name)(method)


for _name, _what in (("stride", "strides"), ("is_contiguous", "is_contiguous"), ("contiguous", "is_contiguous"), ("reshape", "is_contiguous"),
                     ("flatten", "is_contiguous"), ("unsqueeze", "strides"), ("squeeze", "strides"), ("narrow", "strides"), ("split", "strides"),
                     ("cat", "is_contiguous"), ("stack", "is_contiguous")):
    _no_memory(_name, _what)


@_implements("expand", "expand_as", "broadcast_to", "repeat")
def _expand(input, *args, **kwargs):
    raise RuntimeError(f"expand is unsupported for {layout_name(input)} tensors")


@_method
def numpy(self, *, force=False):
    raise TypeError(f"can't convert {layout_name(self)} layout tensor to numpy. Use Tensor.to_dense() first.")


@_method
def __repr__(self, *, tensor_contents=None):
    """Formats the tensor like PyTorch."""
    v = self._sp_values.detach()
    lines = []
    names = ("ccol_indices", "row_indices") if by_columns(self._kind) else ("crow_indices", "col_indices")
    for name, t in zip((*names, "values"), (self._sp_ptr, self._sp_ind, v)):
        text = shifted(t.detach(), 8 + len(name))
        if not t._numel:
            text = f"tensor([], size={tuple(t.shape)})"
        lines.append(f"{name}={_without_dtype(text)}")
    text = "tensor(" + ",\n       ".join(lines)
    more = [f"size={tuple(self._sp_size)}", f"nnz={self._nnz()}"]
    if v.dtype not in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool_) or v.dtype == dtypes.int64 and not v.numel():
        more.append(f"dtype={v.dtype}")
    more.append(f"layout=torch.sparse_{self._kind}")
    if self._sp_values._grad_fn_ is not None:
        more.append(f"grad_fn=<{type(self._sp_values._grad_fn_).__name__}>")
    elif self._sp_values._requires_grad_:
        more.append("requires_grad=True")
    width = len(text.rpartition("\n")[2]) + 2
    for m in more:
        # Starts a new line if the current one would exceed 80 characters.
        fits = width + len(m) + 2 <= 80
        text += (", " if fits else ",\n       ") + m
        width = (width if fits else 5) + len(m) + 2
    return ("Parameter containing:\n" if isinstance(self, Parameter) else "") + text + ")"


CompressedTensor.__str__ = CompressedTensor.__repr__
CompressedTensor.__format__ = lambda self, spec: object.__format__(self, spec)
CompressedTensor.__hash__ = Tensor.__hash__


# ------------------------------------------------------------------ history, copies, dtypes
@_method
def detach(self):
    """Returns the tensor detached from the autograd graph."""
    return self._with_values(self._sp_values.detach())


def _set_data(self, value):
    if not isinstance(value, CompressedTensor) or value._kind != self._kind:
        raise RuntimeError(f".data of a torch.sparse_{self._kind} tensor must be assigned a tensor of the same layout")
    self._put_data(value._sp_values)
    self._sp_ptr, self._sp_ind, self._sp_size = value._sp_ptr, value._sp_ind, value._sp_size


CompressedTensor.data = property(detach, _set_data)


@_implements("clone")
def _clone(self, *, memory_format=None):
    return compressed_of(self._kind, clone(self._sp_ptr), clone(self._sp_ind), self._sp_values.clone(), self._sp_size)


@_method
def __deepcopy__(self, memo):
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.")
    return copied(self, _clone(self.detach()), memo)


def _moved(self, v):
    if v is self._sp_values:
        return self
    return compressed_of(self._kind, move(self._sp_ptr, v._device), move(self._sp_ind, v._device), v, self._sp_size)


@_implements("to")
def _to(self, *args, **kwargs):
    return _moved(self, self._sp_values.to(*args, **kwargs))


def _forward_to_values(name):
    def method(self, *args, **kwargs):
        return _moved(self, getattr(self._sp_values, name)(*args, **kwargs))
    method.__name__ = name
    _method(method)


for _name in "float double half bfloat16 int long short char byte bool cfloat cdouble cpu cuda npu".split():
    _forward_to_values(_name)


@_method
def type_as(self, other):
    """Converts the tensor to the dtype and device of another one."""
    return _moved(self, self._sp_values.to(dtype=other.dtype, device=other.device))


@_method
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """Creates a strided tensor from data, with this tensor's dtype by default."""
    return self._sp_values.new_tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)


def _tensor_copy(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    r = _clone(data.detach()).to(dtype=data.dtype if dtype is None else dtype, device=data.device if device is None else device)
    return r.requires_grad_() if requires_grad else r


compressed["tensor"] = _tensor_copy


@_method
def type(self, dtype=None, non_blocking=False):
    if dtype is None:
        raise RuntimeError(f"Unimplemented backend {layout_name(self)}{self.device.type.upper()}")
    return _moved(self, self._sp_values.type(dtype))


def _set_contents(self, r):
    """Replaces the contents of `self` with those of `r`."""
    if tuple(r._sp_size) != tuple(self._sp_size):
        raise RuntimeError(f"output with shape {list(self._sp_size)} doesn't match the shape {list(r._sp_size)}")
    v, new = self._sp_values, cast(r._sp_values, self._sp_values._np_dtype)
    if new._sizes == v._sizes and not (mode.on and (v._requires_grad_ or new._requires_grad_)):
        self._update_grad()  # must precede the change of the indices
        v.detach().copy_(new)  # visible to tensors that share the values (`.data`, `detach()`)
    else:
        self._put_values(new)
    self._sp_ptr, self._sp_ind = r._sp_ptr, r._sp_ind
    return self


def without_elements(kind, size, d, device, block=()):
    """Returns a compressed matrix of a size and dtype without elements. d: a NumPy dtype."""
    if len(size) < 2:
        raise RuntimeError(f"torch.empty: Only batched sparse compressed (non-block) tensors are supported, but got size {list(size)}")
    batch, major = tuple(size[:-2]), size[-1] if by_columns(kind) else size[-2]
    if block:
        major //= block[1] if by_columns(kind) else block[0]
    zeros, of = OPS["zeros"].fn, {"dtype": dtypes.int64, "device": device}
    values = zeros((*batch, 0, *block), dtype=dtypes.of_np(d), device=device)
    return compressed_of(kind, zeros((*batch, major + 1), **of), zeros((*batch, 0), **of), values, size)


@_implements("zero_")
def _zero_(self):
    """Removes all elements."""
    if self.dense_dim():
        raise SparseUse(f"zero_ of a tensor with dense dims is not implemented (layout torch.sparse_{self._kind}, dtype {self.dtype}, device {self.device})")
    return _set_contents(self, without_elements(self._kind, tuple(self._sp_size), self._sp_values._np_dtype, self.device, blocks(self)))


@_implements("fill_")
def _fill_(self, value):
    """Fills every stored element."""
    return _set_contents(self, self._with_values(OPS["full_like"].fn(self._sp_values.detach(), value)))


@_implements("copy_")
def _copy_(self, src, non_blocking=False):
    """Copies a tensor of the same layout."""
    if not isinstance(self, CompressedTensor):
        raise RuntimeError(f"copy_sparse_compressed_ expected sparse compressed tensor layout but got {layout_name(self)}")
    if layout_name(self) != layout_name(src):
        raise RuntimeError("torch.copy_: copy of sparse compressed tensors having different layouts is not supported. "
                           f"self layout is {layout_name(self)} and src layout is {layout_name(src)}")
    if tuple(self.shape) != tuple(src.shape) or self._nnz() != src._nnz() or blocks(self) != blocks(src):
        raise RuntimeError("torch.copy_: only sparse compressed tensors with the same number of specified elements, size and blocks are supported.")
    return _set_contents(self, _clone(src))


@_implements("zeros_like")
def _zeros_like(input, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None):
    if layout is not None and repr(layout) == "torch.strided":
        return OPS["zeros"].fn(tuple(input.shape), dtype=dtype or input.dtype, device=device or input.device, requires_grad=requires_grad)
    if layout is not None and repr(layout) != f"torch.sparse_{input._kind}" or input.dense_dim():
        raise SparseUse(f"zeros_like of layout torch.sparse_{input._kind} with layout={layout} or dense dims is not implemented (dtype {input.dtype}, device "
                        f"{input.device})")
    d = input._sp_values._np_dtype if dtype is None else as_np(dtype)
    r = without_elements(input._kind, tuple(input.shape), d, device or input.device, blocks(input))
    return r.requires_grad_() if requires_grad else r


def _like(name):
    def fn(input, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None):
        if layout is not None and repr(layout) != f"torch.sparse_{input._kind}":
            raise SparseUse(f"{name} of layout torch.sparse_{input._kind} with layout={layout} is not implemented (dtype {input.dtype}, "
                            f"device {input.device})")
        r = _moved(input, OPS[name].fn(input._sp_values.detach(), dtype=dtype, device=device))
        return r.requires_grad_() if requires_grad else r
    fn.__name__ = name
    _implements(name)(fn)


_like("ones_like")
_like("empty_like")


@_implements("new_zeros", "new_empty")
def _new_zeros(self, *size, dtype=None, device=None, layout=None, pin_memory=False, requires_grad=False):
    size = size[0] if len(size) == 1 and isinstance(size[0], (list, tuple)) else size
    d = self._sp_values._np_dtype if dtype is None else as_np(dtype)
    r = without_elements(self._kind, tuple([int(n) for n in size]), d, device or self.device, blocks(self))
    return r.requires_grad_() if requires_grad else r


@_implements("resize_as_sparse_")
def _resize_as_sparse_(self, the_template):
    if tuple(self.shape) != tuple(the_template.shape) or self._kind != getattr(the_template, "_kind", None):
        raise SparseUse(f"resize_as_sparse_ to another size or layout is not implemented for layout torch.sparse_{self._kind}, dtype {self.dtype}, "
                        f"device {self.device}")
    return self


# ------------------------------------------------------------------ shapes
@_implements("transpose", "swapaxes", "swapdims")
def _transpose(input, dim0, dim1):
    """Swaps two dims. Swapping rows and columns exchanges the row- and the column-compressed
    layout."""
    nb, ndim = len(parts(input)[0]), input.dim()
    i, j = sorted([wrap_dim("transpose", d, ndim) for d in (dim0, dim1)])
    if i == j:
        return input
    kinds = ["Batch" if d < nb else "Sparse" if d < nb + 2 else "Dense" for d in (i, j)]
    if kinds[0] != kinds[1]:
        raise RuntimeError(f"transpose(): can only transpose dimensions of the same type (Batch, Sparse, Dense), got {i}({kinds[0]}) and {j}({kinds[1]})")
    size = list(input._sp_size)
    size[i], size[j] = size[j], size[i]
    ptr, ind, v = input._sp_ptr, input._sp_ind, input._sp_values
    if kinds[0] == "Batch":
        return compressed_of(input._kind, ptr.transpose(i, j), ind.transpose(i, j), v.transpose(i, j), size)
    if kinds[0] == "Dense":
        more = v.ndim - ndim
        return compressed_of(input._kind, ptr, ind, v.transpose(i + more, j + more), size)
    return compressed_of(FLIPPED[input._kind], ptr, ind, v.transpose(nb + 1, nb + 2) if blocks(input) else v, size)


@_implements("t")
def _t(input):
    """Transposes a matrix."""
    if input.dim() > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but self is {input.dim()}D")
    return _transpose(input, 0, 1)


@_implements("adjoint")
def _adjoint(input):
    """Returns the conjugate transpose."""
    return _transpose(input.conj(), -2, -1)


CompressedTensor.T = property(_t)
CompressedTensor.mT = property(lambda self: _transpose(self, -2, -1))
CompressedTensor.H = CompressedTensor.mH = property(_adjoint)


@_implements("t_", "transpose_")
def _transpose_in_place(self, *dims):
    raise RuntimeError(f"torch.transpose_: in-place transposition is not supported for {layout_name(self)} layout")


@_implements("select")
def _select(input, dim, index):
    """Returns the matrix at an index of the batch, or the elements of a row or column as a sparse
    COO tensor."""
    batch, _, dense = parts(input)
    nb = len(batch)
    i = wrap_dim("select", dim, input.dim())
    extent = input._sp_size[i]
    if not -extent <= index < extent:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(input._sp_size)} at dimension {i}")
    size = input._sp_size[:i] + input._sp_size[i + 1:]
    if i < nb:
        return compressed_of(input._kind, input._sp_ptr.select(i, index), input._sp_ind.select(i, index), input._sp_values.select(i, index), size)
    if i >= nb + 2:
        v = input._sp_values
        return compressed_of(input._kind, input._sp_ptr, input._sp_ind, v.select(i + v.ndim - input.dim(), index), size)
    if blocks(input):
        raise RuntimeError("select(): no view exists for the given input, consider using torch.select_copy.")
    if nb:
        raise RuntimeError("select(): selecting rows or columns is not implemented for batched sparse compressed tensors.")
    return to_coo(input).select(i, index)


@_implements("unbind")
def _unbind(input, dim=0):
    """Returns the tensors at each index of a dim."""
    return tuple([_select(input, dim, i) for i in range(input.shape[wrap_dim("unbind", dim, input.dim())])])


CompressedTensor.__iter__ = lambda self: iter(_unbind(self))


@_method
def __getitem__(self, key):
    keys = key if isinstance(key, tuple) else (key,)
    given = sum([k is not None and k is not Ellipsis for k in keys])
    r, d = self, 0
    for k in keys:
        if k is Ellipsis:
            d += self.dim() - given
        elif isinstance(k, slice) and k == slice(None):
            d += 1
        elif isinstance(k, (int, NUMBER_TYPES[0])) and hasattr(k, "__index__") and not isinstance(k, bool):
            r = r.select(d, int(k))
        else:
            raise RuntimeError(f"Sparse {self._kind.upper()} tensors do not have strides: only integers, ... and : are supported as indices")
    return r
