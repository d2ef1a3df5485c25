"""Sparse tensors: construction and parts.

The ops on sparse tensors are in the other modules of this package, which are loaded with the first
sparse tensor. A sparse tensor shares the autograd graph of its values. Each op is therefore written
with dense ops on values and coordinates, which makes it differentiable. All other ops raise
NotImplementedError (see `mindtorch/core/tensor/sparse.py`).
"""
import importlib
import math

from mindtorch.core.device import device as _device
from mindtorch.core.tensor import dtypes, sparse as sparse_core
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import I32, I64, as_np, of_np
from mindtorch.core.tensor.sparse import CompressedTensor, SparseTensor, SparseUse, at_first, dispatch, meaning, sparse_of
from mindtorch.core.dispatch.op_registry import OPS, register_op
from mindtorch.core.dispatch.op_schema import Bool, Int
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, attributes, is_tensor
from mindtorch.core.tensor.sync import to_host as host_values
from mindtorch.ops._checks import check_tensor
from mindtorch.ops.basic import cast, conj, move
from mindtorch.ops.creation._from_data import CPU, empty_, zeros_

# Kernels on coordinates (int64 tensors of shape (sparse dims, nnz)), and on linear indices into the
# flattened sparse dims.
_keys = primitive("coo_keys", "idx, *, sizes", raw=True)
_merged = primitive("coo_merged", "idx, *, sizes", raw=True)
_rows = primitive("coo_rows", "idx, *, dims", raw=True)
_at = primitive("coo_at", "idx, *, dim, index", raw=True)
_picked = primitive("coo_picked", "idx, index, *, dim, extent", raw=True)
_unique = primitive("coo_unique", "keys", raw=True)
_common = primitive("coo_common", "a, b", raw=True)
_paired = primitive("coo_paired", "a, b", raw=True)
_extents = primitive("coo_extents", "idx", raw=True)
_indices_in = primitive("coo_indices", "idx, *, size", raw=True)
_nonzero = primitive("coo_nonzero", "a, *, sparse_dim", raw=True)
_any = primitive("coo_any", "a, at, *, count", raw=True)
_group_max = primitive("coo_group_max", "a, group, *, count")
_by_rows = primitive("coo_by_rows", "idx, *, rows", raw=True)
_compressed_to_coo_indices = primitive("compressed_to_coo_indices", "ptr, ind, *, columns, block", raw=True)
_packed = primitive("compressed_packed", "idx, *, batch, major, columns", raw=True)
_invariants = primitive("compressed_invariants", "ptr, ind, *, minor, names, sorted", raw=True)
_top = primitive("sparse_top", "v, ptr, ind, b, *, largest", raw=True)

# Kernels on CSR matrices (ptr: where each row's elements begin, ind: column indices, v: values).
_product = primitive("sparse_mm", "v, ptr, ind, b, *, rows, ta",
                     lambda ctx, grad: _dots(conj(ctx.b), grad, ctx.ptr, ctx.ind) if ctx.ta else _dots(grad, conj(ctx.b), ctx.ptr, ctx.ind),
                     None, None,
                     lambda ctx, grad: _product(conj(ctx.v), ctx.ptr, ctx.ind, grad, rows=ctx.shapes[3][0], ta=not ctx.ta))
_terms = primitive("sparse_terms", "pa, ia, pb, ib, pc, ic, *, cols", raw=True)
_sparse_product = primitive("sparse_matmul", "va, pa, ia, vb, pb, ib, *, cols",
                            lambda ctx, grad: _factor(grad[0], ctx.vb, ctx.shapes[0][0], 0, _terms(ctx.pa, ctx.ia, ctx.pb, ctx.ib, ctx.out1, ctx.out2,
                                                                                                   cols=ctx.cols)), None, None,
                            lambda ctx, grad: _factor(grad[0], ctx.va, ctx.shapes[3][0], 1, _terms(ctx.pa, ctx.ia, ctx.pb, ctx.ib, ctx.out1, ctx.out2,
                                                                                                   cols=ctx.cols)), None, None,
                            nondiff=(1, 2))
_dots = primitive("sparse_dots", "a, b, ptr, ind",
                  lambda ctx, grad: _product(grad, ctx.ptr, ctx.ind, conj(ctx.b), rows=ctx.shapes[0][0], ta=False),
                  lambda ctx, grad: _product(grad, ctx.ptr, ctx.ind, conj(ctx.a), rows=ctx.shapes[1][0], ta=True))


at_first.append(lambda: [importlib.import_module(f"{__name__}.{m}")
                         for m in ("_coo", "_pointwise", "_shapes", "_products", "_reductions", "_compressed", "_compressed_ops")])


def _factor(g, other, count, which, terms):
    """Returns the gradient of one factor (first or second, with `count` elements) of a product of
    two sparse matrices, from the elements of the other factor."""
    return _add_up(_gather(g, terms[2]) * _gather(conj(other), terms[1 - which]), terms[which], count)


def is_sparse(x):
    return isinstance(x, SparseTensor)


def _method(fn, name=None):
    setattr(SparseTensor, name or fn.__name__, fn)
    return fn


def _implements(*names, method=True):
    """Decorator: registers the function as the implementation of these ops for sparse operands, and
    as a method of sparse tensors."""
    def deco(fn):
        for n in names:
            meaning(n, fn)
            if method and "." not in n:
                setattr(SparseTensor, n, fn)
        return fn
    return deco


def _raise_unsupported(name, x):
    raise SparseUse(f"{name} is not implemented for a sparse tensor of dtype {x.dtype} on device {x.device} (layout torch.sparse_{x._kind})")


# ------------------------------------------------------------------ parts
def _same_pattern(s, values, coalesced=None):
    """Returns a sparse tensor with other values at the same indices."""
    r = sparse_of(move(s._coo_idx, values._device), values, (*s._sp_size[:s._coo_idx._sizes[0]], *values._sizes[1:]),
                  s._coo_unique if coalesced is None else coalesced)
    if s._lookup:
        attributes(r)["_lookup"] = True
    return r


def no_memory_format(fmt):
    """Raises RuntimeError if a memory format is given: sparse tensors have none."""
    if fmt is not None:
        raise RuntimeError("memory format option is only supported by strided tensors")


def _split(s):
    """Returns (sizes of the sparse dims, sizes of the dense dims)."""
    n = s._coo_idx._sizes[0]
    size = tuple(s._sp_size)
    return size[:n], size[n:]


def _gather(values, at):
    """Returns the rows of `values` at a tensor of indices."""
    return values.index_select(0, at)


def _add_up(values, at, count):
    """Sums the rows of `values` by index: (count, dense dims...)."""
    if values._np_dtype.kind == "b":
        return _any(values, at, count=count)
    return zeros_(size=(count, *values._sizes[1:]), stride=None, np_dtype=values._np_dtype, device=values._device).index_add(0, at, values)


# ------------------------------------------------------------------ construction
def _size_of(size):
    return tuple(int(n) for n in size)


def _empty_coo(size, sparse_dim, d):
    dense = size[sparse_dim:]
    return sparse_of(empty_(size=(sparse_dim, 0), stride=None, np_dtype=I64, device=CPU), zeros_(size=(0, *dense), stride=None, np_dtype=d, device=CPU),
                     size, True)


def _without_elements(size, dtype, kind, device):
    """Implements torch.zeros and torch.empty for sparse layouts."""
    d = dtypes.default_np() if dtype is None else as_np(dtype)
    on = _device.get_default() if device is None else _device.check(device)
    if kind == "coo":
        return _empty_coo(size, len(size), d).to(on)
    if kind not in ("csr", "csc"):
        raise RuntimeError(f"empty_sparse_compressed expected sparse compressed (non-block) tensor layout but got torch.sparse_{kind}")
    return compressed_module().without_elements(kind, size, d, on)


dispatch["zeros of a layout"] = _without_elements


@register_op(method=False)
def sparse_coo_tensor(indices=None, values=None, size=None, *, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False,
                      check_invariants=None, is_coalesced: Bool = None):
    """Creates a sparse tensor of values (nnz, dense dims...) at indices (sparse dims, nnz), or an
    empty one from a size alone.

    RuntimeError if the parts do not match or an index is out of range. With check_invariants, also
    if is_coalesced=True is wrong.
    """
    if indices is None and (size is None or values is not None):
        raise TypeError("sparse_coo_tensor(): expected indices and values, or a size")
    if layout is not None and repr(layout) != "torch.sparse_coo":
        raise RuntimeError(f"sparse_coo_tensor: layout {layout} is not torch.sparse_coo")
    d = None if dtype is None else as_np(dtype)
    if values is None:
        size = indices if size is None else size
        t = _empty_coo(_size_of(size), len(size), dtypes.default_np() if d is None else d)
        if device is not None or _device.get_default() is not CPU:
            t = t.to(_device.check(device))
        t._sp_values.requires_grad = requires_grad
        return t
    tensor = OPS["tensor"].fn
    i = indices if (indices.__class__ is Tensor or is_tensor(indices)) else tensor(indices, dtype=of_np(I64))
    v = values if (values.__class__ is Tensor or is_tensor(values)) else tensor(values)
    if device is not None or i._device is not v._device:
        on = v._device if device is None else _device.check(device)
        i, v = move(i, on), move(v, on)
    if i._np_dtype.kind == "b" or i._np_dtype.kind == "c":
        raise RuntimeError(f"indices must be an int64 tensor, got {i.dtype}")
    if i.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(i._sizes)}")
    sparse_dim, nnz = i._sizes
    if not v.ndim:
        v = v.expand(nnz)
    if v._sizes[0] != nnz:
        raise RuntimeError(f"indices and values must have same nnz, but got nnz from indices: {nnz}, nnz from values: "
                           f"{v._sizes[0]}")
    dense = v._sizes[1:]
    if size is None:
        if not nnz and sparse_dim:
            size = (0,) * sparse_dim + dense
        else:
            size = tuple(host_values(_extents(i)).tolist()) + dense
    size = _size_of(size)
    if len(size) != sparse_dim + len(dense):
        raise RuntimeError(f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {sparse_dim}, "
                           f"dense_dim = {len(dense)}")
    if size[sparse_dim:] != tuple(dense):
        raise RuntimeError(f"values has incorrect size, expected {[nnz, *size[sparse_dim:]]}, got {list(v._sizes)}")
    idx = _indices_in(i, size=size)
    if is_coalesced and (sparse_core.invariants.checked if check_invariants is None else check_invariants):
        key = _keys(idx, sizes=size[:sparse_dim])
        if not host_values(key[1:] > key[:-1]).all():
            raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")
    v = v if d is None else cast(v, d)
    r = sparse_of(idx, v.detach().clone() if requires_grad else v, size, nnz < 2 if is_coalesced is None else bool(is_coalesced))
    return r.requires_grad_() if requires_grad else r


def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """Converts the nonzero elements to a sparse tensor of a layout (default: COO), with
    `sparse_dim` sparse or `dense_dim` dense dims.

    blocksize: block size for the layouts torch.sparse_bsr and torch.sparse_bsc. RuntimeError for
    invalid dims.
    """
    kind = "coo" if layout is None else repr(layout).removeprefix("torch.sparse_")
    if sparse_dim is not None and (layout is not None or blocksize is not None or dense_dim is not None):
        raise TypeError("to_sparse(): takes either sparse_dim, or layout, blocksize and dense_dim")
    if layout is None and blocksize is not None and is_sparse(self) is False:
        raise RuntimeError("to_sparse: conversion to Sparse with blocksize argument given is not supported") if not isinstance(self, CompressedTensor) else (
            RuntimeError("to_sparse: blocksize requires layout torch.sparse_bsr or torch.sparse_bsc"))
    if repr(layout) == "torch.strided":
        raise RuntimeError("to_sparse: layout torch.strided is not a sparse layout")
    if kind in ("csr", "csc", "bsr", "bsc"):
        return compressed_module().convert(self, kind, blocksize, dense_dim)
    if kind != "coo":
        raise NotImplementedError(f"to_sparse: layout {layout} is not supported for dtype {self.dtype} on device {self.device}")
    ndim = self.ndim
    if isinstance(self, CompressedTensor):
        r = compressed_module().to_coo(self)
        if sparse_dim is not None and sparse_dim != r.sparse_dim():
            raise RuntimeError(f"sparse_compressed_to_sparse: conversion to Sparse with sparse_dim argument !={r.sparse_dim()} is not supported")
        return r
    if is_sparse(self):
        if sparse_dim is not None and sparse_dim != self.sparse_dim():
            raise RuntimeError("to_sparse: conversion from Sparse to Sparse with sparse_dim argument !=self.sparse_dim() is not supported")
        return self
    n = ndim - int(dense_dim or 0) if sparse_dim is None else int(sparse_dim)
    if not 0 <= n <= ndim or not n and ndim:
        raise RuntimeError(f"dense_to_sparse: sparse_dim argument must be in >0 when self.dim()={ndim}, got {n}" if n <= 0 else
                           f"dense_to_sparse: sparse_dim argument must not be greater than the number of dimensions {ndim}, got {n}")
    idx = _nonzero(self, sparse_dim=n)
    size, dense = self._sizes[:n], self._sizes[n:]
    values = _gather(self.reshape(math.prod(size), *dense), _keys(idx, sizes=size))
    return sparse_of(idx, values, self._sizes, True)


def compressed_module():
    """Returns the module for compressed layouts, which is imported on demand."""
    return importlib.import_module(f"{__name__}._compressed")


def to_sparse_coo(self):
    """Converts the nonzero elements to a sparse COO tensor."""
    return to_sparse(self)


def to_sparse_csr(self, dense_dim=None):
    """Converts a matrix (or a batch of matrices) to CSR."""
    return compressed_module().convert(self, "csr", None, dense_dim)


def to_sparse_csc(self, dense_dim=None):
    """Converts a matrix (or a batch of matrices) to CSC."""
    return compressed_module().convert(self, "csc", None, dense_dim)


def to_sparse_bsr(self, blocksize, dense_dim=None):
    """Converts a matrix (or a batch of matrices) to BSR."""
    return compressed_module().convert(self, "bsr", blocksize, dense_dim)


def to_sparse_bsc(self, blocksize, dense_dim=None):
    """Converts a matrix (or a batch of matrices) to BSC."""
    return compressed_module().convert(self, "bsc", blocksize, dense_dim)


for _f in (to_sparse, to_sparse_coo, to_sparse_csr, to_sparse_csc, to_sparse_bsr, to_sparse_bsc):
    setattr(Tensor, _f.__name__, _f)


@_method
def to_dense(self, dtype=None, *, masked_grad=None):
    """Converts the tensor to a strided one."""
    if dtype is not None:
        raise RuntimeError("dtype argument is not supported by sparse_to_dense")
    sizes, dense = _split(self)
    v = self._sp_values
    return _add_up(v, _keys(self._coo_idx, sizes=sizes), math.prod(sizes)).reshape(self._sp_size)


@_method
def coalesce(self):
    """Returns the tensor with unique, sorted indices."""
    if self._coo_unique:
        return self
    sizes, _ = _split(self)
    idx, at = _merged(self._coo_idx, sizes=sizes)
    return sparse_of(idx, _add_up(self._sp_values, at, idx._sizes[1]), self._sp_size, True)


def sparse_mask(self, mask):
    """Returns the elements of a tensor at the indices of the sparse tensor `mask`. Elements missing
    in a sparse `self` are zeros."""
    if isinstance(mask, CompressedTensor) or isinstance(self, CompressedTensor):
        return compressed_module().masked(self, mask)
    if not is_sparse(mask):
        raise RuntimeError("sparse_mask(): mask must be a sparse tensor")
    if tuple(self.shape) != tuple(mask.shape):
        raise RuntimeError(f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size "
                           f"{list(mask.shape)}")
    sizes, dense = _split(mask)
    keys = _keys(mask._coo_idx, sizes=sizes)
    if not is_sparse(self):
        return _same_pattern(mask, _gather(self.reshape(math.prod(sizes), *dense), keys))
    s = coalesce(self)
    if s.sparse_dim() != mask.sparse_dim():
        raise RuntimeError(f"sparse_mask(): self and mask must have the same number of sparse dims, got {s.sparse_dim()} and {mask.sparse_dim()}")
    mask = coalesce(mask)
    i, j = _common(_keys(s._coo_idx, sizes=sizes), _keys(mask._coo_idx, sizes=sizes))
    return _same_pattern(mask, _add_up(_gather(s._sp_values, i), j, mask._coo_idx._sizes[1]))


Tensor.sparse_mask = sparse_mask


# ------------------------------------------------------------------ conversion of indices
def _check_integer(name, x):
    if x._np_dtype.kind not in "iu":
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{scalar_type_name(x._np_dtype)}' on device {x.device}")


@register_op(method=False, out="same")
def _convert_indices_from_coo_to_csr(input, size: Int, *, out_int32: Bool = False):
    """Returns where each of `size` rows begins in the sorted row indices of a matrix, and where the
    last row ends."""
    check_tensor("_convert_indices_from_coo_to_csr", input)
    _check_integer("convert_indices_from_coo_to_csr", input)
    if len(input._sizes) > 1:
        raise RuntimeError(f"Input is supposed to be a vector, but got {len(input._sizes)} dimensional tensor.")
    rows = OPS["arange"].fn(size + 1, dtype=input.dtype, device=input.device)
    return OPS["searchsorted"].fn(input.reshape(-1), rows, out_int32=out_int32)


@register_op(method=False, out="same")
def _convert_indices_from_csr_to_coo(crow_indices, col_indices, *, out_int32: Bool = False, transpose: Bool = False):
    """Returns the coordinates (dims, elements) of a CSR matrix, or of a batch of them. transpose:
    columns before rows."""
    check_tensor("_convert_indices_from_csr_to_coo", crow_indices, "crow_indices")
    check_tensor("_convert_indices_from_csr_to_coo", col_indices, "col_indices", 2)
    _check_integer("convert_indices_from_csr_to_coo", crow_indices)
    idx, _ = _compressed_to_coo_indices(crow_indices, col_indices, columns=bool(transpose), block=(1, 1))
    return cast(idx, I32 if out_int32 else I64)
