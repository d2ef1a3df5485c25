"""Sparse COO tensors: products."""
from mindtorch.core.tensor.sparse import Sparse, SparseTensor, SparseUse, meaning, sparse_of
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.ops._checks import check_tensor
from mindtorch.ops.sparse import (_add_up, _by_rows, _compressed_to_coo_indices, _gather, _implements, _keys, _method, _product, _raise_unsupported,
                                  _sparse_product, _unique, is_sparse)
from mindtorch.ops.sparse._shapes import _t


def _matrix(name, x, arg):
    if x.dim() != 2:
        raise RuntimeError(f"{name}: {arg} must be a matrix, got {x.dim()}-D tensor")
    if is_sparse(x) and x.dense_dim():
        raise RuntimeError(f"{name}: {arg} has dense dims, which matrix products do not support")


def by_rows(idx, values, rows):
    """Converts a matrix of coordinates to CSR: (values, where each row begins, column indices)."""
    ptr, ind, order = _by_rows(idx, rows=rows)
    return (_gather(values, order) if order._numel else values), ptr, ind


def check_pair(name, a, b):
    """Checks the sizes (n, k) @ (k, m) and dtypes of a matrix product. Returns (n, m)."""
    _matrix(name, a, "self")
    _matrix(name, b, "mat2")
    (n, k), (k2, m) = a.shape, b.shape
    if k != k2:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {k2}x{m})")
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected mat1 and mat2 to have the same dtype, but got: {a.dtype} != {b.dtype}")
    if str(a.dtype) == "torch.bool":
        raise SparseUse(f"\"addmm_sparse_dense\" not implemented for 'Bool' (device {a.device})")
    return n, m


def product_of_rows(a, b, cols):
    """Multiplies two matrices in the form of `by_rows` and returns the product in that form."""
    return _sparse_product(*a, *b, cols=cols)


@_implements("mm")
def _mm(input, mat2):
    """Computes a matrix product. Two sparse operands return a sparse result; otherwise the result
    is dense."""
    n, m = check_pair("mm", input, mat2)
    if not is_sparse(mat2):
        v, ptr, ind = by_rows(input._coo_idx, input._sp_values, n)
        return _product(v, ptr, ind, mat2, rows=n, ta=False)
    if not is_sparse(input):
        return _mm(_t(mat2), input.t()).t()
    a, b = by_rows(input._coo_idx, input._sp_values, n), by_rows(mat2._coo_idx, mat2._sp_values, mat2.shape[0])
    v, ptr, ind = product_of_rows(a, b, m)
    return sparse_of(_compressed_to_coo_indices(ptr, ind, columns=False, block=(1, 1))[0], v, (n, m), True)


def matmul_by(mm, input, other):
    """Computes @ of matrices and vectors. `mm` multiplies two matrices."""
    check_tensor("matmul", input)
    check_tensor("matmul", other, "other", 2)
    if input.dim() == 2 and other.dim() == 1 and not isinstance(other, Sparse):
        return mm(input, other.unsqueeze(1)).squeeze(1)
    if input.dim() == 1 and other.dim() == 2 and not isinstance(input, Sparse):
        return mm(input.unsqueeze(0), other).squeeze(0)
    if input.dim() > 2 and other.dim() == 2 and not isinstance(input, Sparse):
        return mm(input.reshape(-1, input.shape[-1]), other).reshape(*input.shape[:-1], other.shape[1])
    if input.dim() != 2 or other.dim() != 2:
        raise RuntimeError("expand is unsupported for Sparse tensors")
    return mm(input, other)


@_implements("matmul", "linalg.matmul")
def _matmul(input, other):
    """Computes @ of matrices and vectors."""
    return matmul_by(_mm, input, other)


SparseTensor.__matmul__ = lambda self, other: OPS["matmul"].fn(self, other)
SparseTensor.__rmatmul__ = lambda self, other: OPS["matmul"].fn(other, self)


@_implements("mv")
def _mv(input, vec):
    """Multiplies a matrix and a vector."""
    if input.dim() != 2 or vec.dim() != 1:
        raise RuntimeError(f"mv: two tensor dim should be 2 and 1, but got SparseTensor Dim: {input.dim()} Tensor Dim: {vec.dim()}")
    return _matmul(input, vec)


@_implements("bmm")
def _bmm(input, mat2):
    """Multiplies two batches of matrices, the first one sparse, as one product with a
    block-diagonal matrix."""
    if is_sparse(mat2):
        raise RuntimeError("bmm_sparse: Tensor 'mat2' must be dense")
    if input.sparse_dim() != 3 or input.dense_dim():
        raise RuntimeError(f"bmm_sparse: Tensor 'self' must have 3 sparse dims, but has {input.sparse_dim()}")
    if mat2.dim() != 3 or input.shape[0] != mat2.shape[0] or input.shape[2] != mat2.shape[1]:
        raise RuntimeError(f"bmm_sparse: expected 3-D operands with matching batch and inner dimensions, but got sizes {list(input.shape)} and "
                           f"{list(mat2.shape)}")
    if input.dtype != mat2.dtype:
        raise RuntimeError(f"expected self and mat2 to have the same dtype, but got: {input.dtype} != {mat2.dtype}")
    batch, n, k = input.shape
    idx = input._coo_idx
    flat = OPS["stack"].fn([idx[0] * n + idx[1], idx[0] * k + idx[2]])
    v, ptr, ind = by_rows(flat, input._sp_values, batch * n)
    return _product(v, ptr, ind, mat2.reshape(batch * k, mat2.shape[2]), rows=batch * n, ta=False).reshape(batch, n, mat2.shape[2])


def addmm_by(mm, input, mat1, mat2, beta, alpha):
    """Computes beta * input + alpha * mat1 @ mat2 for a dense product."""
    product = mm(mat1, mat2)
    if isinstance(input, Sparse) or isinstance(product, Sparse):
        raise RuntimeError("addmm_sparse_dense: expected strided result tensor, got tensor with layout Sparse")
    if input.dtype != product.dtype:
        raise RuntimeError(f"expected input and mat1 to have the same dtype, but got: {input.dtype} != {product.dtype}")
    if input.dim() > 2 or any([a not in (1, b) for a, b in zip(reversed(input.shape), reversed(product.shape))]):
        raise RuntimeError(f"The expanded size of the tensor {list(product.shape)} must match the existing size {list(input.shape)}")
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return (input if beta == 1 else input * beta) + product


@_implements("addmm")
def _addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """Computes beta * input + alpha * mat1 @ mat2."""
    return addmm_by(_mm, input, mat1, mat2, beta, alpha)


def linear_by(matmul, input, weight, bias):
    """Computes input @ weight.t() + bias."""
    r = matmul(input, weight.t())
    return r if bias is None else r + bias


meaning("nn.functional.linear", lambda input, weight, bias=None: linear_by(_matmul, input, weight, bias))


# ------------------------------------------------------------------ sparse results
def _sparse_and_dense(name, mat1, mat2):
    n, m = check_pair(name, mat1, mat2)
    if not is_sparse(mat1) or isinstance(mat2, Sparse):
        raise RuntimeError(f"{name}: expected a sparse and a dense matrix")
    return n, m


def _rows_of_product(mat1, mat2):
    """Returns (indices of the product's rows that have elements, the values of these rows)."""
    found, at = _unique(_keys(mat1._coo_idx[:1], sizes=(mat1.shape[0],)))
    terms = mat1._sp_values.unsqueeze(1) * _gather(mat2, mat1._coo_idx.select(0, 1))
    return found, _add_up(terms, at, found._numel)


@_implements("hspmm")
def _hspmm(mat1, mat2):
    """Multiplies a sparse and a dense matrix. The result has one sparse and one dense dim."""
    n, m = _sparse_and_dense("hspmm", mat1, mat2)
    found, rows = _rows_of_product(mat1, mat2)
    return sparse_of(found.reshape(1, -1), rows, (n, m), False)


@_implements("sspaddmm")
def _sspaddmm(input, mat1, mat2, *, beta=1, alpha=1):
    """Computes beta * input + alpha * mat1 @ mat2 as a sparse matrix: the elements of input
    followed by those of the product."""
    n, m = _sparse_and_dense("sspaddmm", mat1, mat2)
    if not is_sparse(input) or tuple(input.shape) != (n, m):
        raise RuntimeError(f"sspaddmm: expected a sparse matrix of size {[n, m]}")
    idx, v = _product_elements(mat1, mat2, m)
    cat = OPS["cat"].fn
    return sparse_of(cat([input._coo_idx, idx], 1), cat([input._sp_values * beta, v * alpha], 0), (n, m))


def _product_elements(mat1, mat2, m):
    found, rows = _rows_of_product(mat1, mat2)
    at = OPS["arange"].fn(m, device=found.device)
    return OPS["stack"].fn([found.repeat_interleave(m), at.repeat(found._numel)]), rows.reshape(-1)


@_implements("smm")
def _smm(input, mat2):
    """Multiplies a sparse and a dense matrix. The result is sparse."""
    n, m = _sparse_and_dense("smm", input, mat2)
    idx, v = _product_elements(input, mat2, m)
    return sparse_of(idx, v, (n, m))


@_method
def dot(self, tensor):
    _raise_unsupported("dot", self)
